// diagonal.cu: the diagonals of matrices, and the way back.
//
// Memory: `sizes` and `steps` are those of a tensor seen along its diagonals, which begin at `begin`; forward
// reads n floats there and writes n side by side, backward reads n side by side and writes those alone, so
// what lies beside them must be 0 before. No workspace. Bytes: 8 n. FLOPs: none.
#include "common.h"

extern "C" __global__ void diagonal_forward_strided(const float *data, float *out, long long n,
                                                    long long begin, Dims sizes, Dims steps) {
  fill_each(out, n, [=](long long i) { return data[begin + strided_offset(i, sizes, steps)]; });
}

extern "C" __global__ void diagonal_backward_strided(const float *grad, float *out, long long n,
                                                     long long begin, Dims sizes, Dims steps) {
  GRID_STRIDE (i, n) out[begin + strided_offset(i, sizes, steps)] = grad[i];
}

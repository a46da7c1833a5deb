// logical.cu: logical and, or, xor and not, where whatever is not 0 holds, NaN too.
//
// Memory: n floats of each input are read once and n floats of out written; out may be an input of its size.
// In the strided forms each operand is read where its strides lead, with stride 0 on the axes along which it is
// repeated. No workspace.
//
// Bytes: 4 n (inputs + 1). FLOPs: n.
#include "broadcast.h"
#include "common.h"

__device__ __forceinline__ float truth(bool holds) { return holds ? 1.f : 0.f; }

#define LOGICAL(NAME, HOLDS)                                                                           \
  extern "C" __global__ void NAME##_forward_float32(const float *lhs, const float *rhs, float *out,    \
                                                    long long n) {                                     \
    map_each(lhs, rhs, out, n, [](float x, float y) { return truth(HOLDS); });                         \
  }                                                                                                    \
  extern "C" __global__ void NAME##_scalar_forward_float32(const float *data, float *out, long long n, \
                                                           float y) {                                  \
    map_each(data, out, n, [=](float x) { return truth(HOLDS); });                                     \
  }                                                                                                    \
  BROADCAST(broadcast_##NAME##_forward_strided, return truth(HOLDS))

LOGICAL(logical_and, x != 0.f && y != 0.f)
LOGICAL(logical_or, x != 0.f || y != 0.f)
LOGICAL(logical_xor, (x != 0.f) != (y != 0.f))

extern "C" __global__ void logical_not_forward_float32(const float *data, float *out, long long n) {
  map_each(data, out, n, [](float x) { return truth(x == 0.f); });
}

// reduce.cu: sum, mean, max and min over any axes, and their gradients.
//
// Memory contract of reduce_forward: x is only read; `out` has outputs * pieces floats and is neither x nor
// inside it. The `length` numbers of an output are cut into pieces of `piece`, each reduced alone to
// out[output][number of the piece]; a second launch of the same kernel over (outputs, pieces) then combines
// them. Which numbers form a piece, and the order within it, depends on the reduced axes alone: never on the
// kept ones, nor on the device. Workspace: outputs * pieces floats where there is more than one piece, else
// none. per number: 4 bytes read, 1 FLOP; 4 bytes written a piece.
//
// Memory contract of reduce_backward: grad and extremum have one float an output and are only read, data_grad
// has the shape `sizes` and may be `data`, whose element is read before it is overwritten by the same thread.
// No workspace. per element: 4 bytes written, 4 read (extremum only), 1 FLOP.
#include "reduce.h"
#include "rows.h"

struct Sum {
  template <class Group, class F>
  static __device__ __forceinline__ float over(long long count, F f) {
    return row_sum<Group>(count, f);
  }
};

struct Max {
  template <class Group, class F>
  static __device__ __forceinline__ float over(long long count, F f) {
    return row_max<Group>(count, f);
  }
};

struct Min {
  template <class Group, class F>
  static __device__ __forceinline__ float over(long long count, F f) {
    return row_min<Group>(count, f);
  }
};

template <class Group>
__device__ __forceinline__ void sum_forward(const float *x, float *out, long long outputs, long long pieces,
                                            long long length, long long piece, const Dims &kept,
                                            const Dims &kept_steps, const Dims &reduced,
                                            const Dims &reduced_steps, float divisor) {
  reduce_forward<Group, Sum>(x, out, outputs, pieces, length, piece, kept, kept_steps, reduced, reduced_steps,
                             divisor);
}

template <class Group>
__device__ __forceinline__ void max_forward(const float *x, float *out, long long outputs, long long pieces,
                                            long long length, long long piece, const Dims &kept,
                                            const Dims &kept_steps, const Dims &reduced,
                                            const Dims &reduced_steps, float divisor) {
  reduce_forward<Group, Max>(x, out, outputs, pieces, length, piece, kept, kept_steps, reduced, reduced_steps,
                             divisor);
}

template <class Group>
__device__ __forceinline__ void min_forward(const float *x, float *out, long long outputs, long long pieces,
                                            long long length, long long piece, const Dims &kept,
                                            const Dims &kept_steps, const Dims &reduced,
                                            const Dims &reduced_steps, float divisor) {
  reduce_forward<Group, Min>(x, out, outputs, pieces, length, piece, kept, kept_steps, reduced, reduced_steps,
                             divisor);
}

ROW_KERNELS(sum_forward, sum_forward, REDUCE_PARAMETERS, REDUCE_ARGUMENTS)
ROW_KERNELS(max_forward, max_forward, REDUCE_PARAMETERS, REDUCE_ARGUMENTS)
ROW_KERNELS(min_forward, min_forward, REDUCE_PARAMETERS, REDUCE_ARGUMENTS)

// data_grad = grad / divisor along the reduced axes, where `steps` is 0
extern "C" __global__ void sum_backward_broadcast(const float *grad, float *data_grad, long long n,
                                                  Dims sizes, Dims steps, float divisor) {
  GRID_STRIDE(i, n) data_grad[i] = grad[strided_offset(i, sizes, steps)] / divisor;
}

// data_grad = grad where data is its group's extremum, else 0; as a product, as the NumPy definition has it
extern "C" __global__ void extremum_backward_broadcast(const float *grad, const float *data,
                                                       const float *extremum, float *data_grad, long long n,
                                                       Dims sizes, Dims steps) {
  GRID_STRIDE(i, n) {
    long long group = strided_offset(i, sizes, steps);
    data_grad[i] = (data[i] == extremum[group] ? 1.f : 0.f) * grad[group];
  }
}

// reduce_more.cu: products over any axes, and their gradient; and tensors without their NaN.
//
// The memory contract of prod_forward is that of a reduction in reduce.cu. prod_backward reads grad and
// product, a float an output, and data, whose element is read before the same thread overwrites it, for out
// may be data. No workspace. Bytes: 4 a number forward, 8 backward and what is reduced. FLOPs: 1 and 2.
//
// fill_nan reads n floats of each input and writes n, which may be those of an input. Bytes: 8 n forward, 12
// n backward. FLOPs: none.
#include "common.h"
#include "reduce.h"
#include "rows.h"

__device__ __forceinline__ float warp_product(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x *= __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

template <class Group>
struct Join;
template <>
struct Join<ThreadGroup> {
  static __device__ __forceinline__ float over(float x) { return x; }
};
template <>
struct Join<WarpGroup> {
  static __device__ __forceinline__ float over(float x) { return warp_product(x); }
};
template <>
struct Join<BlockGroup> {
  static __device__ __forceinline__ float over(float x) {
    __shared__ float products[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x = warp_product(x);
    if (lane == 0) products[warp] = x;
    __syncthreads();
    x = warp_product(lane < blockDim.x / 32 ? products[lane] : 1.f);
    __syncthreads();
    return x;
  }
};

struct Product {
  template <class Group, class F>
  static __device__ __forceinline__ float over(long long count, F f) {
    float product = 1.f;
    FOR_PLACES(Group, place, count) product *= f(place);
    return Join<Group>::over(product);
  }
};

template <class Group>
__device__ __forceinline__ void prod_forward(const float *x, float *out, long long outputs, long long pieces,
                                             long long length, long long piece, const Dims &kept,
                                             const Dims &kept_steps, const Dims &reduced,
                                             const Dims &reduced_steps, float divisor) {
  reduce_forward<Group, Product>(x, out, outputs, pieces, length, piece, kept, kept_steps, reduced,
                                 reduced_steps, divisor);
}

ROW_KERNELS(prod_forward, prod_forward, REDUCE_PARAMETERS, REDUCE_ARGUMENTS)

// out = product / data * grad, the reduced tensors repeated along the axes where `steps` is 0
extern "C" __global__ void prod_backward_broadcast(const float *grad, const float *data, const float *product,
                                                   float *out, long long n, Dims sizes, Dims steps) {
  GRID_STRIDE (i, n) {
    long long group = strided_offset(i, sizes, steps);
    out[i] = product[group] / data[i] * grad[group];
  }
}

extern "C" __global__ void fill_nan_forward_float32(const float *data, float *out, long long n, float value) {
  map_each(data, out, n, [=](float x) { return x != x ? value : x; });
}

extern "C" __global__ void fill_nan_backward_float32(const float *grad, const float *data, float *out,
                                                     long long n) {
  map_each(grad, data, out, n, [](float g, float x) { return x != x ? 0.f : g; });
}

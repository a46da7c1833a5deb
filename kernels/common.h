// common.h: what the kernel files share: sizes by value, grid-stride loops, elementwise loops over four
// numbers at a time, reductions in a fixed order, and functions whose edge cases follow NumPy's.
//
// Buffers begin at multiples of 64 bytes, so whole tensors may be read as float4; their tails are read one by
// one. Nothing here is __restrict__: kernels of ops that work in place are given the same pointer twice.
#pragma once

// Sizes or strides of up to eight dimensions, padded in front (launch.py: dims).
struct Dims {
  long long d[8];
};

// for (long long i = this thread; i < n; i += all threads)
#define GRID_STRIDE(i, n)                                                                          \
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, i##_end = (n); i < i##_end; \
       i += (long long)gridDim.x * blockDim.x)

// ---- elementwise loops ---------------------------------------------------------------------------
// Each thread reads what it needs of element i before it writes element i, so out may be any of the inputs.

// out[i] = f(i), f by value; for functions of an index.
template <class F>
__device__ __forceinline__ void fill_each(float *out, long long n, F f) {
  GRID_STRIDE (i, n) out[i] = f(i);
}

// out[i] = f(a[i])
template <class F>
__device__ __forceinline__ void map_each(const float *a, float *out, long long n, F f) {
  long long quads = n / 4;
  GRID_STRIDE (q, quads) {
    float4 x = reinterpret_cast<const float4 *>(a)[q];
    reinterpret_cast<float4 *>(out)[q] = make_float4(f(x.x), f(x.y), f(x.z), f(x.w));
  }
  long long rest = 4 * quads + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) out[rest] = f(a[rest]);
}

// out[i] = f(a[i], b[i])
template <class F>
__device__ __forceinline__ void map_each(const float *a, const float *b, float *out, long long n, F f) {
  long long quads = n / 4;
  GRID_STRIDE (q, quads) {
    float4 x = reinterpret_cast<const float4 *>(a)[q];
    float4 y = reinterpret_cast<const float4 *>(b)[q];
    reinterpret_cast<float4 *>(out)[q] = make_float4(f(x.x, y.x), f(x.y, y.y), f(x.z, y.z), f(x.w, y.w));
  }
  long long rest = 4 * quads + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) out[rest] = f(a[rest], b[rest]);
}

// out[i] = f(a[i], b[i], c[i])
template <class F>
__device__ __forceinline__ void map_each(const float *a, const float *b, const float *c, float *out,
                                         long long n, F f) {
  long long quads = n / 4;
  GRID_STRIDE (q, quads) {
    float4 x = reinterpret_cast<const float4 *>(a)[q];
    float4 y = reinterpret_cast<const float4 *>(b)[q];
    float4 z = reinterpret_cast<const float4 *>(c)[q];
    reinterpret_cast<float4 *>(out)[q] =
        make_float4(f(x.x, y.x, z.x), f(x.y, y.y, z.y), f(x.z, y.z, z.z), f(x.w, y.w, z.w));
  }
  long long rest = 4 * quads + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) out[rest] = f(a[rest], b[rest], c[rest]);
}

// ---- indices -------------------------------------------------------------------------------------

// The offset of element `index` of a tensor of sizes `shape` in storage of strides `strides` (both in
// elements).
__device__ __forceinline__ long long strided_offset(long long index, const Dims &shape, const Dims &strides) {
  long long offset = 0;
  for (int k = 7; k > 0 && index > 0; --k) {
    long long rest = index / shape.d[k];
    offset += (index - rest * shape.d[k]) * strides.d[k];
    index = rest;
  }
  return offset + index * strides.d[0];
}

// ---- reductions, always in the same order --------------------------------------------------------

// The sum, largest or smallest value over the 32 lanes of a full warp; every lane gets it.
__device__ __forceinline__ float warp_sum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

// fmaxf and fminf return the other operand when one is NaN; NumPy's extrema return NaN.
__device__ __forceinline__ float max_nan(float a, float b) { return a != a || a > b ? a : b; }
__device__ __forceinline__ float min_nan(float a, float b) { return a != a || a < b ? a : b; }

__device__ __forceinline__ float warp_max(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = max_nan(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  return x;
}

__device__ __forceinline__ float warp_min(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = min_nan(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  return x;
}

// The sum over a one-dimensional block whose size is a multiple of 32; every thread gets it. `scratch` is 32
// floats of shared memory, free again when the call returns. All threads must call.
__device__ __forceinline__ float block_sum(float x, float *scratch) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? scratch[lane] : 0.f);
  __syncthreads();
  return x;
}

// As block_sum, with the largest value; NaN if any value is.
__device__ __forceinline__ float block_max(float x, float *scratch) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_max(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_max(scratch[lane < warps ? lane : 0]);
  __syncthreads();
  return x;
}

// As block_max, with the smallest value.
__device__ __forceinline__ float block_min(float x, float *scratch) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  x = warp_min(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  x = warp_min(scratch[lane < warps ? lane : 0]);
  __syncthreads();
  return x;
}

// ---- functions -----------------------------------------------------------------------------------

// max(x, 0) with NaN kept.
__device__ __forceinline__ float relu(float x) { return x < 0.f ? 0.f : x; }
// 1 / (1 + exp(-x)); where exp overflows the quotient is the right 0.
__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
// log(1 + exp(x)), which never overflows.
__device__ __forceinline__ float softrelu(float x) { return relu(x) + log1pf(expf(-fabsf(x))); }
// x / (1 + |x|)
__device__ __forceinline__ float softsign(float x) { return x / (1.f + fabsf(x)); }
// -1, 0 or 1; NaN stays NaN.
__device__ __forceinline__ float sign(float x) { return x > 0.f ? 1.f : x < 0.f ? -1.f : x == 0.f ? 0.f : x; }

// Their derivatives as functions of the output y.
__device__ __forceinline__ float relu_slope(float y) { return y > 0.f ? 1.f : 0.f; }
__device__ __forceinline__ float sigmoid_slope(float y) { return (1.f - y) * y; }
__device__ __forceinline__ float tanh_slope(float y) { return 1.f - y * y; }
__device__ __forceinline__ float softrelu_slope(float y) { return -expm1f(-y); }
__device__ __forceinline__ float softsign_slope(float y) { return (1.f - fabsf(y)) * (1.f - fabsf(y)); }

// The activation that a kernel applies to its output itself, by its number in operands.py.
enum Activation { kNone, kRelu, kSigmoid, kTanh };

__device__ __forceinline__ float activate(float x, int act) {
  return act == kRelu ? relu(x) : act == kSigmoid ? sigmoid(x) : act == kTanh ? tanhf(x) : x;
}

// The slope of an activation whose output is y.
__device__ __forceinline__ float activation_slope(float y, int act) {
  return act == kRelu ? relu_slope(y) : act == kSigmoid ? sigmoid_slope(y) : act == kTanh ? tanh_slope(y) : 1.f;
}

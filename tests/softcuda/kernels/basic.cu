// basic.cu: right kernels that use what the executor offers: shared memory, barriers, shuffles, atomics,
// globals.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void axpy(float a, const float *__restrict__ x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

// y = x, thread by thread, without a look at n: the launch gives the size.
extern "C" __global__ void copy(const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}

template <int TILE>
__device__ __forceinline__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.f;
  for (int k0 = 0; k0 < k; k0 += TILE) {
    int a_column = k0 + threadIdx.x, b_row = k0 + threadIdx.y;
    a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[row * k + a_column] : 0.f;
    b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[b_row * n + column] : 0.f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

#define MATMUL(TILE)                                                                 \
  extern "C" __global__ void __launch_bounds__((TILE) * (TILE))                      \
      matmul_##TILE(const float *a, const float *b, float *c, int m, int n, int k) { \
    matmul<TILE>(a, b, c, m, n, k);                                                  \
  }
MATMUL(8)
MATMUL(16)

// Reverses a block's elements through dynamic shared memory.
extern "C" __global__ void reverse(const float *x, float *y) {
  extern __shared__ float staged[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  staged[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = staged[blockDim.x - 1 - threadIdx.x];
}

// A warp per row.
extern "C" __global__ void softmax(const float *x, float *y, int rows, int columns) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
  if (row >= rows) return;
  float most = -INFINITY, sum = 0.f;
  for (int c = lane; c < columns; c += 32) most = fmaxf(most, x[row * columns + c]);
  for (int bit = 16; bit; bit >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
  for (int c = lane; c < columns; c += 32) sum += __expf(x[row * columns + c] - most);
  for (int bit = 16; bit; bit >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
  for (int c = lane; c < columns; c += 32) y[row * columns + c] = __expf(x[row * columns + c] - most) / sum;
}

extern "C" __global__ void sum(const float *x, float *out, int n) {
  __shared__ float parts[32];
  float mine = 0.f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += x[i];
  for (int delta = 16; delta; delta >>= 1) mine += __shfl_down_sync(0xffffffffu, mine, delta);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0.f;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) total += parts[warp];
  atomicAdd(out, total);
}

// The upper half of a warp exchanges after the lower half has returned; ballots and the other shuffles.
extern "C" __global__ void half_warp(int *y) {
  int lane = threadIdx.x;
  if (lane < 16) return;
  y[lane] = __shfl_sync(0xffff0000u, lane, 31 - lane + 16);
}

extern "C" __global__ void warp_operations(int *y) {
  int lane = threadIdx.x;
  y[lane] = __shfl_up_sync(0xffffffffu, lane, 3);
  y[32 + lane] = __shfl_sync(0xffffffffu, lane, 1, 8);
  y[64 + lane] = int(__ballot_sync(0xffffffffu, lane % 3 == 0));
  y[96 + lane] = __any_sync(0xffffffffu, lane == 7) + 2 * __all_sync(0xffffffffu, lane < 31);
}

__device__ int calls;
__constant__ float coefficients[4];
extern "C" __global__ void use_globals(float *y) {
  y[threadIdx.x] = coefficients[threadIdx.x];
  atomicAdd(&calls, 1);
}

struct Affine {
  float scale, shift;
};
// Parameters of several sizes and a struct: the packed buffer's layout.
extern "C" __global__ void affine(signed char first, Affine by, double offset, const __half *x, float *y,
                                  int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __half2float(x[i]) * by.scale + by.shift + float(offset) + first;
}

// Each block writes the number of the blocks that were done before it.
extern "C" __global__ void block_ranks(int *counter, int *rank) { rank[blockIdx.x] = atomicAdd(counter, 1); }

// Each thread writes the number of the block's threads that began before it.
extern "C" __global__ void thread_ranks(int *rank) {
  __shared__ int counter;
  if (blockDim.x == 1) return;
  rank[threadIdx.x] = atomicAdd(&counter, 1);
}

// Nobody has written what is read, if the block is no wider than 32.
extern "C" __global__ void read_shared(float *statics, float *dynamics) {
  __shared__ float static_array[64];
  extern __shared__ float dynamic_array[];
  if (threadIdx.x >= 32) static_array[threadIdx.x % 64] = 0.f;
  statics[threadIdx.x] = static_array[threadIdx.x];
  dynamics[threadIdx.x] = dynamic_array[threadIdx.x];
}

// Busy for a while: n dependent steps.
extern "C" __global__ void spin(const float *x, float *y, int n) {
  float v = x[threadIdx.x];
  for (int i = 0; i < n; ++i) v = v * 0.999f + 0.001f;
  y[threadIdx.x] = v;
}

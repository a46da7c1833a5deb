// faulty.cu: one planted bug per kernel.

extern "C" __global__ void no_bounds_test(const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}

// Within the slack between the allocation and its guard page.
extern "C" __global__ void one_behind(float *y, int n) { y[n] = 1.f; }

extern "C" __global__ void missing_barrier(const float *x, float *y) {
  __shared__ float staged[256];
  staged[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = staged[255 - threadIdx.x];
}

extern "C" __global__ void divergent_barriers(float *y) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  y[threadIdx.x] = 1.f;
}

extern "C" __global__ void exit_before_barrier(float *y) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  y[threadIdx.x] = 1.f;
}

// Half of the warp waits for lanes that are at a barrier.
extern "C" __global__ void deadlock(float *y) {
  if (threadIdx.x < 16)
    y[0] = __shfl_sync(0xffffffffu, 1.f, 0);
  else
    __syncthreads();
}

extern "C" __global__ void different_masks(int *y) {
  unsigned mask = threadIdx.x == 0 ? 0x3u : 0x7u;
  if (threadIdx.x < 3) y[threadIdx.x] = __shfl_sync(mask, int(threadIdx.x), 0);
}

extern "C" __global__ void shared_index(float *y) {
  __shared__ float staged[32];
  staged[threadIdx.x] = 1.f;
  __syncthreads();
  y[threadIdx.x] = staged[threadIdx.x];
}

extern "C" __global__ void misaligned_vector(const float *x, float4 *y) {
  y[threadIdx.x] = *reinterpret_cast<const float4 *>(x + 1 + threadIdx.x);
}

extern "C" __global__ void dynamic_shared_index(float *y) {
  extern __shared__ float staged[];
  staged[threadIdx.x] = 1.f;
  y[threadIdx.x] = staged[threadIdx.x];
}

extern "C" __global__ void divide(const int *x, int *y) { y[threadIdx.x] = 7000 / x[threadIdx.x]; }

__device__ int recurse(volatile int *y, int depth) {
  volatile char frame[1024];
  frame[depth % 1024] = char(depth);
  return depth == 0 ? y[0] : recurse(y, depth - 1) + frame[depth % 1024];
}
extern "C" __global__ void stack_overflow(int *y) { y[0] = recurse(y, 1000); }

// rows.h: work on rows of numbers by a thread, a warp or a block each, as the length of a row asks (rows.py
// chooses).
//
// A kernel is written once for a group of threads and made three times, by ROW_KERNELS. How a row's numbers
// are shared among the threads of a group, and so the order in which they are added, depends on the row's
// length alone.
#pragma once
#include "common.h"

// One thread a row.
struct ThreadGroup {
  static __device__ __forceinline__ long long row() {
    return (long long)blockIdx.x * blockDim.x + threadIdx.x;
  }
  static __device__ __forceinline__ long long rows() { return (long long)gridDim.x * blockDim.x; }
  static __device__ __forceinline__ int first() { return 0; }
  static __device__ __forceinline__ int step() { return 1; }
  static __device__ __forceinline__ float sum(float x) { return x; }
  static __device__ __forceinline__ float max(float x) { return x; }
  static __device__ __forceinline__ float min(float x) { return x; }
};

// One warp a row; all lanes get the results.
struct WarpGroup {
  static __device__ __forceinline__ long long row() {
    return ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
  }
  static __device__ __forceinline__ long long rows() { return (long long)gridDim.x * blockDim.x / 32; }
  static __device__ __forceinline__ int first() { return threadIdx.x % 32; }
  static __device__ __forceinline__ int step() { return 32; }
  static __device__ __forceinline__ float sum(float x) { return warp_sum(x); }
  static __device__ __forceinline__ float max(float x) { return warp_max(x); }
  static __device__ __forceinline__ float min(float x) { return warp_min(x); }
};

// One block a row; all threads get the results, and all must ask for them.
struct BlockGroup {
  static __device__ __forceinline__ long long row() { return blockIdx.x; }
  static __device__ __forceinline__ long long rows() { return gridDim.x; }
  static __device__ __forceinline__ int first() { return threadIdx.x; }
  static __device__ __forceinline__ int step() { return blockDim.x; }
  static __device__ __forceinline__ float *scratch() {
    __shared__ float numbers[32];
    return numbers;
  }
  static __device__ __forceinline__ float sum(float x) { return block_sum(x, scratch()); }
  static __device__ __forceinline__ float max(float x) { return block_max(x, scratch()); }
  static __device__ __forceinline__ float min(float x) { return block_min(x, scratch()); }
};

// for each row of the group's share
#define FOR_ROWS(Group, r, count) \
  for (long long r = Group::row(), r##_end = (count); r < r##_end; r += Group::rows())

// for each place in the thread's share of a row
#define FOR_PLACES(Group, place, count) \
  for (long long place = Group::first(), place##_end = (count); place < place##_end; place += Group::step())

// name_thread, name_warp and name_block: three kernels that call body<Group> with the same arguments.
#define ROW_KERNELS(name, body, parameters, arguments)                                 \
  extern "C" __global__ void name##_thread parameters { body<ThreadGroup> arguments; } \
  extern "C" __global__ void name##_warp parameters { body<WarpGroup> arguments; }     \
  extern "C" __global__ void __launch_bounds__(1024) name##_block parameters { body<BlockGroup> arguments; }

// The sum of f(place) over a row. A thread adds 128 numbers, then adds that to its total, so that the
// rounding error does not grow with the length of a long row.
template <class Group, class F>
__device__ __forceinline__ float row_sum(long long count, F f) {
  float total = 0.f;
  long long step = Group::step(), stretch = 128 * step;
  for (long long start = Group::first(); start < count; start += stretch) {
    long long end = start + stretch < count ? start + stretch : count;
    float part = 0.f;
    for (long long place = start; place < end; place += step) part += f(place);
    total += part;
  }
  return Group::sum(total);
}

// The largest and the smallest f(place) over a row, NaN if any is; -infinity and infinity of an empty row.
template <class Group, class F>
__device__ __forceinline__ float row_max(long long count, F f) {
  float most = __int_as_float(0xff800000);
  FOR_PLACES(Group, place, count) most = max_nan(most, f(place));
  return Group::max(most);
}

template <class Group, class F>
__device__ __forceinline__ float row_min(long long count, F f) {
  float least = __int_as_float(0x7f800000);
  FOR_PLACES(Group, place, count) least = min_nan(least, f(place));
  return Group::min(least);
}

// A row along the middle axis of an (outer, length, inner) tensor.
struct Row {
  long long base, step;
  __device__ __forceinline__ Row(long long row, long long length, long long inner)
      : base(row * length), step(1) {
    if (inner != 1) {
      long long outer = row / inner;
      base = outer * length * inner + (row - outer * inner);
      step = inner;
    }
  }
  // Where a place of the row lies in the tensor.
  __device__ __forceinline__ long long at(long long place) const { return base + place * step; }
};

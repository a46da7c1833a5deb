// selecting.cu: where and its gradient, the place of an extremum along an axis, and the row numbers of
// gather_nd.
//
// where: n floats of each input are read and n written; out may be y (where) or grad (where_backward). A
// condition has one number for `width` neighbouring elements. Bytes: 12 n. FLOPs: none.
//
// arg_extremum: a tensor (outer, classes, inner) is read once, a float a row written; a row is a thread's, a
// warp's or a block's (rows.h). NaN counts as the extremum, and of equal ones the first is taken.
//
// gather_numbers: reads `axes` ids a place and writes the number of the row they name, -1 where one is out of
// range, as 64-bit numbers to workspace; indexing.cu gathers and scatters by them.
#include "ids.h"
#include "rows.h"

extern "C" __global__ void where_forward_float32(const void *condition, int kind, const float *x,
                                                 const float *y, float *out, long long n, long long width) {
  GRID_STRIDE (i, n) out[i] = number_at(condition, kind, i / width) != 0.f ? x[i] : y[i];
}

extern "C" __global__ void where_backward_float32(const float *grad, const void *condition, int kind,
                                                  float *out, long long n, long long width, int hold) {
  GRID_STRIDE (i, n) out[i] = (number_at(condition, kind, i / width) != 0.f) == (hold != 0) ? grad[i] : 0.f;
}

// ---- the place of an extremum --------------------------------------------------------------------

struct Found {
  float value;
  long long place;

  // The other one, if it is larger, or NaN before this, or equal and earlier.
  __device__ __forceinline__ void take(float v, long long p) {
    bool nan = v != v, mine = value != value;
    bool better =
        place < 0 || (nan || mine ? nan && (!mine || p < place) : v > value || (v == value && p < place));
    if (p >= 0 && better) value = v, place = p;
  }
};

__device__ __forceinline__ Found warp_found(Found f) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    float value = __shfl_xor_sync(0xffffffffu, f.value, lanes);
    f.take(value, __shfl_xor_sync(0xffffffffu, f.place, lanes));
  }
  return f;
}

// All threads of the block must call; every thread gets the result.
__device__ __forceinline__ Found block_found(Found f) {
  __shared__ float values[32];
  __shared__ long long places[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  f = warp_found(f);
  if (lane == 0) values[warp] = f.value, places[warp] = f.place;
  __syncthreads();
  bool used = lane < blockDim.x / 32;
  f = warp_found(Found{used ? values[lane] : 0.f, used ? places[lane] : -1});
  __syncthreads();
  return f;
}

template <class Group>
struct Join;
template <>
struct Join<ThreadGroup> {
  static __device__ __forceinline__ Found over(Found f) { return f; }
};
template <>
struct Join<WarpGroup> {
  static __device__ __forceinline__ Found over(Found f) { return warp_found(f); }
};
template <>
struct Join<BlockGroup> {
  static __device__ __forceinline__ Found over(Found f) { return block_found(f); }
};

// `sign` is 1 for the largest element and -1 for the smallest.
template <class Group>
__device__ __forceinline__ void arg_extremum(const float *data, float *out, long long rows, long long classes,
                                             long long inner, float sign) {
  FOR_ROWS(Group, r, rows) {
    Row row(r, classes, inner);
    Found found{0.f, -1};
    FOR_PLACES(Group, c, classes) found.take(data[row.at(c)] * sign, c);
    found = Join<Group>::over(found);
    if (Group::first() == 0) out[r] = (float)found.place;
  }
}

ROW_KERNELS(arg_extremum_forward, arg_extremum,
            (const float *data, float *out, long long rows, long long classes, long long inner, float sign),
            (data, out, rows, classes, inner, sign))

// ---- gather_nd -----------------------------------------------------------------------------------

// numbers[i] = the number of the row that ids (axes, places) name in a tensor of first sizes `sizes`
extern "C" __global__ void gather_numbers_forward(const void *ids, int kind, long long *numbers,
                                                  long long places, int axes, Dims sizes) {
  GRID_STRIDE (i, places) {
    long long number = 0;
    for (int axis = 0; axis < axes && number >= 0; ++axis) {
      long long bound = sizes.d[8 - axes + axis], id = id_at(ids, kind, axis * places + i, bound);
      number = id < 0 ? -1 : number * bound + id;
    }
    numbers[i] = number;
  }
}

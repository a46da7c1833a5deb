// basic.cu: copies, fills and casts, and the gradient of MakeLoss by valid elements.
//
// copy, fill: `bytes` bytes are read (copy) and written, in words of 16; any dtype, no workspace.
//
// cast: n elements are read and written in other types, as C converts; no workspace, not in place.
//
// count_valid reads n floats and writes a 64-bit count for each span to the workspace; make_loss_backward
// reads the counts and writes n floats, which may be the ones that were counted. Counts are exact, so their
// order is free.
//
// Bytes: twice the tensor for copy and cast, once for fill, 8 n for valid elements. FLOPs: none, and n to
// count.
#include "common.h"

extern "C" __global__ void copy_forward_bytes(const char *data, char *out, long long bytes) {
  long long words = bytes / 16;
  GRID_STRIDE (w, words) reinterpret_cast<int4 *>(out)[w] = reinterpret_cast<const int4 *>(data)[w];
  long long rest = 16 * words + threadIdx.x;
  if (blockIdx.x == 0 && rest < bytes) out[rest] = data[rest];
}

// Where rows of a tensor do not begin at a word of 16 bytes.
extern "C" __global__ void copy_forward_unaligned(const char *data, char *out, long long bytes) {
  GRID_STRIDE (i, bytes) out[i] = data[i];
}

// `pattern` is the element, repeated to 8 bytes.
extern "C" __global__ void fill_forward_bytes(char *out, long long bytes, unsigned long long pattern) {
  long long words = bytes / 16;
  GRID_STRIDE (w, words) reinterpret_cast<ulonglong2 *>(out)[w] = make_ulonglong2(pattern, pattern);
  long long rest = 16 * words + threadIdx.x;
  if (blockIdx.x == 0 && rest < bytes) out[rest] = char(pattern >> 8 * (rest % 8));
}

#define CAST(FROM_NAME, FROM, TO_NAME, TO)                                                                  \
  extern "C" __global__ void cast_forward_##FROM_NAME##_##TO_NAME(const FROM *data, TO *out, long long n) { \
    GRID_STRIDE (i, n) out[i] = (TO)data[i];                                                                \
  }
#define CAST_TO_ALL(FROM_NAME, FROM)       \
  CAST(FROM_NAME, FROM, float32, float)    \
  CAST(FROM_NAME, FROM, float64, double)   \
  CAST(FROM_NAME, FROM, int32, int)        \
  CAST(FROM_NAME, FROM, int64, long long)  \
  CAST(FROM_NAME, FROM, int8, signed char) \
  CAST(FROM_NAME, FROM, uint8, unsigned char)

CAST_TO_ALL(float32, float)
CAST_TO_ALL(float64, double)
CAST_TO_ALL(int32, int)
CAST_TO_ALL(int64, long long)
CAST_TO_ALL(int8, signed char)
CAST_TO_ALL(uint8, unsigned char)

// The sum of 64-bit numbers over a block of 256 threads; every thread gets it. A barrier must lie before the
// next call.
__device__ __forceinline__ long long block_count(long long x, long long *scratch) {
  scratch[threadIdx.x] = x;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    __syncthreads();
  }
  return scratch[0];
}

// counts[s] = elements of span s that are above the threshold
extern "C" __global__ void count_valid_forward_spans(const float *data, long long *counts, long long n,
                                                     long long span, float threshold) {
  __shared__ long long scratch[256];
  for (long long first = blockIdx.x * span; first < n; first += gridDim.x * span) {
    long long last = min(first + span, n), count = 0;
    for (long long i = first + threadIdx.x; i < last; i += blockDim.x) count += data[i] > threshold;
    count = block_count(count, scratch);
    if (threadIdx.x == 0) counts[first / span] = count;
    __syncthreads();
  }
}

// out = grad_scale / max(sum of counts, 1)
extern "C" __global__ void make_loss_backward_valid(const long long *counts, float *out, long long n,
                                                    long long spans, double grad_scale) {
  __shared__ long long scratch[256];
  long long count = 0;
  for (long long s = threadIdx.x; s < spans; s += blockDim.x) count += counts[s];
  count = block_count(count, scratch);
  float value = float(grad_scale / double(count > 1 ? count : 1));
  GRID_STRIDE (i, n) out[i] = value;
}

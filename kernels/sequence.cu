// sequence.cu: sequences of unequal lengths in a tensor of a time and a batch axis, and numbers in a row.
//
// Memory: inputs are read once, outputs written once, 4 bytes an element each; out of sequence_mask may be
// data. Lengths are one number a member of the batch, in the order of ids.h; out of range they count as 0. No
// workspace. FLOPs: none; 2 n for arange.
#include "common.h"
#include "ids.h"

// Elements from one time and from one member of the batch to the next (sequence.py: Sequences).
struct Sequences {
  long long time, batch, time_step, batch_step;

  __device__ __forceinline__ long long time_of(long long i) const { return i / time_step % time; }
  __device__ __forceinline__ long long member_of(long long i) const { return i / batch_step % batch; }
  // The length of a member's sequence; all of it without lengths.
  __device__ __forceinline__ long long length(const void *lengths, int kind, long long member) const {
    if (!lengths) return time;
    long long found = id_at(lengths, kind, member, time + 1);
    return found < 0 ? 0 : found;
  }
};

extern "C" __global__ void sequence_mask_forward_float32(const float *data, const void *lengths, int kind,
                                                         float *out, long long n, Sequences s, float value) {
  GRID_STRIDE (i, n) out[i] = s.time_of(i) < s.length(lengths, kind, s.member_of(i)) ? data[i] : value;
}

extern "C" __global__ void sequence_reverse_forward_float32(const float *__restrict__ data,
                                                            const void *lengths, int kind,
                                                            float *__restrict__ out, long long n,
                                                            Sequences s) {
  GRID_STRIDE (i, n) {
    long long t = s.time_of(i), length = s.length(lengths, kind, s.member_of(i));
    out[i] = data[t < length ? i + (length - 1 - 2 * t) * s.time_step : i];
  }
}

// out (batch, rest): n elements, `rest` a member; 0 of an empty sequence
extern "C" __global__ void sequence_last_forward_float32(const float *__restrict__ data, const void *lengths,
                                                         int kind, float *__restrict__ out, long long n,
                                                         long long rest, Sequences s) {
  GRID_STRIDE (i, n) {
    long long member = i / rest, length = s.length(lengths, kind, member);
    long long from = member * s.batch_step + (length - 1) * s.time_step + (i - member * rest);
    out[i] = length > 0 ? data[from] : 0.f;
  }
}

extern "C" __global__ void sequence_last_backward_float32(const float *__restrict__ grad, const void *lengths,
                                                          int kind, float *__restrict__ out, long long n,
                                                          long long rest, Sequences s) {
  GRID_STRIDE (i, n) {
    long long member = s.member_of(i), length = s.length(lengths, kind, member);
    out[i] = s.time_of(i) == length - 1 ? grad[member * rest + i % rest] : 0.f;
  }
}

// out[i] = start + step * (i / repeat), in float64
#define ARANGE(NAME, TYPE)                                                                            \
  extern "C" __global__ void arange_forward_##NAME(TYPE *out, long long n, double start, double step, \
                                                   long long repeat) {                                \
    GRID_STRIDE (i, n) out[i] = (TYPE)(start + step * (double)(i / repeat));                          \
  }
ARANGE(float32, float)
ARANGE(float64, double)
ARANGE(int32, int)
ARANGE(int64, long long)
ARANGE(int8, signed char)
ARANGE(uint8, unsigned char)

// pad.cu: margins about a tensor, constant, the edge repeated, or mirrored, and their gradient.
//
// Memory: every float of the output is written once; forward reads one float of data for each, backward the
// places of grad that an element was copied to, in ascending order of axes. No workspace, nothing in place.
// Bytes: 8 n. FLOPs: none forward, one a place backward.
#include "common.h"

enum Margin { kConstant, kEdge, kReflect };

// Sizes of data and of the padded tensor, and the margin before data, of each axis (pad.py: margins).
struct Margins {
  Dims data, padded, before;
};

// The place in data of place `at` of the padded axis; -1 in a constant margin.
template <Margin MODE>
__device__ __forceinline__ long long source_of(long long at, long long before, long long length) {
  long long place = at - before;
  if (place >= 0 && place < length) return place;
  if (MODE == kConstant) return -1;
  if (MODE == kEdge) return place < 0 ? 0 : length - 1;
  return place < 0 ? -place : 2 * (length - 1) - place;
}

template <Margin MODE>
__device__ __forceinline__ void pad(const float *data, float *out, long long n, const Margins &m,
                                    float value) {
  GRID_STRIDE (i, n) {
    long long rest = i, from = 0, pitch = 1;
    bool inside = true;
    for (int k = 7; k >= 0; --k) {
      long long outer = rest / m.padded.d[k];
      long long place = source_of<MODE>(rest - outer * m.padded.d[k], m.before.d[k], m.data.d[k]);
      inside = inside && place >= 0;
      from += place * pitch;
      pitch *= m.data.d[k];
      rest = outer;
    }
    out[i] = inside ? data[from] : value;
  }
}

// The places of one padded axis that place `at` of data was copied to.
template <Margin MODE>
struct Places {
  long long first, count, second, third;

  __device__ Places(long long at, long long before, long long length, long long padded) {
    first = before + at, count = 1, second = third = -1;
    long long after = padded - before - length;
    if (MODE == kEdge) {
      if (at == length - 1) count += after;
      if (at == 0) first = 0, count += before;
    } else if (MODE == kReflect) {
      if (at >= 1 && at <= before) second = before - at, ++count;
      long long mirrored = 2 * (length - 1) - at;
      if (at < length - 1 && mirrored < length + after) third = before + mirrored, ++count;
    }
  }
  __device__ __forceinline__ long long at(long long k) const {
    if (MODE != kReflect) return first + k;
    return k == 0 ? first : k == 1 && second >= 0 ? second : third;
  }
};

template <Margin MODE>
__device__ __forceinline__ void pad_backward(const float *grad, float *out, long long n, const Margins &m) {
  GRID_STRIDE (i, n) {
    long long places[8], counts[8], total = 1, rest = i;
    for (int k = 7; k >= 0; --k) {
      long long outer = rest / m.data.d[k];
      places[k] = rest - outer * m.data.d[k];
      counts[k] = Places<MODE>(places[k], m.before.d[k], m.data.d[k], m.padded.d[k]).count;
      total *= counts[k];
      rest = outer;
    }
    float sum = 0.f;
    for (long long number = 0; number < total; ++number) {
      long long left = number, from = 0, pitch = 1;
      for (int k = 7; k >= 0; --k) {
        long long outer = left / counts[k];
        Places<MODE> axis(places[k], m.before.d[k], m.data.d[k], m.padded.d[k]);
        from += axis.at(left - outer * counts[k]) * pitch;
        pitch *= m.padded.d[k];
        left = outer;
      }
      sum += grad[from];
    }
    out[i] = sum;
  }
}

#define PAD(NAME, MODE)                                                                                   \
  extern "C" __global__ void pad_forward_##NAME(const float *__restrict__ data, float *__restrict__ out,  \
                                                long long n, Margins m, float value) {                    \
    pad<MODE>(data, out, n, m, value);                                                                    \
  }                                                                                                       \
  extern "C" __global__ void pad_backward_##NAME(const float *__restrict__ grad, float *__restrict__ out, \
                                                 long long n, Margins m) {                                \
    pad_backward<MODE>(grad, out, n, m);                                                                  \
  }
PAD(constant, kConstant)
PAD(edge, kEdge)
PAD(reflect, kReflect)

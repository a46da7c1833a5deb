// rounding.cu: elementwise functions with kinks and their gradients: rounding, clip, hard_sigmoid, smooth_l1;
// and erf.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 8 n forward, 12 n backward. FLOPs: n to 5 n, counting a function as one.
#include "common.h"

// The nearest integer, halves down.
__device__ __forceinline__ float round_half_down(float x) {
  float whole = truncf(x), rest = x - whole;
  return rest > 0.5f ? whole + 1.f : rest <= -0.5f ? whole - 1.f : whole;
}

#define FUNCTION(NAME, VALUE)                                                                     \
  extern "C" __global__ void NAME##_forward_float32(const float *data, float *out, long long n) { \
    map_each(data, out, n, [](float x) { return VALUE; });                                        \
  }

FUNCTION(floor, floorf(x))
FUNCTION(ceil, ceilf(x))
FUNCTION(trunc, truncf(x))
FUNCTION(round, roundf(x))
FUNCTION(rint, round_half_down(x))
FUNCTION(erf, erff(x))

// x within [low, high]; NaN stays NaN.
__device__ __forceinline__ float within(float x, float low, float high) {
  return min_nan(max_nan(x, low), high);
}

// Two constants a and b of the op, and a function of data.
#define FUNCTION2(NAME, VALUE)                                                                           \
  extern "C" __global__ void NAME##_forward_float32(const float *data, float *out, long long n, float a, \
                                                    float b) {                                           \
    map_each(data, out, n, [=](float x) { return VALUE; });                                              \
  }
FUNCTION2(clip, within(x, a, b))
// Of whole numbers, as indices are.
#define WHOLE(NAME, TYPE)                                                                                \
  extern "C" __global__ void clip_forward_##NAME(const TYPE *data, TYPE *out, long long n, long long a, \
                                                 long long b) {                                          \
    GRID_STRIDE (i, n) {                                                                                 \
      long long x = data[i];                                                                             \
      x = x < a ? a : x;                                                                                 \
      out[i] = (TYPE)(x > b ? b : x);                                                                    \
    }                                                                                                    \
  }
WHOLE(int32, int)
WHOLE(int64, long long)
FUNCTION2(hard_sigmoid, within(x *a + b, 0.f, 1.f))
// a is sigma squared, b the end of the quadratic part, 1 / a.
FUNCTION2(smooth_l1, (x - 0.5f * within(x, -b, b)) * within(x, -b, b) * a)

// g times a function of what was saved. A product, not a choice: an infinite gradient shows where it is
// blocked, as in NumPy.
#define SLOPE2(NAME, VALUE)                                                                             \
  extern "C" __global__ void NAME##_backward_float32(const float *grad, const float *saved, float *out, \
                                                     long long n, float a, float b) {                   \
    map_each(grad, saved, out, n, [=](float g, float x) { return g * (VALUE); });                       \
  }
SLOPE2(clip, x >= a && x <= b ? 1.f : 0.f)
SLOPE2(hard_sigmoid, x > 0.f && x < 1.f ? a : 0.f)
SLOPE2(smooth_l1, within(x *a, -1.f, 1.f))

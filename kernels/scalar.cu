// scalar.cu: elementwise functions of a tensor and a constant, and their gradients.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 4 n (inputs + 1). FLOPs: n to 4 n, and a power an element where there is one.
#include "common.h"

#define SCALAR(NAME, STATEMENT)                                                          \
  extern "C" __global__ void NAME(const float *data, float *out, long long n, float s) { \
    map_each(data, out, n, [=](float x) { STATEMENT; });                                 \
  }

SCALAR(plus_scalar_forward_float32, return x + s)
SCALAR(minus_scalar_forward_float32, return x - s)
SCALAR(rminus_scalar_forward_float32, return s - x)
SCALAR(mul_scalar_forward_float32, return x * s)
SCALAR(div_scalar_forward_float32, return x / s)
SCALAR(rdiv_scalar_forward_float32, return s / x)
SCALAR(power_scalar_forward_float32, return powf(x, s))
SCALAR(rpower_scalar_forward_float32, return powf(s, x))
SCALAR(maximum_scalar_forward_float32, return max_nan(x, s))
SCALAR(minimum_scalar_forward_float32, return min_nan(x, s))
SCALAR(equal_scalar_forward_float32, return x == s ? 1.f : 0.f)
SCALAR(not_equal_scalar_forward_float32, return x != s ? 1.f : 0.f)
SCALAR(greater_scalar_forward_float32, return x > s ? 1.f : 0.f)
SCALAR(greater_equal_scalar_forward_float32, return x >= s ? 1.f : 0.f)
SCALAR(lesser_scalar_forward_float32, return x < s ? 1.f : 0.f)
SCALAR(lesser_equal_scalar_forward_float32, return x <= s ? 1.f : 0.f)

#define SCALAR_BACKWARD(NAME, STATEMENT)                                                                     \
  extern "C" __global__ void NAME(const float *grad, const float *saved, float *out, long long n, float s) { \
    map_each(grad, saved, out, n, [=](float g, float x) { STATEMENT; });                                     \
  }

SCALAR_BACKWARD(rdiv_scalar_backward_float32, return g * (-s / (x * x)))
SCALAR_BACKWARD(power_scalar_backward_float32, return g * (s == 0.f ? 0.f : powf(x, s - 1.f) * s))
// s is the logarithm of the constant, x the output.
SCALAR_BACKWARD(rpower_scalar_backward_float32, return g * (x * s))
// A product, not a choice: an infinite or NaN gradient shows where it is blocked, as in NumPy.
SCALAR_BACKWARD(multiply_compare_scalar_forward_equal, return g * (x == s ? 1.f : 0.f))
SCALAR_BACKWARD(multiply_compare_scalar_forward_not_equal, return g * (x != s ? 1.f : 0.f))
SCALAR_BACKWARD(multiply_compare_scalar_forward_greater, return g * (x > s ? 1.f : 0.f))
SCALAR_BACKWARD(multiply_compare_scalar_forward_greater_equal, return g * (x >= s ? 1.f : 0.f))
SCALAR_BACKWARD(multiply_compare_scalar_forward_lesser, return g * (x < s ? 1.f : 0.f))
SCALAR_BACKWARD(multiply_compare_scalar_forward_lesser_equal, return g * (x <= s ? 1.f : 0.f))

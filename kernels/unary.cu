// unary.cu: elementwise functions of one tensor, and gradients of those.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 8 n forward, 12 n backward. FLOPs: n to 3 n, counting a function as one.
#include "common.h"

#define UNARY(NAME, STATEMENT)                                                  \
  extern "C" __global__ void NAME(const float *data, float *out, long long n) { \
    map_each(data, out, n, [](float x) { STATEMENT; });                         \
  }

UNARY(exp_forward_float32, return expf(x))
UNARY(log_forward_float32, return logf(x))
UNARY(sqrt_forward_float32, return sqrtf(x))
UNARY(square_forward_float32, return x * x)
UNARY(abs_forward_float32, return fabsf(x))
UNARY(negative_forward_float32, return -x)
UNARY(reciprocal_forward_float32, return 1.f / x)
UNARY(sign_forward_float32, return sign(x))

// `saved` is the output of sqrt and reciprocal, and the input of square and abs.
#define UNARY_BACKWARD(NAME, STATEMENT)                                                             \
  extern "C" __global__ void NAME(const float *grad, const float *saved, float *out, long long n) { \
    map_each(grad, saved, out, n, [](float g, float y) { STATEMENT; });                             \
  }

UNARY_BACKWARD(sqrt_backward_float32, return g * (0.5f / y))
UNARY_BACKWARD(square_backward_float32, return g * (y + y))
UNARY_BACKWARD(abs_backward_float32, return g * sign(y))
UNARY_BACKWARD(reciprocal_backward_float32, return g * -(y * y))

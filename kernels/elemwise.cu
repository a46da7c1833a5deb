// elemwise.cu: elementwise functions of tensors of one shape: arithmetic, powers, extrema, comparisons.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 4 n (inputs + 1). FLOPs: n to 3 n, and a power or logarithm an element where there is one.
#include "common.h"

#define BINARY(NAME, STATEMENT)                                                                  \
  extern "C" __global__ void NAME(const float *lhs, const float *rhs, float *out, long long n) { \
    map_each(lhs, rhs, out, n, [](float x, float y) { STATEMENT; });                             \
  }

BINARY(elemwise_add_forward_float32, return x + y)
BINARY(elemwise_sub_forward_float32, return x - y)
BINARY(elemwise_mul_forward_float32, return x * y)
BINARY(elemwise_div_forward_float32, return x / y)
BINARY(power_forward_float32, return powf(x, y))
BINARY(maximum_forward_float32, return max_nan(x, y))
BINARY(minimum_forward_float32, return min_nan(x, y))
BINARY(equal_forward_float32, return x == y ? 1.f : 0.f)
BINARY(not_equal_forward_float32, return x != y ? 1.f : 0.f)
BINARY(greater_forward_float32, return x > y ? 1.f : 0.f)
BINARY(greater_equal_forward_float32, return x >= y ? 1.f : 0.f)
BINARY(lesser_forward_float32, return x < y ? 1.f : 0.f)
BINARY(lesser_equal_forward_float32, return x <= y ? 1.f : 0.f)

#define TERNARY(NAME, STATEMENT)                                                                          \
  extern "C" __global__ void NAME(const float *grad, const float *first, const float *second, float *out, \
                                  long long n) {                                                          \
    map_each(grad, first, second, out, n, [](float g, float x, float y) { STATEMENT; });                  \
  }

TERNARY(power_backward_lhs_float32, return g * (powf(x, y - 1.f) * y))
TERNARY(power_backward_rhs_float32, return g * (logf(x) * y))
// A product, not a choice: an infinite or NaN gradient shows where it is blocked, as in NumPy.
TERNARY(multiply_compare_forward_equal, return g * (x == y ? 1.f : 0.f))
TERNARY(multiply_compare_forward_not_equal, return g * (x != y ? 1.f : 0.f))
TERNARY(multiply_compare_forward_greater, return g * (x > y ? 1.f : 0.f))
TERNARY(multiply_compare_forward_greater_equal, return g * (x >= y ? 1.f : 0.f))
TERNARY(multiply_compare_forward_lesser, return g * (x < y ? 1.f : 0.f))
TERNARY(multiply_compare_forward_lesser_equal, return g * (x <= y ? 1.f : 0.f))

// -grad * out / rhs. `shape` are the sizes of grad, `steps` the strides of rhs, 0 where it is repeated.
extern "C" __global__ void div_backward_rhs_broadcast(const float *grad, const float *rhs, const float *out,
                                                      float *rhs_grad, long long n, Dims shape, Dims steps) {
  fill_each(rhs_grad, n,
            [=](long long i) { return -(grad[i] * out[i] / rhs[strided_offset(i, shape, steps)]); });
}

// transcendental.cu: roots, logarithms, trigonometric and hyperbolic functions, and their gradients.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 8 n forward, 12 n backward. FLOPs: n to 5 n, counting a function as one.
#include "common.h"

#define FUNCTION(NAME, VALUE)                                                   \
  extern "C" __global__ void NAME(const float *data, float *out, long long n) { \
    map_each(data, out, n, [](float x) { return VALUE; });                      \
  }

FUNCTION(rsqrt_forward_float32, 1.f / sqrtf(x))
FUNCTION(cbrt_forward_float32, cbrtf(x))
FUNCTION(rcbrt_forward_float32, 1.f / cbrtf(x))
FUNCTION(log1p_forward_float32, log1pf(x))
FUNCTION(expm1_forward_float32, expm1f(x))
FUNCTION(log2_forward_float32, log2f(x))
FUNCTION(log10_forward_float32, log10f(x))
FUNCTION(sin_forward_float32, sinf(x))
FUNCTION(cos_forward_float32, cosf(x))
FUNCTION(tan_forward_float32, tanf(x))
FUNCTION(arcsin_forward_float32, asinf(x))
FUNCTION(arccos_forward_float32, acosf(x))
FUNCTION(arctan_forward_float32, atanf(x))
FUNCTION(sinh_forward_float32, sinhf(x))
FUNCTION(cosh_forward_float32, coshf(x))
FUNCTION(arcsinh_forward_float32, asinhf(x))
FUNCTION(arccosh_forward_float32, acoshf(x))
FUNCTION(arctanh_forward_float32, atanhf(x))
FUNCTION(degrees_forward_float32, x * 57.295779513f)
FUNCTION(radians_forward_float32, x * 0.017453292520f)

// By Giles's approximation in single precision (2012), with a relative error of 4e-7.
__device__ __forceinline__ float erfinv_of(float x) {
  float size = fabsf(x), w = -logf((1.f - size) * (1.f + size)), p;
  if (w < 5.f) {
    w -= 2.5f;
    p = ((((2.81022636e-08f * w + 3.43273939e-07f) * w - 3.5233877e-06f) * w - 4.39150654e-06f) * w + 0.00021858087f);
    p = (((p * w - 0.00125372503f) * w - 0.00417768164f) * w + 0.246640727f) * w + 1.50140941f;
  } else {
    w = sqrtf(w) - 3.f;
    p = ((((-0.000200214257f * w + 0.000100950558f) * w + 0.00134934322f) * w - 0.00367342844f) * w + 0.00573950773f);
    p = (((p * w - 0.0076224613f) * w + 0.00943887047f) * w + 1.00167406f) * w + 2.83297682f;
  }
  return size == 1.f ? copysignf(INFINITY, x) : p * x;
}
FUNCTION(erfinv_forward_float32, erfinv_of(x))

// `y` is the output of rsqrt, cbrt, rcbrt, expm1, tan and erfinv, and the input of the others.
#define SLOPE(NAME, VALUE)                                                                              \
  extern "C" __global__ void NAME##_backward_float32(const float *grad, const float *saved, float *out, \
                                                     long long n) {                                     \
    map_each(grad, saved, out, n, [](float g, float y) { return g * (VALUE); });                        \
  }

SLOPE(rsqrt, y * y * y * -0.5f)
SLOPE(cbrt, 1.f / (3.f * (y * y)))
SLOPE(rcbrt, (y * y) * (y * y) * -0.33333333333f)
SLOPE(log1p, 1.f / (y + 1.f))
SLOPE(expm1, y + 1.f)
SLOPE(log2, 1.4426950409f / y)
SLOPE(log10, 0.43429448190f / y)
SLOPE(sin, cosf(y))
SLOPE(cos, -sinf(y))
SLOPE(tan, y *y + 1.f)
SLOPE(arcsin, 1.f / sqrtf(1.f - y * y))
SLOPE(arccos, -1.f / sqrtf(1.f - y * y))
SLOPE(arctan, 1.f / (y * y + 1.f))
SLOPE(sinh, coshf(y))
SLOPE(cosh, sinhf(y))
SLOPE(arcsinh, 1.f / sqrtf(y * y + 1.f))
SLOPE(arccosh, 1.f / sqrtf(y * y - 1.f))
SLOPE(arctanh, 1.f / (1.f - y * y))
SLOPE(erfinv, expf(y *y) * 0.88622692545f)
SLOPE(erf, expf(-(y *y)) * 1.1283791671f)

// gelu.cu: data times its normal distribution function (Hendrycks and Gimpel 2016), and the gradient.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 8 n forward, 12 n backward. FLOPs: 4 n and 9 n, counting a function as one.
#include "common.h"

// The standard normal distribution function, exact in relative terms in the lower tail: erfc(-x / sqrt 2)
// / 2.
__device__ __forceinline__ float normal_cdf(float x) { return 0.5f * erfcf(-0.70710678f * x); }

// exp(-x^2 / 2) / sqrt(2 pi)
__device__ __forceinline__ float normal_density(float x) { return 0.39894228f * expf(-0.5f * x * x); }

extern "C" __global__ void gelu_forward_float32(const float *data, float *out, long long n) {
  map_each(data, out, n, [](float x) { return x * normal_cdf(x); });
}

extern "C" __global__ void gelu_backward_float32(const float *grad, const float *data, float *out,
                                                 long long n) {
  map_each(grad, data, out, n, [](float g, float x) { return g * (normal_cdf(x) + x * normal_density(x)); });
}

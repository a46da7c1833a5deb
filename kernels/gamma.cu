// gamma.cu: the gamma function, its logarithm, and the logarithm's derivative.
//
// Memory: n floats of data are read once and n floats of out written; out may be data. No workspace.
//
// Bytes: 8 n. FLOPs: 30 n to 60 n.
#include "common.h"

constexpr float kPi = 3.14159265358979f;

// log(y) - 1 / (2 y) - 1 / (12 y^2) + ... from 8 on, where three terms are precise to float32; below it the
// recurrence leads there, and below 1/2 the reflection. NaN at 0 and at negative whole numbers.
__device__ __forceinline__ float digamma(float x) {
  bool below = x < 0.5f;
  float y = below ? 1.f - x : x, value = 0.f;
  for (; y < 8.f; y += 1.f) value -= 1.f / y;
  float square = 1.f / (y * y);
  value += logf(y) - 0.5f / y - square * (1.f / 12.f - square * (1.f / 120.f - square / 252.f));
  float fraction = x - rintf(x);
  return !below ? value : fraction == 0.f ? nanf("") : value - kPi / tanf(kPi * fraction);
}

#define FUNCTION(NAME, VALUE)                                                                     \
  extern "C" __global__ void NAME##_forward_float32(const float *data, float *out, long long n) { \
    map_each(data, out, n, [](float x) { return VALUE; });                                        \
  }

FUNCTION(gamma, tgammaf(x))
FUNCTION(gammaln, lgammaf(x))
FUNCTION(digamma, digamma(x))

// modulo.h: remainders with the sign of the divisor, as NumPy's, and floored quotients.
#pragma once

// x modulo y with the sign of y, and 0 where y is 0.
__device__ __forceinline__ float modulo(float x, float y) {
  if (y == 0.f) return 0.f;
  float rest = fmodf(x, y);
  if (rest == 0.f) return copysignf(0.f, y);
  return (y < 0.f) != (rest < 0.f) ? rest + y : rest;
}

// The floor of x / y, from the exact remainder; x / y where y is 0.
__device__ __forceinline__ float floor_divide(float x, float y) {
  if (y == 0.f) return x / y;
  float rest = fmodf(x, y), quotient = (x - rest) / y;
  if (rest != 0.f && (y < 0.f) != (rest < 0.f)) quotient -= 1.f;
  if (quotient == 0.f) return copysignf(0.f, x / y);
  float low = floorf(quotient);
  return quotient - low > 0.5f ? low + 1.f : low;
}

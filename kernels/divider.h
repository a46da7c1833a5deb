// divider.h: division by a number that many threads divide by.
#pragma once

// n / divisor by a multiplication, for 0 <= n < 2^31 and a divisor from 1 on (Granlund and Montgomery, 1994).
struct Divider {
  unsigned divisor, multiplier, shift;

  __device__ explicit Divider(unsigned d) : divisor(d), multiplier(1), shift(d > 1 ? 32 - __clz(d - 1) : 0) {
    multiplier += (unsigned)((((1ull << shift) - d) << 32) / d);
  }
  __device__ int divide(int n) const {
    return (int)((__umulhi((unsigned)n, multiplier) + (unsigned)n) >> shift);
  }
  // n becomes its remainder; the quotient is returned.
  __device__ int split(int &n) const {
    int quotient = divide(n);
    n -= quotient * (int)divisor;
    return quotient;
  }
};

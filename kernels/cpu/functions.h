// Functions of every lane of a Vec: exponential, logarithm and what is made of them, to about two units in the last
// place over the whole range, infinities, NaN and subnormal numbers among it.
//
// The polynomials are weighted least-squares fits to the functions' own series, of relative error below 5e-9.
#pragma once
#include <cstdint>

#include "instructions.h"
#include "vector.h"

typedef uint32_t NativeWord __attribute__((vector_size(NATIVE * 4)));

static INLINE NativeInt bits_of(Native x) { return reinterpret_cast<NativeInt>(x); }
static INLINE Native from_bits(NativeInt x) { return reinterpret_cast<Native>(x); }
static INLINE NativeWord words_of(NativeInt x) { return reinterpret_cast<NativeWord>(x); }
// a - b, and a << by, modulo 2^32: numbers are out of range for NaN and infinity, whose results nobody takes.
static INLINE NativeInt difference(NativeInt a, uint32_t b) { return reinterpret_cast<NativeInt>(words_of(a) - b); }
static INLINE NativeInt shifted_left(NativeInt a, int by) { return reinterpret_cast<NativeInt>(words_of(a) << by); }

// f(part) for each native part
template <class F> static INLINE Vec each(const Vec &a, const F &f) {
    Vec v;
    for (int i = 0; i < PARTS; i++) v.part[i] = f(a.part[i]);
    return v;
}
template <class F> static INLINE Vec each(const Vec &a, const Vec &b, const F &f) {
    Vec v;
    for (int i = 0; i < PARTS; i++) v.part[i] = f(a.part[i], b.part[i]);
    return v;
}

template <int N> static INLINE Native polynomial(Native x, const float (&c)[N]) {
    Native sum = Native{} + c[N - 1];
    for (int i = N - 2; i >= 0; i--) sum = sum * x + c[i];
    return sum;
}

static INLINE Native abs(Native x) { return from_bits(bits_of(x) & 0x7fffffff); }
static INLINE Native with_sign_of(Native x, Native sign) {
    return from_bits((bits_of(x) & 0x7fffffff) | (bits_of(sign) & INT32_MIN));
}
// The larger; NaN where either is, as in NumPy.
static INLINE Native maximum(Native a, Native b) { return a != a ? a : (b <= a ? a : b); }
static INLINE Native minimum(Native a, Native b) { return a != a ? a : (b >= a ? a : b); }

// 1 where a condition holds, else 0.
static INLINE Native one_where(NativeInt condition) { return condition ? Native{} + 1.0f : Native{}; }

static INLINE Native square_root(Native x) {
#if defined(__AVX512F__)
    return square_roots(x);
#else
    Native y;
    for (int i = 0; i < NATIVE; i++) y[i] = __builtin_sqrtf(x[i]);
    return y;
#endif
}

constexpr float ROUNDER = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to a whole number
constexpr float LN2_HIGH = 0.693115234375f, LN2_LOW = 3.19461849453e-5f;

// x = n ln 2 + r with |r| <= ln(2) / 2: `shifted` has n in its last bits, and `rest` is exp(r) - 1.
struct Reduced {
    Native shifted, rest;
};

static INLINE Reduced reduced(Native x) {
    static constexpr float C[] = {0.499999931f, 0.166665148f, 0.0416684568f, 0.00836941884f, 0.00138131445f};
    const Native shifted = x * 1.44269504f + ROUNDER, n = shifted - ROUNDER;
    const Native r = (x - n * LN2_HIGH) - n * LN2_LOW;
    return {shifted, polynomial(r, C) * (r * r) + r};
}

static INLINE NativeInt exponent(Native shifted) { return difference(bits_of(shifted), 0x4b400000); }
// 2^n for n in [-126, 127]
static INLINE Native power_of_two(NativeInt n) { return from_bits(shifted_left(n + 127, 23)); }

// x 2^n for n in [-151, 129], where `shifted` has n in its last bits
static INLINE Native scaled(Native x, Native shifted) {
#if defined(__AVX512F__)
    return times_power_of_two(x, shifted - ROUNDER);
#else
    // in two factors, so that neither leaves the range of normal numbers
    const NativeInt whole = exponent(shifted), half = whole >> 1;
    return x * power_of_two(half) * power_of_two(whole - half);
#endif
}

static INLINE Native exp(Native x) {
    x = x > 89.0f ? Native{} + 89.0f : x;  // NaN passes
    x = x < -104.0f ? Native{} - 104.0f : x;
    const Reduced found = reduced(x);
    return scaled(found.rest + 1.0f, found.shifted);
}

static INLINE Native expm1(Native x) {
    Native held = x > 60.0f ? Native{} + 60.0f : x;
    held = held < -40.0f ? Native{} - 40.0f : held;
    const Reduced found = reduced(held);
    const Native power = power_of_two(exponent(found.shifted));
    const Native result = found.rest * power + (power - 1.0f);
    return x > 60.0f ? exp(x) : (x == 0.0f ? x : result);
}

static INLINE Native log(Native x) {
    static constexpr float C[] = {0.333333126f,  -0.250000096f, 0.200021187f, -0.166679959f, 0.142195524f,
                                  -0.124055889f, 0.118881623f,  -0.11675652f, 0.067466408f};
    const NativeInt tiny = x < 1.17549435e-38f;
    const Native scaled = tiny ? x * 8388608.0f : x;
    // scaled = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2))
    const NativeInt lifted = difference(bits_of(scaled), 0x3f3504f3);
    const NativeInt whole = (lifted >> 23) - (tiny & 23);
    const Native f = from_bits((lifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
    Native n;
    n = __builtin_convertvector(whole, Native);
    const Native square = f * f;
    const Native result = n * LN2_HIGH + (f + (polynomial(f, C) * f * square - 0.5f * square + n * LN2_LOW));
    const Native special = x < 0.0f ? Native{} + __builtin_nanf("") : (x == 0.0f ? Native{} - __builtin_inff() : x);
    return ((x > 0.0f) & (x <= 3.40282347e38f)) ? result : special;
}

// log(1 + x): the rounding of 1 + x is made up for
static INLINE Native log1p(Native x) {
    const Native sum = 1.0f + x, rest = x - (sum - 1.0f), found = log(sum);
    return sum == 1.0f ? x : (((sum > 0.0f) & (sum <= 3.40282347e38f)) ? found + rest / sum : found);
}

static INLINE Native tanh(Native x) {
    static constexpr float C[] = {-0.333332783f, 0.13331329f, -0.0537292301f, 0.0206020078f, -0.00566078906f};
    const Native size = abs(x), square = x * x;
    const Native small = polynomial(square, C) * (square * x) + x;
    const Native large = 1.0f - 2.0f / (exp(size + size) + 1.0f);
    return size < 0.625f ? small : with_sign_of(large, x);
}

static INLINE Native sigmoid(Native x) {
    const Native e = exp(-abs(x));
    return (x < 0.0f ? e : Native{} + 1.0f) / (1.0f + e);
}

// log(1 + exp(x)), never overflowing
static INLINE Native softrelu(Native x) {
    const Native tail = log1p(exp(-abs(x)));
    return x != x ? x : (x > 0.0f ? x + tail : tail);
}

static INLINE Native softsign(Native x) { return x / (1.0f + abs(x)); }

// The whole number next to x towards zero.
static INLINE Native truncated(Native x) {
    const NativeInt whole = abs(x) >= 8388608.0f;  // all numbers of that size are, and NaN is taken for none
    const Native held = whole ? Native{} : (x == x ? x : Native{});
    const Native cut = with_sign_of(__builtin_convertvector(__builtin_convertvector(held, NativeInt), Native), x);
    return whole ? x : (x == x ? cut : x);
}

// The standard normal distribution function by the series of ops/gelu.py, precise in relative terms below 0.
static INLINE Native normal_cdf(Native x) {
    static constexpr float C[] = {0.5107913527612236f,     0.3435803329700964f,     0.13973603266188656f,
                                  0.018221384245757106f,   -0.01075511615275464f,   -0.0032418548953675043f,
                                  0.0015440476830892505f,  0.0004270201507622499f,  -0.0003281001479851415f,
                                  -3.295153927018533e-05f, 6.768780689734518e-05f,  -1.327395517676192e-06f,
                                  -8.508869900319127e-06f};
    const Native z = abs(x) * 0.707106781f;
    const Native t = 2.0f / (z + 2.0f);
    const Native tail = polynomial(2.0f * t - 1.0f, C) * t * exp(x * x * -0.5f) * 0.5f;
    return x > 0.0f ? 1.0f - tail : tail;
}

static INLINE Native normal_density(Native x) { return exp(x * x * -0.5f) * 0.398942280f; }

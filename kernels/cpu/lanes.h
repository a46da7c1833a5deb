// Loads and stores of a whole Vec or of its first lanes, so that a loop's body is written once for both.
#pragma once
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "vector.h"

// All sixteen lanes.
struct Whole {
    INLINE Vec load(const float *from) const { return Vec::load(from); }
    INLINE void store(float *to, const Vec &v) const { v.store(to); }
    INLINE Vec keep(const Vec &v) const { return v; }
};

// The first `lanes`: others load as zero, are not stored, and are zeroed by keep.
struct Part {
    int64_t lanes;
#if defined(__AVX512F__)
    INLINE __mmask16 mask() const { return static_cast<__mmask16>((1u << lanes) - 1); }
    INLINE Vec load(const float *from) const { return {{_mm512_maskz_loadu_ps(mask(), from)}}; }
    INLINE void store(float *to, const Vec &v) const { _mm512_mask_storeu_ps(to, mask(), v.part[0]); }
    INLINE Vec keep(const Vec &v) const { return {{_mm512_maskz_mov_ps(mask(), v.part[0])}}; }
#else
    INLINE Vec load(const float *from) const {
        float held[LANES] = {};
        for (int64_t i = 0; i < lanes; i++) held[i] = from[i];
        return Vec::load(held);
    }
    INLINE void store(float *to, const Vec &v) const {
        float held[LANES];
        v.store(held);
        for (int64_t i = 0; i < lanes; i++) to[i] = held[i];
    }
    INLINE Vec keep(const Vec &v) const {
        float held[LANES];
        v.store(held);
        return load(held);
    }
#endif
};

// Call body(access, i) for each vector of `size` elements in a row, the last one in part.
template <class Body> static INLINE void each_vector(int64_t size, const Body &body) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) body(Whole{}, i);
    if (i < size) body(Part{size - i}, i);
}

// The sum of all lanes, in double, in one fixed order.
static INLINE double total(const Vec &v) {
    float held[LANES];
    v.store(held);
    double sums[4] = {};
    for (int i = 0; i < LANES; i += 4)
        for (int j = 0; j < 4; j++) sums[j] += held[i + j];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

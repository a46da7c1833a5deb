// Sixteen floats, as the one, two or four native vectors that hold them: the lanes of a channel block.
//
// GCC splits a vector wider than the machine's into spills, so Vec is a struct of native ones. Loads and stores need no
// alignment. With -ffp-contract=fast, a += b * c is one fused multiply-add wherever the machine has one.
#pragma once
#include <cstdint>
#include <cstring>

#define INLINE inline __attribute__((always_inline))

constexpr int LANES = 16;

#if defined(__AVX512F__)
constexpr int NATIVE = 16;
#elif defined(__AVX__)
constexpr int NATIVE = 8;
#else
constexpr int NATIVE = 4;
#endif
constexpr int PARTS = LANES / NATIVE;

typedef float Native __attribute__((vector_size(NATIVE * 4)));
typedef float Unaligned __attribute__((vector_size(NATIVE * 4), aligned(4), may_alias));

struct Vec {
    Native part[PARTS];

    static INLINE Vec load(const float *from) {
        Vec v;
        for (int i = 0; i < PARTS; i++) v.part[i] = *reinterpret_cast<const Unaligned *>(from + i * NATIVE);
        return v;
    }
    static INLINE Vec of(float value) {
        Vec v;
        for (int i = 0; i < PARTS; i++) v.part[i] = Native{} + value;
        return v;
    }
    static INLINE Vec zero() { return of(0.0f); }

    INLINE void store(float *to) const {
        for (int i = 0; i < PARTS; i++) *reinterpret_cast<Unaligned *>(to + i * NATIVE) = part[i];
    }
    // this += a * b
    INLINE void add_product(const Vec &a, const Vec &b) {
        for (int i = 0; i < PARTS; i++) part[i] += a.part[i] * b.part[i];
    }
    INLINE void add_product(const Vec &a, float b) {
        for (int i = 0; i < PARTS; i++) part[i] += a.part[i] * b;
    }
    INLINE Vec &operator+=(const Vec &other) {
        for (int i = 0; i < PARTS; i++) part[i] += other.part[i];
        return *this;
    }
};

#define VEC_OPERATOR(op)                                                        \
    static INLINE Vec operator op(const Vec &a, const Vec &b) {                 \
        Vec v;                                                                  \
        for (int i = 0; i < PARTS; i++) v.part[i] = a.part[i] op b.part[i];     \
        return v;                                                               \
    }
VEC_OPERATOR(+)
VEC_OPERATOR(-)
VEC_OPERATOR(*)
#undef VEC_OPERATOR

// max(a, 0); NaN stays NaN
static INLINE Vec relu(const Vec &a) {
    Vec v;
    for (int i = 0; i < PARTS; i++) v.part[i] = a.part[i] <= Native{} ? Native{} : a.part[i];
    return v;
}

// grad where y > 0, else 0
static INLINE Vec where_positive(const Vec &y, const Vec &grad) {
    Vec v;
    for (int i = 0; i < PARTS; i++) v.part[i] = y.part[i] > Native{} ? grad.part[i] : Native{};
    return v;
}

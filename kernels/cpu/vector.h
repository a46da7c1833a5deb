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
typedef int32_t NativeInt __attribute__((vector_size(NATIVE * 4)));
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

// -- squares of NATIVE -----------------------------------------------------------------------------------------------
template <int... I> struct Indices {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> {
    typedef Indices<I...> type;
};

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t NativeIndices __attribute__((vector_size(NATIVE * 4)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, NativeIndices{__VA_ARGS__})
#endif

// The first halves of a and b in turns, and the second halves.
template <int... I> static INLINE Native first_in_turns(const Native &a, const Native &b, Indices<I...>) {
    return SHUFFLE(a, b, (I / 2 + I % 2 * NATIVE)...);
}
template <int... I> static INLINE Native second_in_turns(const Native &a, const Native &b, Indices<I...>) {
    return SHUFFLE(a, b, (I / 2 + NATIVE / 2 + I % 2 * NATIVE)...);
}

// to[j * to_row + i] = from[i * from_row + j] for i, j < NATIVE. Each round deals the lower rows among the upper ones;
// after as many rounds as a row number has bits, rows are columns.
static INLINE void transpose(const float *from, int64_t from_row, float *to, int64_t to_row) {
    typedef typename Count<NATIVE>::type All;
    Native rows[NATIVE], dealt[NATIVE];
    for (int i = 0; i < NATIVE; i++) rows[i] = *reinterpret_cast<const Unaligned *>(from + i * from_row);
#pragma GCC unroll 4
    for (int round = 1; round < NATIVE; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < NATIVE / 2; i++) {
            dealt[2 * i] = first_in_turns(rows[i], rows[i + NATIVE / 2], All());
            dealt[2 * i + 1] = second_in_turns(rows[i], rows[i + NATIVE / 2], All());
        }
#pragma GCC unroll 16
        for (int i = 0; i < NATIVE; i++) rows[i] = dealt[i];
    }
    for (int i = 0; i < NATIVE; i++) *reinterpret_cast<Unaligned *>(to + i * to_row) = rows[i];
}

// The same for squares of LANES.
static inline void transpose_block(const float *from, int64_t from_row, float *to, int64_t to_row) {
    for (int i = 0; i < LANES; i += NATIVE)
        for (int j = 0; j < LANES; j += NATIVE) transpose(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
}

// Loads and stores of a whole Vec or of its first lanes, so that a loop's body is written once for both.
#pragma once
#include "instructions.h"
#include "vector.h"

// All sixteen lanes.
struct Whole {
    INLINE Vec load(const float *from) const { return Vec::load(from); }
    INLINE void store(float *to, const Vec &v) const { v.store(to); }
    INLINE Vec keep(const Vec &v) const { return v; }
};

// All sixteen lanes, stored past the caches to an address of 64 bytes' alignment where the machine can; `finish` comes
// before anybody else reads what was stored.
struct Streamed : Whole {
#if defined(__x86_64__)
    INLINE void store(float *to, const Vec &v) const {
        for (int i = 0; i < PARTS; i++) store_past_caches(to + i * NATIVE, v.part[i]);
    }
    static INLINE void finish() { fence_stores(); }
#else
    static INLINE void finish() {}
#endif
};

constexpr int64_t STREAMED_BYTES = 32 << 20;  // of an output that leaves any cache before it is read

// Whether an output is stored past the caches: not where it lies on an input, whose lines are in the cache already.
template <class... Inputs> static INLINE bool streams(const float *out, int64_t size, const Inputs *...inputs) {
    const int64_t bytes = size * static_cast<int64_t>(sizeof(float));
    return bytes > STREAMED_BYTES && reinterpret_cast<uintptr_t>(out) % 64 == 0 && ((out != inputs) && ...);
}

// The first `lanes`: others load as zero, are not stored, and are zeroed by keep.
struct Part {
    int64_t lanes;
#if defined(__AVX512F__)
    INLINE Mask mask() const { return static_cast<Mask>((1u << lanes) - 1); }
    INLINE Vec load(const float *from) const { return {{load_lanes(from, mask())}}; }
    INLINE void store(float *to, const Vec &v) const { store_lanes(to, v.part[0], mask()); }
    INLINE Vec keep(const Vec &v) const { return {{keep_lanes(v.part[0], mask())}}; }
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
template <class All = Whole, class Body> static INLINE void each_vector(int64_t size, const Body &body) {
    int64_t i = 0;
    for (; i + LANES <= size; i += LANES) body(All{}, i);
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

// The lanes from FIRST on, and behind them those before it.
template <int FIRST, int... I> static INLINE Native turned(const Native &a, Indices<I...>) {
    return SHUFFLE(a, a, ((I + FIRST) % NATIVE)...);
}
template <int HALF, class Join> static INLINE Native folded(const Native &a, const Join &join) {
    if constexpr (HALF == 0)
        return a;
    else
        return folded<HALF / 2>(join(a, turned<HALF>(a, typename Count<NATIVE>::type())), join);
}
// All lanes joined by join(first, second), always the second half to the first.
template <class Join> static INLINE float joined(Vec v, const Join &join) {
    for (int half = PARTS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) v.part[i] = join(v.part[i], v.part[i + half]);
    return folded<NATIVE / 2>(v.part[0], join)[0];
}
static INLINE float sum_of(const Vec &v) {
    return joined(v, [](Native a, Native b) { return a + b; });
}

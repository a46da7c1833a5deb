// The few instructions of x86-64 that vector types have no words for; `Mask` has a bit for each lane.
//
// By GCC's own names for them, as most files here would take longer to read immintrin.h than to compile; other
// compilers read it, and so does a GCC that has one of these names no more.
#pragma once
#include "vector.h"

#if defined(__x86_64__)

#if !defined(__clang__) && defined(__has_builtin)
#if !defined(__AVX512F__)
#define GCC_NAMES
#elif __has_builtin(__builtin_ia32_movntps512) && __has_builtin(__builtin_ia32_loadups512_mask) && \
    __has_builtin(__builtin_ia32_storeups512_mask) && __has_builtin(__builtin_ia32_movaps512_mask) && \
    __has_builtin(__builtin_ia32_sqrtps512_mask) && __has_builtin(__builtin_ia32_ptestmd512) && \
    __has_builtin(__builtin_ia32_scalefps512_mask)
#define GCC_NAMES
#endif
#endif

#if defined(GCC_NAMES)
#define BY_NAME(gcc, other) gcc
#else
#include <immintrin.h>
#define BY_NAME(gcc, other) other
#endif

// Store past the caches, to an address of the vector's alignment.
static INLINE void store_past_caches(float *to, const Native &v) {
#if defined(__AVX512F__)
    BY_NAME(__builtin_ia32_movntps512(to, v), _mm512_stream_ps(to, v));
#elif defined(__AVX__)
    BY_NAME(__builtin_ia32_movntps256(to, v), _mm256_stream_ps(to, v));
#else
    BY_NAME(__builtin_ia32_movntps(to, v), _mm_stream_ps(to, v));
#endif
}

// What was stored past the caches is seen by others before what is stored next.
static INLINE void fence_stores() { BY_NAME(__builtin_ia32_sfence(), _mm_sfence()); }

// The lanes of which the highest bit is set; of lanes that are all ones or all zeros, those of ones.
static INLINE uint32_t highest_bits(const NativeInt &lanes) {
#if defined(__AVX512F__)
    return BY_NAME(__builtin_ia32_ptestmd512(lanes, lanes, 0xffff),
                   _mm512_test_epi32_mask(reinterpret_cast<__m512i>(lanes), reinterpret_cast<__m512i>(lanes)));
#elif defined(__AVX__)
    return static_cast<uint32_t>(BY_NAME(__builtin_ia32_movmskps256, _mm256_movemask_ps)(reinterpret_cast<Native>(lanes)));
#else
    return static_cast<uint32_t>(BY_NAME(__builtin_ia32_movmskps, _mm_movemask_ps)(reinterpret_cast<Native>(lanes)));
#endif
}

#if defined(__AVX512F__)
typedef uint16_t Mask;

// Lanes that are not in the mask are zero, or stay what they were in memory.
static INLINE Native load_lanes(const float *from, Mask mask) {
    return BY_NAME(__builtin_ia32_loadups512_mask(from, Native{}, mask), _mm512_maskz_loadu_ps(mask, from));
}
static INLINE void store_lanes(float *to, const Native &v, Mask mask) {
    BY_NAME(__builtin_ia32_storeups512_mask(to, v, mask), _mm512_mask_storeu_ps(to, mask, v));
}
static INLINE Native keep_lanes(const Native &v, Mask mask) {
    return BY_NAME(__builtin_ia32_movaps512_mask(v, Native{}, mask), _mm512_maskz_mov_ps(mask, v));
}

static INLINE Native square_roots(const Native &x) {
    return BY_NAME(__builtin_ia32_sqrtps512_mask(x, x, -1, 4), _mm512_sqrt_ps(x));
}

// x 2^n for whole numbers n
static INLINE Native times_power_of_two(const Native &x, const Native &n) {
    return BY_NAME(__builtin_ia32_scalefps512_mask(x, n, x, -1, 4), _mm512_scalef_ps(x, n));
}
#endif
#endif

// softcuda.h: what a .cu file sees when a plain host compiler compiles it. build.py includes it before the
// file.
//
// __global__, __shared__ and __launch_bounds__ become markers that build.py rewrites; the built-in variables
// and functions become those of fiber.h. NVIDIA's own cuda_fp16.h and cuda_bf16.h carry host paths for the
// types, their conversions and operators; their device-only functions (__hfma, hexp ...) are absent here:
// compute in float.
#pragma once
#include <cassert>
#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>

#include "fiber.h"

#define __SOFTCUDA__ 1

// Those that NVIDIA's headers define are defined anew: expanded from a system header they would have line
// markers in their midst, where build.py looks for whole declarations.
#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#undef __grid_constant__
#undef __align__
#define __global__ __softcuda_global__
#define __shared__ __softcuda_shared__
#define __launch_bounds__(...) __softcuda_launch_bounds__(__VA_ARGS__)
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline __attribute__((always_inline))

#undef assert
#define assert(condition) \
  ((condition) ? (void)0  \
               : softcuda::fail(softcuda::kLaunchFailed, "line %d: assert(%s)", __LINE__, #condition))

// ---- from a packed parameter buffer to a call: used by the entry points that build.py appends ---

namespace softcuda {

template <class... Rest>
constexpr uint32_t first(uint32_t value, Rest...) {
  return value;
}

constexpr uint32_t align_up(uint32_t offset, size_t alignment) {
  return (offset + uint32_t(alignment) - 1) & ~(uint32_t(alignment) - 1);
}

template <class T>
constexpr Access access_of() {
  if (!std::is_pointer<T>::value) return Access::value;
  return std::is_const<std::remove_pointer_t<T>>::value ? Access::read : Access::write;
}

template <class... Params>
constexpr KernelInfo describe(void (*)(Params...), uint32_t max_threads) {
  static_assert(sizeof...(Params) <= kMaxParams, "more kernel parameters than softcuda's table holds");
  KernelInfo info{};
  info.param_count = sizeof...(Params);
  info.max_threads = max_threads;
  uint32_t offset = 0, i = 0;
  ((offset = align_up(offset, alignof(Params)),
    info.params[i++] = ParamInfo{offset, uint32_t(sizeof(Params)), access_of<Params>()},
    offset += sizeof(Params)),
   ...);
  info.param_bytes = offset;
  return info;
}

struct ParamReader {
  const char *buffer;
  uint32_t offset = 0;

  template <class T>
  T take() {
    offset = align_up(offset, alignof(T));
    T value;
    memcpy(static_cast<void *>(&value), buffer + offset, sizeof value);
    offset += sizeof value;
    return value;
  }
};

template <class... Params>
inline void call(void (*kernel)(Params...), const char *buffer) {
  ParamReader reader{buffer};
  // Braces: the parameters are taken in order.
  std::tuple<std::remove_cv_t<Params>...> params{reader.template take<std::remove_cv_t<Params>>()...};
  std::apply(kernel, params);
}

}  // namespace softcuda

// ---- built-in variables, barriers, warps --------------------------------------------------------

#define threadIdx (softcuda::fiber->thread_index)
#define blockIdx (softcuda::engine->block_index)
#define blockDim (softcuda::engine->block_dim)
#define gridDim (softcuda::engine->grid_dim)
#define warpSize 32

namespace softcuda {
constexpr uint32_t mask_or_all(uint32_t mask = ~0u) { return mask; }
constexpr int width_or_warp(int width = kWarpLanes) { return width; }
}  // namespace softcuda

#define __syncthreads() softcuda::sync_threads(__LINE__)
#define __syncwarp(...) ((void)softcuda::ballot(softcuda::mask_or_all(__VA_ARGS__), false, __LINE__))
#define __activemask() (softcuda::fiber->warp->alive)
#define SOFTCUDA_SHUFFLE(kind, mask, value, operand, ...)                                                \
  softcuda::shuffle(mask, value, softcuda::Shuffle::kind, operand, softcuda::width_or_warp(__VA_ARGS__), \
                    __LINE__)
#define __shfl_sync(mask, value, lane, ...) SOFTCUDA_SHUFFLE(index, mask, value, lane, __VA_ARGS__)
#define __shfl_up_sync(mask, value, delta, ...) SOFTCUDA_SHUFFLE(up, mask, value, delta, __VA_ARGS__)
#define __shfl_down_sync(mask, value, delta, ...) SOFTCUDA_SHUFFLE(down, mask, value, delta, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, bits, ...) SOFTCUDA_SHUFFLE(exclusive_or, mask, value, bits, __VA_ARGS__)
#define __ballot_sync(mask, predicate) softcuda::ballot(mask, (predicate) != 0, __LINE__)
#define __any_sync(mask, predicate) (softcuda::ballot(mask, (predicate) != 0, __LINE__) != 0)
#define __all_sync(mask, predicate) (softcuda::ballot(mask, (predicate) == 0, __LINE__) == 0)

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() {}
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
[[noreturn]] inline void __trap() { softcuda::fail(softcuda::kLaunchFailed, "__trap()"); }

// ---- loads, stores, bits ------------------------------------------------------------------------

template <class T>
inline T __ldg(const T *p) {
  return *p;
}
template <class T>
inline T __ldcs(const T *p) {
  return *p;
}
template <class T>
inline T __ldcg(const T *p) {
  return *p;
}
template <class T>
inline void __stcs(T *p, T v) {
  *p = v;
}
template <class T>
inline void __stcg(T *p, T v) {
  *p = v;
}

namespace softcuda {
template <class To, class From>
inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits() keeps the size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace softcuda

inline int __float_as_int(float x) { return softcuda::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return softcuda::bits<unsigned>(x); }
inline float __int_as_float(int x) { return softcuda::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return softcuda::bits<float>(x); }
inline long long __double_as_longlong(double x) { return softcuda::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return softcuda::bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// ---- arithmetic ---------------------------------------------------------------------------------
// The fast approximations are the exact functions here, and rounding is to nearest: compare with tolerances.

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return float(1. / sqrt(double(a))); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.f), 1.f); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline double rsqrt(double x) { return 1. / sqrt(x); }
inline int __float2int_rn(float x) { return int(lrintf(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline int __float2int_rd(float x) { return int(floorf(x)); }
inline int __float2int_ru(float x) { return int(ceilf(x)); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
template <class A, class B>
inline auto min(A a, B b) -> std::common_type_t<A, B> {
  return a < b ? a : b;
}
template <class A, class B>
inline auto max(A a, B b) -> std::common_type_t<A, B> {
  return a > b ? a : b;
}

// ---- atomics ------------------------------------------------------------------------------------

namespace softcuda {

template <class T>
struct Same {
  using type = T;
};
template <class T>
using Param = typename Same<T>::type;  // takes no part in deducing T: atomicAdd(&float, 1) converts the 1

template <class T, class Update>
inline T read_modify_write(T *address, Update update) {
  T old, updated;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do {
    updated = update(old);
  } while (!__atomic_compare_exchange(address, &old, &updated, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

}  // namespace softcuda

#define SOFTCUDA_ATOMIC(NAME, EXPRESSION)                                                \
  template <class T>                                                                     \
  inline T NAME(T *address, softcuda::Param<T> value) {                                  \
    return softcuda::read_modify_write(address, [=](T old) -> T { return EXPRESSION; }); \
  }
SOFTCUDA_ATOMIC(atomicAdd, T(old + value))
SOFTCUDA_ATOMIC(atomicSub, T(old - value))
SOFTCUDA_ATOMIC(atomicMax, old > value ? old : value)
SOFTCUDA_ATOMIC(atomicMin, old < value ? old : value)
SOFTCUDA_ATOMIC(atomicAnd, T((old)&value))
SOFTCUDA_ATOMIC(atomicOr, T(old | value))
SOFTCUDA_ATOMIC(atomicXor, T(old ^ value))
SOFTCUDA_ATOMIC(atomicExch, value)

template <class T>
inline T atomicCAS(T *address, softcuda::Param<T> expected, softcuda::Param<T> value) {
  return softcuda::read_modify_write(address, [=](T old) -> T { return old == expected ? value : old; });
}

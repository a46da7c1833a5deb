// mma.h: one thin wrapper per tensor-core, ldmatrix and cp.async instruction. Inline PTX on the device (sm_80
// and newer); on the host, under __SOFTCUDA__, the same exchange among the lanes of a warp in plain C++.
//
// The fragment layouts are those of the PTX ISA ("Matrix Fragments for mma.m16n8k8 / m16n8k16"). With
// g = lane / 4 and t = lane % 4, registers hold
//   16-bit, k16:  a[0] (row g, k 2t, 2t+1)    a[1] (row g+8, k 2t, 2t+1)
//                 a[2] (row g, k 2t+8, 2t+9)  a[3] (row g+8, k 2t+8, 2t+9)
//                 b[0] (k 2t, 2t+1, col g)    b[1] (k 2t+8, 2t+9, col g)
//   tf32, k8:     a[0] (row g, k t)   a[1] (row g+8, k t)   a[2] (row g, k t+4)   a[3] (row g+8, k t+4)
//                 b[0] (k t, col g)   b[1] (k t+4, col g)
//   float32 d:    d[0], d[1] (row g, cols 2t, 2t+1)   d[2], d[3] (row g+8, cols 2t, 2t+1)
// All 32 lanes must call a wrapper together. The hardware adds in another order and with truncation: compare
// with tolerances.
#pragma once
#include <cstdint>

// ---- host side ----------------------------------------------------------------------------------
#ifdef __SOFTCUDA__
namespace softcuda {

struct MmaFragment {
  uint32_t a[4], b[2];
};

inline void require_full_warp(int line) {
  if (fiber->warp->alive != ~0u)
    fail(kLaunchFailed, "line %d of mma.h: not all 32 lanes of the warp are here", line);
}

// d += A * B for this lane's four outputs; a(row, k) and b(k, column) are elements.
template <int K, class ElementA, class ElementB>
inline void accumulate(float (&d)[4], ElementA a, ElementB b) {
  int row = fiber->lane / 4, column = fiber->lane % 4 * 2;
  for (int k = 0; k < K; ++k) {
    float upper = a(row, k), lower = a(row + 8, k), left = b(k, column), right = b(k, column + 1);
    d[0] += upper * left;
    d[1] += upper * right;
    d[2] += lower * left;
    d[3] += lower * right;
  }
}

// value(register, half): one of the two 16-bit numbers in a register, as float.
template <class Value>
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Value value,
                         int line) {
  require_full_warp(line);
  MmaFragment mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  warp_exchange(~0u, mine, line, [&](auto get) {
    auto element_a = [&](int row, int k) {
      return value(get(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2);
    };
    auto element_b = [&](int k, int column) { return value(get(column * 4 + k % 8 / 2).b[k / 8], k % 2); };
    accumulate<16>(d, element_a, element_b);
    return 0;
  });
}

inline void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line) {
  require_full_warp(line);
  MmaFragment mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  auto value = [](uint32_t bits) {
    return __uint_as_float(bits & 0xffffe000u);
  };  // the unit ignores the low bits
  warp_exchange(~0u, mine, line, [&](auto get) {
    auto element_a = [&](int row, int k) { return value(get(row % 8 * 4 + k % 4).a[row / 8 + k / 4 * 2]); };
    auto element_b = [&](int k, int column) { return value(get(column * 4 + k % 4).b[k / 4]); };
    accumulate<8>(d, element_a, element_b);
    return 0;
  });
}

// Lanes 8i to 8i+7 give the addresses of the rows of tile i.
template <int Tiles>
inline void ldmatrix(uint32_t (&r)[Tiles], const void *row, bool transposed, int line) {
  require_full_warp(line);
  bool asked = fiber->lane < 8 * Tiles;
  if (asked && reinterpret_cast<uintptr_t>(row) % 16)
    fail(kMisalignedAddress, "line %d of mma.h: ldmatrix row %p is not aligned to 16 bytes", line, row);
  if (asked && !is_shared(row))
    fail(kIllegalAddress, "line %d of mma.h: ldmatrix reads outside shared memory", line);
  warp_exchange(~0u, row, line, [&](auto get) {
    auto element = [&](int tile, int i, int j) {
      uint16_t value;
      memcpy(&value, static_cast<const char *>(get(tile * 8 + i)) + 2 * j, sizeof value);
      return uint32_t(value);
    };
    int g = fiber->lane / 4, t = fiber->lane % 4;
    for (int tile = 0; tile < Tiles; ++tile)
      r[tile] = transposed ? element(tile, 2 * t, g) | element(tile, 2 * t + 1, g) << 16
                           : element(tile, g, 2 * t) | element(tile, g, 2 * t + 1) << 16;
    return 0;
  });
}

}  // namespace softcuda
#else
__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}
#endif

// ---- tensor cores: d += A(16xK, row major) * B(Kx8, column major) -------------------------------

// float32 to tf32: 10 bits of mantissa, to nearest, ties away from zero.
__device__ __forceinline__ uint32_t to_tf32(float x) {
#ifdef __SOFTCUDA__
  uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0x7fffffu ? 0x7fffffffu : bits;  // NaN, infinity
  return (bits + 0x1000u) & 0xffffe000u;
#else
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
#endif
}

__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2]) {
#ifdef __SOFTCUDA__
  softcuda::mma_m16n8k8_tf32(d, a, b, __LINE__);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
#ifdef __SOFTCUDA__
  auto value = [](uint32_t pair, int half) {
    return __uint_as_float(half ? pair & 0xffff0000u : pair << 16);
  };
  softcuda::mma_m16n8k16(d, a, b, value, __LINE__);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4],
                                                 const uint32_t (&b)[2]) {
#ifdef __SOFTCUDA__
  auto value = [](uint32_t pair, int half) {
    __half_raw raw;
    raw.x = uint16_t(half ? pair >> 16 : pair);
    return __half2float(raw);
  };
  softcuda::mma_m16n8k16(d, a, b, value, __LINE__);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// ---- ldmatrix: 8x8 tiles of 16-bit numbers from shared memory -----------------------------------
// ------------------------------------------------------- `row`: lane 8i+j gives row j of tile i, 16 bytes
// and aligned to them. r[i] of a lane: elements (g, 2t) and (g, 2t+1) of tile i; _trans: elements (2t, g) and
// (2t+1, g).

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void *row) {
#ifdef __SOFTCUDA__
  softcuda::ldmatrix(r, row, false, __LINE__);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void *row) {
#ifdef __SOFTCUDA__
  softcuda::ldmatrix(r, row, true, __LINE__);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void *row) {
#ifdef __SOFTCUDA__
  softcuda::ldmatrix(r, row, false, __LINE__);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row) {
#ifdef __SOFTCUDA__
  softcuda::ldmatrix(r, row, true, __LINE__);
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

// ---- cp.async: global to shared memory without registers ----------------------------------------
// ------------------------------------------------------------ Copies belong to the group that the thread's
// next cp_commit closes. cp_wait<N> waits for this thread's groups but the newest N; other threads see the
// bytes after a barrier behind it. Both addresses are aligned to the size.

// The first `bytes` (0 to 16) are copied and the rest is zero: for the edges of a tile.
__device__ __forceinline__ void cp_async16_zfill(void *dst, const void *src, int bytes) {
#ifdef __SOFTCUDA__
  softcuda::async_copy(dst, src, bytes, 16 - bytes, __LINE__);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(dst)), "l"(src),
               "r"(bytes)
               : "memory");
#endif
}

__device__ __forceinline__ void cp_async16(void *dst, const void *src) {
#ifdef __SOFTCUDA__
  softcuda::async_copy(dst, src, 16, 0, __LINE__);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(dst)), "l"(src) : "memory");
#endif
}

// The first `bytes` (0 to 4) are copied and the rest is zero.
__device__ __forceinline__ void cp_async4_zfill(void *dst, const void *src, int bytes) {
#ifdef __SOFTCUDA__
  softcuda::async_copy(dst, src, bytes, 4 - bytes, __LINE__);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(dst)), "l"(src), "r"(bytes)
               : "memory");
#endif
}

__device__ __forceinline__ void cp_async4(void *dst, const void *src) {
#ifdef __SOFTCUDA__
  softcuda::async_copy(dst, src, 4, 0, __LINE__);
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(dst)), "l"(src) : "memory");
#endif
}

__device__ __forceinline__ void cp_commit() {
#ifdef __SOFTCUDA__
  softcuda::async_copy_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int N>
__device__ __forceinline__ void cp_wait() {
#ifdef __SOFTCUDA__
  softcuda::async_copy_wait(N);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

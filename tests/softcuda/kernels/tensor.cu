// tensor.cu: each wrapper of mma.h used alone by one warp, a small GEMM, and a cp.async pipeline with and
// without its waits. nvcc compiles it too.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "mma.h"

// d(16x8) = a(16x8) * b(8x8), all float32 and row major.
extern "C" __global__ void mma_tf32(const float *a, const float *b, float *d) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  uint32_t fragment_a[4] = {to_tf32(a[g * 8 + t]), to_tf32(a[(g + 8) * 8 + t]), to_tf32(a[g * 8 + t + 4]),
                            to_tf32(a[(g + 8) * 8 + t + 4])};
  uint32_t fragment_b[2] = {to_tf32(b[t * 8 + g]), to_tf32(b[(t + 4) * 8 + g])};
  float sums[4] = {};
  mma_m16n8k8_tf32(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

// d(16x8) += a(16x16, row major) * b(16x8, column major: 8 rows of 16); pairs of 16-bit numbers.
template <bool BF16>
__device__ __forceinline__ void mma_16_bit(const uint32_t *a, const uint32_t *b, float *d) {
  int g = threadIdx.x / 4, t = threadIdx.x % 4;
  uint32_t fragment_a[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
  uint32_t fragment_b[2] = {b[g * 8 + t], b[g * 8 + t + 4]};
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  if (BF16)
    mma_m16n8k16_bf16(sums, fragment_a, fragment_b);
  else
    mma_m16n8k16_f16(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}
extern "C" __global__ void mma_bf16(const uint32_t *a, const uint32_t *b, float *d) {
  mma_16_bit<true>(a, b, d);
}
extern "C" __global__ void mma_f16(const uint32_t *a, const uint32_t *b, float *d) {
  mma_16_bit<false>(a, b, d);
}

// Tiles one below the other, 8 rows of 8 16-bit numbers each. r: tile by tile, what each lane got.
template <int TILES, bool TRANS>
__device__ __forceinline__ void load_tiles(const uint4 *x, uint32_t *r) {
  __shared__ uint4 rows[8 * TILES];
  if (threadIdx.x < 8 * TILES) rows[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  uint32_t got[TILES];
  const void *row = &rows[threadIdx.x % (8 * TILES)];
  if constexpr (TILES == 4) {
    if (TRANS)
      ldmatrix_x4_trans(got, row);
    else
      ldmatrix_x4(got, row);
  } else {
    if (TRANS)
      ldmatrix_x2_trans(got, row);
    else
      ldmatrix_x2(got, row);
  }
  for (int tile = 0; tile < TILES; ++tile) r[tile * 32 + threadIdx.x] = got[tile];
}
extern "C" __global__ void load_x2(const uint4 *x, uint32_t *r) { load_tiles<2, false>(x, r); }
extern "C" __global__ void load_x2_trans(const uint4 *x, uint32_t *r) { load_tiles<2, true>(x, r); }
extern "C" __global__ void load_x4(const uint4 *x, uint32_t *r) { load_tiles<4, false>(x, r); }
extern "C" __global__ void load_x4_trans(const uint4 *x, uint32_t *r) { load_tiles<4, true>(x, r); }

// ldmatrix with rows that are not aligned to 16 bytes.
extern "C" __global__ void load_misaligned(uint32_t *r) {
  __shared__ uint4 rows[40];
  uint32_t got[4];
  ldmatrix_x4(got, reinterpret_cast<char *>(&rows[threadIdx.x]) + 4);
  r[threadIdx.x] = got[0];
}

// c(m x n, float32) = a(m x k) * b(n x k)^T in bf16. A block of 4 warps computes 64 x 32; m, n, k fit the
// tiles.
extern "C" __global__ void __launch_bounds__(128)
    gemm_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int m, int n, int k) {
  __shared__ __align__(16) __nv_bfloat16 a_tile[64][24],
      b_tile[32][24];  // 24: rows padded, still 16-byte aligned
  int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  int m0 = blockIdx.y * 64, n0 = blockIdx.x * 32, row = thread / 2, column = thread % 2 * 8;
  float sums[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    cp_async16(&a_tile[row][column], &a[(m0 + row) * k + k0 + column]);
    if (thread < 64) cp_async16(&b_tile[row][column], &b[(n0 + row) * k + k0 + column]);
    cp_commit();
    cp_wait<0>();
    __syncthreads();
    uint32_t fragment_a[4], fragments_b[2][4];
    ldmatrix_x4(fragment_a, &a_tile[warp * 16 + lane % 16][lane / 16 * 8]);
    for (int half = 0; half < 2; ++half)
      ldmatrix_x4(fragments_b[half], &b_tile[half * 16 + lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
    for (int j = 0; j < 4; ++j) {
      uint32_t fragment_b[2] = {fragments_b[j / 2][j % 2 * 2], fragments_b[j / 2][j % 2 * 2 + 1]};
      mma_m16n8k16_bf16(sums[j], fragment_a, fragment_b);
    }
    __syncthreads();
  }
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 4; ++i)
      c[(m0 + warp * 16 + g + i / 2 * 8) * n + n0 + j * 8 + 2 * t + i % 2] = sums[j][i];
}

// y = sums of the columns of x[rows][128], loaded four rows at a time into two stages by turns.
// Its waits leave PENDING groups, of which 1 is right; -1: no wait at all.
template <int PENDING>
__device__ __forceinline__ void sum_columns(const float *x, float *y, int rows) {
  __shared__ __align__(16) float stages[2][4][128];
  int thread = threadIdx.x, row = thread / 32, column = thread % 32 * 4;
  auto load = [&](int stage, int first) {
    cp_async16(&stages[stage][row][column], &x[(first + row) * 128 + column]);
  };
  float sum = 0.f;
  load(0, 0);
  cp_commit();
  for (int first = 0, stage = 0; first < rows; first += 4, stage ^= 1) {
    if (first + 4 < rows) load(stage ^ 1, first + 4);
    cp_commit();
    if constexpr (PENDING >= 0) cp_wait<PENDING>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) sum += stages[stage][i][thread];
    __syncthreads();
  }
  y[thread] = sum;
}
#define SUM_COLUMNS(NAME, PENDING)                                                    \
  extern "C" __global__ void sum_columns_##NAME(const float *x, float *y, int rows) { \
    sum_columns<PENDING>(x, y, rows);                                                 \
  }
SUM_COLUMNS(waiting, 1)
SUM_COLUMNS(lax, 2)
SUM_COLUMNS(hasty, -1)

// y[32] = the first n of x and zeroes, 16 and 4 bytes at a time.
extern "C" __global__ void copy_edge(const float *x, float *y, int n) {
  __shared__ __align__(16) float staged[2][32];
  int lane = threadIdx.x, left = n - lane * 4, mine = n - lane;
  if (lane < 8) cp_async16_zfill(&staged[0][lane * 4], &x[left > 0 ? lane * 4 : 0], 4 * min(max(left, 0), 4));
  cp_async4_zfill(&staged[1][lane], &x[mine > 0 ? lane : 0], mine > 0 ? 4 : 0);
  cp_commit();
  cp_wait<0>();
  __syncthreads();
  y[lane] = staged[0][lane];
  y[32 + lane] = staged[1][lane];
}

// gemm.h: a tiled matrix product in float32, C(m, n) = sum over k of A(m, k) B(k, n). Loader objects read the
// operands, so the column matrix of a convolution need never exist.
//
// The sum over k is cut into segments of a length that the sizes fix. A segment is summed alone, in ascending
// k, and segments are added in ascending order. So the bits are the same whether one block sums all segments
// of a tile, or each segment has a block of its own, which writes to workspace what combine_parts adds
// afterwards.
//
// A loader L has: kAlongK, whether neighbouring threads shall read neighbours along k (else along m or n);
// types Outer and Inner, what it works out once for an index m or n, and once for an index k; and
//   void begin(long long k)              from now on, inner's k counts from here: the first k of a segment
//   Outer outer(long long i) const       i < the operand's rows (A) or columns (B)
//   Inner inner(int k) const
//   float load(const Outer &, const Inner &) const
// An output C has: float *out, const float *bias (or null); Column, column(n) as for a loader, and
//   void store(long long m, const Column &, float) const      which adds the bias
//   kResumes, whether it can go on from what it holds: then  float load(long long m, const Column &) const
#pragma once

#include "common.h"

constexpr int kTile = 64;          // rows and columns of an output tile
constexpr int kTileDepth = 16;     // k of a step
constexpr int kTileThreads = 256;  // each has 4 x 4 outputs
constexpr int kTileStride = kTile + 4;  // a row in shared memory: float4 stay aligned, banks are parted

// The work of one launch (gemm.py: Gemm): all tiles of all problems, of segments [first, first + segments).
struct GemmWork {
  long long rows, columns, problems;  // of the largest problem
  long long segment;                  // k of a segment
  long long first, segments;
  long long part;  // elements of a part: each segment writes its own at out + part * its number. 0: they are
                   // added here
  long long act;   // the activation (common.h) of the output; none where parts are written
  long long resume;  // whether they are added to what the output holds, where it kResumes
};

// What one block does at a time.
struct GemmTile {
  long long row, column, problem, first, last;  // segments [first, last)
};

// A matrix in memory: element (i, k) is data[i * outer_stride + k * inner_stride].
template <bool AlongK>
struct Matrix {
  static constexpr bool kAlongK = AlongK;
  typedef long long Outer;
  typedef long long Inner;
  const float *data;
  long long outer_stride, inner_stride;
  long long origin = 0;

  __device__ Matrix(const float *d, long long outer, long long inner)
      : data(d), outer_stride(outer), inner_stride(inner) {}
  __device__ void begin(long long k) { origin = k * inner_stride; }
  __device__ Outer outer(long long i) const { return i * outer_stride; }
  __device__ Inner inner(int k) const { return origin + k * inner_stride; }
  __device__ float load(Outer i, Inner k) const { return data[i + k]; }
};

// One operand's tile: from memory to registers, and from there to shared memory as [k][m or n].
template <class Loader>
struct TileReader {
  static constexpr int kOuters = Loader::kAlongK ? 4 : 1;
  typename Loader::Outer outers[kOuters];
  int count;  // rows or columns of the tile that exist
  float values[4];

  __device__ static int outer_of(int e) {
    return Loader::kAlongK ? threadIdx.x / 16 + 16 * e : threadIdx.x % 64;
  }
  __device__ static int k_of(int e) { return Loader::kAlongK ? threadIdx.x % 16 : threadIdx.x / 64 + 4 * e; }

  __device__ TileReader(const Loader &loader, long long start, long long extent) {
    count = extent - start < kTile ? (int)(extent - start) : kTile;
    for (int e = 0; e < kOuters; ++e)
      outers[e] = loader.outer(start + (outer_of(e) < count ? outer_of(e) : 0));
  }

  __device__ void fetch(const Loader &loader, int start, int depth) {
    if (Loader::kAlongK) {
      int k = start + k_of(0);
      typename Loader::Inner inner = loader.inner(k < depth ? k : start);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        values[e] = k < depth && outer_of(e) < count ? loader.load(outers[e % kOuters], inner) : 0.f;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        int k = start + k_of(e);
        values[e] = k < depth && outer_of(e) < count ? loader.load(outers[0], loader.inner(k)) : 0.f;
      }
    }
  }

  __device__ void put(float (&tile)[kTileDepth][kTileStride]) const {
#pragma unroll
    for (int e = 0; e < 4; ++e) tile[k_of(e)][outer_of(e)] = values[e];
  }
};

// sums += the product of two tiles in shared memory, in ascending k.
__device__ __forceinline__ void multiply_tiles(float (&sums)[4][4], const float (&a)[kTileDepth][kTileStride],
                                               const float (&b)[kTileDepth][kTileStride]) {
  int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
#pragma unroll
  for (int k = 0; k < kTileDepth; ++k) {
    float4 left = *reinterpret_cast<const float4 *>(&a[k][row]);
    float4 right = *reinterpret_cast<const float4 *>(&b[k][column]);
    float x[4] = {left.x, left.y, left.z, left.w}, y[4] = {right.x, right.y, right.z, right.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i][j] += x[i] * y[j];
  }
}

// sums = the product of a segment of `depth` k. While a step is multiplied, the operands of the next are on
// their way.
template <class A, class B>
__device__ __forceinline__ void multiply_segment(float (&sums)[4][4], const A &a, const B &b,
                                                 TileReader<A> &read_a, TileReader<B> &read_b, int depth) {
  __shared__ alignas(16) float tile_a[2][kTileDepth][kTileStride];
  __shared__ alignas(16) float tile_b[2][kTileDepth][kTileStride];
  for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] = 0.f;
  int half = 0;
  for (int k = -kTileDepth; k < depth; k += kTileDepth) {
    bool more = k + kTileDepth < depth;
    if (more) {
      read_a.fetch(a, k + kTileDepth, depth);
      read_b.fetch(b, k + kTileDepth, depth);
    }
    if (k >= 0) multiply_tiles(sums, tile_a[half ^ 1], tile_b[half ^ 1]);
    if (more) {
      read_a.put(tile_a[half]);
      read_b.put(tile_b[half]);
    }
    __syncthreads();
    half ^= 1;
  }
}

// One tile of a problem of rows x depth times depth x columns; which may be smaller than the launch's
// largest.
template <class A, class B, class C>
__device__ __forceinline__ void gemm_tile(A a, B b, C c, const GemmWork &work, const GemmTile &tile,
                                          long long rows, long long columns, long long depth) {
  if (tile.row >= rows || tile.column >= columns) return;
  TileReader<A> read_a(a, tile.row, rows);
  TileReader<B> read_b(b, tile.column, columns);
  float total[4][4], sums[4][4];
  long long row = tile.row + threadIdx.x / 16 * 4, column = tile.column + threadIdx.x % 16 * 4;
  bool resumed = C::kResumes && work.resume;
  if constexpr (C::kResumes)
    if (resumed)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          total[i][j] = row + i < rows && column + j < columns ? c.load(row + i, c.column(column + j)) : 0.f;
  for (long long segment = tile.first; segment < tile.last; ++segment) {
    long long start = segment * work.segment, left = depth - start;
    a.begin(start);
    b.begin(start);
    multiply_segment(sums, a, b, read_a, read_b,
                     (int)(left < 0              ? 0
                           : left < work.segment ? left
                                                 : work.segment));
    bool only = segment == tile.first && !resumed;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) total[i][j] = only ? sums[i][j] : total[i][j] + sums[i][j];
  }
  c.out += (tile.first - work.first) * work.part;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (column + j >= columns) break;
    typename C::Column place = c.column(column + j);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (row + i < rows) c.store(row + i, place, total[i][j]);
  }
}

// Calls run(tile) for each tile of this block. Neighbouring blocks share columns, whose operand is the larger
// one.
template <class Run>
__device__ __forceinline__ void gemm(const GemmWork &work, Run run) {
  long long row_tiles = (work.rows + kTile - 1) / kTile, column_tiles = (work.columns + kTile - 1) / kTile;
  long long parts = work.part ? work.segments : 1;
  long long all = row_tiles * column_tiles * work.problems * parts;
  for (long long index = blockIdx.x; index < all; index += gridDim.x) {
    GemmTile tile;
    long long rest = index;
    tile.row = rest % row_tiles * kTile;
    rest /= row_tiles;
    tile.column = rest % column_tiles * kTile;
    rest /= column_tiles;
    tile.problem = rest % work.problems;
    tile.first = work.first + rest / work.problems;
    tile.last = tile.first + (work.part ? 1 : work.segments);
    run(tile);
  }
}

// out = parts[0] + parts[1] + ... in ascending order, after what `out` holds already if `resume`; then the
// bias, if any, of channel (i / inner) % channels is added, and the activation applied.
__device__ __forceinline__ void combine_parts(const float *parts, long long count, long long part, float *out,
                                              int resume, const float *bias, long long inner,
                                              long long channels, int act) {
  GRID_STRIDE(i, part) {
    float total = resume ? out[i] : parts[i];
    for (long long p = resume ? 0 : 1; p < count; ++p) total += parts[p * part + i];
    out[i] = activate(bias ? total + bias[i / inner % channels] : total, act);
  }
}

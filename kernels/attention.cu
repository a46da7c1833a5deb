// attention.cu: scaled dot product attention of (batch, length, heads * features) tensors, each head of each
// image alone, without a matrix of probabilities.
//
//   forward   a block has 64 queries and goes over the keys, 64 at a time: scores, the largest so far, sums
//             of exponentials and of values, both scaled down when a larger score comes; writes the output
//             and lse = the largest + log(sum)
//   backward  probabilities are exp(score - lse). First delta[row] = sum(grad * output). Then a block has 64
//             keys and goes over the queries: value_grad += Pᵀ grad, key_grad += dSᵀ query, where
//             dS = scale P (grad valueᵀ - delta). Last a block has 64 queries and goes over the keys:
//             query_grad += dS key, which may lie on grad, query or output, since only its block reads them
//             by then
//
// Products are those of gemm.h's tiles, in ascending order, and no sum is shared by blocks: bits depend on
// the sizes of one head alone. A query does not see keys that the mask has 0 for, that lie at or behind the
// image's length, or, if causal, behind its own place; one that sees none gives 0, and lse = -2^127.
// Memory: forward reads keys and values once for every 64 queries. Workspace, backward: a float a row. FLOPs,
// of every visible pair: 2 (depth + width), and backward 4 depth + 4 width and again 2 (2 depth + width).
#include "gemm.h"
#include "ids.h"
#include "rows.h"

namespace {

constexpr int kStride = kTile + 1;  // a row of the tile of probabilities: its columns are in all banks
constexpr float kNothing = -1.7014118346046923e38f;

struct Sizes {
  long long batch, heads, queries, keys, depth, width;  // depth, width: features of a head of query, of value
};

// What a query may see. Mask (0: none) with its strides, which are 0 on an axis of one; lengths (0: none).
struct Rule {
  const float *mask;
  long long mask_image, mask_head, mask_row;
  const void *lengths;
  int length_kind;
  int causal;
  float scale;
};

struct Shared {
  alignas(16) float a[kTileDepth][kTileStride], b[kTileDepth][kTileStride];
  float tile[kTile * kStride];  // probabilities, or their gradients: rows are queries
};

// A head of an image.
struct Head {
  long long image, head;
  const float *mask;  // of the head's first query
  long long visible;  // keys before the length

  __device__ Head(const Sizes &s, const Rule &r, long long problem)
      : image(problem / s.heads), head(problem - problem / s.heads * s.heads) {
    mask = r.mask ? r.mask + image * r.mask_image + head * r.mask_head : nullptr;
    visible = s.keys;
    if (r.lengths) {
      float length = number_at(r.lengths, r.length_kind, image);
      visible = length < 0.f ? 0 : length < (float)s.keys ? (long long)length : s.keys;
    }
  }

  // Where row `row` of this head begins in a tensor of `length` rows with `features` a head.
  __device__ long long at(const Sizes &s, long long length, long long row, long long features) const {
    return (image * length + row) * s.heads * features + head * features;
  }
};

__device__ __forceinline__ int tile_row() { return threadIdx.x / 16 * 4; }
__device__ __forceinline__ int tile_column() { return threadIdx.x % 16 * 4; }

__device__ __forceinline__ int count_of(long long start, long long end) {
  return (int)(end - start < kTile ? end - start : kTile);
}

// The sum and the largest over the 16 threads that have a row's columns.
__device__ __forceinline__ float row_total(float x) {
  for (int lanes = 8; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

__device__ __forceinline__ float row_most(float x) {
  for (int lanes = 8; lanes > 0; lanes /= 2) x = max_nan(x, __shfl_xor_sync(0xffffffffu, x, lanes));
  return x;
}

__device__ __forceinline__ void clear(float (&sums)[4][4]) {
  for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] = 0.f;
}

// sums += A B over `depth` k, of which `rows` and `columns` exist. All threads must call.
template <class A, class B>
__device__ __forceinline__ void add_product(float (&sums)[4][4], const A &a, const B &b, int rows,
                                            int columns, int depth, Shared &shared) {
  TileReader<A> read_a(a, 0, rows);
  TileReader<B> read_b(b, 0, columns);
  for (int k = 0; k < depth; k += kTileDepth) {
    read_a.fetch(a, k, depth);
    read_b.fetch(b, k, depth);
    __syncthreads();  // nobody reads the last step's tiles any more
    read_a.put(shared.a);
    read_b.put(shared.b);
    __syncthreads();
    multiply_tiles(sums, shared.a, shared.b);
  }
}

// sums += left (64 x depth) right (depth x features of a head), by parts of 64 columns.
template <int Parts, class A>
__device__ __forceinline__ void add_parts(float (&sums)[Parts][4][4], const A &left, const float *right,
                                          long long stride, long long features, int rows, int depth,
                                          Shared &shared) {
#pragma unroll
  for (int part = 0; part < Parts; ++part) {
    if (part * kTile >= features) break;
    Matrix<false> b(right + part * kTile, 1, stride);
    add_product(sums[part], left, b, rows, count_of(part * kTile, features), depth, shared);
  }
}

// scores of queries [row, row + rows) and keys [column, column + columns); -infinity where nothing is seen.
__device__ __forceinline__ void score(float (&scores)[4][4], const float *query, const float *key,
                                      const Sizes &s, const Rule &r, const Head &head, long long row,
                                      int rows, long long column, int columns, Shared &shared) {
  clear(scores);
  long long stride = s.heads * s.depth;
  Matrix<true> a(query + head.at(s, s.queries, row, s.depth), stride, 1);
  Matrix<true> b(key + head.at(s, s.keys, column, s.depth), stride, 1);
  add_product(scores, a, b, rows, columns, (int)s.depth, shared);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      int m = tile_row() + i, n = tile_column() + j;
      bool seen = m < rows && n < columns && column + n < head.visible &&
                  (!r.causal || column + n <= row + m) &&
                  (!head.mask || head.mask[(row + m) * r.mask_row + column + n] != 0.f);
      scores[i][j] = seen ? scores[i][j] * r.scale : __int_as_float(0xff800000);
    }
}

// The tile in shared memory = values, when nobody reads the old ones any more; then all may read it.
__device__ __forceinline__ void put_tile(Shared &shared, const float (&values)[4][4]) {
  __syncthreads();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) shared.tile[(tile_row() + i) * kStride + tile_column() + j] = values[i][j];
  __syncthreads();
}

// out's rows [0, rows) = sums, by parts of 64 columns; out begins at the first row of the head.
template <int Parts>
__device__ __forceinline__ void store_parts(const float (&sums)[Parts][4][4], float *out, long long stride,
                                            long long features, int rows) {
#pragma unroll
  for (int part = 0; part < Parts; ++part)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) {
        long long column = part * kTile + tile_column() + j;
        if (tile_row() + i < rows && column < features)
          out[(tile_row() + i) * stride + column] = sums[part][i][j];
      }
}

// Calls run(head, start) for each tile of 64 rows that is this block's; `length` rows a head.
template <class Run>
__device__ __forceinline__ void each_tile(const Sizes &s, const Rule &r, long long length, Run run) {
  long long tiles = (length + kTile - 1) / kTile;
  for (long long i = blockIdx.x; i < s.batch * s.heads * tiles; i += gridDim.x) {
    long long problem = i / tiles;
    run(Head(s, r, problem), (i - problem * tiles) * kTile);
  }
}

// Keys that any of the queries before `end` sees.
__device__ __forceinline__ long long seen_before(const Head &head, const Rule &r, long long end) {
  return r.causal && end < head.visible ? end : head.visible;
}

template <int Parts>
__device__ __forceinline__ void forward(const float *query, const float *key, const float *value, float *out,
                                        float *lse, const Rule &r, const Sizes &s) {
  __shared__ Shared shared;
  each_tile(s, r, s.queries, [&](const Head &head, long long row) {
    int rows = count_of(row, s.queries);
    float largest[4], total[4], sums[Parts][4][4], scores[4][4];
    for (int part = 0; part < Parts; ++part) clear(sums[part]);
    for (int i = 0; i < 4; ++i) largest[i] = kNothing, total[i] = 0.f;
    long long end = seen_before(head, r, row + rows);
    for (long long column = 0; column < end; column += kTile) {
      int columns = count_of(column, end);
      score(scores, query, key, s, r, head, row, rows, column, columns, shared);
      for (int i = 0; i < 4; ++i) {
        float most = max_nan(max_nan(scores[i][0], scores[i][1]), max_nan(scores[i][2], scores[i][3]));
        most = max_nan(largest[i], row_most(most));
        float factor = expf(largest[i] - most), sum = 0.f;
        for (int j = 0; j < 4; ++j) sum += scores[i][j] = expf(scores[i][j] - most);
        total[i] = total[i] * factor + row_total(sum);
        largest[i] = most;
        for (int part = 0; part < Parts; ++part)
          for (int j = 0; j < 4; ++j) sums[part][i][j] *= factor;
      }
      put_tile(shared, scores);
      add_parts<Parts>(sums, Matrix<true>(shared.tile, kStride, 1),
                       value + head.at(s, s.keys, column, s.width), s.heads * s.width, s.width, rows, columns,
                       shared);
    }
    for (int i = 0; i < 4; ++i) {
      if (total[i] < 1.f) total[i] = 1.f;  // of a row that sees nothing
      for (int part = 0; part < Parts; ++part)
        for (int j = 0; j < 4; ++j) sums[part][i][j] /= total[i];
      if (tile_column() == 0 && tile_row() + i < rows)
        lse[(head.image * s.heads + head.head) * s.queries + row + tile_row() + i] =
            largest[i] + logf(total[i]);
    }
    store_parts<Parts>(sums, out + head.at(s, s.queries, row, s.width), s.heads * s.width, s.width, rows);
  });
}

struct Saved {
  const float *grad, *query, *key, *value, *lse, *delta;
};

// Probabilities of a tile, which may be put before `slopes` become their gradients; see slopes_of.
__device__ __forceinline__ void chances_of(float (&chances)[4][4], const Saved &t, const Sizes &s,
                                           const Rule &r, const Head &head, long long row, int rows,
                                           long long column, int columns, Shared &shared) {
  score(chances, t.query, t.key, s, r, head, row, rows, column, columns, shared);
  const float *lse = t.lse + (head.image * s.heads + head.head) * s.queries + row;
  for (int i = 0; i < 4; ++i) {
    float from = tile_row() + i < rows ? lse[tile_row() + i] : 0.f;
    for (int j = 0; j < 4; ++j) chances[i][j] = expf(chances[i][j] - from);
  }
}

// Gradients of a tile's scores, before the scale: P (grad valueᵀ - delta).
__device__ __forceinline__ void slopes_of(float (&slopes)[4][4], const float (&chances)[4][4], const Saved &t,
                                          const Sizes &s, const Rule &r, const Head &head, long long row,
                                          int rows, long long column, int columns, Shared &shared) {
  clear(slopes);
  long long stride = s.heads * s.width;
  Matrix<true> a(t.grad + head.at(s, s.queries, row, s.width), stride, 1);
  Matrix<true> b(t.value + head.at(s, s.keys, column, s.width), stride, 1);
  add_product(slopes, a, b, rows, columns, (int)s.width, shared);
  const float *delta = t.delta + (head.image * s.heads + head.head) * s.queries + row;
  for (int i = 0; i < 4; ++i) {
    float mean = tile_row() + i < rows ? delta[tile_row() + i] : 0.f;
    for (int j = 0; j < 4; ++j) slopes[i][j] = chances[i][j] * (slopes[i][j] - mean) * r.scale;
  }
}

template <int Parts>
__device__ __forceinline__ void backward_keys(const Saved &t, float *key_grad, float *value_grad,
                                              const Rule &r, const Sizes &s) {
  __shared__ Shared shared;
  each_tile(s, r, s.keys, [&](const Head &head, long long column) {
    int columns = count_of(column, s.keys);
    float keys[Parts][4][4], values[Parts][4][4], chances[4][4], slopes[4][4];
    for (int part = 0; part < Parts; ++part) clear(keys[part]), clear(values[part]);
    long long start = column < head.visible ? (r.causal ? column : 0) : s.queries;
    for (long long row = start; row < s.queries; row += kTile) {
      int rows = count_of(row, s.queries);
      Matrix<false> turned(shared.tile, 1, kStride);
      chances_of(chances, t, s, r, head, row, rows, column, columns, shared);
      put_tile(shared, chances);
      add_parts<Parts>(values, turned, t.grad + head.at(s, s.queries, row, s.width), s.heads * s.width,
                       s.width, columns, rows, shared);
      slopes_of(slopes, chances, t, s, r, head, row, rows, column, columns, shared);
      put_tile(shared, slopes);
      add_parts<Parts>(keys, turned, t.query + head.at(s, s.queries, row, s.depth), s.heads * s.depth,
                       s.depth, columns, rows, shared);
    }
    store_parts<Parts>(keys, key_grad + head.at(s, s.keys, column, s.depth), s.heads * s.depth, s.depth,
                       columns);
    store_parts<Parts>(values, value_grad + head.at(s, s.keys, column, s.width), s.heads * s.width, s.width,
                       columns);
  });
}

template <int Parts>
__device__ __forceinline__ void backward_queries(const Saved &t, float *query_grad, const Rule &r,
                                                 const Sizes &s) {
  __shared__ Shared shared;
  each_tile(s, r, s.queries, [&](const Head &head, long long row) {
    int rows = count_of(row, s.queries);
    float sums[Parts][4][4], chances[4][4], slopes[4][4];
    for (int part = 0; part < Parts; ++part) clear(sums[part]);
    long long end = seen_before(head, r, row + rows);
    for (long long column = 0; column < end; column += kTile) {
      int columns = count_of(column, end);
      chances_of(chances, t, s, r, head, row, rows, column, columns, shared);
      slopes_of(slopes, chances, t, s, r, head, row, rows, column, columns, shared);
      put_tile(shared, slopes);
      add_parts<Parts>(sums, Matrix<true>(shared.tile, kStride, 1),
                       t.key + head.at(s, s.keys, column, s.depth), s.heads * s.depth, s.depth, rows, columns,
                       shared);
    }
    store_parts<Parts>(sums, query_grad + head.at(s, s.queries, row, s.depth), s.heads * s.depth, s.depth,
                       rows);
  });
}

}  // namespace

#define ATTENTION_KERNELS(features, parts)                                                                 \
  extern "C" __global__ void __launch_bounds__(kTileThreads) attention_forward_##features(                 \
      const float *query, const float *key, const float *value, float *out, float *lse, Rule r, Sizes s) { \
    forward<parts>(query, key, value, out, lse, r, s);                                                     \
  }                                                                                                        \
  extern "C" __global__ void __launch_bounds__(kTileThreads)                                               \
      attention_backward_keys_##features(Saved t, float *key_grad, float *value_grad, Rule r, Sizes s) {   \
    backward_keys<parts>(t, key_grad, value_grad, r, s);                                                   \
  }                                                                                                        \
  extern "C" __global__ void __launch_bounds__(kTileThreads)                                               \
      attention_backward_queries_inplace_##features(Saved t, float *query_grad, Rule r, Sizes s) {         \
    backward_queries<parts>(t, query_grad, r, s);                                                          \
  }

ATTENTION_KERNELS(64, 1)
ATTENTION_KERNELS(128, 2)
ATTENTION_KERNELS(256, 4)

extern "C" __global__ void attention_backward_delta(const float *grad, const float *out, float *delta,
                                                    Sizes s) {
  FOR_ROWS(WarpGroup, row, s.batch * s.queries * s.heads) {
    float sum = row_sum<WarpGroup>(
        s.width, [&](long long f) { return grad[row * s.width + f] * out[row * s.width + f]; });
    long long place = row / s.heads, image = place / s.queries;
    if (WarpGroup::first() == 0)
      delta[(image * s.heads + row - place * s.heads) * s.queries + place - image * s.queries] = sum;
  }
}

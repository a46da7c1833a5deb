// matmul.cu: products of matrices, one or a batch of them, each operand as it lies or transposed (gemm.h).
//
//   C[p] (rows, columns) = A[p] (rows, depth) B[p] (depth, columns)      for each problem p
//
// Memory: A and B are only read, C only written; nothing works in place. Workspace: parts of C where few
// tiles are spread over blocks by segments of the depth, which the sizes fix. A product does
// 2 * problems * rows * columns * depth FLOPs; operands come once from memory, tiles again by L2.
#include "common.h"
#include "gemm.h"

// Steps in elements (matmul.py: Product): of an operand along its rows or columns, along the depth, and from
// one problem to the next; of C along its rows, columns and problems.
struct Steps {
  long long a_outer, a_inner, a_problem, b_outer, b_inner, b_problem, c_row, c_column, c_problem, depth;
};

struct StridedOutput {
  static constexpr bool kResumes = false;
  typedef long long Column;
  float *out;
  long long row_step, column_step;

  __device__ Column column(long long n) const { return n * column_step; }
  __device__ void store(long long m, Column n, float value) const { out[m * row_step + n] = value; }
};

// AlongA, AlongB: whether neighbours in memory are neighbours along the depth.
template <bool AlongA, bool AlongB>
__device__ __forceinline__ void product(const float *a, const float *b, float *out, const GemmWork &work,
                                        const Steps &s) {
  gemm(work, [&](const GemmTile &tile) {
    gemm_tile(Matrix<AlongA>(a + tile.problem * s.a_problem, s.a_outer, s.a_inner),
              Matrix<AlongB>(b + tile.problem * s.b_problem, s.b_outer, s.b_inner),
              StridedOutput{out + tile.problem * s.c_problem, s.c_row, s.c_column}, work, tile, work.rows,
              work.columns, s.depth);
  });
}

#define PRODUCT(NAME, ALONG_A, ALONG_B)                                                                      \
  extern "C" __global__ void __launch_bounds__(kTileThreads)                                                 \
      NAME(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ out, GemmWork work, \
           Steps steps) {                                                                                    \
    product<ALONG_A, ALONG_B>(a, b, out, work, steps);                                                       \
  }
PRODUCT(matmul_forward_depth_depth, true, true)
PRODUCT(matmul_forward_depth_outer, true, false)
PRODUCT(matmul_forward_outer_depth, false, true)
PRODUCT(matmul_forward_outer_outer, false, false)

extern "C" __global__ void matmul_combine(const float *__restrict__ parts, long long count, long long part,
                                          float *__restrict__ out, int resume, const float *__restrict__ bias,
                                          long long inner, long long channels, int act) {
  combine_parts(parts, count, part, out, resume, bias, inner, channels, act);
}

// shape.cu: reordered axes. Views need no kernel: they are the same bytes.
//
// Memory contract: x is only read, out is another buffer of as many floats, all written. Sizes are those of
// the output's axes, *_steps their strides. No workspace. per element: 4 bytes read, 4 written, no FLOPs.
#include "common.h"

// Element by element: for tensors whose last axis stays last, or is too short for tiles.
extern "C" __global__ void transpose_forward_gather(const float *__restrict__ x, float *__restrict__ out,
                                                    long long n, Dims sizes, Dims x_steps) {
  GRID_STRIDE(i, n) out[i] = x[strided_offset(i, sizes, x_steps)];
}

constexpr int kTile = 32, kTileRows = 8;  // a block is (kTile, kTileRows) threads

// Tiles of 32 by 32 through shared memory, read along x's last axis (`columns`) and written along the
// output's
// (`rows`), so that both sides move whole lines. The other axes are `batch`. The tile's odd pitch keeps its
// columns in different banks.
extern "C" __global__ void transpose_forward_tiled(const float *__restrict__ x, float *__restrict__ out,
                                                   long long batches, long long rows, long long columns,
                                                   long long x_row_step, long long out_column_step,
                                                   Dims batch, Dims x_steps, Dims out_steps) {
  __shared__ float tile[kTile][kTile + 1];
  long long across = (columns + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  for (long long t = blockIdx.x; t < batches * down * across; t += gridDim.x) {
    long long row = t / across % down * kTile, column = t % across * kTile, b = t / across / down;
    const float *from = x + strided_offset(b, batch, x_steps);
    float *to = out + strided_offset(b, batch, out_steps);
    for (int k = threadIdx.y; k < kTile; k += kTileRows)
      if (row + k < rows && column + threadIdx.x < columns)
        tile[k][threadIdx.x] = from[(row + k) * x_row_step + column + threadIdx.x];
    __syncthreads();
    for (int k = threadIdx.y; k < kTile; k += kTileRows)
      if (column + k < columns && row + threadIdx.x < rows)
        to[(column + k) * out_column_step + row + threadIdx.x] = tile[threadIdx.x][k];
    __syncthreads();
  }
}

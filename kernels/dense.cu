// dense.cu: FullyConnected and its gradients as tiled matrix products (gemm.h).
//
//   forward   Y (rows, hidden)    = X (rows, features) W' + b     W (hidden, features), b (hidden)
//   data      dX (rows, features) = dY W
//   weight    dW (hidden, features) = dY' X, a canonical chunk of the batch at a time
//   bias      db (hidden)         = column sums of dY, a part of the rows at a time
//             Both sums can go on from that of earlier rows, with the bits of all rows at once.
//
// Memory: inputs are only read, outputs only written; nothing works in place. Workspace: parts of the output
// where few tiles are spread over blocks by segments of k; partial column sums for the bias. A product of
// rows x hidden x features does twice that many FLOPs and moves its three matrices once, their tiles again
// rows / 64 and columns / 64 times by L2.
#include "channels.h"
#include "common.h"
#include "gemm.h"

namespace {

// A row-major matrix of `width` columns, with a bias a column.
struct DenseOutput {
  static constexpr bool kResumes = true;
  typedef long long Column;
  float *out;
  const float *bias;
  long long width;
  int act;

  __device__ Column column(long long n) const { return n; }
  __device__ float load(long long m, Column n) const { return out[m * width + n]; }
  __device__ void store(long long m, Column n, float value) const {
    out[m * width + n] = activate(bias ? value + bias[n] : value, act);
  }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kTileThreads)
    fully_connected_forward(const float *__restrict__ data, const float *__restrict__ weight,
                            const float *__restrict__ bias, float *__restrict__ out, GemmWork work,
                            long long features) {
  gemm(work, [&](const GemmTile &tile) {
    gemm_tile(Matrix<true>(data, features, 1), Matrix<true>(weight, features, 1),
              DenseOutput{out, bias, work.columns, (int)work.act}, work, tile, work.rows, work.columns, features);
  });
}

extern "C" __global__ void __launch_bounds__(kTileThreads)
    fully_connected_backward_data(const float *__restrict__ grad, const float *__restrict__ weight,
                                  float *__restrict__ out, GemmWork work, long long hidden) {
  gemm(work, [&](const GemmTile &tile) {
    gemm_tile(Matrix<true>(grad, hidden, 1), Matrix<false>(weight, 1, work.columns),
              DenseOutput{out, nullptr, work.columns}, work, tile, work.rows, work.columns, hidden);
  });
}

extern "C" __global__ void __launch_bounds__(kTileThreads)
    fully_connected_backward_weight(const float *__restrict__ grad, const float *__restrict__ data,
                                    float *__restrict__ out, GemmWork work, long long rows) {
  gemm(work, [&](const GemmTile &tile) {
    gemm_tile(Matrix<false>(grad, 1, work.rows), Matrix<false>(data, 1, work.columns),
              DenseOutput{out, nullptr, work.columns}, work, tile, work.rows, work.columns, rows);
  });
}

extern "C" __global__ void fully_connected_combine(const float *__restrict__ parts, long long count,
                                                   long long part, float *__restrict__ out, int resume,
                                                   const float *__restrict__ bias, long long inner,
                                                   long long channels, int act) {
  combine_parts(parts, count, part, out, resume, bias, inner, channels, act);
}

extern "C" __global__ void __launch_bounds__(kChannelThreads)
    fully_connected_backward_bias_partials(const float *__restrict__ grad, float *__restrict__ partials,
                                           Channels c) {
  sum_channels<1>(c, partials, [&](float (&sums)[1], const ChannelIndex &i) { sums[0] += grad[i.element]; });
}

extern "C" __global__ void fully_connected_backward_bias(const float *__restrict__ partials,
                                                         float *__restrict__ out, Channels c, int resume) {
  GRID_STRIDE(channel, c.channels)
  out[channel] = total_of_images(c, partials, channel, resume ? out[channel] : 0.f);
}

// layer_norm.cu: layer normalisation of a tensor (batch, before, features, after): each row, the features at
// one (batch, before, after), by its own mean and deviation.
//
//   forward   mean, then the mean of what is left (which corrects the rounding of the first), then squares;
//             out = gamma (data - mean) / std + beta
//   backward  of each row, x being its normalised values: rest = mean(data - mean), means = mean(grad gamma),
//             slope = mean((grad gamma - means) x); then the gradients of gamma and beta, sums of grad x and
//             of grad over parts of the rows (channels.h); last (grad gamma - means - x slope) / std, which
//             alone writes the data gradient, so that this may lie on grad or data
//
// A row has a block (*_rows) where its neighbours lie close, or a thread (*_columns) where rows interleave
// widely. A block adds its threads' sums in a fixed order. Memory: a row comes once from memory and again
// from cache; backward reads grad and data three times. Workspace, backward: three floats a row, and the
// parts' sums. About 10 and 14 FLOPs an element.
#include "channels.h"
#include "common.h"

namespace {

struct Rows {
  long long rows, features, after;
};

// How the threads of a block share a row: all of them, or each its own.
struct BlockOfRow {
  __device__ static long long first_row() { return blockIdx.x; }
  __device__ static long long row_step() { return gridDim.x; }
  __device__ static long long first() { return threadIdx.x; }
  __device__ static long long step() { return blockDim.x; }
  __device__ static bool leads() { return threadIdx.x == 0; }
  __device__ static float sum(float x) {
    __shared__ float scratch[32];
    return block_sum(x, scratch);
  }
};

struct ThreadOfRow {
  __device__ static long long first_row() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
  __device__ static long long row_step() { return (long long)gridDim.x * blockDim.x; }
  __device__ static long long first() { return 0; }
  __device__ static long long step() { return 1; }
  __device__ static bool leads() { return true; }
  __device__ static float sum(float x) { return x; }
};

// The mean over a row's features of term(offset, feature).
template <class Share, class Term>
__device__ __forceinline__ float row_mean(const Rows &r, long long start, Term term) {
  float sum = 0.f;
  for (long long f = Share::first(); f < r.features; f += Share::step()) sum += term(start + f * r.after, f);
  return Share::sum(sum) / r.features;
}

// run(row, offset of its first feature) for the rows of this block or thread.
template <class Share, class Run>
__device__ __forceinline__ void each_row(const Rows &r, Run run) {
  for (long long row = Share::first_row(); row < r.rows; row += Share::row_step()) {
    long long outer = row / r.after;
    run(row, outer * r.features * r.after + row - outer * r.after);
  }
}

template <class Share>
__device__ __forceinline__ void normalise_rows(const float *data, const float *gamma, const float *beta,
                                               float *out, float *mean, float *std, float eps,
                                               const Rows &r) {
  each_row<Share>(r, [&](long long row, long long start) {
    float rough = row_mean<Share>(r, start, [&](long long i, long long) { return data[i]; });
    float rest = row_mean<Share>(r, start, [&](long long i, long long) { return data[i] - rough; });
    float squares = row_mean<Share>(r, start, [&](long long i, long long) {
      float centred = data[i] - rough - rest;
      return centred * centred;
    });
    float deviation = sqrtf(squares + eps);
    for (long long f = Share::first(); f < r.features; f += Share::step()) {
      long long i = start + f * r.after;
      out[i] = (data[i] - rough - rest) / deviation * gamma[f] + beta[f];
    }
    if (Share::leads()) {
      mean[row] = rough + rest;
      std[row] = deviation;
    }
  });
}

// sums[row], sums[rows + row], sums[2 rows + row] = rest, means, slope.
template <class Share>
__device__ __forceinline__ void sum_rows(const float *grad, const float *data, const float *gamma,
                                         const float *mean, const float *std, float *sums, const Rows &r) {
  each_row<Share>(r, [&](long long row, long long start) {
    float m = mean[row], deviation = std[row];
    float rest = row_mean<Share>(r, start, [&](long long i, long long) { return data[i] - m; });
    float means = row_mean<Share>(r, start, [&](long long i, long long f) { return grad[i] * gamma[f]; });
    float slope = row_mean<Share>(r, start, [&](long long i, long long f) {
      return (grad[i] * gamma[f] - means) * ((data[i] - m - rest) / deviation);
    });
    if (Share::leads()) {
      sums[row] = rest;
      sums[r.rows + row] = means;
      sums[2 * r.rows + row] = slope;
    }
  });
}

}  // namespace

extern "C" __global__ void layernorm_forward_inplace_rows(const float *data, const float *gamma,
                                                          const float *beta, float *out, float *mean,
                                                          float *std, float eps, Rows r) {
  normalise_rows<BlockOfRow>(data, gamma, beta, out, mean, std, eps, r);
}

extern "C" __global__ void layernorm_forward_inplace_columns(const float *data, const float *gamma,
                                                             const float *beta, float *out, float *mean,
                                                             float *std, float eps, Rows r) {
  normalise_rows<ThreadOfRow>(data, gamma, beta, out, mean, std, eps, r);
}

extern "C" __global__ void layernorm_backward_sums_rows(const float *grad, const float *data,
                                                        const float *gamma, const float *mean,
                                                        const float *std, float *sums, Rows r) {
  sum_rows<BlockOfRow>(grad, data, gamma, mean, std, sums, r);
}

extern "C" __global__ void layernorm_backward_sums_columns(const float *grad, const float *data,
                                                           const float *gamma, const float *mean,
                                                           const float *std, float *sums, Rows r) {
  sum_rows<ThreadOfRow>(grad, data, gamma, mean, std, sums, r);
}

extern "C" __global__ void __launch_bounds__(kChannelThreads)
    layernorm_backward_partials(const float *grad, const float *data, const float *mean, const float *std,
                                const float *rest, float *parts, Channels c) {
  sum_channels<2>(c, parts, [&](float (&sums)[2], const ChannelIndex &i) {
    long long row = i.run * c.after + i.place;
    sums[0] += grad[i.element] * ((data[i.element] - mean[row] - rest[row]) / std[row]);
    sums[1] += grad[i.element];
  });
}

extern "C" __global__ void layernorm_backward_params(const float *parts, float *gamma_grad, float *beta_grad,
                                                     Channels c) {
  GRID_STRIDE(channel, c.channels) {
    gamma_grad[channel] = (float)total_of_parts<2>(c, parts, channel, 0);
    beta_grad[channel] = (float)total_of_parts<2>(c, parts, channel, 1);
  }
}

extern "C" __global__ void layernorm_backward_data_inplace(const float *grad, const float *data,
                                                           const float *gamma, const float *mean,
                                                           const float *std, const float *sums, float *out,
                                                           Rows r) {
  const float *means = sums + r.rows, *slopes = means + r.rows;
  each_of_channel(r.rows * r.features, r.features, r.after, [&](long long i, int feature, long long row) {
    float deviation = std[row], x = (data[i] - mean[row] - sums[row]) / deviation;
    out[i] = (grad[i] * gamma[feature] - means[row] - x * slopes[row]) / deviation;
  });
}

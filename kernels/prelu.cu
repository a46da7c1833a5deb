// prelu.cu: leaky functions whose slope is an input (prelu) or is drawn (rrelu), and their gradients.
//
// Memory: n floats of each tensor are read once and n floats of out written; out may be data, and backward
// any of grad and data. gamma has a slope for each of `channels`; element i has slope i / inner % channels.
// No workspace.
//
// prelu_backward_gamma sums grad * min(data, 0) for each channel. A channel's elements are cut into parts of
// `part_length`; with more than one part the workspace holds the sums as (channels, parts) floats, and a
// second launch adds them. The cuts depend on shapes only.
//
// Bytes: 8 n forward, 12 n backward, 8 n for gamma. FLOPs: 2 n to 4 n, and 40 integer operations where a
// slope is drawn.
#include "common.h"
#include "philox.h"

extern "C" __global__ void prelu_forward_float32(const float *data, const float *gamma, float *out,
                                                 long long n, long long inner, long long channels) {
  GRID_STRIDE (i, n) {
    float x = data[i];
    out[i] = relu(x) + min_nan(x, 0.f) * gamma[i / inner % channels];
  }
}

extern "C" __global__ void prelu_backward_data_float32(const float *grad, const float *data,
                                                       const float *gamma, float *out, long long n,
                                                       long long inner, long long channels) {
  GRID_STRIDE (i, n) out[i] = grad[i] * (data[i] > 0.f ? 1.f : gamma[i / inner % channels]);
}

// sums[c * parts + part]; a channel has `count` elements, in runs of `inner` that lie inner * channels apart.
extern "C" __global__ void prelu_backward_gamma_parts(const float *grad, const float *data, float *sums,
                                                      long long count, long long inner, long long channels,
                                                      long long part_length, long long parts) {
  __shared__ float scratch[32];
  for (long long unit = blockIdx.x; unit < channels * parts; unit += gridDim.x) {
    long long c = unit / parts, first = (unit - c * parts) * part_length,
              last = min(first + part_length, count);
    float sum = 0.f;
    for (long long r = first + threadIdx.x; r < last; r += blockDim.x) {
      long long run = r / inner, i = (run * channels + c) * inner + (r - run * inner);
      sum += min_nan(data[i], 0.f) * grad[i];
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) sums[unit] = sum;
  }
}

// gamma_grad[c] = the sum of its parts
extern "C" __global__ void prelu_backward_gamma_combine(const float *sums, float *gamma_grad,
                                                        long long channels, long long parts) {
  __shared__ float scratch[32];
  for (long long c = blockIdx.x; c < channels; c += gridDim.x) {
    float sum = 0.f;
    for (long long part = threadIdx.x; part < parts; part += blockDim.x) sum += sums[c * parts + part];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) gamma_grad[c] = sum;
  }
}

extern "C" __global__ void rrelu_forward_float32(const float *data, const unsigned int *control, float *out,
                                                 long long n, unsigned int ordinal, float low, float width) {
  GRID_STRIDE (block, (n + 3) / 4) {
    RandomWords words = philox_block(control, ordinal, block);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      long long i = 4 * block + w;
      if (i >= n) continue;
      float x = data[i];
      out[i] = relu(x) + min_nan(x, 0.f) * uniform_between(words.w[w], low, width);
    }
  }
}

// `saved` is the output, whose sign is that of the input.
extern "C" __global__ void rrelu_backward_float32(const float *grad, const float *saved,
                                                  const unsigned int *control, float *out, long long n,
                                                  unsigned int ordinal, float low, float width) {
  GRID_STRIDE (block, (n + 3) / 4) {
    RandomWords words = philox_block(control, ordinal, block);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      long long i = 4 * block + w;
      if (i >= n) continue;
      float y = saved[i], slope = uniform_between(words.w[w], low, width);
      out[i] = grad[i] * (y > 0.f ? 1.f : y <= 0.f ? slope : 0.f);
    }
  }
}

// norm.cu: batch normalisation of a tensor (batch, before, channels, after) by statistics a channel
// (channels.h).
//
//   train      moments of each part, by Welford's update and Chan's merge, about the part's first element, so
//              that a large mean costs no digits; a thread a channel joins the parts in ascending order in
//              float64 and makes the channel's scale and shift; then out = (data - mean) scale + shift
//   backward   sums of grad and grad (data - mean) a channel, then grad scale + (data - mean) slope + shift
//   inference  the elementwise passes, with scale from the moving variance
//
// Memory: data is read twice and written once (grad and data twice each, backward). The elementwise passes
// come last and read an element before they write it, so their output may lie on any tensor input of equal
// size. Workspace: moments or sums of the parts, then vectors of a channel. About 8 FLOPs an element.
#include "channels.h"
#include "common.h"

namespace {

// Number, mean and sum of squared deviations of some values, taken about `pivot`.
struct Moments {
  float count, pivot, mean, squares;

  __device__ Moments() : count(0.f), pivot(0.f), mean(0.f), squares(0.f) {}
  __device__ void add(float value, float about) {
    pivot = about;
    count += 1.f;
    float before = value - about - mean;
    mean += before / count;
    squares += before * (value - about - mean);
  }
  __device__ void merge(const Moments &other) {
    if (other.count == 0.f) return;
    float all = count + other.count, apart = other.mean - mean, share = other.count / all;
    pivot = other.pivot;
    mean += apart * share;
    squares += other.squares + apart * apart * count * share;
    count = all;
  }
};

// Mean and biased variance of all parts of a channel; 0 and 0 of no parts.
__device__ void join_parts(const Moments *parts, const Channels &c, long long channel, double &mean,
                           double &variance) {
  double count = 0, sum = 0, squares = 0;
  for (long long part = 0; part < c.parts; ++part) {
    const Moments &m = parts[part * c.channels + channel];
    count += m.count;
    sum += m.count * ((double)m.pivot + m.mean);
  }
  mean = count > 0 ? sum / count : 0;
  for (long long part = 0; part < c.parts; ++part) {
    const Moments &m = parts[part * c.channels + channel];
    double apart = (double)m.pivot + m.mean - mean;
    squares += m.squares + m.count * apart * apart;
  }
  variance = count > 0 ? squares / count : 0;
}

__device__ __forceinline__ double inverse_deviation(double variance, float eps) {
  return 1 / sqrt(variance + eps);
}

}  // namespace

// ---- training ------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(kChannelThreads)
    batchnorm_train_moments(const float *data, float *parts, Channels c) {
  reduce_channels(c, reinterpret_cast<Moments *>(parts),
                  [&](Moments &m, const ChannelIndex &i) { m.add(data[i.element], data[i.first]); });
}

// gamma may be null: 1. `vectors` receives scale and shift; shift also makes up for the rounding of mean.
extern "C" __global__ void batchnorm_train_statistics(const float *parts, const float *gamma,
                                                      const float *beta, float *mean, float *var,
                                                      float *vectors, float eps, Channels c) {
  GRID_STRIDE(channel, c.channels) {
    double exact, variance;
    join_parts(reinterpret_cast<const Moments *>(parts), c, channel, exact, variance);
    double scale = inverse_deviation(variance, eps) * (gamma ? gamma[channel] : 1.f);
    mean[channel] = (float)exact;
    var[channel] = (float)variance;
    vectors[channel] = (float)scale;
    vectors[c.channels + channel] = (float)(beta[channel] - (exact - mean[channel]) * scale);
  }
}

// out = (data - mean) scale + shift, in training and inference.
extern "C" __global__ void batchnorm_normalise_inplace(const float *data, const float *mean,
                                                       const float *scale, const float *shift, float *out,
                                                       long long elements, long long channels,
                                                       long long after) {
  each_of_channel(elements, channels, after, [&](long long i, int channel, long long) {
    out[i] = (data[i] - mean[channel]) * scale[channel] + shift[channel];
  });
}

// data and mean may be null: then the second sum is 0.
extern "C" __global__ void __launch_bounds__(kChannelThreads)
    batchnorm_backward_partials(const float *grad, const float *data, const float *mean, float *parts,
                                Channels c) {
  sum_channels<2>(c, parts, [&](float (&sums)[2], const ChannelIndex &i) {
    sums[0] += grad[i.element];
    if (data) sums[1] += grad[i.element] * (data[i.element] - mean[i.channel]);
  });
}

// `vectors` receives scale, slope and shift of the data gradient.
extern "C" __global__ void batchnorm_backward_params(const float *parts, const float *gamma, const float *var,
                                                     float *gamma_grad, float *beta_grad, float *vectors,
                                                     float eps, Channels c) {
  double count = (double)c.batch * c.before * c.after;
  if (count < 1) count = 1;
  GRID_STRIDE(channel, c.channels) {
    double sum = total_of_parts<2>(c, parts, channel, 0), product = total_of_parts<2>(c, parts, channel, 1);
    double inverse = inverse_deviation(var[channel], eps), scale = inverse * (gamma ? gamma[channel] : 1.f);
    gamma_grad[channel] = (float)(product * inverse);
    beta_grad[channel] = (float)sum;
    vectors[channel] = (float)scale;
    vectors[c.channels + channel] = (float)(-scale * inverse * inverse * product / count);
    vectors[2 * c.channels + channel] = (float)(-scale * sum / count);
  }
}

extern "C" __global__ void batchnorm_backward_data_inplace(const float *grad, const float *data,
                                                           const float *mean, const float *vectors,
                                                           float *out, long long elements, long long channels,
                                                           long long after) {
  const float *scale = vectors, *slope = vectors + channels, *shift = slope + channels;
  each_of_channel(elements, channels, after, [&](long long i, int channel, long long) {
    float centred = data[i] - mean[channel];
    out[i] = grad[i] * scale[channel] + (centred * slope[channel] + shift[channel]);
  });
}

// The outputs are the inputs of the same name: momentum of the old, the rest of the new.
extern "C" __global__ void batchnorm_update_moving_inplace(const float *moving_mean, const float *moving_var,
                                                           const float *mean, const float *var,
                                                           float *new_mean, float *new_var, float keep,
                                                           float take, long long channels) {
  GRID_STRIDE(channel, channels) {
    new_mean[channel] = moving_mean[channel] * keep + take * mean[channel];
    new_var[channel] = moving_var[channel] * keep + take * var[channel];
  }
}

// ---- inference -----------------------------------------------------------------------------------

extern "C" __global__ void batchnorm_inference_scale(const float *gamma, const float *var, float *scale,
                                                     float eps, long long channels) {
  GRID_STRIDE(channel, channels)
  scale[channel] = (float)(inverse_deviation(var[channel], eps) * (gamma ? gamma[channel] : 1.f));
}

extern "C" __global__ void batchnorm_inference_backward_data_inplace(const float *grad, const float *scale,
                                                                     float *out, long long elements,
                                                                     long long channels, long long after) {
  each_of_channel(elements, channels, after,
                  [&](long long i, int channel, long long) { out[i] = grad[i] * scale[channel]; });
}

// var may be null, where gamma is held: its gradient is 0.
extern "C" __global__ void batchnorm_inference_backward_params(const float *parts, const float *var,
                                                               float *gamma_grad, float *beta_grad, float eps,
                                                               Channels c) {
  GRID_STRIDE(channel, c.channels) {
    beta_grad[channel] = (float)total_of_parts<2>(c, parts, channel, 0);
    gamma_grad[channel] =
        var ? (float)(total_of_parts<2>(c, parts, channel, 1) * inverse_deviation(var[channel], eps)) : 0.f;
  }
}

extern "C" __global__ void fill_ones_inplace(float *out, long long elements) {
  fill_each(out, elements, [](long long) { return 1.f; });
}

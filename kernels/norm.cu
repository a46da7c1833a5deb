// norm.cu: batch normalisation of a tensor (batch, before, channels, after) by statistics a channel
// (channels.h).
//
//   train      moments of each part, by Welford's update and Chan's merge, about the part's first element, so
//              that a large mean costs no digits; a thread a channel joins the parts in ascending order in
//              float64 and makes the channel's scale and shift; then out = (data - mean) scale + shift. Slices
//              of the batch are joined to running moments by the same kernel, and so for backward's sums
//   backward   sums of grad and grad (data - mean) a channel, then grad scale + (data - mean) slope + shift
//   inference  the elementwise passes, with scale from the moving variance
//   apply      the elementwise pass of train, with statistics that train made before
//
// The output may have a tensor added and then go through an activation (Activation below). Backward multiplies
// grad by the activation's slope as it reads it: relu's is found from data where nothing was added, and others
// from the output.
//
// Memory: data is read twice and written once. Backward reads grad, data and what the slope is from twice; where
// grad times the slope is the gradient of an addend, the first pass stores it and the last one reads it instead.
// Passes read an element before they write it, so their outputs may lie on any tensor input of equal size. Workspace: moments or sums of the parts, then vectors of a channel. About 8 FLOPs an element.
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

// Adds the parts of a channel, in ascending order, to the mean and the squared deviations of the `count`
// elements before them.
__device__ void join_parts(const Moments *parts, const Channels &c, long long channel, double count,
                           double &mean, double &squares) {
  for (long long part = 0; part < c.parts; ++part) {
    const Moments &m = parts[part * c.channels + channel];
    double all = count + m.count, apart = (double)m.pivot + m.mean - mean;
    if (m.count == 0.f) continue;
    mean += apart * (m.count / all);
    squares += m.squares + apart * apart * (count * (m.count / all));
    count = all;
  }
}

// The normalised value: in one way everywhere, so that backward finds the sign that forward had.
__device__ __forceinline__ float on_line(float centred, float scale, float shift) {
  return fmaf(centred, scale, shift);
}

// grad of the normalised value of element i: times the slope from `out`, or from data where out is null.
// `line` holds the scale and shift that made the output.
__device__ __forceinline__ float sloped(float grad, const float *out, float centred, const float *line,
                                        long long i, long long channel, long long channels, int act) {
  if (act == kNone) return grad;
  float y = out ? out[i] : on_line(centred, line[channel], line[channels + channel]);
  return grad * activation_slope(y, act);
}

__device__ __forceinline__ double inverse_deviation(double variance, float eps) {
  return 1 / sqrt(variance + eps);
}

// line = scale and shift of a channel: gamma / deviation, and beta less what rounding took from the mean.
// gamma may be null: 1.
__device__ __forceinline__ void make_line(float *line, const float *gamma, const float *beta, const float *var,
                                          const float *rest, float eps, long long channel, long long channels) {
  double scale = inverse_deviation(var[channel], eps) * (gamma ? gamma[channel] : 1.f);
  line[channel] = (float)scale;
  line[channels + channel] = (float)(beta[channel] - rest[channel] * scale);
}

}  // namespace

// ---- training ------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(kChannelThreads)
    batchnorm_train_moments(const float *data, float *parts, Channels c) {
  reduce_channels(c, reinterpret_cast<Moments *>(parts),
                  [&](Moments &m, const ChannelIndex &i) { m.add(data[i.element], data[i.first]); });
}

// Joins the parts to the `running` moments (two doubles a channel: means, then squares) of `before` elements,
// which may be null: none. What is not null of the outputs is written: the moments; mean, variance and what
// rounding took from the mean, of all `count` elements; and `vectors`, scale and shift by them.
extern "C" __global__ void batchnorm_train_statistics(const float *parts, const double *running,
                                                      double before, double *moments, const float *gamma,
                                                      const float *beta, float *mean, float *var, float *rest,
                                                      float *vectors, float eps, double count, Channels c) {
  GRID_STRIDE(channel, c.channels) {
    double exact = running ? running[channel] : 0, squares = running ? running[c.channels + channel] : 0;
    join_parts(reinterpret_cast<const Moments *>(parts), c, channel, before, exact, squares);
    if (moments) {
      moments[channel] = exact;
      moments[c.channels + channel] = squares;
    }
    if (mean) {
      mean[channel] = (float)exact;
      var[channel] = (float)(squares / (count > 1 ? count : 1));
      rest[channel] = (float)(exact - mean[channel]);
    }
    if (vectors) make_line(vectors, gamma, beta, var, rest, eps, channel, c.channels);
  }
}

// Scale and shift again, from what train made.
extern "C" __global__ void batchnorm_apply_line(const float *gamma, const float *beta, const float *var,
                                                const float *rest, float *vectors, float eps,
                                                long long channels) {
  GRID_STRIDE(channel, channels) make_line(vectors, gamma, beta, var, rest, eps, channel, channels);
}

// out = act((data - mean) scale + shift + addend), in training and inference; addend may be null: 0.
extern "C" __global__ void batchnorm_normalise_inplace(const float *data, const float *mean,
                                                       const float *scale, const float *shift,
                                                       const float *addend, float *out, int act,
                                                       long long elements, long long channels,
                                                       long long after) {
  each_of_channel(elements, channels, after, [&](long long i, int channel, long long) {
    float value = on_line(data[i] - mean[channel], scale[channel], shift[channel]);
    out[i] = activate(addend ? value + addend[i] : value, act);
  });
}

// data and mean may be null: then the second sum is 0. sloped_grad, which may be null, receives grad times the
// slope.
extern "C" __global__ void __launch_bounds__(kChannelThreads)
    batchnorm_backward_partials_inplace(const float *grad, const float *data, const float *mean,
                                        const float *out, const float *line, float *parts, float *sloped_grad,
                                        int act, Channels c) {
  sum_channels<2>(c, parts, [&](float (&sums)[2], const ChannelIndex &i) {
    float centred = data ? data[i.element] - mean[i.channel] : 0.f;
    float g = sloped(grad[i.element], out, centred, line, i.element, i.channel, c.channels, act);
    sums[0] += g;
    sums[1] += g * centred;
    if (sloped_grad) sloped_grad[i.element] = g;
  });
}

// Adds the parts to the `running` sums (two doubles a channel), which may be null: none. What is not null of
// the outputs is written: the sums; the gradients of the parameters; and `vectors`, scale, slope and shift of
// the data gradient, by all `count` elements.
extern "C" __global__ void batchnorm_backward_params(const float *parts, const double *running, double *sums,
                                                     const float *gamma, const float *var, float *gamma_grad,
                                                     float *beta_grad, float *vectors, float eps,
                                                     double count, Channels c) {
  if (count < 1) count = 1;
  GRID_STRIDE(channel, c.channels) {
    double sum = running ? running[channel] : 0, product = running ? running[c.channels + channel] : 0;
    sum = total_of_parts<2>(c, parts, channel, 0, sum);
    product = total_of_parts<2>(c, parts, channel, 1, product);
    if (sums) {
      sums[channel] = sum;
      sums[c.channels + channel] = product;
    }
    if (!gamma_grad && !vectors) continue;
    double inverse = inverse_deviation(var[channel], eps), scale = inverse * (gamma ? gamma[channel] : 1.f);
    if (gamma_grad) {
      gamma_grad[channel] = (float)(product * inverse);
      beta_grad[channel] = (float)sum;
    }
    if (vectors) {
      vectors[channel] = (float)scale;
      vectors[c.channels + channel] = (float)(-scale * inverse * inverse * product / count);
      vectors[2 * c.channels + channel] = (float)(-scale * sum / count);
    }
  }
}

extern "C" __global__ void batchnorm_backward_data_inplace(const float *grad, const float *data,
                                                           const float *mean, const float *out,
                                                           const float *line, const float *vectors,
                                                           float *data_grad, int act, long long elements,
                                                           long long channels, long long after) {
  const float *scale = vectors, *slope = vectors + channels, *shift = slope + channels;
  each_of_channel(elements, channels, after, [&](long long i, int channel, long long) {
    float centred = data[i] - mean[channel];
    float g = sloped(grad[i], out, centred, line, i, channel, channels, act);
    data_grad[i] = g * scale[channel] + (centred * slope[channel] + shift[channel]);
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

// A weight of `rows` filters, and its bias, that do what a normalisation behind them does. gamma and bias may be
// null: 1 and 0.
extern "C" __global__ void batchnorm_fold(const float *weight, const float *gamma, const float *beta,
                                          const float *mean, const float *var, const float *bias,
                                          float *new_weight, float *new_bias, float eps, long long elements,
                                          long long rows) {
  long long width = elements / rows;
  GRID_STRIDE(i, elements) {
    long long row = i / width;
    double scale = inverse_deviation(var[row], eps) * (gamma ? gamma[row] : 1.f);
    new_weight[i] = weight[i] * (float)scale;
    if (i % width == 0)
      new_bias[row] = (float)(beta[row] + ((bias ? (double)bias[row] : 0.) - mean[row]) * scale);
  }
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

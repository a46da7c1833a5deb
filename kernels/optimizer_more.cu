// optimizer_more.cu: updates of a weight and its states by AdaGrad, RMSProp, AdaDelta, Ftrl, Adamax, Nadam,
// FTML, DCASGD, SGLD, and by signs; a launch a parameter.
//
// Memory: n floats of weight, grad and each state are read, and weight and states written over themselves.
// Rates, decay, rescaling and clipping are read from the control buffer; `scale` is one more factor of the
// gradient, or null, and `unscale` undoes the loss scale, or by 0 leaves the update out. Nadam's three
// factors and FTML's one, which the number of the update decides, lie in workspace; nothing else needs any.
//
// Bytes: 12 n, and 8 n a state. FLOPs: 4 n to 20 n.
#include "common.h"
#include "optimizer.h"

// old and target by shares; `rest` is 1 - share, rounded once.
__device__ __forceinline__ float decay_towards(float old, float target, float share, float rest) {
  return old * share + target * rest;
}

extern "C" __global__ void adagrad_update_forward_float32(float *weight, const float *grad, float *history,
                                                          UPDATE_PARAMETERS, float epsilon) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i])), h = history[i] + g * g;
    history[i] = h;
    weight[i] = w - (g / sqrtf(h + epsilon) + w * s.decay) * s.rate;
  }
}

// A negative bound is none.
__device__ __forceinline__ float bounded(float x, float bound) {
  return bound >= 0.f ? min_nan(max_nan(x, -bound), bound) : x;
}

extern "C" __global__ void rmsprop_update_forward_float32(float *weight, const float *grad, float *squares,
                                                          UPDATE_PARAMETERS, float gamma1, float rest1,
                                                          float epsilon, float clip_weights) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i]) + w * s.decay);
    float v = decay_towards(squares[i], g * g, gamma1, rest1);
    squares[i] = v;
    weight[i] = bounded(w - g / sqrtf(v + epsilon) * s.rate, clip_weights);
  }
}

extern "C" __global__ void rmsprop_centered_update_forward_float32(float *weight, const float *grad,
                                                                   float *squares, float *mean, float *delta,
                                                                   UPDATE_PARAMETERS, float gamma1,
                                                                   float rest1, float gamma2, float epsilon,
                                                                   float clip_weights) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i]) + w * s.decay);
    float v = decay_towards(squares[i], g * g, gamma1, rest1), m = decay_towards(mean[i], g, gamma1, rest1);
    float d = delta[i] * gamma2 - g / sqrtf(v - m * m + epsilon) * s.rate;
    squares[i] = v, mean[i] = m, delta[i] = d;
    weight[i] = bounded(w + d, clip_weights);
  }
}

extern "C" __global__ void adadelta_update_forward_float32(float *weight, const float *grad, float *acc_g,
                                                           float *acc_delta, UPDATE_PARAMETERS, float rho,
                                                           float rest, float epsilon) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i]));
    float v = decay_towards(acc_g[i], g * g, rho, rest), old = acc_delta[i];
    float step = g / sqrtf(v + epsilon) * sqrtf(old + epsilon);
    acc_g[i] = v;
    acc_delta[i] = decay_towards(old, step * step, rho, rest);
    weight[i] = w - (step + w * s.decay);
  }
}

extern "C" __global__ void ftrl_update_forward_float32(float *weight, const float *grad, float *z,
                                                       float *squares, UPDATE_PARAMETERS, float lamda1,
                                                       float beta) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i])), before = squares[i], v = before + g * g;
    float root = sqrtf(v), total = z[i] + (g - (root - sqrtf(before)) * w / s.rate);
    float size = max_nan(fabsf(total) - lamda1, 0.f) / ((root + beta) / s.rate + s.decay);
    z[i] = total, squares[i] = v;
    weight[i] = -copysignf(size, total);
  }
}

extern "C" __global__ void adamax_update_forward_float32(float *weight, const float *grad, float *mean,
                                                         float *bound, UPDATE_PARAMETERS, float beta1,
                                                         float rest1, float beta2) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i]) + w * s.decay);
    float m = decay_towards(mean[i], g, beta1, rest1), b = max_nan(bound[i] * beta2, fabsf(g));
    mean[i] = m, bound[i] = b;
    // Where every gradient was 0 the bound is the least normal number, so that the weight stays.
    weight[i] = w - m / max_nan(b, 1.17549435e-38f) * s.rate;
  }
}

// factors[0..2]: of gradient, mean and mean square at this update (optimizer_more.py: nadam_factors)
extern "C" __global__ void nadam_update_factors(const float *control, float *factors, double beta1,
                                                double beta2, double schedule_decay) {
  double asked = floor(control[kUpdateCount] + 0.5), count = asked > 1 ? asked : 1, schedule = 1;
  auto momentum = [=](double t) { return beta1 * (1 - 0.5 * pow(0.96, t * schedule_decay)); };
  for (double t = 1; t <= count && schedule >= 1e-18; t += 1) schedule *= momentum(t);
  double now = momentum(count), following = momentum(count + 1);
  factors[0] = (float)((1 - now) / (1 - schedule));
  factors[1] = (float)(following / (1 - schedule * following));
  factors[2] = (float)(1 / (1 - pow(beta2, count)));
}

extern "C" __global__ void nadam_update_forward_float32(float *weight, const float *grad, float *mean,
                                                        float *var, UPDATE_PARAMETERS, const float *factors,
                                                        float beta1, float rest1, float beta2, float rest2,
                                                        float epsilon) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float of_gradient = factors[0], of_mean = factors[1], of_squares = factors[2];
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i]) + w * s.decay);
    float m = decay_towards(mean[i], g, beta1, rest1), v = decay_towards(var[i], g * g, beta2, rest2);
    mean[i] = m, var[i] = v;
    weight[i] = w - (g * of_gradient + m * of_mean) / (sqrtf(v * of_squares) + epsilon) * s.rate;
  }
}

extern "C" __global__ void signsgd_update_forward_float32(float *weight, const float *grad,
                                                          UPDATE_PARAMETERS) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float keep = 1.f - s.rate * s.decay;
  map_each(weight, grad, weight, n,
           [=](float w, float g) { return w * keep - sign(s.rescaled(g)) * s.rate; });
}

extern "C" __global__ void signum_update_forward_float32(float *weight, const float *grad, float *mom,
                                                         UPDATE_PARAMETERS, float momentum, float rest,
                                                         float wd_lh) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float keep = 1.f - s.rate * wd_lh;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i])) + w * s.decay;
    float m = decay_towards(mom[i], -g, momentum, rest);
    mom[i] = m;
    weight[i] = w * keep + sign(m) * s.rate;
  }
}

// factors[0]: of the mean square at this update
extern "C" __global__ void ftml_update_factors(const float *control, float *factors, double beta2) {
  double asked = floor(control[kUpdateCount] + 0.5), count = asked > 1 ? asked : 1;
  factors[0] = (float)(1 / (1 - pow(beta2, count)));
}

extern "C" __global__ void ftml_update_forward_float32(float *weight, const float *grad, float *d, float *v,
                                                       float *z, UPDATE_PARAMETERS, const float *factors,
                                                       float beta1, float rest1, float beta2, float rest2,
                                                       float epsilon) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float of_squares = factors[0];
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i]) + w * s.decay);
    float squares = decay_towards(v[i], g * g, beta2, rest2);
    float now = (sqrtf(squares * of_squares) + epsilon) / s.rate;
    float sum = decay_towards(z[i], g, beta1, rest1) - (now - d[i] * beta1) * w;
    d[i] = now, v[i] = squares, z[i] = sum;
    weight[i] = -(sum / now);
  }
}

extern "C" __global__ void dcasgd_update_forward_float32(float *weight, const float *grad, float *mom,
                                                         UPDATE_PARAMETERS, float momentum, float lamda) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  GRID_STRIDE (i, n) {
    float w = weight[i], g = s.clipped(s.rescaled(grad[i])), moved = mom[i];
    float m = moved * momentum - (g + g * g * lamda * moved + w * s.decay) * s.rate;
    mom[i] = m;
    weight[i] = w + m;
  }
}

extern "C" __global__ void sgld_update_forward_float32(float *weight, const float *grad, const float *noise,
                                                       UPDATE_PARAMETERS) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float root = sqrtf(s.rate);
  GRID_STRIDE (i, n) {
    float w = weight[i];
    weight[i] = w + (noise[i] * root - (s.clipped(s.rescaled(grad[i])) + w * s.decay) * (s.rate / 2));
  }
}

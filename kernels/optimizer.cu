// optimizer.cu: updates of a weight and its states, a launch a parameter, and the scale that clips the
// global norm.
//
// Memory: updates read n floats of weight, grad and each state and write weight and states over themselves.
// Rates, decay, rescaling and clipping are read from the control buffer (ops/control.py), so that no launch
// changes with a schedule; `scale` is one more factor of the gradient, or null, and `unscale` undoes the loss
// scale, or by 0 leaves the update out. No workspace.
//
// sum_squares sums parts of `part_length` elements into the workspace, a float a part, then adds the parts
// in one block; the cuts depend on the size only. global_norm_scale keeps a double in the workspace.
//
// Bytes: 12 n for SGD, 20 n with momentum, 28 n for Adam, 4 n for a sum of squares. FLOPs: 5 n to 15 n, and
// 2 n.
#include "common.h"
#include "optimizer.h"

// f(weight[i], grad[i], state[i]...) for every element, f changing weight and states, four elements at a
// time.
template <class F>
__device__ __forceinline__ void update_each(float *weight, const float *grad, float *state, long long n,
                                            F f) {
  long long quads = n / 4;
  GRID_STRIDE (q, quads) {
    float4 w = reinterpret_cast<float4 *>(weight)[q], s = reinterpret_cast<float4 *>(state)[q];
    float4 g = reinterpret_cast<const float4 *>(grad)[q];
    f(w.x, g.x, s.x);
    f(w.y, g.y, s.y);
    f(w.z, g.z, s.z);
    f(w.w, g.w, s.w);
    reinterpret_cast<float4 *>(weight)[q] = w;
    reinterpret_cast<float4 *>(state)[q] = s;
  }
  long long rest = 4 * quads + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) f(weight[rest], grad[rest], state[rest]);
}

template <class F>
__device__ __forceinline__ void update_each(float *weight, const float *grad, float *state, float *second,
                                            long long n, F f) {
  long long quads = n / 4;
  GRID_STRIDE (q, quads) {
    float4 w = reinterpret_cast<float4 *>(weight)[q], s = reinterpret_cast<float4 *>(state)[q];
    float4 g = reinterpret_cast<const float4 *>(grad)[q], t = reinterpret_cast<float4 *>(second)[q];
    f(w.x, g.x, s.x, t.x);
    f(w.y, g.y, s.y, t.y);
    f(w.z, g.z, s.z, t.z);
    f(w.w, g.w, s.w, t.w);
    reinterpret_cast<float4 *>(weight)[q] = w;
    reinterpret_cast<float4 *>(state)[q] = s;
    reinterpret_cast<float4 *>(second)[q] = t;
  }
  long long rest = 4 * quads + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) f(weight[rest], grad[rest], state[rest], second[rest]);
}

// weight <- (1 - lr wd) weight - lr clip(rescale grad)
extern "C" __global__ void sgd_update_forward_float32(float *weight, const float *grad, const float *control,
                                                      const float *scale, const float *unscale, long long n,
                                                      long long index) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float keep = 1.f - s.rate * s.decay;
  map_each(weight, grad, weight, n,
           [=](float w, float g) { return w * keep - s.clipped(s.rescaled(g)) * s.rate; });
}

// mom <- momentum mom - lr (clip(rescale grad) + wd weight); weight <- weight + mom
extern "C" __global__ void sgd_mom_update_forward_float32(float *weight, const float *grad, float *mom,
                                                          const float *control, const float *scale,
                                                          const float *unscale, long long n, long long index,
                                                          float momentum) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  update_each(weight, grad, mom, n, [=](float &w, float g, float &m) {
    m = m * momentum - (s.clipped(s.rescaled(g)) + w * s.decay) * s.rate;
    w += m;
  });
}

// Nesterov: u = lr (clip(rescale grad) + wd weight), mom <- momentum mom - u, weight <- weight + momentum mom
// - u
extern "C" __global__ void nag_update_forward_float32(float *weight, const float *grad, float *mom,
                                                      const float *control, const float *scale,
                                                      const float *unscale, long long n, long long index,
                                                      float momentum) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  update_each(weight, grad, mom, n, [=](float &w, float g, float &m) {
    float step = (s.clipped(s.rescaled(g)) + w * s.decay) * s.rate;
    m = m * momentum - step;
    w += m * momentum - step;
  });
}

// g = clip(rescale grad + wd weight); mean and var decay towards g and g^2; then
// weight <- weight - lr mean / (sqrt(var) + epsilon). rest1 and rest2 are 1 - beta1 and 1 - beta2, rounded
// once.
extern "C" __global__ void adam_update_forward_float32(float *weight, const float *grad, float *mean,
                                                       float *var, const float *control, const float *scale,
                                                       const float *unscale, long long n, long long index,
                                                       float beta1, float rest1, float beta2, float rest2,
                                                       float epsilon) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  update_each(weight, grad, mean, var, n, [=](float &w, float g, float &m, float &v) {
    g = s.clipped(s.rescaled(g) + w * s.decay);
    m = m * beta1 + g * rest1;
    v = v * beta2 + g * g * rest2;
    w -= m / (sqrtf(v) + epsilon) * s.rate;
  });
}

// sums[part] = the squares of a part's elements, added; with `control` (or null) less the loss scale
extern "C" __global__ void sum_squares_forward_parts(const float *grad, const float *control, float *sums,
                                                     long long n, long long part_length) {
  __shared__ float scratch[32];
  float unscale = control ? 1.f / control[kLossScale] : 1.f;
  for (long long part = blockIdx.x; part * part_length < n; part += gridDim.x) {
    long long last = min((part + 1) * part_length, n);
    float sum = 0.f;
    for (long long i = part * part_length + threadIdx.x; i < last; i += blockDim.x) {
      float g = grad[i] * unscale;
      sum += g * g;
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) sums[part] = sum;
  }
}

// out[0] = the parts, added by one block
extern "C" __global__ void sum_squares_forward_combine(const float *sums, float *out, long long parts) {
  __shared__ float scratch[32];
  float sum = 0.f;
  for (long long part = threadIdx.x; part < parts; part += blockDim.x) sum += sums[part];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) out[0] = sum;
}

// Addresses of up to 64 numbers.
struct Numbers {
  const float *at[64];
};

// total[0] (+)= the numbers, added in ascending order by one thread
extern "C" __global__ void global_norm_scale_forward_add(Numbers numbers, int count, int first,
                                                         double *total) {
  double sum = first ? 0. : total[0];
  for (int i = 0; i < count; ++i) sum += numbers.at[i][0];
  total[0] = sum;
}

// out[0] = min(1, bound / norm) with norm = |rescale| sqrt(total); 1 when the bound is not positive
extern "C" __global__ void global_norm_scale_forward_float32(const double *total, const float *control,
                                                             float *out) {
  double bound = control[kGlobalNorm], norm = fabs(double(control[kRescale])) * sqrt(total[0]);
  out[0] = 0. < bound && bound < norm ? float(bound / norm) : 1.f;
}

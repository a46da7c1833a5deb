// optimizer_layerwise.cu: updates whose rates follow the norms of whole tensors, LAMB and LARS.
//
// Memory: n floats of weight, grad and each state are read, and weight and states written over themselves. The first kernel
// adds squares by parts of `part_length` elements, into two floats of workspace a part; the second makes one number of them,
// the factor of the rate, in its first float; the third moves the weight. The cuts depend on the size only. LARS without
// norms runs the third alone, without a factor.
//
// Bytes: 16 n to 28 n with LARS, 40 n with LAMB. FLOPs: 8 n to 30 n.
#include "common.h"
#include "optimizer.h"

// sums[2 part], sums[2 part + 1] = the squares of a part's weights and steps, f(i) giving the step of element i.
template <class F>
__device__ __forceinline__ void sum_parts(const float *weight, float *sums, long long n, long long part_length, F f) {
  __shared__ float scratch[32];
  for (long long part = blockIdx.x; part * part_length < n; part += gridDim.x) {
    long long last = min((part + 1) * part_length, n);
    float weights = 0.f, steps = 0.f;
    for (long long i = part * part_length + threadIdx.x; i < last; i += blockDim.x) {
      float w = weight[i], step = f(i);
      weights += w * w, steps += step * step;
    }
    weights = block_sum(weights, scratch);
    steps = block_sum(steps, scratch);
    if (threadIdx.x == 0) sums[2 * part] = weights, sums[2 * part + 1] = steps;
  }
}

// {norm of the weight, norm of the step}, added by one block; in thread 0.
__device__ __forceinline__ float2 norms_of(const float *sums, long long parts) {
  __shared__ float scratch[32];
  float weights = 0.f, steps = 0.f;
  for (long long part = threadIdx.x; part < parts; part += blockDim.x)
    weights += sums[2 * part], steps += sums[2 * part + 1];
  weights = block_sum(weights, scratch);
  steps = block_sum(steps, scratch);
  return make_float2(sqrtf(weights), sqrtf(steps));
}

// factors[0..1]: of mean and mean square at this update (ops/optimizer_layerwise.py: bias_factors)
extern "C" __global__ void lamb_update_factors(const float *control, float *factors, double beta1, double beta2,
                                               int corrects) {
  double asked = floor(control[kUpdateCount] + 0.5), count = asked > 1 ? asked : 1;
  factors[0] = corrects ? (float)(1 / (1 - pow(beta1, count))) : 1.f;
  factors[1] = corrects ? (float)(1 / (1 - pow(beta2, count))) : 1.f;
}

__device__ __forceinline__ float lamb_direction(float w, float m, float v, float decay, const float *factors,
                                                float epsilon) {
  return m * factors[0] / (sqrtf(v * factors[1]) + epsilon) + w * decay;
}

extern "C" __global__ void lamb_update_parts(const float *weight, const float *grad, float *mean, float *var,
                                             UPDATE_PARAMETERS, const float *factors, float *sums,
                                             long long part_length, float beta1, float rest1, float beta2, float rest2,
                                             float epsilon) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  sum_parts(weight, sums, n, part_length, [=](long long i) {
    float g = s.clipped(s.rescaled(grad[i]));
    float m = mean[i] * beta1 + g * rest1, v = var[i] * beta2 + g * g * rest2;
    mean[i] = m, var[i] = v;
    return lamb_direction(weight[i], m, v, s.decay, factors, epsilon);
  });
}

extern "C" __global__ void lamb_update_combine(float *sums, long long parts, float lower, float upper) {
  float2 norms = norms_of(sums, parts);
  if (threadIdx.x != 0) return;
  if (lower >= 0.f) norms.x = max_nan(norms.x, lower);
  if (upper >= 0.f) norms.x = min_nan(norms.x, upper);
  sums[0] = norms.x != 0.f && norms.y != 0.f ? norms.x / norms.y : 1.f;
}

extern "C" __global__ void lamb_update_forward_float32(float *weight, const float *mean, const float *var,
                                                       UPDATE_PARAMETERS, const float *factors, const float *trust,
                                                       float epsilon) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float rate = s.rate * trust[0];
  GRID_STRIDE (i, n) {
    float w = weight[i];
    weight[i] = w - lamb_direction(w, mean[i], var[i], s.decay, factors, epsilon) * rate;
  }
}

extern "C" __global__ void lars_update_parts(const float *weight, const float *grad, UPDATE_PARAMETERS, float *sums,
                                             long long part_length) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  sum_parts(weight, sums, n, part_length, [=](long long i) { return s.rescaled(grad[i]); });
}

extern "C" __global__ void lars_update_combine(const float *control, long long index, float *sums, long long parts,
                                               float eta, float epsilon) {
  float2 norms = norms_of(sums, parts);
  if (threadIdx.x != 0) return;
  float decay = control[kFirstRate + 2 * index + 1];
  sums[0] = norms.x != 0.f && norms.y != 0.f ? eta * norms.x / (norms.y + decay * norms.x + epsilon) : 1.f;
}

// trust: the factor of the rate, or null
extern "C" __global__ void lars_update_forward_float32(float *weight, const float *grad, UPDATE_PARAMETERS,
                                                       const float *trust) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float rate = trust ? s.rate * trust[0] : s.rate;
  GRID_STRIDE (i, n) {
    float w = weight[i];
    weight[i] = w - (s.clipped(s.rescaled(grad[i])) + w * s.decay) * rate;
  }
}

extern "C" __global__ void lars_mom_update_forward_float32(float *weight, const float *grad, float *mom,
                                                           UPDATE_PARAMETERS, const float *trust) {
  Settings s(control, scale, unscale, index);
  if (s.skips()) return;
  float rate = trust ? s.rate * trust[0] : s.rate, momentum = control[kUpdateCount];
  GRID_STRIDE (i, n) {
    float w = weight[i], m = mom[i] * momentum - (s.clipped(s.rescaled(grad[i])) + w * s.decay) * rate;
    mom[i] = m;
    weight[i] = w + m;
  }
}

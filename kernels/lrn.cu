// lrn.cu: local response normalisation across channels, of tensors (images, channels, places).
//
// forward: norm = knorm + alpha / nsize * sum of squares over the window about each channel; then, in a
// second launch, out = data norm^-beta, which may lie on data. No workspace. Bytes: 20 n. FLOPs: (nsize + 6)
// n.
//
// backward: term = grad data norm^(-beta - 1) goes to workspace, some images at a time; then
// out = grad norm^-beta - 2 beta alpha / nsize data (sum of term over the window), which may lie on any
// input. Bytes: 32 n. FLOPs: (nsize + 12) n.
//
// A window's sum runs in ascending order of channels. Sizes: n elements, `channels` of `places` an image;
// `reach` is the number of channels on either side.
#include "common.h"

// f(first, last): the sum of f(j) for the channels about element i, whose neighbours lie `places` apart.
template <class F>
__device__ __forceinline__ float window_sum(long long i, long long channels, long long places,
                                            long long reach, F f) {
  long long channel = i / places % channels;
  long long first = channel < reach ? -channel : -reach, left = channels - 1 - channel;
  long long last = left < reach ? left : reach;
  float sum = 0.f;
  for (long long j = first; j <= last; ++j) sum += f(i + j * places);
  return sum;
}

__device__ __forceinline__ float negative_power(float base, float exponent) {
  return expf(-exponent * logf(base));
}

// scale is alpha / nsize
extern "C" __global__ void lrn_forward_norm(const float *__restrict__ data, float *__restrict__ norm,
                                            long long n, long long channels, long long places,
                                            long long reach, float scale, float knorm) {
  GRID_STRIDE (i, n)
    norm[i] = window_sum(i, channels, places, reach, [&](long long k) { return data[k] * data[k]; }) * scale +
              knorm;
}

extern "C" __global__ void lrn_forward_inplace(const float *data, const float *norm, float *out, long long n,
                                               float beta) {
  map_each(data, norm, out, n, [=](float x, float base) { return x * negative_power(base, beta); });
}

extern "C" __global__ void lrn_backward_terms(const float *grad, const float *data, const float *norm,
                                              float *term, long long n, float beta) {
  map_each(grad, data, norm, term, n,
           [=](float g, float x, float base) { return g * negative_power(base, beta) * x / base; });
}

// scale is -2 beta alpha / nsize
extern "C" __global__ void lrn_backward_inplace(const float *grad, const float *data, const float *norm,
                                                const float *term, float *out, long long n,
                                                long long channels, long long places, long long reach,
                                                float scale, float beta) {
  GRID_STRIDE (i, n) {
    float sum = window_sum(i, channels, places, reach, [&](long long k) { return term[k]; });
    out[i] = grad[i] * negative_power(norm[i], beta) + sum * scale * data[i];
  }
}

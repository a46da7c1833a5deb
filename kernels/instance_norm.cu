// instance_norm.cu: normalisation of each channel of each instance by its own mean and deviation, and
// normalisation by a Euclidean norm. A row, what one statistic is made of, is a thread's, a warp's or a
// block's (rows.h); the order of its sums depends on its length alone.
//
//   InstanceNorm     rows (images, channels) of `length` neighbours. forward reads data four times and writes
//                    it once; mean and inverse deviation are two floats a row. backward: two sums a row to
//                    workspace, 2 rows floats; sums of a channel over images in ascending order, in float64;
//                    then the data gradient.
//   L2Normalization  rows of an (outer, length, inner) tensor; forward reads data twice, backward both inputs
//                    twice. No workspace.
//
// An output of data's size may lie on data, grad or out: a row's elements are read for its sums before any is
// written, and each again by the thread that writes it. FLOPs: 8 n and 12 n; 3 n and 4 n.
#include "rows.h"

// ---- InstanceNorm --------------------------------------------------------------------------------

template <class Group>
__device__ __forceinline__ void instance_norm(const float *data, const float *gamma, const float *beta,
                                              float *out, float *means, float *inverses, long long rows,
                                              long long channels, long long length, float eps) {
  float count = length > 0 ? (float)length : 1.f;
  FOR_ROWS(Group, r, rows) {
    const float *x = data + r * length;
    float mean = row_sum<Group>(length, [&](long long k) { return x[k]; }) / count;
    // A mean rounded to float32 may be far off beside a small deviation: centre once more.
    float rest = row_sum<Group>(length, [&](long long k) { return x[k] - mean; }) / count;
    float squares = row_sum<Group>(length, [&](long long k) {
      float centred = x[k] - mean - rest;
      return centred * centred;
    });
    float inverse = 1.f / sqrtf(squares / count + eps);
    if (Group::first() == 0) means[r] = mean + rest, inverses[r] = inverse;
    float scale = inverse * gamma[r % channels], shift = beta[r % channels];
    FOR_PLACES(Group, k, length) out[r * length + k] = (x[k] - mean - rest) * scale + shift;
  }
}

ROW_KERNELS(instance_norm_forward, instance_norm,
            (const float *data, const float *gamma, const float *beta, float *out, float *means,
             float *inverses, long long rows, long long channels, long long length, float eps),
            (data, gamma, beta, out, means, inverses, rows, channels, length, eps))

// sums[r] = sum of grad, sums[rows + r] = sum of grad times the normalised data
template <class Group>
__device__ __forceinline__ void instance_sums(const float *grad, const float *data, const float *means,
                                              const float *inverses, float *sums, long long rows,
                                              long long length) {
  FOR_ROWS(Group, r, rows) {
    const float *g = grad + r * length, *x = data + r * length;
    float mean = means[r], inverse = inverses[r];
    float sum = row_sum<Group>(length, [&](long long k) { return g[k]; });
    float dot = row_sum<Group>(length, [&](long long k) { return g[k] * ((x[k] - mean) * inverse); });
    if (Group::first() == 0) sums[r] = sum, sums[rows + r] = dot;
  }
}

ROW_KERNELS(instance_norm_backward_sums, instance_sums,
            (const float *grad, const float *data, const float *means, const float *inverses, float *sums,
             long long rows, long long length),
            (grad, data, means, inverses, sums, rows, length))

extern "C" __global__ void instance_norm_backward_params(const float *sums, float *gamma_grad,
                                                         float *beta_grad, long long images,
                                                         long long channels) {
  GRID_STRIDE (channel, channels) {
    double gamma = 0, beta = 0;
    for (long long image = 0; image < images; ++image) {
      beta += sums[image * channels + channel];
      gamma += sums[(images + image) * channels + channel];
    }
    gamma_grad[channel] = (float)gamma;
    beta_grad[channel] = (float)beta;
  }
}

extern "C" __global__ void instance_norm_backward_data_inplace(const float *grad, const float *data,
                                                               const float *gamma, const float *means,
                                                               const float *inverses, const float *sums,
                                                               float *out, long long rows, long long channels,
                                                               long long length) {
  GRID_STRIDE (i, rows * length) {
    long long r = i / length;
    float inverse = inverses[r], normal = (data[i] - means[r]) * inverse;
    float centred = grad[i] - sums[r] / (float)length - normal * (sums[rows + r] / (float)length);
    out[i] = centred * (inverse * gamma[r % channels]);
  }
}

// ---- L2Normalization -----------------------------------------------------------------------------

template <class Group>
__device__ __forceinline__ void l2_normalization(const float *data, float *out, float *norms, long long rows,
                                                 long long length, long long inner, float eps) {
  FOR_ROWS(Group, r, rows) {
    Row row(r, length, inner);
    float squares = row_sum<Group>(length, [&](long long k) { return data[row.at(k)] * data[row.at(k)]; });
    float norm = sqrtf(squares + eps);
    if (Group::first() == 0) norms[r] = norm;
    FOR_PLACES(Group, k, length) out[row.at(k)] = data[row.at(k)] / norm;
  }
}

ROW_KERNELS(l2_normalization_forward, l2_normalization,
            (const float *data, float *out, float *norms, long long rows, long long length, long long inner,
             float eps),
            (data, out, norms, rows, length, inner, eps))

template <class Group>
__device__ __forceinline__ void l2_normalization_backward(const float *grad, const float *out,
                                                          const float *norms, float *data_grad,
                                                          long long rows, long long length, long long inner) {
  FOR_ROWS(Group, r, rows) {
    Row row(r, length, inner);
    float dot = row_sum<Group>(length, [&](long long k) { return grad[row.at(k)] * out[row.at(k)]; });
    float norm = norms[r];
    FOR_PLACES(Group, k, length) data_grad[row.at(k)] = (grad[row.at(k)] - out[row.at(k)] * dot) / norm;
  }
}

ROW_KERNELS(l2_normalization_backward, l2_normalization_backward,
            (const float *grad, const float *out, const float *norms, float *data_grad, long long rows,
             long long length, long long inner),
            (grad, out, norms, data_grad, rows, length, inner))

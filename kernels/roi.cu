// roi.cu: regions of interest: the largest value of each bin, means of samples in each bin, and their gradients.
//
// Forward a thread makes one number of the output. Backward a thread has a plane of its own, one channel of one image,
// which it fills with 0 and adds to region by region and bin by bin, so that no two threads add to one number. A region
// whose image's number is below 0 or not there, or with a corner that is no number, has outputs 0 and gives nothing.
// Corners are computed by single roundings, as NumPy does, so that bins and samples are the same.
// Bytes: the pixels of the bins, 4 n written; backward the output's gradient once an image. No workspace.
#include "common.h"

struct Roi {
  long long images, channels, height, width;      // of data
  long long count, out_channels, bins_h, bins_w;  // of the output
  float scale;
  int samples, own_channels, aligned;  // of ROIAlign
};

__device__ __forceinline__ float clip_far(float x) { return fminf(fmaxf(x, -1073741824.f), 1073741824.f); }

// The image of a region; -1 for one that counts for nothing.
__device__ __forceinline__ long long roi_image(const float *roi, const Roi &r) {
  for (int k = 0; k < 5; ++k)
    if (!(fabsf(roi[k]) <= 3.402823466e38f)) return -1;
  return roi[0] > -1.f && roi[0] < (float)r.images ? (long long)roi[0] : -1;
}

// The pixels [begin, end) of bin k along an axis of a region of whole pixels.
__device__ __forceinline__ void roi_edges(float from, float to, float scale, long long k, long long bins,
                                          long long length, long long *begin, long long *end) {
  float first = roundf(clip_far(__fmul_rn(from, scale))), last = roundf(clip_far(__fmul_rn(to, scale)));
  float extent = __fdiv_rn(fmaxf(__fadd_rn(__fsub_rn(last, first), 1.f), 1.f), (float)bins);
  long long low = (long long)floorf(__fmul_rn((float)k, extent)) + (long long)first;
  long long high = (long long)ceilf(__fmul_rn((float)(k + 1), extent)) + (long long)first;
  *begin = low < 0 ? 0 : low > length ? length : low;
  *end = high < 0 ? 0 : high > length ? length : high;
}

extern "C" __global__ void roi_pooling_forward_float32(const float *data, const float *rois, float *out, int *places,
                                                       Roi r) {
  GRID_STRIDE (i, r.count * r.channels * r.bins_h * r.bins_w) {
    long long x = i % r.bins_w, y = i / r.bins_w % r.bins_h, c = i / (r.bins_w * r.bins_h) % r.channels;
    const float *roi = rois + i / (r.bins_w * r.bins_h * r.channels) * 5;
    long long image = roi_image(roi, r), top = 0, bottom = 0, left = 0, right = 0;
    if (image >= 0) {
      roi_edges(roi[2], roi[4], r.scale, y, r.bins_h, r.height, &top, &bottom);
      roi_edges(roi[1], roi[3], r.scale, x, r.bins_w, r.width, &left, &right);
    }
    const float *plane = data + (image * r.channels + c) * r.height * r.width;
    float best = 0.f;
    long long place = -1;
    for (long long h = top; h < bottom; ++h)
      for (long long w = left; w < right; ++w) {
        float value = plane[h * r.width + w];
        if (place < 0 || (best == best && (value > best || value != value))) {
          best = value;
          place = h * r.width + w;
        }
      }
    out[i] = best;
    places[i] = (int)place;
  }
}

extern "C" __global__ void roi_pooling_backward_float32(const float *grad, const float *rois, const int *places,
                                                        float *data_grad, Roi r) {
  GRID_STRIDE (i, r.images * r.channels) {
    float *plane = data_grad + i * r.height * r.width;
    for (long long k = 0; k < r.height * r.width; ++k) plane[k] = 0.f;
    for (long long n = 0; n < r.count; ++n) {
      if (roi_image(rois + 5 * n, r) != i / r.channels) continue;
      long long start = (n * r.channels + i % r.channels) * r.bins_h * r.bins_w;
      for (long long k = start; k < start + r.bins_h * r.bins_w; ++k)
        if (places[k] >= 0) plane[places[k]] += grad[k];
    }
  }
}

// Samples along one axis of one bin of a region.
struct Samples {
  float start, step;
  long long count;

  __device__ Samples(float from, float to, const Roi &r, long long k, long long bins) {
    float half = r.aligned ? 0.5f : 0.f;
    float first = clip_far(__fsub_rn(__fmul_rn(from, r.scale), half));
    float length = __fsub_rn(clip_far(__fsub_rn(__fmul_rn(to, r.scale), half)), first);
    if (!r.aligned) length = fmaxf(length, 1.f);
    step = __fdiv_rn(length, (float)bins);
    start = __fadd_rn(first, __fmul_rn((float)k, step));
    count = r.samples > 0 ? r.samples : (long long)ceilf(step);
  }
  // The first sample that may be inside, as in roi.py.
  __device__ __forceinline__ long long skipped() const {
    if (step <= 0.f) return 0;
    double reach = floor((-2. - (double)start) * (double)count / (double)step);
    return reach > 0. ? (long long)reach : 0;
  }
  __device__ __forceinline__ float at(long long i) const {
    return __fadd_rn(start, __fdiv_rn(__fmul_rn(__fadd_rn((float)i, 0.5f), step), (float)count));
  }
};

// Calls f(pixel, weight) for the pixels about each sample of an axis of `length` pixels.
template <class F>
__device__ __forceinline__ void for_samples(const Samples &s, long long length, F f) {
  float share = 1.f / (float)(s.count > 0 ? s.count : 1);
  for (long long i = s.skipped(); i < s.count; ++i) {
    float at = s.at(i);
    if (at > (float)length) break;
    if (at < -1.f) continue;
    at = fmaxf(at, 0.f);
    long long near = (long long)at < length - 1 ? (long long)at : length - 1;
    float rest = near < length - 1 ? at - (float)near : 0.f;
    f(near, (1.f - rest) * share);
    if (near < length - 1) f(near + 1, rest * share);
  }
}

// The channel of data that a bin of an output channel reads.
__device__ __forceinline__ long long align_channel(const Roi &r, long long c, long long y, long long x) {
  return r.own_channels ? (c * r.bins_h + y) * r.bins_w + x : c;
}

extern "C" __global__ void roi_align_forward_float32(const float *data, const float *rois, float *out, Roi r) {
  GRID_STRIDE (i, r.count * r.out_channels * r.bins_h * r.bins_w) {
    long long x = i % r.bins_w, y = i / r.bins_w % r.bins_h, c = i / (r.bins_w * r.bins_h) % r.out_channels;
    const float *roi = rois + i / (r.bins_w * r.bins_h * r.out_channels) * 5;
    long long image = roi_image(roi, r);
    float total = 0.f;
    if (image >= 0) {
      Samples down(roi[2], roi[4], r, y, r.bins_h), right(roi[1], roi[3], r, x, r.bins_w);
      const float *plane = data + (image * r.channels + align_channel(r, c, y, x)) * r.height * r.width;
      for_samples(down, r.height, [&](long long h, float weight) {
        for_samples(right, r.width, [&](long long w, float other) { total += weight * (other * plane[h * r.width + w]); });
      });
    }
    out[i] = total;
  }
}

extern "C" __global__ void roi_align_backward_float32(const float *grad, const float *rois, float *data_grad, Roi r) {
  GRID_STRIDE (i, r.images * r.channels) {
    long long channel = i % r.channels, bins = r.bins_h * r.bins_w;
    float *plane = data_grad + i * r.height * r.width;
    for (long long k = 0; k < r.height * r.width; ++k) plane[k] = 0.f;
    for (long long n = 0; n < r.count; ++n) {
      const float *roi = rois + 5 * n;
      if (roi_image(roi, r) != i / r.channels) continue;
      long long c = r.own_channels ? channel / bins : channel;
      for (long long bin = r.own_channels ? channel % bins : 0; bin < bins; bin += r.own_channels ? bins : 1) {
        float above = grad[(n * r.out_channels + c) * bins + bin];
        Samples down(roi[2], roi[4], r, bin / r.bins_w, r.bins_h), right(roi[1], roi[3], r, bin % r.bins_w, r.bins_w);
        for_samples(down, r.height, [&](long long h, float weight) {
          for_samples(right, r.width,
                      [&](long long w, float other) { plane[h * r.width + w] += weight * (other * above); });
        });
      }
    }
  }
}

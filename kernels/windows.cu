// windows.cu: windows of images as columns, columns added back, and the correlation of two feature maps.
//
// im2col, col2im: a thread makes one number of the output; col2im adds in the order of the kernel's elements. Sizes have
// three spatial axes, of which those that are not there have length 1. Bytes: 4 n written, and what the windows read.
// Correlation: a thread makes one number of the output, and in backward of the gradient of one map, which it gathers over
// displacements and places in the patch. No workspace.
#include "common.h"

struct WindowGrid {
  long long images, channels;
  long long size[3], count[3], kernel[3], stride[3], dilate[3], pad[3];
};

__device__ __forceinline__ long long volume(const long long *d) { return d[0] * d[1] * d[2]; }

extern "C" __global__ void im2col_float32(const float *data, float *out, WindowGrid w) {
  long long windows = volume(w.count), taps = volume(w.kernel);
  GRID_STRIDE (i, w.images * w.channels * taps * windows) {
    long long window = i % windows, tap = i / windows % taps, plane = i / (windows * taps), offset = 0;
    bool inside = true;
    long long places[3] = {window / (w.count[1] * w.count[2]), window / w.count[2] % w.count[1], window % w.count[2]};
    long long parts[3] = {tap / (w.kernel[1] * w.kernel[2]), tap / w.kernel[2] % w.kernel[1], tap % w.kernel[2]};
    for (int k = 0; k < 3; ++k) {
      long long at = places[k] * w.stride[k] + parts[k] * w.dilate[k] - w.pad[k];
      inside = inside && at >= 0 && at < w.size[k];
      offset = offset * w.size[k] + at;
    }
    out[i] = inside ? data[plane * volume(w.size) + offset] : 0.f;
  }
}

extern "C" __global__ void col2im_float32(const float *columns, float *out, WindowGrid w) {
  long long windows = volume(w.count), taps = volume(w.kernel), pixels = volume(w.size);
  GRID_STRIDE (i, w.images * w.channels * pixels) {
    long long pixel = i % pixels, plane = i / pixels;
    long long places[3] = {pixel / (w.size[1] * w.size[2]), pixel / w.size[2] % w.size[1], pixel % w.size[2]};
    float total = 0.f;
    for (long long tap = 0; tap < taps; ++tap) {
      long long parts[3] = {tap / (w.kernel[1] * w.kernel[2]), tap / w.kernel[2] % w.kernel[1], tap % w.kernel[2]};
      long long window = 0;
      bool inside = true;
      for (int k = 0; k < 3; ++k) {
        long long from = places[k] + w.pad[k] - parts[k] * w.dilate[k], at = from / w.stride[k];
        inside = inside && from >= 0 && from % w.stride[k] == 0 && at < w.count[k];
        window = window * w.count[k] + at;
      }
      if (inside) total += columns[(plane * taps + tap) * windows + window];
    }
    out[i] = total;
  }
}

struct Correlate {
  long long images, channels, height, width, out_height, out_width;
  long long kernel, reach, stride1, stride2, pad, steps;
  int multiply, unused;
};

// A number of a map with zeros about it, at a place of the padded map.
__device__ __forceinline__ float padded_at(const float *plane, const Correlate &c, long long y, long long x) {
  y -= c.pad;
  x -= c.pad;
  return y >= 0 && y < c.height && x >= 0 && x < c.width ? plane[y * c.width + x] : 0.f;
}

extern "C" __global__ void correlation_forward_float32(const float *data1, const float *data2, float *out, Correlate c) {
  long long side = 2 * c.steps + 1, places = c.out_height * c.out_width, pixels = c.height * c.width;
  float count = (float)(c.channels * c.kernel * c.kernel);
  GRID_STRIDE (i, c.images * side * side * places) {
    long long j = i % c.out_width, row = i / c.out_width % c.out_height, shift = i / places % (side * side);
    long long image = i / (places * side * side);
    long long dy = (shift / side - c.steps) * c.stride2, dx = (shift % side - c.steps) * c.stride2;
    float total = 0.f;
    for (long long h = 0; h < c.kernel; ++h)
      for (long long w = 0; w < c.kernel; ++w) {
        long long y = row * c.stride1 + c.reach + h, x = j * c.stride1 + c.reach + w;
        for (long long k = image * c.channels; k < (image + 1) * c.channels; ++k) {
          float a = padded_at(data1 + k * pixels, c, y, x), b = padded_at(data2 + k * pixels, c, y + dy, x + dx);
          total += c.multiply ? a * b : fabsf(a - b);
        }
      }
    out[i] = total / count;
  }
}

// The gradient of the first map, or of the second, where the displacement counts the other way.
extern "C" __global__ void correlation_backward_float32(const float *grad, const float *own, const float *other,
                                                        float *out, int second, Correlate c) {
  long long side = 2 * c.steps + 1, places = c.out_height * c.out_width, pixels = c.height * c.width;
  float count = (float)(c.channels * c.kernel * c.kernel);
  GRID_STRIDE (i, c.images * c.channels * pixels) {
    long long x = i % c.width + c.pad, y = i / c.width % c.height + c.pad, plane = i / pixels;
    const float *above = grad + plane / c.channels * side * side * places;
    float total = 0.f;
    for (long long shift = 0; shift < side * side; ++shift) {
      long long dy = (shift / side - c.steps) * c.stride2, dx = (shift % side - c.steps) * c.stride2;
      float there = padded_at(other + plane * pixels, c, second ? y - dy : y + dy, second ? x - dx : x + dx);
      float slope = c.multiply ? there : sign(own[i] - there);
      for (long long h = 0; h < c.kernel; ++h)
        for (long long w = 0; w < c.kernel; ++w) {
          long long from_y = y - c.reach - h - (second ? dy : 0), from_x = x - c.reach - w - (second ? dx : 0);
          long long row = from_y / c.stride1, column = from_x / c.stride1;
          if (from_y < 0 || from_x < 0 || from_y % c.stride1 || from_x % c.stride1 || row >= c.out_height ||
              column >= c.out_width)
            continue;
          total += slope * above[shift * places + row * c.out_width + column];
        }
    }
    out[i] = total / count;
  }
}

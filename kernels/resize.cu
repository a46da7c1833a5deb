// resize.cu: how much each pixel of an axis counts in each pixel of the resized one, (count, length).
//
// Places are computed in double, as NumPy does. Bytes: 4 n written.
#include "common.h"

enum ResizeKind { kAverage = 0, kCentres = 1, kCorners = 2 };  // in the order of resize.py

extern "C" __global__ void resize_weights_float32(float *out, long long length, long long count, int kind) {
  GRID_STRIDE (i, length * count) {
    long long k = i / length, pixel = i % length;
    if (kind == kAverage) {
      long long begin = k * length / count, end = ((k + 1) * length + count - 1) / count;
      out[i] = pixel >= begin && pixel < end ? (float)(1. / (double)(end - begin)) : 0.f;
      continue;
    }
    double at = kind == kCorners ? fmax(((double)k + 0.5) * (double)length / (double)count - 0.5, 0.)
                : count > 1      ? (double)(k * (length - 1)) / (double)(count - 1)
                                 : 0.;
    long long near = (long long)at < length - 1 ? (long long)at : length - 1;
    long long far = near + 1 < length - 1 ? near + 1 : length - 1;
    double rest = at - (double)near;
    float weight = pixel == near ? (float)(1. - rest) : 0.f;
    out[i] = pixel == far ? (float)((double)weight + rest) : weight;
  }
}

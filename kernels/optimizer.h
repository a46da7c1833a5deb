// optimizer.h: what updates of weights read from the control buffer (ops/control.py).
#pragma once

#include "common.h"

enum ControlWord { kRescale = 4, kClip = 5, kGlobalNorm = 6, kFirstRate = 8 };

// What the control buffer says about parameter `index`.
struct Settings {
  float rescale, clip, rate, decay;
  __device__ __forceinline__ Settings(const float *control, const float *scale, long long index)
      : rescale(scale ? control[kRescale] * scale[0] : control[kRescale]),
        clip(control[kClip]),
        rate(control[kFirstRate + 2 * index]),
        decay(control[kFirstRate + 2 * index + 1]) {}
  // x within [-clip, clip]; a negative clip is off. NaN stays NaN.
  __device__ __forceinline__ float clipped(float x) const {
    return clip >= 0.f ? min_nan(max_nan(x, -clip), clip) : x;
  }
};

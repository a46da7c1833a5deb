// optimizer.h: what updates of weights read from the control buffer (ops/control.py).
#pragma once

#include "common.h"

// kUpdateCount has the number of the update, 1 at the first, or LARS's momentum.
enum ControlWord { kLossScale = 3, kRescale = 4, kClip = 5, kGlobalNorm = 6, kUpdateCount = 7, kFirstRate = 8 };

// What every update takes behind its weight, gradient and states.
#define UPDATE_PARAMETERS \
  const float *control, const float *scale, const float *unscale, long long n, long long index


// What the control buffer says about parameter `index`. `unscale`, null for none, undoes the loss scale; 0 says
// that the update is left out.
struct Settings {
  float unscale, rescale, clip, rate, decay;
  __device__ __forceinline__ Settings(const float *control, const float *scale, const float *unscale,
                                      long long index)
      : unscale(unscale ? unscale[0] : 1.f),
        rescale(scale ? control[kRescale] * scale[0] : control[kRescale]),
        clip(control[kClip]),
        rate(control[kFirstRate + 2 * index]),
        decay(control[kFirstRate + 2 * index + 1]) {}
  __device__ __forceinline__ bool skips() const { return unscale == 0.f; }
  __device__ __forceinline__ float rescaled(float grad) const { return grad * unscale * rescale; }
  // x within [-clip, clip]; a negative clip is off. NaN stays NaN.
  __device__ __forceinline__ float clipped(float x) const {
    return clip >= 0.f ? min_nan(max_nan(x, -clip), clip) : x;
  }
};

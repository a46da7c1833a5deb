// loss_scale.cu: gradients times the loss scale or divided by it, and a search for what is not finite
// (ops/loss_scale.py).
//
// Memory: scale_gradient reads and writes n floats and may run in place; find_nonfinite reads n floats. The scale is
// a word of the control buffer. find_nonfinite keeps a float a part of `part_length` elements in the workspace, and
// combines them in one block.
//
// Bytes: 8 n for scale_gradient, 4 n for find_nonfinite. FLOPs: n each.
#include <cfloat>

#include "common.h"
#include "optimizer.h"

// out = grad * scale, or grad / scale
extern "C" __global__ void scale_gradient_forward_float32(const float *grad, const float *control, float *out,
                                                          long long n, int inverse) {
  float scale = control[kLossScale], factor = inverse ? 1.f / scale : scale;
  map_each(grad, out, n, [=](float g) { return g * factor; });
}

// parts[part] = how many threads have found NaN or an infinity in a part
extern "C" __global__ void find_nonfinite_forward_parts(const float *grad, float *parts, long long n,
                                                        long long part_length) {
  __shared__ float scratch[32];
  for (long long part = blockIdx.x; part * part_length < n; part += gridDim.x) {
    long long last = min((part + 1) * part_length, n);
    bool found = false;
    for (long long i = part * part_length + threadIdx.x; i < last; i += blockDim.x)
      found |= !(fabsf(grad[i]) <= FLT_MAX);
    float threads = block_sum(found ? 1.f : 0.f, scratch);
    if (threadIdx.x == 0) parts[part] = threads;
  }
}

// out[0] = 1 when any part has found something, or `found` (null for none) says that another tensor has; else 0
extern "C" __global__ void find_nonfinite_forward_combine(const float *parts, const float *found, float *out,
                                                          long long count) {
  __shared__ float scratch[32];
  bool any = found && found[0] != 0.f;
  for (long long part = threadIdx.x; part < count; part += blockDim.x) any |= parts[part] != 0.f;
  float threads = block_sum(any ? 1.f : 0.f, scratch);
  if (threadIdx.x == 0) out[0] = threads != 0.f ? 1.f : 0.f;
}

// unscale[0] = 0 when something was found, else what undoes the loss scale, or 1 where it is undone already
extern "C" __global__ void check_finite_forward_float32(float *unscale, const float *found, const float *control,
                                                        int scaled) {
  unscale[0] = found[0] != 0.f ? 0.f : scaled ? 1.f / control[kLossScale] : 1.f;
}

// leaky.cu: functions with a bend at 0 (leaky, elu, selu) and their gradients.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 8 n forward, 12 n backward. FLOPs: 3 n to 6 n, counting a function as one.
#include "common.h"

extern "C" __global__ void leaky_forward_float32(const float *data, float *out, long long n, float slope) {
  map_each(data, out, n, [=](float x) { return relu(x) + slope * min_nan(x, 0.f); });
}

// `saved` is any tensor with the sign of the input.
extern "C" __global__ void leaky_backward_float32(const float *grad, const float *saved, float *out,
                                                  long long n, float slope) {
  map_each(grad, saved, out, n, [=](float g, float y) { return g * (y > 0.f ? 1.f : slope); });
}

extern "C" __global__ void elu_forward_float32(const float *data, float *out, long long n, float below,
                                               float above) {
  map_each(data, out, n, [=](float x) { return relu(x) * above + expm1f(min_nan(x, 0.f)) * below; });
}

// `saved` is the output.
extern "C" __global__ void elu_backward_float32(const float *grad, const float *saved, float *out,
                                                long long n, float below, float above) {
  map_each(grad, saved, out, n, [=](float g, float y) { return g * (y > 0.f ? above : y + below); });
}

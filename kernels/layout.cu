// layout.cu: tensors (outer, channels, pixels) in blocks (outer, blocks, pixels, 16) of channels, and back.
//
// Memory: each element is read once and written once; the lanes that fill up the last block are written as
// zeros, and not read. Nothing works in place. No workspace.
// Bytes: 4 (plain + blocked elements). FLOPs: none.
#include "common.h"

namespace {

constexpr int kLanes = 16;

}  // namespace

extern "C" __global__ void layout_to_blocked(const float *data, float *out, long long n, long long channels,
                                             long long pixels) {
  long long blocks = (channels + kLanes - 1) / kLanes;
  fill_each(out, n, [=](long long i) {
    long long rest = i / kLanes, pixel = rest % pixels;
    rest /= pixels;
    long long channel = rest % blocks * kLanes + i % kLanes;
    return channel < channels ? data[(rest / blocks * channels + channel) * pixels + pixel] : 0.f;
  });
}

extern "C" __global__ void layout_to_plain(const float *data, float *out, long long n, long long channels,
                                           long long pixels) {
  long long blocks = (channels + kLanes - 1) / kLanes;
  fill_each(out, n, [=](long long i) {
    long long pixel = i % pixels, channel = i / pixels % channels, outer = i / pixels / channels;
    return data[((outer * blocks + channel / kLanes) * pixels + pixel) * kLanes + channel % kLanes];
  });
}

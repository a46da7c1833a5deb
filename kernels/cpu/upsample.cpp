// Nearest neighbours: each pixel repeated `scale` times both ways, and the sum over its copies.
//
// Contract: the output lies apart. Sums are float32, row by row in ascending order. Memory-bound.
#include <cstring>

#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

struct UpsampleArgs {
    const float *data;
    float *out;
    int64_t planes, height, width, lanes, scale;  // of the small tensor; lanes: floats of a pixel, 1 or LANES
};

// A row of pixels, each `scale` times.
INLINE void repeat_row(const float *from, float *to, const UpsampleArgs &a) {
    if (a.lanes == LANES) {
        for (int64_t x = 0; x < a.width; x++)
            for (int64_t k = 0; k < a.scale; k++) Vec::load(from + x * LANES).store(to + (x * a.scale + k) * LANES);
    } else if (a.scale == 2) {
        for (int64_t x = 0; x < a.width; x++) to[2 * x] = to[2 * x + 1] = from[x];
    } else {
        for (int64_t x = 0; x < a.width; x++)
            for (int64_t k = 0; k < a.scale; k++) to[x * a.scale + k] = from[x];
    }
}

void upsample_forward(const UpsampleArgs &a) {
    const int64_t small = a.width * a.lanes, large = small * a.scale;
    parallel(a.planes * a.height, [&](int64_t row) {
        float *first = a.out + row * a.scale * large;
        repeat_row(a.data + row * small, first, a);
        const size_t bytes = static_cast<size_t>(large) * sizeof(float);
        for (int64_t k = 1; k < a.scale; k++) std::memcpy(first + k * large, first, bytes);
    });
}

// The sums over the copies of a row's pixels.
INLINE void sum_copies(const float *__restrict from, float *__restrict to, const UpsampleArgs &a) {
    const int64_t large = a.width * a.lanes * a.scale;
    if (a.lanes == LANES) {
        for (int64_t x = 0; x < a.width; x++) {
            Vec sum = Vec::zero();
            for (int64_t i = 0; i < a.scale; i++)
                for (int64_t k = 0; k < a.scale; k++) sum += Vec::load(from + i * large + (x * a.scale + k) * LANES);
            sum.store(to + x * LANES);
        }
    } else if (a.scale == 2) {
        for (int64_t x = 0; x < a.width; x++)
            to[x] = from[2 * x] + from[2 * x + 1] + from[large + 2 * x] + from[large + 2 * x + 1];
    } else {
        for (int64_t x = 0; x < a.width; x++) to[x] = 0.0f;
        for (int64_t i = 0; i < a.scale; i++)
            for (int64_t k = 0; k < a.scale; k++)
                for (int64_t x = 0; x < a.width; x++) to[x] += from[i * large + x * a.scale + k];
    }
}

// data: the large tensor; out: the small one.
void upsample_backward(const UpsampleArgs &a) {
    const int64_t small = a.width * a.lanes;
    parallel(a.planes * a.height, [&](int64_t row) {
        sum_copies(a.data + row * a.scale * a.scale * small, a.out + row * small, a);
    });
}

}  // namespace

KERNEL(upsample_forward, UpsampleArgs)
KERNEL(upsample_backward, UpsampleArgs)

// The loss scale: gradients times it or divided by it, and a search for what is not finite (ops/loss_scale.py).
//
// Contract: outputs are overwritten; scale_gradient may run in place. The scale is word 3 of the control buffer.
// Memory-bound: 8 bytes an element for scale_gradient, 4 for find_nonfinite, which keeps a number a block in workspace.
#include <cstring>

#include "control.h"
#include "elementwise.h"
#include "kernel.h"

namespace {

constexpr uint32_t INFINITE = 0x7f800000;  // the bits of an infinity; those of NaN, less the sign, are above

struct ScaleGradientArgs {
    const float *grad, *control;
    float *out;
    int64_t size, inverse;
};

void scale_gradient(const ScaleGradientArgs &a) {
    const float scale = a.control[LOSS_SCALE], factor = a.inverse ? 1.0f / scale : scale;
    elementwise(a.size, streams(a.out, a.size, a.grad), [&](auto access, int64_t i) {
        Vec v = access.load(a.grad + i);
        for (int part = 0; part < PARTS; part++) v.part[part] = v.part[part] * factor;
        access.store(a.out + i, v);
    });
}

struct FindNonfiniteArgs {
    const float *grad, *found;  // found: of other tensors, or null
    float *out;
    int32_t *parts;  // one a block
    int64_t size;
};

// The largest bits of any number, less the sign.
uint32_t largest_bits(const float *from, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        std::memcpy(&bits, from + i, sizeof bits);
        bits &= ~(1u << 31);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

void find_nonfinite(const FindNonfiniteArgs &a) {
    const int64_t blocks = (a.size + ELEMENTS - 1) / ELEMENTS;
    parallel(blocks, [&](int64_t block) {
        const int64_t begin = block * ELEMENTS, count = a.size - begin < ELEMENTS ? a.size - begin : ELEMENTS;
        a.parts[block] = largest_bits(a.grad + begin, count) >= INFINITE;
    });
    bool found = a.found && *a.found != 0.0f;
    for (int64_t i = 0; i < blocks; i++) found |= a.parts[i] != 0;
    *a.out = found ? 1.0f : 0.0f;
}

struct CheckFiniteArgs {
    const float *found, *control;
    float *unscale;
    int64_t scaled;
};

void check_finite(const CheckFiniteArgs &a) {
    *a.unscale = *a.found != 0.0f ? 0.0f : (a.scaled ? 1.0f / a.control[LOSS_SCALE] : 1.0f);
}

}  // namespace

KERNEL(scale_gradient, ScaleGradientArgs)
KERNEL(find_nonfinite, FindNonfiniteArgs)
KERNEL(check_finite, CheckFiniteArgs)

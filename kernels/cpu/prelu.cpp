// prelu, whose slope below zero is a number of the channel, and its gradients.
//
// Contract: the output may lie on the data, the data's gradient on the data or the output's gradient. The gradient of
// the slopes is summed in float32 over some places of a plane, then in float64 over them and planes in ascending order.
// Memory-bound: 4 bytes of each operand an element.
#include "functions.h"
#include "kernel.h"
#include "planes.h"
#include "pool.h"

namespace {

struct PreluArgs {
    const float *data, *gamma;
    float *out;
    Planes planes;
    int64_t one;  // whether gamma is one number for all channels
};

INLINE Vec slopes(const float *gamma, bool one, const Plane &plane) {
    return one ? Vec::of(*gamma) : plane.numbers(gamma);
}

void prelu_forward(const PreluArgs &a) {
    for_planes(a.planes, [&](const Plane &plane, int64_t) {
        const Vec gamma = slopes(a.gamma, a.one, plane);
        plane.each([&](auto access, int64_t at) {
            access.store(a.out + at, each(access.load(a.data + at), gamma, [](Native x, Native slope) {
                return x <= 0.0f ? x * slope : x;
            }));
        });
    });
}

struct PreluBackwardArgs {
    const float *grad, *data, *gamma;
    float *data_grad;
    Planes planes;
    int64_t one;
};

void prelu_backward_data(const PreluBackwardArgs &a) {
    for_planes(a.planes, [&](const Plane &plane, int64_t) {
        const Vec gamma = slopes(a.gamma, a.one, plane);
        plane.each([&](auto access, int64_t at) {
            const Vec slope = each(access.load(a.data + at), gamma, [](Native x, Native below) {
                return x > 0.0f ? Native{} + 1.0f : (x <= 0.0f ? below : Native{});
            });
            access.store(a.data_grad + at, access.load(a.grad + at) * slope);
        });
    });
}

struct PreluGammaArgs {
    const float *grad, *data;
    float *gamma_grad;
    double *parts;  // of each plane LANES, of which in rows the first counts
    Planes planes;
    int64_t one;
};

// The sum over images, or over all planes, of what a channel's places gave.
void sum_parts(const PreluGammaArgs &a) {
    const Planes &p = a.planes;
    double whole = 0;
    for (int64_t channel = 0; channel < p.channels; channel++) {
        double sum = 0;
        for (int64_t unit = p.form == ROWS ? channel : channel / LANES; unit < p.count(); unit += p.units())
            sum += a.parts[unit * LANES + (p.form == ROWS ? 0 : channel % LANES)];
        whole += sum;
        if (!a.one) a.gamma_grad[channel] = static_cast<float>(sum);
    }
    if (a.one) *a.gamma_grad = static_cast<float>(whole);
}

void prelu_backward_gamma(const PreluGammaArgs &a) {
    for_planes(a.planes, [&](const Plane &plane, int64_t number) {
        double sums[LANES];
        plane.sum([&](auto access, int64_t at) {
            return each(access.load(a.data + at), access.load(a.grad + at), [](Native x, Native g) {
                return minimum(x, Native{}) * g;
            });
        }, sums);
        for (int i = 0; i < LANES; i++) a.parts[number * LANES + i] = sums[i];
    });
    sum_parts(a);
}

}  // namespace

KERNEL(prelu_forward, PreluArgs)
KERNEL(prelu_backward_data, PreluBackwardArgs)
KERNEL(prelu_backward_gamma, PreluGammaArgs)

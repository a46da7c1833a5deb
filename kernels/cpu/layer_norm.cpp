// Layer normalisation over the last axis, and its gradients.
//
// Contract: outputs may lie on data or on the output's gradient. A row stays in the first cache between its passes, so
// each operand is read and written once. Rows are centred by the rounded mean and by what rounding took from it. The
// gradients of gamma and beta are summed in float32 over a segment's rows, and in float64 over segments and chunks of the
// batch in ascending order.
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t BLOCK = 1 << 14;  // elements of a task

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The sum over a row of f(access, i), zero where a vector has no element, in double.
template <class F> INLINE double row_sum(int64_t count, const F &f) {
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += 128 * LANES) {
        Vec part[2] = {Vec::zero(), Vec::zero()};
        int64_t turn = 0;
        each_vector(least(count - begin, 128 * LANES), [&](auto access, int64_t i) {
            part[turn++ & 1] += access.keep(f(access, begin + i));
        });
        sum += total(part[0] + part[1]);
    }
    return sum;
}

struct ForwardArgs {
    const float *data, *gamma, *beta;
    float *out, *mean, *deviation;
    int64_t rows, width;
    double eps;
};

void layer_norm_forward(const ForwardArgs &a) {
    const int64_t wide = a.width < BLOCK ? BLOCK / (a.width > 0 ? a.width : 1) : 1;
    const double share = 1.0 / static_cast<double>(a.width);
    parallel((a.rows + wide - 1) / wide, [&](int64_t task) {
        for (int64_t row = task * wide; row < least(a.rows, (task + 1) * wide); row++) {
            const float *x = a.data + row * a.width;
            float *y = a.out + row * a.width;
            const double first = row_sum(a.width, [&](auto access, int64_t i) { return access.load(x + i); }) * share;
            const float mean = static_cast<float>(first);
            const Vec centre = Vec::of(mean);
            const double rest = row_sum(a.width, [&](auto access, int64_t i) {
                return access.load(x + i) - centre; }) * share;
            const Vec correction = Vec::of(static_cast<float>(rest));
            const double squares = row_sum(a.width, [&](auto access, int64_t i) {
                const Vec centred = access.load(x + i) - centre;
                return centred * centred;
            });
            const double variance = squares * share - rest * rest;
            const double deviation = std::sqrt((variance < 0 ? 0.0 : variance) + a.eps);
            const Vec inverse = Vec::of(static_cast<float>(1.0 / deviation));
            each_vector(a.width, [&](auto access, int64_t i) {
                Vec result = access.load(a.beta + i);
                result.add_product((access.load(x + i) - centre - correction) * inverse, access.load(a.gamma + i));
                access.store(y + i, result);
            });
            a.mean[row] = static_cast<float>(mean + rest), a.deviation[row] = static_cast<float>(deviation);
        }
    });
}

struct BackwardArgs {
    const float *grad, *data, *gamma, *mean, *deviation;
    float *data_grad, *sums;  // sums: of each segment the terms of gamma's gradient, then of beta's
    int64_t rows, width, chunk, group;  // rows of a chunk of the batch, and of a segment
};

int64_t segments_of(const BackwardArgs &a) {
    return (a.rows + a.chunk - 1) / a.chunk * ((a.chunk + a.group - 1) / a.group);
}

void layer_norm_backward(const BackwardArgs &a) {
    const int64_t each = (a.chunk + a.group - 1) / a.group, width = a.width;
    const double share = 1.0 / static_cast<double>(width);
    parallel(segments_of(a), [&](int64_t segment) {
        const int64_t chunk = segment / each * a.chunk, first = chunk + segment % each * a.group;
        const int64_t last = least(a.rows, least(chunk + a.chunk, first + a.group));
        float *gammas = a.sums + 2 * segment * width, *betas = gammas + width;
        std::memset(gammas, 0, static_cast<size_t>(2 * width) * sizeof(float));
        for (int64_t row = first; row < last; row++) {
            const float *x = a.data + row * width, *g = a.grad + row * width;
            const Vec mean = Vec::of(a.mean[row]), inverse = Vec::of(1.0f / a.deviation[row]);
            const double rest = row_sum(width, [&](auto access, int64_t i) { return access.load(x + i) - mean; });
            const Vec correction = Vec::of(static_cast<float>(rest * share));
            const auto normalised = [&](auto access, int64_t i) {
                return (access.load(x + i) - mean - correction) * inverse;
            };
            double products = 0;
            const double sum = row_sum(width, [&](auto access, int64_t i) {
                return access.load(g + i) * access.load(a.gamma + i);
            });
            products = row_sum(width, [&](auto access, int64_t i) {
                const Vec y = normalised(access, i), grad = access.load(g + i), term = grad * y;
                access.store(gammas + i, access.load(gammas + i) + term);
                access.store(betas + i, access.load(betas + i) + grad);
                return term * access.load(a.gamma + i);
            });
            const Vec shift = Vec::of(static_cast<float>(sum * share));
            const Vec slope = Vec::of(static_cast<float>(products * share));
            each_vector(width, [&](auto access, int64_t i) {
                const Vec grad = access.load(g + i) * access.load(a.gamma + i);
                access.store(a.data_grad + row * width + i, (grad - shift - normalised(access, i) * slope) * inverse);
            });
        }
    });
}

struct SumsArgs {
    const float *sums;
    float *gamma_grad, *beta_grad;
    int64_t rows, width, chunk, group;
};

void layer_norm_sums(const SumsArgs &a) {
    const int64_t each = (a.chunk + a.group - 1) / a.group, chunks = (a.rows + a.chunk - 1) / a.chunk;
    parallel((2 * a.width + 255) / 256, [&](int64_t task) {
        for (int64_t i = task * 256; i < least(2 * a.width, task * 256 + 256); i++) {
            double sum = 0;
            for (int64_t chunk = 0; chunk < chunks; chunk++) {
                double part = 0;
                for (int64_t s = chunk * each; s < (chunk + 1) * each; s++) part += a.sums[2 * s * a.width + i];
                sum += part;
            }
            (i < a.width ? a.gamma_grad[i] : a.beta_grad[i - a.width]) = static_cast<float>(sum);
        }
    });
}

}  // namespace

KERNEL(layer_norm_forward, ForwardArgs)
KERNEL(layer_norm_backward, BackwardArgs)
KERNEL(layer_norm_sums, SumsArgs)

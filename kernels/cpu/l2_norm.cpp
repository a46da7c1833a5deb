// Division by the root of a sum of squares, over rows or over columns, and its gradient.
//
// Contract: the output may lie on the data, the data's gradient on the output's gradient or the output. Sums are made in
// float32 over some elements, then in float64, in ascending order.
#include <cmath>

#include "functions.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t TASK = 1 << 14;      // elements
constexpr int64_t PANEL = 256;         // places side by side that are worked on together
constexpr int64_t TOGETHER = 128;      // terms that are summed in float32

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// (outer, length, inner): a norm for each of the outer and inner places.
struct View {
    int64_t outer, length, inner;
};

// Some inner places side by side, or a row, where there is one place.
struct Panel {
    const View &v;
    int64_t first, width;  // first element, and places

    bool in_row() const { return v.inner == 1; }
    // Call body(access, offset, place in the panel) for each vector.
    template <class Body> INLINE void each(const Body &body) const {
        if (in_row()) return each_vector(v.length, [&](auto access, int64_t i) { body(access, first + i, 0); });
        for (int64_t i = 0; i < v.length; i++)
            each_vector(width, [&](auto access, int64_t j) { body(access, first + i * v.inner + j, j); });
    }
    // sums[j] = the sum of f(access, offset) for place j
    template <class F> INLINE void sum(const F &f, double (&sums)[PANEL]) const {
        const int64_t held = in_row() ? LANES : width, vectors = in_row() ? 1 : (width + LANES - 1) / LANES;
        alignas(64) float parts[PANEL] = {};
        int64_t turn = 0;
        const auto close = [&] {
            for (int64_t j = 0; j < held; j++) sums[j] += parts[j], parts[j] = 0.0f;
        };
        for (int64_t j = 0; j < PANEL; j++) sums[j] = 0;
        each([&](auto access, int64_t at, int64_t j) {
            (Vec::load(parts + j) + access.keep(f(access, at))).store(parts + j);
            if (++turn == TOGETHER * vectors) close(), turn = 0;
        });
        close();
        for (int64_t j = 1; in_row() && j < LANES; j++) sums[0] += sums[j];
    }
};

// Call work(panel, its first place among all) for all panels, in parallel.
template <class Work> void for_panels(const View &v, const Work &work) {
    const int64_t panels = (v.inner + PANEL - 1) / PANEL, count = v.outer * panels;
    const int64_t size = v.length * least(v.inner, PANEL), wide = size < TASK ? TASK / (size ? size : 1) : 1;
    parallel((count + wide - 1) / wide, [&](int64_t task) {
        for (int64_t number = task * wide; number < least(count, (task + 1) * wide); number++) {
            const int64_t outer = number / panels, inner = number % panels * PANEL;
            work(Panel{v, outer * v.length * v.inner + inner, least(PANEL, v.inner - inner)}, outer * v.inner + inner);
        }
    });
}

// x / the number of its place, which is a vector's or that of a row.
INLINE Vec divided(const Panel &panel, const Vec &x, const float *numbers, int64_t j) {
    const Vec by = panel.in_row() ? Vec::of(*numbers) : Vec::load(numbers + j);
    return each(x, by, [](Native a, Native b) { return a / b; });
}

struct ForwardArgs {
    const float *data;
    float *out, *norm;
    View view;
    double eps;
};

void l2_normalization_forward(const ForwardArgs &a) {
    for_panels(a.view, [&](const Panel &panel, int64_t place) {
        double sums[PANEL];
        panel.sum([&](auto access, int64_t at) {
            const Vec x = access.load(a.data + at);
            return x * x;
        }, sums);
        alignas(64) float roots[PANEL];
        for (int64_t j = 0; j < PANEL; j++) roots[j] = static_cast<float>(std::sqrt(sums[j] + a.eps));
        for (int64_t j = 0; j < panel.width; j++) a.norm[place + j] = roots[j];
        panel.each([&](auto access, int64_t at, int64_t j) {
            access.store(a.out + at, divided(panel, access.load(a.data + at), roots, j));
        });
    });
}

struct BackwardArgs {
    const float *grad, *out, *norm;
    float *data_grad;
    View view;
};

void l2_normalization_backward(const BackwardArgs &a) {
    for_panels(a.view, [&](const Panel &panel, int64_t place) {
        double sums[PANEL];
        panel.sum([&](auto access, int64_t at) { return access.load(a.grad + at) * access.load(a.out + at); }, sums);
        alignas(64) float dots[PANEL], roots[PANEL];
        for (int64_t j = 0; j < PANEL; j++) dots[j] = static_cast<float>(sums[j]), roots[j] = 1.0f;
        for (int64_t j = 0; j < panel.width; j++) roots[j] = a.norm[place + j];
        panel.each([&](auto access, int64_t at, int64_t j) {
            const Vec dot = panel.in_row() ? Vec::of(*dots) : Vec::load(dots + j);
            const Vec rest = access.load(a.grad + at) - access.load(a.out + at) * dot;
            access.store(a.data_grad + at, divided(panel, rest, roots, j));
        });
    });
}

}  // namespace

KERNEL(l2_normalization_forward, ForwardArgs)
KERNEL(l2_normalization_backward, BackwardArgs)

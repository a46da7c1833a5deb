// Convolution of each channel with a filter of its own, lane by lane, on nChw16c over up to three spatial axes: the
// arguments and the order of sums are those of conv.cpp, with one block a group. The data gradient is the same
// computation with taps in reverse order.
//
// Memory-bound: 2 * D * R * S FLOPs an output. Nothing is copied; pixels at the border leave out the taps beyond it.
#include "conv.h"
#include "conv_args.h"
#include "kernel.h"
#include "pool.h"

namespace {

// The taps of a filter as vectors: for each stream (block, plane, row, column, 16).
void convolution_pack_lanes(const PackArgs &a) {
    parallel(a.groups, [&](int64_t block) {
        for (int64_t t = 0; t < a.taps(); t++) {
            const TapPlace place(a, t);
            float *to = a.packed + (place.before * a.groups + block * place.size + place.at) * LANES;
            for (int64_t lane = 0; lane < LANES; lane++) {
                const int64_t channel = block * LANES + lane;
                to[lane] = channel < a.outs ? a.weight[channel * a.out_step + t] : 0;
            }
        }
    });
}

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int WIDE = 8;
#else
constexpr int WIDE = 4;
#endif

// Taps [first, last) along an axis that from `at` reach inside [0, length).
struct Reach {
    int64_t first, last;
    Reach(int64_t at, int64_t step, int64_t count, int64_t length) {
        first = at < 0 ? min(count, ceil_div(-at, step)) : 0;
        last = at >= length ? 0 : min(count, (length - 1 - at) / step + 1);
        if (last < first) last = first;
    }
};

// One plane of outputs of a block of channels of an image.
struct Plane {
    const ConvolutionArgs &a;
    const int64_t top;  // plane of x under the first tap
    const Reach planes;
    const float *x, *w, *bias;
    float *y;

    Plane(const ConvolutionArgs &args, int64_t image, int64_t block, int64_t depth)
        : a(args), top(depth * a.depth_stride + a.tap_depth), planes(top, a.tap_depth_step, a.tap_depths, a.depth) {
        const int64_t at = image * a.groups + block, plane = at * a.out_depth + a.depth_phase + depth * a.depth_step;
        x = a.x + at * a.depth * a.height * a.width * LANES, y = a.y + plane * a.out_height * a.out_width * LANES;
        w = a.packed + block * a.tap_depths * a.tap_rows * a.tap_columns * LANES;
        bias = a.bias ? a.bias + block * LANES : nullptr;
    }

    // COUNT neighbouring outputs from column c on, by the taps that reach.
    template <int COUNT> INLINE void compute(int64_t row, int64_t c, const Reach &rows, const Reach &columns) {
        float *to = y + ((a.row_phase + row * a.row_step) * a.out_width + a.column_phase + c * a.column_step) * LANES;
        const int64_t to_step = a.column_step * LANES, step = a.column_stride * LANES;
        Vec sum[COUNT];
#pragma GCC unroll 8
        for (int p = 0; p < COUNT; p++)
            sum[p] = bias ? Vec::load(bias) : Vec::zero();
        for (int64_t d = planes.first; d < planes.last; d++)
            for (int64_t r = rows.first; r < rows.last; r++) {
                const int64_t above = (top + d * a.tap_depth_step) * a.height;
                const int64_t left = c * a.column_stride + a.tap_column;
                const float *line = x + ((above + row * a.row_stride + a.tap_row + r * a.tap_row_step) * a.width + left) *
                                            LANES;
                for (int64_t s = columns.first; s < columns.last; s++) {
                    const Vec weight = Vec::load(w + ((d * a.tap_rows + r) * a.tap_columns + s) * LANES);
                    const float *from = line + s * a.tap_column_step * LANES;
#pragma GCC unroll 8
                    for (int p = 0; p < COUNT; p++) sum[p].add_product(weight, Vec::load(from + p * step));
                }
            }
#pragma GCC unroll 8
        for (int p = 0; p < COUNT; p++) {
            if (a.add) sum[p] += Vec::load(to + p * to_step);
            (a.relu ? relu(sum[p]) : sum[p]).store(to + p * to_step);
        }
    }

    Reach columns_at(int64_t c) const {
        return Reach(c * a.column_stride + a.tap_column, a.tap_column_step, a.tap_columns, a.width);
    }

    void compute_row(int64_t row) {
        const Reach rows(row * a.row_stride + a.tap_row, a.tap_row_step, a.tap_rows, a.height);
        for (int64_t c = 0; c < a.columns;) {
            const Reach here = columns_at(c);
            const bool whole = c + WIDE <= a.columns && here.last - here.first == a.tap_columns &&
                               columns_at(c + WIDE - 1).last == a.tap_columns;
            if (whole)
                compute<WIDE>(row, c, rows, here);
            else
                compute<1>(row, c, rows, here);
            c += whole ? WIDE : 1;
        }
    }
};

void convolution_lanes(const ConvolutionArgs &a) {
    constexpr int64_t BAND = 16;  // rows of a task
    const int64_t bands = ceil_div(a.rows, BAND);
    parallel(a.images * a.groups * a.depths * bands, [&](int64_t task) {
        const int64_t depth = task / bands % a.depths, block = task / bands / a.depths;
        Plane plane(a, block / a.groups, block % a.groups, depth);
        const int64_t first = task % bands * BAND;
        for (int64_t row = first; row < min(first + BAND, a.rows); row++) plane.compute_row(row);
    });
}

}  // namespace

KERNEL(convolution_pack_lanes, PackArgs)
KERNEL(convolution_lanes, ConvolutionArgs)

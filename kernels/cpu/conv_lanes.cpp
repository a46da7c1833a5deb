// Convolution of each channel with a filter of its own, lane by lane, on nChw16c: the arguments and the order of sums are
// those of conv.cpp, with one block a group. The data gradient is the same computation with taps in reverse order.
//
// Memory-bound: 2 * R * S FLOPs an output. Nothing is copied; pixels at the border leave out the taps beyond it.
#include "conv.h"
#include "conv_args.h"
#include "kernel.h"
#include "pool.h"

namespace {

// The taps of a filter as vectors: (block, row, column, 16).
void convolution_pack_lanes(const PackArgs &a) {
    const int64_t taps = a.rows * a.columns;
    parallel(a.groups, [&](int64_t block) {
        float *to = a.packed + block * taps * LANES;
        for (int64_t r = 0; r < a.rows; r++)
            for (int64_t s = 0; s < a.columns; s++)
                for (int64_t lane = 0; lane < LANES; lane++, to++) {
                    const int64_t channel = block * LANES + lane;
                    const int64_t at = channel * a.out_step + a.row_first + r * a.row_step + a.column_first +
                                       s * a.column_step;
                    *to = channel < a.outs ? a.weight[at] : 0;
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

struct Plane {
    const ConvolutionArgs &a;
    const float *x, *w, *bias;
    float *y;

    Plane(const ConvolutionArgs &args, int64_t image, int64_t block) : a(args) {
        const int64_t at = image * a.groups + block;
        x = a.x + at * a.height * a.width * LANES, y = a.y + at * a.out_height * a.out_width * LANES;
        w = a.packed + block * a.tap_rows * a.tap_columns * LANES;
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
        for (int64_t r = rows.first; r < rows.last; r++) {
            const float *line = x + ((row * a.row_stride + a.tap_row + r * a.tap_row_step) * a.width +
                                     c * a.column_stride + a.tap_column) * LANES;
            for (int64_t s = columns.first; s < columns.last; s++) {
                const Vec weight = Vec::load(w + (r * a.tap_columns + s) * LANES);
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
    parallel(a.images * a.groups * bands, [&](int64_t task) {
        Plane plane(a, task / bands / a.groups, task / bands % a.groups);
        const int64_t first = task % bands * BAND;
        for (int64_t row = first; row < min(first + BAND, a.rows); row++) plane.compute_row(row);
    });
}

}  // namespace

KERNEL(convolution_pack_lanes, PackArgs)
KERNEL(convolution_lanes, ConvolutionArgs)

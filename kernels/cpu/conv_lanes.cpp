// Convolution of each channel with a filter of its own, lane by lane, on nChw16c over up to three spatial axes: the
// arguments and the order of sums are those of conv.cpp, with one block a group. The data gradient is the same
// computation with taps in reverse order.
//
// 2 * D * R * S FLOPs an output. Nothing is copied. With 3x3 taps, side by side and at strides of 1 and 2, outputs are
// computed in tiles (conv_lanes_tile.cpp); else those that the same taps reach are computed together, side by side, or
// one below the other at the left and the right edge.
#include "conv.h"
#include "conv_args.h"
#include "conv_axis.h"
#include "kernel.h"
#include "pool.h"

namespace {

// The taps of a filter as vectors: for each stream (block, plane, row, column, 16).
void convolution_pack_lanes(const PackArgs &a) {
    parallel(a.taps(), [&](int64_t t) {
        const TapPlace place(a, t);
        float *to = a.packed + (place.before * a.groups + place.at) * LANES;
        for (int64_t block = 0; block < a.groups; block++)
            for (int64_t lane = 0; lane < LANES; lane++) {
                const int64_t channel = block * LANES + lane;
                to[block * place.size * LANES + lane] = channel < a.outs ? a.weight[channel * a.out_step + t] : 0;
            }
    });
}

// Outputs at equal distances that the same taps reach, and these taps.
struct Outputs {
    const float *x, *w, *bias;                          // x: below the first tap of the first output; bias may be null
    float *y;
    int64_t x_step, y_step;                             // from an output to the next
    int64_t depths, rows, columns;                      // taps
    int64_t x_depth, x_row, x_column, w_depth, w_row;   // from a tap to the next
    bool add, relu;
};

template <int COUNT> void run_outputs(const Outputs &given) {
    const Outputs o = given;  // which no store can change
    Vec sum[COUNT];
    const Vec first = o.bias ? Vec::load(o.bias) : Vec::zero();
#pragma GCC unroll 16
    for (int p = 0; p < COUNT; p++) sum[p] = first;
    for (int64_t d = 0; d < o.depths; d++)
        for (int64_t r = 0; r < o.rows; r++) {
            const float *x = o.x + d * o.x_depth + r * o.x_row, *w = o.w + d * o.w_depth + r * o.w_row;
            for (int64_t s = 0; s < o.columns; s++, x += o.x_column, w += LANES) {
                const Vec weight = Vec::load(w);
#pragma GCC unroll 16
                for (int p = 0; p < COUNT; p++) sum[p].add_product(weight, Vec::load(x + p * o.x_step));
            }
        }
    float *y = o.y;
#pragma GCC unroll 16
    for (int p = 0; p < COUNT; p++, y += o.y_step) {
        if (o.add) sum[p] += Vec::load(y);
        (o.relu ? relu(sum[p]) : sum[p]).store(y);
    }
}

// Outputs that are computed together: no more than the registers hold beside a weight.
#if defined(__AVX512F__)
constexpr int MOST = 10;
#elif defined(__aarch64__)
constexpr int MOST = 7;
#elif defined(__AVX__)
constexpr int MOST = 6;
#else
constexpr int MOST = 3;
#endif

typedef void (*RunOutputs)(const Outputs &);

template <int... I> RunOutputs outputs_of(int64_t count, Indices<I...>) {
    static constexpr RunOutputs BY_COUNT[] = {run_outputs<I + 1>...};
    return BY_COUNT[count - 1];
}

void run(Outputs &o, int64_t count) {
    typedef typename Count<MOST>::type All;
    const int64_t wide = count ? ceil_div(count, ceil_div(count, MOST)) : 1;
    for (int64_t at = 0; at < count; at += wide, o.x += wide * o.x_step, o.y += wide * o.y_step) {
        outputs_of(min(wide, count - at), All())(o);
    }
}

// Calls work(taps, first output, outputs) for outputs [begin, end): those of the edges one by one, all others together.
template <class Work> INLINE void along(const Axis &axis, int64_t begin, int64_t end, const Work &work) {
    for (int64_t i = begin; i < end;) {
        const int64_t next = i < axis.first || i >= axis.last ? i + 1 : min(end, axis.last);
        work(Reach(axis, i), i, next - i);
        i = next;
    }
}

constexpr int64_t FETCHED_BYTES = 8 << 20;  // of input and output that are fetched ahead: smaller ones come fast enough

bool fetches(const ConvolutionArgs &a) {
    const int64_t pixels = a.depth * a.height * a.width + a.out_depth * a.out_height * a.out_width;
    return a.images * a.groups * pixels * LANES * static_cast<int64_t>(sizeof(float)) > FETCHED_BYTES;
}

// The columns that tiles compute: of three taps side by side of which one reaches outside at most.
struct Tiled {
    int64_t first, last;

    Tiled(const ConvolutionArgs &a, const Axis &rows, const Axis &columns) : first(0), last(0) {
        const bool three = rows.taps == 3 && columns.taps == 3 && rows.step == 1 && columns.step == 1;
        if (!three || rows.stride > 2 || rows.stride != columns.stride || a.row_step > 1 || a.column_step > 1) return;
        first = columns.at < -1 ? ceil_div(-1 - columns.at, columns.stride) : 0;
        last = a.width - 2 < columns.at ? 0 : min(a.columns, (a.width - 2 - columns.at) / columns.stride + 1);
        if (last <= first) first = last = 0;
    }

    // Columns of the next tile, of so many that are left: no more than a few are single ones.
    static int64_t next(int64_t left) {
        return left >= LANE_TILE && (left % LANE_TILE == 0 || left % 4 != 0) ? LANE_TILE : left >= 4 ? 4 : 1;
    }
};

// One plane of outputs of a block of channels of an image.
struct Plane {
    const ConvolutionArgs &a;
    const Axis &rows, &columns;
    const int64_t top;  // plane of x under the first tap
    const Reach planes;
    const float *x;
    float *y;
    Outputs o;

    Plane(const ConvolutionArgs &args, const Axis &depth_axis, const Axis &row_axis, const Axis &column_axis,
          int64_t image, int64_t block, int64_t depth)
        : a(args), rows(row_axis), columns(column_axis), top(depth_axis.at + depth * a.depth_stride),
          planes(depth_axis, depth) {
        const int64_t at = image * a.groups + block, plane = at * a.out_depth + a.depth_phase + depth * a.depth_step;
        x = a.x + at * a.depth * a.height * a.width * LANES, y = a.y + plane * a.out_height * a.out_width * LANES;
        o.w = a.packed + block * a.tap_depths * a.tap_rows * a.tap_columns * LANES;
        o.bias = a.bias ? a.bias + block * LANES : nullptr;
        o.x_row = rows.step * a.width * LANES, o.x_column = columns.step * LANES;
        o.x_depth = a.tap_depth_step * a.height * a.width * LANES;
        o.w_row = a.tap_columns * LANES, o.w_depth = a.tap_rows * o.w_row;
        o.depths = planes.last - planes.first;
        o.add = a.add, o.relu = a.relu;
    }

    void compute(int64_t begin, int64_t end) {
        const Tiled tiled(a, rows, columns);
        if (tiled.first < tiled.last) compute_tiles(begin, end, tiled);
        compute_lines(begin, end, 0, tiled.first);
        compute_lines(begin, end, tiled.last, a.columns);
    }

    void compute_tiles(int64_t begin, int64_t end, const Tiled &tiled) {
        for (int64_t column = tiled.first, wide, count; column < tiled.last; column += wide * count) {
            const int64_t left = tiled.last - column;
            wide = Tiled::next(left), count = 1;
            while (wide * count < left && Tiled::next(left - wide * count) == wide) count++;
            const int64_t tall = wide > 1 ? LANE_ROWS : 1, single = (end - begin) % tall;
            compute_tiles(begin, tall, (end - begin) / tall, column, wide, count);
            compute_tiles(end - single, 1, single, column, wide, count);
        }
    }

    // So many tiles below each other and side by side, of so many rows and columns.
    void compute_tiles(int64_t row, int64_t tall, int64_t down, int64_t column, int64_t wide, int64_t across) {
        const int64_t x_row = a.width * LANES, y_row = a.out_width * LANES;
        run_lane_tiles({x + (top + planes.first * a.tap_depth_step) * a.height * x_row, o.w + planes.first * o.w_depth,
                        o.bias, y + row * y_row + column * LANES, x_row, y_row, o.depths, o.x_depth, a.height, a.width,
                        rows.at + row * rows.stride, columns.at + column * columns.stride, down, across, o.add, o.relu,
                        fetches(a)},
                       tall, wide, columns.stride);
    }

    // Columns [left, right).
    void compute_lines(int64_t begin, int64_t end, int64_t left, int64_t right) {
        if (left == right) return;
        along(rows, begin, end, [&](const Reach &high, int64_t row, int64_t tall) {
            along(columns, left, right, [&](const Reach &wide, int64_t column, int64_t broad) {
                if (broad > 1)
                    for (int64_t r = row; r < row + tall; r++) compute_line(high, wide, r, column, broad, false);
                else
                    compute_line(high, wide, row, column, tall, true);
            });
        });
    }

    // So many outputs from (row, column) on, side by side or one below the other.
    void compute_line(const Reach &high, const Reach &wide, int64_t row, int64_t column, int64_t count, bool down) {
        Outputs line = o;
        const int64_t x_line = a.width * LANES, y_line = a.row_step * a.out_width * LANES;
        const int64_t tap = (planes.first * a.tap_rows + high.first) * a.tap_columns + wide.first;
        const int64_t at = top + planes.first * a.tap_depth_step, line_at = rows.at + row * rows.stride;
        line.rows = high.last - high.first, line.columns = wide.last - wide.first;
        line.x = x + (at * a.height + line_at + high.first * rows.step) * x_line +
                 (columns.at + column * columns.stride + wide.first * columns.step) * LANES;
        line.y = y + (a.row_phase * a.out_width + a.column_phase + column * a.column_step) * LANES + row * y_line;
        line.w += tap * LANES;
        line.x_step = down ? rows.stride * x_line : columns.stride * LANES;
        line.y_step = down ? y_line : a.column_step * LANES;
        run(line, count);
    }
};

void convolution_lanes(const ConvolutionArgs &a) {
    constexpr int64_t BAND = 16;  // rows of a task
    const int64_t bands = ceil_div(a.rows, BAND);
    const Axis depths(a.tap_depth, a.depth_stride, a.tap_depth_step, a.tap_depths, a.depth, a.depths);
    const Axis rows(a.tap_row, a.row_stride, a.tap_row_step, a.tap_rows, a.height, a.rows);
    const Axis columns(a.tap_column, a.column_stride, a.tap_column_step, a.tap_columns, a.width, a.columns);
    parallel(a.images * a.groups * a.depths * bands, [&](int64_t task) {
        const int64_t depth = task / bands % a.depths, block = task / bands / a.depths;
        const int64_t first = task % bands * BAND;
        Plane(a, depths, rows, columns, block / a.groups, block % a.groups, depth)
            .compute(first, min(first + BAND, a.rows));
    });
}

}  // namespace

KERNEL(convolution_pack_lanes, PackArgs)
KERNEL(convolution_lanes, ConvolutionArgs)

// Products for the weight gradient of a convolution of each channel with a filter of its own: those of some rows of
// gradients of a block of channels, lane by lane, with what lies under each tap of a plane of taps. For conv_weight.cpp.
//
// The sums of up to 3x3 taps are in registers while rows are walked once, so that input and gradient are read once; at
// strides of 1 and 2 neighbouring outputs share what they load. A sum is one chain over the pixels in order, whatever
// taps are beside it. Nothing is copied: of padding, a row is read as zeros, and columns are left out.
#include "conv.h"
#include "conv_axis.h"

namespace {

constexpr int MOST = 3;        // taps along an axis whose sums are held, of a native vector of lanes
constexpr int NEIGHBOURS = 4;  // outputs that are added together
constexpr int SHORT = 7;       // outputs of a row that are added all together: small images' time goes to their edges

// So many taps from the axes' `at` on; pointers are to the first of these lanes.
struct Tile {
    const LaneProducts &plane;
    const Axis rows, columns;
    const float *x, *grad;
    float *sums;
};

INLINE Native load(const float *from) { return *reinterpret_cast<const Unaligned *>(from); }

// STRIDE is the columns' where that is known and taps lie side by side, else 0: then neighbours share what they load.
template <int ROWS, int COLUMNS, int STRIDE = 0> void add_tile(const Tile &t) {
    const int64_t x_row = t.plane.width * LANES, sums_row = t.plane.tap_columns * LANES;
    const int64_t stride = STRIDE ? STRIDE : t.columns.stride, step = STRIDE ? 1 : t.columns.step;
    const int64_t outputs = t.plane.out_width;
    Native sum[ROWS][COLUMNS];
#pragma GCC unroll 3
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int s = 0; s < COLUMNS; s++) sum[r][s] = load(t.sums + r * sums_row + s * LANES);
    // Whether the first and the last output miss one tap each.
    const int64_t beyond = t.columns.at + (outputs - 1) * stride + (COLUMNS - 1) * step - t.columns.length;
    const bool left = STRIDE && t.columns.first == 1 && t.columns.at == -1 && t.columns.length > 1;
    const bool right = STRIDE && t.columns.last == outputs - 1 && beyond == 0;
    const bool whole = STRIDE && outputs == SHORT && left && (STRIDE == 1 ? right : t.columns.last == SHORT);
    for (int64_t image = 0; image < t.plane.images; image++) {
        const float *grad = t.grad + image * t.plane.grad_image, *plane = t.x + image * t.plane.x_image;
        for (int64_t row = t.plane.row; row < t.plane.row + t.plane.rows; row++, grad += outputs * LANES) {
            const float *x[ROWS];
#pragma GCC unroll 3
            for (int r = 0; r < ROWS; r++) {
                const int64_t at = t.rows.at + row * t.rows.stride + r * t.rows.step;
                x[r] = (at >= 0 && at < t.rows.length ? plane + at * x_row : t.plane.zeros) + t.columns.at * LANES;
            }
            // The products of a gradient with the columns of taps from `begin` to `end`.
            const auto add_pixel = [&](int64_t c, int64_t begin, int64_t end) __attribute__((always_inline)) {
                const Native g = load(grad + c * LANES);
#pragma GCC unroll 3
                for (int s = 0; s < COLUMNS; s++) {
                    if (s < begin || s >= end) continue;
#pragma GCC unroll 3
                    for (int r = 0; r < ROWS; r++) sum[r][s] += g * load(x[r] + (c * stride + s * step) * LANES);
                }
            };
            const auto add_edge = [&](int64_t first, int64_t last) __attribute__((always_inline)) {
                for (int64_t c = first; c < last; c++) {
                    const Reach reach(t.columns, c);
                    add_pixel(c, reach.first, reach.last);
                }
            };
            if (whole) {
#pragma GCC unroll 3
                for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 7
                    for (int n = 0; n < SHORT; n++)
#pragma GCC unroll 3
                        for (int s = 0; s < COLUMNS; s++)
                            if ((n > 0 || s > 0) && (n < SHORT - 1 || s < COLUMNS - 1 || STRIDE > 1))
                                sum[r][s] += load(grad + n * LANES) * load(x[r] + (n * STRIDE + s) * LANES);
                continue;
            }
            left ? add_pixel(0, 1, COLUMNS) : add_edge(0, t.columns.first);
            int64_t c = t.columns.first;
            for (; STRIDE && c + NEIGHBOURS <= t.columns.last; c += NEIGHBOURS) {
#pragma GCC unroll 3
                for (int r = 0; r < ROWS; r++) {
                    const float *at = x[r] + c * STRIDE * LANES;
#pragma GCC unroll 4
                    for (int n = 0; n < NEIGHBOURS; n++)
#pragma GCC unroll 3
                        for (int s = 0; s < COLUMNS; s++)
                            sum[r][s] += load(grad + (c + n) * LANES) * load(at + (n * STRIDE + s) * LANES);
                }
            }
            for (; c < t.columns.last; c++) add_pixel(c, 0, COLUMNS);
            right ? add_pixel(outputs - 1, 0, COLUMNS - 1) : add_edge(t.columns.last, outputs);
        }
    }
#pragma GCC unroll 3
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
        for (int s = 0; s < COLUMNS; s++) *reinterpret_cast<Unaligned *>(t.sums + r * sums_row + s * LANES) = sum[r][s];
}

typedef void (*AddTile)(const Tile &);
constexpr AddTile ADD_TILE[MOST][MOST] = {{add_tile<1, 1>, add_tile<1, 2>, add_tile<1, 3>},
                                          {add_tile<2, 1>, add_tile<2, 2>, add_tile<2, 3>},
                                          {add_tile<3, 1>, add_tile<3, 2>, add_tile<3, 3>}};

AddTile find_tile(const Axis &rows, const Axis &columns) {
    if (rows.taps == 3 && columns.taps == 3 && columns.step == 1 && columns.stride <= 2)
        return columns.stride == 1 ? add_tile<3, 3, 1> : add_tile<3, 3, 2>;
    return ADD_TILE[rows.taps - 1][columns.taps - 1];
}

// Calls work(first, count) for parts of so many taps.
template <class Work> void each_part(int64_t taps, const Work &work) {
    const int64_t most = ceil_div(taps, ceil_div(taps, MOST));
    for (int64_t first = 0; first < taps; first += most) work(first, min(most, taps - first));
}

}  // namespace

void add_lane_products(const LaneProducts &p, float *sums) {
    each_part(p.tap_rows, [&](int64_t row, int64_t rows) {
        const Axis high(p.tap_row + row * p.tap_row_step, p.row_stride, p.tap_row_step, rows, p.height, p.out_height);
        each_part(p.tap_columns, [&](int64_t column, int64_t columns) {
            const Axis wide(p.tap_column + column * p.tap_column_step, p.column_stride, p.tap_column_step, columns,
                            p.width, p.out_width);
            for (int lane = 0; lane < LANES; lane += NATIVE)
                find_tile(high, wide)({p, high, wide, p.x + lane, p.grad + lane,
                                       sums + (row * p.tap_columns + column) * LANES + lane});
        });
    });
}

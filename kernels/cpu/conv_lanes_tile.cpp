// Tiles of a convolution of each channel with 3x3 taps of its own, for conv_lanes.cpp.
//
// The sums of a tile and, where there are registers for them, the taps are in registers, and each input that is loaded
// goes to all outputs that it reaches: a multiply-add takes 0.3 to 0.6 loads. Of large tensors, what the rows below
// will read is fetched into the second-level cache meanwhile, and what they will write.
#include "conv.h"

namespace {

constexpr int TAPS = 3;

INLINE Native load(const float *from) { return *reinterpret_cast<const Unaligned *>(from); }

// Where a tile begins, and what of the input under it is inside.
struct Place {
    const float *x;
    float *y;
    int64_t first_row, last_row;
    bool left, right;  // whether the first and the last column are; all others are
};

// Fetches neighbouring pixels, to read them from the second-level cache or to WRITE them. A loop, as the address of
// each pixel would take a register.
template <bool WRITE> INLINE void fetch(const float *from, int64_t pixels) {
#pragma GCC unroll 1
    for (int64_t i = 0; i < pixels * LANES; i += LANES)
        WRITE ? __builtin_prefetch(from + i, 1) : __builtin_prefetch(from + i, 0, 2);
}

// A tile's lanes from `lane` on; the first ones fetch for all.
template <int ROWS, int COLUMNS, int STRIDE> INLINE void run_lanes(const LaneTiles &t, const Place &at, int64_t lane) {
    constexpr int HIGH = (ROWS - 1) * STRIDE + TAPS, BROAD = (COLUMNS - 1) * STRIDE + TAPS;  // of the input
    const bool fetches = t.fetches && lane == 0;
    const float *x = at.x + lane, *w = t.w + lane;
    float *y = at.y + lane;
    const Native first = t.bias ? load(t.bias + lane) : Native{};
    Native sum[ROWS][COLUMNS];
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int c = 0; c < COLUMNS; c++) sum[r][c] = first;
    for (int64_t d = 0; d < t.depths; d++, x += t.x_depth, w += TAPS * TAPS * LANES) {
        Native weight[TAPS][TAPS];
#pragma GCC unroll 3
        for (int r = 0; r < TAPS; r++)
#pragma GCC unroll 3
            for (int s = 0; s < TAPS; s++) weight[r][s] = load(w + (r * TAPS + s) * LANES);
#pragma GCC unroll 5
        for (int i = 0; i < HIGH; i++) {
            const float *line = x + i * t.x_row;
            if (fetches && i < ROWS * STRIDE) fetch<false>(line + HIGH * t.x_row, COLUMNS * STRIDE);
            if (i < at.first_row || i >= at.last_row) continue;
#pragma GCC unroll 15
            for (int j = 0; j < BROAD; j++) {
                if ((j == 0 && !at.left) || (j == BROAD - 1 && !at.right)) continue;
                const Native value = load(line + j * LANES);
#pragma GCC unroll 2
                for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
                    for (int s = 0; s < TAPS; s++) {
                        const int tap = i - r * STRIDE, c = (j - s) / STRIDE;
                        if (tap >= 0 && tap < TAPS && j >= s && (j - s) % STRIDE == 0 && c < COLUMNS)
                            sum[r][c] += weight[tap][s] * value;
                    }
            }
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < ROWS; r++, y += t.y_row) {
        if (fetches) fetch<true>(y + ROWS * t.y_row, COLUMNS);
#pragma GCC unroll 8
        for (int c = 0; c < COLUMNS; c++) {
            if (t.add) sum[r][c] += load(y + c * LANES);
            if (t.relu) sum[r][c] = sum[r][c] <= Native{} ? Native{} : sum[r][c];
            *reinterpret_cast<Unaligned *>(y + c * LANES) = sum[r][c];
        }
    }
}

template <int ROWS, int COLUMNS, int STRIDE> void run(const LaneTiles &given) {
    constexpr int64_t BROAD = (COLUMNS - 1) * STRIDE + TAPS;
    const LaneTiles t = given;  // which no store can change
    for (int64_t row = 0, top = t.row; row < t.rows; row++, top += ROWS * STRIDE)
        for (int64_t column = 0, at = t.column; column < t.columns; column++, at += COLUMNS * STRIDE) {
            const Place place = {t.x + top * t.x_row + at * LANES,
                                 t.y + row * ROWS * t.y_row + column * COLUMNS * LANES,
                                 -top, t.height - top, at >= 0, at + BROAD <= t.width};
            for (int64_t lane = 0; lane < LANES; lane += NATIVE) run_lanes<ROWS, COLUMNS, STRIDE>(t, place, lane);
        }
}

typedef void (*Run)(const LaneTiles &);

template <int STRIDE> Run choose(int64_t rows, int64_t columns) {
    if (columns == LANE_TILE) return rows == 1 ? run<1, LANE_TILE, STRIDE> : run<LANE_ROWS, LANE_TILE, STRIDE>;
    if (columns == 4) return rows == 1 ? run<1, 4, STRIDE> : run<LANE_ROWS, 4, STRIDE>;
    return run<1, 1, STRIDE>;
}

}  // namespace

void run_lane_tiles(const LaneTiles &t, int64_t rows, int64_t columns, int64_t stride) {
    (stride == 1 ? choose<1>(rows, columns) : choose<2>(rows, columns))(t);
}

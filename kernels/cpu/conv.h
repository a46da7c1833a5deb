// What the convolution kernels share: the register tile that does all their arithmetic, and copies of padded patches.
#pragma once
#include <cstdint>

#include "vector.h"

constexpr int64_t MAX_TAPS = 1024;

static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

// One tile: `pixels` (in one or two rows) times `blocks` of 16 output channels, summed over blocks of input channels and
// taps. A tap is a run of `run` neighbouring floats of the input: the lanes of one pixel, or of all taps of a kernel row
// where these are neighbours. Weights are one stream: for each input block, tap and element of the run a vector.
struct Tile {
    const float *x;
    int64_t x_pixel, x_row, x_block;      // distances in floats between output pixels, tile rows and channel blocks
    const int64_t *taps;                  // where each tap begins, from x
    int64_t tap_count, run, in_blocks;
    const float *w;
    int64_t w_block;                      // between output blocks
    float *y;
    int64_t y_pixel, y_row, y_block;
    const float *bias;                    // starts the sums where `load` is false; may be null
    bool load;                            // sums go on from what y holds
    bool add;                             // what y holds is added to the sums, last
    bool relu;
};

// PIXEL is x_pixel where that is known, so that addresses need no registers, else 0. While a tap of one input block is
// multiplied, the same pixels of the next block are fetched, or after the last one those of the tile beside it.
template <int ROWS, int COLUMNS, int BLOCKS, int PIXEL> void run_tile(const Tile &given) {
    constexpr int P = ROWS * COLUMNS;
    const Tile t = given;  // which no store can change
    const int64_t x_pixel = PIXEL ? PIXEL : t.x_pixel, fetched = LANES * x_pixel / t.run;
    const auto y = [&](int q, int p) { return t.y + q * t.y_block + p / COLUMNS * t.y_row + p % COLUMNS * t.y_pixel; };
    Vec sum[BLOCKS][P];
#pragma GCC unroll 8
    for (int q = 0; q < BLOCKS; q++) {
        const Vec first = t.bias ? Vec::load(t.bias + q * LANES) : Vec::zero();
#pragma GCC unroll 32
        for (int p = 0; p < P; p++) {
            if (t.load)
                sum[q][p] = Vec::load(y(q, p));
            else
                sum[q][p] = first, __builtin_prefetch(y(q, p), 1);
        }
    }
    const float *w = t.w;
    for (int64_t block = 0; block < t.in_blocks; block++) {
        for (int64_t tap = 0; tap < t.tap_count; tap++) {
            const float *__restrict x = t.x + block * t.x_block + t.taps[tap];
            const float *ahead = block + 1 < t.in_blocks ? x + t.x_block : t.x + t.taps[tap] + COLUMNS * x_pixel;
#pragma GCC unroll 2
            for (int64_t i = 0; i < t.run; i++, ahead += fetched) {
#pragma GCC unroll 2
                for (int r = 0; r < ROWS; r++) __builtin_prefetch(ahead + r * t.x_row);
                Vec weight[BLOCKS];
#pragma GCC unroll 8
                for (int q = 0; q < BLOCKS; q++) weight[q] = Vec::load(w + q * t.w_block);
#pragma GCC unroll 32
                for (int p = 0; p < P; p++) {
                    const float value = x[p / COLUMNS * t.x_row + p % COLUMNS * x_pixel + i];
#pragma GCC unroll 8
                    for (int q = 0; q < BLOCKS; q++) sum[q][p].add_product(weight[q], value);
                }
                w += LANES;
            }
        }
    }
#pragma GCC unroll 8
    for (int q = 0; q < BLOCKS; q++)
#pragma GCC unroll 32
        for (int p = 0; p < P; p++) {
            if (t.add) sum[q][p] += Vec::load(y(q, p));
            (t.relu ? relu(sum[q][p]) : sum[q][p]).store(y(q, p));
        }
}

typedef void (*RunTile)(const Tile &);

// The widest tile that the registers hold, by output blocks: sums, one vector of weights a block, one broadcast value.
#if defined(__AVX512F__)
constexpr int MOST_BLOCKS = 2, WIDEST[MOST_BLOCKS + 1] = {0, 16, 14};
constexpr int WIDEST_IN_TWO_ROWS = 7;  // with two blocks
#elif defined(__AVX__) || defined(__aarch64__)
constexpr int MOST_BLOCKS = 1, WIDEST[MOST_BLOCKS + 1] = {0, 6};
constexpr int WIDEST_IN_TWO_ROWS = 0;
#else
constexpr int MOST_BLOCKS = 1, WIDEST[MOST_BLOCKS + 1] = {0, 2};
constexpr int WIDEST_IN_TWO_ROWS = 0;
#endif

// The function for tiles of so many rows, columns and output blocks, within the limits above, and that x_pixel.
RunTile find_tile(int64_t rows, int64_t columns, int64_t blocks, int64_t x_pixel);

// Some rows of a plane of a block's output gradients of some images, and the planes of its input under a plane of taps.
struct LaneProducts {
    const float *x, *grad;                // of the first image: the plane, and the first of these rows
    int64_t images, x_image, grad_image;
    const float *zeros;                   // as many as a row of x has
    int64_t row, rows;                    // of the gradient
    int64_t height, width, out_height, out_width;
    int64_t row_stride, column_stride;
    int64_t tap_row, tap_row_step, tap_rows;
    int64_t tap_column, tap_column_step, tap_columns;
};

// sums[tap] += sum over the pixels of these rows of gradient times input under that tap, lane by lane.
void add_lane_products(const LaneProducts &p, float *sums);

// Tiles of outputs, side by side and below each other, of a convolution of each channel with 3x3 taps of its own that
// lie side by side in the input. Of the columns under all tiles, no more than the first and the last one are outside.
struct LaneTiles {
    const float *x, *w, *bias;            // x: the plane under the first plane of taps; bias may be null
    float *y;                             // the first output
    int64_t x_row, y_row;                 // distances in floats
    int64_t depths, x_depth;              // planes of taps, and from one to the next in x
    int64_t height, width, row, column;   // of x, and where the first tap of the first output lies there
    int64_t rows, columns;                // of tiles
    bool add, relu, fetches;
};

// Columns of the widest tile, and the most rows: with the taps of a row, or of all where there are 32 registers, its sums
// fill these.
constexpr int LANE_TILE = 7;
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int LANE_ROWS = 2;
#else
constexpr int LANE_ROWS = 1;
#endif

// Computes tiles of 1 or LANE_ROWS rows of 4 or LANE_TILE columns, or of single outputs, at a stride of 1 or 2.
void run_lane_tiles(const LaneTiles &t, int64_t rows, int64_t columns, int64_t stride);

// Pixels [row, row + rows) x [column, column + columns) of one channel block of `lanes` floats a pixel, zero outside
// the image of height x width.
static INLINE void copy_patch(const float *image, int64_t height, int64_t width, int64_t lanes, int64_t row,
                              int64_t column, int64_t rows, int64_t columns, float *patch) {
    const int64_t first = column < 0 ? -column : 0;
    const int64_t last = column + columns > width ? width - column : columns;
    for (int64_t r = 0; r < rows; r++, patch += columns * lanes) {
        if (row + r < 0 || row + r >= height || first >= last) {
            memset(patch, 0, columns * lanes * sizeof(float));
            continue;
        }
        memset(patch, 0, first * lanes * sizeof(float));
        memcpy(patch + first * lanes, image + ((row + r) * width + column + first) * lanes,
               (last - first) * lanes * sizeof(float));
        memset(patch + last * lanes, 0, (columns - last) * lanes * sizeof(float));
    }
}

// Every `step`-th pixel of every `row_step`-th row: rows x columns of them, from (row, column) on.
static INLINE void sample_patch(const float *image, int64_t height, int64_t width, int64_t row, int64_t column,
                                int64_t row_step, int64_t step, int64_t rows, int64_t columns, float *patch) {
    for (int64_t r = 0; r < rows; r++, row += row_step)
        for (int64_t c = 0, at = column; c < columns; c++, at += step, patch += LANES) {
            const bool inside = row >= 0 && row < height && at >= 0 && at < width;
            (inside ? Vec::load(image + (row * width + at) * LANES) : Vec::zero()).store(patch);
        }
}

// The same from `channels` planes of a plain tensor, `channel_step` apart, with all channels of a pixel side by side.
static INLINE void interleave_patch(const float *image, int64_t channel_step, int64_t height, int64_t width,
                                    int64_t channels, int64_t row, int64_t column, int64_t rows, int64_t columns,
                                    float *patch) {
    const int64_t first = column < 0 ? -column : 0;
    const int64_t last = column + columns > width ? width - column : columns;
    for (int64_t r = 0; r < rows; r++, patch += columns * channels) {
        if (row + r < 0 || row + r >= height || first > 0 || last < columns)
            memset(patch, 0, columns * channels * sizeof(float));
        if (row + r < 0 || row + r >= height) continue;
        for (int64_t c = 0; c < channels; c++) {
            const float *from = image + c * channel_step + (row + r) * width + column;
            for (int64_t i = first; i < last; i++) patch[i * channels + c] = from[i];
        }
    }
}

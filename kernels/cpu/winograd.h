// What Winograd's convolutions share: tiles of 4x4 outputs from patches of 6x6 inputs, and the transform of these.
#pragma once
#include "conv.h"
#include "pool.h"

constexpr int64_t OUT = 4, PATCH = 6, POSITIONS = PATCH * PATCH, TAPS = 9;
constexpr int64_t SQUARE = LANES * LANES;
constexpr int64_t TASK_TILES = 16;  // tiles of a task that transforms

INLINE Vec scaled(const Vec &a, float by) { return a * Vec::of(by); }

// The finite points are 0, +-NEAR and +-FAR: with these the rounding is least of all quotients of small numbers tried, a
// quarter of that with 1 and 2.
constexpr float NEAR = 0.75f, FAR = 1.5f, NEAR2 = NEAR * NEAR, FAR2 = FAR * FAR;
constexpr float NEAR_SHARE = 1 / (2 * NEAR2 * (NEAR2 - FAR2)), FAR_SHARE = 1 / (2 * FAR2 * (FAR2 - NEAR2));

INLINE void transform_patch(const Vec (&d)[PATCH], Vec (&v)[PATCH]) {
    const Vec even = d[4] - scaled(d[2], FAR2), odd = scaled(d[3] - scaled(d[1], FAR2), NEAR);
    const Vec far_even = d[4] - scaled(d[2], NEAR2), far_odd = scaled(d[3] - scaled(d[1], NEAR2), FAR);
    v[0] = scaled(d[0], NEAR2 * FAR2) - scaled(d[2], NEAR2 + FAR2) + d[4];
    v[1] = even + odd, v[2] = even - odd;
    v[3] = far_even + far_odd, v[4] = far_even - far_odd;
    v[5] = scaled(d[1], NEAR2 * FAR2) - scaled(d[3], NEAR2 + FAR2) + d[5];
}

// ALONG values become FULL by `along`: first of each column of ALONG x ALONG vectors at from[r * row + c * column], then of
// each line, to made[r * FULL + c].
template <int ALONG, int FULL, class Along>
INLINE void transform_square(const float *from, int64_t row, int64_t column, const Along &along, Vec (&made)[FULL * FULL]) {
    Vec half[FULL][ALONG];
#pragma GCC unroll 6
    for (int c = 0; c < ALONG; c++) {
        Vec given[ALONG], out[FULL];
#pragma GCC unroll 6
        for (int r = 0; r < ALONG; r++) given[r] = Vec::load(from + r * row + c * column);
        along(given, out);
#pragma GCC unroll 6
        for (int r = 0; r < FULL; r++) half[r][c] = out[r];
    }
#pragma GCC unroll 6
    for (int r = 0; r < FULL; r++) {
        Vec out[FULL];
        along(half[r], out);
#pragma GCC unroll 6
        for (int c = 0; c < FULL; c++) made[r * FULL + c] = out[c];
    }
}

// The tiles of all images, in order.
struct Tiles {
    int64_t rows, columns;  // of an image

    Tiles(int64_t out_height, int64_t out_width) : rows(ceil_div(out_height, OUT)), columns(ceil_div(out_width, OUT)) {}
    int64_t each() const { return rows * columns; }
    int64_t image(int64_t tile) const { return tile / each(); }
    int64_t row(int64_t tile) const { return tile / columns % rows * OUT; }
    int64_t column(int64_t tile) const { return tile % columns * OUT; }
};

// Calls work(block, tile) for so many tiles and blocks, in parallel.
template <class Work> void for_tiles(int64_t count, int64_t blocks, const Work &work) {
    const int64_t pieces = ceil_div(count, TASK_TILES);
    parallel(pieces * blocks, [&](int64_t task) {
        const int64_t first = task % pieces * TASK_TILES;
        for (int64_t tile = first; tile < min(first + TASK_TILES, count); tile++) work(task / pieces, tile);
    });
}

// SIZE x SIZE pixels from (row, column) on, zero outside the image: where they lie, or a copy in `patch`; `step` becomes
// the distance of rows.
template <int SIZE>
INLINE const float *pixels_at(const float *plane, int64_t height, int64_t width, int64_t row, int64_t column,
                              float *patch, int64_t &step) {
    step = width * LANES;
    if (row >= 0 && column >= 0 && row + SIZE <= height && column + SIZE <= width)
        return plane + (row * width + column) * LANES;
    copy_patch(plane, height, width, LANES, row, column, SIZE, SIZE, patch);
    step = SIZE * LANES;
    return patch;
}

// An image tensor in blocks, and how far its patches reach out of it.
struct Image {
    const float *x;
    int64_t blocks, height, width, row_pad, column_pad;
};

// V = Bt d B of the patches of so many tiles from `first` on: (position, block, `band` tiles, 16).
INLINE void transform_patches(const Image &i, const Tiles &tiles, int64_t first, int64_t count, int64_t band,
                              int64_t position, float *v) {
    for_tiles(count, i.blocks, [&](int64_t block, int64_t at) {
        const int64_t tile = first + at;
        float patch[POSITIONS * LANES];
        int64_t step;
        const float *plane = i.x + (tiles.image(tile) * i.blocks + block) * i.height * i.width * LANES;
        const float *from = pixels_at<PATCH>(plane, i.height, i.width, tiles.row(tile) - i.row_pad,
                                             tiles.column(tile) - i.column_pad, patch, step);
        Vec made[POSITIONS];
        transform_square<PATCH, PATCH>(from, step, LANES, [](auto &d, auto &w) { transform_patch(d, w); }, made);
        float *to = v + (block * band + at) * LANES;
        for (int64_t p = 0; p < POSITIONS; p++) made[p].store(to + p * position);
    });
}

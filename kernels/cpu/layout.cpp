// Between row-major order and blocks of 16 channels.
//
// Contract: lanes beyond the last channel are written as zero, and not read. Memory-bound: each element is read and
// written once, sixteen pixels of sixteen channels at a time, so that cache lines on both sides are used whole.
#include "kernel.h"
#include "pool.h"
#include "vector.h"

namespace {

constexpr int64_t PIXELS = 1024;  // of a task

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct LayoutArgs {
    const float *data;
    float *out;
    int64_t images, channels, pixels;
};

// Call tile(plain offset of a block's first channel, blocked offset of its first pixel, lanes, pixels) for all tiles.
template <class Tile> void each_tile(const LayoutArgs &a, const Tile &tile) {
    const int64_t blocks = (a.channels + LANES - 1) / LANES, cuts = (a.pixels + PIXELS - 1) / PIXELS;
    parallel(a.images * blocks * cuts, [&](int64_t task) {
        const int64_t first = task % cuts * PIXELS, block = task / cuts % blocks, image = task / cuts / blocks;
        const int64_t plain = (image * a.channels + block * LANES) * a.pixels, blocked = task / cuts * a.pixels * LANES;
        const int64_t lanes = least(LANES, a.channels - block * LANES);
        for (int64_t p = first; p < least(a.pixels, first + PIXELS); p += LANES)
            tile(plain + p, blocked + p * LANES, lanes, least(LANES, a.pixels - p));
    });
}

// Columns become rows: out[j][i] = data[i][j], both of sixteen floats a row.
INLINE void transpose(const float (&data)[LANES][LANES], float (&out)[LANES][LANES]) {
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < LANES; j++) out[j][i] = data[i][j];
}

void layout_to_blocked(const LayoutArgs &a) {
    each_tile(a, [&](int64_t plain, int64_t blocked, int64_t lanes, int64_t pixels) {
        float rows[LANES][LANES] = {}, columns[LANES][LANES];
        if (pixels == LANES) {
            for (int64_t i = 0; i < lanes; i++) Vec::load(a.data + plain + i * a.pixels).store(rows[i]);
        } else {
            for (int64_t i = 0; i < lanes; i++)
                for (int64_t j = 0; j < pixels; j++) rows[i][j] = a.data[plain + i * a.pixels + j];
        }
        transpose(rows, columns);
        for (int64_t j = 0; j < pixels; j++) Vec::load(columns[j]).store(a.out + blocked + j * LANES);
    });
}

void layout_to_plain(const LayoutArgs &a) {
    each_tile(a, [&](int64_t plain, int64_t blocked, int64_t lanes, int64_t pixels) {
        float rows[LANES][LANES], columns[LANES][LANES];
        for (int64_t j = 0; j < pixels; j++) Vec::load(a.data + blocked + j * LANES).store(columns[j]);
        transpose(columns, rows);
        if (pixels == LANES) {
            for (int64_t i = 0; i < lanes; i++) Vec::load(rows[i]).store(a.out + plain + i * a.pixels);
        } else {
            for (int64_t i = 0; i < lanes; i++)
                for (int64_t j = 0; j < pixels; j++) a.out[plain + i * a.pixels + j] = rows[i][j];
        }
    });
}

}  // namespace

KERNEL(layout_to_blocked, LayoutArgs)
KERNEL(layout_to_plain, LayoutArgs)

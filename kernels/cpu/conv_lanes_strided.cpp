// The data gradient of a convolution of each channel with 3x3 taps of its own at a stride of 2, lane by lane on
// nChw16c.
//
// Of the pixels of out_grad, a pixel of the result is reached by one or two along each axis, in turns; pairs of both are
// computed together, so that each line of the result is written once: 2.25 multiply-adds a pixel on average. Each sum is
// one chain in a fixed order (bias, then out_grad's rows and columns ascending, last what the result holds). Nothing is
// copied; the result's bytes and a quarter of them in out_grad are what has to be moved.
#include "conv.h"
#include "kernel.h"
#include "pool.h"

namespace {

constexpr int TAPS = 3, STRIDE = 2;

struct Args {
    const float *grad, *packed, *bias;  // packed: (block, row, column, 16); bias: null, or padded to whole blocks
    float *y;
    int64_t images, groups;
    int64_t height, width;              // of grad
    int64_t out_height, out_width;      // of y
    int64_t row_pad, column_pad;
    int64_t add;                        // whether what y holds is added to the sums
};

INLINE Native load(const float *from) { return *reinterpret_cast<const Unaligned *>(from); }

// A row of y of a block, and the rows of grad that reach it with those of the taps by which they do.
struct Row {
    const float *grad[2], *w[2];
    int count;
    const float *bias;
    float *y;
    bool add;
};

// PAIRS of neighbouring pixels, of which the first is reached by the column of grad at `at`, and the second also by
// that behind it.
struct Pairs {
    int64_t at, column;      // in grad, and the first one in y
    bool first, last;        // whether the first and the last column of grad are inside
    bool stores_first, stores_last;
};

template <int PAIRS> INLINE void run_lanes(const Row &row, const Pairs &p, int64_t lane) {
    const Native first = row.bias ? load(row.bias + lane) : Native{};
    Native sum[STRIDE * PAIRS];
#pragma GCC unroll 14
    for (int c = 0; c < STRIDE * PAIRS; c++) sum[c] = first;
    for (int tap = 0; tap < row.count; tap++) {
        const float *grad = row.grad[tap] + p.at * LANES + lane, *w = row.w[tap] + lane;
        const Native far = load(w), middle = load(w + LANES), near = load(w + 2 * LANES);
#pragma GCC unroll 8
        for (int j = 0; j <= PAIRS; j++) {
            if ((j == 0 && !p.first) || (j == PAIRS && !p.last)) continue;
            const Native value = load(grad + j * LANES);
            if (j > 0) sum[STRIDE * j - 1] += far * value;
            if (j < PAIRS) sum[STRIDE * j] += middle * value, sum[STRIDE * j + 1] += near * value;
        }
    }
    float *y = row.y + p.column * LANES + lane;
#pragma GCC unroll 14
    for (int c = 0; c < STRIDE * PAIRS; c++) {
        if ((c == 0 && !p.stores_first) || (c == STRIDE * PAIRS - 1 && !p.stores_last)) continue;
        if (row.add) sum[c] += load(y + c * LANES);
        *reinterpret_cast<Unaligned *>(y + c * LANES) = sum[c];
    }
}

template <int PAIRS> void run(const Args &a, const Row &given, int64_t at) {
    const Row row = given;  // which no store can change
    const int64_t column = STRIDE * at + 1 - a.column_pad, end = at + PAIRS;
    const Pairs pairs = {at, column, at >= 0 && at < a.width, end >= 0 && end < a.width, column >= 0,
                         column + STRIDE * PAIRS <= a.out_width};
    for (int64_t lane = 0; lane < LANES; lane += NATIVE) run_lanes<PAIRS>(row, pairs, lane);
}

// Pairs of which the registers hold the sums, beside the taps of a row.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int MOST = 7;
#else
constexpr int MOST = 4;
#endif

void compute_row(const Args &a, const Row &row) {
    const int64_t begin = ceil_div(a.column_pad, STRIDE) - 1, end = ceil_div(a.out_width - 1 + a.column_pad, STRIDE);
    const int64_t last = max(begin, min(end, a.width));  // behind it no column of grad is inside
    int64_t at = begin;
    for (; at + MOST <= last; at += MOST) run<MOST>(a, row, at);
    for (; at + 4 <= last; at += 4) run<4>(a, row, at);
    for (; at < end; at++) run<1>(a, row, at);
}

void convolution_lanes_strided(const Args &a) {
    constexpr int64_t BAND = 16;  // rows of a task
    const int64_t bands = ceil_div(a.out_height, BAND);
    parallel(a.images * a.groups * bands, [&](int64_t task) {
        const int64_t block = task / bands, group = block % a.groups, first = task % bands * BAND;
        Row row;
        row.bias = a.bias ? a.bias + group * LANES : nullptr, row.add = a.add;
        for (int64_t out = first; out < min(first + BAND, a.out_height); out++) {
            row.count = 0;
            row.y = a.y + (block * a.out_height + out) * a.out_width * LANES;
            for (int64_t tap = TAPS - 1; tap >= 0; tap--) {
                const int64_t at = out + a.row_pad - tap;
                if (at < 0 || at % STRIDE || at / STRIDE >= a.height) continue;
                row.grad[row.count] = a.grad + (block * a.height + at / STRIDE) * a.width * LANES;
                row.w[row.count++] = a.packed + (group * TAPS + tap) * TAPS * LANES;
            }
            compute_row(a, row);
        }
    });
}

}  // namespace

KERNEL(convolution_lanes_strided, Args)

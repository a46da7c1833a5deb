// Sums over the middle axis of (outer, length, inner).
//
// Contract: the output lies apart. Sums are float32 over a few elements, and float64 within a piece of the axis
// and over pieces in ascending order; a piece is a chunk of the batch where the axis is that of the batch. Each element is read once.
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t BLOCK = 1 << 14;    // elements of a task
constexpr int WIDE = 4;               // vectors side by side
constexpr int64_t COLUMNS = WIDE * LANES;
constexpr int64_t TOGETHER = 128;     // rows that are summed in float32

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct SumArgs {
    const float *data;
    float *out;
    int64_t outer, length, inner, piece;
    double divisor;
};

void axis_sum_rows(const SumArgs &a) {
    const int64_t wide = a.length < BLOCK ? BLOCK / (a.length > 0 ? a.length : 1) : 1;
    parallel((a.outer + wide - 1) / wide, [&](int64_t task) {
        for (int64_t row = task * wide; row < least(a.outer, (task + 1) * wide); row++) {
            double sum = 0;
            for (int64_t begin = 0; begin < a.length; begin += 128 * LANES) {
                Vec part = Vec::zero();
                const float *data = a.data + row * a.length + begin;
                each_vector(least(a.length - begin, 128 * LANES),
                            [&](auto access, int64_t i) { part += access.load(data + i); });
                sum += total(part);
            }
            a.out[row] = static_cast<float>(sum / a.divisor);
        }
    });
}

// Add to `sums` the first `width` columns of some rows, in float32 among them.
void add_columns(const float *data, int64_t rows, int64_t step, int64_t width, double (&sums)[COLUMNS]) {
    Vec part[WIDE] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
    for (int64_t i = 0; i < rows; i++, data += step) {
        if (width == COLUMNS) {
            for (int v = 0; v < WIDE; v++) part[v] += Vec::load(data + v * LANES);
        } else {
            each_vector(width, [&](auto access, int64_t j) { part[j / LANES] += access.load(data + j); });
        }
    }
    for (int v = 0; v < WIDE; v++) {
        float held[LANES];
        part[v].store(held);
        for (int i = 0; i < LANES; i++) sums[v * LANES + i] += held[i];
    }
}

void axis_sum_columns(const SumArgs &a) {
    const int64_t cuts = (a.inner + COLUMNS - 1) / COLUMNS;
    parallel(a.outer * cuts, [&](int64_t task) {
        const int64_t outer = task / cuts, first = task % cuts * COLUMNS, width = least(COLUMNS, a.inner - first);
        double sums[COLUMNS] = {};
        for (int64_t begin = 0; begin < a.length; begin += a.piece) {
            double part[COLUMNS] = {};
            const int64_t end = least(a.length, begin + a.piece);
            for (int64_t i = begin; i < end; i += TOGETHER)
                add_columns(a.data + (outer * a.length + i) * a.inner + first, least(TOGETHER, end - i), a.inner, width,
                            part);
            for (int64_t i = 0; i < COLUMNS; i++) sums[i] += part[i];
        }
        for (int64_t i = 0; i < width; i++) a.out[outer * a.inner + first + i] = static_cast<float>(sums[i] / a.divisor);
    });
}

}  // namespace

KERNEL(axis_sum_rows, SumArgs)
KERNEL(axis_sum_columns, SumArgs)

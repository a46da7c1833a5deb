// Rows by number: Embedding and take, and the gradient that is added to the rows.
//
// Contract: a number that is no row leaves zeros, or adds nothing, and is noted. Gradients are added in ascending order
// of position, by tasks that share no element, so that threads change no bit.
#include <cstring>

#include "kernel.h"
#include "lanes.h"
#include "pool.h"
#include "refusal.h"

namespace {

constexpr int64_t BLOCK = 1 << 14;  // elements of a task
constexpr int64_t COLUMNS = 256;    // of a task of the gradient

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct TakeArgs {
    const float *rows, *numbers;
    float *out;
    Refusal *refusal;
    int64_t outer, bound, inner, count;  // rows: (outer, bound, inner); out: (outer, count, inner)
};

void take_forward(const TakeArgs &a) {
    refuse_others(a.numbers, a.count, a.bound, nullptr, a.refusal);
    const int64_t wide = a.inner < BLOCK ? BLOCK / (a.inner > 0 ? a.inner : 1) : 1;
    const int64_t cuts = (a.count + wide - 1) / wide;
    parallel(a.outer * cuts, [&](int64_t task) {
        const int64_t outer = task / cuts, first = task % cuts * wide;
        for (int64_t i = first; i < least(a.count, first + wide); i++) {
            float *out = a.out + (outer * a.count + i) * a.inner;
            const size_t bytes = static_cast<size_t>(a.inner) * sizeof(float);
            if (is_place(a.numbers[i], a.bound))
                std::memcpy(out, a.rows + (outer * a.bound + static_cast<int64_t>(a.numbers[i])) * a.inner, bytes);
            else
                std::memset(out, 0, bytes);
        }
    });
}

struct TakeBackwardArgs {
    const float *grad, *numbers;
    float *rows;
    Refusal *refusal;
    int64_t outer, bound, inner, count;
};

void take_backward(const TakeBackwardArgs &a) {
    refuse_others(a.numbers, a.count, a.bound, nullptr, a.refusal);
    const int64_t cuts = (a.inner + COLUMNS - 1) / COLUMNS;
    parallel(a.outer * cuts, [&](int64_t task) {
        const int64_t outer = task / cuts, first = task % cuts * COLUMNS, width = least(COLUMNS, a.inner - first);
        float *rows = a.rows + outer * a.bound * a.inner + first;
        for (int64_t i = 0; i < a.bound; i++)
            std::memset(rows + i * a.inner, 0, static_cast<size_t>(width) * sizeof(float));
        for (int64_t i = 0; i < a.count; i++) {
            if (!is_place(a.numbers[i], a.bound)) continue;
            const float *grad = a.grad + (outer * a.count + i) * a.inner + first;
            float *row = rows + static_cast<int64_t>(a.numbers[i]) * a.inner;
            each_vector(width, [&](auto access, int64_t j) {
                access.store(row + j, access.load(row + j) + access.load(grad + j));
            });
        }
    });
}

}  // namespace

KERNEL(take_forward, TakeArgs)
KERNEL(take_backward, TakeBackwardArgs)

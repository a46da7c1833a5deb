// softmax and its logarithm over the middle axis of (outer, classes, inner), their gradients, and SoftmaxOutput's.
//
// Contract: outputs may lie on any input's bytes. A row is one (outer, inner); rows that lie side by side go in the lanes
// of one vector, and a row whose classes lie side by side goes through vectors of its own. Each row passes through the
// first caches three times: its largest logit, the exponentials and their sum, and the quotients.
#include "functions.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"
#include "refusal.h"

namespace {

constexpr int64_t BLOCK = 1 << 14;  // elements of a task

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct View {
    int64_t outer, classes, inner;
};

INLINE Vec larger(const Vec &a, const Vec &b) {
    return each(a, b, [](Native x, Native y) { return maximum(x, y); });
}
INLINE float larger(float a, float b) { return a != a ? a : (b <= a ? a : b); }
INLINE Vec exponential(const Vec &a) { return each(a, [](Native x) { return exp(x); }); }

// Call row(offset) for each row where the classes lie side by side, and columns(access, offset) for each vector of rows
// where they do not.
template <class Row, class Columns> void each_row(const View &v, const Row &row, const Columns &columns) {
    if (v.outer * v.classes * v.inner == 0) return;
    if (v.inner == 1) {
        const int64_t wide = v.classes < BLOCK ? BLOCK / v.classes : 1;
        parallel((v.outer + wide - 1) / wide, [&](int64_t task) {
            for (int64_t i = task * wide; i < least(v.outer, (task + 1) * wide); i++) row(i * v.classes);
        });
        return;
    }
    const int64_t vectors = (v.inner + LANES - 1) / LANES;
    const int64_t wide = v.classes * LANES < BLOCK ? BLOCK / (v.classes * LANES) : 1;
    const int64_t cuts = (vectors + wide - 1) / wide;
    parallel(v.outer * cuts, [&](int64_t task) {
        const int64_t begin = task % cuts * wide * LANES, end = least(v.inner, begin + wide * LANES);
        each_vector(end - begin, [&](auto access, int64_t i) {
            columns(access, task / cuts * v.classes * v.inner + begin + i);
        });
    });
}

float largest(const float *x, int64_t count) {
    float found = x[0];
    if (count >= LANES) {
        // in turns, so that none waits for the one before
        Vec most[] = {Vec::load(x), Vec::load(x), Vec::load(x), Vec::load(x)};
        int64_t i = LANES;
        for (; i + 4 * LANES <= count; i += 4 * LANES)
            for (int turn = 0; turn < 4; turn++) most[turn] = larger(most[turn], Vec::load(x + i + turn * LANES));
        for (; i + LANES <= count; i += LANES) most[0] = larger(most[0], Vec::load(x + i));
        most[0] = larger(most[0], Vec::load(x + count - LANES));
        found = joined(larger(larger(most[0], most[1]), larger(most[2], most[3])), maximum);
    } else {
        for (int64_t i = 1; i < count; i++) found = larger(found, x[i]);
    }
    return found;
}

// The sum over a row of f(access, i), in double.
template <class F> INLINE float row_sum(int64_t count, const F &f) {
    double sum = 0;
    for (int64_t begin = 0; begin < count; begin += 256 * LANES) {
        Vec part = Vec::zero();
        each_vector(least(count - begin, 256 * LANES),
                    [&](auto access, int64_t i) { part += access.keep(f(access, begin + i)); });
        sum += total(part);
    }
    return static_cast<float>(sum);
}

struct SoftmaxArgs {
    const float *data;
    float *out;
    View v;
    int64_t logarithm;
    float temperature;
};

void softmax_forward(const SoftmaxArgs &a) {
    const auto shifted = [&](const Vec &x, const Vec &most) {
        const float divisor = a.temperature;
        return each(x, most, [divisor](Native y, Native m) { return (y - m) / divisor; });
    };
    const auto row = [&](int64_t at) {
        const float *x = a.data + at;
        float *y = a.out + at;
        const Vec most = Vec::of(largest(x, a.v.classes));
        const float sum = row_sum(a.v.classes, [&](auto access, int64_t i) {
            const Vec logit = shifted(access.load(x + i), most), power = exponential(logit);
            access.store(y + i, a.logarithm ? logit : power);
            return power;
        });
        const Vec share = each(Vec::of(sum), [&](Native s) { return a.logarithm ? log(s) : 1.0f / s; });
        each_vector(a.v.classes, [&](auto access, int64_t i) {
            const Vec held = access.load(y + i);
            access.store(y + i, a.logarithm ? held - share : held * share);
        });
    };
    const auto columns = [&](auto access, int64_t at) {
        const float *x = a.data + at;
        float *y = a.out + at;
        const int64_t step = a.v.inner;
        Vec most = access.load(x), sum = Vec::zero();
        for (int64_t c = 1; c < a.v.classes; c++) most = larger(most, access.load(x + c * step));
        for (int64_t c = 0; c < a.v.classes; c++) {
            const Vec logit = shifted(access.load(x + c * step), most), power = exponential(logit);
            access.store(y + c * step, a.logarithm ? logit : power);
            sum += power;
        }
        const Vec share = each(sum, [&](Native s) { return a.logarithm ? log(s) : 1.0f / s; });
        for (int64_t c = 0; c < a.v.classes; c++) {
            const Vec held = access.load(y + c * step);
            access.store(y + c * step, a.logarithm ? held - share : held * share);
        }
    };
    each_row(a.v, row, columns);
}

struct BackwardArgs {
    const float *grad, *out;
    float *data_grad;
    View v;
    int64_t logarithm;
    float temperature;
};

// (grad - sum(grad out)) out / temperature, or of the logarithm (grad - exp(out) sum(grad)) / temperature
void softmax_backward(const BackwardArgs &a) {
    const auto weighted = [&](const Vec &grad, const Vec &y) { return a.logarithm ? grad : grad * y; };
    const auto result = [&](const Vec &grad, const Vec &y, const Vec &sum) {
        const float divisor = a.temperature;
        const Vec found = a.logarithm ? grad - exponential(y) * sum : (grad - sum) * y;
        return each(found, [divisor](Native x) { return x / divisor; });
    };
    const auto row = [&](int64_t at) {
        const float *g = a.grad + at, *y = a.out + at;
        const Vec sum = Vec::of(row_sum(a.v.classes, [&](auto access, int64_t i) {
            return weighted(access.load(g + i), access.load(y + i)); }));
        each_vector(a.v.classes, [&](auto access, int64_t i) {
            access.store(a.data_grad + at + i, result(access.load(g + i), access.load(y + i), sum));
        });
    };
    const auto columns = [&](auto access, int64_t at) {
        const float *g = a.grad + at, *y = a.out + at;
        const int64_t step = a.v.inner;
        Vec sum = Vec::zero();
        for (int64_t c = 0; c < a.v.classes; c++) sum += weighted(access.load(g + c * step), access.load(y + c * step));
        for (int64_t c = 0; c < a.v.classes; c++)
            access.store(a.data_grad + at + c * step,
                         result(access.load(g + c * step), access.load(y + c * step), sum));
    };
    each_row(a.v, row, columns);
}

struct OutputBackwardArgs {
    const float *out, *label, *above;  // above: null when the gradient from above does not count
    float *data_grad;
    Refusal *refusal;
    View v;
    int64_t use_ignore, ignored_number, valid;  // valid: divide by the labels that are not ignored
    float ignore_label, spread, weight;         // taken from each class, and besides from the label's
    double scale;
};

// (out - target) scale, target 1 - smoothing at the label
void softmax_output_backward(const OutputBackwardArgs &a) {
    const int64_t labels = a.v.outer * a.v.inner, classes = a.v.classes, inner = a.v.inner;
    refuse_others(a.label, labels, classes, a.use_ignore ? &a.ignore_label : nullptr, a.refusal);
    const auto is_ignored = [&](float label) {
        return label >= -9e15f && label <= 9e15f && static_cast<int64_t>(label) == a.ignored_number;
    };
    int64_t counted = 0;
    for (int64_t i = 0; a.valid && i < labels; i++) counted += !is_ignored(a.label[i]);
    const float scale = static_cast<float>(a.scale / (a.valid && counted > 1 ? static_cast<double>(counted) : 1.0));
    const int64_t wide = classes < BLOCK ? BLOCK / classes : 1, cuts = (inner + wide - 1) / wide;
    const auto above = [&](int64_t i) { return a.above ? a.above[i] : 1.0f; };
    // Rows [first, last) of one `outer`; their labels' elements are made first, from what may be overwritten.
    const auto rows = [&](int64_t outer, int64_t first, int64_t last) {
        for (int64_t begin = first; begin < last; begin += LANES) {
            const int64_t count = least(LANES, last - begin);
            float fixed[LANES];
            int64_t places[LANES];
            for (int64_t i = 0; i < count; i++) {
                const float label = a.label[outer * inner + begin + i];
                const bool place = is_place(label, classes) && !(a.use_ignore && is_ignored(label));
                places[i] = place ? (outer * classes + static_cast<int64_t>(label)) * inner + begin + i : -1;
                if (place) fixed[i] = (a.out[places[i]] - a.spread - a.weight) * scale * above(places[i]);
            }
            const int64_t run = inner == 1 ? classes : count, runs = inner == 1 ? 1 : classes;
            for (int64_t c = 0; c < runs; c++) {
                const int64_t at = (outer * classes + c) * inner + begin;
                each_vector(run, [&](auto access, int64_t i) {
                    const Vec y = (access.load(a.out + at + i) - Vec::of(a.spread)) * Vec::of(scale);
                    access.store(a.data_grad + at + i, a.above ? y * access.load(a.above + at + i) : y);
                });
            }
            for (int64_t i = 0; i < count; i++) {
                if (places[i] >= 0) a.data_grad[places[i]] = fixed[i];
                for (int64_t c = 0; places[i] < 0 && c < classes; c++)
                    a.data_grad[(outer * classes + c) * inner + begin + i] = 0;
            }
        }
    };
    if (a.v.outer * classes * inner == 0) return;
    if (inner == 1) {
        parallel((a.v.outer + wide - 1) / wide, [&](int64_t task) {
            for (int64_t i = task * wide; i < least(a.v.outer, (task + 1) * wide); i++) rows(i, 0, 1);
        });
    } else {
        parallel(a.v.outer * cuts, [&](int64_t task) {
            const int64_t first = task % cuts * wide;
            rows(task / cuts, first, least(inner, first + wide));
        });
    }
}

}  // namespace

KERNEL(softmax_forward, SoftmaxArgs)
KERNEL(softmax_backward, BackwardArgs)
KERNEL(softmax_output_backward, OutputBackwardArgs)

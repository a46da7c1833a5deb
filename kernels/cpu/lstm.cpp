// The cell of a long short-term memory, and its gradient: one pass over the four gates of every element.
//
// Contract: gates lie beside each other in a row, input, forget, new, output. Outputs may lie on the inputs of their
// shape. Forward reads 9 and writes 6 floats for each of rows * size elements, backward 8 and 5.
#include "functions.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t TASK_ELEMENTS = 1 << 10;

// Call body(access, i, j) for each vector of a row: i is its place in a state, j that of the first gate in the gates.
template <class Body> void each_row(int64_t rows, int64_t size, const Body &body) {
    const int64_t tasks = rows * size / TASK_ELEMENTS + 1, together = (rows + tasks - 1) / tasks;
    parallel(tasks, [&](int64_t task) {
        const int64_t end = task * together + together < rows ? task * together + together : rows;
        for (int64_t row = task * together; row < end; row++)
            each_vector(size, [&](auto access, int64_t j) { body(access, row * size + j, row * 4 * size + j); });
    });
}

INLINE Vec logistic(const Vec &x) {
    return each(x, [](Native v) { return sigmoid(v); });
}
INLINE Vec hyperbolic(const Vec &x) {
    return each(x, [](Native v) { return tanh(v); });
}
// a (1 - a)
INLINE Vec logistic_slope(const Vec &a) { return a * (Vec::of(1.0f) - a); }

struct LstmCellArgs {
    const float *data_gates, *state_gates, *old_cell;
    float *out, *cell, *gates;
    int64_t rows, size;
};

void lstm_cell_forward(const LstmCellArgs &a) {
    each_row(a.rows, a.size, [&](auto access, int64_t i, int64_t j) {
        const auto sum = [&](int gate) {
            const int64_t at = j + gate * a.size;
            return access.load(a.data_gates + at) + access.load(a.state_gates + at);
        };
        const Vec enter = logistic(sum(0)), forget = logistic(sum(1)), fresh = hyperbolic(sum(2)),
                  leave = logistic(sum(3)), cell = forget * access.load(a.old_cell + i) + enter * fresh;
        const Vec gates[] = {enter, forget, fresh, leave};
        for (int gate = 0; gate < 4; gate++) access.store(a.gates + j + gate * a.size, gates[gate]);
        access.store(a.cell + i, cell);
        access.store(a.out + i, leave * hyperbolic(cell));
    });
}

// `cell_grad` may be null.
struct LstmCellBackwardArgs {
    const float *grad, *cell_grad, *old_cell, *cell, *gates;
    float *gates_grad, *old_cell_grad;
    int64_t rows, size;
};

void lstm_cell_backward(const LstmCellBackwardArgs &a) {
    const Vec one = Vec::of(1.0f);
    each_row(a.rows, a.size, [&](auto access, int64_t i, int64_t j) {
        const auto gate = [&](int number) { return access.load(a.gates + j + number * a.size); };
        const Vec enter = gate(0), forget = gate(1), fresh = gate(2), leave = gate(3);
        const Vec grad = access.load(a.grad + i), shown = hyperbolic(access.load(a.cell + i));
        Vec through = (one - shown * shown) * leave * grad;
        if (a.cell_grad) through += access.load(a.cell_grad + i);
        const Vec grads[] = {logistic_slope(enter) * fresh * through,
                             logistic_slope(forget) * access.load(a.old_cell + i) * through,
                             (one - fresh * fresh) * enter * through, logistic_slope(leave) * shown * grad};
        for (int number = 0; number < 4; number++) access.store(a.gates_grad + j + number * a.size, grads[number]);
        access.store(a.old_cell_grad + i, forget * through);
    });
}

}  // namespace

KERNEL(lstm_cell_forward, LstmCellArgs)
KERNEL(lstm_cell_backward, LstmCellBackwardArgs)

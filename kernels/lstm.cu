// lstm.cu: the cell of a long short-term memory behind its two products, and its gradient.
//
// Memory: `rows` rows of 4 * size gates (input, forget, new, output) and of `size` states; each is read once and
// written once. Outputs may lie on the inputs of their shape. No workspace.
//
// Bytes: 60 an element of a state forward, 52 backward. FLOPs: 13 and 23, counting a function as one.
#include "common.h"

extern "C" __global__ void lstm_cell_forward_float32(const float *data_gates, const float *state_gates,
                                                     const float *old_cell, float *out, float *cell, float *gates,
                                                     long long rows, long long size) {
  GRID_STRIDE (i, rows * size) {
    long long j = i / size * 4 * size + i % size;
    float enter = sigmoid(data_gates[j] + state_gates[j]);
    float forget = sigmoid(data_gates[j + size] + state_gates[j + size]);
    float fresh = tanhf(data_gates[j + 2 * size] + state_gates[j + 2 * size]);
    float leave = sigmoid(data_gates[j + 3 * size] + state_gates[j + 3 * size]);
    float memory = forget * old_cell[i] + enter * fresh;
    gates[j] = enter;
    gates[j + size] = forget;
    gates[j + 2 * size] = fresh;
    gates[j + 3 * size] = leave;
    cell[i] = memory;
    out[i] = leave * tanhf(memory);
  }
}

// cell_grad may be null.
extern "C" __global__ void lstm_cell_backward_float32(const float *grad, const float *cell_grad, const float *old_cell,
                                                      const float *cell, const float *gates, float *gates_grad,
                                                      float *old_cell_grad, long long rows, long long size) {
  GRID_STRIDE (i, rows * size) {
    long long j = i / size * 4 * size + i % size;
    float enter = gates[j], forget = gates[j + size], fresh = gates[j + 2 * size], leave = gates[j + 3 * size];
    float arriving = grad[i], shown = tanhf(cell[i]), before = old_cell[i];
    float through = (1.f - shown * shown) * leave * arriving + (cell_grad ? cell_grad[i] : 0.f);
    gates_grad[j] = sigmoid_slope(enter) * fresh * through;
    gates_grad[j + size] = sigmoid_slope(forget) * before * through;
    gates_grad[j + 2 * size] = (1.f - fresh * fresh) * enter * through;
    gates_grad[j + 3 * size] = sigmoid_slope(leave) * shown * arriving;
    old_cell_grad[i] = forget * through;
  }
}

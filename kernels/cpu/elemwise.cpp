// Functions of tensors of one shape, element by element: relu, its gradient, sum and sum with relu.
//
// Contract: outputs may lie on any input's bytes. Padding lanes that are zero stay zero. Memory-bound: 4 bytes of each
// operand an element.
#include "kernel.h"
#include "pool.h"
#include "vector.h"

namespace {

constexpr int64_t BLOCK = 1 << 14;  // elements of a task: 64 KiB of each operand

// Call one(i) for the first element of each whole vector, rest(i) for each element after them.
template <class Whole, class Rest> void elementwise(int64_t size, const Whole &whole, const Rest &rest) {
    parallel((size + BLOCK - 1) / BLOCK, [&](int64_t block) {
        const int64_t end = block * BLOCK + BLOCK < size ? block * BLOCK + BLOCK : size;
        int64_t i = block * BLOCK;
        for (; i + LANES <= end; i += LANES) whole(i);
        for (; i < end; i++) rest(i);
    });
}

struct UnaryArgs {
    const float *data;
    float *out;
    int64_t size;
};

struct BinaryArgs {
    const float *lhs, *rhs;
    float *out;
    int64_t size;
};

void relu_forward(const UnaryArgs &a) {
    elementwise(a.size, [&](int64_t i) { relu(Vec::load(a.data + i)).store(a.out + i); },
                [&](int64_t i) { a.out[i] = a.data[i] <= 0 ? 0 : a.data[i]; });
}

// lhs: output gradient; rhs: relu's output
void relu_backward(const BinaryArgs &a) {
    elementwise(a.size,
                [&](int64_t i) { where_positive(Vec::load(a.rhs + i), Vec::load(a.lhs + i)).store(a.out + i); },
                [&](int64_t i) { a.out[i] = a.rhs[i] > 0 ? a.lhs[i] : 0; });
}

void add_forward(const BinaryArgs &a) {
    elementwise(a.size, [&](int64_t i) { (Vec::load(a.lhs + i) + Vec::load(a.rhs + i)).store(a.out + i); },
                [&](int64_t i) { a.out[i] = a.lhs[i] + a.rhs[i]; });
}

}  // namespace

KERNEL(relu_forward, UnaryArgs)
KERNEL(relu_backward, BinaryArgs)
KERNEL(add_forward, BinaryArgs)

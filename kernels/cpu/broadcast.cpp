// Arithmetic of two tensors, each of which may be repeated along axes.
//
// Contract: the output may lie on an operand of its size. Each operand is read once for each output element; runs are
// vectors where the last axis is contiguous in both or repeated in one.
#include "functions.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int AXES = 6;
constexpr int64_t BLOCK = 1 << 14;  // elements of a task

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct BroadcastArgs {
    const float *lhs, *rhs;
    float *out;
    int64_t size[AXES], left[AXES], right[AXES];  // of the output, and steps of the operands in elements
};

// The last axis of an operand: elements in a row, or one for all.
struct Run {
    const float *from;
    int64_t step;
    template <class Access> INLINE Vec load(const Access &access, int64_t i) const {
        return step ? access.load(from + i) : Vec::of(*from);
    }
};

template <class F> void broadcast(const BroadcastArgs &a, const F &f) {
    int64_t rows = 1;
    for (int axis = 0; axis < AXES - 1; axis++) rows *= a.size[axis];
    const int64_t run = a.size[AXES - 1];
    if (rows * run == 0) return;
    const int64_t pieces = (run + BLOCK - 1) / BLOCK, each_task = run < BLOCK ? BLOCK / run : 1;
    parallel((rows + each_task - 1) / each_task * pieces, [&](int64_t task) {
        const int64_t begin = task % pieces * BLOCK, count = least(run - begin, BLOCK);
        const int64_t first = task / pieces * each_task;
        for (int64_t row = first; row < least(rows, first + each_task); row++) {
            int64_t left = begin * a.left[AXES - 1], right = begin * a.right[AXES - 1], rest = row;
            for (int axis = AXES - 2; axis >= 0 && rest; axis--) {
                const int64_t at = rest % a.size[axis];
                rest /= a.size[axis], left += at * a.left[axis], right += at * a.right[axis];
            }
            const Run lhs{a.lhs + left, a.left[AXES - 1]}, rhs{a.rhs + right, a.right[AXES - 1]};
            float *out = a.out + row * run + begin;
            each_vector(count, [&](auto access, int64_t i) {
                access.store(out + i, each(lhs.load(access, i), rhs.load(access, i), f));
            });
        }
    });
}

}  // namespace

#define BROADCAST(name, ...)                                                         \
    static void broadcast_##name(const BroadcastArgs &a) {                           \
        broadcast(a, [](Native x, Native y) -> Native { return __VA_ARGS__; });      \
    }                                                                                \
    KERNEL(broadcast_##name, BroadcastArgs)

BROADCAST(add, x + y)
BROADCAST(sub, x - y)
BROADCAST(mul, x *y)
BROADCAST(div, x / y)
BROADCAST(maximum, maximum(x, y))
BROADCAST(minimum, minimum(x, y))
BROADCAST(equal, one_where(x == y))
BROADCAST(not_equal, one_where(x != y))
BROADCAST(greater, one_where(x > y))
BROADCAST(greater_equal, one_where(x >= y))
BROADCAST(lesser, one_where(x < y))
BROADCAST(lesser_equal, one_where(x <= y))
BROADCAST(logical_and, one_where((x != 0.0f) & (y != 0.0f)))
BROADCAST(logical_or, one_where((x != 0.0f) | (y != 0.0f)))
BROADCAST(logical_xor, one_where((x != 0.0f) ^ (y != 0.0f)))

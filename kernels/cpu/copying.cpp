// Copies between strided places: joining, cutting, permuting and repeating axes; and filling.
//
// Contract: source and target do not overlap. Each element is read and written once, but for those that are added up, in
// ascending order, where an axis stays at its place of the target; runs are contiguous where the axes
// allow it, and else tiles of two axes, in both of which the cache lines are used whole.
#include <cstring>

#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int AXES = 6;
constexpr int64_t BLOCK = 1 << 14;  // elements of a task
constexpr int64_t TILE = 16;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct CopyArgs {
    const float *data;
    float *out;
    int64_t size[AXES], from[AXES], to[AXES];  // sizes, and steps in elements, of each axis
};

// Where a row of the first five axes begins.
struct Place {
    int64_t at[AXES - 1], from, to;
};

Place place_of(const CopyArgs &a, int64_t row) {
    Place place{{}, 0, 0};
    for (int axis = AXES - 2; axis >= 0; axis--) {
        place.at[axis] = row % a.size[axis], row /= a.size[axis];
        place.from += place.at[axis] * a.from[axis], place.to += place.at[axis] * a.to[axis];
    }
    return place;
}

INLINE void step(const CopyArgs &a, Place &place) {
    for (int axis = AXES - 2; axis >= 0; axis--) {
        place.from += a.from[axis], place.to += a.to[axis];
        if (++place.at[axis] < a.size[axis]) return;
        place.from -= place.at[axis] * a.from[axis], place.to -= place.at[axis] * a.to[axis];
        place.at[axis] = 0;
    }
}

INLINE void copy_run(const float *from, int64_t from_step, float *to, int64_t to_step, int64_t count) {
    if (to_step == 1 && from_step == 1) {
        each_vector(count, [&](auto access, int64_t i) { access.store(to + i, access.load(from + i)); });
    } else if (to_step == 1 && from_step == 0) {
        const Vec value = Vec::of(*from);
        each_vector(count, [&](auto access, int64_t i) { access.store(to + i, value); });
    } else {
        for (int64_t i = 0; i < count; i++) to[i * to_step] = from[i * from_step];
    }
}

void copy_strided(const CopyArgs &a) {
    int64_t rows = 1;
    for (int axis = 0; axis < AXES - 1; axis++) rows *= a.size[axis];
    const int64_t run = a.size[AXES - 1];
    if (rows * run == 0) return;
    const int64_t pieces = (run + BLOCK - 1) / BLOCK, each = run < BLOCK ? BLOCK / run : 1;
    const int64_t groups = (rows + each - 1) / each;
    parallel(groups * pieces, [&](int64_t task) {
        const int64_t begin = task % pieces * BLOCK, count = least(run - begin, BLOCK);
        const int64_t first = task / pieces * each, last = least(rows, first + each);
        Place place = place_of(a, first);
        for (int64_t row = first; row < last; row++, step(a, place))
            copy_run(a.data + place.from + begin * a.from[AXES - 1], a.from[AXES - 1],
                     a.out + place.to + begin * a.to[AXES - 1], a.to[AXES - 1], count);
    });
}

// The last axis is contiguous in the target, the one before it in the source.
void copy_tiles(const CopyArgs &a) {
    CopyArgs outer = a;
    outer.size[AXES - 2] = 1;
    const int64_t tall = a.size[AXES - 2], wide = a.size[AXES - 1];
    const int64_t from = a.from[AXES - 1], to = a.to[AXES - 2];
    int64_t rows = 1;
    for (int axis = 0; axis < AXES - 2; axis++) rows *= a.size[axis];
    const int64_t bands = (tall + TILE - 1) / TILE;
    parallel(rows * bands, [&](int64_t task) {
        const Place place = place_of(outer, task / bands);
        const int64_t top = task % bands * TILE, bottom = least(tall, top + TILE);
        const float *data = a.data + place.from;
        float *out = a.out + place.to;
        for (int64_t left = 0; left < wide; left += TILE) {
            const int64_t right = least(wide, left + TILE);
            if (bottom - top == TILE && right - left == TILE) {
                for (int64_t i = top; i < bottom; i += NATIVE)
                    for (int64_t j = left; j < right; j += NATIVE)
                        transpose(data + j * from + i, from, out + i * to + j, to);
                continue;
            }
            for (int64_t i = top; i < bottom; i++)
                for (int64_t j = left; j < right; j++) out[i * to + j] = data[j * from + i];
        }
    });
}

// out += data, place by place; only the first axis, on which the target must move, is cut into tasks.
void add_strided(const CopyArgs &a) {
    CopyArgs inner = a;
    inner.size[0] = 1;
    int64_t rows = 1;
    for (int axis = 1; axis < AXES - 1; axis++) rows *= a.size[axis];
    parallel(a.size[0], [&](int64_t task) {
        const float *data = a.data + task * a.from[0];
        float *out = a.out + task * a.to[0];
        Place place = place_of(inner, 0);
        for (int64_t row = 0; row < rows; row++, step(inner, place))
            for (int64_t i = 0; i < a.size[AXES - 1]; i++)
                out[place.to + i * a.to[AXES - 1]] += data[place.from + i * a.from[AXES - 1]];
    });
}

struct FillArgs {
    float *out;
    int64_t size;
    float value;
};

void fill(const FillArgs &a) {
    parallel((a.size + BLOCK - 1) / BLOCK, [&](int64_t block) {
        const Vec value = Vec::of(a.value);
        float *out = a.out + block * BLOCK;
        each_vector(least(BLOCK, a.size - block * BLOCK), [&](auto access, int64_t i) { access.store(out + i, value); });
    });
}

}  // namespace

KERNEL(copy_strided, CopyArgs)
KERNEL(copy_tiles, CopyArgs)
KERNEL(add_strided, CopyArgs)
KERNEL(fill, FillArgs)

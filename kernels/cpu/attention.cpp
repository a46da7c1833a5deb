// Scaled dot product attention and its gradient, some rows of queries of one head at a time.
//
// Contract: the query's gradient may lie on the output's gradient, the queries or the output; nothing else on anything.
// The scores of a tile, and their slopes, lie in the thread's scratch: 2 * TILE_ROWS * keys floats at most fit there; and,
// as far as there is room, the rows of a head.
// Keys that no query of a tile may see, by their places or by an image's length, are not multiplied; a mask hides others.
// A length that is no number of keys hides them all, and is noted. An element's bits depend on its image and head alone.
// Forward: 2 (depth + width) FLOPs for each pair of a query and a key, backward 2 (3 depth + 2 width).
#include "functions.h"
#include "gemm.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"
#include "refusal.h"

namespace {

constexpr int64_t TILE_ROWS = 64;
constexpr float NOTHING = -0x1p127f;  // as in ops/attention.py

struct Sizes {
    int64_t batch, heads, queries, keys, depth, width, causal;
    float scale;
};

// What hides keys besides their places; either pointer may be null.
struct Hidden {
    const float *mask;     // 0 where a query may not see a key
    const float *lengths;  // of each image: how many keys it has
    Refusal *refusal;
    int64_t steps[3];      // of the mask, in elements, from an image, a head and a query to the next

    // How many keys an image has, of `keys` at most.
    int64_t length(int64_t image, int64_t keys) const {
        if (!lengths) return keys;
        return is_place(lengths[image], keys + 1) ? static_cast<int64_t>(lengths[image]) : 0;
    }
    void check(int64_t images, int64_t keys) const {
        if (lengths) refuse_others(lengths, images, keys + 1, nullptr, refusal);
    }
};

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
// Where the last vector with any of so many keys ends.
int64_t end_of(int64_t keys) { return (keys + LANES - 1) / LANES * LANES; }

// A tile's rows of one image and head; the last row sees the first `keys` keys. Rows of scores are `stride` apart.
struct Tile {
    const Sizes &s;
    const Hidden &hidden;
    int64_t image, head, first, rows, length, keys, stride;

    Tile(const Sizes &sizes, const Hidden &hides, int64_t image_head, int64_t tile, int64_t tile_rows)
        : s(sizes), hidden(hides), image(image_head / sizes.heads), head(image_head % sizes.heads),
          first(tile * tile_rows), rows(smaller(tile_rows, sizes.queries - first)), length(hides.length(image, sizes.keys)),
          keys(sizes.causal ? smaller(first + rows, length) : length), stride(end_of(keys)) {}

    int64_t seen(int64_t row) const { return s.causal ? smaller(first + row + 1, length) : length; }
    // A row's mask, or null
    const float *mask(int64_t row) const {
        const int64_t *steps = hidden.steps;
        return hidden.mask ? hidden.mask + image * steps[0] + head * steps[1] + (first + row) * steps[2] : nullptr;
    }
    // Where row `row` of this image and head lies in a tensor (batch, length, heads * features), and the matrix from there
    int64_t place(int64_t row, int64_t length, int64_t features) const {
        return ((image * length + row) * s.heads + head) * features;
    }
    Matrix matrix(const float *data, int64_t row, int64_t length, int64_t features) const {
        return {data + place(row, length, features), s.heads * features, 1};
    }
    Matrix query_rows(const float *data, int64_t features) const { return matrix(data, first, s.queries, features); }
    Matrix key_rows(const float *data, int64_t features) const { return matrix(data, 0, s.keys, features); }
};

void fill(float *row, int64_t first, int64_t end, float value) {
    each_vector(end - first, [&](auto access, int64_t j) { access.store(row + first + j, Vec::of(value)); });
}

void copy(const float *from, int64_t count, float *to) {
    each_vector(count, [&](auto access, int64_t j) { access.store(to + j, access.load(from + j)); });
}

// Rows of one image and head that are written, `row` elements apart.
struct Rows {
    float *data;
    int64_t row;
};

// What is left of the scratch behind the scores of a tile. The rows of one of several heads lie apart in a tensor, share
// few cache sets, and no hardware foresees them: where there is room, they are gathered for all that read or add to them.
class Room {
public:
    Room(float *first, float *scratch) : free(first), end(scratch + SCRATCH_FLOATS) {}

    Matrix gathered(const Matrix &m, int64_t rows, int64_t columns) {
        float *to = taken(m.row, rows, columns);
        if (!to) return m;
        for (int64_t i = 0; i < rows; i++) copy(m.data + i * m.row, columns, to + i * columns);
        return {to, columns, 1};
    }
    // Zeros that will be added to and then scattered.
    Rows zeros(const Rows &out, int64_t rows, int64_t columns) {
        float *to = taken(out.row, rows, columns);
        const Rows found = to ? Rows{to, columns} : out;
        for (int64_t i = 0; i < rows; i++) fill(found.data + i * found.row, 0, columns, 0.0f);
        return found;
    }

private:
    float *free, *const end;

    float *taken(int64_t row, int64_t rows, int64_t columns) {
        if (row == columns || rows * columns > end - free) return nullptr;
        free += rows * columns;
        return free - rows * columns;
    }
};

void scatter(const Rows &from, const Rows &to, int64_t rows, int64_t columns) {
    if (from.data == to.data) return;
    for (int64_t i = 0; i < rows; i++) copy(from.data + i * from.row, columns, to.data + i * to.row);
}

// The most rows of a tile of which `arrays` of scores fit into the scratch.
int64_t tile_rows(const Sizes &s, int64_t arrays) {
    return smaller(TILE_ROWS, SCRATCH_FLOATS / (arrays * end_of(s.keys)));
}

// out (rows of the tile, keys) = left rightᵀ
void multiply_pairs(const Tile &t, const Matrix &left, const Matrix &right, int64_t depth, float *out) {
    multiply_alone({t.rows, t.keys, depth, left, right.transposed(), out, t.stride, nullptr, false});
}

float largest_of(const Vec &v) {
    return joined(v, [](Native a, Native b) { return b <= a ? a : b; });
}

Vec where_seen(const Vec &mask, const Vec &score) {
    return each(mask, score, [](Native m, Native x) { return m == 0.0f ? Native{} - __builtin_inff() : x; });
}

// Call body(j) for each vector with keys that a row sees.
template <class Body> INLINE void each_seen(int64_t seen, const Body &body) {
    for (int64_t j = 0; j < seen; j += LANES) body(j);
}

// A row's scores times the scale, in all vectors with keys that it sees; -infinity where the query may not see the key.
void scale_row(const Tile &t, int64_t row, float *scores) {
    const int64_t seen = t.seen(row);
    const float *mask = t.mask(row);
    const Vec scale = Vec::of(t.s.scale);
    each_vector(seen, [&](auto access, int64_t j) {
        const Vec scaled = access.load(scores + j) * scale;
        access.store(scores + j, mask ? where_seen(access.load(mask + j), scaled) : scaled);
    });
    fill(scores, seen, end_of(seen), -__builtin_inff());
}

// -- forward ---------------------------------------------------------------------------------------------------------
struct ForwardArgs {
    const float *query, *key, *value;
    float *out, *lse;
    Hidden hidden;
    Sizes s;
};

// A row's scores become the exponentials of what they are less than the largest, zero where the query sees no key; the
// largest is returned, and `sum` is theirs.
float exponentials(const Tile &t, int64_t row, float *scores, float &sum) {
    const int64_t seen = t.seen(row);
    scale_row(t, row, scores);
    Vec largest = Vec::of(NOTHING), sums = Vec::zero();
    each_seen(seen, [&](int64_t j) {
        largest = each(largest, Vec::load(scores + j), [](Native a, Native b) { return b <= a ? a : b; });
    });
    const float top = largest_of(largest);
    each_seen(seen, [&](int64_t j) {
        const Vec shifted = Vec::load(scores + j) - Vec::of(top);
        const Vec found = each(shifted, [](Native x) { return exp(x); });
        found.store(scores + j);
        sums += found;
    });
    fill(scores, seen, t.stride, 0.0f);
    sum = sum_of(sums);
    return top;
}

void scaled_dot_product_attention_forward(const ForwardArgs &a) {
    const Sizes &s = a.s;
    a.hidden.check(s.batch, s.keys);
    const int64_t most = tile_rows(s, 1), tiles = (s.queries + most - 1) / most;
    parallel(s.batch * s.heads * tiles, [&](int64_t task) {
        const Tile t(s, a.hidden, task / tiles, task % tiles, most);
        float *scores = thread_scratch(), sums[TILE_ROWS], tops[TILE_ROWS];
        Room room(scores + most * t.stride, scores);
        const Matrix key = room.gathered(t.key_rows(a.key, s.depth), t.keys, s.depth);
        multiply_pairs(t, t.query_rows(a.query, s.depth), key, s.depth, scores);
        for (int64_t i = 0; i < t.rows; i++) {
            tops[i] = exponentials(t, i, scores + i * t.stride, sums[i]);
            sums[i] = sums[i] < 1.0f ? 1.0f : sums[i];  // only that of a row that sees nothing is less
        }
        each_vector(t.rows, [&](auto access, int64_t i) {
            const Vec logs = each(access.load(sums + i), [](Native x) { return log(x); });
            access.store(a.lse + (task / tiles) * s.queries + t.first + i, access.load(tops + i) + logs);
        });
        float *out = a.out + t.place(t.first, s.queries, s.width);
        const int64_t row = s.heads * s.width;
        const Matrix value = room.gathered(t.key_rows(a.value, s.width), t.keys, s.width);
        multiply_alone({t.rows, s.width, t.keys, {scores, t.stride, 1}, value, out, row, nullptr, false});
        for (int64_t i = 0; i < t.rows; i++) {
            const Vec share = Vec::of(1.0f / sums[i]);
            each_vector(s.width, [&](auto access, int64_t j) {
                float *at = out + i * row + j;
                access.store(at, access.load(at) * share);
            });
        }
    });
}

// -- backward --------------------------------------------------------------------------------------------------------
struct BackwardArgs {
    const float *grad, *query, *key, *value, *out, *lse;
    float *query_grad, *key_grad, *value_grad;
    Hidden hidden;
    Sizes s;
};

// chances = exp(scale scores - lse), slopes = scale (slopes - mean) chances
void slope_of_row(const Tile &t, int64_t row, float lse, float mean, float *scores, float *slopes) {
    const Vec scale = Vec::of(t.s.scale);
    const int64_t seen = t.seen(row);
    scale_row(t, row, scores);
    fill(slopes, seen, end_of(seen), 0.0f);
    each_seen(seen, [&](int64_t j) {
        const Vec shifted = Vec::load(scores + j) - Vec::of(lse);
        const Vec chance = each(shifted, [](Native x) { return exp(x); });
        chance.store(scores + j);
        ((Vec::load(slopes + j) - Vec::of(mean)) * chance * scale).store(slopes + j);
    });
    fill(scores, seen, t.stride, 0.0f);
    fill(slopes, seen, t.stride, 0.0f);
}

float dot_of(const float *a, const float *b, int64_t count) {
    Vec sums = Vec::zero();
    each_vector(count, [&](auto access, int64_t j) { sums += access.load(a + j) * access.load(b + j); });
    return sum_of(sums);
}

// out, rows of keys, += leftᵀ right, where right are rows of queries.
void add_to_keys(const Tile &t, const float *left, const Matrix &right, int64_t features, const Rows &out) {
    multiply_alone({t.keys, features, t.rows, {left, 1, t.stride}, right, out.data, out.row, nullptr, true});
}

void scaled_dot_product_attention_backward(const BackwardArgs &a) {
    const Sizes &s = a.s;
    a.hidden.check(s.batch, s.keys);
    const int64_t most = tile_rows(s, 2), tiles = (s.queries + most - 1) / most;
    parallel(s.batch * s.heads, [&](int64_t task) {
        const Tile whole(s, a.hidden, task, 0, s.queries);
        float *scores = thread_scratch(), *slopes = scores + most * end_of(s.keys), means[TILE_ROWS];
        Room room(slopes + most * end_of(s.keys), scores);
        const auto queries = [&](const float *data, int64_t features) {
            return room.gathered(whole.query_rows(data, features), s.queries, features);
        };
        const auto keys = [&](const float *data, int64_t features) {
            return room.gathered(whole.key_rows(data, features), s.keys, features);
        };
        const Matrix key = keys(a.key, s.depth), value = keys(a.value, s.width);
        const Rows key_out{a.key_grad + whole.place(0, s.keys, s.depth), s.heads * s.depth};
        const Rows value_out{a.value_grad + whole.place(0, s.keys, s.width), s.heads * s.width};
        const Rows key_grad = room.zeros(key_out, s.keys, s.depth), value_grad = room.zeros(value_out, s.keys, s.width);
        const Matrix all_queries = queries(a.query, s.depth), all_grads = queries(a.grad, s.width);
        for (int64_t tile = 0; tile < tiles; tile++) {
            const Tile t(s, a.hidden, task, tile, most);
            const Matrix query = all_queries.from(t.first, 0), grad = all_grads.from(t.first, 0);
            const Matrix out = t.query_rows(a.out, s.width);
            for (int64_t i = 0; i < t.rows; i++) means[i] = dot_of(grad.from(i, 0).data, out.from(i, 0).data, s.width);
            multiply_pairs(t, query, key, s.depth, scores);
            multiply_pairs(t, grad, value, s.width, slopes);
            for (int64_t i = 0; i < t.rows; i++)
                slope_of_row(t, i, a.lse[task * s.queries + t.first + i], means[i], scores + i * t.stride,
                             slopes + i * t.stride);
            add_to_keys(t, scores, grad, s.width, value_grad);
            add_to_keys(t, slopes, query, s.depth, key_grad);
            // last: it may lie on any of the rows that were read
            multiply_alone({t.rows, s.depth, t.keys, {slopes, t.stride, 1}, key,
                            a.query_grad + t.place(t.first, s.queries, s.depth), s.heads * s.depth, nullptr, false});
        }
        scatter(key_grad, key_out, s.keys, s.depth);
        scatter(value_grad, value_out, s.keys, s.width);
    });
}

}  // namespace

KERNEL(scaled_dot_product_attention_forward, ForwardArgs)
KERNEL(scaled_dot_product_attention_backward, BackwardArgs)

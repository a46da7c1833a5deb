// A matrix product from register tiles: TILE_ROWS rows by PANEL columns, over BLOCK_DEPTH terms at a time.
//
// A task is a block of rows by a block of columns. For each block of depth it lays its part of b into panels of PANEL
// columns, then copies its part of a, some tiles of rows at once, so that no two rows of a tile share a cache set, and
// runs the panels. Both copies lie on the stack and stay in the caches. A transposed a is read where it lies.
// 2 FLOPs for each of rows * columns * depth.
#include "gemm.h"

#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t BLOCK_DEPTH = 256;
// What is laid out of b and of a at once: 256 and 128 KiB, so that both stay in a second-level cache of 1 MiB; half of
// that where caches of 256 KiB are to be expected.
#if defined(__AVX512F__)
constexpr int64_t PACKED_FLOATS = 1 << 16, GROUP_TILES = 8;
#else
constexpr int64_t PACKED_FLOATS = 1 << 15, GROUP_TILES = 4;
#endif
// Accumulators fill all vector registers but a few: 32 of them with AVX-512 and on aarch64, else 16.
#if defined(__AVX512F__)
constexpr int TILE_ROWS = 14, PANEL_VECS = 2;
#elif defined(__AVX__) || defined(__aarch64__)
constexpr int TILE_ROWS = 6, PANEL_VECS = 1;
#else
constexpr int TILE_ROWS = 3, PANEL_VECS = 1;
#endif
constexpr int64_t PANEL = PANEL_VECS * LANES;
constexpr int64_t ROW_DISTANCE = BLOCK_DEPTH + LANES;  // of a copied tile whose rows are contiguous
constexpr int64_t TILE_FLOATS = TILE_ROWS * ROW_DISTANCE;
constexpr int64_t FEW_TILES = 2;                       // for which b is not laid out anew, if its rows are contiguous
constexpr int64_t THREAD_TASKS = 4;                    // at most for each thread of several
constexpr int64_t TASK_FLOPS = 1 << 19;                // multiply-adds below which a task is not worth a thread
constexpr int64_t STRAGGLING = 4;                      // a thread is expected to be late by this part of a task
// Rows whose products take as long as laying out b, by how b lies, and columns for which they take as long as copying a;
// measured.
constexpr int64_t LAYING_OUT_ROWS = 3, TRANSPOSING_ROWS = 8, COPYING_COLUMNS = 9;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// -- copies ----------------------------------------------------------------------------------------------------------
void copy(const float *from, int64_t count, float *to) {
    int64_t j = 0;
    for (; j + LANES <= count; j += LANES) Vec::load(from + j).store(to + j);
    for (; j < count; j++) to[j] = from[j];
}

// Panels of b, `depth` by PANEL floats each and one behind the other, where b's columns are contiguous: row by row, as
// they lie. Of the last panel, vectors beyond the last column are left as they are, and lanes are zero.
void pack_rows(const Matrix &b, int64_t depth, int64_t columns, float *to) {
    for (int64_t k = 0; k < depth; k++) {
        const float *from = b.data + k * b.row;
        float *panel = to + k * PANEL;
        int64_t j = 0;
        for (; j + PANEL <= columns; j += PANEL, panel += depth * PANEL)
            for (int v = 0; v < PANEL_VECS; v++) Vec::load(from + j + v * LANES).store(panel + v * LANES);
        for (int64_t v = 0; j + v * LANES < columns && v < PANEL_VECS; v++) {
            const int64_t first = j + v * LANES;
            Part{smaller(LANES, columns - first)}.load(from + first).store(panel + v * LANES);
        }
    }
}

// The same where b's rows are contiguous: squares of NATIVE are transposed in registers.
void pack_columns(const Matrix &b, int64_t depth, int64_t columns, float *to) {
    for (int64_t start = 0; start < columns; start += PANEL, to += depth * PANEL) {
        const Matrix panel = b.from(0, start);
        const int64_t width = smaller(PANEL, columns - start);
        const int64_t whole_depth = depth / NATIVE * NATIVE, whole_width = width / NATIVE * NATIVE;
        for (int64_t j = 0; j < whole_width; j += NATIVE)
            for (int64_t k = 0; k < whole_depth; k += NATIVE)
                transpose(panel.data + j * b.column + k, b.column, to + k * PANEL + j, PANEL);
        for (int64_t k = 0; k < depth; k++)
            for (int64_t j = k < whole_depth ? whole_width : 0; j < PANEL; j++)
                to[k * PANEL + j] = j < width ? panel.data[j * b.column + k] : 0.0f;
    }
}

// How `rows` are cut into tiles: as few as there can be, and no two of them more than a row apart in size.
struct Tiles {
    int64_t count, size, larger;  // the first `larger` tiles have a row more than `size`

    explicit Tiles(int64_t rows)
        : count(divided_up(rows, TILE_ROWS)), size(rows / (count > 0 ? count : 1)), larger(rows - size * count) {}
    int64_t rows(int64_t tile) const { return size + (tile < larger); }
    int64_t start(int64_t tile) const { return size * tile + smaller(tile, larger); }
};

// Tiles `first` to `end` - 1 of a, whose rows are contiguous, with rows ROW_DISTANCE and tiles TILE_FLOATS apart.
void copy_tiles(const Matrix &a, const Tiles &tiles, int64_t first, int64_t end, int64_t depth, float *to) {
    for (int64_t t = first; t < end; t++, to += TILE_FLOATS)
        for (int64_t i = 0; i < tiles.rows(t); i++)
            copy(a.data + (tiles.start(t) + i) * a.row, depth, to + i * ROW_DISTANCE);
}

// Fetch a part of what a tile will read of a, whose columns are contiguous: terms are too far apart for the hardware to
// foresee. `row` is the tile's last; where it lies, the others do, but for those that the tile before has fetched.
void fetch_terms(const Matrix &a, int64_t row, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; k++) __builtin_prefetch(a.data + row + k * a.column, 0, 2);
}

// -- the register tile -----------------------------------------------------------------------------------------------
// Where a tile reads and writes: terms of a lie `a_column` and those of b `b_row` apart, and of the last vector of
// columns `lanes` are in the product.
struct Tile {
    const float *a, *b;
    int64_t a_column, b_row, depth;
    float *out;
    int64_t out_row;
    const float *start;
    int64_t start_row, lanes;

    INLINE Vec load(const float *from, bool last) const {
        return last ? Part{lanes}.load(from) : Vec::load(from);
    }
    INLINE void store(float *to, const Vec &v, bool last) const {
        if (last)
            Part{lanes}.store(to, v);
        else
            v.store(to);
    }
};

// out (ROWS, VECS vectors) = a b + start, where start is out itself, the bias (whose rows are 0 apart), or null for
// zero. ROW is the distance of rows in a. What out holds is fetched while the terms are added up.
template <int ROWS, int VECS, int64_t ROW> void run_tile(const Tile &given) {
    const Tile t = given;  // which no store can change
    const float *a = t.a, *b = t.b;
    Vec sums[ROWS][VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECS; v++) {
            sums[r][v] = Vec::zero();
            __builtin_prefetch(t.out + r * t.out_row + v * LANES, 1);
        }
    for (int64_t k = 0; k < t.depth; k++, a += t.a_column, b += t.b_row) {
        Vec panel[VECS];
        for (int v = 0; v < VECS; v++) panel[v] = Vec::load(b + v * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECS; v++) sums[r][v].add_product(panel[v], a[r * ROW]);
    }
    const bool part = t.lanes < LANES;
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECS; v++) {
            float *out = t.out + r * t.out_row + v * LANES;
            const bool last = part && v == VECS - 1;
            if (t.start) sums[r][v] += t.load(t.start + r * t.start_row + v * LANES, last);
            t.store(out, sums[r][v], last);
        }
}

// The function for a tile of so many rows, for VECS vectors of columns.
typedef void (*RunTile)(const Tile &);
template <int VECS, int64_t ROW, int... I> RunTile tile_of(int64_t rows, Indices<I...>) {
    static constexpr RunTile BY_ROWS[] = {run_tile<I + 1, VECS, ROW>...};
    return BY_ROWS[rows - 1];
}
template <int VECS> RunTile tile_of(int64_t rows, bool copied) {
    typedef typename Count<TILE_ROWS>::type All;
    return copied ? tile_of<VECS, ROW_DISTANCE>(rows, All()) : tile_of<VECS, 1>(rows, All());
}

// One tile by one panel. A panel of which at most the first vector counts is half the work where panels are two.
void run_panel(const Tile &t, int64_t rows, int64_t columns, bool copied) {
    (columns > LANES ? tile_of<PANEL_VECS> : tile_of<1>)(rows, copied)(t);
}

// -- blocks ----------------------------------------------------------------------------------------------------------
// Columns of a block: what is laid out for a block of depth fits PACKED_FLOATS.
int64_t block_columns(const Product &p) {
    return PACKED_FLOATS / larger(1, smaller(p.depth, BLOCK_DEPTH)) / PANEL * PANEL;
}

// One block of columns of a product.
void multiply_block(const Product &p) {
    alignas(64) float packed[PACKED_FLOATS], copied[GROUP_TILES * TILE_FLOATS];
    const bool copies = p.a.column == 1, few = p.rows <= FEW_TILES * TILE_ROWS && p.b.column == 1;
    const int64_t lying = few ? p.columns / PANEL * PANEL : 0;  // columns whose panels are read where they lie
    const Tiles tiles(p.rows);
    int64_t k = 0;
    do {
        const int64_t depth = smaller(BLOCK_DEPTH, p.depth - k);
        const int64_t share = divided_up(depth, divided_up(p.columns, PANEL));
        const Matrix a = p.a.from(0, k), b = p.b.from(k, 0);
        (b.column == 1 ? pack_rows : pack_columns)(b.from(0, lying), depth, p.columns - lying, packed + lying * depth);
        for (int64_t t = 0; t < tiles.count; t++) {
            if (copies && t % GROUP_TILES == 0)
                copy_tiles(a, tiles, t, smaller(tiles.count, t + GROUP_TILES), depth, copied);
            for (int64_t j = 0; j < p.columns; j += PANEL) {
                const int64_t columns = smaller(PANEL, p.columns - j), next = j / PANEL * share;
                if (!copies && t + 1 < tiles.count)
                    fetch_terms(a, tiles.start(t + 2) - 1, next, smaller(depth, next + share));
                float *out = p.out + tiles.start(t) * p.out_row + j;
                const bool adds = p.add || k > 0, lies = j < lying;
                run_panel({copies ? copied + t % GROUP_TILES * TILE_FLOATS : a.data + tiles.start(t),
                           lies ? b.data + j : packed + j * depth, copies ? 1 : a.column, lies ? b.row : PANEL, depth,
                           out, p.out_row, adds ? out : p.bias ? p.bias + j : nullptr, adds ? p.out_row : 0,
                           (columns - 1) % LANES + 1},
                          tiles.rows(t), columns, copies);
            }
        }
        k += depth;
    } while (k < p.depth);
}

Product part_of(const Product &p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    return {smaller(rows, p.rows - row), smaller(columns, p.columns - column), p.depth, p.a.from(row, 0),
            p.b.from(0, column), p.out + row * p.out_row + column, p.out_row, p.bias ? p.bias + column : nullptr, p.add};
}

// Rows and columns of a task.
struct Cuts {
    int64_t rows, columns, tasks;
};

Cuts cuts_of(const Product &p, int64_t row_cuts, int64_t column_cuts) {
    const int64_t rows = divided_up(p.rows, row_cuts);
    const int64_t columns = divided_up(divided_up(p.columns, column_cuts), PANEL) * PANEL;
    return {rows, columns, divided_up(p.rows, rows) * divided_up(p.columns, columns)};
}

// For one thread as few tasks as there can be. For several, what is through first if all threads are free: tasks more
// than there are threads balance them, but every task lays out its operands for itself.
Cuts best_cuts(const Product &p) {
    const int64_t threads = pool_threads(), fewest = divided_up(p.columns, block_columns(p));
    Cuts best = cuts_of(p, 1, fewest);
    if (threads == 1) return best;
    const int64_t laying_out = p.b.column == 1 ? LAYING_OUT_ROWS : TRANSPOSING_ROWS;
    const int64_t copying = p.a.column == 1 ? COPYING_COLUMNS : 0;
    const auto work = [&](const Cuts &c) {
        return p.depth * (c.rows * c.columns + laying_out * c.columns + copying * c.rows);
    };
    const auto time = [&](const Cuts &c) { return (STRAGGLING * divided_up(c.tasks, threads) + 1) * work(c); };
    for (int64_t wanted = threads; wanted <= THREAD_TASKS * threads; wanted *= 2)
        for (int64_t column_cuts = fewest; column_cuts <= wanted; column_cuts++) {
            const Cuts cuts = cuts_of(p, divided_up(wanted, column_cuts), column_cuts);
            if (work(cuts) >= TASK_FLOPS && time(cuts) < time(best)) best = cuts;
        }
    return best;
}

}  // namespace

void multiply(const Product &p) {
    if (p.rows == 0 || p.columns == 0) return;
    const Cuts cuts = best_cuts(p);
    const int64_t across = divided_up(p.columns, cuts.columns);
    parallel(cuts.tasks, [&](int64_t task) {
        multiply_block(part_of(p, task / across * cuts.rows, cuts.rows, task % across * cuts.columns, cuts.columns));
    });
}

void multiply_alone(const Product &p) {
    if (p.rows == 0) return;
    const int64_t columns = block_columns(p);
    for (int64_t j = 0; j < p.columns; j += columns) multiply_block(part_of(p, 0, p.rows, j, columns));
}

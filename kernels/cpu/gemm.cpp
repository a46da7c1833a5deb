// A matrix product from register tiles: TILE_ROWS rows by PANEL columns, over BLOCK_DEPTH terms at a time at most.
//
// A task is a block of rows by one of columns, and goes through b block by block. The first tile of rows lays each panel
// of PANEL columns out before it runs on it, and the others find it there, on the stack and in the caches. Rows of a are
// read where they lie, unless a whole tile of them shares few cache sets: then a tile is copied first. While a tile runs,
// it fetches what will be laid out, copied, read and written next, a little at a time, so that nothing waits in a queue.
// 2 FLOPs for each of rows * columns * depth.
#include "gemm.h"

#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t BLOCK_DEPTH = 256;
// What is laid out of b at once: 256 KiB, which stay in a second-level cache of 1 MiB; half of that where caches of
// 256 KiB are to be expected.
#if defined(__AVX512F__)
constexpr int64_t PACKED_FLOATS = 1 << 16;
#else
constexpr int64_t PACKED_FLOATS = 1 << 15;
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
constexpr int64_t ROW_DISTANCE = BLOCK_DEPTH + LANES;  // of a copied tile
constexpr int64_t CROWDED = 512;         // rows this many floats apart, or a multiple, share two sets of a cache at most
constexpr int64_t NEAR_FLOATS = 1 << 18;  // of a matrix that a second-level cache may hold
constexpr int64_t SHALLOW = 64;          // terms of a tile that ends before what it would fetch were there
constexpr int64_t FEW_TILES = 2;         // for which b is not laid out anew, if its rows are contiguous
constexpr int64_t THREAD_TASKS = 4;      // at most for each thread of several
constexpr int64_t TASK_FLOPS = 1 << 19;  // multiply-adds below which a task is not worth a thread
constexpr int64_t STRAGGLING = 6;        // a thread is expected to be late by this part of a task
// Rows whose products take as long as laying out b, or as reading it for a few; and columns for which they take as long as
// copying a, or as reading it across its rows; measured.
constexpr int64_t LAYING_OUT_ROWS = 9, READING_ROWS = 2, COPYING_COLUMNS = 9, CROSSING_COLUMNS = 6;

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

// The same where b's rows are contiguous: squares of NATIVE are transposed in registers, the last ones over what others
// have done where they would end outside.
void pack_columns(const Matrix &b, int64_t depth, int64_t columns, float *to) {
    for (int64_t start = 0; start < columns; start += PANEL, to += depth * PANEL) {
        const Matrix panel = b.from(0, start);
        const int64_t width = smaller(PANEL, columns - start);
        const bool squares = depth >= NATIVE && width >= NATIVE;
        for (int64_t j = 0; squares && j < width; j += NATIVE)
            for (int64_t k = 0; k < depth; k += NATIVE) {
                const int64_t column = smaller(j, width - NATIVE), term = smaller(k, depth - NATIVE);
                transpose(panel.data + column * b.column + term, b.column, to + term * PANEL + column, PANEL);
            }
        for (int64_t k = 0; k < depth; k++)
            for (int64_t j = squares ? width : 0; j < PANEL; j++)
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

// A tile of a, whose rows are contiguous, with rows ROW_DISTANCE apart.
void copy_tile(const Matrix &a, int64_t rows, int64_t depth, float *to) {
    for (int64_t i = 0; i < rows; i++) copy(a.data + i * a.row, depth, to + i * ROW_DISTANCE);
}

// Fetches a part of a matrix into the second-level cache, some lines at a time.
class Fetch {
public:
    Fetch() {}
    Fetch(const Matrix &m, int64_t rows, int64_t columns) : data(m.data) {
        const bool by_rows = m.column == 1;
        distance = by_rows ? m.row : m.column, runs = by_rows ? rows : columns;
        lines = divided_up((by_rows ? columns : rows) - 1, LANES) + 1;
    }
    // How many lines are left
    int64_t left() const { return runs * lines - line; }
    INLINE void some(int64_t count) {
        for (; count > 0 && runs > 0; count--) {
            __builtin_prefetch(data + line * LANES, 0, 2);
            if (++line == lines) line = 0, runs--, data += distance;
        }
    }

private:
    const float *data = nullptr;
    int64_t distance = 0, runs = 0, lines = 0, line = 0;  // runs of contiguous floats
};

// -- the register tile -----------------------------------------------------------------------------------------------
// Where a tile reads and writes: rows of a lie `a_row`, its terms `a_column` and those of b `b_row` apart, and of the last
// vector of columns `lanes` are in the product.
struct Tile {
    const float *a, *b;
    int64_t a_row, a_column, b_row, depth;
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

// A tile fetches something before each LANES terms, the last of which have the rest with them; a shallow one before all.
int64_t steps_of(int64_t depth) { return depth <= SHALLOW ? 1 : depth / LANES; }

// What it fetches then.
struct Ahead {
    Fetch tile, panel;
    int64_t tile_share, panel_share, out_share;  // the last in rows
};

constexpr int POINTER_ROWS = 3;  // of a are addressed from one pointer: it, and one and two distances behind it

// out (ROWS, VECS vectors) = a b + start, where start is out itself, the bias (whose rows are 0 apart), or null for
// zero. What out holds is fetched while the terms are added up.
template <int ROWS, int VECS> void run_tile(const Tile &given, Ahead &ahead) {
    constexpr int POINTERS = (ROWS + POINTER_ROWS - 1) / POINTER_ROWS;
    const Tile t = given;  // which no store can change
    const float *a[POINTERS], *b = t.b;
    Vec sums[ROWS][VECS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < VECS; v++) sums[r][v] = Vec::zero();
#pragma GCC unroll 16
    for (int i = 0; i < POINTERS; i++) a[i] = t.a + i * POINTER_ROWS * t.a_row;
    const bool shallow = t.depth <= SHALLOW;
    for (int64_t k = 0, row = 0; k < t.depth;) {
        ahead.tile.some(ahead.tile_share);
        ahead.panel.some(ahead.panel_share);
        for (const int64_t end = smaller(row + ahead.out_share, ROWS); row < end; row++)
            for (int v = 0; v < VECS; v++) __builtin_prefetch(t.out + row * t.out_row + v * LANES, 1);
        for (const int64_t end = shallow || t.depth - k < 2 * LANES ? t.depth : k + LANES; k < end; k++, b += t.b_row) {
            Vec panel[VECS];
            for (int v = 0; v < VECS; v++) panel[v] = Vec::load(b + v * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++)
                for (int v = 0; v < VECS; v++)
                    sums[r][v].add_product(panel[v], a[r / POINTER_ROWS][r % POINTER_ROWS * t.a_row]);
#pragma GCC unroll 16
            for (int i = 0; i < POINTERS; i++) a[i] += t.a_column;
        }
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
typedef void (*RunTile)(const Tile &, Ahead &);
template <int VECS, int... I> RunTile tile_of(int64_t rows, Indices<I...>) {
    static constexpr RunTile BY_ROWS[] = {run_tile<I + 1, VECS>...};
    return BY_ROWS[rows - 1];
}

// One tile by one panel. A panel of which at most the first vector counts is half the work where panels are two.
void run_panel(const Tile &t, int64_t rows, int64_t columns, Ahead &ahead) {
    typedef typename Count<TILE_ROWS>::type All;
    (columns > LANES ? tile_of<PANEL_VECS>(rows, All()) : tile_of<1>(rows, All()))(t, ahead);
}

// -- blocks ----------------------------------------------------------------------------------------------------------
// How b is cut into blocks, by columns and within these by depth: as few as there can be, and of even sizes, so that a
// block fits PACKED_FLOATS. The depth of one depends on the product's alone.
struct Blocks {
    int64_t depth, columns, down, count;

    explicit Blocks(const Product &p) {
        down = larger(1, divided_up(p.depth, BLOCK_DEPTH));
        depth = larger(1, smaller(p.depth, divided_up(divided_up(p.depth, down), LANES) * LANES));
        down = larger(1, divided_up(p.depth, depth));
        const int64_t across = divided_up(p.columns, PACKED_FLOATS / depth / PANEL * PANEL);
        columns = divided_up(divided_up(p.columns, across), PANEL) * PANEL;
        count = down * divided_up(p.columns, columns);
    }
    // Term and column where a block begins
    int64_t term(int64_t block) const { return block % down * depth; }
    int64_t column(int64_t block) const { return block / down * columns; }
};

// b is not laid out where its rows are contiguous and few tiles would read it.
bool reads_panels(const Product &p) { return p.rows <= FEW_TILES * TILE_ROWS && p.b.column == 1; }
bool copies_tiles(const Product &p) { return p.a.column == 1 && p.a.row % CROWDED == 0; }

// One block of b, by all rows of a.
class Block {
public:
    Block(const Product &product, const Blocks &blocks, int64_t number)
        : p(product), k(blocks.term(number)), first(blocks.column(number)), depth(smaller(blocks.depth, p.depth - k)),
          columns(smaller(blocks.columns, p.columns - first)), a(p.a.from(0, k)), b(p.b.from(k, first)), tiles(p.rows),
          lying(reads_panels(p) ? columns / PANEL * PANEL : 0) {}

    // Multiply, and fetch the beginning of the block that follows, if one does.
    void run(float *packed, float *copied, const Block *next) const {
        const int64_t steps = steps_of(depth), panels = divided_up(columns, PANEL);
        for (int64_t t = 0; t < tiles.count; t++) {
            Ahead ahead{t + 1 < tiles.count && depth > SHALLOW ? fetch_tile(t + 1) : Fetch(), {}, 0, 0, 0};
            ahead.tile_share = divided_up(ahead.tile.left(), panels * steps);
            if (depth > SHALLOW || p.rows * p.columns > NEAR_FLOATS) ahead.out_share = divided_up(tiles.rows(t), steps);
            if (copies_tiles(p)) copy_tile(a.from(tiles.start(t), 0), tiles.rows(t), depth, copied);
            for (int64_t j = 0; j < columns; j += PANEL) {
                if (t == 0) lay_out(j, packed);
                ahead.panel = t == 0 ? next_panel(j + PANEL) : Fetch();
                if (next && t + 1 == tiles.count && j + PANEL >= columns) ahead.panel = next->next_panel(0);
                ahead.panel_share = divided_up(ahead.panel.left(), steps);
                run_panel(tile(t, j, packed, copied), tiles.rows(t), smaller(PANEL, columns - j), ahead);
            }
        }
    }

private:
    const Product &p;
    const int64_t k, first, depth, columns;
    const Matrix a, b;
    const Tiles tiles;
    const int64_t lying;  // columns whose panels are read where they lie

    // Of a transposed tile the last row: where it lies, the others do, but for those that the tile before has fetched.
    Fetch fetch_tile(int64_t t) const {
        if (a.column != 1) return {a.from(tiles.start(t + 1) - 1, 0), 1, depth};
        return {a.from(tiles.start(t), 0), tiles.rows(t), depth};
    }
    // Where it is read in place, it is fetched from afar alone.
    Fetch next_panel(int64_t j) const {
        const bool near = j < lying && p.depth * p.columns <= NEAR_FLOATS;
        return near || depth <= SHALLOW || j >= columns ? Fetch() : Fetch(b.from(0, j), depth, smaller(PANEL, columns - j));
    }
    void lay_out(int64_t j, float *packed) const {
        if (j >= lying)
            (b.column == 1 ? pack_rows : pack_columns)(b.from(0, j), depth, smaller(PANEL, columns - j), packed + j * depth);
    }
    Tile tile(int64_t t, int64_t j, const float *packed, const float *copied) const {
        float *out = p.out + tiles.start(t) * p.out_row + first + j;
        const bool adds = p.add || k > 0, lies = j < lying, copy = copies_tiles(p);
        return {copy ? copied : a.from(tiles.start(t), 0).data, lies ? b.data + j : packed + j * depth,
                copy ? ROW_DISTANCE : a.row, a.column, lies ? b.row : PANEL, depth, out, p.out_row,
                adds ? out : p.bias ? p.bias + first + j : nullptr, adds ? p.out_row : 0,
                (smaller(PANEL, columns - j) - 1) % LANES + 1};
    }
};

// A product on this thread.
void multiply_blocks(const Product &p) {
    alignas(64) float packed[PACKED_FLOATS], copied[TILE_ROWS * ROW_DISTANCE];
    const Blocks blocks(p);
    for (int64_t i = 0; i < blocks.count; i++) {
        const Block next(p, blocks, i + 1 < blocks.count ? i + 1 : i);
        Block(p, blocks, i).run(packed, copied, i + 1 < blocks.count ? &next : nullptr);
    }
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

// For one thread one task. For several, what is through first if all threads are free: tasks more than there are threads
// balance them, but every task lays out its operands for itself.
Cuts best_cuts(const Product &p) {
    const int64_t threads = pool_threads();
    Cuts best = cuts_of(p, 1, 1);
    if (threads == 1) return best;
    const int64_t reading = copies_tiles(p) ? COPYING_COLUMNS : p.a.column == 1 ? 0 : CROSSING_COLUMNS;
    const auto work = [&](const Cuts &c) {
        const int64_t before = reads_panels(part_of(p, 0, c.rows, 0, c.columns)) ? READING_ROWS : LAYING_OUT_ROWS;
        const int64_t columns = smaller(c.columns, p.columns);
        return p.depth * (c.rows * columns + before * columns + reading * c.rows);
    };
    const auto time = [&](const Cuts &c) { return (STRAGGLING * divided_up(c.tasks, threads) + 1) * work(c); };
    for (int64_t wanted = threads; wanted <= THREAD_TASKS * threads; wanted *= 2)
        for (int64_t column_cuts = 1; column_cuts <= wanted; column_cuts++) {
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
        multiply_blocks(part_of(p, task / across * cuts.rows, cuts.rows, task % across * cuts.columns, cuts.columns));
    });
}

void multiply_alone(const Product &p) {
    if (p.rows > 0 && p.columns > 0) multiply_blocks(p);
}

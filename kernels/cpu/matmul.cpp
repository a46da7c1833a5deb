// Products of matrices as kernels: one or a batch of them, products of few rows, and sums over rows.
//
// Contract: outputs lie on no input's bytes. See gemm.h for what an element's bits depend on. 2 FLOPs for each of
// batch * rows * columns * depth; with few rows the second matrix is read once, and that is the time.
#include "gemm.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

// Matrices of a batch are `..._next` elements apart. `bias` may be null.
struct ProductArgs {
    const float *a, *b, *bias;
    float *out;
    int64_t a_row, a_column, a_next, b_row, b_column, b_next, out_row, out_next;
    int64_t batch, rows, columns, depth, add;
};

Product one_of(const ProductArgs &p, int64_t i) {
    return {p.rows, p.columns, p.depth, {p.a + i * p.a_next, p.a_row, p.a_column},
            {p.b + i * p.b_next, p.b_row, p.b_column}, p.out + i * p.out_next, p.out_row, p.bias, p.add != 0};
}

// out = a b (+ bias, or + out)
void product(const ProductArgs &p) {
    if (p.batch == 1)
        multiply(one_of(p, 0));
    else
        parallel(p.batch, [&](int64_t i) { multiply_alone(one_of(p, i)); });
}

// -- few rows --------------------------------------------------------------------------------------------------------
constexpr int64_t TASK_FLOATS = 1 << 16;  // of b
constexpr int COLUMNS = 4;

// WIDTH columns from `column` on of ROWS rows, each a product of two vectors that lie in one piece.
template <int ROWS, int WIDTH> void few_columns(const ProductArgs &p, int64_t column) {
    Vec sums[ROWS][WIDTH] = {};
    const float *b = p.b + column * p.b_column;
    int64_t k = 0;
    for (; k + LANES <= p.depth; k += LANES) {
        Vec right[WIDTH];
        for (int j = 0; j < WIDTH; j++) right[j] = Vec::load(b + j * p.b_column + k);
        for (int i = 0; i < ROWS; i++) {
            const Vec left = Vec::load(p.a + i * p.a_row + k);
            for (int j = 0; j < WIDTH; j++) sums[i][j].add_product(left, right[j]);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < WIDTH; j++) {
            float sum = sum_of(sums[i][j]);
            for (int64_t rest = k; rest < p.depth; rest++) sum += p.a[i * p.a_row + rest] * b[j * p.b_column + rest];
            p.out[i * p.out_row + column + j] = sum + (p.bias ? p.bias[column + j] : 0.0f);
        }
}

template <int ROWS> void few_rows(const ProductArgs &p, int64_t column, int64_t end) {
    for (; column + COLUMNS <= end; column += COLUMNS) few_columns<ROWS, COLUMNS>(p, column);
    for (; column < end; column++) few_columns<ROWS, 1>(p, column);
}

// out = a b (+ bias) for 1 to 4 rows, where rows of a and columns of b lie in one piece.
void product_few_rows(const ProductArgs &p) {
    const auto rows = p.rows == 1 ? few_rows<1> : p.rows == 2 ? few_rows<2> : p.rows == 3 ? few_rows<3> : few_rows<4>;
    const int64_t wanted = TASK_FLOATS / (p.depth > 0 ? p.depth : 1) / COLUMNS * COLUMNS;
    const int64_t columns = wanted > COLUMNS ? wanted : COLUMNS;
    parallel((p.columns + columns - 1) / columns, [&](int64_t task) {
        const int64_t end = task * columns + columns;
        rows(p, task * columns, end < p.columns ? end : p.columns);
    });
}

// -- sums ------------------------------------------------------------------------------------------------------------
struct SumRowsArgs {
    const float *data;
    const float *running;  // sums of earlier rows to go on from, which may be `out`; or null
    float *out;
    int64_t rows, columns, chunk;
};

constexpr int SUM_VECS = 8;            // of columns that are summed together
constexpr int64_t SUM_ROWS_AHEAD = 8;  // to fetch: rows lie too far apart for the hardware to foresee

// Some vectors of columns, from column `first` on.
template <int VECS, class Access> void sum_columns(const SumRowsArgs &a, const Access &access, int64_t first) {
    Vec total[VECS];
    for (int v = 0; v < VECS; v++)
        total[v] = a.running ? access.load(a.running + first + v * LANES) : Vec::zero();
    for (int64_t start = 0; start < a.rows; start += a.chunk) {
        const int64_t end = start + a.chunk < a.rows ? start + a.chunk : a.rows;
        Vec sums[VECS] = {};
        for (int64_t i = start; i < end; i++)
            for (int v = 0; v < VECS; v++) {
                const float *at = a.data + i * a.columns + first + v * LANES;
                __builtin_prefetch(at + SUM_ROWS_AHEAD * a.columns);
                sums[v] += access.load(at);
            }
        for (int v = 0; v < VECS; v++) total[v] += sums[v];
    }
    for (int v = 0; v < VECS; v++) access.store(a.out + first + v * LANES, total[v]);
}

// out[j] = running[j] + the sum over rows of data[i * columns + j]: of each `chunk` rows alone, and these in order
void sum_rows(const SumRowsArgs &a) {
    constexpr int64_t together = SUM_VECS * LANES;
    parallel((a.columns + together - 1) / together, [&](int64_t task) {
        const int64_t first = task * together;
        if (a.columns - first >= together)
            sum_columns<SUM_VECS>(a, Whole{}, first);
        else
            each_vector(a.columns - first, [&](auto access, int64_t j) { sum_columns<1>(a, access, first + j); });
    });
}

struct CopyArgs {
    const float *data;
    float *out;
    int64_t size;
};

void copy_floats(const CopyArgs &a) {
    if (a.data != a.out) memcpy(a.out, a.data, static_cast<size_t>(a.size) * sizeof(float));
}

}  // namespace

KERNEL(copy_floats, CopyArgs)
KERNEL(product, ProductArgs)
KERNEL(product_few_rows, ProductArgs)
KERNEL(sum_rows, SumRowsArgs)

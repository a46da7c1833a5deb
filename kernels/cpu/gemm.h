// Products of matrices on the pool's threads, for kernels that are one or many of them.
#pragma once
#include <cstdint>

// Element (i, j) is data[i * row + j * column]; one of the two distances is 1, so either may lie transposed.
struct Matrix {
    const float *data;
    int64_t row, column;

    Matrix from(int64_t i, int64_t j) const { return {data + i * row + j * column, row, column}; }
    Matrix transposed() const { return {data, column, row}; }
};

// out (rows, columns) = a (rows, depth) b (depth, columns), whose rows are `out_row` elements apart; with `bias`, a value
// for each column is added, with `add` what out held before (not both). The sums over depth begin anew with each
// of its blocks and are added in order, so an element's bits depend on its own row, column and depth alone.
struct Product {
    int64_t rows, columns, depth;
    Matrix a, b;
    float *out;
    int64_t out_row;
    const float *bias;
    bool add;
};

// One product, cut into tasks for all threads.
void multiply(const Product &product);

// One product on this thread alone, for kernels whose tasks are products themselves.
void multiply_alone(const Product &product);

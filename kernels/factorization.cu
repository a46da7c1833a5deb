// factorization.cu: triangles, triangular equations, Cholesky factors, and elimination.
//
// A thread works on one matrix, or on one column of the right-hand side, as the row-by-row definition does: for batches
// of small matrices. Out may be the right-hand side, and of cholesky the matrix. Elimination takes a copy of each matrix
// in the workspace. Bytes: each matrix once for each of its columns. FLOPs: n^3 and less.
#include "common.h"

extern "C" __global__ void triangle_float32(const float *data, float *out, long long n, long long size, int lower,
                                            float diagonal) {
  GRID_STRIDE (i, n) {
    long long row = i / size % size, column = i % size;
    float kept = (lower ? column < row : column > row) ? data[i] : 0.f;
    out[i] = row == column ? data[i] * diagonal : kept;
  }
}

extern "C" __global__ void solve_triangular_float32(const float *a, const float *given, float *out, long long count,
                                                    long long size, long long columns, int lower, int transpose) {
  GRID_STRIDE (i, count * columns) {
    const float *matrix = a + i / columns * size * size;
    const float *source = given + i / columns * size * columns + i % columns;
    float *target = out + i / columns * size * columns + i % columns;
    bool forward = lower != transpose;
    for (long long step = 0; step < size; ++step) {
      long long k = forward ? step : size - 1 - step;
      float total = source[k * columns];
      for (long long done = 0; done < step; ++done) {
        long long j = forward ? done : size - 1 - done;
        total -= target[j * columns] * (transpose ? matrix[j * size + k] : matrix[k * size + j]);
      }
      target[k * columns] = total / matrix[k * size + k];
    }
  }
}

extern "C" __global__ void cholesky_float32(const float *a, float *out, long long count, long long size) {
  GRID_STRIDE (i, count) {
    const float *source = a + i * size * size;
    float *factor = out + i * size * size;
    for (long long k = 0; k < size; ++k) {
      float root = 0.f;
      for (long long row = k; row < size; ++row) {
        float total = source[row * size + k];
        for (long long j = 0; j < k; ++j) total -= factor[row * size + j] * factor[k * size + j];
        if (row == k) root = sqrtf(total);
        factor[row * size + k] = total / root;
      }
    }
    for (long long k = 0; k < size * size; ++k)
      if (k % size > k / size) factor[k] = 0.f;
  }
}

extern "C" __global__ void eliminate_float32(const float *a, float *inverses, float *signs, float *logarithms,
                                             float *work, long long count, long long size) {
  GRID_STRIDE (i, count) {
    float *both[2] = {work + i * size * size, inverses + i * size * size};
    float sign = 1.f, logarithm = 0.f;
    for (long long k = 0; k < size * size; ++k) {
      both[0][k] = a[i * size * size + k];
      both[1][k] = k % (size + 1) == 0 ? 1.f : 0.f;
    }
    for (long long k = 0; k < size; ++k) {
      long long best = k;
      for (long long j = k + 1; j < size; ++j)
        if (fabsf(both[0][j * size + k]) > fabsf(both[0][best * size + k])) best = j;
      if (best != k) {
        sign = -sign;
        for (int m = 0; m < 2; ++m)
          for (long long c = 0; c < size; ++c) {
            float other = both[m][k * size + c];
            both[m][k * size + c] = both[m][best * size + c];
            both[m][best * size + c] = other;
          }
      }
      float pivot = both[0][k * size + k];
      sign *= pivot > 0.f ? 1.f : pivot < 0.f ? -1.f : pivot;
      logarithm += logf(fabsf(pivot));
      for (int m = 0; m < 2; ++m)
        for (long long c = 0; c < size; ++c) both[m][k * size + c] /= pivot;
      for (long long j = 0; j < size; ++j) {
        if (j == k) continue;
        float factor = both[0][j * size + k];
        for (int m = 0; m < 2; ++m)
          for (long long c = 0; c < size; ++c) both[m][j * size + c] -= factor * both[m][k * size + c];
      }
    }
    signs[i] = sign;
    logarithms[i] = logarithm;
  }
}

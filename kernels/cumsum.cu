// cumsum.cu: sums of all elements up to each along an axis, of rows (outer, length, inner).
//
// A thread adds up one row in order, so that the bits are NumPy's. Bytes: 8 n. FLOPs: n. Nothing in place.
#include "common.h"

extern "C" __global__ void cumsum_float32(const float *data, float *out, long long rows, long long length,
                                          long long inner) {
  GRID_STRIDE (row, rows) {
    long long start = row / inner * length * inner + row % inner;
    float total = 0.f;
    for (long long k = 0; k < length; ++k) {
      total = k ? total + data[start + k * inner] : data[start];
      out[start + k * inner] = total;
    }
  }
}

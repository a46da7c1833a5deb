// ids.h: class numbers, labels and row numbers as kernels read them: float32, int32 or int64, fractions cut
// off.
//
// An id that is NaN or outside [0, bound) never becomes an address: id_at gives -1 for it. What an operator
// does then is the same in its forward and its backward kernel. A device that is asked to check launches
// ids_check of indexing.cu before them.
#pragma once

enum IdKind { kFloat32 = 0, kInt32 = 1, kInt64 = 2 };  // in the order of rows.py

// The id at a place; -1 when it is NaN or outside [0, bound).
__device__ __forceinline__ long long id_at(const void *ids, int kind, long long place, long long bound) {
  if (kind == kFloat32) {
    // Rounding the bound is safe: no float lies between a number and the float nearest to it.
    float x = static_cast<const float *>(ids)[place];
    return x >= 0.f && x < float(bound) ? (long long)x : -1;
  }
  long long x =
      kind == kInt32 ? static_cast<const int *>(ids)[place] : static_cast<const long long *>(ids)[place];
  return x >= 0 && x < bound ? x : -1;
}

// The number at a place, rounded to float.
__device__ __forceinline__ float number_at(const void *ids, int kind, long long place) {
  if (kind == kFloat32) return static_cast<const float *>(ids)[place];
  return kind == kInt32 ? float(static_cast<const int *>(ids)[place])
                        : float(static_cast<const long long *>(ids)[place]);
}

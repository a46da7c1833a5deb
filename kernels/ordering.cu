// ordering.cu: the largest or smallest elements along an axis, in order, and their gradient.
//
// A tensor (outer, classes, inner) is seen as rows of `classes`. begin writes a key and an index an element
// to workspace; each merge reads runs of `width` and writes runs twice as long beside them: an element's
// place is its own in its run and the number of elements of the neighbouring run that come before it, found
// by bisection. So equal elements stay in the order they came, and no two threads write to one place. NaN
// comes last. take writes the first k of each row.
//
// Memory: workspace is two copies of (key, index), 16 bytes an element. Bytes: 16 n a merge, of which there
// are log2(classes). FLOPs: log2(classes) comparisons an element and merge. backward: n floats of 0, then k
// a row of grad, each to a place of its own.
#include "ids.h"
#include "rows.h"

__device__ __forceinline__ bool before(float a, float b) { return a < b || (a == a && b != b); }

// `sign` is 1 for the least first, -1 for the largest first.
extern "C" __global__ void topk_forward_begin(const float *__restrict__ data, float *__restrict__ keys,
                                              int *__restrict__ indices, long long n, long long classes,
                                              long long inner, float sign) {
  GRID_STRIDE (i, n) {
    long long r = i / classes, c = i - r * classes;
    keys[i] = data[Row(r, classes, inner).at(c)] * sign;
    indices[i] = (int)c;
  }
}

extern "C" __global__ void topk_forward_merge(const float *__restrict__ keys, const int *__restrict__ indices,
                                              float *__restrict__ to_keys, int *__restrict__ to_indices,
                                              long long n, long long classes, long long width) {
  GRID_STRIDE (i, n) {
    long long start = i / classes * classes, c = i - start, run = c / width, first = run / 2 * 2 * width;
    bool left = run % 2 == 0;
    long long theirs_from = left ? first + width : first;
    long long low = theirs_from < classes ? theirs_from : classes;
    long long high = low + width < classes ? low + width : classes, begin = low;
    float key = keys[i];
    while (low < high) {  // the neighbours that come before: less, or equal and to the left
      long long middle = (low + high) / 2;
      float theirs = keys[start + middle];
      if (left ? before(theirs, key) : !before(key, theirs))
        low = middle + 1;
      else
        high = middle;
    }
    long long place = start + first + (c - run * width) + (low - begin);
    to_keys[place] = key;
    to_indices[place] = indices[i];
  }
}

// out (outer, k, inner) = the elements that the first k indices of each row name
extern "C" __global__ void topk_forward_values(const float *__restrict__ data,
                                               const int *__restrict__ indices, float *__restrict__ out,
                                               long long n, long long k, long long classes, long long inner) {
  GRID_STRIDE (i, n) {
    long long r = i / k, j = i - r * k;
    out[Row(r, k, inner).at(j)] = data[Row(r, classes, inner).at(indices[r * classes + j])];
  }
}

#define INDICES(NAME, TYPE)                                                                                \
  extern "C" __global__ void topk_forward_indices_##NAME(const int *__restrict__ indices,                  \
                                                         TYPE *__restrict__ out, long long n, long long k, \
                                                         long long classes, long long inner) {             \
    GRID_STRIDE (i, n) {                                                                                   \
      long long r = i / k, j = i - r * k;                                                                  \
      out[Row(r, k, inner).at(j)] = (TYPE)indices[r * classes + j];                                        \
    }                                                                                                      \
  }
INDICES(float32, float)
INDICES(float64, double)
INDICES(int32, int)
INDICES(int64, long long)
INDICES(uint8, unsigned char)

// 1 at the first k of each row; the mask is 0 before
extern "C" __global__ void topk_forward_mask(const int *__restrict__ indices, float *__restrict__ mask,
                                             long long n, long long k, long long classes, long long inner) {
  GRID_STRIDE (i, n) {
    long long r = i / k, j = i - r * k;
    mask[Row(r, classes, inner).at(indices[r * classes + j])] = 1.f;
  }
}

// data_grad is 0 before; an index out of range gets no gradient
extern "C" __global__ void topk_backward_scatter(const float *__restrict__ grad, const void *ids, int kind,
                                                 float *__restrict__ data_grad, long long n, long long k,
                                                 long long classes, long long inner) {
  GRID_STRIDE (i, n) {
    long long r = i / k, place = Row(r, k, inner).at(i - r * k), id = id_at(ids, kind, place, classes);
    if (id >= 0) data_grad[Row(r, classes, inner).at(id)] = grad[place];
  }
}

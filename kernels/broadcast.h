// broadcast.h: elementwise functions of two tensors that are repeated to one shape.
#pragma once

#include "common.h"

// out[i] = f(lhs at its place, rhs at its place): `shape` are the sizes of out, *_steps the strides of an
// operand, 0 along the axes on which it is repeated. Each thread reads element i before it writes it, so out
// may be an operand of its size.
template <class F>
__device__ __forceinline__ void broadcast_each(const float *lhs, const float *rhs, float *out, long long n,
                                               const Dims &shape, const Dims &lhs_steps,
                                               const Dims &rhs_steps, F f) {
  GRID_STRIDE (i, n) {
    long long index = i, l = 0, r = 0;
    for (int k = 7; k > 0 && index > 0; --k) {
      long long rest = index / shape.d[k], place = index - rest * shape.d[k];
      l += place * lhs_steps.d[k];
      r += place * rhs_steps.d[k];
      index = rest;
    }
    out[i] = f(lhs[l + index * lhs_steps.d[0]], rhs[r + index * rhs_steps.d[0]]);
  }
}

#define BROADCAST(NAME, STATEMENT)                                                                         \
  extern "C" __global__ void NAME(const float *lhs, const float *rhs, float *out, long long n, Dims shape, \
                                  Dims lhs_steps, Dims rhs_steps) {                                        \
    broadcast_each(lhs, rhs, out, n, shape, lhs_steps, rhs_steps, [](float x, float y) { STATEMENT; });    \
  }

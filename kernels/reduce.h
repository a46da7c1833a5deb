// reduce.h: a reduction over any axes, by a kind K of reduction with K::over<Group>(count, f): what f(0),
// f(1),
// ... f(count - 1) come to, known to the first thread of the group. The memory contract is that of reduce.cu.
#pragma once

#include "rows.h"

// kept and reduced are the sizes of those axes, *_steps their strides in x. Neighbouring groups take
// neighbouring outputs, so that a thread for each output reads what its neighbours read beside it.
template <class Group, class Kind>
__device__ __forceinline__ void reduce_forward(const float *x, float *out, long long outputs,
                                               long long pieces, long long length, long long piece,
                                               const Dims &kept, const Dims &kept_steps, const Dims &reduced,
                                               const Dims &reduced_steps, float divisor) {
  FOR_ROWS(Group, r, outputs * pieces) {
    long long number = r / outputs, output = r - number * outputs, start = number * piece;
    long long count = length - start < piece ? length - start : piece;
    const float *from = x + strided_offset(output, kept, kept_steps);
    float result = Kind::template over<Group>(count, [&](long long k) {
      long long i = start + k;
      // The last reduced axis alone takes no division.
      return from[i < reduced.d[7] ? i * reduced_steps.d[7] : strided_offset(i, reduced, reduced_steps)];
    });
    if (Group::first() == 0) out[output * pieces + number] = result / divisor;
  }
}

#define REDUCE_PARAMETERS                                                                              \
  (const float *x, float *out, long long outputs, long long pieces, long long length, long long piece, \
   Dims kept, Dims kept_steps, Dims reduced, Dims reduced_steps, float divisor)
#define REDUCE_ARGUMENTS \
  (x, out, outputs, pieces, length, piece, kept, kept_steps, reduced, reduced_steps, divisor)

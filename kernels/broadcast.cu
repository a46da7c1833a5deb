// broadcast.cu: arithmetic of tensors that are repeated to one shape, and the sum that takes a gradient
// back.
//
// broadcast_*: n floats of out are written; each operand is read where its strides lead, with stride 0 on
// the axes along which it is repeated. out may be an operand of its size. No workspace. Bytes: 4 (lhs + rhs
// + n). FLOPs: n.
//
// sum_like_*: sums a strided tensor over some of its axes. Each output is the sum of `length` elements, cut
// into parts of `part_length`; with more than one part the workspace holds the sums as (outputs, parts)
// floats, and a second launch adds them. The cuts depend on shapes only. Bytes: 4 (data + outputs) and 8 a
// part. FLOPs: data.
#include "broadcast.h"
#include "common.h"

// ---- arithmetic ----------------------------------------------------------------------------------

BROADCAST(broadcast_add_forward_strided, return x + y)
BROADCAST(broadcast_sub_forward_strided, return x - y)
BROADCAST(broadcast_mul_forward_strided, return x * y)
BROADCAST(broadcast_div_forward_strided, return x / y)

// ---- sums ----------------------------------------------------------------------------------------

// The tensor that is summed: sizes and strides of the axes that are kept, and of those that are summed, whose
// last one is taken apart so that walking along it needs no division.
struct SumAxes {
  Dims kept, kept_steps, outer, outer_steps;
  long long inner, inner_step;
};

// The sum of elements first, first + step, ... below last of one output's elements.
__device__ __forceinline__ float walk(const float *data, const SumAxes &axes, long long first, long long last,
                                      long long step) {
  float sum = 0.f;
  long long i = first % axes.inner;
  const float *row = data + strided_offset(first / axes.inner, axes.outer, axes.outer_steps);
  for (long long r = first; r < last; r += step) {
    sum += row[i * axes.inner_step];
    i += step;
    if (i >= axes.inner && r + step < last) {
      i = (r + step) % axes.inner;
      row = data + strided_offset((r + step) / axes.inner, axes.outer, axes.outer_steps);
    }
  }
  return sum;
}

// sums[o * parts + part], a thread each: for kept last axes, along which neighbouring threads read
// neighbours.
extern "C" __global__ void sum_like_forward_threads(const float *data, float *sums, long long outputs,
                                                    long long length, long long part_length, long long parts,
                                                    SumAxes axes) {
  GRID_STRIDE (i, outputs * parts) {
    long long part = i / outputs, o = i - part * outputs, first = part * part_length;
    long long last = min(first + part_length, length);
    const float *mine = data + strided_offset(o, axes.kept, axes.kept_steps);
    sums[o * parts + part] = walk(mine, axes, first, last, 1);
  }
}

// sums[o * parts + part], a warp each: for short sums along the last axis.
extern "C" __global__ void sum_like_forward_warps(const float *data, float *sums, long long outputs,
                                                  long long length, long long part_length, long long parts,
                                                  SumAxes axes) {
  long long warp = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32;
  for (long long i = warp; i < outputs * parts; i += (long long)gridDim.x * blockDim.x / 32) {
    long long o = i / parts, first = (i - o * parts) * part_length;
    long long last = min(first + part_length, length);
    const float *mine = data + strided_offset(o, axes.kept, axes.kept_steps);
    float sum = warp_sum(walk(mine, axes, first + threadIdx.x % 32, last, 32));
    if (threadIdx.x % 32 == 0) sums[i] = sum;
  }
}

// sums[o * parts + part], a block each: for long sums along the last axis.
extern "C" __global__ void sum_like_forward_blocks(const float *data, float *sums, long long outputs,
                                                   long long length, long long part_length, long long parts,
                                                   SumAxes axes) {
  __shared__ float scratch[32];
  for (long long i = blockIdx.x; i < outputs * parts; i += gridDim.x) {
    long long o = i / parts, first = (i - o * parts) * part_length;
    long long last = min(first + part_length, length);
    const float *mine = data + strided_offset(o, axes.kept, axes.kept_steps);
    float sum = block_sum(walk(mine, axes, first + threadIdx.x, last, blockDim.x), scratch);
    if (threadIdx.x == 0) sums[i] = sum;
  }
}

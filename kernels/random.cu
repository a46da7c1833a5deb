// random.cu: dropout, and uniform and normal samples. philox.h says how the numbers are keyed; no mask is
// stored.
//
// dropout: reads n floats of data, draws a factor for each, or for each element of the shape in which draws
// are shared, and writes n floats of out, which may be data. A slice of a tensor draws from a later block on.
// Backward is the same kernel on the gradient.
//
// uniform, normal: write n floats. No workspace. Bytes: 8 n and 4 n. FLOPs: about 40 integer operations an
// element where draws are shared, 10 elsewhere.
#include "common.h"
#include "philox.h"

// Kept iff the upper 24 bits of the word are at least the threshold: iff the uniform number is >= p.
__device__ __forceinline__ float keep(unsigned int word, unsigned int threshold, float scale) {
  return word >> 8 >= threshold ? scale : 0.f;
}

extern "C" __global__ void dropout_forward_float32(const float *data, const unsigned int *control, float *out,
                                                   long long n, unsigned int ordinal, unsigned int threshold,
                                                   float scale, long long first_block) {
  GRID_STRIDE (block, (n + 3) / 4) {
    RandomWords words = philox_block(control, ordinal, first_block + block);
    if (4 * block + 4 <= n) {
      float4 x = reinterpret_cast<const float4 *>(data)[block];
      x.x *= keep(words.w[0], threshold, scale);
      x.y *= keep(words.w[1], threshold, scale);
      x.z *= keep(words.w[2], threshold, scale);
      x.w *= keep(words.w[3], threshold, scale);
      reinterpret_cast<float4 *>(out)[block] = x;
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w)
        if (4 * block + w < n) out[4 * block + w] = data[4 * block + w] * keep(words.w[w], threshold, scale);
    }
  }
}

// One draw for all elements that differ only along the axes of stride 0 in `steps`.
extern "C" __global__ void dropout_forward_shared(const float *data, const unsigned int *control, float *out,
                                                  long long n, unsigned int ordinal, unsigned int threshold,
                                                  float scale, Dims shape, Dims steps) {
  GRID_STRIDE (i, n) {
    long long draw = strided_offset(i, shape, steps);
    out[i] = data[i] * keep(philox_word(control, ordinal, draw), threshold, scale);
  }
}

extern "C" __global__ void uniform_forward_float32(const unsigned int *control, float *out, long long n,
                                                   unsigned int ordinal, float low, float width) {
  GRID_STRIDE (block, (n + 3) / 4) {
    RandomWords words = philox_block(control, ordinal, block);
#pragma unroll
    for (int w = 0; w < 4; ++w)
      if (4 * block + w < n) out[4 * block + w] = uniform_between(words.w[w], low, width);
  }
}

// Box and Muller: words (0, 1) give elements (0, 1), words (2, 3) elements (2, 3).
extern "C" __global__ void normal_forward_float32(const unsigned int *control, float *out, long long n,
                                                  unsigned int ordinal, float mean, float deviation) {
  GRID_STRIDE (block, (n + 3) / 4) {
    RandomWords words = philox_block(control, ordinal, block);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if (4 * block + w >= n) continue;
      float radius = sqrtf(-2.f * log1pf(-uniform_number(words.w[w & 2])));
      float angle = 6.2831853f * uniform_number(words.w[w | 1]);
      out[4 * block + w] = radius * (w & 1 ? sinf(angle) : cosf(angle)) * deviation + mean;
    }
  }
}

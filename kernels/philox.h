// philox.h: Philox-4x32-10 (Salmon et al., SC 2011), random numbers from a counter, with the bits of
// ops/philox.py.
//
// Block b of a random op is the cipher of the counter (b low, b high, step, ordinal) under the key (seed
// low, seed high); element i of a tensor is word i % 4 of block i / 4. `control` is the step's control
// buffer, read as words.
#pragma once

struct RandomWords {
  unsigned int w[4];
};

__device__ __forceinline__ RandomWords philox_block(const unsigned int *control, unsigned int ordinal,
                                                    long long block) {
  unsigned int c0 = (unsigned int)block, c1 = (unsigned int)(block >> 32), c2 = control[2], c3 = ordinal;
  unsigned int k0 = control[0], k1 = control[1];
  for (int turn = 0; turn < 10; ++turn) {
    unsigned int high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    unsigned int high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return RandomWords{{c0, c1, c2, c3}};
}

// The word of element i alone; chosen without an index, which would put the block into memory.
__device__ __forceinline__ unsigned int philox_word(const unsigned int *control, unsigned int ordinal,
                                                    long long i) {
  RandomWords words = philox_block(control, ordinal, i / 4);
  return i & 2 ? (i & 1 ? words.w[3] : words.w[2]) : (i & 1 ? words.w[1] : words.w[0]);
}

// The upper 24 bits as a multiple of 2^-24 in [0, 1), exact.
__device__ __forceinline__ float uniform_number(unsigned int word) { return float(word >> 8) * 0x1p-24f; }

// low + (high - low) times a uniform number, rounded twice as NumPy does and not once as a fused operation.
__device__ __forceinline__ float uniform_between(unsigned int word, float low, float width) {
  return __fadd_rn(__fmul_rn(uniform_number(word), width), low);
}

// Dropout: factors of 0 or 1 / (1 - p) from the Philox-4x32-10 cipher that ops/philox.py defines, never stored.
//
// Contract: the output may lie on the data. Element i is word i % 4 of block first_block + i / 4.
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t BLOCK = 1 << 14;  // elements of a task
constexpr int TOGETHER = 16;        // blocks of the cipher that are made side by side
constexpr int64_t TILE = 4 * TOGETHER;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct DropoutArgs {
    const float *data;
    const uint32_t *control;  // seed, low and high, and step
    float *out;
    int64_t size, ordinal, first_block;
    int64_t threshold;  // a word is kept whose upper 24 bits reach it
    float scale;
};

// The four words of blocks first, first + 1, ... as words[w][i].
INLINE void philox(const DropoutArgs &a, uint64_t first, uint32_t (&words)[4][TOGETHER]) {
    uint32_t keys[2] = {a.control[0], a.control[1]};
    for (int i = 0; i < TOGETHER; i++) {
        const uint64_t block = first + static_cast<uint64_t>(i);
        words[0][i] = static_cast<uint32_t>(block), words[1][i] = static_cast<uint32_t>(block >> 32);
        words[2][i] = a.control[2], words[3][i] = static_cast<uint32_t>(a.ordinal);
    }
    for (int turn = 0; turn < 10; turn++, keys[0] += 0x9E3779B9u, keys[1] += 0xBB67AE85u) {
        for (int i = 0; i < TOGETHER; i++) {
            const uint64_t low = uint64_t{words[0][i]} * 0xD2511F53u, high = uint64_t{words[2][i]} * 0xCD9E8D57u;
            words[0][i] = static_cast<uint32_t>(high >> 32) ^ words[1][i] ^ keys[0];
            words[2][i] = static_cast<uint32_t>(low >> 32) ^ words[3][i] ^ keys[1];
            words[1][i] = static_cast<uint32_t>(high), words[3][i] = static_cast<uint32_t>(low);
        }
    }
}

void dropout(const DropoutArgs &a) {
    const uint32_t threshold = static_cast<uint32_t>(a.threshold);
    parallel((a.size + BLOCK - 1) / BLOCK, [&](int64_t task) {
        const int64_t last = least(a.size, (task + 1) * BLOCK);
        for (int64_t begin = task * BLOCK; begin < last; begin += TILE) {
            uint32_t words[4][TOGETHER];
            float factors[TILE];
            philox(a, static_cast<uint64_t>(a.first_block + begin / 4), words);
            for (int i = 0; i < TOGETHER; i++)
                for (int w = 0; w < 4; w++) factors[4 * i + w] = (words[w][i] >> 8) >= threshold ? a.scale : 0.0f;
            each_vector(least(TILE, last - begin), [&](auto access, int64_t i) {
                access.store(a.out + begin + i, access.load(a.data + begin + i) * Vec::load(factors + i));
            });
        }
    });
}

}  // namespace

KERNEL(dropout, DropoutArgs)

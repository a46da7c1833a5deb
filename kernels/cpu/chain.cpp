// A program of elementwise kernels over one shape, a block at a time: what one step leaves for the next stays in the
// core's cache.
//
// Contract: the output may lie on any input's bytes, for only a block's last step writes it. A step is a kernel of
// elemwise.cpp, which works on this thread alone when it is given no more than a block, so results are those of the
// kernels one by one. Memory-bound: 4 bytes of each input and of the output an element. Inputs may be bits (bits.cpp).
#include "kernel.h"
#include "pool.h"

namespace {

constexpr int64_t BLOCK = 1 << 12;  // elements: 16 KiB of each register
constexpr int MAX_INPUTS = 8, MAX_CALLS = 24, MAX_READS = 2;

struct ChainCall {
    void (*run)(const void *args);
    int64_t reads, read[MAX_READS], write;  // registers
    float first, second;
};

// Registers are the inputs, the output, and blocks of scratch from there on.
struct ChainArgs {
    float *tensors[MAX_INPUTS + 1];
    int64_t size, bits, calls;  // bits: which tensors are bits of elements
    ChainCall call[MAX_CALLS];
};

// The arguments of a unary or a binary kernel, packed as it takes them.
struct Packed {
    unsigned char bytes[(MAX_READS + 2) * sizeof(void *) + 2 * sizeof(float)];
    int64_t used = 0;

    template <class T> void add(const T &value) {
        __builtin_memcpy(bytes + used, &value, sizeof value);
        used += sizeof value;
    }
};

void chain_forward(const ChainArgs &a) {
    parallel((a.size + BLOCK - 1) / BLOCK, [&](int64_t block) {
        const int64_t begin = block * BLOCK, count = a.size - begin < BLOCK ? a.size - begin : BLOCK;
        float *scratch = thread_scratch();
        const auto at = [&](int64_t r) {
            if (r > MAX_INPUTS) return scratch + (r - MAX_INPUTS - 1) * BLOCK;
            if (a.bits >> r & 1) return reinterpret_cast<float *>(reinterpret_cast<uint8_t *>(a.tensors[r]) + begin / 8);
            return a.tensors[r] + begin;
        };
        for (int64_t k = 0; k < a.calls; k++) {
            const ChainCall &call = a.call[k];
            alignas(void *) Packed args;
            for (int64_t i = 0; i < call.reads; i++) args.add(at(call.read[i]));
            args.add(at(call.write));
            args.add(count);
            args.add(call.first);
            args.add(call.second);
            call.run(args.bytes);
        }
    });
}

static_assert(MAX_CALLS * BLOCK <= SCRATCH_FLOATS, "every call of the longest chain has a block of scratch");

}  // namespace

KERNEL(chain_forward, ChainArgs)

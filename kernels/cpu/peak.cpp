// Multiply-adds in registers alone: the arithmetic that one thread can do at most, for benchmarks to compare with.
#include "kernel.h"
#include "vector.h"

namespace {

constexpr int CHAINS = 10;  // as many as hide the latency of two multiply-adds a cycle

struct PeakArgs {
    float *out;  // NATIVE floats, without which the sums would be left out
    int64_t rounds;
};

// 2 * rounds * CHAINS * NATIVE FLOPs.
void peak(const PeakArgs &a) {
    Native sum[CHAINS], factor = Native{} + 0.999f, term = Native{} + 0.001f;
#pragma GCC unroll 10
    for (int i = 0; i < CHAINS; i++) sum[i] = Native{} + static_cast<float>(i);
    for (int64_t round = 0; round < a.rounds; round++)
#pragma GCC unroll 10
        for (int i = 0; i < CHAINS; i++) sum[i] = sum[i] * factor + term;
    Native total = Native{};
#pragma GCC unroll 10
    for (int i = 0; i < CHAINS; i++) total += sum[i];
    *reinterpret_cast<Unaligned *>(a.out) = total;
}

}  // namespace

KERNEL(peak, PeakArgs)

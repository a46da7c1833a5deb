// One bit an element: comparisons of a tensor's elements, and gradients that are scaled by them.
//
// Contract: element i, in the order in which elements lie, is bit i % 8 of byte i / 8, and bits behind the last element
// are 0; gradients may be written over. Memory-bound: 4 bytes of each tensor and an eighth of one of bits an element.
#include "elementwise.h"
#include "functions.h"
#include "kernel.h"

namespace {

// The lanes of which all bits are set, as a number.
INLINE uint32_t number_of(NativeInt lanes) {
#if defined(__x86_64__)
    return highest_bits(lanes);
#else
    uint32_t found = 0;
    for (int i = 0; i < NATIVE; i++) found |= (lanes[i] & 1u) << i;
    return found;
#endif
}

template <int... I> INLINE NativeInt powers(Indices<I...>) { return NativeInt{(1 << I)...}; }

// Whether each lane's bit of a number is set.
INLINE NativeInt lanes_of(uint32_t number) {
    const NativeInt own = powers(Count<NATIVE>::type());
    return ((NativeInt{} + static_cast<int32_t>(number)) & own) == own;
}

constexpr int64_t BYTES = LANES / 8;  // of a Vec's bits

// Bytes of the bits of the lanes that an access takes.
INLINE size_t bytes(const Whole &) { return BYTES; }
INLINE size_t bytes(const Part &part) { return static_cast<size_t>((part.lanes + 7) / 8); }
INLINE uint32_t all(const Whole &) { return (1u << LANES) - 1; }
INLINE uint32_t all(const Part &part) { return (1u << part.lanes) - 1; }

struct TestArgs {
    const float *data;
    uint8_t *bits;
    int64_t size;
    float first, second;
};

// Store the bits of test(x) for each native part of the data.
template <class F> void test_each(const TestArgs &a, const F &test) {
    elementwise(a.size, false, [&](auto access, int64_t i) {
        const Vec x = access.load(a.data + i);
        uint32_t found = 0;
        for (int k = 0; k < PARTS; k++) found |= number_of(test(x.part[k])) << (k * NATIVE);
        found &= all(access);
        std::memcpy(a.bits + i / 8, &found, bytes(access));
    });
}

void positive_bits(const TestArgs &a) {
    test_each(a, [](Native x) -> NativeInt { return x > 0.0f; });
}
void within_bits(const TestArgs &a) {
    test_each(a, [&](Native x) -> NativeInt { return (x >= a.first) & (x <= a.second); });
}

struct ByBitsArgs {
    const float *grad;
    const uint8_t *bits;
    float *out;
    int64_t size;
    float first, second;
};

// out = f(grad, whether the bit is set)
template <class F> void by_bits(const ByBitsArgs &a, const F &f) {
    elementwise(a.size, streams(a.out, a.size, a.grad), [&](auto access, int64_t i) {
        uint32_t found = 0;
        std::memcpy(&found, a.bits + i / 8, bytes(access));
        Vec grad = access.load(a.grad + i);
        for (int k = 0; k < PARTS; k++) grad.part[k] = f(grad.part[k], lanes_of(found >> (k * NATIVE)));
        access.store(a.out + i, grad);
    });
}

void relu_backward_bits(const ByBitsArgs &a) {
    by_bits(a, [](Native grad, NativeInt set) -> Native { return set ? grad : Native{}; });
}
void slope_bits(const ByBitsArgs &a) {
    by_bits(a, [&](Native grad, NativeInt set) -> Native {
        return grad * (set ? Native{} + 1.0f : Native{} + a.first);
    });
}

}  // namespace

KERNEL(positive_bits, TestArgs)
KERNEL(within_bits, TestArgs)
KERNEL(relu_backward_bits, ByBitsArgs)
KERNEL(slope_bits, ByBitsArgs)

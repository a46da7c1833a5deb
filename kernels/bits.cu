// bits.cu: one bit an element: comparisons of a tensor's elements, and gradients that are scaled by them.
//
// Element i is bit i % 8 of byte i / 8, counted from the lowest; bits behind the last element are 0. A warp compares 32
// elements at once and its ballot is their four bytes.
//
// Memory: n floats and n bits are moved, and by the gradients n floats more; out may be grad. No workspace.
// Bytes: 4.125 n to compare, 8.125 n to scale. FLOPs: n.
#include "common.h"

namespace {

// bits = test(data). Threads of a launch fill whole warps, so all lanes of one take the same turns.
template <class Test>
__device__ __forceinline__ void test_each(const float *data, unsigned char *bits, long long n, Test test) {
  GRID_STRIDE(i, (n + 31) / 32 * 32) {
    unsigned word = __ballot_sync(0xffffffffu, i < n && test(data[i]));
    int lane = threadIdx.x % 32;
    long long first = i - lane + 8 * lane;  // of the elements of this lane's byte
    if (lane < 4 && first < n) bits[first / 8] = (unsigned char)(word >> (8 * lane));
  }
}

__device__ __forceinline__ bool bit_of(const unsigned char *bits, long long i) { return bits[i / 8] >> (i % 8) & 1; }

// out = f(grad, whether the bit is set)
template <class F>
__device__ __forceinline__ void by_bits(const float *grad, const unsigned char *bits, float *out, long long n, F f) {
  long long quads = n / 4;
  GRID_STRIDE(q, quads) {
    float4 g = reinterpret_cast<const float4 *>(grad)[q];
    unsigned four = bits[q / 2] >> (q % 2 * 4);
    reinterpret_cast<float4 *>(out)[q] =
        make_float4(f(g.x, four & 1), f(g.y, four >> 1 & 1), f(g.z, four >> 2 & 1), f(g.w, four >> 3 & 1));
  }
  long long rest = 4 * quads + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) out[rest] = f(grad[rest], bit_of(bits, rest));
}

}  // namespace

extern "C" __global__ void positive_bits(const float *data, unsigned char *bits, long long n) {
  test_each(data, bits, n, [](float x) { return x > 0.f; });
}

extern "C" __global__ void within_bits(const float *data, unsigned char *bits, long long n, float least, float most) {
  test_each(data, bits, n, [=](float x) { return x >= least && x <= most; });
}

extern "C" __global__ void relu_backward_bits(const float *grad, const unsigned char *bits, float *out, long long n) {
  by_bits(grad, bits, out, n, [](float g, bool set) { return g * (set ? 1.f : 0.f); });
}

extern "C" __global__ void slope_bits(const float *grad, const unsigned char *bits, float *out, long long n,
                                      float slope) {
  by_bits(grad, bits, out, n, [=](float g, bool set) { return g * (set ? 1.f : slope); });
}

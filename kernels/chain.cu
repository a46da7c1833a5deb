// chain.cu: a program of elementwise operations over tensors of one shape.
//
// Each thread keeps an element of every input and of every result in registers of its own, and interprets the
// program for it; all threads take the same branches.
//
// Memory: n floats of each input, or n bits (bits.cu), are read once and n floats of out written; out may be any of the inputs. No
// workspace.
// Bytes: 4 n (inputs + 1). FLOPs: n a step, counting a function as one.
#include "common.h"

namespace {

constexpr int kInputs = 8, kSteps = 12;

// The operations, by their numbers in chain.py. x and y are the registers read, s a constant.
enum Operation {
  kAdd, kSub, kMul, kDiv, kMax, kMin,
  kAddScalar, kSubScalar, kRsubScalar, kMulScalar, kDivScalar, kRdivScalar, kMaxScalar, kMinScalar,
  kRelu, kSigmoid, kTanh, kSoftrelu, kSoftsign,
  kReluSlope, kSigmoidSlope, kTanhSlope, kSoftreluSlope, kSoftsignSlope,
  kExp, kLog, kSqrt, kSquare, kAbs, kNegative, kReciprocal, kSign,
  kSqrtBackward, kSquareBackward, kAbsBackward, kReciprocalBackward
};

// What a launch runs (chain.py: _argument).
struct Chain {
  const float *input[kInputs];
  float scalar[kSteps];
  int operation[kSteps], x[kSteps], y[kSteps];
  int inputs, steps;
  int bits;  // which inputs are bits of elements: 1 << k for input k
};

__device__ __forceinline__ float operate(int operation, float x, float y, float s) {
  switch (operation) {
    case kAdd: return x + y;
    case kSub: return x - y;
    case kMul: return x * y;
    case kDiv: return x / y;
    case kMax: return max_nan(x, y);
    case kMin: return min_nan(x, y);
    case kAddScalar: return x + s;
    case kSubScalar: return x - s;
    case kRsubScalar: return s - x;
    case kMulScalar: return x * s;
    case kDivScalar: return x / s;
    case kRdivScalar: return s / x;
    case kMaxScalar: return max_nan(x, s);
    case kMinScalar: return min_nan(x, s);
    case kRelu: return relu(x);
    case kSigmoid: return sigmoid(x);
    case kTanh: return tanhf(x);
    case kSoftrelu: return softrelu(x);
    case kSoftsign: return softsign(x);
    case kReluSlope: return x * relu_slope(y);
    case kSigmoidSlope: return x * sigmoid_slope(y);
    case kTanhSlope: return x * tanh_slope(y);
    case kSoftreluSlope: return x * softrelu_slope(y);
    case kSoftsignSlope: return x * softsign_slope(y);
    case kExp: return expf(x);
    case kLog: return logf(x);
    case kSqrt: return sqrtf(x);
    case kSquare: return x * x;
    case kAbs: return fabsf(x);
    case kNegative: return -x;
    case kReciprocal: return 1.f / x;
    case kSign: return sign(x);
    case kSqrtBackward: return x * (0.5f / y);
    case kSquareBackward: return x * (y + y);
    case kAbsBackward: return x * sign(y);
    default: return x * -(y * y);
  }
}

__device__ __forceinline__ float bit_of(const float *bits, long long i) {
  return (float)(reinterpret_cast<const unsigned char *>(bits)[i / 8] >> (i % 8) & 1);
}

}  // namespace

extern "C" __global__ void elementwise_chain(Chain chain, float *out, long long n) {
  fill_each(out, n, [&](long long i) {
    float registers[kInputs + kSteps];
    for (int k = 0; k < chain.inputs; ++k)
      registers[k] = chain.bits >> k & 1 ? bit_of(chain.input[k], i) : chain.input[k][i];
    int last = chain.inputs + chain.steps - 1;
    for (int k = 0; k < chain.steps; ++k)
      registers[chain.inputs + k] = operate(chain.operation[k], registers[chain.x[k]], registers[chain.y[k]],
                                            chain.scalar[k]);
    return registers[last];
  });
}

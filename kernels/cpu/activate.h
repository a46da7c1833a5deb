// The activations that other kernels apply in their own pass, and their slopes, which are functions of the output.
// Numbers are those of FUSED in minigraph/device/cpu/native/activation.py.
#pragma once
#include "functions.h"

struct Identity {
    static INLINE Vec of(const Vec &x) { return x; }
    static INLINE Vec sloped(const Vec &, const Vec &grad) { return grad; }
};
struct Relu {
    static INLINE Vec of(const Vec &x) { return relu(x); }
    static INLINE Vec sloped(const Vec &y, const Vec &grad) { return where_positive(y, grad); }
};
struct Sigmoid {
    static INLINE Vec of(const Vec &x) { return each(x, [](Native v) { return sigmoid(v); }); }
    static INLINE Vec sloped(const Vec &y, const Vec &grad) {
        return each(y, grad, [](Native v, Native g) { return g * ((1.0f - v) * v); });
    }
};
struct Tanh {
    static INLINE Vec of(const Vec &x) { return each(x, [](Native v) { return tanh(v); }); }
    static INLINE Vec sloped(const Vec &y, const Vec &grad) {
        return each(y, grad, [](Native v, Native g) { return g * (1.0f - v * v); });
    }
};
struct Softrelu {
    static INLINE Vec of(const Vec &x) { return each(x, [](Native v) { return softrelu(v); }); }
    static INLINE Vec sloped(const Vec &y, const Vec &grad) {
        return each(y, grad, [](Native v, Native g) { return g * -expm1(-v); });
    }
};
struct Softsign {
    static INLINE Vec of(const Vec &x) { return each(x, [](Native v) { return softsign(v); }); }
    static INLINE Vec sloped(const Vec &y, const Vec &grad) {
        return each(y, grad, [](Native v, Native g) {
            const Native share = 1.0f - abs(v);
            return g * (share * share);
        });
    }
};

// Calls work with the activation of a number from 0 to 3: those that need no more than two operands' pass.
template <class Work> void with_activation(int64_t number, const Work &work) {
    if (number == 0) work(Identity{});
    else if (number == 1) work(Relu{});
    else if (number == 2) work(Sigmoid{});
    else work(Tanh{});
}

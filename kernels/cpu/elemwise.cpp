// Functions of tensors of one shape, element by element, with up to two constants.
//
// Contract: outputs may lie on any input's bytes. Padding lanes that are zero stay zero where f(0) or f(0, 0) is zero.
// Memory-bound: 4 bytes of each operand an element. Every element goes through the same vector code, wherever it lies; an
// output larger than the caches is stored past them, which spares reading its lines first.
#include "activate.h"
#include "elementwise.h"
#include "kernel.h"

namespace {

struct UnaryArgs {
    const float *data;
    float *out;
    int64_t size;
};

struct UnaryConstantArgs {
    const float *data;
    float *out;
    int64_t size;
    float first, second;
};

struct BinaryArgs {
    const float *lhs, *rhs;
    float *out;
    int64_t size;
};

struct BinaryConstantArgs {
    const float *lhs, *rhs;
    float *out;
    int64_t size;
    float first, second;
};

// Call run(first element, number of vectors, whether to store past the caches) for each task's whole vectors, and then
// part(first element, number of elements) for what is left.
template <class Run, class Left> void in_tasks(int64_t size, bool streamed, const Run &run, const Left &left) {
    parallel((size + ELEMENTS - 1) / ELEMENTS, [&](int64_t block) {
        const int64_t begin = block * ELEMENTS, count = size - begin < ELEMENTS ? size - begin : ELEMENTS;
        run(begin, count / LANES, streamed);
        if (streamed) Streamed::finish();
        if (count % LANES) left(begin + count / LANES * LANES, count % LANES);
    });
}

INLINE void store(float *to, const Vec &v, bool streamed) {
    if (streamed) Streamed{}.store(to, v);
    else v.store(to);
}
__attribute__((noinline)) Vec load_first(const float *from, int64_t lanes) { return Part{lanes}.load(from); }
__attribute__((noinline)) void store_first(float *to, const Vec &v, int64_t lanes) { Part{lanes}.store(to, v); }

// The loop over whole vectors: what is left goes through it as a vector of its own, so that f is compiled once.
template <class F>
__attribute__((noinline)) void run_unary(const float *from, float *to, int64_t vectors, bool streamed, const F &f) {
    for (int64_t i = 0; i < vectors * LANES; i += LANES) store(to + i, f(Vec::load(from + i)), streamed);
}
template <class F>
__attribute__((noinline)) void run_binary(const float *lhs, const float *rhs, float *to, int64_t vectors, bool streamed,
                                          const F &f) {
    for (int64_t i = 0; i < vectors * LANES; i += LANES)
        store(to + i, f(Vec::load(lhs + i), Vec::load(rhs + i)), streamed);
}

template <class Args, class F> void unary(const Args &a, const F &f) {
    in_tasks(a.size, streams(a.out, a.size, a.data), [&](int64_t i, int64_t vectors, bool streamed) {
        run_unary(a.data + i, a.out + i, vectors, streamed, f);
    }, [&](int64_t i, int64_t lanes) {
        Vec held = load_first(a.data + i, lanes);
        float *at = reinterpret_cast<float *>(&held);
        run_unary(at, at, 1, false, f);
        store_first(a.out + i, held, lanes);
    });
}
template <class Args, class F> void binary(const Args &a, const F &f) {
    in_tasks(a.size, streams(a.out, a.size, a.lhs, a.rhs), [&](int64_t i, int64_t vectors, bool streamed) {
        run_binary(a.lhs + i, a.rhs + i, a.out + i, vectors, streamed, f);
    }, [&](int64_t i, int64_t lanes) {
        const Vec lhs = load_first(a.lhs + i, lanes);
        Vec rhs = load_first(a.rhs + i, lanes);
        float *at = reinterpret_cast<float *>(&rhs);
        run_binary(reinterpret_cast<const float *>(&lhs), at, at, 1, false, f);
        store_first(a.out + i, rhs, lanes);
    });
}

INLINE Native sign(Native x) { return x > 0.0f ? Native{} + 1.0f : (x < 0.0f ? Native{} - 1.0f : x); }
INLINE Native either(NativeInt condition, float then, float otherwise) {
    return condition ? Native{} + then : Native{} + otherwise;
}
INLINE Native within(Native x, float low, float high) {
    return minimum(maximum(x, Native{} + low), Native{} + high);
}
INLINE Native floored(Native x) {
    const Native cut = truncated(x);
    return cut - one_where(cut > x);
}
// Halves go away from zero.
INLINE Native rounded(Native x) {
    const Native cut = truncated(x);
    return cut == x ? x : cut + truncated(2.0f * (x - cut));
}
// Halves go down.
INLINE Native rounded_down(Native x) {
    const Native cut = truncated(x), fraction = x - cut;
    return cut + one_where(fraction > 0.5f) - one_where(fraction <= -0.5f);
}
// The Huber loss that bends at +- 1 / square.
INLINE Native smooth_l1(Native x, float square) {
    const Native held = within(x, -1.0f / square, 1.0f / square);
    return (x - held * 0.5f) * held * square;
}
INLINE Native gelu_slope(Native x) { return normal_cdf(x) + x * normal_density(x); }

}  // namespace

// A kernel `name` of the expression of x, or of x and y, and of the constants a.first and a.second.
#define UNARY(name, Args, ...)                                                                   \
    static void name(const Args &a) {                                                            \
        (void)a;                                                                                 \
        unary(a, [&](const Vec &v) { return each(v, [&](Native x) -> Native { return __VA_ARGS__; }); }); \
    }                                                                                            \
    KERNEL(name, Args)
#define BINARY(name, Args, ...)                                                                  \
    static void name(const Args &a) {                                                            \
        binary(a, [&](const Vec &v, const Vec &w) {                                              \
            return each(v, w, [&](Native x, Native y) -> Native { return __VA_ARGS__; });        \
        });                                                                                      \
    }                                                                                            \
    KERNEL(name, Args)
// The function of an activation, and grad times its slope at the output.
#define ACTIVATION(name, Act)                                                                    \
    static void name##_forward(const UnaryArgs &a) { unary(a, [](const Vec &x) { return Act::of(x); }); } \
    static void name##_backward(const BinaryArgs &a) {                                           \
        binary(a, [](const Vec &grad, const Vec &y) { return Act::sloped(y, grad); });           \
    }                                                                                            \
    KERNEL(name##_forward, UnaryArgs)                                                            \
    KERNEL(name##_backward, BinaryArgs)

ACTIVATION(relu, Relu)
ACTIVATION(sigmoid, Sigmoid)
ACTIVATION(tanh, Tanh)
ACTIVATION(softrelu, Softrelu)
ACTIVATION(softsign, Softsign)

UNARY(copy_forward, UnaryArgs, x)
UNARY(negative_forward, UnaryArgs, -x)
UNARY(abs_forward, UnaryArgs, abs(x))
UNARY(sign_forward, UnaryArgs, sign(x))
UNARY(square_forward, UnaryArgs, x *x)
UNARY(sqrt_forward, UnaryArgs, square_root(x))
UNARY(rsqrt_forward, UnaryArgs, 1.0f / square_root(x))
UNARY(reciprocal_forward, UnaryArgs, 1.0f / x)
UNARY(exp_forward, UnaryArgs, exp(x))
UNARY(log_forward, UnaryArgs, log(x))
UNARY(log1p_forward, UnaryArgs, log1p(x))
UNARY(expm1_forward, UnaryArgs, expm1(x))
UNARY(gelu_forward, UnaryArgs, x *normal_cdf(x))
UNARY(floor_forward, UnaryArgs, floored(x))
UNARY(ceil_forward, UnaryArgs, -floored(-x))
UNARY(trunc_forward, UnaryArgs, truncated(x))
UNARY(round_forward, UnaryArgs, rounded(x))
UNARY(rint_forward, UnaryArgs, rounded_down(x))

UNARY(plus_scalar_forward, UnaryConstantArgs, x + a.first)
UNARY(minus_scalar_forward, UnaryConstantArgs, x - a.first)
UNARY(rminus_scalar_forward, UnaryConstantArgs, a.first - x)
UNARY(mul_scalar_forward, UnaryConstantArgs, x *a.first)
UNARY(div_scalar_forward, UnaryConstantArgs, x / a.first)
UNARY(rdiv_scalar_forward, UnaryConstantArgs, a.first / x)
UNARY(maximum_scalar_forward, UnaryConstantArgs, maximum(x, Native{} + a.first))
UNARY(minimum_scalar_forward, UnaryConstantArgs, minimum(x, Native{} + a.first))
UNARY(clip_forward, UnaryConstantArgs, within(x, a.first, a.second))
UNARY(hard_sigmoid_forward, UnaryConstantArgs, within(x *a.first + a.second, 0.0f, 1.0f))
UNARY(smooth_l1_forward, UnaryConstantArgs, smooth_l1(x, a.first))
UNARY(leaky_forward, UnaryConstantArgs, x <= 0.0f ? x * a.first : x)
UNARY(elu_forward, UnaryConstantArgs, x <= 0.0f ? expm1(x) * a.first : x * a.second)

BINARY(add_forward, BinaryArgs, x + y)
BINARY(sub_forward, BinaryArgs, x - y)
BINARY(mul_forward, BinaryArgs, x *y)
BINARY(div_forward, BinaryArgs, x / y)
BINARY(maximum_forward, BinaryArgs, maximum(x, y))
BINARY(minimum_forward, BinaryArgs, minimum(x, y))

// What holds is 1, and what does not 0; a number holds that is not 0.
#define CONDITION(name, ...)                                                                     \
    BINARY(name##_forward, BinaryArgs, one_where(__VA_ARGS__))                                   \
    static void name##_scalar_forward(const UnaryConstantArgs &a) {                              \
        unary(a, [&](const Vec &v) {                                                             \
            const Native y = Native{} + a.first;                                                 \
            return each(v, [&](Native x) -> Native { return one_where(__VA_ARGS__); });          \
        });                                                                                      \
    }                                                                                            \
    KERNEL(name##_scalar_forward, UnaryConstantArgs)

CONDITION(equal, x == y)
CONDITION(not_equal, x != y)
CONDITION(greater, x > y)
CONDITION(greater_equal, x >= y)
CONDITION(lesser, x < y)
CONDITION(lesser_equal, x <= y)
CONDITION(logical_and, (x != 0.0f) & (y != 0.0f))
CONDITION(logical_or, (x != 0.0f) | (y != 0.0f))
CONDITION(logical_xor, (x != 0.0f) ^ (y != 0.0f))
UNARY(logical_not_forward, UnaryArgs, one_where(x == 0.0f))

// x: the gradient of the output; y: what the slope is made of
BINARY(gelu_backward, BinaryArgs, x *gelu_slope(y))
BINARY(square_backward, BinaryArgs, x *(y + y))
BINARY(sqrt_backward, BinaryArgs, x *(0.5f / y))
BINARY(abs_backward, BinaryArgs, x *sign(y))
BINARY(reciprocal_backward, BinaryArgs, x *-(y * y))
BINARY(clip_backward, BinaryConstantArgs, x *either((y >= a.first) & (y <= a.second), 1.0f, 0.0f))
BINARY(leaky_backward, BinaryConstantArgs, x *either(y > 0.0f, 1.0f, a.first))
BINARY(hard_sigmoid_backward, BinaryConstantArgs, x *either((y > 0.0f) & (y < 1.0f), a.first, 0.0f))
BINARY(smooth_l1_backward, BinaryConstantArgs, x *within(y *a.first, -1.0f, 1.0f))
BINARY(rdiv_scalar_backward, BinaryConstantArgs, x *(-a.first / (y * y)))
BINARY(elu_backward, BinaryConstantArgs, x *(y > 0.0f ? Native{} + a.second : y + a.first))

// x: a prediction; y: its target
BINARY(difference_backward, BinaryConstantArgs, (x - y) * a.first)
BINARY(sign_backward, BinaryConstantArgs, sign(x - y) * a.first)

// Updates of weights: the weight and its states, each read and written once, by the rules of ops/optimizer*.py.
//
// Contract: weight and states are overwritten. Rate, decay, rescaling and bound come from the control buffer, whose words
// ops/control.py lists; `scale`, where there is one, is multiplied into the rescaling; `unscale`, where there is one, undoes
// the loss scale before that, or by 0 says that nothing is to change. Memory-bound: 4 bytes of the gradient, and 8 of the
// weight and of each state, an element.
#include <cmath>

#include "control.h"
#include "functions.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t BLOCK = 1 << 14;  // elements of a task
constexpr int STATES = 3;

struct UpdateArgs {
    float *weight;
    const float *grad;
    float *states[STATES];
    const float *control, *scale, *unscale;  // the last two may be null
    int64_t size, index;
    float constants[5];  // of the rule, in the order of its line in minigraph/device/cpu/native/optimizer.py
};

// Within [-bound, bound]; a negative bound is none.
INLINE Native within(Native x, float bound) {
    return bound >= 0.0f ? minimum(maximum(x, Native{} - bound), Native{} + bound) : x;
}

// What a rule may use: constants of the op, and what the control buffer says.
struct Settings {
    const float *c;
    float rate, decay, bound;

    INLINE Native clipped(Native step) const { return within(step, bound); }
};

INLINE Native sign(Native x) { return x > 0.0f ? Native{} + 1.0f : (x < 0.0f ? Native{} - 1.0f : x); }

// Call rule(settings, rescaled gradient, weight, states), which overwrites weight and states, for all elements.
template <int HELD, class Rule> void update(const UpdateArgs &a, const Rule &rule) {
    const float unscale = a.unscale ? *a.unscale : 1.0f;
    if (unscale == 0.0f) return;
    const float rescale = a.scale ? a.control[RESCALE] * *a.scale : a.control[RESCALE];
    const float *own = a.control + FIRST_RATE + 2 * a.index;
    const Settings settings{a.constants, own[0], own[1], a.control[CLIP]};
    parallel((a.size + BLOCK - 1) / BLOCK, [&](int64_t block) {
        const int64_t begin = block * BLOCK, count = a.size - begin < BLOCK ? a.size - begin : BLOCK;
        each_vector(count, [&](auto access, int64_t i) {
            const Vec grad = access.load(a.grad + begin + i);
            Vec weight = access.load(a.weight + begin + i), states[STATES];
            for (int s = 0; s < HELD; s++) states[s] = access.load(a.states[s] + begin + i);
            for (int part = 0; part < PARTS; part++) {
                Native own_states[STATES];
                for (int s = 0; s < HELD; s++) own_states[s] = states[s].part[part];
                rule(settings, grad.part[part] * unscale * rescale, weight.part[part], own_states);
                for (int s = 0; s < HELD; s++) states[s].part[part] = own_states[s];
            }
            access.store(a.weight + begin + i, weight);
            for (int s = 0; s < HELD; s++) access.store(a.states[s] + begin + i, states[s]);
        });
    });
}

// How many updates there were with this one, 1 at the first.
double update_count(const UpdateArgs &a) {
    const double count = std::round(static_cast<double>(a.control[COUNT]));
    return count < 1 ? 1 : count;
}

// Nadam's momentum of update number t grows by a schedule, and all the momenta so far are multiplied.
struct NadamArgs {
    UpdateArgs update;
    double mean_decay, square_decay, schedule_decay;
};

struct NadamFactors {
    float gradient, mean, squares;
};

NadamFactors nadam_factors(const NadamArgs &a) {
    constexpr double NOTHING = 1e-18;  // beside 1
    const double growth = std::pow(0.96, a.schedule_decay), count = update_count(a.update);
    const auto momentum = [&](double power) { return a.mean_decay * (1 - 0.5 * power); };
    double schedule = 1, power = 1;
    for (double t = 0; t < count && schedule >= NOTHING; t++) schedule *= momentum(power *= growth);
    const double now = momentum(std::pow(growth, count)), next = momentum(std::pow(growth, count + 1));
    return {static_cast<float>((1 - now) / (1 - schedule)), static_cast<float>(next / (1 - schedule * next)),
            static_cast<float>(1 / (1 - std::pow(a.square_decay, count)))};
}

struct FtmlArgs {
    UpdateArgs update;
    double square_decay;
};

// Rules that look at whole tensors first: the sums of squares of the weight and of a step, in two numbers a block.
struct LayerwiseArgs {
    UpdateArgs update;
    double mean_decay, square_decay;  // LAMB's
    double *parts;
    int64_t adapts;  // LAMB: whether the means are corrected for their start at 0; LARS: whether norms count
};

struct Norms {
    double weight, step;
};

// Call step(rescaled gradient, weight, states), which gives what the weight's norm is compared with and may overwrite the
// states, for all elements; the norms of weights and steps.
template <int HELD, class Step> Norms norms(const LayerwiseArgs &all, const Step &step) {
    const UpdateArgs &a = all.update;
    const int64_t blocks = (a.size + BLOCK - 1) / BLOCK;
    const float unscale = a.unscale ? *a.unscale : 1.0f;
    const float rescale = a.scale ? a.control[RESCALE] * *a.scale : a.control[RESCALE];
    parallel(blocks, [&](int64_t block) {
        const int64_t begin = block * BLOCK, count = a.size - begin < BLOCK ? a.size - begin : BLOCK;
        double weights[LANES] = {}, steps[LANES] = {};
        each_vector(count, [&](auto access, int64_t i) {
            const Vec grad = access.load(a.grad + begin + i), weight = access.load(a.weight + begin + i);
            Vec states[STATES], made = grad;
            for (int s = 0; s < HELD; s++) states[s] = access.load(a.states[s] + begin + i);
            for (int part = 0; part < PARTS; part++) {
                Native own[STATES];
                for (int s = 0; s < HELD; s++) own[s] = states[s].part[part];
                made.part[part] = step(grad.part[part] * unscale * rescale, weight.part[part], own);
                for (int s = 0; s < HELD; s++) states[s].part[part] = own[s];
            }
            for (int s = 0; s < HELD; s++) access.store(a.states[s] + begin + i, states[s]);
            float held[LANES], moved[LANES];
            weight.store(held), made.store(moved);
            // Lanes past the end hold zeros in the weight, but a step may be no number there.
            for (int64_t j = 0; j < LANES && i + j < count; j++) {
                weights[j] += static_cast<double>(held[j]) * held[j];
                steps[j] += static_cast<double>(moved[j]) * moved[j];
            }
        });
        double weight = 0, step_sum = 0;
        for (int j = 0; j < LANES; j++) weight += weights[j], step_sum += steps[j];
        all.parts[2 * block] = weight, all.parts[2 * block + 1] = step_sum;
    });
    double weight = 0, step_sum = 0;
    for (int64_t i = 0; i < blocks; i++) weight += all.parts[2 * i], step_sum += all.parts[2 * i + 1];
    return {std::sqrt(weight), std::sqrt(step_sum)};
}

struct SumSquaresArgs {
    const float *grad, *control;  // control: of gradients that are times the loss scale, or null
    float *sum;
    double *parts;  // one a block
    int64_t size;
};

void sum_squares(const SumSquaresArgs &a) {
    const int64_t blocks = (a.size + BLOCK - 1) / BLOCK;
    const float unscale = a.control ? 1.0f / a.control[LOSS_SCALE] : 1.0f;
    parallel(blocks, [&](int64_t block) {
        const int64_t begin = block * BLOCK, count = a.size - begin < BLOCK ? a.size - begin : BLOCK;
        double sums[LANES] = {};
        each_vector(count, [&](auto access, int64_t i) {
            float held[LANES];
            Vec grad = access.load(a.grad + begin + i);
            for (int part = 0; part < PARTS; part++) grad.part[part] = grad.part[part] * unscale;
            grad.store(held);
            for (int j = 0; j < LANES; j++) sums[j] += static_cast<double>(held[j]) * held[j];
        });
        double sum = 0;
        for (double lane : sums) sum += lane;
        a.parts[block] = sum;
    });
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += a.parts[i];
    *a.sum = static_cast<float>(sum);
}

}  // namespace

// A kernel of so many states; k: settings, g: rescaled gradient, w: weight, s: states.
#define UPDATE(name, states, ...)                                                                      \
    static void name(const UpdateArgs &a) {                                                            \
        update<states>(a, [](const Settings &k, Native g, Native &w, Native *s) { (void)s; __VA_ARGS__ }); \
    }                                                                                                  \
    KERNEL(name, UpdateArgs)

KERNEL(sum_squares, SumSquaresArgs)

UPDATE(sgd_update, 0, w = w * (1.0f - k.rate * k.decay) - k.clipped(g) * k.rate;)
UPDATE(sgd_mom_update, 1, {
    s[0] = s[0] * k.c[0] - (k.clipped(g) + w * k.decay) * k.rate;
    w += s[0];
})
UPDATE(nag_update, 1, {
    const Native step = (k.clipped(g) + w * k.decay) * k.rate;
    s[0] = s[0] * k.c[0] - step;
    w += s[0] * k.c[0] - step;
})
UPDATE(adam_update, 2, {
    const Native step = k.clipped(g + w * k.decay);
    s[0] = s[0] * k.c[0] + step * k.c[1];
    s[1] = s[1] * k.c[2] + step * step * k.c[3];
    w -= s[0] / (square_root(s[1]) + k.c[4]) * k.rate;
})
static void nadam_update(const NadamArgs &a) {
    const NadamFactors f = nadam_factors(a);
    update<2>(a.update, [&](const Settings &k, Native g, Native &w, Native *s) {
        const Native step = k.clipped(g + w * k.decay);
        s[0] = s[0] * k.c[0] + step * k.c[1];
        s[1] = s[1] * k.c[2] + step * step * k.c[3];
        w -= (step * f.gradient + s[0] * f.mean) / (square_root(s[1] * f.squares) + k.c[4]) * k.rate;
    });
}
KERNEL(nadam_update, NadamArgs)

UPDATE(adagrad_update, 1, {
    const Native step = k.clipped(g);
    s[0] += step * step;
    w -= (step / square_root(s[0] + k.c[0]) + w * k.decay) * k.rate;
})
UPDATE(rmsprop_update, 1, {
    const Native step = k.clipped(g + w * k.decay);
    s[0] = s[0] * k.c[0] + step * step * k.c[1];
    w -= step / square_root(s[0] + k.c[2]) * k.rate;
    w = within(w, k.c[3]);
})
UPDATE(rmsprop_centered_update, 3, {
    const Native step = k.clipped(g + w * k.decay);
    s[0] = s[0] * k.c[0] + step * step * k.c[1];
    s[1] = s[1] * k.c[0] + step * k.c[1];
    s[2] = s[2] * k.c[4] - step / square_root(s[0] - s[1] * s[1] + k.c[2]) * k.rate;
    w = within(w + s[2], k.c[3]);
})
UPDATE(adadelta_update, 2, {
    const Native step = k.clipped(g);
    s[0] = s[0] * k.c[0] + step * step * k.c[1];
    const Native delta = step / square_root(s[0] + k.c[2]) * square_root(s[1] + k.c[2]);
    s[1] = s[1] * k.c[0] + delta * delta * k.c[1];
    w -= delta + w * k.decay;
})
UPDATE(ftrl_update, 2, {
    const Native step = k.clipped(g);
    const Native squares = s[1] + step * step, root = square_root(squares);
    s[0] += step - (root - square_root(s[1])) * w / k.rate;
    s[1] = squares;
    const Native size = maximum(abs(s[0]) - k.c[0], Native{}) / ((root + k.c[1]) / k.rate + k.decay);
    w = -with_sign_of(size, s[0]);
})
UPDATE(adamax_update, 2, {
    const Native step = k.clipped(g + w * k.decay);
    s[0] = s[0] * k.c[0] + step * k.c[1];
    s[1] = maximum(s[1] * k.c[2], abs(step));
    w -= s[0] / maximum(s[1], Native{} + 1.17549435e-38f) * k.rate;
})
UPDATE(signsgd_update, 0, w = w * (1.0f - k.rate * k.decay) - sign(g) * k.rate;)
UPDATE(signum_update, 1, {
    s[0] = s[0] * k.c[0] - (k.clipped(g) + w * k.decay) * k.c[1];
    w = w * (1.0f - k.rate * k.c[2]) + sign(s[0]) * k.rate;
})
UPDATE(dcasgd_update, 1, {
    const Native step = k.clipped(g);
    s[0] = s[0] * k.c[0] - (step + step * step * k.c[1] * s[0] + w * k.decay) * k.rate;
    w += s[0];
})
static void ftml_update(const FtmlArgs &a) {
    const float of_squares = static_cast<float>(1 / (1 - std::pow(a.square_decay, update_count(a.update))));
    update<3>(a.update, [&](const Settings &k, Native g, Native &w, Native *s) {
        const Native step = k.clipped(g + w * k.decay);
        s[1] = s[1] * k.c[2] + step * step * k.c[3];
        s[2] = s[2] * k.c[0] + step * k.c[1];
        const Native now = (square_root(s[1] * of_squares) + k.c[4]) / k.rate;
        s[2] -= (now - s[0] * k.c[0]) * w;
        s[0] = now;
        w = Native{} - s[2] / now;
    });
}
KERNEL(ftml_update, FtmlArgs)

static void lamb_update(const LayerwiseArgs &a) {
    const UpdateArgs &u = a.update;
    if (u.unscale && *u.unscale == 0.0f) return;
    const double count = update_count(u);
    const float of_mean = a.adapts ? static_cast<float>(1 / (1 - std::pow(a.mean_decay, count))) : 1.0f;
    const float of_squares = a.adapts ? static_cast<float>(1 / (1 - std::pow(a.square_decay, count))) : 1.0f;
    const float rest1 = static_cast<float>(1 - a.mean_decay), rest2 = static_cast<float>(1 - a.square_decay);
    const float *c = u.constants, decay = u.control[FIRST_RATE + 2 * u.index + 1], bound = u.control[CLIP];
    const auto direction = [=](Native w, const Native *s) {
        return s[0] * of_mean / (square_root(s[1] * of_squares) + c[2]) + w * decay;
    };
    Norms found = norms<2>(a, [&](Native g, Native w, Native *s) {
        const Native step = within(g, bound);
        s[0] = s[0] * c[0] + step * rest1;
        s[1] = s[1] * c[1] + step * step * rest2;
        return direction(w, s);
    });
    if (c[3] >= 0) found.weight = found.weight < c[3] ? c[3] : found.weight;
    if (c[4] >= 0) found.weight = found.weight > c[4] ? c[4] : found.weight;
    const float trust = found.weight != 0 && found.step != 0 ? static_cast<float>(found.weight / found.step) : 1.0f;
    update<2>(u, [&](const Settings &k, Native g, Native &w, Native *s) {
        (void)g;
        w -= direction(w, s) * (k.rate * trust);
    });
}
KERNEL(lamb_update, LayerwiseArgs)

static float lars_trust(const LayerwiseArgs &a) {
    const UpdateArgs &u = a.update;
    if (!a.adapts || (u.unscale && *u.unscale == 0.0f)) return 1.0f;
    const Norms found = norms<0>(a, [](Native g, Native, Native *) { return g; });
    if (found.weight == 0 || found.step == 0) return 1.0f;
    const double decay = u.control[FIRST_RATE + 2 * u.index + 1];
    return static_cast<float>(u.constants[0] * found.weight / (found.step + decay * found.weight + u.constants[1]));
}
static void lars_update(const LayerwiseArgs &a) {
    const float trust = lars_trust(a);
    update<0>(a.update, [&](const Settings &k, Native g, Native &w, Native *) {
        w -= (k.clipped(g) + w * k.decay) * (k.rate * trust);
    });
}
KERNEL(lars_update, LayerwiseArgs)
static void lars_mom_update(const LayerwiseArgs &a) {
    const float trust = lars_trust(a), momentum = a.update.control[COUNT];
    update<1>(a.update, [&](const Settings &k, Native g, Native &w, Native *s) {
        s[0] = s[0] * momentum - (k.clipped(g) + w * k.decay) * (k.rate * trust);
        w += s[0];
    });
}
KERNEL(lars_mom_update, LayerwiseArgs)

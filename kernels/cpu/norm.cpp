// Batch normalisation: moments of the channels, what they make of a tensor, and its gradients.
//
// Contract: outputs may lie on inputs as ops/norm*.py says; padding lanes stay zero. A pass over the tensor reads each
// operand once and writes each output once, that of normalisation past the caches where it is larger than these: the
// training form takes two passes, moments and normalisation, and backward two, sums and data gradient. Moments are taken in blocks that stay in the first cache, in float32 about each block's
// own mean; blocks are joined in float64 about the first one's mean, segments to chunks and chunks to the batch in
// float64 in ascending order, from running totals of earlier rows on where there are any: so a batch in slices that end
// where chunks do has the bits of the whole.
#include <cmath>
#include <type_traits>

#include "activate.h"
#include "channels.h"
#include "kernel.h"

namespace {

// Sums of a segment a channel: three, or two, rows of padded() doubles.
constexpr int MOMENTS = 3, PRODUCTS = 2;

struct Wide {
    double lane[LANES];

    void add(const Vec &v) {
        float held[LANES];
        v.store(held);
        for (int i = 0; i < LANES; i++) lane[i] += held[i];
    }
};

// The sum of four vectors in a fixed order; with the channel's pixels in rows, of all their lanes, in each lane.
INLINE Vec joined(bool in_rows, const Vec (&v)[4]) {
    const Vec sum = (v[0] + v[1]) + (v[2] + v[3]);
    return in_rows ? Vec::of(static_cast<float>(total(sum))) : sum;
}

struct MomentsArgs {
    const float *data;
    double *moments;
    Channels c;
};

// Pivot, sum and sum of squares about the pivot of one unit of a segment.
struct Moments {
    const Places &at;
    const int channels = at.in_rows ? 1 : LANES;  // of the unit
    float pivot[LANES] = {};
    Wide sum{}, squares{};
    bool begun = false;

    // Take in a block of `count` pixels at `offset`.
    INLINE void add(const float *data, int64_t unit, int64_t offset, int64_t count) {
        Vec sums[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
        at.vectors(unit, offset, count, [&](auto access, int64_t i, int j) { sums[j] += access.load(data + i); });
        Vec mean = joined(at.in_rows, sums);
        const Vec share = Vec::of(1.0f / static_cast<float>(count));
        mean = mean * share;
        Vec rest[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
        Vec square[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
        at.vectors(unit, offset, count, [&](auto access, int64_t i, int j) {
            const Vec centred = access.keep(access.load(data + i) - mean);
            rest[j] += centred;
            square[j].add_product(centred, centred);
        });
        join(mean, joined(at.in_rows, rest), joined(at.in_rows, square), static_cast<double>(count));
    }

    // Take in a block of so many pixels, of a mean, and sums of what is left and of its squares.
    INLINE void join(const Vec &mean, const Vec &rest, const Vec &square, double count) {
        float m[LANES], r[LANES], q[LANES];
        mean.store(m), rest.store(r), square.store(q);
        if (!begun) std::memcpy(pivot, m, sizeof pivot);
        begun = true;
        for (int i = 0; i < channels; i++) {
            const double step = static_cast<double>(m[i]) - pivot[i];
            sum.lane[i] += count * step + r[i];
            squares.lane[i] += q[i] + step * (count * step + 2.0 * r[i]);
        }
    }

    void store(double *to, int64_t padded, int64_t unit) const {
        to += unit * channels;
        for (int i = 0; i < channels; i++) {
            to[i] = pivot[i], to[padded + i] = sum.lane[i], to[2 * padded + i] = squares.lane[i];
        }
    }
};

void batchnorm_moments(const MomentsArgs &a) {
    const int64_t padded = a.c.padded();
    const Places at(a.c);
    for_segments(a.c, false, [&](int64_t number, const Segment &s, int64_t first, int64_t last) {
        for (int64_t unit = first; unit < last; unit++) {
            Moments found{at};
            at.walk(s, unit, [&](int64_t offset, int64_t count) {
                for (int64_t i = 0; i < count; i += at.block)
                    found.add(a.data, unit, offset + i * at.width, least(at.block, count - i));
            });
            found.store(a.moments + number * MOMENTS * padded, padded, unit);
        }
    });
}

// Pixels of a canonical chunk.
INLINE int64_t chunk_count(const Channels &c, int64_t chunk) {
    return least(c.chunk, c.images - chunk * c.chunk) * c.pixels;
}

// The sum over a chunk's segments of value(segment's row of doubles, its number of pixels).
template <class Value>
INLINE double over_chunk(const Channels &c, const double *rows, int64_t terms, int64_t chunk, const Value &value) {
    double sum = 0;
    for (int64_t i = 0; i < c.chunk_segments(); i++) {
        const int64_t number = chunk * c.chunk_segments() + i, count = segment_of(c, number).count();
        if (count > 0) sum += value(rows + number * terms * c.padded(), static_cast<double>(count));
    }
    return sum;
}

// Calls work(channel) for each channel.
template <class Work> void for_channels(int64_t channels, const Work &work) {
    parallel((channels + 63) / 64, [&](int64_t task) {
        for (int64_t i = task * 64; i < least(channels, task * 64 + 64); i++) work(i);
    });
}

struct CombineArgs {
    const double *segments;
    const double *running;  // what to go on from, which may be `totals`; or null
    double *totals;         // two rows of channels
    Channels c;
    int64_t before;         // pixels a channel that `running` is of
};

// Means, and sums of squared deviations from them: a chunk's from its segments, then chunk by chunk by Chan, Golub and
// LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
void batchnorm_combine_moments(const CombineArgs &a) {
    const int64_t padded = a.c.padded(), channels = a.c.channels;
    for_channels(channels, [&](int64_t i) {
        double total = a.running ? a.running[i] : 0.0, squares = a.running ? a.running[channels + i] : 0.0;
        double before = static_cast<double>(a.before);
        for (int64_t chunk = 0; chunk < a.c.chunks(); chunk++) {
            const double count = static_cast<double>(chunk_count(a.c, chunk));
            if (count <= 0) continue;
            const double mean = over_chunk(a.c, a.segments + i, MOMENTS, chunk, [&](const double *at, double pixels) {
                return pixels * at[0] + at[padded]; }) / count;
            const double own = over_chunk(a.c, a.segments + i, MOMENTS, chunk, [&](const double *at, double pixels) {
                const double step = at[0] - mean;
                return at[2 * padded] + step * (pixels * step + 2.0 * at[padded]); });
            const double apart = mean - total, share = count / (before + count);
            total += apart * share;
            squares += (own < 0 ? 0.0 : own) + apart * apart * (before * share);
            before += count;
        }
        a.totals[i] = total, a.totals[channels + i] = squares;
    });
}

// Two sums, chunk by chunk.
void batchnorm_combine_sums(const CombineArgs &a) {
    const int64_t padded = a.c.padded(), channels = a.c.channels;
    for_channels(channels, [&](int64_t i) {
        for (int64_t row = 0; row < PRODUCTS; row++) {
            double sum = a.running ? a.running[row * channels + i] : 0.0;
            for (int64_t chunk = 0; chunk < a.c.chunks(); chunk++)
                sum += over_chunk(a.c, a.segments + i, PRODUCTS, chunk, [&](const double *at, double) {
                    return at[row * padded]; });
            a.totals[row * channels + i] = sum;
        }
    });
}

// What a channel's values are scaled and shifted by, less its rounded mean.
struct Line {
    float scale, shift;
};

INLINE Line line_of(const float *gamma, const float *beta, const float *var, const float *rest, double eps, int64_t i) {
    const double scale = (gamma ? gamma[i] : 1.0) / std::sqrt(var[i] + eps);
    return {static_cast<float>(scale), static_cast<float>((beta ? beta[i] : 0.0) - (rest ? rest[i] : 0.0) * scale)};
}

struct StatisticsArgs {
    const double *moments;
    float *mean, *var, *rest;
    int64_t channels, count;  // count: pixels a channel, at least one
};

void batchnorm_statistics(const StatisticsArgs &a) {
    for (int64_t i = 0; i < a.channels; i++) {
        const double mean = a.moments[i];
        a.mean[i] = static_cast<float>(mean);
        a.var[i] = static_cast<float>(a.moments[a.channels + i] / static_cast<double>(a.count));
        a.rest[i] = static_cast<float>(mean - a.mean[i]);
    }
}

struct LineArgs {
    const float *gamma, *beta, *mean, *var, *rest;
    float *line;  // mean, scale and shift, each padded() long and zero in the padding
    int64_t channels;
    double eps;
};

void batchnorm_line(const LineArgs &a) {
    const int64_t padded = (a.channels + LANES - 1) / LANES * LANES;
    std::memset(a.line, 0, static_cast<size_t>(3 * padded) * sizeof(float));
    for (int64_t i = 0; i < a.channels; i++) {
        const Line line = line_of(a.gamma, a.beta, a.var, a.rest, a.eps, i);
        a.line[i] = a.mean ? a.mean[i] : 0.0f, a.line[padded + i] = line.scale, a.line[2 * padded + i] = line.shift;
    }
}

// (x - mean) * scale + shift
INLINE Vec normalised(const Vec &x, const Vec &mean, const Vec &scale, const Vec &shift) {
    Vec y = shift;
    y.add_product(x - mean, scale);
    return y;
}

struct NormaliseArgs {
    const float *data, *line, *addend;
    float *out;
    Channels c;
    int64_t act;
};

void batchnorm_normalise(const NormaliseArgs &a) {
    const int64_t padded = a.c.padded();
    const bool streamed = a.c.blocked && streams(a.out, a.c.images * a.c.units() * a.c.pixels * LANES, a.data, a.addend);
    const Places at(a.c);
    with_activation(a.act, [&](auto act) {
        for_segments(a.c, true, [&](int64_t, const Segment &s, int64_t first, int64_t last) {
            for (int64_t unit = first; unit < last; unit++) {
                const Vec mean = at.constant(a.line, unit), scale = at.constant(a.line + padded, unit);
                const Vec shift = at.constant(a.line + 2 * padded, unit);
                at.all(s, unit, [&](auto access, int64_t i) {
                    Vec y = normalised(access.load(a.data + i), mean, scale, shift);
                    if (a.addend) y += access.load(a.addend + i);
                    y = act.of(y);
                    if (streamed)
                        Streamed{}.store(a.out + i, y);
                    else
                        access.store(a.out + i, y);
                });
            }
            if (streamed) Streamed::finish();
        });
    });
}

struct SumsArgs {
    const float *grad, *data, *out;  // out: the output where the slope comes from it, else null
    const float *line;               // null: the mean is taken as zero
    float *sloped;                   // where grad times slope goes, or null
    double *sums;
    Channels c;
    int64_t act;
};

// grad times the slope of the activation, by the output, or by data where that is null.
template <class Act, class Access>
INLINE Vec slope(Act act, const Access &access, const float *grad, const float *out, const Vec &x, int64_t i,
                 const Vec &mean, const Vec &scale, const Vec &shift) {
    const Vec g = access.load(grad + i);
    if constexpr (std::is_same<Act, Identity>::value) return g;
    return act.sloped(out ? access.load(out + i) : normalised(x, mean, scale, shift), g);
}

// Sums of the sloped gradient and of its products with data less the mean.
void batchnorm_sums(const SumsArgs &a) {
    const int64_t padded = a.c.padded();
    const Places at(a.c);
    with_activation(a.act, [&](auto act) {
        for_segments(a.c, false, [&](int64_t number, const Segment &s, int64_t first, int64_t last) {
            for (int64_t unit = first; unit < last; unit++) {
                const Vec mean = a.line ? at.constant(a.line, unit) : Vec::zero();
                const Vec scale = a.line ? at.constant(a.line + padded, unit) : Vec::zero();
                const Vec shift = a.line ? at.constant(a.line + 2 * padded, unit) : Vec::zero();
                Wide sums{}, products{};
                at.walk(s, unit, [&](int64_t offset, int64_t pixels) {
                    for (int64_t begin = 0; begin < pixels; begin += at.block) {
                        Vec sum[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
                        Vec product[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
                        at.vectors(unit, offset + begin * at.width, least(at.block, pixels - begin),
                                   [&](auto access, int64_t i, int j) {
                            const Vec x = access.load(a.data + i);
                            const Vec g = slope(act, access, a.grad, a.out, x, i, mean, scale, shift);
                            if (a.sloped) access.store(a.sloped + i, g);
                            sum[j] += g;
                            product[j].add_product(g, x - mean);
                        });
                        sums.add((sum[0] + sum[1]) + (sum[2] + sum[3]));
                        products.add((product[0] + product[1]) + (product[2] + product[3]));
                    }
                });
                double *to = a.sums + number * PRODUCTS * padded;
                if (at.in_rows) {
                    to[unit] = to[padded + unit] = 0;
                    for (int i = 0; i < LANES; i++) to[unit] += sums.lane[i], to[padded + unit] += products.lane[i];
                } else {
                    std::memcpy(to + unit * LANES, sums.lane, sizeof sums.lane);
                    std::memcpy(to + padded + unit * LANES, products.lane, sizeof products.lane);
                }
            }
        });
    });
}

struct SlopesArgs {
    const double *sums;
    const float *gamma, *var;
    float *gamma_grad, *beta_grad;  // null when not wanted
    float *slopes;  // factors of data less the mean, and what is added, each padded() long; null when not wanted
    int64_t channels, count;  // count: pixels a channel, at least one
    double eps;
};

// The gradients of gamma and beta, and what makes the data gradient of them.
void batchnorm_slopes(const SlopesArgs &a) {
    const int64_t padded = (a.channels + LANES - 1) / LANES * LANES;
    const double count = static_cast<double>(a.count);
    if (a.slopes) std::memset(a.slopes, 0, static_cast<size_t>(2 * padded) * sizeof(float));
    for (int64_t i = 0; i < a.channels; i++) {
        const double sum = a.sums[i], products = a.sums[a.channels + i];
        const double inverse = 1.0 / std::sqrt(a.var[i] + a.eps), scale = (a.gamma ? a.gamma[i] : 1.0) * inverse;
        if (a.gamma_grad) {
            a.gamma_grad[i] = static_cast<float>(products * inverse), a.beta_grad[i] = static_cast<float>(sum);
        }
        if (a.slopes) {
            a.slopes[i] = static_cast<float>(-scale * inverse * inverse * products / count);
            a.slopes[padded + i] = static_cast<float>(-scale * sum / count);
        }
    }
}

struct TotalsArgs {
    const double *sums;
    float *totals, *zeros;
    int64_t channels;
};

// The first sums of the channels alone, and as many zeros.
void batchnorm_totals(const TotalsArgs &a) {
    for (int64_t i = 0; i < a.channels; i++) a.totals[i] = static_cast<float>(a.sums[i]), a.zeros[i] = 0;
}

struct GradientArgs {
    const float *grad, *data, *out, *line, *slopes;
    float *data_grad;
    Channels c;
    int64_t act;
};

void batchnorm_gradient(const GradientArgs &a) {
    const int64_t padded = a.c.padded();
    const Places at(a.c);
    with_activation(a.act, [&](auto act) {
        for_segments(a.c, true, [&](int64_t, const Segment &s, int64_t first, int64_t last) {
            for (int64_t unit = first; unit < last; unit++) {
                const Vec mean = at.constant(a.line, unit), scale = at.constant(a.line + padded, unit);
                const Vec shift = at.constant(a.line + 2 * padded, unit);
                const Vec factor = at.constant(a.slopes, unit), constant = at.constant(a.slopes + padded, unit);
                at.all(s, unit, [&](auto access, int64_t i) {
                    const Vec x = access.load(a.data + i);
                    const Vec g = slope(act, access, a.grad, a.out, x, i, mean, scale, shift);
                    Vec y = constant;
                    y.add_product(x - mean, factor);
                    y.add_product(g, scale);
                    access.store(a.data_grad + i, y);
                });
            }
        });
    });
}

struct MovingArgs {
    const float *mean, *var;
    float *moving_mean, *moving_var;
    int64_t channels;
    float keep, take;
};

void batchnorm_moving(const MovingArgs &a) {
    for (int64_t i = 0; i < a.channels; i++) {
        a.moving_mean[i] = a.moving_mean[i] * a.keep + a.take * a.mean[i];
        a.moving_var[i] = a.moving_var[i] * a.keep + a.take * a.var[i];
    }
}

}  // namespace

KERNEL(batchnorm_moments, MomentsArgs)
KERNEL(batchnorm_combine_moments, CombineArgs)
KERNEL(batchnorm_combine_sums, CombineArgs)
KERNEL(batchnorm_statistics, StatisticsArgs)
KERNEL(batchnorm_line, LineArgs)
KERNEL(batchnorm_normalise, NormaliseArgs)
KERNEL(batchnorm_sums, SumsArgs)
KERNEL(batchnorm_slopes, SlopesArgs)
KERNEL(batchnorm_totals, TotalsArgs)
KERNEL(batchnorm_gradient, GradientArgs)
KERNEL(batchnorm_moving, MovingArgs)

// Local response normalisation across channels, and its gradient.
//
// Contract: the output may lie on the data, the data's gradient on any input; padding lanes stay zero. Of up to 16 pixels
// of an image at a time, what is summed over the channels of a window lies in the thread's scratch, between zeros for
// channels that there are not: 2 * 16 * (channels + nsize) floats at most fit there. The base of the power is kept for the
// gradient. Memory-bound but for the power: a logarithm and an exponential, or two square roots.
#include <cstring>

#include "functions.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

constexpr int64_t TASK = 1 << 14;  // elements

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct Shape {
    int64_t images, channels, pixels, blocked, reach;  // reach: channels of a window on either side of its own
    float alpha, knorm, beta;                          // alpha is divided by the window's channels already

    int64_t blocks() const { return (channels + LANES - 1) / LANES; }
    // Floats of a pixel's channels between zeros, and of all pixels of a tile.
    int64_t line() const { return (blocked ? blocks() * LANES : channels) + 2 * reach; }
    int64_t size() const { return line() * LANES; }
};

// A block of channels of which only the first `lanes` are any: the others are kept zero.
struct Block : Whole {
    int64_t lanes;
    explicit Block(int64_t count) : lanes(count) {}
    INLINE Vec keep(const Vec &v) const { return Part{lanes}.keep(v); }
    INLINE void store(float *to, const Vec &v) const { keep(v).store(to); }
};

// Some pixels of an image, at most LANES in a row. A vector is 16 pixels of a channel of a plain tensor, and 16 channels
// of a pixel in blocks; in scratch neighbouring channels are `step` apart.
struct Tile {
    const Shape &s;
    int64_t image, first, count;

    int64_t step() const { return s.blocked ? 1 : LANES; }
    // Call body(access, offset in the tensor, offset in scratch) for each vector.
    template <class Body> INLINE void each(const Body &body) const {
        if (s.blocked) in_blocks(body);
        else if (count == LANES) in_rows(Whole{}, body);
        else in_rows(Part{count}, body);
    }
    // The sum over the channels about those of a vector.
    INLINE Vec window(const float *from) const {
        Vec sum = Vec::zero();
        for (int64_t k = -s.reach; k <= s.reach; k++) sum += Vec::load(from + k * step());
        return sum;
    }

  private:
    template <class Access, class Body> INLINE void in_rows(const Access &access, const Body &body) const {
        const int64_t at = image * s.channels * s.pixels + first;
        for (int64_t c = 0; c < s.channels; c++) body(access, at + c * s.pixels, (c + s.reach) * LANES);
    }
    template <class Body> INLINE void in_blocks(const Body &body) const {
        const int64_t whole = s.channels / LANES, rest = s.channels % LANES;
        for (int64_t p = 0; p < count; p++) {
            const int64_t at = (image * s.blocks() * s.pixels + first + p) * LANES, line = p * s.line() + s.reach;
            for (int64_t b = 0; b < whole; b++) body(Whole{}, at + b * s.pixels * LANES, line + b * LANES);
            if (rest) body(Block(rest), at + whole * s.pixels * LANES, line + whole * LANES);
        }
    }
};

// x ^ -0.75, the exponent by default.
struct ByRoots {
    INLINE Vec operator()(const Vec &base) const {
        return ::each(base, [](Native x) {
            const Native root = square_root(x);
            return 1.0f / (root * square_root(root));
        });
    }
};
struct ByLogarithm {
    const float beta;
    INLINE Vec operator()(const Vec &base) const {
        return ::each(base, [&](Native x) { return exp(log(x) * -beta); });
    }
};

// Call work(tile, x ^ -beta, the thread's scratch) for all tiles; the scratch of one array holds zeros at first.
template <class Work> void for_tiles(const Shape &s, const Work &work) {
    const int64_t tiles = (s.pixels + LANES - 1) / LANES, count = s.images * tiles;
    const int64_t wide = s.size() < TASK ? TASK / s.size() : 1;
    parallel((count + wide - 1) / wide, [&](int64_t task) {
        std::memset(thread_scratch(), 0, static_cast<size_t>(s.size()) * sizeof(float));
        for (int64_t number = task * wide; number < least(count, (task + 1) * wide); number++) {
            const int64_t first = number % tiles * LANES;
            const Tile tile{s, number / tiles, first, least(LANES, s.pixels - first)};
            if (s.beta == 0.75f) work(tile, ByRoots(), thread_scratch());
            else work(tile, ByLogarithm{s.beta}, thread_scratch());
        }
    });
}

struct ForwardArgs {
    const float *data;
    float *out, *norm;
    Shape s;
};

void lrn_forward(const ForwardArgs &a) {
    if (a.s.channels == 0) return;
    for_tiles(a.s, [&](const Tile &tile, const auto &power, float *squares) {
        tile.each([&](const auto &access, int64_t at, int64_t here) {
            const Vec x = access.load(a.data + at);
            (x * x).store(squares + here);
        });
        tile.each([&](const auto &access, int64_t at, int64_t here) {
            Vec norm = Vec::of(a.s.knorm);
            norm.add_product(tile.window(squares + here), a.s.alpha);
            access.store(a.out + at, access.load(a.data + at) * power(norm));
            access.store(a.norm + at, norm);
        });
    });
}

struct BackwardArgs {
    const float *grad, *data, *norm;
    float *data_grad;
    Shape s;
};

void lrn_backward(const BackwardArgs &a) {
    if (a.s.channels == 0) return;
    const float factor = -2.0f * a.s.beta * a.s.alpha;
    for_tiles(a.s, [&](const Tile &tile, const auto &power, float *terms) {
        float *directs = terms + a.s.size();
        tile.each([&](const auto &access, int64_t at, int64_t here) {
            const Vec norm = access.load(a.norm + at), direct = access.load(a.grad + at) * power(norm);
            const Vec term = each(direct * access.load(a.data + at), norm, [](Native x, Native y) { return x / y; });
            direct.store(directs + here);
            access.keep(term).store(terms + here);
        });
        tile.each([&](const auto &access, int64_t at, int64_t here) {
            Vec found = Vec::load(directs + here);
            found.add_product(access.load(a.data + at) * tile.window(terms + here), factor);
            access.store(a.data_grad + at, found);
        });
    });
}

}  // namespace

KERNEL(lrn_forward, ForwardArgs)
KERNEL(lrn_backward, BackwardArgs)

// Local response normalisation across channels, and its gradient.
//
// Contract: the output may lie on the data, the data's gradient on any input. Up to 16 pixels of an image at a time lie
// in the thread's scratch with all their channels, a row of pixels for each: 4 * 16 * channels floats at most fit there.
// The base of the power is kept for the gradient. Each power is a logarithm and an exponential.
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
    int64_t rows() const { return blocks() * LANES; }
};

// Some pixels of an image, at most LANES in a row.
struct Tile {
    const Shape &s;
    int64_t image, first, count;

    // Rows of all channels; zero where there is no pixel and no channel.
    void load(const float *tensor, float *rows) const {
        if (!s.blocked) {
            const float *from = tensor + image * s.channels * s.pixels + first;
            for (int64_t c = 0; c < s.channels; c++) pixels_of(from + c * s.pixels).store(rows + c * LANES);
            for (int64_t c = s.channels; c < s.rows(); c++) Vec::zero().store(rows + c * LANES);
            return;
        }
        for (int64_t block = 0; block < s.blocks(); block++) {
            float held[LANES * LANES] = {};
            const float *from = tensor + place(block);
            if (count < LANES) std::memcpy(held, from, bytes());
            turn(count < LANES ? held : from, rows + block * LANES * LANES);
        }
    }
    void store(const float *rows, float *tensor) const {
        if (!s.blocked) {
            float *to = tensor + image * s.channels * s.pixels + first;
            for (int64_t c = 0; c < s.channels; c++) {
                if (count == LANES) Vec::load(rows + c * LANES).store(to + c * s.pixels);
                else Part{count}.store(to + c * s.pixels, Vec::load(rows + c * LANES));
            }
            return;
        }
        for (int64_t block = 0; block < s.blocks(); block++) {
            float held[LANES * LANES];
            turn(rows + block * LANES * LANES, held);
            std::memcpy(tensor + place(block), held, bytes());
        }
    }

  private:
    Vec pixels_of(const float *from) const { return count == LANES ? Vec::load(from) : Part{count}.load(from); }
    int64_t place(int64_t block) const { return ((image * s.blocks() + block) * s.pixels + first) * LANES; }
    size_t bytes() const { return static_cast<size_t>(count * LANES) * sizeof(float); }  // of a block
    // Sixteen rows become sixteen columns.
    static void turn(const float *from, float *to) {
        for (int i = 0; i < LANES; i += NATIVE)
            for (int j = 0; j < LANES; j += NATIVE) transpose(from + i * LANES + j, LANES, to + j * LANES + i, LANES);
    }
};

// The sum of the rows of the channels about channel c.
INLINE Vec window_sum(const Shape &s, const float *rows, int64_t c) {
    const int64_t last = least(s.channels - 1, c + s.reach);
    Vec sum = Vec::zero();
    for (int64_t k = c > s.reach ? c - s.reach : 0; k <= last; k++) sum += Vec::load(rows + k * LANES);
    return sum;
}

INLINE Vec negative_power(const Vec &base, float exponent) {
    return each(base, [&](Native x) { return exp(log(x) * -exponent); });
}

// Call work(tile, the thread's scratch, floats of an array of rows) for all tiles.
template <class Work> void for_tiles(const Shape &s, const Work &work) {
    const int64_t tiles = (s.pixels + LANES - 1) / LANES, count = s.images * tiles, size = s.rows() * LANES;
    const int64_t wide = size < TASK ? TASK / size : 1;
    parallel((count + wide - 1) / wide, [&](int64_t task) {
        for (int64_t number = task * wide; number < least(count, (task + 1) * wide); number++) {
            const int64_t first = number % tiles * LANES;
            work(Tile{s, number / tiles, first, least(LANES, s.pixels - first)}, thread_scratch(), size);
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
    for_tiles(a.s, [&](const Tile &tile, float *data, int64_t size) {
        float *squares = data + size, *norms = squares + size;
        tile.load(a.data, data);
        std::memset(norms, 0, static_cast<size_t>(size) * sizeof(float));
        for (int64_t at = 0; at < size; at += LANES) (Vec::load(data + at) * Vec::load(data + at)).store(squares + at);
        for (int64_t c = 0; c < a.s.channels; c++) {
            Vec norm = Vec::of(a.s.knorm);
            norm.add_product(window_sum(a.s, squares, c), a.s.alpha);
            norm.store(norms + c * LANES);
        }
        for (int64_t at = 0; at < a.s.channels * LANES; at += LANES)
            (Vec::load(data + at) * negative_power(Vec::load(norms + at), a.s.beta)).store(data + at);
        tile.store(data, a.out);
        tile.store(norms, a.norm);
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
    for_tiles(a.s, [&](const Tile &tile, float *grad, int64_t size) {
        float *data = grad + size, *norms = data + size, *terms = norms + size;
        tile.load(a.grad, grad);
        tile.load(a.data, data);
        tile.load(a.norm, norms);
        for (int64_t at = 0; at < a.s.channels * LANES; at += LANES) {
            const Vec norm = Vec::load(norms + at), direct = Vec::load(grad + at) * negative_power(norm, a.s.beta);
            direct.store(grad + at);
            each(direct * Vec::load(data + at), norm, [](Native x, Native y) { return x / y; }).store(terms + at);
        }
        for (int64_t c = 0; c < a.s.channels; c++) {
            Vec found = Vec::load(grad + c * LANES);
            found.add_product(Vec::load(data + c * LANES) * window_sum(a.s, terms, c), factor);
            found.store(grad + c * LANES);
        }
        tile.store(grad, a.data_grad);
    });
}

}  // namespace

KERNEL(lrn_forward, ForwardArgs)
KERNEL(lrn_backward, BackwardArgs)

// Convolution of 3x3 taps, stride 1, on nChw16c by Winograd's minimal filtering F(4x4, 3x3): each tile of 4x4 outputs takes
// 36 multiplications a pair of channels, where the direct form takes 144. After A. Lavin and S. Gray, "Fast algorithms for
// convolutional neural networks", 2016.
//
//   weights U = G g Gt once, patches V = Bt d B of 6x6 inputs, M = U V summed over input channels at each of the 36
//   positions by the register tile of conv.h, and outputs At M A plus bias and addend, perhaps relu of it.
//
// The data gradient is the same with output and input channels exchanged and taps in reverse order. Tiles are computed in
// bands and output blocks in slices, so that V and M, or U, stay in a cache; each tile alone, in one order of operations,
// so neither bands nor slices nor threads nor other images change a bit. Channels fill whole blocks. `work` holds U of a
// slice, V and M of a band; y may lie on the addend.
#include "kernel.h"
#include "winograd.h"

namespace {

struct WinogradArgs {
    const float *x, *weight, *bias, *addend;  // the last two may be null
    float *y, *work;
    int64_t images, in_blocks, out_blocks;
    int64_t height, width, out_height, out_width, row_pad, column_pad;
    int64_t turned;       // whether the weight (O, I, 3, 3) maps outputs to inputs: then O are the channels of x
    int64_t band, slice;  // tiles, output blocks
    int64_t relu;
};

INLINE void transform_taps(const Vec (&g)[3], Vec (&u)[PATCH]) {
    const Vec even = scaled(g[0] + scaled(g[2], NEAR2), NEAR_SHARE), odd = scaled(g[1], NEAR * NEAR_SHARE);
    const Vec far_even = scaled(g[0] + scaled(g[2], FAR2), FAR_SHARE), far_odd = scaled(g[1], FAR * FAR_SHARE);
    u[0] = scaled(g[0], 1 / (NEAR2 * FAR2));
    u[1] = even + odd, u[2] = even - odd;
    u[3] = far_even + far_odd, u[4] = far_even - far_odd;
    u[5] = g[2];
}

INLINE void transform_sums(const Vec (&m)[PATCH], Vec (&y)[OUT]) {
    const Vec even = m[1] + m[2], odd = m[1] - m[2], far_even = m[3] + m[4], far_odd = m[3] - m[4];
    y[0] = m[0] + even + far_even;
    y[1] = scaled(odd, NEAR) + scaled(far_odd, FAR);
    y[2] = scaled(even, NEAR2) + scaled(far_even, FAR2);
    y[3] = scaled(odd, NEAR2 * NEAR) + scaled(far_odd, FAR2 * FAR) + m[5];
}

struct Winograd {
    const WinogradArgs &a;
    Tiles tiles;
    int64_t tile_count;                          // of all images
    int64_t u_position, v_position, m_position;  // floats; a vector more than needed, lest they meet in a cache's set
    float *u, *v, *m;

    explicit Winograd(const WinogradArgs &args) : a(args), tiles(a.out_height, a.out_width) {
        tile_count = a.images * tiles.each();
        u_position = a.slice * a.in_blocks * SQUARE + LANES;
        v_position = a.in_blocks * a.band * LANES + LANES, m_position = a.slice * a.band * LANES + LANES;
        u = a.work, v = u + POSITIONS * u_position, m = v + POSITIONS * v_position;
    }

    void compute() const {
        for (int64_t block = 0; block < a.out_blocks; block += a.slice) {
            const int64_t blocks = min(a.slice, a.out_blocks - block);
            transform_weights(block, blocks);
            for (int64_t tile = 0; tile < tile_count; tile += a.band) {
                const int64_t count = min(a.band, tile_count - tile);
                if (block == 0 || tile_count > a.band) transform_inputs(tile, count);
                multiply(count, blocks);
                transform_outputs(tile, count, block, blocks);
            }
        }
    }

    void transform_weights(int64_t first, int64_t blocks) const {
        parallel(blocks * a.in_blocks, [&](int64_t task) {
            const int64_t out = task / a.in_blocks, in = task % a.in_blocks;
            transform_weight(first + out, in, u + task * SQUARE);
        });
    }

    // U of 16 x 16 channels as (position, input, output): lanes are the weight's first axis, so turned ones are transposed.
    void transform_weight(int64_t out, int64_t in, float *to) const {
        constexpr int64_t LINE = LANES * TAPS;
        const int64_t near_blocks = a.turned ? a.out_blocks : a.in_blocks, far = a.turned ? in : out;
        const int64_t near = a.turned ? out : in;
        float *lines = thread_scratch(), *turned = lines + LANES * LINE;
        const float *from = a.weight + (far * LANES * near_blocks + near) * LINE;
        for (int64_t i = 0; i < LINE; i += NATIVE)
            for (int64_t j = 0; j < LANES; j += NATIVE)
                transpose(from + j * near_blocks * LINE + i, near_blocks * LINE, lines + i * LANES + j, LANES);
        for (int64_t i = 0; i < LANES; i++) {
            const int64_t step = a.turned ? -LANES : LANES;
            const float *taps = lines + i * TAPS * LANES + (a.turned ? (TAPS - 1) * LANES : 0);
            Vec made[POSITIONS];
            transform_square<3, PATCH>(taps, 3 * step, step, [](auto &g, auto &w) { transform_taps(g, w); }, made);
            for (int64_t p = 0; p < POSITIONS; p++)
                made[p].store(a.turned ? turned + p * SQUARE + i * LANES : to + p * u_position + i * LANES);
        }
        if (!a.turned) return;
        for (int64_t p = 0; p < POSITIONS; p++)
            for (int64_t i = 0; i < LANES; i += NATIVE)
                for (int64_t j = 0; j < LANES; j += NATIVE)
                    transpose(turned + p * SQUARE + i * LANES + j, LANES, to + p * u_position + j * LANES + i, LANES);
    }

    void transform_inputs(int64_t first, int64_t count) const {
        transform_patches({a.x, a.in_blocks, a.height, a.width, a.row_pad, a.column_pad}, tiles, first, count, a.band,
                          v_position, v);
    }

    void multiply(int64_t count, int64_t blocks) const {
        const int64_t wide = MOST_BLOCKS > 1 && blocks > 1 ? 2 : 1, strips = ceil_div(blocks, wide);
        parallel(POSITIONS * strips, [&](int64_t task) {
            const int64_t position = task / strips, block = task % strips * wide;
            multiply_strip(position, block, min(wide, blocks - block), count);
        });
    }

    void multiply_strip(int64_t position, int64_t block, int64_t blocks, int64_t count) const {
        static const int64_t taps[1] = {0};
        const int64_t width = ceil_div(count, ceil_div(count, WIDEST[blocks]));
        Tile t{};
        t.x_pixel = t.y_pixel = LANES, t.x_block = t.y_block = a.band * LANES;
        t.taps = taps, t.tap_count = 1, t.run = LANES, t.in_blocks = a.in_blocks;
        t.w = u + position * u_position + block * a.in_blocks * SQUARE, t.w_block = a.in_blocks * SQUARE;
        for (int64_t tile = 0; tile < count; tile += width) {
            t.x = v + position * v_position + tile * LANES;
            t.y = m + position * m_position + (block * a.band + tile) * LANES;
            find_tile(1, min(width, count - tile), blocks, LANES)(t);
        }
    }

    void transform_outputs(int64_t first, int64_t count, int64_t first_block, int64_t blocks) const {
        for_tiles(count, blocks, [&](int64_t block, int64_t at) {
            const int64_t tile = first + at, image = tiles.image(tile), out = first_block + block;
            const int64_t row = tiles.row(tile), column = tiles.column(tile);
            const Vec bias = a.bias ? Vec::load(a.bias + out * LANES) : Vec::zero();
            const int64_t begin = (((image * a.out_blocks + out) * a.out_height + row) * a.out_width + column) * LANES;
            Vec made[OUT * OUT];
            transform_square<PATCH, OUT>(m + (block * a.band + at) * LANES, PATCH * m_position, m_position,
                                         [](auto &given, auto &out) { transform_sums(given, out); }, made);
            for (int64_t r = 0; r < min(OUT, a.out_height - row); r++)
                for (int64_t c = 0; c < min(OUT, a.out_width - column); c++) {
                    const int64_t to = begin + (r * a.out_width + c) * LANES;
                    Vec sum = made[r * OUT + c] + bias;
                    if (a.addend) sum += Vec::load(a.addend + to);
                    (a.relu ? relu(sum) : sum).store(a.y + to);
                }
        });
    }
};

void convolution_winograd(const WinogradArgs &a) { Winograd(a).compute(); }

}  // namespace

KERNEL(convolution_winograd, WinogradArgs)

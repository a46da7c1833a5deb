// The weight gradient of a convolution of 3x3 taps, stride 1, on nChw16c, by Winograd's minimal filtering F(3x3, 4x4): each
// tile of 4x4 output gradients takes 36 multiplications a pair of channels, where the direct form takes 144.
//
//   patches V = Bt d B as in winograd.cpp, gradients D = G g Gt, sums M of V D over the tiles of a chunk of images at each
//   of 36 positions, and from them the taps At M A
//
// A sum is one chain of multiply-adds over the tiles of a chunk; the chunks' taps are added in ascending order, from running
// sums of earlier images on where there are any. So neither bands of tiles nor slices of output blocks nor threads change a
// bit. Channels fill whole blocks. `work` holds V of a band, and D and M of a slice.
#include "kernel.h"
#include "winograd.h"

namespace {

struct WinogradWeightArgs {
    const float *x, *grad;
    float *out;                           // weight gradient (O, I, 3, 3)
    const float *running;                 // sums of earlier images to go on from, which may be `out`; or null
    float *work;
    int64_t images, chunk, in_blocks, out_blocks;
    int64_t height, width, out_height, out_width, row_pad, column_pad;
    int64_t band, slice;                  // tiles, output blocks
};

INLINE void transform_gradients(const Vec (&g)[OUT], Vec (&d)[PATCH]) {
    const Vec even = scaled(g[0] + scaled(g[2], NEAR2), NEAR_SHARE);
    const Vec odd = scaled(g[1] + scaled(g[3], NEAR2), NEAR * NEAR_SHARE);
    const Vec far_even = scaled(g[0] + scaled(g[2], FAR2), FAR_SHARE);
    const Vec far_odd = scaled(g[1] + scaled(g[3], FAR2), FAR * FAR_SHARE);
    d[0] = scaled(g[0], 1 / (NEAR2 * FAR2));
    d[1] = even + odd, d[2] = even - odd;
    d[3] = far_even + far_odd, d[4] = far_even - far_odd;
    d[5] = g[3];
}

INLINE void transform_sums(const Vec (&m)[PATCH], Vec (&taps)[3]) {
    const Vec even = m[1] + m[2], odd = m[1] - m[2], far_even = m[3] + m[4], far_odd = m[3] - m[4];
    taps[0] = m[0] + even + far_even;
    taps[1] = scaled(odd, NEAR) + scaled(far_odd, FAR);
    taps[2] = scaled(even, NEAR2) + scaled(far_even, FAR2) + m[5];
}

// Sums that the registers hold: so many input channels by blocks of output channels.
#if defined(__AVX512F__)
constexpr int INS = 8, MOST_OUTS = 2;
#elif defined(__AVX__) || defined(__aarch64__)
constexpr int INS = 4, MOST_OUTS = 1;
#else
constexpr int INS = 2, MOST_OUTS = 1;
#endif

// sums[q][j] += sum over tiles of d[q] * v[j], for INS channels j; d and sums have distances between output blocks.
template <int OUTS>
void add_products(const float *__restrict v, const float *__restrict d, int64_t d_block, int64_t tiles, float *sums,
                  int64_t sums_block) {
    Vec sum[OUTS][INS];
#pragma GCC unroll 2
    for (int q = 0; q < OUTS; q++)
#pragma GCC unroll 8
        for (int j = 0; j < INS; j++) sum[q][j] = Vec::load(sums + q * sums_block + j * LANES);
    for (int64_t tile = 0; tile < tiles; tile++, v += LANES, d += LANES) {
        Vec g[OUTS];
#pragma GCC unroll 2
        for (int q = 0; q < OUTS; q++) g[q] = Vec::load(d + q * d_block);
#pragma GCC unroll 8
        for (int j = 0; j < INS; j++) {
            const float value = v[j];
#pragma GCC unroll 2
            for (int q = 0; q < OUTS; q++) sum[q][j].add_product(g[q], value);
        }
    }
#pragma GCC unroll 2
    for (int q = 0; q < OUTS; q++)
#pragma GCC unroll 8
        for (int j = 0; j < INS; j++) sum[q][j].store(sums + q * sums_block + j * LANES);
}

struct WinogradWeight {
    const WinogradWeightArgs &a;
    Tiles tiles;
    int64_t v_position, d_position, m_position;  // floats; a vector more than needed, lest they meet in a cache's set
    float *v, *d, *m;

    explicit WinogradWeight(const WinogradWeightArgs &args) : a(args), tiles(a.out_height, a.out_width) {
        v_position = a.in_blocks * a.band * LANES + LANES, d_position = a.slice * a.band * LANES + LANES;
        m_position = a.slice * a.in_blocks * SQUARE + LANES;
        v = a.work, d = v + POSITIONS * v_position, m = d + POSITIONS * d_position;
    }

    void compute() const {
        for (int64_t image = 0; image < a.images; image += a.chunk) {
            const int64_t first = image * tiles.each(), last = min(image + a.chunk, a.images) * tiles.each();
            for (int64_t block = 0; block < a.out_blocks; block += a.slice) {
                const int64_t blocks = min(a.slice, a.out_blocks - block);
                for (int64_t tile = first; tile < last; tile += a.band) {
                    const int64_t count = min(a.band, last - tile);
                    if (block == 0 || last - first > a.band)
                        transform_patches({a.x, a.in_blocks, a.height, a.width, a.row_pad, a.column_pad}, tiles, tile,
                                          count, a.band, v_position, v);
                    transform_slice(tile, count, block, blocks);
                    multiply(count, blocks, tile == first);
                }
                finish(block, blocks, image == 0 ? a.running : a.out);
            }
        }
    }

    void transform_slice(int64_t first, int64_t count, int64_t first_block, int64_t blocks) const {
        const int64_t plane = a.out_height * a.out_width * LANES;
        for_tiles(count, blocks, [&](int64_t block, int64_t at) {
            const int64_t tile = first + at;
            float patch[OUT * OUT * LANES];
            int64_t step;
            const float *from = pixels_at<OUT>(
                a.grad + (tiles.image(tile) * a.out_blocks + first_block + block) * plane, a.out_height, a.out_width,
                tiles.row(tile), tiles.column(tile), patch, step);
            Vec made[POSITIONS];
            transform_square<OUT, PATCH>(from, step, LANES, [](auto &g, auto &w) { transform_gradients(g, w); }, made);
            float *to = d + (block * a.band + at) * LANES;
            for (int64_t p = 0; p < POSITIONS; p++) made[p].store(to + p * d_position);
        });
    }

    // Adds the products of a band to the sums, which begin at zero.
    void multiply(int64_t count, int64_t blocks, bool begin) const {
        const int64_t strips = ceil_div(blocks, MOST_OUTS);
        parallel(POSITIONS * strips, [&](int64_t task) {
            const int64_t position = task / strips, block = task % strips * MOST_OUTS;
            const int64_t outs = min(MOST_OUTS, blocks - block);
            float *sums = m + position * m_position + block * a.in_blocks * SQUARE;
            if (begin) memset(sums, 0, outs * a.in_blocks * SQUARE * sizeof(float));
            const float *grads = d + position * d_position + block * a.band * LANES;
            for (int64_t in = 0; in < a.in_blocks; in++)
                for (int64_t lane = 0; lane < LANES; lane += INS)
                    (outs > 1 ? add_products<MOST_OUTS> : add_products<1>)(
                        v + position * v_position + in * a.band * LANES + lane, grads, a.band * LANES, count,
                        sums + in * SQUARE + lane * LANES, a.in_blocks * SQUARE);
        });
    }

    // The taps of a slice in the weight's order, added to those at `before` where there are any.
    void finish(int64_t first_block, int64_t blocks, const float *before) const {
        constexpr int64_t LINE = LANES * TAPS;
        parallel(blocks * a.in_blocks, [&](int64_t task) {
            const int64_t out = first_block + task / a.in_blocks, in = task % a.in_blocks;
            float *lines = thread_scratch(), *rows = lines + LANES * LINE;
            for (int64_t i = 0; i < LANES; i++) {
                Vec taps[TAPS];
                transform_square<PATCH, 3>(m + task * SQUARE + i * LANES, PATCH * m_position, m_position,
                                           [](auto &given, auto &made) { transform_sums(given, made); }, taps);
                for (int64_t t = 0; t < TAPS; t++) taps[t].store(lines + (i * TAPS + t) * LANES);
            }
            for (int64_t i = 0; i < LINE; i += NATIVE)
                for (int64_t j = 0; j < LANES; j += NATIVE)
                    transpose(lines + i * LANES + j, LANES, rows + j * LINE + i, LINE);
            for (int64_t j = 0; j < LANES; j++) {
                const int64_t at = ((out * LANES + j) * a.in_blocks + in) * LINE;
                for (int64_t i = 0; i < LINE; i += LANES) {
                    Vec sum = Vec::load(rows + j * LINE + i);
                    if (before) sum = Vec::load(before + at + i) + sum;
                    sum.store(a.out + at + i);
                }
            }
        });
    }
};

void convolution_winograd_weight(const WinogradWeightArgs &a) { WinogradWeight(a).compute(); }

}  // namespace

KERNEL(convolution_winograd_weight, WinogradWeightArgs)

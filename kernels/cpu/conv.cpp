// Direct convolution over up to three spatial axes into nChw16c, from nChw16c or from a plain tensor of few channels.
//
//   convolution_pack   weight (O, I, D, R, S), its taps in either direction, as one stream of vectors for each phase
//   convolution        y = bias + sum over input channels and taps, perhaps + y, perhaps relu of it
//
// The data gradient is the same computation with output and input channels exchanged and the taps in reverse order; with
// a stride, one for each phase of the stride, over the taps that reach it.
//
// Each output is one chain of multiply-adds in a fixed order (bias, then input blocks, taps, channels), so neither tiles
// nor tasks nor threads change a bit. Padding lanes of y are zero. 2 * D * R * S * I FLOPs an output; patches of padded input
// are copied to a scratch of the thread.
#include "conv.h"
#include "conv_args.h"
#include "kernel.h"
#include "pool.h"

namespace {

struct FillArgs {
    const float *from;  // null for zeros
    float *y;
    int64_t size;
};

// What y holds before the convolution: for outputs that no tap reaches, and to add to.
void convolution_fill(const FillArgs &a) {
    constexpr int64_t BLOCK = 1 << 16;
    parallel(ceil_div(a.size, BLOCK), [&](int64_t block) {
        const int64_t at = block * BLOCK, bytes = min(BLOCK, a.size - at) * sizeof(float);
        if (a.from)
            memcpy(a.y + at, a.from + at, bytes);
        else
            memset(a.y + at, 0, bytes);
    });
}

struct PadArgs {
    const float *bias;
    float *padded;
    int64_t size;
};

// The bias with zeros up to a whole block.
void convolution_pad(const PadArgs &a) {
    memset(a.padded, 0, ceil_div(a.size, LANES) * LANES * sizeof(float));
    memcpy(a.padded, a.bias, a.size * sizeof(float));
}

// Weights of one pair of groups' blocks of output and input channels, and where they go.
struct Packing {
    const PackArgs &a;
    const int64_t taps, out_blocks, in_blocks, square;  // square: floats of a tap of a pair of blocks
    const bool out_is_far;                              // in the weight, than input channels
    TapPlace places[MAX_TAPS];

    explicit Packing(const PackArgs &args)
        : a(args), taps(a.taps()), out_blocks(ceil_div(a.outs, LANES)), in_blocks(ceil_div(a.ins, a.in_lanes)),
          square(a.in_lanes * LANES), out_is_far(a.out_step > a.in_step) {
        for (int64_t t = 0; t < taps; t++) places[t] = TapPlace(a, t);
    }

    // The square of a tap of a pair, which is numbered as they lie in a stream.
    float *to(int64_t pair, int64_t t) const {
        const TapPlace &place = places[t];
        return a.packed + (place.before * a.groups * out_blocks * in_blocks + pair * place.size + place.at) * square;
    }

    // Of one out block and in block. What lies far apart in the weight, output channels forward and input channels
    // backward, is a line each: lines are copied side by side first, for at distances that are powers of two they would
    // push each other out of the cache, and those of the next pair are fetched meanwhile.
    void pack(int64_t group, int64_t out_block, int64_t in_block) const {
        const int64_t out = out_block * LANES, in = in_block * a.in_lanes;
        const int64_t outs = min(a.outs - out, LANES), ins = min(a.ins - in, a.in_lanes);
        const bool whole = outs == LANES && !a.small;
        const int64_t fars = out_is_far ? outs : ins, nears = out_is_far ? ins : outs;
        const int64_t far_step = out_is_far ? a.out_step : a.in_step, near_step = out_is_far ? a.in_step : a.out_step;
        const int64_t pair = (group * out_blocks + out_block) * in_blocks + in_block;
        const float *from = a.weight + group * a.group_step + out * a.out_step + in * a.in_step;
        if (whole && near_step == 1 && ins == LANES) {  // of one tap: each line is used once
            if (out_is_far) return transpose_block(from, far_step, to(pair, 0), LANES);
            for (int f = 0; f < LANES; f++) Vec::load(from + f * far_step).store(to(pair, 0) + f * LANES);
            return;
        }
        const int64_t line = (a.small ? a.small : nears) * near_step;
        float *lines = thread_scratch();
        for (int64_t f = 0; f < fars; f++) {
            memcpy(lines + f * line, from + f * far_step, line * sizeof(float));
            for (int64_t i = 0; i < line; i += LANES) __builtin_prefetch(from + f * far_step + line + i);
        }
        if (!whole || ins < a.in_lanes)
            for (int64_t t = 0; t < taps; t++) memset(to(pair, t), 0, square * sizeof(float));
        if (!whole) return pack_each(pair, lines, line, near_step, fars, nears);
        if (out_is_far) return pack_turned(pair, lines, line, near_step, ins);
        pack_turned(pair, lines, near_step, line, ins);
    }

    // A whole block of output channels, `across` apart, of so many input channels, `along` apart: of each input channel
    // columns are turned to rows, LANES of them at a time, of which those of the taps are taken.
    void pack_turned(int64_t pair, const float *from, int64_t across, int64_t along, int64_t ins) const {
        float turned[LANES * LANES];
        const int64_t next = out_is_far ? 1 : in_blocks;
        for (int64_t n = 0; n < ins; n++)
            for (int64_t first = 0; first < taps; first += LANES) {
                transpose_block(from + n * along + first, across, turned, LANES);
                for (int64_t t = first; t < min(first + LANES, taps); t++) {
                    __builtin_prefetch(to(pair + next, t) + n * LANES, 1);
                    Vec::load(turned + (t - first) * LANES).store(to(pair, t) + n * LANES);
                }
            }
    }

    // One by one, into what is zero.
    void pack_each(int64_t pair, const float *lines, int64_t line, int64_t near_step, int64_t fars, int64_t nears) const {
        const int64_t far_lane = out_is_far ? 1 : LANES, near_lane = out_is_far ? LANES : 1;
        for (int64_t t = 0; t < taps; t++) {
            float *tap = to(pair, t);
            for (int64_t f = 0; f < fars; f++) {
                const int64_t first = a.small ? f / a.small * a.small : 0;
                for (int64_t n = 0; n < (a.small ? a.small : nears); n++)
                    tap[f * far_lane + (first + n) * near_lane] = lines[f * line + n * near_step + t];
            }
        }
    }
};

// A task goes along the lines of channels that are far apart.
void convolution_pack(const PackArgs &a) {
    const Packing packing(a);
    const int64_t fars = packing.out_is_far ? packing.out_blocks : packing.in_blocks;
    const int64_t nears = packing.out_is_far ? packing.in_blocks : packing.out_blocks;
    parallel(a.groups * fars, [&](int64_t task) {
        for (int64_t near = 0; near < nears; near++)
            packing.out_is_far ? packing.pack(task / fars, task % fars, near) : packing.pack(task / fars, near, task % fars);
    });
}

constexpr int64_t WEIGHT_FLOATS = 40 << 10;  // weights of a pass: they stay in a second-level cache
constexpr int64_t OUT_FLOATS = 128 << 10;    // outputs that several passes go over

// How one convolution is cut, from its sizes.
struct Cut {
    const ConvolutionArgs &a;
    int64_t lanes;                       // floats of an input pixel
    int64_t run, tap_count;
    int64_t blocks, pass;                // output blocks of a tile, input blocks of a pass
    bool padded, two_rows;
    int64_t band_rows, band_columns;     // outputs of a task
    int64_t row_bands, column_bands, splits, split_blocks;

    explicit Cut(const ConvolutionArgs &args) : a(args) {
        lanes = a.plain ? a.in_lanes : LANES;
        const bool runs = a.tap_column_step == 1 && (a.plain || a.in_lanes == LANES);
        run = runs ? a.tap_columns * lanes : a.in_lanes;
        tap_count = a.tap_depths * (runs ? a.tap_rows : a.tap_rows * a.tap_columns);
        blocks = MOST_BLOCKS > 1 && a.out_blocks > 1 ? 2 : 1;
        padded = a.plain || a.tap_row < 0 || a.tap_column < 0 || last_row() >= a.height || last_column() >= a.width ||
                 a.tap_depth < 0 || last_depth() >= a.depth;
        two_rows = blocks == 2 && a.columns <= WIDEST_IN_TWO_ROWS && a.rows > 1;
        pass = max(1, min(a.in_blocks, WEIGHT_FLOATS / (blocks * run * tap_count * LANES)));
        if (a.add) pass = a.in_blocks;  // y cannot hold sums between passes
        choose_band();
        choose_tasks();
    }

    int64_t last_depth() const {
        return (a.depths - 1) * a.depth_stride + a.tap_depth + (a.tap_depths - 1) * a.tap_depth_step;
    }
    int64_t last_row() const { return (a.rows - 1) * a.row_stride + a.tap_row + (a.tap_rows - 1) * a.tap_row_step; }
    int64_t last_column() const {
        return (a.columns - 1) * a.column_stride + a.tap_column + (a.tap_columns - 1) * a.tap_column_step;
    }
    int64_t patch_rows(int64_t rows) const {
        return (rows - 1) * a.row_stride + (a.tap_rows - 1) * a.tap_row_step + 1;
    }
    int64_t patch_columns(int64_t columns) const {
        return (columns - 1) * a.column_stride + (a.tap_columns - 1) * a.tap_column_step + 1;
    }
    bool fits(int64_t rows, int64_t columns) const {
        if (pass * a.tap_depths * patch_rows(rows) * patch_columns(columns) * lanes > SCRATCH_FLOATS) return false;
        return pass == a.in_blocks || a.out_blocks * rows * columns * LANES <= OUT_FLOATS;
    }

    // The largest band that fits: fewer rows, then fewer columns, then fewer input blocks a pass.
    void choose_band() {
        band_rows = a.rows, band_columns = a.columns;
        while (!fits(band_rows, band_columns) && band_rows > 1) band_rows = (band_rows + 1) / 2;
        while (!fits(band_rows, band_columns) && band_columns > WIDEST[blocks]) band_columns = (band_columns + 1) / 2;
        while (!fits(band_rows, band_columns) && pass > 1 && !a.add) pass = (pass + 1) / 2;
    }

    void choose_tasks() {
        const int64_t wanted = pool_threads() > 1 ? 4 * pool_threads() : 1;
        const auto tasks = [&] {
            return a.images * a.depths * a.groups * ceil_div(a.rows, band_rows) * ceil_div(a.columns, band_columns);
        };
        while (tasks() < wanted && band_rows > 4) band_rows = (band_rows + 1) / 2;
        if (a.rows == 1)
            while (tasks() < wanted && band_columns > 4 * WIDEST[blocks]) band_columns = (band_columns + 1) / 2;
        row_bands = ceil_div(a.rows, band_rows);
        column_bands = ceil_div(a.columns, band_columns);
        const int64_t tiles = ceil_div(a.out_blocks, blocks);
        splits = max(1, min(tiles, wanted / max(1, tasks())));
        split_blocks = ceil_div(tiles, splits) * blocks;
        splits = ceil_div(a.out_blocks, split_blocks);
    }
};

// One band of one plane of an image and group, for some of its output blocks.
struct Band {
    const Cut &cut;
    const ConvolutionArgs &a;
    int64_t image, depth, group, row, column, rows, columns, first_block, last_block;
    int64_t taps[MAX_TAPS];
    // Where the pass's input lies.
    const float *x;
    int64_t x_row, x_depth, x_block;

    Band(const Cut &c, int64_t task) : cut(c), a(c.a) {
        first_block = task % c.splits * c.split_blocks, task /= c.splits;
        last_block = min(first_block + c.split_blocks, a.out_blocks);
        column = task % c.column_bands * c.band_columns, task /= c.column_bands;
        columns = min(c.band_columns, a.columns - column);
        row = task % c.row_bands * c.band_rows, task /= c.row_bands;
        rows = min(c.band_rows, a.rows - row);
        group = task % a.groups, task /= a.groups;
        depth = task % a.depths, image = task / a.depths;
    }

    void compute() {
        for (int64_t block = 0; block < a.in_blocks; block += cut.pass) {
            const int64_t count = min(cut.pass, a.in_blocks - block);
            place_input(block, count);
            for (int64_t out = first_block; out < last_block; out += cut.blocks)
                compute_blocks(block, count, out, min(cut.blocks, last_block - out));
        }
        clear_padding();
    }

    // The input of a pass: x itself, or padded patches in scratch.
    void place_input(int64_t block, int64_t count) {
        const int64_t plane = a.height * a.width * cut.lanes, first = depth * a.depth_stride + a.tap_depth;
        const float *from = a.x + ((image * a.groups + group) * a.in_blocks + block) * a.depth * plane;
        const int64_t top = row * a.row_stride + a.tap_row, left = column * a.column_stride + a.tap_column;
        if (!cut.padded) {
            x = from + first * plane + (top * a.width + left) * cut.lanes;
            x_row = a.width * cut.lanes, x_depth = a.tap_depth_step * plane, x_block = a.depth * plane;
        } else {
            const int64_t high = cut.patch_rows(rows), wide = cut.patch_columns(columns);
            x = thread_scratch();
            x_row = wide * cut.lanes, x_depth = high * x_row, x_block = a.tap_depths * x_depth;
            for (int64_t b = 0; b < count; b++)
                for (int64_t d = 0; d < a.tap_depths; d++)
                    copy(from + b * a.depth * plane, first + d * a.tap_depth_step, top, left, high, wide,
                         thread_scratch() + b * x_block + d * x_depth);
        }
        int64_t at = 0;
        const int64_t each = cut.tap_count / (a.tap_depths * a.tap_rows);
        for (int64_t d = 0; d < a.tap_depths; d++)
            for (int64_t r = 0; r < a.tap_rows; r++)
                for (int64_t s = 0; s < each; s++)
                    taps[at++] = d * x_depth + r * a.tap_row_step * x_row + s * a.tap_column_step * cut.lanes;
    }

    // A patch of one plane of a block's pixels, zero outside.
    void copy(const float *planes, int64_t at, int64_t top, int64_t left, int64_t high, int64_t wide, float *patch) {
        const int64_t plane = a.height * a.width;
        if (at < 0 || at >= a.depth)
            memset(patch, 0, high * wide * cut.lanes * sizeof(float));
        else if (a.plain)
            interleave_patch(planes + at * plane, a.depth * plane, a.height, a.width, cut.lanes, top, left, high, wide,
                             patch);
        else
            copy_patch(planes + at * plane * LANES, a.height, a.width, LANES, top, left, high, wide, patch);
    }

    void compute_blocks(int64_t block, int64_t count, int64_t out, int64_t blocks) {
        const int64_t tap_floats = cut.run * cut.tap_count * LANES;
        const int64_t plane = a.out_depth * a.out_height * a.out_width * LANES;
        const int64_t out_block = group * a.out_blocks + out;
        Tile t;
        t.x_pixel = a.column_stride * cut.lanes, t.x_row = a.row_stride * x_row, t.x_block = x_block;
        t.taps = taps, t.tap_count = cut.tap_count, t.run = cut.run, t.in_blocks = count;
        t.w = a.packed + (out_block * a.in_blocks + block) * tap_floats, t.w_block = a.in_blocks * tap_floats;
        t.y_pixel = a.column_step * LANES, t.y_row = a.row_step * a.out_width * LANES, t.y_block = plane;
        t.bias = a.bias ? a.bias + out_block * LANES : nullptr;
        t.load = block > 0, t.add = a.add;
        t.relu = a.relu && block + count == a.in_blocks;
        float *y = a.y + (image * a.groups * a.out_blocks + out_block) * plane + pixel(row, column);
        compute_rows(t, y, blocks);
    }

    // Where an output lies in its block.
    int64_t pixel(int64_t r, int64_t c) const {
        const int64_t line = (a.depth_phase + depth * a.depth_step) * a.out_height + a.row_phase + r * a.row_step;
        return (line * a.out_width + a.column_phase + c * a.column_step) * LANES;
    }

    void compute_rows(Tile &t, float *y, int64_t blocks) {
        const int64_t tiles = ceil_div(columns, cut.two_rows ? WIDEST_IN_TWO_ROWS : WIDEST[blocks]);
        const int64_t width = ceil_div(columns, tiles);
        const int64_t together = cut.two_rows && blocks == 2 ? 2 : 1;
        for (int64_t r = 0; r < rows;) {
            const int64_t high = min(together, rows - r);
            for (int64_t c = 0; c < columns; c += width) {
                t.x = x + r * t.x_row + c * t.x_pixel;
                t.y = y + r * t.y_row + c * t.y_pixel;
                find_tile(high, min(width, columns - c), blocks, t.x_pixel)(t);
            }
            r += high;
        }
    }

    // Infinity times a zero weight is NaN, also in lanes beyond the last channel: these are zero whatever came in.
    void clear_padding() {
        const int64_t used = a.outs - (group * a.out_blocks + last_block - 1) * LANES;
        if (used >= LANES) return;
        float *y = a.y + (image * a.groups * a.out_blocks + group * a.out_blocks + last_block - 1) * a.out_depth *
                             a.out_height * a.out_width * LANES;
        for (int64_t r = row; r < row + rows; r++)
            for (int64_t c = column; c < column + columns; c++)
                for (int64_t lane = used; lane < LANES; lane++) y[pixel(r, c) + lane] = 0;
    }
};

void convolution(const ConvolutionArgs &a) {
    if (!a.images || !a.depths || !a.rows || !a.columns) return;
    const Cut cut(a);
    parallel(a.images * a.depths * a.groups * cut.row_bands * cut.column_bands * cut.splits, [&](int64_t task) {
        Band(cut, task).compute();
    });
}

}  // namespace

KERNEL(convolution_fill, FillArgs)
KERNEL(convolution_pad, PadArgs)
KERNEL(convolution_pack, PackArgs)
KERNEL(convolution, ConvolutionArgs)

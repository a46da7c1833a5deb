// The weight gradient of a convolution over up to three spatial axes: for each pair of a block of output channels and one of
// input channels, the sum over images and pixels of input times output gradient, for each tap. And the bias gradient.
//
// A sum is one chain of multiply-adds over the pixels of a chunk of images; the chunks' sums are added in ascending
// order, from running sums of earlier images on where there are any. The chunk depends on the size of an image alone, so
// neither the batch's parts nor threads change a bit. Where there are few blocks, chunks are tasks of their own, with
// partial sums in the workspace.
#include <utility>

#include "conv.h"
#include "kernel.h"
#include "lanes.h"
#include "pool.h"

namespace {

struct WeightArgs {
    const float *x, *grad;
    float *out;                                // weight gradient (O, I, D, R, S)
    const float *running;                      // sums of earlier images to go on from, which may be `out`; or null
    float *partial;                            // (chunk, group, out block, in block, tap, in lane, 16), or null
    int64_t images, chunk, groups;
    int64_t plain, in_lanes, in_blocks;        // as the convolution has them
    int64_t depth, height, width;
    int64_t out_blocks, out_depth, out_height, out_width;
    int64_t depth_stride, row_stride, column_stride;
    int64_t tap_depth, tap_depth_step, tap_depths;
    int64_t tap_row, tap_row_step, tap_rows;
    int64_t tap_column, tap_column_step, tap_columns;
    int64_t outs, ins;                         // channels of a group
    int64_t group_step, out_step, in_step;     // distances in the weight; taps lie side by side
    int64_t small;                             // 0, or channels of the small groups, of which a group here is 16 / small;
                                               // with 1, each lane is a group, and `outs` counts all channels
};

// Pixels of the output and what lies under one tap of them; distances in floats.
struct Pixels {
    int64_t images, rows, columns;
    int64_t x_image, x_row, x_pixel, grad_image;  // rows of grad lie side by side
    int64_t step;                                 // between taps of a row in x
    const float *ahead;                           // what is read next, fetched meanwhile: as many pixels
    int64_t ahead_image;
};

// sums[j] += sum over the pixels of grad * x[j]
template <int COUNT> void add_products(const Pixels &pixels, const float *x, const float *grad, float *sums) {
    Vec sum[COUNT];
#pragma GCC unroll 16
    for (int j = 0; j < COUNT; j++) sum[j] = Vec::load(sums + j * LANES);
    const int64_t columns = pixels.columns, x_pixel = pixels.x_pixel, rows = pixels.rows, x_row = pixels.x_row;
    for (int64_t n = 0; n < pixels.images; n++) {
        const float *g = grad + n * pixels.grad_image, *line = x + n * pixels.x_image;
        const float *ahead = pixels.ahead + n * pixels.ahead_image;
        for (int64_t r = 0; r < rows; r++) {
            const float *__restrict from = line + r * x_row;
            for (int64_t c = 0; c < columns; c++, from += x_pixel, g += LANES, ahead += LANES) {
                const Vec v = Vec::load(g);
                __builtin_prefetch(ahead);
#pragma GCC unroll 16
                for (int j = 0; j < COUNT; j++) sum[j].add_product(v, from[j]);
            }
        }
    }
#pragma GCC unroll 16
    for (int j = 0; j < COUNT; j++) sum[j].store(sums + j * LANES);
}

#if defined(__AVX512F__)
constexpr int MOST = 16;
#elif defined(__AVX__) || defined(__aarch64__)
constexpr int MOST = 6;
#else
constexpr int MOST = 2;
#endif

typedef void (*AddProducts)(const Pixels &, const float *, const float *, float *);

template <int... COUNTS> AddProducts find_products(int64_t count, std::integer_sequence<int, COUNTS...>) {
    static constexpr AddProducts BY_COUNT[] = {add_products<COUNTS + 1>...};
    return BY_COUNT[count - 1];
}

constexpr int64_t BAND_FLOATS = 6 << 10;    // of input and gradient: they stay in a first-level cache
constexpr int64_t LANES_FLOATS = 64 << 10;  // the same lane by lane, in a second-level cache
constexpr int64_t TILES_FLOATS = 64 << 10;  // sums of a task: they stay in a second-level cache
constexpr int64_t SAMPLED_COST = 4;         // of copying a pixel from between others, in pixels that are read

// How one weight gradient is cut.
struct Cut {
    const WeightArgs &a;
    int64_t lanes, tile, plane_tile;  // floats of an input pixel; of the sums of two blocks, and of one plane of taps
    int64_t run, runs;                // sums that share a gradient under the taps of a row, and how many such runs it has
    int64_t chunks, outs, ins;        // output and input blocks of a task
    int64_t out_tasks, in_tasks;
    int64_t band_images, band_rows;   // of what is read together: several images only where each is whole
    int64_t patch_floats;             // of one image; lane by lane, of a row of zeros
    bool lanewise;
    bool padded, sampled;             // whether patches are copied; of one tap, only the pixels under it
    int64_t row_stride, column_stride;

    explicit Cut(const WeightArgs &args) : a(args) {
        lanes = a.plain ? a.in_lanes : LANES;
        lanewise = a.small == 1;
        const bool one_run = a.tap_column_step == 1 && (a.plain || a.in_lanes == LANES);
        run = one_run ? a.tap_columns * lanes : a.in_lanes;
        runs = one_run ? 1 : a.tap_columns;
        if (lanewise) run = a.tap_columns, runs = 1;
        plane_tile = a.tap_rows * runs * run * LANES, tile = a.tap_depths * plane_tile;
        chunks = ceil_div(a.images, a.chunk);
        const int64_t last_row = (a.out_height - 1) * a.row_stride + a.tap_row + (a.tap_rows - 1) * a.tap_row_step;
        padded = a.plain || a.tap_row < 0 || a.tap_column < 0 || last_row >= a.height ||
                 (a.out_width - 1) * a.column_stride + a.tap_column + (a.tap_columns - 1) * a.tap_column_step >= a.width;
        sampled = !a.plain && a.tap_rows * a.tap_columns == 1 && a.row_stride * a.column_stride > 1;
        padded |= sampled;
        row_stride = sampled ? 1 : a.row_stride, column_stride = sampled ? 1 : a.column_stride;
        const int64_t row_floats = a.out_width * (row_stride * column_stride * lanes + LANES);
        const int64_t band_floats = lanewise ? LANES_FLOATS : BAND_FLOATS;
        const int64_t bands = ceil_div(a.out_height, max(1, band_floats / row_floats));
        band_rows = ceil_div(a.out_height, bands);
        patch_floats = lanewise ? a.width * lanes : padded ? patch_rows(band_rows) * patch_columns() * lanes : 0;
        const int64_t whole = max(row_floats * a.out_height, patch_floats);
        band_images = bands > 1 || a.out_depth > 1 ? 1 : max(1, min(a.chunk, band_floats / whole));
        choose_tasks();
    }

    int64_t patch_rows(int64_t rows) const {
        return (rows - 1) * row_stride + (a.tap_rows - 1) * a.tap_row_step + 1;
    }
    int64_t patch_columns() const {
        return (a.out_width - 1) * column_stride + (a.tap_columns - 1) * a.tap_column_step + 1;
    }

    // Sums of several pairs of blocks share what they read, as long as there are tasks for all threads: of so many blocks
    // on either side that all tasks together read as little as can be.
    void choose_tasks() {
        const int64_t wanted = pool_threads() > 1 ? 4 * pool_threads() : 1;
        const int64_t pixels = a.out_height * a.out_width;
        const int64_t under = pixels * (sampled ? SAMPLED_COST : row_stride * column_stride);
        const int64_t room = (SCRATCH_FLOATS - band_images * patch_floats) / 2;  // for sums, and parts of them
        int64_t least = INT64_MAX;
        outs = ins = 1;
        for (int64_t o = 1; o <= a.out_blocks; o++) {
            const int64_t o_tasks = ceil_div(a.out_blocks, o), tasks = ceil_div(wanted, a.groups * o_tasks);
            const int64_t i = min(min(TILES_FLOATS, room) / (o * tile), a.in_blocks / tasks);
            if (i < 1) continue;
            const int64_t read = o_tasks * a.in_blocks * under + ceil_div(a.in_blocks, i) * a.out_blocks * pixels;
            if (read < least) least = read, outs = o, ins = i;
        }
        out_tasks = ceil_div(a.out_blocks, outs), in_tasks = ceil_div(a.in_blocks, ins);
    }
};

// The sums of some pairs of blocks in one group.
struct Task {
    const Cut &cut;
    const WeightArgs &a;
    int64_t group, first_out, last_out, first_in, last_in;
    float *sums, *part, *patches;  // in scratch; patches of one input block

    Task(const Cut &c, int64_t task) : cut(c), a(c.a) {
        first_in = task % c.in_tasks * c.ins, task /= c.in_tasks;
        last_in = min(first_in + c.ins, a.in_blocks);
        first_out = task % c.out_tasks * c.outs, group = task / c.out_tasks;
        last_out = min(first_out + c.outs, a.out_blocks);
        sums = thread_scratch(), part = sums + c.outs * c.ins * c.tile, patches = part + c.outs * c.ins * c.tile;
        if (c.lanewise) memset(patches, 0, c.patch_floats * sizeof(float));
    }

    int64_t size() const { return (last_out - first_out) * (last_in - first_in) * cut.tile; }

    float *tile_of(float *tiles, int64_t out, int64_t in) const {
        return tiles + ((out - first_out) * (last_in - first_in) + in - first_in) * cut.tile;
    }

    // Sums over one chunk of images.
    void add_chunk(int64_t chunk, float *tiles) {
        memset(tiles, 0, size() * sizeof(float));
        const int64_t last = min((chunk + 1) * a.chunk, a.images);
        for (int64_t image = chunk * a.chunk; image < last; image += cut.band_images)
            for (int64_t depth = 0; depth < a.out_depth; depth++)
                for (int64_t row = 0; row < a.out_height; row += cut.band_rows)
                    for (int64_t tap = 0; tap < a.tap_depths; tap++)
                        add_band({image, min(cut.band_images, last - image), depth, row,
                                  min(cut.band_rows, a.out_height - row)}, tap, tiles);
    }

    // Rows of an output plane of some images.
    struct Band {
        int64_t image, images, depth, row, rows;
    };

    // Adds the products of a band with what lies in the input plane under one of the taps' planes.
    void add_band(const Band &band, int64_t tap, float *tiles) {
        const int64_t plane = a.height * a.width * cut.lanes, out_plane = a.out_height * a.out_width * LANES;
        const int64_t under = band.depth * a.depth_stride + a.tap_depth + tap * a.tap_depth_step;
        if (under < 0 || under >= a.depth) return;
        if (cut.lanewise) {
            const int64_t block = band.image * a.groups + group;
            const float *x = a.x + (block * a.depth + under) * plane;
            const float *grad = a.grad + (block * a.out_depth + band.depth) * out_plane + band.row * a.out_width * LANES;
            add_lane_products({x, grad, band.images, a.groups * a.depth * plane, a.groups * a.out_depth * out_plane,
                               patches, band.row, band.rows, a.height, a.width, a.out_height, a.out_width,
                               a.row_stride, a.column_stride, a.tap_row, a.tap_row_step, a.tap_rows, a.tap_column,
                               a.tap_column_step, a.tap_columns}, tiles + tap * cut.plane_tile);
            return;
        }
        const int64_t top = band.row * a.row_stride + a.tap_row, left = a.tap_column;
        const int64_t x_image = a.groups * a.in_blocks * a.depth * plane;
        Pixels pixels{band.images, band.rows, a.out_width, x_image, cut.row_stride * a.width * cut.lanes,
                      cut.column_stride * cut.lanes, a.groups * a.out_blocks * a.out_depth * out_plane,
                      a.tap_column_step * cut.lanes, nullptr, 0};
        int64_t tap_row = a.tap_row_step * a.width * cut.lanes;
        if (cut.padded) {
            pixels.x_image = cut.patch_floats, pixels.x_row = cut.row_stride * cut.patch_columns() * cut.lanes;
            tap_row = a.tap_row_step * cut.patch_columns() * cut.lanes;
        }
        for (int64_t in = first_in; in < last_in; in++) {
            const float *x = a.x + ((band.image * a.groups + group) * a.in_blocks + in) * a.depth * plane +
                             under * a.height * a.width * (a.plain ? 1 : LANES);
            if (cut.padded) {
                for (int64_t n = 0; n < band.images; n++)
                    copy(x + n * x_image, top, left, band.rows, patches + n * cut.patch_floats);
                x = patches;
            } else {
                x += (top * a.width + left) * cut.lanes;
            }
            for (int64_t out = first_out; out < last_out; out++) {
                const int64_t block = (band.image * a.groups + group) * a.out_blocks + out;
                const float *grad = a.grad + (block * a.out_depth + band.depth) * out_plane +
                                    band.row * a.out_width * LANES;
                const bool input_next = out + 1 == last_out && !cut.padded;
                pixels.ahead = input_next ? x + a.depth * plane : grad + a.out_depth * out_plane;
                pixels.ahead_image = input_next ? x_image : pixels.grad_image;
                add_taps(pixels, x, tap_row, grad, tile_of(tiles, out, in) + tap * cut.plane_tile);
            }
        }
    }

    void copy(const float *x, int64_t top, int64_t left, int64_t rows, float *patch) const {
        const int64_t high = cut.patch_rows(rows), wide = cut.patch_columns();
        if (cut.sampled)
            sample_patch(x, a.height, a.width, top, left, a.row_stride, a.column_stride, high, wide, patch);
        else if (a.plain)
            interleave_patch(x, a.depth * a.height * a.width, a.height, a.width, cut.lanes, top, left, high, wide, patch);
        else
            copy_patch(x, a.height, a.width, LANES, top, left, high, wide, patch);
    }

    void add_taps(const Pixels &pixels, const float *x, int64_t tap_row, const float *grad, float *tile) {
        const int64_t each = ceil_div(cut.run, ceil_div(cut.run, MOST));
        for (int64_t r = 0; r < a.tap_rows; r++)
            for (int64_t s = 0; s < cut.runs; s++) {
                const float *from = x + r * tap_row + s * pixels.step;
                for (int64_t j = 0; j < cut.run; j += each) {
                    const int64_t count = min(each, cut.run - j);
                    find_products(count, std::make_integer_sequence<int, MOST>())(pixels, from + j, grad,
                                                                                  tile + j * LANES);
                }
                tile += cut.run * LANES;
            }
    }

    // Chunk after chunk, and then the weight's order.
    void compute() {
        if (a.running) {
            for (int64_t out = first_out; out < last_out; out++)
                for (int64_t in = first_in; in < last_in; in++) pack(tile_of(sums, out, in), out * LANES, in * a.in_lanes);
        } else {
            add_chunk(0, sums);
        }
        for (int64_t chunk = a.running ? 0 : 1; chunk < cut.chunks; chunk++) {
            add_chunk(chunk, part);
            add(sums, part, size());
        }
        for (int64_t out = first_out; out < last_out; out++)
            for (int64_t in = first_in; in < last_in; in++) unpack(tile_of(sums, out, in), out * LANES, in * a.in_lanes);
    }

    static void add(float *sums, const float *more, int64_t size) {
        for (int64_t i = 0; i < size; i += LANES) (Vec::load(sums + i) + Vec::load(more + i)).store(sums + i);
    }

    // Writes a tile to the weight.
    void unpack(float *tile, int64_t out, int64_t in) const {
        const bool whole = a.outs - out >= LANES && a.ins - in >= LANES;
        if (cut.tile == LANES * LANES && !a.small && whole) {  // of one tap: its rows are columns of the weight
            float *to = a.out + group * a.group_step + out * a.out_step + in * a.in_step;
            transpose_block(tile, LANES, to, a.out_step);
            return;
        }
        each(tile, out, in, [&](int64_t at, float &value) { a.out[at] = value; });
    }

    // Makes a tile of the running sums.
    void pack(float *tile, int64_t out, int64_t in) const {
        memset(tile, 0, cut.tile * sizeof(float));
        each(tile, out, in, [&](int64_t at, float &value) { value = a.running[at]; });
    }

    // Calls visit(offset in the weight, element of the tile) for all elements that the weight has.
    template <class Visit> void each(float *tile, int64_t out, int64_t in, const Visit &visit) const {
        const int64_t outs = min(a.outs - (cut.lanewise ? group * LANES : out), LANES);
        const int64_t ins = min(a.ins - in, a.in_lanes), taps = a.tap_depths * a.tap_rows * a.tap_columns;
        for (int64_t o = 0; o < outs; o++) {
            if (cut.lanewise) {
                for (int64_t t = 0; t < taps; t++) visit((group * LANES + o) * taps + t, tile[t * LANES + o]);
                continue;
            }
            const int64_t first = a.small ? o / a.small * a.small : 0, last = a.small ? first + a.small : ins;
            int64_t at = group * a.group_step + (out + o) * a.out_step + in * a.in_step;
            for (int64_t i = first; i < last; i++)
                for (int64_t t = 0; t < taps; t++) visit(at++, tile[(t * a.in_lanes + i) * LANES + o]);
        }
    }
};

void convolution_weight(const WeightArgs &a) {
    const Cut cut(a);
    const int64_t tasks = a.groups * cut.out_tasks * cut.in_tasks, blocks = a.groups * a.out_blocks * a.in_blocks;
    if (!a.partial) {
        parallel(tasks, [&](int64_t task) { Task(cut, task).compute(); });
        return;
    }
    parallel(tasks * cut.chunks, [&](int64_t index) {
        Task task(cut, index % tasks);
        task.add_chunk(index / tasks, task.sums);
        for (int64_t out = task.first_out; out < task.last_out; out++)
            for (int64_t in = task.first_in; in < task.last_in; in++) {
                const int64_t block = (task.group * a.out_blocks + out) * a.in_blocks + in;
                memcpy(a.partial + (index / tasks * blocks + block) * cut.tile, task.tile_of(task.sums, out, in),
                       cut.tile * sizeof(float));
            }
    });
    parallel(blocks, [&](int64_t block) {
        Task task(cut, 0);
        task.group = block / (a.out_blocks * a.in_blocks);
        const int64_t out = block / a.in_blocks % a.out_blocks * LANES, in = block % a.in_blocks * a.in_lanes;
        if (a.running)
            task.pack(task.sums, out, in);
        else
            memcpy(task.sums, a.partial + block * cut.tile, cut.tile * sizeof(float));
        for (int64_t chunk = a.running ? 0 : 1; chunk < cut.chunks; chunk++)
            Task::add(task.sums, a.partial + (chunk * blocks + block) * cut.tile, cut.tile);
        task.unpack(task.sums, out, in);
    });
}

struct BiasArgs {
    const float *grad;
    const float *running;  // sums of earlier images to go on from, which may be `out`; or null
    float *out;
    float *partial;        // (chunk, block, 16)
    int64_t images, chunk, channels, pixels, blocked;
};

// The sum of so many vectors, in four chains in turns.
Vec sum_vectors(const float *from, int64_t count) {
    Vec four[4] = {Vec::zero(), Vec::zero(), Vec::zero(), Vec::zero()};
    for (int64_t i = 0; i < count; i++) four[i % 4] += Vec::load(from + i * LANES);
    return (four[0] + four[1]) + (four[2] + four[3]);
}

// Of an image in nChw16c, for the channels of a block; of a plain one, for one channel.
void add_block(const float *grad, int64_t pixels, float *sums) {
    (Vec::load(sums) + sum_vectors(grad, pixels)).store(sums);
}
void add_channel(const float *grad, int64_t pixels, float *sum) {
    const int64_t whole = pixels / LANES, rest = pixels % LANES;
    *sum += static_cast<float>(total(sum_vectors(grad, whole) + Part{rest}.load(grad + whole * LANES)));
}

// The sum over images and pixels of each channel: chunks of images alone, and their sums in ascending order.
void convolution_bias(const BiasArgs &a) {
    const int64_t padded = ceil_div(a.channels, LANES) * LANES, chunks = ceil_div(a.images, a.chunk);
    const int64_t lanes = a.blocked ? LANES : 1, units = ceil_div(a.channels, lanes);
    parallel(chunks * units, [&](int64_t task) {
        const int64_t chunk = task / units, unit = task % units, last = min((chunk + 1) * a.chunk, a.images);
        float *sums = a.partial + chunk * padded + unit * lanes;
        memset(sums, 0, lanes * sizeof(float));
        for (int64_t image = chunk * a.chunk; image < last; image++) {
            const float *grad = a.grad + (image * units + unit) * a.pixels * lanes;
            (a.blocked ? add_block : add_channel)(grad, a.pixels, sums);
        }
    });
    for (int64_t c = 0; c < a.channels; c++) {
        a.out[c] = a.running ? a.running[c] : 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++) a.out[c] += a.partial[chunk * padded + c];
    }
}

}  // namespace

KERNEL(convolution_weight, WeightArgs)
KERNEL(convolution_bias, BiasArgs)

// conv.cu: convolution over one to three spatial axes (padded in front to three) and its gradients, as tiled
// matrix products (gemm.h) whose column matrix is never stored: a loader finds its elements in the images.
//
//   forward  out[n, f, o] = sum over c, t of data[n, c, o stride - pad + t dilate] weight[f, c, t] + bias[f]
//   data     each pixel gathers over the taps whose window reaches it. Pixels are sorted by phase, their
//            position modulo the stride, since all pixels of a phase are reached by the same taps. Another
//            gradient of the data may be added.
//   weight   dW[f, c, t] = sum over n, o of grad[n, f, o] data[n, c, ...], some whole images a segment
//   bias     db[f] = sum over n, o of grad[n, f, o], a part of the images at a time
//            Both can go on from the sum of earlier images, with the bits of all images at once.
//
// A group is a problem of its own. Groups of few channels and filters (depthwise) would leave tiles empty;
// the *_direct kernels give each output a thread, or each weight and segment a block.
//
// Memory: inputs are only read, outputs only written; nothing works in place, but that the data gradient may
// lie on what is added to it. Workspace: parts of the output
// where few tiles are spread over blocks by segments; partial sums for the bias. Each of the three products
// does 2 * batch * out pixels * weight elements FLOPs; images come once from memory, and again by taps from
// cache.
#include "channels.h"
#include "common.h"
#include "divider.h"
#include "gemm.h"

namespace {

// Sizes and steps of a convolution (conv.py: geometry). Channels and filters are those of a group.
struct Conv {
  int groups, channels, filters;
  int in[3], out[3], kernel[3], stride[3], dilate[3], pad[3];

  __device__ int in_pixels() const { return in[0] * in[1] * in[2]; }
  __device__ int out_pixels() const { return out[0] * out[1] * out[2]; }
  __device__ int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

// The elements that windows read: position j of `count` and tap t of `taps` meet at pixel
// j * scale + shift + t * step of a plane of `size`, or in the padding, along each axis.
struct Gather {
  const float *data;
  long long image_stride;
  int size[3], count[3], scale[3], shift[3], taps[3], step[3];

  struct Place {  // part of an address: the offset in elements, and the pixel's coordinates
    long long offset;
    int at[3];
  };

  __device__ Place place(long long base, int z, int y, int x) const {
    return Place{base + ((long long)z * size[1] + y) * size[2] + x, {z, y, x}};
  }
  // A position, by its number in an image, of an image.
  __device__ Place position(long long image, int z, int y, int x) const {
    return place(image * image_stride, z * scale[0] + shift[0], y * scale[1] + shift[1],
                 x * scale[2] + shift[2]);
  }
  __device__ Place tap(int channel, int z, int y, int x) const {
    return place((long long)channel * (size[0] * size[1] * size[2]), z * step[0], y * step[1], x * step[2]);
  }
  __device__ float load(const Place &a, const Place &b) const {
    bool inside = (unsigned)(a.at[0] + b.at[0]) < (unsigned)size[0] &&
                  (unsigned)(a.at[1] + b.at[1]) < (unsigned)size[1] &&
                  (unsigned)(a.at[2] + b.at[2]) < (unsigned)size[2];
    return inside ? data[a.offset + b.offset] : 0.f;
  }
};

// Numbers from 0 on as coordinates of a box, the last axis fastest.
struct Box {
  Divider volume, plane, row;

  __device__ explicit Box(const int (&size)[3])
      : volume(max(1, size[0] * size[1] * size[2])), plane(max(1, size[1] * size[2])), row(max(1, size[2])) {}
};

// The column matrix with a column a position (image, pixel) and k = (channel, tap).
struct Columns {
  static constexpr bool kAlongK = false;
  typedef Gather::Place Outer;
  typedef Gather::Place Inner;
  Gather gather;
  Box taps;
  int origin = 0;

  __device__ explicit Columns(const Gather &g) : gather(g), taps(g.taps) {}
  __device__ void begin(long long k) { origin = (int)k; }
  __device__ Outer outer(long long i) const {
    int pixels = gather.count[0] * gather.count[1] * gather.count[2];
    long long image = i / pixels;
    int rest = (int)(i - image * pixels);
    int y = rest / gather.count[2], x = rest - y * gather.count[2], z = y / gather.count[1];
    return gather.position(image, z, y - z * gather.count[1], x);
  }
  __device__ Inner inner(int k) const {
    int rest = origin + k;
    int channel = taps.volume.split(rest), z = taps.plane.split(rest), y = taps.row.split(rest);
    return gather.tap(channel, z, y, rest);
  }
  __device__ float load(const Outer &position, const Inner &tap) const { return gather.load(position, tap); }
};

// Its transpose: a column a (channel, tap) and k = position. A segment begins with a whole image.
struct Windows {
  static constexpr bool kAlongK = true;
  typedef Gather::Place Outer;
  typedef Gather::Place Inner;
  Gather gather;
  Box positions;
  long long origin = 0;

  __device__ explicit Windows(const Gather &g) : gather(g), positions(g.count) {}
  __device__ void begin(long long k) { origin = k / positions.volume.divisor; }
  __device__ Outer outer(long long i) const {
    int taps = gather.taps[0] * gather.taps[1] * gather.taps[2];
    int channel = (int)(i / taps), rest = (int)(i - (long long)channel * taps);
    int y = rest / gather.taps[2], x = rest - y * gather.taps[2], z = y / gather.taps[1];
    return gather.tap(channel, z, y - z * gather.taps[1], x);
  }
  __device__ Inner inner(int k) const {
    int image = positions.volume.split(k), z = positions.plane.split(k), y = positions.row.split(k);
    return gather.position(origin + image, z, y, k);
  }
  __device__ float load(const Outer &tap, const Inner &position) const { return gather.load(position, tap); }
};

// Images as a matrix with a row a channel and k = (image, pixel). A segment begins with a whole image.
struct Planes {
  static constexpr bool kAlongK = true;
  typedef long long Outer;
  typedef long long Inner;
  const float *data;
  long long image_stride;
  Divider pixels;
  long long origin = 0;

  __device__ Planes(const float *d, long long stride, int count)
      : data(d), image_stride(stride), pixels(count) {}
  __device__ void begin(long long k) { origin = k / pixels.divisor * image_stride; }
  __device__ Outer outer(long long i) const { return i * pixels.divisor; }
  __device__ Inner inner(int k) const {
    int image = pixels.split(k);
    return origin + image * image_stride + k;
  }
  __device__ float load(Outer row, Inner k) const { return data[row + k]; }
};

// The taps of one axis that reach the pixels of a phase: tap first + i * every, for i < count, meets pixel
// phase + j * stride at output j + shift + i * step.
struct PhaseAxis {
  int first, every, count, shift, step, pixels;

  __device__ PhaseAxis(const Conv &c, int axis, int phase) {
    int stride = c.stride[axis], dilate = c.dilate[axis], kernel = c.kernel[axis];
    every = 1;  // the least step of taps whose reach is a multiple of the stride
    while (every * dilate % stride) ++every;
    for (first = 0; first < every && first < kernel; ++first)
      if ((phase + c.pad[axis] - first * dilate) % stride == 0) break;
    bool reached = first < every && first < kernel;
    count = reached ? (kernel - first + every - 1) / every : 0;
    shift = reached ? (phase + c.pad[axis] - first * dilate) / stride : 0;
    step = -(every * dilate / stride);
    pixels = phase < c.in[axis] ? (c.in[axis] - phase + stride - 1) / stride : 0;
  }
};

// One phase of the pixels.
struct Phase {
  int at[3];
  PhaseAxis z, y, x;

  __device__ Phase(const Conv &c, int phase)
      : at{phase / (c.stride[2] * c.stride[1]), phase / c.stride[2] % c.stride[1], phase % c.stride[2]},
        z(c, 0, at[0]),
        y(c, 1, at[1]),
        x(c, 2, at[2]) {}
  __device__ int pixels() const { return z.pixels * y.pixels * x.pixels; }
  __device__ int taps() const { return z.count * y.count * x.count; }
  __device__ Gather gather(const float *grad, long long image_stride, const Conv &c) const {
    return Gather{grad,
                  image_stride,
                  {c.out[0], c.out[1], c.out[2]},
                  {z.pixels, y.pixels, x.pixels},
                  {1, 1, 1},
                  {z.shift, y.shift, x.shift},
                  {z.count, y.count, x.count},
                  {z.step, y.step, x.step}};
  }
};

// The weight of a group with a row a channel and k = (filter, tap of a phase).
struct PhaseWeight {
  static constexpr bool kAlongK = true;
  typedef long long Outer;
  typedef long long Inner;
  const float *weight;
  Conv conv;
  Phase phase;
  Box taps;
  int origin = 0;

  __device__ PhaseWeight(const float *w, const Conv &c, const Phase &p, const Gather &g)
      : weight(w), conv(c), phase(p), taps(g.taps) {}
  __device__ void begin(long long k) { origin = (int)k; }
  __device__ Outer outer(long long channel) const { return channel * conv.taps(); }
  __device__ Inner inner(int k) const {
    int rest = origin + k;
    int filter = taps.volume.split(rest), z = taps.plane.split(rest), y = taps.row.split(rest);
    int tap_z = phase.z.first + z * phase.z.every, tap_y = phase.y.first + y * phase.y.every;
    int tap_x = phase.x.first + rest * phase.x.every;
    return ((long long)filter * conv.channels * conv.kernel[0] + tap_z) * (conv.kernel[1] * conv.kernel[2]) +
           tap_y * conv.kernel[2] + tap_x;
  }
  __device__ float load(Outer channel, Inner k) const { return weight[channel + k]; }
};

// Images with a row a channel and a column a (image, pixel), and a bias a channel.
struct PlanesOutput {
  static constexpr bool kResumes = false;
  typedef long long Column;
  float *out;
  const float *bias;
  long long image_stride;
  int pixels, act;

  __device__ Column column(long long n) const {
    long long image = n / pixels;
    return image * image_stride + (n - image * pixels);
  }
  __device__ void store(long long m, Column n, float value) const {
    out[m * pixels + n] = activate(bias ? value + bias[m] : value, act);
  }
};

// The pixels of a phase, with a row a channel and a column a (image, pixel of the phase).
struct PhaseOutput {
  static constexpr bool kResumes = false;
  typedef long long Column;
  const float *addend;  // may be null, and may be out
  float *out;
  const Conv &conv;
  const Phase &phase;

  __device__ Column column(long long n) const {
    int pixels = phase.pixels();
    long long image = n / pixels;
    int rest = (int)(n - image * pixels);
    int y = rest / phase.x.pixels, x = rest - y * phase.x.pixels, z = y / phase.y.pixels;
    y -= z * phase.y.pixels;
    int row = (phase.at[0] + z * conv.stride[0]) * conv.in[1] + phase.at[1] + y * conv.stride[1];
    return image * conv.groups * conv.channels * conv.in_pixels() + (long long)row * conv.in[2] +
           phase.at[2] + x * conv.stride[2];
  }
  __device__ void store(long long m, Column n, float value) const {
    long long i = m * conv.in_pixels() + n;
    out[i] = addend ? value + addend[i] : value;
  }
};

// A row-major matrix.
struct MatrixOutput {
  static constexpr bool kResumes = true;
  typedef long long Column;
  float *out;
  long long width;

  __device__ Column column(long long n) const { return n; }
  __device__ float load(long long m, Column n) const { return out[m * width + n]; }
  __device__ void store(long long m, Column n, float value) const { out[m * width + n] = value; }
};

// What the windows of a group read.
__device__ Gather gather_windows(const float *data, const Conv &c, long long group) {
  return Gather{data + group * c.channels * c.in_pixels(),
                (long long)c.groups * c.channels * c.in_pixels(),
                {c.in[0], c.in[1], c.in[2]},
                {c.out[0], c.out[1], c.out[2]},
                {c.stride[0], c.stride[1], c.stride[2]},
                {-c.pad[0], -c.pad[1], -c.pad[2]},
                {c.kernel[0], c.kernel[1], c.kernel[2]},
                {c.dilate[0], c.dilate[1], c.dilate[2]}};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kTileThreads)
    convolution_forward(const float *__restrict__ data, const float *__restrict__ weight,
                        const float *__restrict__ bias, float *__restrict__ out, GemmWork work, Conv c) {
  gemm(work, [&](const GemmTile &tile) {
    long long depth = (long long)c.channels * c.taps(), first = tile.problem * c.filters;
    long long image_stride = (long long)c.groups * c.filters * c.out_pixels();
    PlanesOutput output{out + first * c.out_pixels(), bias ? bias + first : nullptr, image_stride,
                        c.out_pixels(), (int)work.act};
    gemm_tile(Matrix<true>(weight + first * depth, depth, 1), Columns(gather_windows(data, c, tile.problem)),
              output, work, tile, work.rows, work.columns, depth);
  });
}

extern "C" __global__ void __launch_bounds__(kTileThreads)
    convolution_backward_data(const float *__restrict__ grad, const float *__restrict__ weight,
                              const float *addend, float *out, GemmWork work, Conv c, long long batch) {
  gemm(work, [&](const GemmTile &tile) {
    long long group = tile.problem % c.groups, filter = group * c.filters, channel = group * c.channels;
    Phase phase(c, (int)(tile.problem / c.groups));
    long long image_stride = (long long)c.groups * c.filters * c.out_pixels();
    Gather gather = phase.gather(grad + filter * c.out_pixels(), image_stride, c);
    long long first = channel * c.in_pixels();
    PhaseOutput output{addend ? addend + first : nullptr, out + first, c, phase};
    gemm_tile(PhaseWeight(weight + filter * c.channels * c.taps(), c, phase, gather), Columns(gather), output,
              work, tile, work.rows, batch * phase.pixels(), (long long)c.filters * phase.taps());
  });
}

extern "C" __global__ void __launch_bounds__(kTileThreads)
    convolution_backward_weight(const float *__restrict__ grad, const float *__restrict__ data,
                                float *__restrict__ out, GemmWork work, Conv c, long long batch) {
  gemm(work, [&](const GemmTile &tile) {
    long long filter = tile.problem * c.filters;
    long long image_stride = (long long)c.groups * c.filters * c.out_pixels();
    MatrixOutput output{out + filter * work.columns, work.columns};
    gemm_tile(Planes(grad + filter * c.out_pixels(), image_stride, c.out_pixels()),
              Windows(gather_windows(data, c, tile.problem)), output, work, tile, work.rows, work.columns,
              batch * c.out_pixels());
  });
}

extern "C" __global__ void convolution_combine(const float *__restrict__ parts, long long count,
                                               long long part, float *out, int resume,
                                               const float *bias, long long inner,
                                               long long channels, int act) {
  combine_parts(parts, count, part, out, resume, bias, inner, channels, act);
}

// ---- groups of few channels ----------------------------------------------------------------------

extern "C" __global__ void convolution_forward_direct(const float *__restrict__ data,
                                                      const float *__restrict__ weight,
                                                      const float *__restrict__ bias, float *__restrict__ out,
                                                      Conv c, long long elements, int act) {
  int pixels = c.out_pixels(), filters = c.groups * c.filters;
  GRID_STRIDE(i, elements) {
    long long plane = i / pixels;
    int rest = (int)(i - plane * pixels), filter = (int)(plane % filters);
    int y = rest / c.out[2], x = rest - y * c.out[2], z = y / c.out[1];
    y -= z * c.out[1];
    Gather gather = gather_windows(data, c, filter / c.filters);
    Gather::Place position = gather.position(plane / filters, z, y, x);
    const float *w = weight + (long long)filter * c.channels * c.taps();
    float sum = 0.f;
    for (int channel = 0; channel < c.channels; ++channel)
      for (int kz = 0; kz < c.kernel[0]; ++kz)
        for (int ky = 0; ky < c.kernel[1]; ++ky)
          for (int kx = 0; kx < c.kernel[2]; ++kx, ++w)
            sum += gather.load(position, gather.tap(channel, kz, ky, kx)) * *w;
    out[i] = activate(bias ? sum + bias[filter] : sum, act);
  }
}

extern "C" __global__ void convolution_backward_data_direct(const float *__restrict__ grad,
                                                            const float *__restrict__ weight,
                                                            const float *addend, float *out, Conv c,
                                                            long long elements) {
  int pixels = c.in_pixels(), channels = c.groups * c.channels;
  GRID_STRIDE(i, elements) {
    long long plane = i / pixels, image = plane / channels;
    int rest = (int)(i - plane * pixels), channel = (int)(plane % channels), group = channel / c.channels;
    int y = rest / c.in[2], x = rest - y * c.in[2], z = y / c.in[1];
    y -= z * c.in[1];
    float sum = 0.f;
    for (int f = group * c.filters; f < (group + 1) * c.filters; ++f) {
      const float *g = grad + (image * c.groups * c.filters + f) * c.out_pixels();
      const float *w = weight + ((long long)f * c.channels + channel % c.channels) * c.taps();
      for (int kz = 0; kz < c.kernel[0]; ++kz) {
        int oz = z + c.pad[0] - kz * c.dilate[0];
        if (oz < 0 || oz % c.stride[0] || oz / c.stride[0] >= c.out[0]) continue;
        for (int ky = 0; ky < c.kernel[1]; ++ky) {
          int oy = y + c.pad[1] - ky * c.dilate[1];
          if (oy < 0 || oy % c.stride[1] || oy / c.stride[1] >= c.out[1]) continue;
          long long row = ((long long)oz / c.stride[0] * c.out[1] + oy / c.stride[1]) * c.out[2];
          for (int kx = 0; kx < c.kernel[2]; ++kx) {
            int ox = x + c.pad[2] - kx * c.dilate[2];
            if (ox < 0 || ox % c.stride[2] || ox / c.stride[2] >= c.out[2]) continue;
            sum += g[row + ox / c.stride[2]] * w[(kz * c.kernel[1] + ky) * c.kernel[2] + kx];
          }
        }
      }
    }
    out[i] = addend ? sum + addend[i] : sum;
  }
}

// parts[segment * weights + weight]: a block each, over `images` images.
extern "C" __global__ void __launch_bounds__(kChannelThreads)
    convolution_backward_weight_direct(const float *__restrict__ grad, const float *__restrict__ data,
                                       float *__restrict__ parts, Conv c, long long batch, long long images,
                                       long long segments) {
  __shared__ float scratch[32];
  int taps = c.taps(), filters = c.groups * c.filters, pixels = c.out_pixels();
  long long weights = (long long)filters * c.channels * taps;
  Box positions(c.out);
  for (long long block = blockIdx.x; block < weights * segments; block += gridDim.x) {
    long long index = block % weights, first = block / weights * images;
    int tap = (int)(index % taps), channel = (int)(index / taps % c.channels);
    int filter = (int)(index / taps / c.channels);
    Gather gather = gather_windows(data, c, filter / c.filters);
    Gather::Place at = gather.tap(channel, tap / (c.kernel[1] * c.kernel[2]), tap / c.kernel[2] % c.kernel[1],
                                  tap % c.kernel[2]);
    long long last = first + images < batch ? first + images : batch;
    float sum = 0.f;
    for (long long image = first; image < last; ++image) {
      const float *g = grad + (image * filters + filter) * pixels;
      for (int pixel = threadIdx.x; pixel < pixels; pixel += blockDim.x) {
        int x = pixel, z = positions.plane.split(x), y = positions.row.split(x);
        sum += g[pixel] * gather.load(gather.position(image, z, y, x), at);
      }
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) parts[block] = sum;
  }
}

// ---- bias ----------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(kChannelThreads)
    convolution_backward_bias_partials(const float *__restrict__ grad, float *__restrict__ partials,
                                       Channels c) {
  sum_channels<1>(c, partials, [&](float (&sums)[1], const ChannelIndex &i) { sums[0] += grad[i.element]; });
}

extern "C" __global__ void convolution_backward_bias(const float *__restrict__ partials,
                                                     float *__restrict__ out, Channels c, int resume) {
  GRID_STRIDE(channel, c.channels)
  out[channel] = total_of_images(c, partials, channel, resume ? out[channel] : 0.f);
}

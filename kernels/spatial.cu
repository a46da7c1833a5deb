// spatial.cu: the points of a sampling grid, bilinear sampling of images at a grid's points, and gradients.
//
// grid_points writes a constant: rows x, y and 1 of an affine map's points, a grid, or a pixel's length.
// Bytes: 4 n.
//
// bilinear_sampler reads, for each place of the output, the four pixels about its point; pixels outside count
// as 0. Bytes: 4 a pixel read, 4 n written, the grid once a channel from cache. FLOPs: 8 n and 30 a point.
// Backward the data gradient is a thread's for each channel of each image, which adds to its own plane corner
// by corner and point by point, so that no two threads add to one number; the grid gradient is a thread's for
// each point, which adds over corners and channels. No workspace, nothing in place.
#include "common.h"

// x from -1 to 1 in `count` steps, the last one exactly.
__device__ __forceinline__ float step_of(long long i, long long count) {
  return i == count - 1 ? 1.f : (float)(-1. + (double)i * (2. / (double)(count - 1)));
}

// planes of height x width: x, y, then ones
extern "C" __global__ void grid_points_forward_planes(float *out, long long n, long long height,
                                                      long long width) {
  GRID_STRIDE (i, n) {
    long long plane = i / (height * width), y = i / width % height, x = i % width;
    out[i] = plane == 0 ? step_of(x, width) : plane == 1 ? step_of(y, height) : 1.f;
  }
}

extern "C" __global__ void grid_points_forward_pixel(float *out, long long height, long long width) {
  out[0] = (float)(2. / (double)(width - 1));
  out[1] = (float)(2. / (double)(height - 1));
}

// Sizes: images of `channels` planes of height x width, sampled at `points` points each.
struct Sampling {
  long long images, channels, height, width, points;
};

// Where a coordinate lies along an axis of `length` pixels: the pixel before it, and how far beyond that.
struct Along {
  float whole, rest;

  __device__ Along(float coordinate, long long length) {
    rest = (coordinate + 1.f) * (float)((double)(length - 1) / 2.);
    whole = floorf(rest);
    rest -= whole;
  }
  __device__ __forceinline__ float share(int far) const { return far ? rest : 1.f - rest; }
  __device__ __forceinline__ float inside(int far, long long length) const {
    return whole + far >= 0.f && whole + far <= (float)(length - 1) ? 1.f : 0.f;
  }
  __device__ __forceinline__ long long pixel(int far, long long length) const {
    return (long long)fminf(fmaxf(whole + far, 0.f), (float)(length - 1));
  }
};

struct Point {
  Along x, y;

  __device__ Point(const float *grid, long long image, long long point, const Sampling &s)
      : x(grid[2 * image * s.points + point], s.width),
        y(grid[(2 * image + 1) * s.points + point], s.height) {}
  __device__ __forceinline__ float inside(int down, int right, const Sampling &s) const {
    return y.inside(down, s.height) * x.inside(right, s.width);
  }
  __device__ __forceinline__ float weight(int down, int right, const Sampling &s) const {
    return x.share(right) * y.share(down) * inside(down, right, s);
  }
  __device__ __forceinline__ long long pixel(int down, int right, const Sampling &s) const {
    return y.pixel(down, s.height) * s.width + x.pixel(right, s.width);
  }
};

extern "C" __global__ void bilinear_sampler_forward_float32(const float *__restrict__ data,
                                                            const float *__restrict__ grid,
                                                            float *__restrict__ out, Sampling s) {
  GRID_STRIDE (i, s.images * s.channels * s.points) {
    long long plane = i / s.points;
    Point point(grid, plane / s.channels, i - plane * s.points, s);
    const float *pixels = data + plane * s.height * s.width;
    float sum = 0.f;
    for (int corner = 0; corner < 4; ++corner)
      sum += pixels[point.pixel(corner / 2, corner % 2, s)] * point.weight(corner / 2, corner % 2, s);
    out[i] = sum;
  }
}

extern "C" __global__ void bilinear_sampler_backward_data(const float *__restrict__ grad,
                                                          const float *__restrict__ grid,
                                                          float *__restrict__ data_grad, Sampling s) {
  GRID_STRIDE (plane, s.images * s.channels) {
    float *pixels = data_grad + plane * s.height * s.width;
    for (long long k = 0; k < s.height * s.width; ++k) pixels[k] = 0.f;
    for (int corner = 0; corner < 4; ++corner)
      for (long long p = 0; p < s.points; ++p) {
        Point point(grid, plane / s.channels, p, s);
        pixels[point.pixel(corner / 2, corner % 2, s)] +=
            grad[plane * s.points + p] * point.weight(corner / 2, corner % 2, s);
      }
  }
}

extern "C" __global__ void bilinear_sampler_backward_grid(const float *__restrict__ grad,
                                                          const float *__restrict__ data,
                                                          const float *__restrict__ grid,
                                                          float *__restrict__ grid_grad, Sampling s) {
  GRID_STRIDE (i, s.images * s.points) {
    long long image = i / s.points, p = i - image * s.points;
    Point point(grid, image, p, s);
    float along_x = 0.f, along_y = 0.f;
    for (int corner = 0; corner < 4; ++corner) {
      int down = corner / 2, right = corner % 2;
      long long pixel = point.pixel(down, right, s);
      float dot = 0.f;
      for (long long c = image * s.channels; c < (image + 1) * s.channels; ++c)
        dot += data[c * s.height * s.width + pixel] * grad[c * s.points + p];
      dot *= point.inside(down, right, s);
      along_x += point.y.share(down) * dot * (right ? 1.f : -1.f);
      along_y += point.x.share(right) * dot * (down ? 1.f : -1.f);
    }
    grid_grad[2 * image * s.points + p] = along_x * (float)((double)(s.width - 1) / 2.);
    grid_grad[(2 * image + 1) * s.points + p] = along_y * (float)((double)(s.height - 1) / 2.);
  }
}

// pool.cu: pooling over one to three spatial axes (padded in front to three): the maximum, average or sum of
// windows or of whole images, and the gradients by gathering, so that no two threads add to one element.
//
//   forward   a thread an output walks its window, clipped to the image; a global pool: a block an image
//   backward  a thread an input walks the windows that hold it, in ascending order of its place in them. An
//             average adds grad / count; a maximum adds grad where this element is the first in row-major
//             order that is not below the output.
//   winners   a thread an output: the number of that element in its window, a byte, alone or beside the maximum;
//             the gradient from winners, a thread an input, reads neither data nor output.
//
// NaN is the largest of all values, as in NumPy. Memory: inputs are only read, outputs only written; nothing
// works in place; no workspace. Each tensor is moved about once; one operation an element of a window.
#include "common.h"

namespace {

// Sizes and steps of the windows (pool.py).
struct Pool {
  int in[3], out[3], kernel[3], stride[3], pad[3];
  int count_pad;  // whether averages count padding

  __device__ int in_pixels() const { return in[0] * in[1] * in[2]; }
  __device__ int out_pixels() const { return out[0] * out[1] * out[2]; }
};

// The pixels [first, last) of an axis that a window covers, which begins at `start`, and how many an average counts.
struct Range {
  int start, first, last, counted;

  __device__ Range(const Pool &p, int axis, int window) {
    start = window * p.stride[axis] - p.pad[axis];
    int end = start + p.kernel[axis];
    first = max(start, 0);
    last = min(end, p.in[axis]);
    counted = p.count_pad ? min(end, p.in[axis] + p.pad[axis]) - start : last - first;
  }
};

// The windows [first, last) of an axis that hold a pixel.
struct Holders {
  int first, last;

  __device__ Holders(const Pool &p, int axis, int pixel) {
    int reach = pixel + p.pad[axis] - p.kernel[axis];  // a window holds it if it begins after reach - pad
    first = reach < 0 ? 0 : reach / p.stride[axis] + 1;
    last = min((pixel + p.pad[axis]) / p.stride[axis] + 1, p.out[axis]);
  }
};

// A pixel's or window's coordinates, from its number in a plane of `size`.
struct Point {
  int z, y, x;

  __device__ Point(int index, const int (&size)[3]) {
    int row = index / size[2];
    x = index - row * size[2];
    z = row / size[1];
    y = row - z * size[1];
  }
};

// f(value, offset in the plane) for each element of a window, in row-major order, while it returns true.
template <class F>
__device__ __forceinline__ void walk_window(const float *plane, const Pool &p, const Range &z, const Range &y,
                                            const Range &x, F f) {
  for (int i = z.first; i < z.last; ++i)
    for (int j = y.first; j < y.last; ++j)
      for (int k = x.first; k < x.last; ++k) {
        int at = (i * p.in[1] + j) * p.in[2] + k;
        if (!f(plane[at], at)) return;
      }
}

// The number of a pixel in a window, in row-major order, counted with those outside the image.
__device__ __forceinline__ int place_in_window(const Pool &p, const Point &at, const Range &z, const Range &y,
                                               const Range &x) {
  return ((at.z - z.start) * p.kernel[1] + at.y - y.start) * p.kernel[2] + at.x - x.start;
}

// out[i] = reduce(plane, z, y, x, i) for the window of output i.
template <class T, class Reduce>
__device__ __forceinline__ void each_window(const float *data, T *out, const Pool &p, long long elements,
                                            Reduce reduce) {
  GRID_STRIDE(i, elements) {
    long long plane = i / p.out_pixels();
    Point o((int)(i - plane * p.out_pixels()), p.out);
    out[i] = reduce(data + plane * p.in_pixels(), Range(p, 0, o.z), Range(p, 1, o.y), Range(p, 2, o.x), i);
  }
}

__device__ __forceinline__ float sum_window(const float *plane, const Pool &p, const Range &z, const Range &y,
                                            const Range &x) {
  float sum = 0.f;
  walk_window(plane, p, z, y, x, [&](float value, int) {
    sum += value;
    return true;
  });
  return sum;
}

// out[i] = the sum of term(plane, offset of input i in it, number of a window, the window) over the windows
// that hold it.
template <class Term>
__device__ __forceinline__ void each_pixel(float *out, const Pool &p, long long elements, Term term) {
  GRID_STRIDE(i, elements) {
    long long plane = i / p.in_pixels();
    int pixel = (int)(i - plane * p.in_pixels());
    Point at(pixel, p.in);
    Holders z(p, 0, at.z), y(p, 1, at.y), x(p, 2, at.x);
    float sum = 0.f;
    for (int a = z.last - 1; a >= z.first; --a)  // an earlier place in the window is a later window
      for (int b = y.last - 1; b >= y.first; --b)
        for (int c = x.last - 1; c >= x.first; --c)
          sum += term(plane, pixel, plane * p.out_pixels() + (a * p.out[1] + b) * p.out[2] + c, a, b, c);
    out[i] = sum;
  }
}

// ---- whole images --------------------------------------------------------------------------------

// A value and where it is; the larger value wins, then the earlier one. No place has been seen at first.
struct Best {
  float value;
  long long at;

  __device__ bool loses_to(const Best &other) const {
    if (at < 0 || other.at < 0) return at < 0;
    bool nan = value != value, other_nan = other.value != other.value;
    if (nan || other_nan) return other_nan && (!nan || other.at < at);
    return other.value > value || (other.value == value && other.at < at);
  }
};

// The best of a whole block; every thread gets it.
__device__ __forceinline__ Best block_best(Best best) {
  __shared__ Best shared[256];
  shared[threadIdx.x] = best;
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step && shared[threadIdx.x].loses_to(shared[threadIdx.x + step]))
      shared[threadIdx.x] = shared[threadIdx.x + step];
  }
  __syncthreads();
  best = shared[0];
  __syncthreads();
  return best;
}

__device__ __forceinline__ Best image_best(const float *image, long long pixels) {
  Best best{0.f, -1};
  for (long long i = threadIdx.x; i < pixels; i += blockDim.x) {
    Best next{image[i], i};
    if (best.loses_to(next)) best = next;
  }
  return block_best(best);
}

}  // namespace

extern "C" __global__ void pooling_forward_max(const float *__restrict__ data, float *__restrict__ out,
                                               Pool p, long long elements) {
  each_window(data, out, p, elements,
              [&](const float *plane, const Range &z, const Range &y, const Range &x, long long) {
                float best = -__int_as_float(0x7f800000);
                walk_window(plane, p, z, y, x, [&](float value, int) {
                  best = max_nan(best, value);
                  return true;
                });
                return best;
              });
}

extern "C" __global__ void pooling_forward_max_winners(const float *__restrict__ data, float *__restrict__ out,
                                                       unsigned char *__restrict__ winners, Pool p,
                                                       long long elements) {
  each_window(data, out, p, elements,
              [&](const float *plane, const Range &z, const Range &y, const Range &x, long long window) {
                float best = -__int_as_float(0x7f800000);
                int first = (z.first * p.in[1] + y.first) * p.in[2] + x.first, winner = first;
                walk_window(plane, p, z, y, x, [&](float value, int at) {
                  if (value > best) winner = at;
                  best = max_nan(best, value);
                  return true;
                });
                if (best != best) winner = first;
                winners[window] = (unsigned char)place_in_window(p, Point(winner, p.in), z, y, x);
                return best;
              });
}

extern "C" __global__ void pooling_forward_avg(const float *__restrict__ data, float *__restrict__ out,
                                               Pool p, long long elements) {
  each_window(data, out, p, elements,
              [&](const float *plane, const Range &z, const Range &y, const Range &x, long long) {
                return sum_window(plane, p, z, y, x) / (float)(z.counted * y.counted * x.counted);
              });
}

extern "C" __global__ void pooling_forward_sum(const float *__restrict__ data, float *__restrict__ out,
                                               Pool p, long long elements) {
  each_window(data, out, p, elements,
              [&](const float *plane, const Range &z, const Range &y, const Range &x, long long) {
                return sum_window(plane, p, z, y, x);
              });
}

extern "C" __global__ void pooling_backward_max(const float *__restrict__ grad,
                                                const float *__restrict__ data,
                                                const float *__restrict__ pooled, float *__restrict__ out,
                                                Pool p, long long elements) {
  each_pixel(out, p, elements, [&](long long plane, int pixel, long long window, int a, int b, int c) {
    const float *image = data + plane * p.in_pixels();
    float best = pooled[window];
    if (image[pixel] < best) return 0.f;
    int first = -1;
    walk_window(image, p, Range(p, 0, a), Range(p, 1, b), Range(p, 2, c), [&](float value, int at) {
      if (!(value < best)) first = at;
      return first < 0;
    });
    return first == pixel ? grad[window] : 0.f;
  });
}

extern "C" __global__ void pooling_winners(const float *__restrict__ data, const float *__restrict__ pooled,
                                           unsigned char *__restrict__ out, Pool p, long long elements) {
  each_window(data, out, p, elements,
              [&](const float *plane, const Range &z, const Range &y, const Range &x, long long window) {
                float best = pooled[window];
                int first = 0;
                walk_window(plane, p, z, y, x, [&](float value, int at) {
                  if (value < best) return true;
                  first = place_in_window(p, Point(at, p.in), z, y, x);
                  return false;
                });
                return (unsigned char)first;
              });
}

extern "C" __global__ void pooling_by_winners(const float *__restrict__ grad,
                                              const unsigned char *__restrict__ winners,
                                              float *__restrict__ out, Pool p, long long elements) {
  each_pixel(out, p, elements, [&](long long, int pixel, long long window, int a, int b, int c) {
    int place = place_in_window(p, Point(pixel, p.in), Range(p, 0, a), Range(p, 1, b), Range(p, 2, c));
    return winners[window] == place ? grad[window] : 0.f;
  });
}

extern "C" __global__ void pooling_backward_avg(const float *__restrict__ grad, float *__restrict__ out,
                                                Pool p, long long elements) {
  each_pixel(out, p, elements, [&](long long, int, long long window, int a, int b, int c) {
    return grad[window] / (float)(Range(p, 0, a).counted * Range(p, 1, b).counted * Range(p, 2, c).counted);
  });
}

extern "C" __global__ void pooling_backward_sum(const float *__restrict__ grad, float *__restrict__ out,
                                                Pool p, long long elements) {
  each_pixel(out, p, elements, [&](long long, int, long long window, int, int, int) { return grad[window]; });
}

// ---- whole images: a block an image --------------------------------------------------------------

extern "C" __global__ void pooling_forward_max_global(const float *__restrict__ data, float *__restrict__ out,
                                                      long long images, long long pixels) {
  for (long long image = blockIdx.x; image < images; image += gridDim.x) {
    Best best = image_best(data + image * pixels, pixels);
    if (threadIdx.x == 0) out[image] = best.value;
  }
}

// `divisor` is the number of pixels for an average, 1 for a sum.
extern "C" __global__ void pooling_forward_sum_global(const float *__restrict__ data, float *__restrict__ out,
                                                      long long images, long long pixels, float divisor) {
  __shared__ float scratch[32];
  for (long long image = blockIdx.x; image < images; image += gridDim.x) {
    float sum = 0.f;
    for (long long i = threadIdx.x; i < pixels; i += blockDim.x) sum += data[image * pixels + i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) out[image] = sum / divisor;
  }
}

extern "C" __global__ void pooling_backward_max_global(const float *__restrict__ grad,
                                                       const float *__restrict__ data,
                                                       float *__restrict__ out, long long images,
                                                       long long pixels) {
  for (long long image = blockIdx.x; image < images; image += gridDim.x) {
    Best best = image_best(data + image * pixels, pixels);
    for (long long i = threadIdx.x; i < pixels; i += blockDim.x)
      out[image * pixels + i] = i == best.at ? grad[image] : 0.f;
  }
}

extern "C" __global__ void pooling_backward_sum_global(const float *__restrict__ grad,
                                                       float *__restrict__ out, long long images,
                                                       long long pixels, float divisor) {
  for (long long image = blockIdx.x; image < images; image += gridDim.x)
    for (long long i = threadIdx.x; i < pixels; i += blockDim.x)
      out[image * pixels + i] = grad[image] / divisor;
}

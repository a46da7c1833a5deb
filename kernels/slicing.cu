// slicing.cu: parts of tensors: joined, cut, and put back among zeros.
//
// Memory contract: inputs are only read and are no part of the outputs. *_span kernels move `length`
// neighbouring floats of each of `rows` rows between tensors whose rows are a pitch apart; forward ones write
// only those of the output, so that the parts of a Concat fill it together, backward ones write the whole
// output, 0 outside the part. The float4 forms count everything in fours. No workspace. per element: 4 bytes
// read, 4 written, no FLOPs.
#include "common.h"

template <class T>
__device__ __forceinline__ void forward_span(const T *__restrict__ x, T *__restrict__ out, long long rows,
                                             long long length, long long x_pitch, long long x_begin,
                                             long long out_pitch, long long out_begin) {
  GRID_STRIDE(i, rows * length) {
    long long row = i / length, place = i - row * length;
    out[row * out_pitch + out_begin + place] = x[row * x_pitch + x_begin + place];
  }
}

extern "C" __global__ void slicing_forward_span(const float *x, float *out, long long rows, long long length,
                                                long long x_pitch, long long x_begin, long long out_pitch,
                                                long long out_begin) {
  forward_span(x, out, rows, length, x_pitch, x_begin, out_pitch, out_begin);
}

extern "C" __global__ void slicing_forward_span_float4(const float *x, float *out, long long rows,
                                                       long long length, long long x_pitch, long long x_begin,
                                                       long long out_pitch, long long out_begin) {
  forward_span(reinterpret_cast<const float4 *>(x), reinterpret_cast<float4 *>(out), rows, length, x_pitch,
               x_begin, out_pitch, out_begin);
}

// Rows of `pitch` numbers: grad's `length` numbers from `begin` on, zero elsewhere.
template <class T>
__device__ __forceinline__ void backward_span(const T *__restrict__ grad, T *__restrict__ data_grad,
                                              long long rows, long long length, long long pitch,
                                              long long begin, T zero) {
  GRID_STRIDE(i, rows * pitch) {
    long long row = i / pitch, place = i - row * pitch - begin;
    data_grad[i] = place >= 0 && place < length ? grad[row * length + place] : zero;
  }
}

extern "C" __global__ void slicing_backward_span(const float *grad, float *data_grad, long long rows,
                                                 long long length, long long pitch, long long begin) {
  backward_span(grad, data_grad, rows, length, pitch, begin, 0.f);
}

extern "C" __global__ void slicing_backward_span_float4(const float *grad, float *data_grad, long long rows,
                                                        long long length, long long pitch, long long begin) {
  backward_span(reinterpret_cast<const float4 *>(grad), reinterpret_cast<float4 *>(data_grad), rows, length,
                pitch, begin, make_float4(0.f, 0.f, 0.f, 0.f));
}

// out[i] = x at begin + the strided position of i; steps may be negative
extern "C" __global__ void slicing_forward_strided(const float *__restrict__ x, float *__restrict__ out,
                                                   long long n, long long begin, Dims sizes, Dims x_steps) {
  GRID_STRIDE(i, n) out[i] = x[begin + strided_offset(i, sizes, x_steps)];
}

// The gradient of slicing_forward_strided: data has `sizes`, of which the part takes `counts` at begins + k *
// steps.
extern "C" __global__ void slicing_backward_strided(const float *__restrict__ grad,
                                                    float *__restrict__ data_grad, long long n, Dims sizes,
                                                    Dims begins, Dims steps, Dims counts) {
  GRID_STRIDE(i, n) {
    long long rest = i, from = 0, pitch = 1;
    bool inside = true;
    for (int k = 7; k >= 0; --k) {
      long long outer = rest / sizes.d[k], distance = rest - outer * sizes.d[k] - begins.d[k];
      long long place = distance / steps.d[k];
      inside = inside && place * steps.d[k] == distance && place >= 0 && place < counts.d[k];
      from += place * pitch;
      pitch *= counts.d[k];
      rest = outer;
    }
    data_grad[i] = inside ? grad[from] : 0.f;
  }
}

// modulo.cu: remainders and hypotenuses of two tensors, or of a tensor and a constant, and their gradients.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 4 n (inputs + 1). FLOPs: a division or root an element, and up to 3 n.
#include "modulo.h"

#include "common.h"

#define BINARY(NAME, VALUE)                                                                      \
  extern "C" __global__ void NAME(const float *lhs, const float *rhs, float *out, long long n) { \
    map_each(lhs, rhs, out, n, [](float x, float y) { return VALUE; });                          \
  }
BINARY(mod_forward_float32, modulo(x, y))
BINARY(hypot_forward_float32, hypotf(x, y))

#define TERNARY(NAME, VALUE)                                                                              \
  extern "C" __global__ void NAME(const float *grad, const float *first, const float *second, float *out, \
                                  long long n) {                                                          \
    map_each(grad, first, second, out, n, [](float g, float x, float y) { return g * (VALUE); });         \
  }
TERNARY(mod_backward_rhs_float32, -floor_divide(x, y))
TERNARY(hypot_backward_float32, x / y)

#define SCALAR(NAME, VALUE)                                                              \
  extern "C" __global__ void NAME(const float *data, float *out, long long n, float s) { \
    map_each(data, out, n, [=](float x) { return VALUE; });                              \
  }
SCALAR(mod_scalar_forward_float32, modulo(x, s))
// Of whole numbers by a positive one, as indices count from the other end: the remainder has the divisor's sign.
#define WHOLE(NAME, TYPE)                                                                                    \
  extern "C" __global__ void mod_scalar_forward_##NAME(const TYPE *data, TYPE *out, long long n, long long s) { \
    GRID_STRIDE (i, n) {                                                                                     \
      long long rest = data[i] % s;                                                                          \
      out[i] = (TYPE)(rest < 0 ? rest + s : rest);                                                           \
    }                                                                                                        \
  }
WHOLE(int32, int)
WHOLE(int64, long long)
SCALAR(rmod_scalar_forward_float32, modulo(s, x))
SCALAR(hypot_scalar_forward_float32, hypotf(x, s))

extern "C" __global__ void rmod_scalar_backward_float32(const float *grad, const float *saved, float *out,
                                                        long long n, float s) {
  map_each(grad, saved, out, n, [=](float g, float x) { return g * -floor_divide(s, x); });
}

// activation.cu: activation functions, and their gradients computed from their outputs.
//
// Memory: n floats of each input are read once and n floats of out written; out may be any of the inputs. No
// workspace.
//
// Bytes: 8 n forward, 12 n backward. FLOPs: n to 5 n, counting a function as one.
#include "common.h"

#define FORWARD(KIND, FUNCTION)                                                                      \
  extern "C" __global__ void activation_forward_##KIND(const float *data, float *out, long long n) { \
    map_each(data, out, n, [](float x) { return FUNCTION(x); });                                     \
  }

FORWARD(relu, relu)
FORWARD(sigmoid, sigmoid)
FORWARD(tanh, tanhf)
FORWARD(softrelu, softrelu)
FORWARD(softsign, softsign)

#define BACKWARD(KIND)                                                                                     \
  extern "C" __global__ void activation_backward_##KIND(const float *grad, const float *saved, float *out, \
                                                        long long n) {                                     \
    map_each(grad, saved, out, n, [](float g, float y) { return g * KIND##_slope(y); });                   \
  }

BACKWARD(relu)
BACKWARD(sigmoid)
BACKWARD(tanh)
BACKWARD(softrelu)
BACKWARD(softsign)

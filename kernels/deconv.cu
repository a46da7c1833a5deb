// deconv.cu: the bias of a deconvolution. Its products are those of a convolution's data gradient (conv.cu).
//
// Memory: n floats are read and written in place, each once; `bias` has one float a channel. No workspace.
// Bytes: 8 n. FLOPs: n.
#include "common.h"

extern "C" __global__ void deconvolution_bias_inplace(float *out, const float *bias, long long n,
                                                      long long pixels, long long channels) {
  GRID_STRIDE (i, n) out[i] += bias[i / pixels % channels];
}

// svm.cu: the gradient of a hinge loss of each class against the rest.
//
// Memory: n floats of out are read and n of data_grad written, which may be out; a label for `classes`
// neighbours. A label out of range makes its gradient 0. No workspace. Bytes: 8 n and the labels. FLOPs: 4 n.
#include "common.h"
#include "ids.h"

extern "C" __global__ void svm_backward_float32(const float *out, const void *labels, int kind,
                                                float *data_grad, long long n, long long classes,
                                                float margin, float coefficient, int use_linear) {
  GRID_STRIDE (i, n) {
    long long row = i / classes, id = id_at(labels, kind, row, classes);
    float side = id == i - row * classes ? 1.f : -1.f, rest = margin - side * out[i];
    float slope = use_linear ? (rest > 0.f ? 1.f : 0.f) : 2.f * relu(rest);
    data_grad[i] = id < 0 ? 0.f : -side * (slope * coefficient);
  }
}

// softmax.cu: softmax and log_softmax along the middle axis of (outer, classes, inner), and their gradients.
//
// Memory contract: every tensor holds outer * classes * inner floats; `const` ones are only read. The output
// may be the same buffer as any input: a row's results are written after all of the row was read for its
// sums, and each element is written by the thread that read it. No workspace. rows = outer * inner.
//
// The largest logit of a row is subtracted first, so exp never overflows. Infinite logits and NaN follow
// NumPy: a row with NaN or +infinity, or of nothing but -infinity, is all NaN; -infinity beside finite logits
// has probability 0.
//
// per element             bytes read   from memory   written   FLOPs (exp as one)
//   softmax_forward               12             4         4       7
//   log_softmax_forward           12             4         4       7
//   softmax_backward              16             8         4       5
//   log_softmax_backward          12             8         4       5
// "from memory" holds while the rows at work fit the caches.
#include "rows.h"

// out = exp((x - max) / temperature) / sum, by the inverses of temperature and sum
template <class Group>
__device__ __forceinline__ void softmax_forward(const float *x, float *out, long long rows, long long classes,
                                                long long inner, float temperature) {
  float scale = 1.f / temperature;
  FOR_ROWS(Group, r, rows) {
    Row row(r, classes, inner);
    float most = row_max<Group>(classes, [&](long long c) { return x[row.at(c)]; });
    float sum = row_sum<Group>(classes, [&](long long c) { return expf((x[row.at(c)] - most) * scale); });
    float share = 1.f / sum;
    FOR_PLACES(Group, c, classes) out[row.at(c)] = expf((x[row.at(c)] - most) * scale) * share;
  }
}

// out = (x - max) / temperature - log(sum)
template <class Group>
__device__ __forceinline__ void log_softmax_forward(const float *x, float *out, long long rows,
                                                    long long classes, long long inner, float temperature) {
  float scale = 1.f / temperature;
  FOR_ROWS(Group, r, rows) {
    Row row(r, classes, inner);
    float most = row_max<Group>(classes, [&](long long c) { return x[row.at(c)]; });
    float sum = row_sum<Group>(classes, [&](long long c) { return expf((x[row.at(c)] - most) * scale); });
    float shift = logf(sum);
    FOR_PLACES(Group, c, classes) out[row.at(c)] = (x[row.at(c)] - most) * scale - shift;
  }
}

// data_grad = (grad - sum(grad * y)) / temperature * y
template <class Group>
__device__ __forceinline__ void softmax_backward(const float *grad, const float *y, float *data_grad,
                                                 long long rows, long long classes, long long inner,
                                                 float temperature) {
  float scale = 1.f / temperature;
  FOR_ROWS(Group, r, rows) {
    Row row(r, classes, inner);
    float sum = row_sum<Group>(classes, [&](long long c) { return grad[row.at(c)] * y[row.at(c)]; });
    FOR_PLACES(Group, c, classes) {
      long long i = row.at(c);
      data_grad[i] = (grad[i] - sum) * scale * y[i];
    }
  }
}

// data_grad = (grad - exp(y) * sum(grad)) / temperature
template <class Group>
__device__ __forceinline__ void log_softmax_backward(const float *grad, const float *y, float *data_grad,
                                                     long long rows, long long classes, long long inner,
                                                     float temperature) {
  float scale = 1.f / temperature;
  FOR_ROWS(Group, r, rows) {
    Row row(r, classes, inner);
    float sum = row_sum<Group>(classes, [&](long long c) { return grad[row.at(c)]; });
    FOR_PLACES(Group, c, classes) {
      long long i = row.at(c);
      data_grad[i] = (grad[i] - expf(y[i]) * sum) * scale;
    }
  }
}

ROW_KERNELS(softmax_forward, softmax_forward,
            (const float *x, float *out, long long rows, long long classes, long long inner,
             float temperature),
            (x, out, rows, classes, inner, temperature))
ROW_KERNELS(log_softmax_forward, log_softmax_forward,
            (const float *x, float *out, long long rows, long long classes, long long inner,
             float temperature),
            (x, out, rows, classes, inner, temperature))
ROW_KERNELS(softmax_backward, softmax_backward,
            (const float *grad, const float *y, float *data_grad, long long rows, long long classes,
             long long inner, float temperature),
            (grad, y, data_grad, rows, classes, inner, temperature))
ROW_KERNELS(log_softmax_backward, log_softmax_backward,
            (const float *grad, const float *y, float *data_grad, long long rows, long long classes,
             long long inner, float temperature),
            (grad, y, data_grad, rows, classes, inner, temperature))

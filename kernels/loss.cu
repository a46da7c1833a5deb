// loss.cu: gradients of the output losses, and softmax cross-entropy. SoftmaxOutput's forward is that of
// softmax.cu.
//
// Memory contract: data, outputs and gradients hold rows * classes floats ((outer, classes, inner), rows =
// outer * inner); labels one number a row, of a kind that ids.h names. `const` ones are only read. data_grad
// may be the same buffer as `out` or `data`: each element is written by the thread that read it, after its
// row was read for sums. Workspace: softmax_output_backward with normalization "valid" one int for 4096
// labels and one float; softmax_cross_entropy_forward one float a row.
//
// A label that is NaN or outside [0, classes), and is not an ignored one, adds nothing to a loss and gives
// its row a gradient of 0.
//
// per element                        bytes read   written   FLOPs
//   softmax_output_backward              4 (8)         4       3
//   regression_backward                      8         4       2
//   softmax_cross_entropy_forward        8 (4)         0       4
//   softmax_cross_entropy_backward      12 (4)         4       6
#include "ids.h"
#include "rows.h"

// Which labels are ignored: as an id where that is in range, else by value.
struct Ignored {
  long long id;
  float value;
  __device__ __forceinline__ bool is(const void *labels, int kind, long long place,
                                     long long label_id) const {
    return label_id >= 0 ? label_id == id : number_at(labels, kind, place) == value;
  }
};

// data_grad = (out - smoothed onehot(label)) * scale [* above]: `spread` for each class, `weight` more for
// the label. The scale is `scale`, or that at `scale_at` where it depends on the labels; above is 0 where
// nothing comes from above.
template <class Group>
__device__ __forceinline__ void softmax_output_backward(const float *out, const void *labels, int kind,
                                                        const float *above, float *data_grad, long long rows,
                                                        long long classes, long long inner, bool use_ignore,
                                                        Ignored ignored, float spread, float weight,
                                                        float scale, const float *scale_at) {
  if (scale_at) scale = *scale_at;
  FOR_ROWS(Group, r, rows) {
    Row row(r, classes, inner);
    long long id = id_at(labels, kind, r, classes);
    bool skip = use_ignore && ignored.is(labels, kind, r, id);
    bool zero = skip || id < 0;
    FOR_PLACES(Group, c, classes) {
      long long i = row.at(c);
      float slope = (zero ? 0.f : out[i] - spread - (c == id ? weight : 0.f)) * scale;
      data_grad[i] = above ? slope * above[i] : slope;
    }
  }
}

ROW_KERNELS(softmax_output_backward, softmax_output_backward,
            (const float *out, const void *labels, int kind, const float *above, float *data_grad,
             long long rows, long long classes, long long inner, int use_ignore, long long ignored_id,
             float ignored_value, float spread, float weight, float scale, const float *scale_at),
            (out, labels, kind, above, data_grad, rows, classes, inner, use_ignore != 0,
             Ignored{ignored_id, ignored_value}, spread, weight, scale, scale_at))

constexpr int kCountPiece = 4096;  // loss.py: COUNT_PIECE

// counts[k] = ignored labels of piece k. Integers add up to the same in any order.
extern "C" __global__ void softmax_output_backward_count(const void *labels, int kind, int *counts,
                                                         long long rows, long long classes,
                                                         long long ignored_id, float ignored_value) {
  __shared__ int total;
  Ignored ignored{ignored_id, ignored_value};
  for (long long piece = blockIdx.x; piece * kCountPiece < rows; piece += gridDim.x) {
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    long long end = (piece + 1) * kCountPiece < rows ? (piece + 1) * kCountPiece : rows;
    int mine = 0;
    for (long long r = piece * kCountPiece + threadIdx.x; r < end; r += blockDim.x)
      mine += ignored.is(labels, kind, r, id_at(labels, kind, r, classes));
    if (mine) atomicAdd(&total, mine);
    __syncthreads();
    if (threadIdx.x == 0) counts[piece] = total;
    __syncthreads();
  }
}

// scale = grad_scale / labels that are not ignored (at least 1); one block
extern "C" __global__ void softmax_output_backward_scale(const int *counts, float *scale, long long pieces,
                                                         long long rows, double grad_scale) {
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  unsigned long long mine = 0;
  for (long long piece = threadIdx.x; piece < pieces; piece += blockDim.x) mine += counts[piece];
  if (mine) atomicAdd(&total, mine);
  __syncthreads();
  long long valid = rows - (long long)total;
  if (threadIdx.x == 0) *scale = float(grad_scale / double(valid > 1 ? valid : 1));
}

// data_grad = (out - probabilities) * scale [* above]
extern "C" __global__ void softmax_output_backward_probabilities(const float *out, const float *probabilities,
                                                                 const float *above, float *data_grad,
                                                                 long long n, float scale) {
  GRID_STRIDE(i, n) {
    float slope = (out[i] - probabilities[i]) * scale;
    data_grad[i] = above ? slope * above[i] : slope;
  }
}

// out = sigmoid(data)
extern "C" __global__ void logistic_regression_forward(const float *data, float *out, long long n) {
  map_each(data, out, n, [](float x) { return sigmoid(x); });
}

// data_grad = (out - label) * scale
extern "C" __global__ void regression_backward_difference(const float *out, const void *labels, int kind,
                                                          float *data_grad, long long n, float scale) {
  GRID_STRIDE(i, n) data_grad[i] = (out[i] - number_at(labels, kind, i)) * scale;
}

// data_grad = sign(out - label) * scale
extern "C" __global__ void regression_backward_sign(const float *out, const void *labels, int kind,
                                                    float *data_grad, long long n, float scale) {
  GRID_STRIDE(i, n) data_grad[i] = sign(out[i] - number_at(labels, kind, i)) * scale;
}

// losses[row] = log(sum(exp(data - max))) - (data[label] - max): exact at extreme logits
template <class Group>
__device__ __forceinline__ void softmax_cross_entropy_forward(const float *data, const void *labels, int kind,
                                                              float *losses, long long rows,
                                                              long long classes) {
  FOR_ROWS(Group, r, rows) {
    const float *x = data + r * classes;
    long long id = id_at(labels, kind, r, classes);
    float most = row_max<Group>(classes, [&](long long c) { return x[c]; });
    float sum = row_sum<Group>(classes, [&](long long c) { return expf(x[c] - most); });
    if (Group::first() != 0) continue;
    losses[r] = id < 0 ? 0.f : logf(sum) - (x[id] - most);
  }
}

ROW_KERNELS(softmax_cross_entropy_forward, softmax_cross_entropy_forward,
            (const float *data, const void *labels, int kind, float *losses, long long rows,
             long long classes),
            (data, labels, kind, losses, rows, classes))

// out[0] = sum of the rows' losses; one block
extern "C" __global__ void __launch_bounds__(1024)
    softmax_cross_entropy_forward_total(const float *losses, float *out, long long rows) {
  float total = row_sum<BlockGroup>(rows, [&](long long r) { return losses[r]; });
  if (threadIdx.x == 0) out[0] = total;
}

// data_grad = (softmax(data) - onehot(label)) * grad[0]
template <class Group>
__device__ __forceinline__ void softmax_cross_entropy_backward(const float *grad, const float *data,
                                                               const void *labels, int kind, float *data_grad,
                                                               long long rows, long long classes) {
  FOR_ROWS(Group, r, rows) {
    const float *x = data + r * classes;
    float *slopes = data_grad + r * classes;
    long long id = id_at(labels, kind, r, classes);
    float most = row_max<Group>(classes, [&](long long c) { return x[c]; });
    float sum = row_sum<Group>(classes, [&](long long c) { return expf(x[c] - most); });
    float share = 1.f / sum;
    FOR_PLACES(Group, c, classes) {
      float slope = id < 0 ? 0.f : expf(x[c] - most) * share - (c == id ? 1.f : 0.f);
      slopes[c] = slope * grad[0];
    }
  }
}

ROW_KERNELS(softmax_cross_entropy_backward, softmax_cross_entropy_backward,
            (const float *grad, const float *data, const void *labels, int kind, float *data_grad,
             long long rows, long long classes),
            (grad, data, labels, kind, data_grad, rows, classes))

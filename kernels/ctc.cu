// ctc.cu: losses over all alignments of a label with the frames of a sequence (CTC), and their gradient.
//
// A block works on one sequence, its threads on the 2 L + 1 states of the label: blanks, and the classes between them.
// Frame follows frame, with a barrier between. The forward kernel writes the logarithms of the states' probabilities,
// `alphas` (time, batch, states). The backward one goes from the last frame to the first: beta in two rows of the
// workspace in turn, the posteriors in a third, which the first state of each class adds up in ascending order along
// the list of its class's states, so that no two threads add to one number. A label out of range counts as padding, and
// a length out of range as 0.
// Bytes: alphas and, where a state looks, the logarithms of probabilities. Workspace of backward: 20 bytes a state.
#include "common.h"
#include "ids.h"

struct Ctc {
  const void *label, *data_lengths, *label_lengths;  // lengths may be null
  long long time, batch, classes, count;             // count: places of a label
  int label_kind, data_kind, length_kind, blank_last;
};

__device__ __forceinline__ long long ctc_blank(const Ctc &c) { return c.blank_last ? c.classes - 1 : 0; }

// The class at a place of sequence n's label, -1 for padding.
__device__ __forceinline__ long long ctc_class(const Ctc &c, long long n, long long place) {
  long long id = id_at(c.label, c.label_kind, n * c.count + place, c.blank_last ? c.classes - 1 : c.classes);
  return !c.blank_last && id == 0 ? -1 : id;
}

// A length, at most `most`; `most` where none is given.
__device__ __forceinline__ long long ctc_length(const void *lengths, int kind, long long n, long long most) {
  if (!lengths) return most;
  long long length = id_at(lengths, kind, n, most + 1);
  return length < 0 ? 0 : length;
}

// How many frames and classes a sequence has, and whether those frames are enough.
struct CtcSizes {
  long long frames, classes;
  bool possible;

  __device__ CtcSizes(const Ctc &c, long long n) {
    frames = ctc_length(c.data_lengths, c.data_kind, n, c.time);
    long long most = ctc_length(c.label_lengths, c.length_kind, n, c.count), needed = 0;
    for (classes = 0; classes < most && ctc_class(c, n, classes) >= 0; ++classes)
      needed += 1 + (classes && ctc_class(c, n, classes) == ctc_class(c, n, classes - 1));
    possible = frames > 0 && needed <= frames;
  }
};

// The class of a state; blank behind the label's end too.
__device__ __forceinline__ long long ctc_state(const Ctc &c, const CtcSizes &sizes, long long n, long long s) {
  return s % 2 && s / 2 < sizes.classes ? ctc_class(c, n, s / 2) : ctc_blank(c);
}

// Whether a path may come to state s from s - 2.
__device__ __forceinline__ bool ctc_skips(const Ctc &c, const CtcSizes &sizes, long long n, long long s) {
  return s % 2 && s >= 3 && s / 2 < sizes.classes && ctc_class(c, n, s / 2) != ctc_class(c, n, s / 2 - 1);
}

// log(exp(a) + exp(b))
__device__ __forceinline__ float log_add(float a, float b) {
  float high = fmaxf(a, b), low = fminf(a, b);
  if (a != a || b != b) return a + b;
  return low == -INFINITY || high == INFINITY ? high : high + log1pf(expf(low - high));
}

extern "C" __global__ void ctc_loss_forward_float32(const float *data, float *loss, float *alphas, Ctc c) {
  long long states = 2 * c.count + 1;
  for (long long n = blockIdx.x; n < c.batch; n += gridDim.x) {
    CtcSizes sizes(c, n);
    for (long long t = 0; t < c.time; ++t) {
      const float *before = alphas + ((t - 1) * c.batch + n) * states;
      float *here = alphas + (t * c.batch + n) * states;
      for (long long s = threadIdx.x; s < states; s += blockDim.x) {
        float total = t == 0 ? (s < 2 ? 0.f : -INFINITY) : before[s];
        if (t == 0 || t < sizes.frames) {
          if (t && s >= 1) total = log_add(total, before[s - 1]);
          if (t && ctc_skips(c, sizes, n, s)) total = log_add(total, before[s - 2]);
          total += data[(t * c.batch + n) * c.classes + ctc_state(c, sizes, n, s)];
        }
        here[s] = total;
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      float found = 0.f;
      if (sizes.possible) {
        const float *last = alphas + ((c.time - 1) * c.batch + n) * states + 2 * sizes.classes;
        found = -(sizes.classes ? log_add(last[-1], last[0]) : last[0]);
      }
      loss[n] = found;
    }
    __syncthreads();
  }
}

// work: for each sequence two rows of beta, one of posteriors, then `next` and `first` of each state as ints
extern "C" __global__ void ctc_loss_backward_float32(const float *grad, const float *loss, const float *alphas,
                                                     const float *data, float *data_grad, float *work, Ctc c) {
  long long states = 2 * c.count + 1;
  for (long long n = blockIdx.x; n < c.batch; n += gridDim.x) {
    CtcSizes sizes(c, n);
    long long used = 2 * sizes.classes + 1;
    float *betas = work + 5 * n * states, *posteriors = betas + 2 * states;
    int *next = reinterpret_cast<int *>(posteriors + states), *first = next + states;
    for (long long s = threadIdx.x; s < used; s += blockDim.x) {
      long long own = ctc_state(c, sizes, n, s), other = s + 1;
      while (other < used && ctc_state(c, sizes, n, other) != own) ++other;
      next[s] = other < used ? (int)other : -1;
      for (other = s - 1; other >= 0 && ctc_state(c, sizes, n, other) != own;) --other;
      first[s] = other < 0;
    }
    __syncthreads();
    for (long long t = sizes.possible ? sizes.frames - 1 : -1; t >= 0; --t) {
      float *here = betas + t % 2 * states;
      const float *after = betas + (t + 1) % 2 * states, *frame = data + ((t + 1) * c.batch + n) * c.classes;
      for (long long s = threadIdx.x; s < used; s += blockDim.x) {
        float total;
        if (t == sizes.frames - 1) {
          total = s >= used - 2 ? 0.f : -INFINITY;
        } else {
          total = after[s] + frame[ctc_state(c, sizes, n, s)];
          if (s + 1 < used) total = log_add(total, after[s + 1] + frame[ctc_state(c, sizes, n, s + 1)]);
          if (s + 2 < used && ctc_skips(c, sizes, n, s + 2))
            total = log_add(total, after[s + 2] + frame[ctc_state(c, sizes, n, s + 2)]);
        }
        here[s] = total;
        posteriors[s] = expf(alphas[(t * c.batch + n) * states + s] + total + loss[n]) * grad[n];
      }
      __syncthreads();
      for (long long s = threadIdx.x; s < used; s += blockDim.x) {
        if (!first[s]) continue;
        float total = 0.f;
        for (long long k = s; k >= 0; k = next[k]) total += posteriors[k];
        data_grad[(t * c.batch + n) * c.classes + ctc_state(c, sizes, n, s)] = -total;
      }
      __syncthreads();
    }
  }
}

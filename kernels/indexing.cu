// indexing.cu: pick, one_hot, take and Embedding, and their gradients without atomics on values; and a check
// of any operator's ids.
//
// Memory contract: ids are of a kind that ids.h names; data and ids are only read, outputs are other buffers,
// all written. No workspace. An id that is NaN or out of range picks 0, marks no class, takes a row of 0, and
// gives no gradient. ids_check reads the ids and writes 16 bytes.
//
// per element of the output   bytes read                       written   FLOPs
//   pick_forward              8                                    4       0
//   pick_backward             0 (8 a row)                          4       0
//   one_hot_forward           0 (4 a row)                          4       0
//   take_forward              4                                    4       0
//   take_backward_scan        4 an element of grad, and the ids    4       1 an element of grad
#include "ids.h"
#include "rows.h"

// word[0] = 1 + the first place whose id is outside [least, bound) and, with use_ignored, is not `ignored`; 0
// where there is none. word[1] = the bits of that id. One block.
extern "C" __global__ void ids_check(const void *ids, int kind, long long count, long long least,
                                     long long bound, int use_ignored, float ignored,
                                     unsigned long long *word) {
  __shared__ unsigned long long first;
  if (threadIdx.x == 0) first = ~0ull;
  __syncthreads();
  for (long long place = threadIdx.x; place < count; place += blockDim.x) {
    if (id_at(ids, kind, place, bound) >= least) continue;
    if (use_ignored && number_at(ids, kind, place) == ignored) continue;
    atomicMin(&first, (unsigned long long)place);
    break;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  word[0] = first + 1;  // none: all bits and 1, which is 0
  if (first != ~0ull)
    word[1] = kind == kInt64 ? static_cast<const unsigned long long *>(ids)[first]
                             : static_cast<const unsigned *>(ids)[first];
}

// out[row] = data at the id of the row, along the middle axis of (outer, classes, inner)
extern "C" __global__ void pick_forward_gather(const float *data, const void *ids, int kind, float *out,
                                               long long rows, long long classes, long long inner) {
  GRID_STRIDE(r, rows) {
    long long id = id_at(ids, kind, r, classes);
    out[r] = id < 0 ? 0.f : data[Row(r, classes, inner).at(id)];
  }
}

// data_grad = grad of the row at its id, 0 elsewhere
template <class Group>
__device__ __forceinline__ void pick_backward(const float *grad, const void *ids, int kind, float *data_grad,
                                              long long rows, long long classes, long long inner) {
  FOR_ROWS(Group, r, rows) {
    Row row(r, classes, inner);
    long long id = id_at(ids, kind, r, classes);
    FOR_PLACES(Group, c, classes) data_grad[row.at(c)] = c == id ? grad[r] : 0.f;
  }
}

ROW_KERNELS(pick_backward, pick_backward,
            (const float *grad, const void *ids, int kind, float *data_grad, long long rows,
             long long classes, long long inner),
            (grad, ids, kind, data_grad, rows, classes, inner))

// out[row][c] = on where c is the id of the row, else off
template <class Group>
__device__ __forceinline__ void one_hot_forward(const void *ids, int kind, float *out, long long rows,
                                                long long classes, float on, float off) {
  FOR_ROWS(Group, r, rows) {
    long long id = id_at(ids, kind, r, classes);
    FOR_PLACES(Group, c, classes) out[r * classes + c] = c == id ? on : off;
  }
}

ROW_KERNELS(one_hot_forward, one_hot_forward,
            (const void *ids, int kind, float *out, long long rows, long long classes, float on, float off),
            (ids, kind, out, rows, classes, on, off))

// out (outer, count, inner) = rows of a (outer, classes, inner) in the order of ids (count)
template <class Group>
__device__ __forceinline__ void take_forward(const float *a, const void *ids, int kind, float *out,
                                             long long outer, long long count, long long classes,
                                             long long inner) {
  FOR_ROWS(Group, r, outer * count) {
    long long o = r / count, place = r - o * count;
    long long id = id_at(ids, kind, place, classes);
    const float *from = a + (o * classes + id) * inner;
    FOR_PLACES(Group, c, inner) out[r * inner + c] = id < 0 ? 0.f : from[c];
  }
}

ROW_KERNELS(take_forward, take_forward,
            (const float *a, const void *ids, int kind, float *out, long long outer, long long count,
             long long classes, long long inner),
            (a, ids, kind, out, outer, count, classes, inner))

constexpr int kClasses = 16, kColumns = 256, kWarps = kColumns / 32;

// Number the threads of a block for which `wanted` holds, in ascending order: this thread's number, and how
// many there are. Two calls need a barrier between them.
__device__ __forceinline__ int number_wanted(bool wanted, int *warp_counts, int &count) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned mask = __ballot_sync(0xffffffffu, wanted);
  if (lane == 0) warp_counts[warp] = __popc(mask);
  __syncthreads();
  int before = __popc(mask & ((1u << lane) - 1));
  count = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += warp_counts[w];
    count += warp_counts[w];
  }
  return before;
}

// a_grad (outer, classes, inner): the rows of grad (outer, count, inner) added to the class of each id, in
// ascending order of place. A block owns kClasses classes and kColumns columns; it reads all ids, and a
// thread adds up its own column, so that no two threads ever add to one number. The ids are read classes /
// kClasses times, from the cache.
extern "C" __global__ void __launch_bounds__(kColumns)
    take_backward_scan(const float *__restrict__ grad, const void *ids, int kind, float *__restrict__ a_grad,
                       long long outer, long long count, long long classes, long long inner) {
  __shared__ float sums[kClasses][kColumns];
  __shared__ int matches[kColumns], warp_counts[kWarps];
  long long tiles = (classes + kClasses - 1) / kClasses, parts = (inner + kColumns - 1) / kColumns;
  for (long long t = blockIdx.x; t < outer * tiles * parts; t += gridDim.x) {
    long long column = t % parts * kColumns + threadIdx.x, first = t / parts % tiles * kClasses,
              o = t / parts / tiles;
    for (int c = 0; c < kClasses; ++c) sums[c][threadIdx.x] = 0.f;
    for (long long start = 0; start < count; start += kColumns) {
      long long place = start + threadIdx.x;
      long long id = place < count ? id_at(ids, kind, place, classes) : first - 1;
      bool own = id >= first && id < first + kClasses;
      int owned, number = number_wanted(own, warp_counts, owned);
      if (own) matches[number] = int(threadIdx.x) * kClasses + int(id - first);
      __syncthreads();
      if (column < inner)
        for (int k = 0; k < owned; ++k) {
          long long row = o * count + start + matches[k] / kClasses;
          sums[matches[k] % kClasses][threadIdx.x] += grad[row * inner + column];
        }
      __syncthreads();
    }
    if (column < inner)
      for (int c = 0; c < kClasses && first + c < classes; ++c)
        a_grad[(o * classes + first + c) * inner + column] = sums[c][threadIdx.x];
  }
}

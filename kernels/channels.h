// channels.h: sums a channel over all other axes of a tensor (batch, before, channels, after), in a fixed
// order, and elementwise loops that know an element's channel.
//
// A *run* is the `after` neighbouring elements of one channel at one (image, before). The runs of a channel
// are cut into parts that depend on an image's size only: some whole images, or a piece of one. A block sums
// a part in float32, its threads' sums joined as a tree, to workspace; then a thread a channel adds the parts
// in ascending order, in float64.
#pragma once

#include "common.h"
#include "divider.h"

constexpr int kChannelThreads = 256;
constexpr int kSpan = 1024;  // elements that a block of an elementwise loop takes at a time

// The sizes and their partition (channels.py: Channels).
struct Channels {
  long long batch, before, channels, after;
  long long images;                     // images of a part: more than 1 only where images are not cut
  long long runs, length;               // of a part: how many runs, how much of each
  long long run_pieces, length_pieces;  // pieces that an image is cut into, by runs and within them
  long long parts;
  long long lanes;  // neighbouring threads along a run, or along channels where runs have one element: a
                    // power of two
};

// Where an element is: its offset, its run, its place in the run; and the offset of the first element of its
// channel in its part.
struct ChannelIndex {
  long long element, run, place, channel, first;
};

// Sums of N terms.
template <int N>
struct Sums {
  float value[N];

  __device__ Sums() {
    for (int i = 0; i < N; ++i) value[i] = 0.f;
  }
  __device__ void merge(const Sums &other) {
    for (int i = 0; i < N; ++i) value[i] += other.value[i];
  }
};

// shared[0 .. lanes) = for each lane, the partials of all threads of that lane, merged as a tree.
template <class Partial>
__device__ __forceinline__ void merge_lanes(Partial *shared, int lanes) {
  for (int step = kChannelThreads / 2; step >= lanes; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) shared[threadIdx.x].merge(shared[threadIdx.x + step]);
  }
  __syncthreads();
}

// A thread's share of a part of one channel.
template <class Partial, class Visit>
__device__ __forceinline__ void visit_part(const Channels &c, long long part, long long channel,
                                           Partial &partial, Visit visit) {
  long long piece = part % c.length_pieces, rest = part / c.length_pieces;
  long long image = rest / c.run_pieces * c.images;
  long long last_image = image + c.images < c.batch ? image + c.images : c.batch;
  long long run = image * c.before + rest % c.run_pieces * c.runs;
  long long last_run = run + c.runs < last_image * c.before ? run + c.runs : last_image * c.before;
  long long place = piece * c.length, last = place + c.length < c.after ? place + c.length : c.after;
  bool along = c.after > 1;
  ChannelIndex i;
  i.channel = channel;
  i.first = (run * c.channels + channel) * c.after + place;
  if (along) place += threadIdx.x % c.lanes;
  for (i.run = run + threadIdx.x / c.lanes; i.run < last_run; i.run += kChannelThreads / c.lanes)
    for (i.place = place; i.place < last; i.place += along ? c.lanes : 1) {
      i.element = (i.run * c.channels + channel) * c.after + i.place;
      visit(partial, i);
    }
}

// partials[part * channels + channel] = what visit(partial, index) makes of all elements of that part and
// channel.
template <class Partial, class Visit>
__device__ __forceinline__ void reduce_channels(const Channels &c, Partial *partials, Visit visit) {
  __shared__ alignas(16) char memory[kChannelThreads * sizeof(Partial)];
  Partial *shared = reinterpret_cast<Partial *>(memory);
  int lanes = c.after > 1 ? 1 : (int)c.lanes;  // channels that a block takes at a time
  long long groups = (c.channels + lanes - 1) / lanes;
  for (long long block = blockIdx.x; block < groups * c.parts; block += gridDim.x) {
    long long part = block / groups, channel = block % groups * lanes + threadIdx.x % lanes;
    Partial partial;
    if (channel < c.channels) visit_part(c, part, channel, partial, visit);
    shared[threadIdx.x] = partial;
    merge_lanes(shared, lanes);
    if (threadIdx.x < lanes && channel < c.channels)
      partials[part * c.channels + channel] = shared[threadIdx.x];
    __syncthreads();
  }
}

// As reduce_channels, for sums: add(sums, index) adds an element's N terms. `partials` is parts * channels *
// N floats.
template <int N, class Add>
__device__ __forceinline__ void sum_channels(const Channels &c, float *partials, Add add) {
  reduce_channels(c, reinterpret_cast<Sums<N> *>(partials),
                  [&](Sums<N> &sums, const ChannelIndex &i) { add(sums.value, i); });
}

// Term `which` of N of a channel, added to `total` over the parts in ascending order.
template <int N>
__device__ __forceinline__ double total_of_parts(const Channels &c, const float *partials, long long channel,
                                                 int which, double total = 0) {
  for (long long part = 0; part < c.parts; ++part)
    total += partials[(part * c.channels + channel) * N + which];
  return total;
}

// The sum of a channel as slices of the batch add it up: what parts of the same images give in float64, then
// in float32 in ascending order, from `total` on.
__device__ __forceinline__ float total_of_images(const Channels &c, const float *partials, long long channel,
                                                 float total) {
  long long pieces = c.run_pieces * c.length_pieces;
  for (long long first = 0; first < c.parts; first += pieces) {
    double sum = 0;
    for (long long part = first; part < first + pieces; ++part) sum += partials[part * c.channels + channel];
    total = (float)(total + sum);
  }
  return total;
}

// f(i, channel, row) for all elements i of a tensor of n elements (outer, channels, after). The elements that
// differ in their channel alone are a row; rows are numbered (outer, after).
template <class F>
__device__ __forceinline__ void each_of_channel(long long n, long long channels, long long after, F f) {
  Divider by_after((unsigned)after), by_channels((unsigned)channels);
  for (long long start = blockIdx.x * (long long)kSpan; start < n; start += gridDim.x * (long long)kSpan) {
    long long run = start / after, outer = run / channels;
    int first_place = (int)(start - run * after), first_channel = (int)(run - outer * channels);
    for (int t = threadIdx.x; t < kSpan && start + t < n; t += blockDim.x) {
      int place = first_place + t, channel = first_channel + by_after.split(place);
      long long row = (outer + by_channels.split(channel)) * after + place;
      f(start + t, channel, row);
    }
  }
}

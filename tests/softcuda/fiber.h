// fiber.h: the threads of a block as fibers of one OS thread, and the ways in which they meet: barriers, warp
// exchanges, asynchronous copies. engine.cpp runs the fibers; softcuda.h gives what is here CUDA's names.
//
// A thread runs until it has to wait for others; only then does it cost a switch. Whoever completes a meeting
// raises its generation, and those who wait for that generation are resumed by the engine.
#pragma once
#include "abi.h"

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include <vector_types.h>

#define SOFTCUDA_EXPORT __attribute__((visibility("default")))

namespace softcuda {

constexpr int kWarpLanes = 32;
constexpr size_t kSlotBytes = 64;  // the most one lane can publish in an exchange

// Lanes that meet: complete when every lane of `mask` that is still alive has arrived.
struct Meeting {
  uint32_t mask, arrived, generation;
};

struct Warp {
  uint32_t lanes;                    // those that exist: the last warp of a block may be short
  uint32_t alive;                    // those that have not returned from the kernel
  bool used;                         // somebody has met here: a thread that exits must look at `meetings`
  Meeting meetings[kWarpLanes + 1];  // [i]: of some lanes, the lowest of them i; [32]: of all lanes
  alignas(16) unsigned char all_slots[2][kWarpLanes][kSlotBytes];  // what each lane published
  alignas(16) unsigned char some_slots[kWarpLanes][kSlotBytes];
};

struct AsyncCopy {
  char *destination;
  const char *source;
  int bytes, zero_bytes;  // copied, then zeroes
  int group;
};

struct Fiber {
  void *stack_pointer;  // while it does not run
  char *stack;
  uint3 thread_index;
  uint32_t lane;
  Warp *warp;
  const uint32_t *awaited;  // waits while *awaited == awaited_value
  uint32_t awaited_value;
  int line;  // of the source, where it waits
  bool done;
  int copy_group;                 // the cp.async group being filled
  std::vector<AsyncCopy> copies;  // not yet waited for
};

// What one OS thread runs now.
struct Engine {
  void *scheduler_stack_pointer = nullptr;
  uint3 block_index{};
  dim3 grid_dim, block_dim;
  uint32_t threads = 0, live = 0;  // of the block; those that have not returned
  uint32_t barrier_arrived = 0, barrier_generation = 0;
  int barrier_line = 0;
  char *dynamic_shared = nullptr;
  size_t dynamic_shared_bytes = 0;
  char *static_shared = nullptr;  // this OS thread's copy of the module's __shared__ arrays
  size_t static_shared_bytes = 0;
};

// Plain __thread pointers in the driver library's small static TLS block: an access is one instruction.
// Defined in the modules instead, they would drag all __shared__ arrays into that block, and dlopen would
// refuse the module.
extern SOFTCUDA_EXPORT __thread Fiber *fiber __attribute__((tls_model("initial-exec")));
extern SOFTCUDA_EXPORT __thread Engine *engine __attribute__((tls_model("initial-exec")));

extern "C" SOFTCUDA_EXPORT void softcuda_switch(void **save_stack_pointer, void *stack_pointer);

// Abandons the launch from inside a fiber. `error` is the CUresult that the context will keep.
[[noreturn]] SOFTCUDA_EXPORT void fail(int error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
constexpr int kLaunchFailed = 719, kIllegalAddress = 700, kMisalignedAddress = 716;

SOFTCUDA_EXPORT int run(const LaunchConfig *config, void (*kernel)(const char *params));

inline void wait_while(const uint32_t *awaited, uint32_t value, int line) {
  Fiber *self = fiber;
  self->awaited = awaited;
  self->awaited_value = value;
  self->line = line;
  softcuda_switch(&self->stack_pointer, engine->scheduler_stack_pointer);
  fiber = self;
}

// Stricter than the hardware, which since sm_70 lets a block meet without the threads that have returned:
// kernels that rely on it are nearly always wrong, and whether it works would depend on the order in which
// threads run here.
[[noreturn]] inline void fail_barrier_after_exit(int line) {
  fail(kLaunchFailed, "__syncthreads() at line %d isn't reached by all threads: some have returned", line);
}

inline void sync_threads(int line) {
  Engine *e = engine;
  if (e->live < e->threads) fail_barrier_after_exit(line);
  if (e->barrier_arrived && e->barrier_line != line)
    fail(kLaunchFailed, "divergent __syncthreads(): lines %d and %d meet in one barrier", e->barrier_line,
         line);
  e->barrier_line = line;
  if (++e->barrier_arrived == e->live) {
    e->barrier_arrived = 0;
    ++e->barrier_generation;
  } else {
    wait_while(&e->barrier_generation, e->barrier_generation, line);
  }
}

inline bool complete(const Meeting &meeting, uint32_t alive) {
  uint32_t needed = meeting.mask & alive;
  return (meeting.arrived & needed) == needed;
}

inline void meet(Meeting &meeting, uint32_t mask, int line) {
  Warp &warp = *fiber->warp;
  if (meeting.arrived && ((meeting.mask ^ mask) & warp.alive))
    fail(kLaunchFailed, "line %d: lanes of one warp operation name different masks %08x and %08x", line,
         meeting.mask, mask);
  warp.used = true;
  meeting.mask = mask;
  meeting.arrived |= 1u << fiber->lane;
  if (complete(meeting, warp.alive)) {
    meeting.arrived = 0;
    ++meeting.generation;
  } else {
    wait_while(&meeting.generation, meeting.generation, line);
  }
}

// Each lane of `mask` publishes `value`; then `use(get)` may read the others' through get(lane).
template <class T, class Use>
inline auto warp_exchange(uint32_t mask, const T &value, int line, Use use) {
  static_assert(sizeof(T) <= kSlotBytes && std::is_trivially_copyable<T>::value,
                "too much for one lane's slot");
  Fiber *self = fiber;
  Warp &warp = *self->warp;
  if (!(mask >> self->lane & 1))
    fail(kLaunchFailed, "line %d: lane %u isn't in its own mask %08x", line, self->lane, mask);
  mask &= warp.lanes;
  auto reader = [](unsigned char (*slots)[kSlotBytes]) {
    return [slots](int lane) {
      T other;
      memcpy(static_cast<void *>(&other), slots[lane & 31], sizeof other);
      return other;
    };
  };
  if (mask == warp.lanes) {
    // Two sets of slots by turns: who enters the next exchange overwrites what nobody reads any more.
    Meeting &meeting = warp.meetings[kWarpLanes];
    auto *slots = warp.all_slots[meeting.generation & 1];
    memcpy(slots[self->lane], &value, sizeof value);
    meet(meeting, mask, line);
    return use(reader(slots));
  }
  Meeting &meeting = warp.meetings[__builtin_ctz(mask)];
  memcpy(warp.some_slots[self->lane], &value, sizeof value);
  meet(meeting, mask, line);
  auto result = use(reader(warp.some_slots));
  meet(meeting, mask, line);  // one set of slots: nobody overwrites before all have read
  return result;
}

enum class Shuffle { index, up, down, exclusive_or };

template <class T>
inline T shuffle(uint32_t mask, T value, Shuffle kind, int operand, int width, int line) {
  int lane = fiber->lane, base = lane & ~(width - 1), source = lane;
  switch (kind) {
    case Shuffle::index: source = base + (operand & (width - 1)); break;
    case Shuffle::up: source = lane - operand < base ? lane : lane - operand; break;
    case Shuffle::down: source = lane + operand >= base + width ? lane : lane + operand; break;
    case Shuffle::exclusive_or: source = (lane ^ operand) >= base + width ? lane : lane ^ operand; break;
  }
  return warp_exchange(mask, value, line, [&](auto get) { return get(source); });
}

inline uint32_t ballot(uint32_t mask, bool predicate, int line) {
  uint32_t asked = mask & fiber->warp->alive;
  return warp_exchange(mask, predicate, line, [&](auto get) {
    uint32_t votes = 0;
    for (int lane = 0; lane < kWarpLanes; ++lane)
      if (asked >> lane & 1) votes |= uint32_t(get(lane)) << lane;
    return votes;
  });
}

inline bool is_shared(const void *pointer) {
  auto inside = [p = static_cast<const char *>(pointer)](const char *begin, size_t bytes) {
    return p >= begin && p < begin + bytes;
  };
  const Engine &e = *engine;
  return inside(e.dynamic_shared, e.dynamic_shared_bytes) || inside(e.static_shared, e.static_shared_bytes);
}

// `bytes` from global to shared memory, and zeroes behind them. It lands as late as the rules allow, when the
// thread waits for its group, so a missing wait reads poison.
inline void async_copy(void *destination, const void *source, int bytes, int zero_bytes, int line) {
  uintptr_t align = bytes + zero_bytes;
  if (!is_shared(destination)) fail(kIllegalAddress, "line %d: cp.async writes outside shared memory", line);
  if ((reinterpret_cast<uintptr_t>(destination) | reinterpret_cast<uintptr_t>(source)) & (align - 1))
    fail(kMisalignedAddress, "line %d: cp.async of %d bytes at a misaligned address", line, int(align));
  fiber->copies.push_back({static_cast<char *>(destination), static_cast<const char *>(source), bytes,
                           zero_bytes, fiber->copy_group});
}

inline void async_copy_commit() { ++fiber->copy_group; }

// Lands all groups but the newest `pending`.
inline void async_copy_wait(int pending) {
  std::vector<AsyncCopy> &copies = fiber->copies;
  size_t kept = 0;
  for (const AsyncCopy &copy : copies) {
    if (copy.group >= fiber->copy_group - pending) {
      copies[kept++] = copy;
      continue;
    }
    memcpy(copy.destination, copy.source, copy.bytes);
    memset(copy.destination + copy.bytes, 0, copy.zero_bytes);
  }
  copies.resize(kept);
}

}  // namespace softcuda

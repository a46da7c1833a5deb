// engine.cpp: the block executor. Runs the blocks of one launch, each block's threads as fibers on one OS
// thread, and turns faults inside a kernel into reports that name block and thread.
//
// What made it fast: a thread that never waits costs no switch (its fiber goes on with the block's next
// thread); a switch is six pushes and pops (ucontext makes two system calls); fiber stacks are staggered, as
// stacks at equal page offsets share one set of the L1 cache; the switch leaves by pop and jmp, as ret would
// mispredict.
#include "runner.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <link.h>
#include <sys/mman.h>

#ifndef __x86_64__
#error "softcuda's fiber switch is written for x86-64"
#endif

asm(R"(
.text
.globl softcuda_switch
.type softcuda_switch,@function
softcuda_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  popq %rcx
  jmpq *%rcx
.size softcuda_switch,.-softcuda_switch
)");

namespace softcuda {

__thread Fiber *fiber = nullptr;
__thread Engine *engine = nullptr;

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kMaxDynamicSharedBytes = 256 << 10;
constexpr int kSavedRegisters = 6;
constexpr uint64_t kThreadsWorthWorkers = 2048;  // a smaller launch is done before a worker has started

uint64_t next_random(uint64_t &state) {  // xorshift64
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

std::vector<uint32_t> ordered(uint64_t count, Order order, uint64_t seed) {
  std::vector<uint32_t> indices(count);
  for (uint64_t i = 0; i < count; ++i) indices[i] = uint32_t(order == Order::descending ? count - 1 - i : i);
  if (order == Order::random)
    for (uint64_t i = count; i > 1; --i) std::swap(indices[i - 1], indices[next_random(seed) % i]);
  return indices;
}

char *map_with_guard(size_t bytes, bool guard_behind) {
  char *base = static_cast<char *>(mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (base == MAP_FAILED) {
    fprintf(stderr, "softcuda: cannot map %zu bytes for the block executor (vm.max_map_count?)\n", bytes);
    abort();
  }
  mprotect(guard_behind ? base + bytes : base, kPage, PROT_NONE);
  return guard_behind ? base : base + kPage;
}

}  // namespace

// ---- the state of one OS thread that runs blocks ------------------------------------------------

Runner::Runner() {
  dynamic_shared_end = map_with_guard(kMaxDynamicSharedBytes, true) + kMaxDynamicSharedBytes;
}

Runner::~Runner() {
  for (char *stack : all_stacks) munmap(stack - kPage, kStackBytes + kPage);
  munmap(dynamic_shared_end - kMaxDynamicSharedBytes, kMaxDynamicSharedBytes + kPage);
}

char *Runner::take_stack() {
  if (free_stacks.empty()) {
    all_stacks.push_back(map_with_guard(kStackBytes, false));
    return all_stacks.back();
  }
  char *stack = free_stacks.back();
  free_stacks.pop_back();
  return stack;
}

// ---- threads of a block -------------------------------------------------------------------------

namespace {

void begin_thread(Runner &runner, uint32_t index) {
  Fiber &self = runner.fibers[index];
  const dim3 &dim = runner.block_dim;
  self.thread_index = {index % dim.x, index / dim.x % dim.y, index / (dim.x * dim.y)};
  self.lane = index % kWarpLanes;
  self.warp = &runner.warps[index / kWarpLanes];
  self.done = false;
  self.copies.clear();
  self.copy_group = 0;
  fiber = &self;
}

// The exit of a thread may be what others waited for.
void end_thread(Runner &runner) {
  Fiber &self = *fiber;
  self.done = true;
  --runner.live;
  self.warp->alive &= ~(1u << self.lane);
  if (runner.barrier_arrived) fail_barrier_after_exit(runner.barrier_line);
  if (!self.warp->used) return;
  for (Meeting &meeting : self.warp->meetings) {
    if (!meeting.arrived || !complete(meeting, self.warp->alive)) continue;
    meeting.arrived = 0;
    ++meeting.generation;
  }
}

void fiber_main() {
  auto &runner = *static_cast<Runner *>(engine);
  for (;;) {
    runner.kernel(runner.config->params);
    end_thread(runner);
    if (runner.begun == runner.threads) break;
    char *stack = fiber->stack;  // the next thread goes on here, without a switch
    uint32_t index = runner.order[runner.begun++];
    begin_thread(runner, index);
    fiber->stack = stack;
  }
  void *finished;
  softcuda_switch(&finished, runner.scheduler_stack_pointer);
  __builtin_unreachable();
}

}  // namespace

void Runner::prepare_warps() {
  uint32_t count = (threads + kWarpLanes - 1) / kWarpLanes;
  if (warps.size() < count) warps.resize(count);
  if (fibers.size() < threads) fibers.resize(threads);
  for (uint32_t i = 0; i < count; ++i) {
    Warp &warp = warps[i];
    uint32_t rest = threads - i * kWarpLanes;
    warp.lanes = warp.alive = rest >= kWarpLanes ? ~0u : (1u << rest) - 1;
    warp.used = false;
    memset(warp.meetings, 0, sizeof warp.meetings);
  }
}

void Runner::begin_on_new_stack(uint32_t index) {
  char *stack = take_stack();
  size_t stagger = (index * 192u) % 8192u;
  auto **top = reinterpret_cast<void **>(stack + kStackBytes - stagger);
  --top;  // so that %rsp % 16 == 8 when fiber_main begins, as after a call
  *--top = reinterpret_cast<void *>(fiber_main);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  begin_thread(*this, index);
  fiber->stack = stack;
  softcuda_switch(&scheduler_stack_pointer, top);
}

void Runner::begin_all() {
  waiting.clear();
  while (begun < threads && !faulted) {
    begin_on_new_stack(order[begun++]);
    if (faulted) return;
    if (fiber->done)  // of the last thread that ran on this stack
      free_stacks.push_back(fiber->stack);
    else
      waiting.push_back(uint32_t(fiber - fibers.data()));
  }
}

// One round over those who wait. False if nobody could go on.
bool Runner::resume_waiting() {
  bool progress = false;
  size_t kept = 0;
  for (uint32_t index : waiting) {
    Fiber &self = fibers[index];
    if (*self.awaited != self.awaited_value) {
      progress = true;
      fiber = &self;
      softcuda_switch(&scheduler_stack_pointer, self.stack_pointer);
      if (faulted) return true;
    }
    if (self.done)
      free_stacks.push_back(self.stack);
    else
      waiting[kept++] = index;
  }
  waiting.resize(kept);
  return progress;
}

void Runner::report_deadlock() {
  char text[128];
  fiber = &fibers[waiting[0]];
  snprintf(text, sizeof text, "deadlock: %zu threads of the block wait for ever, this one at line %d",
           waiting.size(), fiber->line);
  fill_report(kLaunchFailed, 0, text);
  faulted = true;
}

bool Runner::run_block() {
  prepare_warps();
  live = threads;
  barrier_arrived = 0;
  begun = 0;
  begin_all();
  while (!faulted && !waiting.empty())
    if (!resume_waiting()) report_deadlock();
  if (faulted) free_stacks = all_stacks;  // abandoned threads never come back to theirs
  return !faulted;
}

// ---- a launch -----------------------------------------------------------------------------------

namespace {

struct ModuleThreadStorage {
  uintptr_t code;
  char *begin;
  size_t bytes;
};

int find_thread_storage(dl_phdr_info *info, size_t, void *data) {
  auto *storage = static_cast<ModuleThreadStorage *>(data);
  bool found = false;
  size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto &header = info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && storage->code >= begin && storage->code < begin + header.p_memsz)
      found = true;
    if (header.p_type == PT_TLS) bytes = header.p_memsz;
  }
  if (found && info->dlpi_tls_data) {
    storage->begin = static_cast<char *>(info->dlpi_tls_data);
    storage->bytes = bytes;
  }
  return found;
}

// Runners are kept between launches: their stacks are costly to map.
std::mutex runners_mutex;
std::vector<std::unique_ptr<Runner>> &idle_runners = *new std::vector<std::unique_ptr<Runner>>;

std::unique_ptr<Runner> take_runner() {
  std::lock_guard<std::mutex> lock(runners_mutex);
  if (idle_runners.empty()) return std::make_unique<Runner>();
  auto runner = std::move(idle_runners.back());
  idle_runners.pop_back();
  return runner;
}

void give_back(std::unique_ptr<Runner> runner) {
  std::lock_guard<std::mutex> lock(runners_mutex);
  idle_runners.push_back(std::move(runner));
}

// What the workers of one launch share.
struct Launch {
  const LaunchConfig *config;
  void (*kernel)(const char *);
  std::vector<uint32_t> blocks;
  std::atomic<size_t> next{0};
  std::atomic<int> error{0};
};

void prepare_runner(Runner &runner, const Launch &launch) {
  const LaunchConfig &config = *launch.config;
  runner.config = &config;
  runner.kernel = launch.kernel;
  runner.faulted = false;
  runner.grid_dim = dim3(config.grid[0], config.grid[1], config.grid[2]);
  runner.block_dim = dim3(config.block[0], config.block[1], config.block[2]);
  runner.threads = config.block[0] * config.block[1] * config.block[2];
  runner.order = ordered(runner.threads, config.order, config.seed | 1);
  // The end of dynamic shared memory abuts a guard page.
  runner.dynamic_shared_bytes = (config.dynamic_shared_bytes + size_t(15)) & ~size_t(15);
  runner.dynamic_shared = runner.dynamic_shared_end - runner.dynamic_shared_bytes;
  config.shared_anchor();  // makes the thread's storage exist
  ModuleThreadStorage storage{reinterpret_cast<uintptr_t>(launch.kernel), nullptr, 0};
  dl_iterate_phdr(find_thread_storage, &storage);
  runner.static_shared = storage.begin;
  runner.static_shared_bytes = storage.bytes;
}

void run_blocks(Launch &launch) {
  static thread_local SignalStack signal_stack;
  (void)signal_stack;
  auto owned = take_runner();
  Runner &runner = *owned;
  const LaunchConfig &config = *launch.config;
  prepare_runner(runner, launch);
  engine = &runner;
  for (size_t i; !launch.error && (i = launch.next++) < launch.blocks.size();) {
    uint32_t block = launch.blocks[i];
    runner.block_index = {block % config.grid[0], block / config.grid[0] % config.grid[1],
                          uint32_t(block / (uint64_t(config.grid[0]) * config.grid[1]))};
    if (config.poison) {  // NaN in float32, float16 and bfloat16
      memset(runner.dynamic_shared, 0xFF, runner.dynamic_shared_bytes);
      if (runner.static_shared) memset(runner.static_shared, 0xFF, runner.static_shared_bytes);
    }
    if (runner.run_block()) continue;
    int none = 0;
    if (launch.error.compare_exchange_strong(none, runner.report.error)) *config.fault = runner.report;
  }
  fiber = nullptr;
  engine = nullptr;
  give_back(std::move(owned));
}

}  // namespace

int run(const LaunchConfig *config, void (*kernel)(const char *)) {
  uint64_t count = uint64_t(config->grid[0]) * config->grid[1] * config->grid[2];
  uint64_t threads = count * config->block[0] * config->block[1] * config->block[2];
  Launch launch{config, kernel, ordered(count, config->order, config->seed * 0x9E3779B97F4A7C15ull | 1)};
  uint64_t workers = threads > kThreadsWorthWorkers ? std::min<uint64_t>(config->workers, count) : 1;
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < workers; ++i) others.emplace_back([&launch] { run_blocks(launch); });
  run_blocks(launch);
  for (std::thread &other : others) other.join();
  return launch.error;
}

}  // namespace softcuda

extern "C" SOFTCUDA_EXPORT char *__softcuda_dynamic_shared() { return softcuda::engine->dynamic_shared; }

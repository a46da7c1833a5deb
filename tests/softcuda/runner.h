// runner.h: the state of one OS thread that runs blocks, for engine.cpp, which runs them, and fault.cpp,
// which ends a launch that goes wrong.
#pragma once
#include "fiber.h"

namespace softcuda {

constexpr size_t kPage = 4096;

struct Runner : Engine {
  const LaunchConfig *config = nullptr;
  void (*kernel)(const char *) = nullptr;
  std::vector<Fiber> fibers;  // one per thread of the block
  std::vector<Warp> warps;
  std::vector<uint32_t> order;  // in which the threads begin
  uint32_t begun = 0;
  std::vector<char *> free_stacks, all_stacks;
  char *dynamic_shared_end = nullptr;
  bool faulted = false;
  FaultReport report{};

  Runner();
  ~Runner();
  Runner(const Runner &) = delete;
  bool run_block();  // false if the block faulted: `report` says how
  void fill_report(int error, uintptr_t address, const char *text);  // adds block and thread

 private:
  char *take_stack();
  void prepare_warps();
  void begin_on_new_stack(uint32_t index);
  void begin_all();
  bool resume_waiting();
  void report_deadlock();
  std::vector<uint32_t> waiting;
};

// A stack for the signal handler, for as long as the object lives: the fault may be that a fiber's stack is
// full.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack &) = delete;

 private:
  void *memory_;
};

}  // namespace softcuda

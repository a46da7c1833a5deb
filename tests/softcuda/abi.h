// abi.h: what the driver library and a kernel module agree on. How a launch is described, how a kernel
// describes its parameters, how a fault is told. Both sides include this file: after a change build both
// again.
#pragma once
#include <cstdint>

namespace softcuda {

enum class Order : int32_t { ascending, descending, random };

struct FaultReport {
  int error;          // a CUresult: 700 illegal address, 719 launch failure; 0: no fault
  uintptr_t address;  // of an illegal access, else 0
  char text[384];     // where: block, thread, line or code offset
};

struct LaunchConfig {
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared_bytes;
  Order order;               // in which blocks, and threads of a block, begin
  uint64_t seed;             // of Order::random
  const char *params;        // packed as the launch buffer of cuLaunchKernel
  int32_t workers;           // OS threads that share the blocks
  bool poison;               // fill shared memory with 0xFF before each block
  void *(*shared_anchor)();  // an address in the calling thread's block of the module's __shared__ arrays
  FaultReport *fault;        // out
};

enum class Access : uint32_t { value, read, write };  // by value, const T *, T *

struct ParamInfo {
  uint32_t offset, bytes;
  Access access;
};

constexpr uint32_t kMaxParams = 64;

struct KernelInfo {
  uint32_t param_count, param_bytes;
  uint32_t max_threads;  // of a block, from __launch_bounds__
  ParamInfo params[kMaxParams];
};

using LaunchFunction = int (*)(const LaunchConfig *);  // returns a CUresult

}  // namespace softcuda

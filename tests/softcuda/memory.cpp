// memory.cpp: device and pinned memory, copies, fills.
//
// Device memory is host memory that stands for it. Each allocation has pages of its own between guard pages,
// its end as close to the guard as the alignment allows; what lies between must still be poison when it is
// freed. Freed pages become unreadable for ever, so a stale pointer faults. With SOFTCUDA_GUARD=0 (for very
// many allocations) there are no guards, and freed blocks are poisoned and given out again, at the same
// address, as on a GPU.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "driver.h"

namespace softcuda {
namespace {

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

char *map_pages(void *where, size_t bytes, int protection, int flags) {
  void *pages = mmap(where, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return pages == MAP_FAILED ? nullptr : static_cast<char *>(pages);
}

bool map_block(size_t bytes, Block &block) {
  block.page_bytes = round_up(bytes, kPage);
  block.guard_bytes = driver.settings.guard ? kPage : 0;
  char *all = map_pages(nullptr, block.page_bytes + 2 * block.guard_bytes, PROT_NONE, 0);
  if (!all) return false;
  block.pages = all + block.guard_bytes;
  if (mprotect(block.pages, block.page_bytes, PROT_READ | PROT_WRITE)) {
    munmap(all, block.page_bytes + 2 * block.guard_bytes);
    return false;
  }
  return true;
}

bool take_block(size_t bytes, Block &block) {
  auto reused = driver.reusable.find(round_up(bytes, kPage));
  if (reused != driver.reusable.end()) {
    block = reused->second;
    driver.reusable.erase(reused);
  } else if (!map_block(bytes, block)) {
    message("cannot map %zu bytes: too many mappings? SOFTCUDA_GUARD=0 needs fewer", bytes);
    return false;
  }
  size_t align = driver.settings.align_bytes;
  block.bytes = bytes;
  block.begin = block.pages + block.page_bytes - round_up(bytes, align);
  if (driver.settings.poison) memset(block.pages, kPoison, block.page_bytes);
  return true;
}

// Writes between the allocation and its guard pages don't fault: they show here.
void check_slack(const Block &block) {
  if (!driver.settings.poison) return;
  auto spoilt = [](const char *begin, const char *end) {
    return std::any_of(begin, end, [](char byte) { return byte != char(kPoison); });
  };
  const char *end = block.begin + block.bytes;
  bool before = spoilt(block.pages, block.begin), behind = spoilt(end, block.pages + block.page_bytes);
  if (!before && !behind) return;
  ++driver.counters.overruns;
  message("OVERRUN: bytes just %s the %zu-byte allocation at %p were written", before ? "before" : "behind",
          block.bytes, static_cast<void *>(block.begin));
}

void release_block(const Block &block) {
  check_slack(block);
  if (driver.settings.poison) memset(block.pages, kPoison, block.page_bytes);
  if (!driver.settings.guard) {
    driver.reusable.emplace(block.page_bytes, block);
    return;
  }
  driver.freed[reinterpret_cast<uintptr_t>(block.pages)] = {block.page_bytes};
  map_pages(block.pages, block.page_bytes, PROT_NONE,
            MAP_FIXED);  // gives the pages back, keeps the addresses
}

void forget_allocation(const Allocation &allocation) {
  forget_history(reinterpret_cast<uintptr_t>(allocation.block.begin), allocation.bytes);
  release_block(allocation.block);
}

bool is_within(std::map<uintptr_t, Allocation> &ranges, const void *pointer, size_t bytes) {
  auto address = reinterpret_cast<uintptr_t>(pointer);
  auto range = find_range(ranges, address);
  return range != ranges.end() && bytes <= range->first + range->second.bytes - address;
}

bool is_device_memory(const void *pointer, size_t bytes, bool write) {
  return is_within(driver.allocations, pointer, bytes) ||
         is_mapped(reinterpret_cast<uintptr_t>(pointer), bytes, write);
}

// ---- copies -------------------------------------------------------------------------------------

enum class Copy { host_to_device, device_to_host, device_to_device };

struct CopySide {
  const void *pointer;
  bool device, write;
};

// Notes the side's bytes for the race detector; refuses device bytes that are not allocated.
CUresult use_side(const CopySide &side, size_t bytes, std::vector<Use> &uses) {
  auto begin = reinterpret_cast<uintptr_t>(side.pointer);
  bool known = side.device ? is_device_memory(side.pointer, bytes, side.write)
                           : is_within(driver.pinned, side.pointer, bytes);
  if (known) uses.push_back({begin, begin + bytes, side.write});
  if (known || !side.device) return CUDA_SUCCESS;
  message("a copy %s %zu bytes outside any live device allocation: %s", side.write ? "writes" : "reads",
          bytes, describe_address(begin).c_str());
  return CUDA_ERROR_INVALID_VALUE;
}

// When a copy's turn comes its memory may have gone: a graph is launched long after its copies were captured.
CUresult find_again(const CopySide &side, size_t bytes) {
  Lock lock(driver.mutex);
  if (!side.device || is_device_memory(side.pointer, bytes, side.write)) return CUDA_SUCCESS;
  message("a copy %s %zu bytes of device memory that has gone since it was asked for: %s",
          side.write ? "writes" : "reads", bytes,
          describe_address(reinterpret_cast<uintptr_t>(side.pointer)).c_str());
  return CUDA_ERROR_ILLEGAL_ADDRESS;
}

// Pageable sources are staged before the call returns; pageable destinations make it synchronous; with pinned
// memory the copy reads and writes when its turn comes.
CUresult copy(Lock &lock, CUstream handle, void *to, const void *from, size_t bytes, Copy kind,
              bool synchronous) {
  StreamPtr stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!bytes) return CUDA_SUCCESS;
  bool to_device = kind != Copy::device_to_host, from_device = kind != Copy::host_to_device;
  std::vector<Use> uses;
  CopySide target{to, to_device, true}, source{from, from_device, false};
  if (CUresult error = use_side(target, bytes, uses)) return error;
  if (CUresult error = use_side(source, bytes, uses)) return error;
  bool pageable_source = !from_device && !is_within(driver.pinned, from, bytes);
  bool pageable_target = !to_device && !is_within(driver.pinned, to, bytes);
  if (stream->capture && (pageable_source || pageable_target)) {
    stream->capture->invalid = true;
    message("a captured copy uses pageable host memory: the graph could not find its bytes again; pin it");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  ++driver.counters.copies;
  if (!from_device) driver.counters.bytes_to_device += bytes;
  if (!to_device) driver.counters.bytes_to_host += bytes;
  std::shared_ptr<std::vector<char>> staged;
  if (pageable_source && !synchronous) {
    auto *begin = static_cast<const char *>(from);
    staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    from = staged->data();
  }
  auto run = [=] {
    (void)staged;  // kept until the copy has run
    if (CUresult gone = find_again(target, bytes)) return gone;
    if (CUresult gone = find_again(source, bytes)) return gone;
    memmove(to, from, bytes);
    return CUDA_SUCCESS;
  };
  static const char *const names[] = {"a copy to the device", "a copy to the host", "a copy on the device"};
  CUresult error = enqueue(lock, stream, {names[int(kind)], run, std::move(uses), nullptr});
  if (error || !(synchronous || pageable_target)) return error;
  return synchronize(lock, stream);
}

void *pointer(CUdeviceptr address) { return reinterpret_cast<void *>(address); }

template <class T>
CUresult fill(CUdeviceptr to, T value, size_t count, CUstream handle) {
  SOFTCUDA_ENTER;
  StreamPtr stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!count) return CUDA_SUCCESS;
  if (to % sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Use> uses;
  CopySide target{pointer(to), true, true};
  if (CUresult error = use_side(target, count * sizeof(T), uses)) return error;
  ++driver.counters.memsets;
  auto run = [=] {
    if (CUresult gone = find_again(target, count * sizeof(T))) return gone;
    std::fill_n(static_cast<T *>(pointer(to)), count, value);
    return CUDA_SUCCESS;
  };
  return enqueue(lock, stream, {"a fill", run, std::move(uses), nullptr});
}

CUresult synchronous_copy(void *to, const void *from, size_t bytes, Copy kind) {
  SOFTCUDA_ENTER;
  if (refuse_while_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return copy(lock, nullptr, to, from, bytes, kind, kind != Copy::device_to_device);
}

CUresult asynchronous_copy(void *to, const void *from, size_t bytes, Copy kind, CUstream stream) {
  SOFTCUDA_ENTER;
  return copy(lock, stream, to, from, bytes, kind, false);
}

}  // namespace

void free_all(CUcontext owner) {
  size_t count = 0, bytes = 0;
  for (auto at = driver.allocations.begin(); at != driver.allocations.end();) {
    if (at->second.owner != owner) {
      ++at;
      continue;
    }
    if (at->second.block.pages) {
      forget_allocation(at->second);
      ++count;
      bytes += at->second.bytes;
    }
    at = driver.allocations.erase(at);
  }
  driver.counters.bytes_live -= bytes;
  if (count && driver.settings.leaks)
    message("LEAK: %zu device allocations (%zu bytes) were not freed before the end of their context", count,
            bytes);
}

}  // namespace softcuda

using namespace softcuda;

// ---- device memory ------------------------------------------------------------------------------

SOFTCUDA_API cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  SOFTCUDA_ENTER;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (refuse_while_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Counters &counters = driver.counters;
  if (bytes > driver.settings.capacity_bytes - counters.bytes_live) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block;
  if (!take_block(bytes, block)) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(block.begin);
  driver.allocations[*address] = {block, bytes, current_context()};
  ++counters.allocations;
  counters.bytes_live += bytes;
  counters.bytes_peak = std::max(counters.bytes_peak, counters.bytes_live);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemFree(CUdeviceptr address) {
  SOFTCUDA_ENTER;
  if (!address) return CUDA_SUCCESS;
  if (refuse_while_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  synchronize_all(lock);  // cuMemFree waits for the device
  auto found = driver.allocations.find(address);
  if (found == driver.allocations.end() || !found->second.block.pages) {
    message("cuMemFree: %p is not the start of a live allocation", pointer(address));
    return CUDA_ERROR_INVALID_VALUE;
  }
  forget_allocation(found->second);
  ++driver.counters.frees;
  driver.counters.bytes_live -= found->second.bytes;
  driver.allocations.erase(found);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  SOFTCUDA_ENTER;
  *total_bytes = driver.settings.capacity_bytes;
  *free_bytes = driver.settings.capacity_bytes - driver.counters.bytes_live;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  SOFTCUDA_ENTER;
  auto found = find_range(driver.allocations, address);
  if (found == driver.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  if (base) *base = found->first;
  if (bytes) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

// ---- pinned host memory -------------------------------------------------------------------------

SOFTCUDA_API cuMemHostAlloc(void **host, size_t bytes, unsigned) {
  SOFTCUDA_ENTER;
  if (refuse_while_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Block block;
  if (!take_block(std::max<size_t>(bytes, 1), block)) return CUDA_ERROR_OUT_OF_MEMORY;
  *host = block.begin;
  driver.pinned[reinterpret_cast<uintptr_t>(block.begin)] = {block, bytes, nullptr};
  ++driver.counters.pinned_allocations;
  driver.counters.pinned_bytes_live += bytes;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemAllocHost(void **host, size_t bytes) { return cuMemHostAlloc(host, bytes, 0); }

SOFTCUDA_API cuMemFreeHost(void *host) {
  SOFTCUDA_ENTER;
  if (refuse_while_capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  synchronize_all(lock);
  auto found = driver.pinned.find(reinterpret_cast<uintptr_t>(host));
  if (found == driver.pinned.end() || !found->second.block.pages) return CUDA_ERROR_INVALID_VALUE;
  forget_allocation(found->second);
  driver.counters.pinned_bytes_live -= found->second.bytes;
  driver.pinned.erase(found);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemHostRegister(void *host, size_t bytes, unsigned) {
  SOFTCUDA_ENTER;
  auto address = reinterpret_cast<uintptr_t>(host);
  if (find_range(driver.pinned, address) != driver.pinned.end())
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  driver.pinned[address] = {{}, bytes, nullptr};
  driver.counters.pinned_bytes_live += bytes;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemHostUnregister(void *host) {
  SOFTCUDA_ENTER;
  synchronize_all(lock);
  auto found = driver.pinned.find(reinterpret_cast<uintptr_t>(host));
  if (found == driver.pinned.end() || found->second.block.pages) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  forget_history(found->first, found->second.bytes);
  driver.counters.pinned_bytes_live -= found->second.bytes;
  driver.pinned.erase(found);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned) {
  *address = reinterpret_cast<CUdeviceptr>(host);  // unified addressing
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemHostGetFlags(unsigned *flags, void *) {
  *flags = 0;
  return CUDA_SUCCESS;
}

// ---- copies and fills ---------------------------------------------------------------------------

SOFTCUDA_API cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
  return synchronous_copy(pointer(to), from, bytes, Copy::host_to_device);
}
SOFTCUDA_API cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
  return synchronous_copy(to, pointer(from), bytes, Copy::device_to_host);
}
SOFTCUDA_API cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return synchronous_copy(pointer(to), pointer(from), bytes, Copy::device_to_device);
}
SOFTCUDA_API cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return asynchronous_copy(pointer(to), from, bytes, Copy::host_to_device, stream);
}
SOFTCUDA_API cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return asynchronous_copy(to, pointer(from), bytes, Copy::device_to_host, stream);
}
SOFTCUDA_API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return asynchronous_copy(pointer(to), pointer(from), bytes, Copy::device_to_device, stream);
}

SOFTCUDA_API cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  return fill(to, value, count, nullptr);
}
SOFTCUDA_API cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) {
  return fill(to, value, count, nullptr);
}
SOFTCUDA_API cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  return fill(to, value, count, nullptr);
}
SOFTCUDA_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}
SOFTCUDA_API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}
SOFTCUDA_API cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

// For a pool or an arena that gives parts of one allocation out itself: fills a part that has been given
// back, once everything queued has run, so that later reads of it are NaN.
SOFTCUDA_EXTRA(void) softcuda_poison(CUdeviceptr address, size_t bytes) {
  Lock lock(driver.mutex);
  drain_all(lock);
  if (is_device_memory(pointer(address), bytes, true)) memset(pointer(address), kPoison, bytes);
}

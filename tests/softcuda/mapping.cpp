// mapping.cpp: virtual memory management: memory without addresses (cuMemCreate), addresses without memory
// (cuMemAddressReserve), and mappings that put them together, one memory at several addresses if asked.
//
// All memory of cuMemCreate is one anonymous file. Each handle is a part of it that no other handle has had
// or will have, and a mapping shows the part, or its beginning, at reserved addresses. Addresses that show
// nothing, or that cuMemSetAccess has not opened, fault. Handles that were made one after another lie side by
// side in the file, so mappings of them in that order are one mapping for the operating system, which allows
// 65,530. Around each reservation lie guard pages, so no run of mappings reaches from one into another.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "driver.h"

namespace softcuda {
namespace {

size_t least_bytes() { return driver.settings.page_bytes; }  // least and recommended, 2 MiB on GPUs
constexpr uintptr_t kMemory = uintptr_t(1) << 63;  // plus a place in the file: above all addresses

using Mappings = std::map<uintptr_t, Mapping>;

bool is_granular(size_t n) { return n % least_bytes() == 0; }

void *pointer(uintptr_t address) { return reinterpret_cast<void *>(address); }

template <class... T>
CUresult refuse(const char *format, T... values) {
  message(format, values...);
  return CUDA_ERROR_INVALID_VALUE;
}

// ---- memory -------------------------------------------------------------------------------------

int memory_file() {
  static int file = memfd_create("softcuda-memory", MFD_CLOEXEC);
  return file;
}

bool poison_file(uint64_t offset, size_t bytes) {
  static const std::vector<char> &poison = *new std::vector<char>(least_bytes(), char(kPoison));
  for (size_t at = 0; at < bytes; at += least_bytes())
    if (pwrite(memory_file(), poison.data(), poison.size(), offset + at) != ssize_t(poison.size()))
      return false;
  return true;
}

void give_back(const Physical &memory) {
  fallocate(memory_file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, memory.offset, memory.bytes);
}

bool take_memory(size_t bytes, Physical &memory) {
  static uint64_t end = 0;  // of the file
  memory.offset = end;
  memory.bytes = bytes;
  memory.owner = current_context();
  if (ftruncate(memory_file(), end + bytes)) return false;
  end += bytes;
  if (!driver.settings.poison || poison_file(memory.offset, bytes)) return true;
  give_back(memory);
  return false;
}

// Memory is given back when its handle is released and nothing shows it any more.
void free_if_unused(std::map<CUmemGenericAllocationHandle, Physical>::iterator memory) {
  const Physical &physical = memory->second;
  if (!physical.released || physical.mappings) return;
  give_back(physical);
  forget_history(kMemory + physical.offset, physical.bytes);
  ++driver.counters.frees;
  driver.counters.bytes_live -= physical.bytes;
  driver.physical.erase(memory);
}

CUresult check_location(const CUmemLocation &location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return refuse("a memory location has type %d; this driver has CU_MEM_LOCATION_TYPE_DEVICE only",
                  int(location.type));
  if (!location.id) return CUDA_SUCCESS;
  message("a memory location names device %d; there is device 0 only", location.id);
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult check_properties(const CUmemAllocationProp *properties) {
  if (!properties) return CUDA_ERROR_INVALID_VALUE;
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return refuse("the allocation type is %d; CUDA has CU_MEM_ALLOCATION_TYPE_PINNED only",
                  int(properties->type));
  if (CUresult error = check_location(properties->location)) return error;
  const auto &flags = properties->allocFlags;
  bool special = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE || flags.compressionType ||
                 flags.gpuDirectRDMACapable || flags.usage;
  if (!special && !properties->win32HandleMetaData) return CUDA_SUCCESS;
  message("allocation properties ask for shareable handles, compression, RDMA or a tile pool");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// ---- addresses ----------------------------------------------------------------------------------

// Shows the mapping's memory, if it may be accessed, and else nothing.
bool show(uintptr_t begin, const Mapping &mapping) {
  bool closed = mapping.access == CU_MEM_ACCESS_FLAGS_PROT_NONE;
  bool writable = mapping.access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  int protection = closed ? PROT_NONE : writable ? PROT_READ | PROT_WRITE : PROT_READ;
  int kind = closed ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void *shown = mmap(pointer(begin), mapping.bytes, protection, kind | MAP_FIXED, closed ? -1 : memory_file(),
                     closed ? 0 : off_t(mapping.memory->second.offset));
  return shown != MAP_FAILED;
}

// The mappings that fill [begin, begin + bytes) without a gap or an overhang; none if it is not so filled.
std::pair<Mappings::iterator, Mappings::iterator> whole_mappings(uintptr_t begin, size_t bytes) {
  auto none = driver.mappings.end();
  auto first = driver.mappings.find(begin), last = first;
  uintptr_t at = begin;
  for (; last != none && last->first == at && at < begin + bytes; ++last) at += last->second.bytes;
  if (first == none || at != begin + bytes) return {none, none};
  return {first, last};
}

CUresult change_access(Mappings::iterator at, CUmemAccess_flags access) {
  Mapping changed = at->second;
  if (changed.access == access) return CUDA_SUCCESS;
  changed.access = access;
  if (!show(at->first, changed)) {
    message("cannot map %zu bytes of memory: too many mappings?", changed.bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  at->second = changed;
  return CUDA_SUCCESS;
}

CUresult check_access(const CUmemAccessDesc *descriptions, size_t count) {
  if (!descriptions || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (CUresult error = check_location(descriptions[i].location)) return error;
    auto flags = descriptions[i].flags;
    bool known = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                 flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!known) return refuse("cuMemSetAccess: access flags %d mean nothing", int(flags));
  }
  return CUDA_SUCCESS;
}

// A use that touches mappings reads them, and uses the memory that they show.
void add_memory(const Use &use, std::vector<Use> &used) {
  auto at = find_range(driver.mappings, use.begin);
  if (at == driver.mappings.end()) at = driver.mappings.lower_bound(use.begin);
  bool mapped = at != driver.mappings.end() && at->first < use.end;
  used.push_back({use.begin, use.end, use.write && !mapped});
  for (; at != driver.mappings.end() && at->first < use.end; ++at) {
    uintptr_t memory = kMemory + at->second.memory->second.offset, shift = at->first - memory;
    uintptr_t begin = std::max(use.begin, at->first) - shift;
    uintptr_t end = std::min(use.end, at->first + at->second.bytes) - shift;
    if (used.back().end == begin && used.back().shift == shift)
      used.back().end = end;  // the next page of memory, too
    else
      used.push_back({begin, end, use.write, shift});
  }
}

}  // namespace

bool allows(const Mapping &mapping, bool write) {
  return mapping.access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
         (!write && mapping.access == CU_MEM_ACCESS_FLAGS_PROT_READ);
}

bool is_mapped(uintptr_t address, size_t bytes, bool write) {
  auto at = find_range(driver.mappings, address);
  if (at == driver.mappings.end()) return false;
  uintptr_t begin = at->first, end = address + std::max<size_t>(bytes, 1);
  for (; at != driver.mappings.end() && at->first == begin && begin < end; ++at) {
    if (!allows(at->second, write)) return false;
    begin += at->second.bytes;
  }
  return begin >= end;
}

Use mapped_run(uintptr_t address, bool write) {
  auto first = find_range(driver.mappings, address), last = std::next(first);
  auto follows = [](Mappings::iterator before, Mappings::iterator after) {
    return before->first + before->second.bytes == after->first && allows(before->second, false) &&
           allows(after->second, false);
  };
  while (first != driver.mappings.begin() && follows(std::prev(first), first)) --first;
  while (last != driver.mappings.end() && follows(std::prev(last), last)) ++last;
  return {first->first, std::prev(last)->first + std::prev(last)->second.bytes, write};
}

std::vector<Use> memory_uses(const std::vector<Use> &uses) {
  if (driver.mappings.empty()) return uses;
  std::vector<Use> used;
  for (const Use &use : uses) add_memory(use, used);
  return used;
}

void report_mapping_leaks(CUcontext owner) {
  if (!driver.settings.leaks) return;
  size_t handles = 0, bytes = 0, reservations = 0;
  for (const auto &[handle, memory] : driver.physical) {
    if (memory.owner != owner) continue;
    ++handles;
    bytes += memory.bytes;
  }
  for (const auto &[begin, reservation] : driver.reservations) reservations += reservation.owner == owner;
  if (handles)
    message("LEAK: %zu handles of cuMemCreate (%zu bytes) are not released, or still mapped, at the end of "
            "their context", handles, bytes);
  if (reservations)
    message("LEAK: %zu address reservations were not freed before the end of their context", reservations);
}

}  // namespace softcuda

using namespace softcuda;

// ---- memory -------------------------------------------------------------------------------------

SOFTCUDA_API cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                           CUmemAllocationGranularity_flags option) {
  SOFTCUDA_ENTER;
  if (!granularity) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = check_properties(properties)) return error;
  bool known = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  *granularity = least_bytes();
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                         const CUmemAllocationProp *properties, unsigned long long flags) {
  static CUmemGenericAllocationHandle last_handle = 0;
  SOFTCUDA_ENTER;
  if (!handle || flags) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = check_properties(properties)) return error;
  if (!bytes || !is_granular(bytes))
    return refuse("cuMemCreate: %zu bytes are no multiple of the granularity, %zu", bytes, least_bytes());
  Counters &counters = driver.counters;
  if (bytes > driver.settings.capacity_bytes - counters.bytes_live) return CUDA_ERROR_OUT_OF_MEMORY;
  Physical memory;
  if (!take_memory(bytes, memory)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = ++last_handle;
  driver.physical[*handle] = memory;
  ++counters.allocations;
  counters.bytes_live += bytes;
  counters.bytes_peak = std::max(counters.bytes_peak, counters.bytes_live);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemRelease(CUmemGenericAllocationHandle handle) {
  SOFTCUDA_ENTER;
  auto memory = driver.physical.find(handle);
  if (memory == driver.physical.end() || memory->second.released)
    return refuse("cuMemRelease: %llu is no handle of live memory", handle);
  memory->second.released = true;
  free_if_unused(memory);
  return CUDA_SUCCESS;
}

// ---- addresses ----------------------------------------------------------------------------------

// The hint where to put it is not followed, as CUDA allows.
SOFTCUDA_API cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                                 unsigned long long flags) {
  SOFTCUDA_ENTER;
  if (!address || flags) return CUDA_ERROR_INVALID_VALUE;
  if (!bytes || !is_granular(bytes) || !is_granular(hint))
    return refuse("cuMemAddressReserve: %zu bytes, or the hint %p, are no multiple of the granularity, %zu",
                  bytes, pointer(hint), least_bytes());
  if (alignment & (alignment - 1))
    return refuse("cuMemAddressReserve: the alignment %zu is no power of two", alignment);
  alignment = std::max(alignment, least_bytes());
  size_t page_bytes = bytes + alignment + 2 * kPage;  // with a guard page at either end
  void *pages = mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  uintptr_t behind_guard = reinterpret_cast<uintptr_t>(pages) + kPage;
  *address = (behind_guard + alignment - 1) & ~uintptr_t(alignment - 1);
  driver.reservations[*address] = {bytes, pages, page_bytes, current_context()};
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  SOFTCUDA_ENTER;
  auto found = driver.reservations.find(address);
  if (found == driver.reservations.end() || found->second.bytes != bytes)
    return refuse("cuMemAddressFree: %zu bytes at %p are no reservation", bytes, pointer(address));
  auto mapping = driver.mappings.lower_bound(address);
  if (mapping != driver.mappings.end() && mapping->first < address + bytes)
    return refuse("cuMemAddressFree: the reservation at %p still has a mapping, at %p", pointer(address),
                  pointer(mapping->first));
  forget_history(address, bytes);
  if (driver.settings.guard)
    driver.freed[address] = {bytes};  // the addresses never come back
  else
    munmap(found->second.pages, found->second.page_bytes);
  driver.reservations.erase(found);
  return CUDA_SUCCESS;
}

// ---- mappings -----------------------------------------------------------------------------------

SOFTCUDA_API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
  SOFTCUDA_ENTER;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (offset) return refuse("cuMemMap: the offset is %zu, and must be 0", offset);
  if (!bytes || !is_granular(bytes) || !is_granular(address))
    return refuse("cuMemMap: %zu bytes, or the address %p, are no multiple of the granularity, %zu", bytes,
                  pointer(address), least_bytes());
  auto memory = driver.physical.find(handle);
  if (memory == driver.physical.end() || memory->second.released)
    return refuse("cuMemMap: %llu is no handle of live memory", handle);
  if (bytes > memory->second.bytes)
    return refuse("cuMemMap: %zu bytes of a handle of %zu", bytes, memory->second.bytes);
  auto reservation = find_range(driver.reservations, address);
  if (reservation == driver.reservations.end() ||
      bytes > reservation->first + reservation->second.bytes - address)
    return refuse("cuMemMap: %zu bytes at %p lie in no reservation", bytes, pointer(address));
  auto next = driver.mappings.lower_bound(address);
  if (find_range(driver.mappings, address) != driver.mappings.end() ||
      (next != driver.mappings.end() && next->first < address + bytes))
    return refuse("cuMemMap: of %zu bytes at %p some are mapped already", bytes, pointer(address));
  driver.mappings[address] = {bytes, memory, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  ++memory->second.mappings;
  return CUDA_SUCCESS;
}

// One mapping, or several side by side. CUDA does not promise to wait for what still uses them. This driver
// waits, so that copies find their memory; that the caller should have waited is the race detector's to say.
SOFTCUDA_API cuMemUnmap(CUdeviceptr address, size_t bytes) {
  SOFTCUDA_ENTER;
  drain_all(lock);
  auto [first, last] = whole_mappings(address, bytes);
  if (first == driver.mappings.end())
    return refuse("cuMemUnmap: %zu bytes at %p are not whole mappings", bytes, pointer(address));
  check_change(address, bytes, "an unmapping");
  while (first != last) {
    if (CUresult error = change_access(first, CU_MEM_ACCESS_FLAGS_PROT_NONE)) return error;
    auto memory = first->second.memory;
    --memory->second.mappings;
    first = driver.mappings.erase(first);
    free_if_unused(memory);
  }
  return CUDA_SUCCESS;
}

// Opens mappings at once; waits, as cuMemUnmap does, when it takes access away.
SOFTCUDA_API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descriptions,
                            size_t count) {
  SOFTCUDA_ENTER;
  if (CUresult error = check_access(descriptions, count)) return error;
  CUmemAccess_flags access = descriptions[count - 1].flags;
  if (access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) drain_all(lock);
  auto [first, last] = whole_mappings(address, bytes);
  if (first == driver.mappings.end())
    return refuse("cuMemSetAccess: %zu bytes at %p are not whole mappings", bytes, pointer(address));
  for (auto at = first; at != last; ++at) {
    if (at->second.access > access) check_change(at->first, at->second.bytes, "a change of access");
    if (CUresult error = change_access(at, access)) return error;
  }
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
  SOFTCUDA_ENTER;
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult error = check_location(*location)) return error;
  auto mapping = find_range(driver.mappings, address);
  if (mapping == driver.mappings.end())
    return refuse("cuMemGetAccess: nothing is mapped at %p", pointer(address));
  *flags = mapping->second.access;
  return CUDA_SUCCESS;
}

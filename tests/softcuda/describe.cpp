// describe.cpp: what an address is, in words, for messages.
#include "driver.h"

namespace softcuda {
namespace {

constexpr size_t kNear = 16 * kPage;

// Relative to the range before the address, or else to the one behind it, if they are near.
template <class Map>
std::string describe_nearby(const Map &ranges, uintptr_t address, const char *what) {
  auto text = [=](size_t distance, const char *where, size_t bytes) {
    return std::to_string(distance) + " bytes " + where + " a " + std::to_string(bytes) + "-byte " + what;
  };
  auto next = ranges.upper_bound(address);
  if (next != ranges.begin()) {
    const auto &[begin, before] = *std::prev(next);
    if (address - begin < before.bytes) return text(address - begin, "into", before.bytes);
    size_t distance = address - (begin + before.bytes);
    if (distance < kNear) return text(distance, "behind the end of", before.bytes);
  }
  if (next != ranges.end() && next->first - address < kNear)
    return text(next->first - address, "before", next->second.bytes);
  return "";
}

std::string describe_mapping(const Mapping &mapping, uintptr_t address) {
  if (allows(mapping, true)) return describe_nearby(driver.mappings, address, "mapping");
  if (allows(mapping, false))
    return describe_nearby(driver.mappings, address, "mapping that may only be read");
  return describe_nearby(driver.mappings, address, "mapping that cuMemSetAccess has not opened");
}

}  // namespace

std::string describe_address(uintptr_t address) {
  auto mapping = find_range(driver.mappings, address);
  if (mapping != driver.mappings.end()) return describe_mapping(mapping->second, address);
  if (find_range(driver.reservations, address) != driver.reservations.end())
    return describe_nearby(driver.reservations, address, "reservation, where nothing is mapped");
  if (find_range(driver.pinned, address) != driver.pinned.end())
    return describe_nearby(driver.pinned, address, "allocation of pinned memory");
  if (find_range(driver.freed, address) != driver.freed.end()) return "within freed memory";
  std::string text = describe_nearby(driver.allocations, address, "allocation");
  if (text.empty()) text = describe_nearby(driver.reservations, address, "reservation");
  return text.empty() ? "near no device allocation" : text;
}

}  // namespace softcuda

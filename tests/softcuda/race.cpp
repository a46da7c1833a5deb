// race.cpp: the race detector. Each operation gets a vector clock when it is enqueued: what its stream, its
// event waits, its graph dependencies and the host's synchronisations put before it. Each range of bytes
// keeps its last writer and the readers since. Two uses, one of them a write, that no clock orders are a
// race: reported when the later one is enqueued, whatever the actual timing.
//
// What an operation uses: copies and fills their exact ranges, on pinned host memory too; a kernel, for each
// pointer parameter, the region declared with softcuda_region that holds the address, or else the whole
// allocation; read for `const T *`, written for `T *`. What host code does with pinned memory is seen if it
// says so with softcuda_touch.
//
// Memory that mappings show may have several addresses, so its history is kept by its place in memory:
// unordered uses of one page by two addresses are a race, and uses of different pages that one address shows
// at different times are none. Who uses a mapping also reads the mapping itself, which unmapping writes. One
// operation that uses the same bytes by two addresses and writes them is reported too, as CUDA makes what is
// written by one address visible at another only when the operation has ended.
#include <algorithm>
#include <cstdio>

#include "driver.h"

namespace softcuda {
namespace {

constexpr uint64_t kReportedRaces = 50;  // the rest is only counted

using History = std::map<uintptr_t, RangeHistory>;

bool happened_before(const AccessRecord &access, const VectorClock &clock) {
  return size_t(access.lane) < clock.size() && access.sequence <= clock[access.lane];
}

// `at`: where the bytes that both use begin.
void report(const char *kind, const Use &use, const AccessRecord &now, const AccessRecord &earlier,
            uintptr_t at) {
  if (++driver.counters.races > kReportedRaces) return;
  char other_address[64] = "";
  if (earlier.shift != now.shift)
    snprintf(other_address, sizeof other_address, ", %zx being the other's %zx", size_t(at + now.shift),
             size_t(at + earlier.shift));
  uintptr_t begin = use.begin + now.shift, end = use.end + now.shift;
  message("RACE %s: %s on %s vs %s on %s, bytes %zx..%zx (%s)%s: no event or synchronisation orders them",
          kind, now.name, driver.lanes[now.lane].c_str(), earlier.name, driver.lanes[earlier.lane].c_str(),
          size_t(begin), size_t(end), describe_address(begin).c_str(), other_address);
}

// Makes `at` a boundary between ranges.
void split(History &history, uintptr_t at) {
  auto next = history.upper_bound(at);
  if (next == history.begin()) return;
  auto range = std::prev(next);
  if (range->first == at || range->second.end <= at) return;
  RangeHistory upper = range->second;
  range->second.end = at;
  history.emplace_hint(next, at, std::move(upper));
}

void check_read(History &history, const Use &use, const AccessRecord &now, const VectorClock &clock) {
  uintptr_t at = use.begin;
  for (auto range = history.lower_bound(at); at < use.end; ++range) {
    if (range == history.end() || range->first > at) {  // a gap: nobody has used it yet
      uintptr_t end = range == history.end() ? use.end : std::min(use.end, range->first);
      range = history.emplace_hint(range, at, RangeHistory{end, false, {}, {}});
    }
    RangeHistory &past = range->second;
    if (past.written && !happened_before(past.writer, clock))
      report("read after write", use, now, past.writer, at);
    auto same_lane = [&](const AccessRecord &reader) { return reader.lane == now.lane; };
    auto mine = std::find_if(past.readers.begin(), past.readers.end(), same_lane);
    if (mine == past.readers.end())
      past.readers.push_back(now);
    else
      *mine = now;
    at = past.end;
  }
}

void check_write(History &history, const Use &use, const AccessRecord &now, const VectorClock &clock) {
  auto first = history.lower_bound(use.begin), last = history.lower_bound(use.end);
  for (auto range = first; range != last; ++range) {
    const RangeHistory &past = range->second;
    if (past.written && !happened_before(past.writer, clock))
      report("write after write", use, now, past.writer, range->first);
    for (const AccessRecord &reader : past.readers)
      if (!happened_before(reader, clock)) report("write after read", use, now, reader, range->first);
  }
  history.erase(first, last);
  history[use.begin] = RangeHistory{use.end, true, now, {}};
}

void check_use(const Use &use, int lane, const VectorClock &clock, const char *name) {
  AccessRecord now{lane, clock[lane], name, use.shift};
  split(driver.history, use.begin);
  split(driver.history, use.end);
  if (use.write)
    check_write(driver.history, use, now, clock);
  else
    check_read(driver.history, use, now, clock);
}

// The bytes that an operation uses twice, by two addresses, and writes. Sorts the uses: those that overlap one
// then follow it.
void check_aliases(std::vector<Use> &uses, const AccessRecord &now) {
  std::sort(uses.begin(), uses.end(), [](const Use &a, const Use &b) { return a.begin < b.begin; });
  for (auto one = uses.begin(); one != uses.end(); ++one)
    for (auto other = one + 1; other != uses.end() && other->begin < one->end; ++other) {
      if (one->shift == other->shift || !(one->write || other->write)) continue;
      if (++driver.counters.races > kReportedRaces) return;
      uintptr_t begin = other->begin, end = std::min(one->end, other->end);
      message("RACE within %s on %s: it writes memory that it uses by two addresses, %zx..%zx and %zx..%zx",
              now.name, driver.lanes[now.lane].c_str(), size_t(begin + one->shift), size_t(end + one->shift),
              size_t(begin + other->shift), size_t(end + other->shift));
    }
}

}  // namespace

void merge(VectorClock &into, const VectorClock &from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t lane = 0; lane < from.size(); ++lane) into[lane] = std::max(into[lane], from[lane]);
}

// `clock` is the operation's own: clock[lane] is its sequence number.
void check_uses(const std::vector<Use> &uses, int lane, const VectorClock &clock, const char *name) {
  std::vector<Use> used = memory_uses(uses);
  check_aliases(used, {lane, clock[lane], name, 0});
  for (const Use &use : used) check_use(use, lane, clock, name);
}

// Each node as if enqueued, ordered by its graph dependencies alone. The nodes of one captured stream follow
// each other, so a lane per captured stream is enough.
void check_graph(ExecutableGraph &executable, VectorClock &clock) {
  const Graph &graph = *executable.graph;
  std::vector<VectorClock> clocks(graph.nodes.size());
  if (clock.size() < driver.lanes.size()) clock.resize(driver.lanes.size());
  std::vector<uint64_t> sequence(clock.begin() + executable.first_lane,
                                 clock.begin() + executable.first_lane + graph.branches);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node &node = graph.nodes[i];
    int lane = executable.first_lane + node.branch;
    clocks[i] = clock;
    for (int before : node.after) merge(clocks[i], clocks[before]);
    clocks[i][lane] = ++sequence[node.branch];
    check_uses(node.uses, lane, clocks[i], node.name);
  }
  // All nodes come before what follows the launch.
  std::copy(sequence.begin(), sequence.end(), clock.begin() + executable.first_lane);
}

void check_change(uintptr_t begin, size_t bytes, const char *name) {
  if (!driver.settings.race) return;
  ++driver.host_clock[kHostLane];
  check_use({begin, begin + bytes, true}, kHostLane, driver.host_clock, name);
}

void forget_history(uintptr_t begin, size_t bytes) {
  auto erase = [=](auto &ranges) {
    ranges.erase(ranges.lower_bound(begin), ranges.lower_bound(begin + bytes));
  };
  split(driver.history, begin);
  split(driver.history, begin + bytes);
  erase(driver.history);
  erase(driver.regions);
}

Use used_range(uintptr_t address, bool write) {
  auto whole = [=](auto range) { return Use{range->first, range->first + range->second.bytes, write}; };
  auto region = find_range(driver.regions, address);
  if (region != driver.regions.end()) return whole(region);
  auto allocation = find_range(driver.allocations, address);
  if (allocation != driver.allocations.end()) return whole(allocation);
  if (is_mapped(address, 1, false)) return mapped_run(address, write);
  return whole(find_range(driver.pinned, address));
}

}  // namespace softcuda

using namespace softcuda;

// Declares that kernels given an address in [address, address + bytes) use these bytes and no others of their
// allocation: a planned buffer within an arena. The latest declaration wins; older regions keep what it
// leaves of them.
SOFTCUDA_EXTRA(void) softcuda_region(CUdeviceptr address, size_t bytes) {
  Lock lock(driver.mutex);
  uintptr_t begin = address, end = address + bytes;
  auto &regions = driver.regions;
  auto at = regions.lower_bound(begin);
  if (at != regions.begin() && std::prev(at)->first + std::prev(at)->second.bytes > begin) --at;
  while (at != regions.end() && at->first < end) {
    uintptr_t old_begin = at->first, old_end = at->first + at->second.bytes;
    at = regions.erase(at);
    if (old_begin < begin) regions[old_begin] = {begin - old_begin};
    if (old_end > end) regions[end] = {old_end - end};
  }
  if (bytes) regions[begin] = {bytes};
}

// The host reads or writes pinned memory itself.
SOFTCUDA_EXTRA(void) softcuda_touch(const void *pointer, size_t bytes, int write) {
  Lock lock(driver.mutex);
  if (!driver.settings.race || !bytes) return;
  ++driver.host_clock[kHostLane];
  auto begin = reinterpret_cast<uintptr_t>(pointer);
  check_uses({{begin, begin + bytes, write != 0}}, kHostLane, driver.host_clock,
             write ? "a write" : "a read");
}

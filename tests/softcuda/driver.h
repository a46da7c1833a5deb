// driver.h: what the files of the driver share. One process-wide Driver behind one mutex; streams, events,
// graphs, modules; and what each file offers the others.
//
// It compiles against the real cuda.h, whose macros turn the unversioned names that the .cpp files define
// into the versioned symbols (cuCtxCreate_v4, cuMemAlloc_v2 ...) that callers link to.
#pragma once
#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "abi.h"

#define SOFTCUDA_API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI
#define SOFTCUDA_EXTRA(type) extern "C" __attribute__((visibility("default"))) type

namespace softcuda {

using Lock = std::unique_lock<std::mutex>;
using Stream = CUstream_st;
using StreamPtr = std::shared_ptr<Stream>;

// ---- settings.cpp: the environment, read once by cuInit -----------------------------------------

enum class Schedule { threads, eager, lazy, random };

struct Settings {
  size_t capacity_bytes = size_t(4) << 30;
  Schedule schedule = Schedule::threads;
  Order order = Order::ascending;
  uint64_t seed = 1;
  unsigned jitter_us = 0;  // the longest random delay before an operation
  int workers = 1;
  int compute_capability = 90;
  size_t align_bytes = 256;  // of allocations, so also the slack between their end and the guard page
  size_t page_bytes = size_t(2) << 20;  // the granularity of virtual memory management, as on GPUs
  bool poison = true, guard = true, race = false, drop = false, leaks = false;
};

// Throws std::invalid_argument with one sentence for a value it cannot use.
Settings read_settings();

// ---- race.cpp: who used which bytes, and what ordered them --------------------------------------

// clock[lane] = n: everything up to operation n of that lane happened before. A lane is a sequence of
// operations that are ordered among themselves: the host, a stream, a branch of an executable graph.
using VectorClock = std::vector<uint64_t>;
constexpr int kHostLane = 0;

struct Use {
  uintptr_t begin, end;
  bool write;
  uintptr_t shift = 0;  // what its addresses are more than begin and end, if these name memory
};

struct Graph;
struct ExecutableGraph;

void merge(VectorClock &into, const VectorClock &from);
void check_uses(const std::vector<Use> &uses, int lane, const VectorClock &clock, const char *name);
void check_graph(ExecutableGraph &graph, VectorClock &clock);  // extends clock by the graph's operations
void check_change(uintptr_t begin, size_t bytes, const char *name);  // of mappings, by the host
void forget_history(uintptr_t begin, size_t bytes);
Use used_range(uintptr_t live, bool write);  // the region, or else the allocation or mappings, around it

// ---- stream.cpp: operations, their order, and who runs them -------------------------------------

struct Work {
  const char *name;  // lives for ever: a literal, or from intern()
  std::function<CUresult()> run;
  std::vector<Use> uses;
  std::shared_ptr<ExecutableGraph> graph;  // of a graph launch: checked node by node
};

struct Dependency {
  StreamPtr stream;
  uint64_t sequence;
};

struct Task {
  std::function<CUresult()> run;
  std::vector<Dependency> after;
};

// Queues `work` behind the stream's own work, `after`, and what the legacy NULL stream orders; or, on a
// capturing stream, adds a node to the graph. `clock`: what else happened before it.
CUresult enqueue(Lock &lock, const StreamPtr &stream, Work work, std::vector<Dependency> after = {},
                 const VectorClock *clock = nullptr);
// Waits, and notes for the race detector that what ran happened before what the host does next.
CUresult synchronize(Lock &lock, const StreamPtr &stream);
CUresult synchronize_all(Lock &lock);
void drain_all(Lock &lock);  // only waits
StreamPtr make_stream(bool blocking);
StreamPtr find_stream(CUstream handle);  // nullptr, and a message, if there is none

// ---- graph.cpp: capture -------------------------------------------------------------------------

struct Node {
  const char *name;
  std::function<CUresult()> run;
  std::vector<Use> uses;
  std::vector<int> after;  // nodes
  int branch;              // which of the captured streams
};

struct Graph {
  std::vector<Node> nodes;
  int branches = 0;
};

struct ExecutableGraph {
  std::shared_ptr<const Graph> graph;
  int first_lane;     // of `branches` lanes: launches of one executable graph never overlap
  VectorClock clock;  // of its last launch
  Dependency last_launch{};
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Stream *origin;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  std::map<Stream *, int> branches;
  bool invalid = false;
};

CUresult capture_node(Stream &stream, Work work);
CUresult capture_fork(Stream &stream, const CUevent_st &event);  // a wait for an event recorded in a capture
void leave_capture(Stream &stream);
bool refuse_while_capturing();  // a call that no capture can hold; spoils the capture
bool blocking_stream_captures();

// ---- memory.cpp ---------------------------------------------------------------------------------

constexpr size_t kPage = 4096;
constexpr int kPoison = 0xFF;  // NaN in float32, float16 and bfloat16

struct Block {  // of mapped pages, with the bytes that were asked for at their end
  char *pages = nullptr;
  size_t page_bytes = 0, guard_bytes = 0;
  char *begin = nullptr;
  size_t bytes = 0;
};

struct Allocation {
  Block block;  // without pages: a module's global variable
  size_t bytes;
  CUcontext owner;
};

template <class Map>
typename Map::iterator find_range(Map &ranges, uintptr_t address);  // ranges: begin -> something with .bytes
void free_all(CUcontext owner);                                     // at the end of a context

// ---- mapping.cpp: virtual memory management -----------------------------------------------------

struct Range {
  size_t bytes;
};

struct Physical {  // the memory of one handle: a part of the file that holds all of it
  uint64_t offset;
  size_t bytes;
  CUcontext owner;
  size_t mappings = 0;    // that show it
  bool released = false;  // its handle: the memory stays while it is mapped
};

struct Mapping {
  size_t bytes;
  std::map<CUmemGenericAllocationHandle, Physical>::iterator memory;
  CUmemAccess_flags access;
};

struct Reservation {
  size_t bytes;
  void *pages;  // with what alignment and guards need around it
  size_t page_bytes;
  CUcontext owner;
};

bool allows(const Mapping &mapping, bool write);  // reads or writes
bool is_mapped(uintptr_t address, size_t bytes, bool write);  // wholly, and open to reads or writes
Use mapped_run(uintptr_t mapped, bool write);                 // the open mappings side by side around it
std::vector<Use> memory_uses(const std::vector<Use> &uses);   // of memory, by uses of addresses
void report_mapping_leaks(CUcontext owner);                   // at the end of a context, if asked for

// ---- describe.cpp -------------------------------------------------------------------------------

std::string describe_address(uintptr_t address);  // relative to what is near it

// ---- the rest -----------------------------------------------------------------------------------

// Counts since cuInit; softcuda_counter(name) reads them by these names.
struct Counters {
  uint64_t allocations = 0, frees = 0, bytes_live = 0, bytes_peak = 0;
  uint64_t pinned_allocations = 0, pinned_bytes_live = 0;
  uint64_t launches = 0, dropped_launches = 0, copies = 0, memsets = 0, graph_launches = 0;
  uint64_t bytes_to_device = 0, bytes_to_host = 0;
  uint64_t races = 0, overruns = 0;
};

struct AccessRecord {
  int lane;
  uint64_t sequence;
  const char *name;
  uintptr_t shift;  // see Use
};

struct RangeHistory {  // of the bytes up to `end`
  uintptr_t end;
  bool written = false;
  AccessRecord writer{};
  std::vector<AccessRecord> readers;  // since then; one per lane
};

struct Driver {
  std::mutex mutex;
  std::condition_variable changed;  // a task finished, was queued, or a stream stops
  bool initialised = false;
  Settings settings;
  Counters counters;
  CUresult dead = CUDA_SUCCESS;  // sticky: after a fault every call returns it, as on a GPU
  uint64_t random_state = 1;

  std::vector<StreamPtr> streams;
  std::unordered_map<Stream *, StreamPtr> stream_handles;
  StreamPtr null_stream;
  std::unordered_set<CUevent_st *> events;
  std::vector<std::shared_ptr<Capture>> captures;

  std::map<uintptr_t, Allocation> allocations;
  std::map<uintptr_t, Allocation> pinned;
  std::map<uintptr_t, Range> freed;       // quarantined: a fault there is a use after free
  std::multimap<size_t, Block> reusable;  // without guard pages only, by size

  std::map<CUmemGenericAllocationHandle, Physical> physical;
  std::map<uintptr_t, Reservation> reservations;
  std::map<uintptr_t, Mapping> mappings;

  VectorClock host_clock{0};
  std::vector<std::string> lanes{"the host"};
  std::map<uintptr_t, RangeHistory> history;
  std::map<uintptr_t, Range> regions;

  std::set<CUcontext> contexts;
  CUcontext primary = nullptr;
};

extern Driver &driver;

uint64_t random_number();
const char *intern(const std::string &text);  // the same text for ever
void message(const char *format, ...) __attribute__((format(printf, 1, 2)));
void install_fault_handlers();  // fault.cpp
CUcontext current_context();

// Refuses a call before cuInit, without a context, or after a fault. With the lock held.
CUresult check_callable();

// The first line of nearly every API function.
#define SOFTCUDA_ENTER                         \
  softcuda::Lock lock(softcuda::driver.mutex); \
  if (CUresult refused = softcuda::check_callable()) return refused

template <class Map>
typename Map::iterator find_range(Map &ranges, uintptr_t address) {
  auto at = ranges.upper_bound(address);
  if (at == ranges.begin()) return ranges.end();
  --at;
  return address - at->first < at->second.bytes ? at : ranges.end();
}

}  // namespace softcuda

// The handles of cuda.h are pointers to these.

struct CUstream_st {
  int lane;
  bool blocking;  // ordered with the legacy NULL stream
  std::deque<softcuda::Task> queue;
  uint64_t enqueued = 0, done = 0;  // sequence numbers
  bool busy = false;                // its front task runs now
  bool stopping = false;
  softcuda::VectorClock clock;  // of its newest operation
  std::thread worker;           // Schedule::threads only
  std::shared_ptr<softcuda::Capture> capture;
  std::vector<int> capture_tail;  // the nodes that its next captured node follows
};

struct CUevent_st {
  unsigned flags;
  softcuda::StreamPtr stream;  // null: never recorded
  uint64_t sequence = 0;
  softcuda::VectorClock clock;
  std::shared_ptr<double> milliseconds;        // when it happened
  std::shared_ptr<softcuda::Capture> capture;  // recorded in a capture
  std::vector<int> capture_nodes;
};

struct CUgraph_st {
  std::shared_ptr<const softcuda::Graph> graph;
};

struct CUgraphExec_st {
  std::shared_ptr<softcuda::ExecutableGraph> executable;
};

struct CUctx_st {
  CUdevice device;
  unsigned flags;
  int references;
};

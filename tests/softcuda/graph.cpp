// graph.cpp: stream capture and graph launch. A capture turns what is called on a stream, and on the streams
// that events fork from it, into nodes; a launch runs the nodes as one task of one stream.
//
// The nodes run one after another: in the order of capture, or with SOFTCUDA_SCHED=lazy the one captured last
// first, or with =random any that is ready, always after what they depend on. That the dependencies suffice
// is what the race detector proves (check_graph).
#include <algorithm>

#include "driver.h"

namespace softcuda {
namespace {

CUresult invalidate(Capture &capture, CUresult error, const char *text) {
  capture.invalid = true;
  message("%s", text);
  return error;
}

int branch_of(Capture &capture, Stream &stream) {
  auto [at, is_new] = capture.branches.emplace(&stream, capture.graph->branches);
  if (is_new) ++capture.graph->branches;
  return at->second;
}

// Every node must come before what the origin stream would do next.
bool joined(const Graph &graph, std::vector<int> tail) {
  std::vector<char> reached(graph.nodes.size());
  size_t count = 0;
  while (!tail.empty()) {
    int node = tail.back();
    tail.pop_back();
    if (reached[node]) continue;
    reached[node] = 1;
    ++count;
    const std::vector<int> &after = graph.nodes[node].after;
    tail.insert(tail.end(), after.begin(), after.end());
  }
  return count == graph.nodes.size();
}

// The nodes whose dependencies have run, the one that runs next first.
class ReadyNodes {
 public:
  ReadyNodes(const Graph &graph, Schedule schedule, uint64_t seed)
      : schedule_(schedule), seed_(seed), missing_(graph.nodes.size()), followers_(graph.nodes.size()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      missing_[i] = graph.nodes[i].after.size();
      for (int before : graph.nodes[i].after) followers_[before].push_back(int(i));
      if (!missing_[i]) add(int(i));
    }
  }

  bool empty() const { return ready_.empty(); }

  int take() {
    int node = ready_.begin()->second;
    ready_.erase(ready_.begin());
    for (int follower : followers_[node])
      if (!--missing_[follower]) add(follower);
    return node;
  }

 private:
  void add(int node) {
    uint64_t rank = node;
    if (schedule_ == Schedule::lazy) rank = followers_.size() - node;
    if (schedule_ == Schedule::random) rank = seed_ = seed_ * 6364136223846793005ull + 1442695040888963407ull;
    ready_.emplace(rank, node);
  }

  Schedule schedule_;
  uint64_t seed_;
  std::vector<size_t> missing_;  // dependencies that have not run
  std::vector<std::vector<int>> followers_;
  std::set<std::pair<uint64_t, int>> ready_;
};

CUresult run_graph(const Graph &graph, Schedule schedule, uint64_t seed) {
  ReadyNodes ready(graph, schedule, seed);
  while (!ready.empty())
    if (CUresult error = graph.nodes[ready.take()].run()) return error;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult capture_node(Stream &stream, Work work) {
  Capture &capture = *stream.capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (work.graph)
    return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                      "a graph launch cannot be captured here");
  Graph &graph = *capture.graph;
  graph.nodes.push_back({work.name, std::move(work.run), std::move(work.uses), stream.capture_tail,
                         branch_of(capture, stream)});
  stream.capture_tail = {int(graph.nodes.size()) - 1};
  return CUDA_SUCCESS;
}

CUresult capture_fork(Stream &stream, const CUevent_st &event) {
  if (&stream == driver.null_stream.get()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (std::find(driver.captures.begin(), driver.captures.end(), event.capture) == driver.captures.end()) {
    message("a stream waits for an event of a capture that has ended");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream.capture && stream.capture != event.capture)
    return invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE,
                      "an event wait would merge two captures");
  stream.capture = event.capture;
  std::vector<int> &tail = stream.capture_tail;
  for (int node : event.capture_nodes)
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  return CUDA_SUCCESS;
}

void leave_capture(Stream &stream) {
  if (stream.capture) stream.capture->invalid = true;
  stream.capture = nullptr;
  stream.capture_tail.clear();
}

bool refuse_while_capturing() {
  bool refused = false;
  for (const auto &capture : driver.captures) {
    bool here = capture->thread == std::this_thread::get_id();
    if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !here) continue;
    capture->invalid = refused = true;
  }
  if (refused)
    message("allocation, free, synchronous copy or context synchronisation while a stream captures");
  return refused;
}

bool blocking_stream_captures() {
  auto captures = [](const StreamPtr &stream) { return stream->blocking && stream->capture; };
  return std::any_of(driver.streams.begin(), driver.streams.end(), captures);
}

}  // namespace softcuda

using namespace softcuda;

SOFTCUDA_API cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
  SOFTCUDA_ENTER;
  StreamPtr stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream == driver.null_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  driver.captures.push_back(capture);
  stream->capture = capture;
  stream->capture_tail.clear();
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuStreamEndCapture(CUstream handle, CUgraph *graph) {
  SOFTCUDA_ENTER;
  StreamPtr stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *graph = nullptr;
  auto capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get())
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began on another stream");
  bool complete = joined(*capture->graph, stream->capture_tail);
  driver.captures.erase(std::find(driver.captures.begin(), driver.captures.end(), capture));
  for (const StreamPtr &other : driver.streams) {
    if (other->capture != capture) continue;
    other->capture = nullptr;
    other->capture_tail.clear();
  }
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!complete) {
    message(
        "a stream forked from the capture was not joined again: its origin waits for no event behind its "
        "work");
    return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  *graph = new CUgraph_st{capture->graph};
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  SOFTCUDA_ENTER;
  StreamPtr stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, unsigned long long) {
  SOFTCUDA_ENTER;
  static int count = 0;
  auto made = std::make_shared<ExecutableGraph>();
  made->graph = graph->graph;
  made->first_lane = int(driver.lanes.size());
  ++count;
  for (int i = 0; i < graph->graph->branches; ++i)
    driver.lanes.push_back("branch " + std::to_string(i) + " of graph " + std::to_string(count));
  *executable = new CUgraphExec_st{made};
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuGraphLaunch(CUgraphExec executable, CUstream handle) {
  SOFTCUDA_ENTER;
  StreamPtr stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  ++driver.counters.graph_launches;
  auto what = executable->executable;  // outlives cuGraphExecDestroy while it is queued
  auto run = [what, schedule = driver.settings.schedule, seed = random_number()] {
    return run_graph(*what->graph, schedule, seed);
  };
  std::vector<Dependency> after;
  if (what->last_launch.stream) after.push_back(what->last_launch);
  VectorClock clock = what->clock;
  if (CUresult error = enqueue(lock, stream, {"graph launch", run, {}, what}, after, &clock)) return error;
  what->last_launch = {stream, stream->enqueued};
  what->clock = stream->clock;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }

SOFTCUDA_API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  if (nodes) return CUDA_ERROR_NOT_SUPPORTED;  // only the number
  *count = graph->graph->nodes.size();
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuGraphExecDestroy(CUgraphExec executable) {
  delete executable;
  return CUDA_SUCCESS;
}

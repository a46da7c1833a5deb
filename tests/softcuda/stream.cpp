// stream.cpp: streams and events, and who runs what is queued on them (SOFTCUDA_SCHED).
//
//   threads  each stream is an OS thread that runs its tasks as soon as what they wait for is done
//   eager    a call runs its task before it returns: the friendliest order there is
//   lazy     nothing runs until somebody waits, and then only what that wait needs: the least friendly,
//   deterministic random   nothing runs until somebody waits; then ready tasks of any stream, picked by seed
//
// A task is done when its stream's `done` has reached its sequence number. A task's dependencies were
// enqueued before it, so there is always something ready to run.
#include <chrono>
#include <unistd.h>

#include "driver.h"

namespace softcuda {
namespace {

double milliseconds_now() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

const Dependency *first_unmet(const Task &task) {
  for (const Dependency &dependency : task.after)
    if (dependency.stream->done < dependency.sequence) return &dependency;
  return nullptr;
}

bool ready(const Stream &stream) {
  return !stream.busy && !stream.queue.empty() && !first_unmet(stream.queue.front());
}

// After a fault what was queued is skipped: the context is dead, but whoever waits must come back.
void run_front(Lock &lock, Stream &stream) {
  Task task = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.busy = true;
  unsigned delay_us = driver.settings.jitter_us ? unsigned(random_number() % driver.settings.jitter_us) : 0;
  bool skip = driver.dead != CUDA_SUCCESS;
  lock.unlock();
  if (delay_us) usleep(delay_us);
  CUresult result = skip ? CUDA_SUCCESS : task.run();
  task = Task{};  // what it holds is released outside the lock
  lock.lock();
  if (result != CUDA_SUCCESS && driver.dead == CUDA_SUCCESS) driver.dead = result;
  stream.busy = false;
  ++stream.done;
  driver.changed.notify_all();
}

void work_loop(Stream *stream) {
  Lock lock(driver.mutex);
  for (;;) {
    driver.changed.wait(lock, [=] { return ready(*stream) || (stream->stopping && stream->queue.empty()); });
    if (stream->queue.empty()) return;
    run_front(lock, *stream);
  }
}

void run_needed(Lock &lock, const Dependency &goal) {
  std::vector<Dependency> goals{goal};  // a stack: the top is what the one below waits for
  while (!goals.empty()) {
    Dependency top = goals.back();
    if (top.stream->done >= top.sequence)
      goals.pop_back();
    else if (top.stream->busy)
      driver.changed.wait(lock);  // another host thread runs it
    else if (const Dependency *unmet = first_unmet(top.stream->queue.front()))
      goals.push_back(*unmet);
    else
      run_front(lock, *top.stream);
  }
}

void run_random(Lock &lock, const Dependency &goal) {
  while (goal.stream->done < goal.sequence) {
    std::vector<Stream *> candidates;
    for (const StreamPtr &stream : driver.streams)
      if (ready(*stream)) candidates.push_back(stream.get());
    if (candidates.empty())
      driver.changed.wait(lock);  // another host thread runs what comes first
    else
      run_front(lock, *candidates[random_number() % candidates.size()]);
  }
}

void wait_until(Lock &lock, const Dependency &goal) {
  switch (driver.settings.schedule) {
    case Schedule::threads:
      driver.changed.wait(lock, [&] { return goal.stream->done >= goal.sequence; });
      break;
    case Schedule::random: run_random(lock, goal); break;
    case Schedule::eager:
    case Schedule::lazy: run_needed(lock, goal);
  }
}

// Where nothing runs by itself a caller that polls must still come to an end: each look runs one task.
void poll(Lock &lock, const StreamPtr &stream) {
  if (driver.settings.schedule != Schedule::threads) wait_until(lock, {stream, stream->done + 1});
}

// The legacy NULL stream comes after all work of blocking streams, and before their later work.
void order_with_null_stream(const StreamPtr &stream, std::vector<Dependency> &after, VectorClock &clock) {
  if (!stream->blocking) return;
  auto follow = [&](const StreamPtr &other) {
    if (other->enqueued > other->done) after.push_back({other, other->enqueued});
    if (driver.settings.race) merge(clock, other->clock);
  };
  if (stream != driver.null_stream) return follow(driver.null_stream);
  for (const StreamPtr &other : driver.streams)
    if (other != stream && other->blocking) follow(other);
}

CUresult refuse_null_stream_while_capturing(const StreamPtr &stream) {
  if (stream != driver.null_stream || !blocking_stream_captures()) return CUDA_SUCCESS;
  message("the NULL stream is used while a blocking stream captures");
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

}  // namespace

StreamPtr make_stream(bool blocking) {
  auto stream = std::make_shared<Stream>();
  stream->blocking = blocking;
  stream->lane = int(driver.lanes.size());
  driver.lanes.push_back(driver.null_stream ? "stream " + std::to_string(stream->lane - 1)
                                            : "the NULL stream");
  driver.streams.push_back(stream);
  driver.stream_handles[stream.get()] = stream;
  if (driver.settings.schedule == Schedule::threads) stream->worker = std::thread(work_loop, stream.get());
  return stream;
}

StreamPtr find_stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return driver.null_stream;
  auto found = driver.stream_handles.find(handle);
  if (found != driver.stream_handles.end()) return found->second;
  message("stream handle %p names no live stream", static_cast<void *>(handle));
  return nullptr;
}

CUresult enqueue(Lock &lock, const StreamPtr &stream, Work work, std::vector<Dependency> after,
                 const VectorClock *clock) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return capture_node(*stream, std::move(work));
  if (CUresult refused = refuse_null_stream_while_capturing(stream)) return refused;
  VectorClock &now = stream->clock;
  order_with_null_stream(stream, after, now);
  ++stream->enqueued;
  if (driver.settings.race) {
    merge(now, driver.host_clock);
    if (clock) merge(now, *clock);
    if (now.size() <= size_t(stream->lane)) now.resize(stream->lane + 1);
    now[stream->lane] = stream->enqueued;
    if (work.graph)
      check_graph(*work.graph, now);
    else
      check_uses(work.uses, stream->lane, now, work.name);
  }
  stream->queue.push_back({std::move(work.run), std::move(after)});
  if (driver.settings.schedule == Schedule::threads) driver.changed.notify_all();
  if (driver.settings.schedule == Schedule::eager) wait_until(lock, {stream, stream->enqueued});
  return CUDA_SUCCESS;
}

CUresult synchronize(Lock &lock, const StreamPtr &stream) {
  VectorClock clock = stream->clock;  // as of now: another host thread may enqueue more during the wait
  wait_until(lock, {stream, stream->enqueued});
  merge(driver.host_clock, clock);
  return driver.dead;
}

CUresult synchronize_all(Lock &lock) {
  auto streams = driver.streams;
  for (const StreamPtr &stream : streams) synchronize(lock, stream);
  return driver.dead;
}

void drain_all(Lock &lock) {
  auto streams = driver.streams;
  for (const StreamPtr &stream : streams) wait_until(lock, {stream, stream->enqueued});
}

}  // namespace softcuda

using namespace softcuda;

#define SOFTCUDA_FIND_STREAM(name, handle) \
  StreamPtr name = find_stream(handle);    \
  if (!name) return CUDA_ERROR_INVALID_HANDLE

#define SOFTCUDA_REQUIRE_EVENT(event)                                           \
  if (!driver.events.count(event)) {                                            \
    message("event handle %p names no live event", static_cast<void *>(event)); \
    return CUDA_ERROR_INVALID_HANDLE;                                           \
  }

// ---- streams ------------------------------------------------------------------------------------

SOFTCUDA_API cuStreamCreate(CUstream *handle, unsigned flags) {
  SOFTCUDA_ENTER;
  *handle = make_stream(!(flags & CU_STREAM_NON_BLOCKING)).get();
  return CUDA_SUCCESS;
}

// Waits for the stream's work, which CUDA does not: it only says that the work will be done. So the race
// detector does not take it for a synchronisation.
SOFTCUDA_API cuStreamDestroy(CUstream handle) {
  Lock lock(driver.mutex);
  SOFTCUDA_FIND_STREAM(stream, handle);
  if (stream == driver.null_stream) return CUDA_ERROR_INVALID_HANDLE;
  leave_capture(*stream);
  wait_until(lock, {stream, stream->enqueued});
  stream->stopping = true;
  driver.changed.notify_all();
  driver.stream_handles.erase(stream.get());
  std::vector<StreamPtr> others;
  for (const StreamPtr &other : driver.streams)
    if (other != stream) others.push_back(other);
  driver.streams = std::move(others);
  lock.unlock();
  if (stream->worker.joinable()) stream->worker.join();
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuStreamSynchronize(CUstream handle) {
  SOFTCUDA_ENTER;
  SOFTCUDA_FIND_STREAM(stream, handle);
  if (stream->capture) {
    stream->capture->invalid = true;
    message("a capturing stream cannot be synchronised");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return synchronize(lock, stream);
}

SOFTCUDA_API cuStreamQuery(CUstream handle) {
  SOFTCUDA_ENTER;
  SOFTCUDA_FIND_STREAM(stream, handle);
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->done >= stream->enqueued) {
    merge(driver.host_clock, stream->clock);
    return CUDA_SUCCESS;
  }
  poll(lock, stream);
  return CUDA_ERROR_NOT_READY;
}

SOFTCUDA_API cuStreamGetFlags(CUstream handle, unsigned *flags) {
  SOFTCUDA_ENTER;
  SOFTCUDA_FIND_STREAM(stream, handle);
  *flags = stream->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
  SOFTCUDA_ENTER;
  auto run = [=] {
    function(data);
    return CUDA_SUCCESS;
  };
  return enqueue(lock, find_stream(handle), {"host function", run, {}, nullptr});
}

// ---- events -------------------------------------------------------------------------------------

SOFTCUDA_API cuEventCreate(CUevent *event, unsigned flags) {
  SOFTCUDA_ENTER;
  *event = new CUevent_st{};
  (*event)->flags = flags;
  driver.events.insert(*event);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuEventDestroy(CUevent event) {
  Lock lock(driver.mutex);
  SOFTCUDA_REQUIRE_EVENT(event);
  driver.events.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuEventRecord(CUevent event, CUstream handle) {
  SOFTCUDA_ENTER;
  SOFTCUDA_REQUIRE_EVENT(event);
  SOFTCUDA_FIND_STREAM(stream, handle);
  if (stream->capture) {
    event->capture = stream->capture;
    event->capture_nodes = stream->capture_tail;
    event->stream = nullptr;
    return CUDA_SUCCESS;
  }
  auto when = std::make_shared<double>(0.);
  auto run = [when] {
    *when = milliseconds_now();
    return CUDA_SUCCESS;
  };
  if (CUresult error = enqueue(lock, stream, {"event record", run, {}, nullptr})) return error;
  event->capture = nullptr;
  event->stream = stream;
  event->sequence = stream->enqueued;
  event->clock = stream->clock;
  event->milliseconds = when;
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned) {
  return cuEventRecord(event, handle);
}

// An event that was never recorded, and one whose work is done, both count as complete.
SOFTCUDA_API cuEventQuery(CUevent event) {
  SOFTCUDA_ENTER;
  SOFTCUDA_REQUIRE_EVENT(event);
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event->stream || event->stream->done >= event->sequence) {
    merge(driver.host_clock, event->clock);
    return CUDA_SUCCESS;
  }
  poll(lock, event->stream);
  return CUDA_ERROR_NOT_READY;
}

SOFTCUDA_API cuEventSynchronize(CUevent event) {
  SOFTCUDA_ENTER;
  SOFTCUDA_REQUIRE_EVENT(event);
  if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event->stream) return CUDA_SUCCESS;
  VectorClock clock = event->clock;
  wait_until(lock, {event->stream, event->sequence});
  merge(driver.host_clock, clock);
  return driver.dead;
}

SOFTCUDA_API cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  SOFTCUDA_ENTER;
  SOFTCUDA_REQUIRE_EVENT(start);
  SOFTCUDA_REQUIRE_EVENT(end);
  bool timed = !((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING);
  if (!start->stream || !end->stream || !timed) return CUDA_ERROR_INVALID_HANDLE;
  bool both_done = start->stream->done >= start->sequence && end->stream->done >= end->sequence;
  if (!both_done) return CUDA_ERROR_NOT_READY;
  *milliseconds = float(*end->milliseconds - *start->milliseconds);
  return CUDA_SUCCESS;
}

SOFTCUDA_API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  SOFTCUDA_ENTER;
  SOFTCUDA_REQUIRE_EVENT(event);
  SOFTCUDA_FIND_STREAM(stream, handle);
  if (event->capture) return capture_fork(*stream, *event);
  if (stream->capture) {
    message("a capturing stream waits for an event that was recorded outside its capture");
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (!event->stream) return CUDA_SUCCESS;
  auto nothing = [] { return CUDA_SUCCESS; };
  VectorClock clock = event->clock;
  return enqueue(lock, stream, {"event wait", nothing, {}, nullptr}, {{event->stream, event->sequence}},
                 &clock);
}

// The library's threads. A kernel cuts its work into tasks that depend on sizes alone, never on the number of threads,
// and any thread may do any of them: results are the same whoever does what.
#pragma once
#include <cstdint>

// Do task(context, 0) ... task(context, count - 1), each once, in any order, on this thread and those of the pool. Each
// thread begins with a part of the tasks that is its own from job to job, and goes through them in order, or `backwards`.
void run_tasks(int64_t count, void (*task)(const void *context, int64_t index), const void *context,
               bool backwards = false);

// run_tasks with a lambda.
template <class Body> void parallel(int64_t count, const Body &body, bool backwards = false) {
    run_tasks(count, [](const void *context, int64_t index) { (*static_cast<const Body *>(context))(index); }, &body,
              backwards);
}

// Threads that tasks may run on: for choosing how finely to cut work whose results do not depend on the cuts.
int pool_threads();

// This thread's scratch of SCRATCH_FLOATS, aligned to 64 bytes; what it holds does not outlive a task.
constexpr int64_t SCRATCH_FLOATS = 192 << 10;
float *thread_scratch();

// Stack of the pool's threads. A product of matrices takes 272 KiB of it; the rest is for what debuggers and sanitizers
// add. A thread sanitizer keeps what it knows of a thread there, which is most of a MiB.
#if defined(__SANITIZE_THREAD__)
constexpr int64_t STACK_BYTES = 4 << 20;
#else
constexpr int64_t STACK_BYTES = 1 << 20;
#endif

// A pool of persistent threads. Of a job's tasks each thread has a contiguous share, always the same part of the whole, so
// that in a chain of jobs over the same tensors a thread finds in its core's caches what it has written. A thread that is
// through with its share goes on in the fullest one, so one that the system has taken off its core holds up only the task
// that it is at. Idle threads spin for some microseconds and then sleep; the caller wakes them, starts on the tasks at
// once, and waits for nobody who has claimed none.
//
// Each share is one word: the job's number in the upper half, how many of the share's tasks are unclaimed in the lower. A
// claim is a compare-and-swap of the whole word, and until its task is done the job is unfinished: only in between may a
// thread read what the job is. Whatever was read before a claim may be of the next job already, which its caller writes
// before it changes the words. One job runs at a time; a second caller meanwhile does its tasks alone.
#include "pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <cstdlib>
#include <new>

#include "clock.h"
#include "kernel.h"

namespace {

constexpr double SPIN_SECONDS = 20e-6;
constexpr int MAX_THREADS = 1024;
constexpr uint64_t TASK_BITS = 32, TASK_MASK = (uint64_t{1} << TASK_BITS) - 1;
constexpr size_t LINE_BYTES = 64;  // that one core alone should write to

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// The core that this thread runs on; the same number for no two threads where that is not to be had.
int this_core() {
#if defined(__linux__)
    return sched_getcpu();
#else
    static std::atomic<int> threads{0};
    static thread_local const int number = threads.fetch_add(1);
    return number;
#endif
}

// Spin until the condition holds or the time is over; whether it holds. Not at all for what a thread would do that was
// last seen on this core: with other cores taken, that one waits for this one to sleep.
template <class Condition> bool spin(const std::atomic<int> &other_core, const Condition &holds) {
    if (other_core.load() == this_core()) return holds();
    const double begin = seconds_now();
    do {
        for (int i = 0; i < 64; i++) {
            if (holds()) return true;
            pause();
        }
    } while (seconds_now() - begin < SPIN_SECONDS);
    return holds();
}

struct Job {
    int64_t count;
    void (*task)(const void *, int64_t);
    const void *context;
    bool backwards;
    int shares;

    // The first task of a share; the caller's share, which is begun first, is none of the smaller ones.
    int64_t first(int share) const { return (count * share + shares - 1) / shares; }
    int64_t tasks(int share) const { return first(share + 1) - first(share); }
    // Do the next task of a share of which so many, this one among them, were unclaimed.
    void run(int share, int64_t unclaimed) const {
        task(context, backwards ? first(share) + unclaimed - 1 : first(share + 1) - unclaimed);
    }
};

struct alignas(LINE_BYTES) Share {
    std::atomic<uint64_t> word{0};

    // How many tasks of this job are unclaimed.
    int64_t unclaimed(uint32_t job) const {
        const uint64_t seen = word.load();
        return seen >> TASK_BITS == job ? static_cast<int64_t>(seen & TASK_MASK) : 0;
    }
    // Claim one; how many there were, 0 for none.
    int64_t claim(uint32_t job) {
        uint64_t seen = word.load();
        while (seen >> TASK_BITS == job && (seen & TASK_MASK) > 0)
            if (word.compare_exchange_weak(seen, seen - 1)) return static_cast<int64_t>(seen & TASK_MASK);
        return 0;
    }
};

struct Pool {
    Share shares[MAX_THREADS];
    // Read by those alone who have claimed a task of the job. Its number is written after all else.
    Job job{};
    std::atomic<int> threads{1};
    std::atomic<uint32_t> number{0};
    alignas(LINE_BYTES) std::atomic<int64_t> done{0};
    // Where the caller published the job, and where another thread took part in one last.
    std::atomic<int> caller_core{-1}, helper_core{-1};
    // Sleep.
    std::atomic<int> sleepers{0};
    std::atomic<bool> caller_sleeps{false};
    pthread_mutex_t sleep = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
    // Held by the caller whose job runs, and by whoever starts threads.
    pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;
    int started = 0;
    std::atomic<int> arrived{0};

    int fullest(uint32_t job) const;
    void work(uint32_t job, int thread);
    void serve();
    void start_threads();
    void run(Job given);
    void wait_for_end(int64_t tasks);
};

std::atomic<Pool *> the_pool{nullptr};
std::atomic<int> wanted_threads{1};

pthread_once_t at_fork = PTHREAD_ONCE_INIT;

// A fork leaves the threads behind; the child's first job makes a pool of its own.
void forget_after_fork() {
    pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); });
}

// Made at the first job and never freed: its threads use it until the process ends. Null without memory.
Pool *pool() {
    Pool *found = the_pool.load();
    if (found) return found;
    pthread_once(&at_fork, forget_after_fork);
    void *memory = nullptr;
    if (posix_memalign(&memory, alignof(Pool), sizeof(Pool)) != 0) return nullptr;
    Pool *made = new (memory) Pool;
    if (the_pool.compare_exchange_strong(found, made)) return made;
    free(memory);
    return found;
}

void *serve_pool(void *shared) {
    static_cast<Pool *>(shared)->serve();
    return nullptr;
}

// The share with most unclaimed tasks of a job; -1 when there are none left.
int Pool::fullest(uint32_t job) const {
    int found = -1;
    int64_t most = 0;
    for (int share = 0, count = threads.load(); share < count; share++) {
        const int64_t unclaimed = shares[share].unclaimed(job);
        if (unclaimed > most) most = unclaimed, found = share;
    }
    return found;
}

// Claim and do tasks of a job until there are none left, those of the thread's own share first.
void Pool::work(uint32_t wanted, int thread) {
    Job found{};
    int64_t claimed = 0;
    for (int share = thread; share >= 0; share = fullest(wanted))
        while (const int64_t unclaimed = shares[share].claim(wanted)) {
            if (claimed++ == 0) found = job;
            found.run(share, unclaimed);
        }
    if (claimed > 0 && done.fetch_add(claimed) + claimed == found.count && caller_sleeps.load()) {
        pthread_mutex_lock(&sleep);
        pthread_cond_signal(&finished);
        pthread_mutex_unlock(&sleep);
    }
}

void Pool::serve() {
    const int thread = arrived.fetch_add(1) + 1;
    uint32_t last = 0;
    const auto called = [&] { return number.load() != last && thread < threads.load(); };
    for (;;) {
        if (!spin(caller_core, called)) {
            pthread_mutex_lock(&sleep);
            sleepers.fetch_add(1);
            while (!called()) pthread_cond_wait(&wake, &sleep);
            sleepers.fetch_sub(1);
            pthread_mutex_unlock(&sleep);
        }
        last = number.load();
        helper_core.store(this_core());
        work(last, thread);
    }
}

void Pool::start_threads() {
    const int wanted = wanted_threads.load();
    pthread_attr_t attributes;
    if (started < wanted - 1 && pthread_attr_init(&attributes) == 0) {
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_t thread;
        while (started < wanted - 1 && pthread_create(&thread, &attributes, serve_pool, this) == 0) started++;
        pthread_attr_destroy(&attributes);  // with fewer threads the same is done
    }
    threads.store(wanted);
}

void Pool::run(Job given) {
    start_threads();
    given.shares = threads.load();
    job = given;
    done.store(0);
    caller_core.store(this_core());
    const uint32_t next = number.load() + 1;
    for (int share = 0; share < given.shares; share++)
        shares[share].word.store(uint64_t{next} << TASK_BITS | static_cast<uint64_t>(given.tasks(share)));
    number.store(next);
    if (sleepers.load() > 0) {
        pthread_mutex_lock(&sleep);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep);
    }
    work(next, 0);
    wait_for_end(given.count);
}

void Pool::wait_for_end(int64_t tasks) {
    const auto ended = [&] { return done.load() == tasks; };
    if (spin(helper_core, ended)) return;
    pthread_mutex_lock(&sleep);
    caller_sleeps.store(true);
    while (!ended()) pthread_cond_wait(&finished, &sleep);
    caller_sleeps.store(false);
    pthread_mutex_unlock(&sleep);
}

}  // namespace

void run_tasks(int64_t count, void (*task)(const void *, int64_t), const void *context, bool backwards) {
    Pool *shared = count > 1 && wanted_threads.load() > 1 ? pool() : nullptr;
    if (shared && count < static_cast<int64_t>(TASK_MASK) && pthread_mutex_trylock(&shared->owner) == 0) {
        shared->run({count, task, context, backwards, 0});
        pthread_mutex_unlock(&shared->owner);
    } else {
        for (int64_t i = 0; i < count; i++) task(context, backwards ? count - 1 - i : i);
    }
}

int pool_threads() { return wanted_threads.load(); }

float *thread_scratch() {
    static thread_local float *scratch = nullptr;
    if (!scratch) {
        void *memory = nullptr;
        if (posix_memalign(&memory, 64, SCRATCH_FLOATS * sizeof(float)) != 0) abort();  // as little as a thread's stack
        scratch = static_cast<float *>(memory);
    }
    return scratch;
}

// Use so many threads from the next job on, the caller's among them; at least one.
EXPORT void minigraph_set_threads(int threads) {
    wanted_threads.store(threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads);
}

EXPORT int minigraph_threads() { return wanted_threads.load(); }

// What a thread takes beside the planned bytes, at most: its stack and its scratch.
EXPORT int64_t minigraph_thread_bytes() { return STACK_BYTES + SCRATCH_FLOATS * static_cast<int64_t>(sizeof(float)); }

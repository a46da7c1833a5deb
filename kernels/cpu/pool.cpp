// A pool of persistent threads. Tasks are claimed one by one, so a thread that the system has taken off its core holds
// up only the task that it is at. Idle threads spin for some microseconds and then sleep; the caller wakes them, starts
// on the tasks at once, and waits for nobody who has claimed none.
//
// A job is published as `ticket`: its number in the upper half, how many of its tasks are unclaimed in the lower. A claim
// is a compare-and-swap of the whole ticket, and until its task is done the job is unfinished: only in between may a
// thread read what the job is. Whatever was read before a claim may be of the next job already, which its caller writes
// before it changes the ticket. One job runs at a time; a second caller meanwhile does its tasks alone.
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

struct Pool {
    // The job. `ticket` is written last, and the others are read by those alone who have claimed a task of it.
    std::atomic<uint64_t> ticket{0};
    std::atomic<int64_t> count{0};
    std::atomic<void (*)(const void *, int64_t)> task{nullptr};
    std::atomic<const void *> context{nullptr};
    std::atomic<int> threads{1};
    std::atomic<int64_t> done{0};
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

    uint64_t job() const { return ticket.load() >> TASK_BITS; }
    void work(uint64_t job);
    void serve();
    void start_threads();
    void run(int64_t count, void (*task)(const void *, int64_t), const void *context);
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
    void *memory = malloc(sizeof(Pool));
    if (!memory) return nullptr;
    Pool *made = new (memory) Pool;
    if (the_pool.compare_exchange_strong(found, made)) return made;
    free(memory);
    return found;
}

void *serve_pool(void *shared) {
    static_cast<Pool *>(shared)->serve();
    return nullptr;
}

// Claim and do tasks of a job until there are none left.
void Pool::work(uint64_t job) {
    uint64_t seen = ticket.load();
    while (seen >> TASK_BITS == job && (seen & TASK_MASK) > 0) {
        if (!ticket.compare_exchange_weak(seen, seen - 1)) continue;
        const int64_t tasks = count.load();
        task.load()(context.load(), tasks - static_cast<int64_t>(seen & TASK_MASK));
        if (done.fetch_add(1) + 1 == tasks && caller_sleeps.load()) {
            pthread_mutex_lock(&sleep);
            pthread_cond_signal(&finished);
            pthread_mutex_unlock(&sleep);
        }
        seen = ticket.load();
    }
}

void Pool::serve() {
    const int number = arrived.fetch_add(1) + 1;
    uint64_t last = 0;
    const auto called = [&] { return job() != last && number < threads.load(); };
    for (;;) {
        if (!spin(caller_core, called)) {
            pthread_mutex_lock(&sleep);
            sleepers.fetch_add(1);
            while (!called()) pthread_cond_wait(&wake, &sleep);
            sleepers.fetch_sub(1);
            pthread_mutex_unlock(&sleep);
        }
        last = job();
        helper_core.store(this_core());
        work(last);
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

void Pool::run(int64_t tasks, void (*do_task)(const void *, int64_t), const void *with) {
    start_threads();
    count.store(tasks);
    task.store(do_task);
    context.store(with);
    done.store(0);
    caller_core.store(this_core());
    const uint64_t number = job() + 1;
    ticket.store(number << TASK_BITS | static_cast<uint64_t>(tasks));
    if (sleepers.load() > 0) {
        pthread_mutex_lock(&sleep);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep);
    }
    work(number);
    wait_for_end(tasks);
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

void run_tasks(int64_t count, void (*task)(const void *, int64_t), const void *context) {
    Pool *shared = count > 1 && wanted_threads.load() > 1 ? pool() : nullptr;
    if (shared && count < static_cast<int64_t>(TASK_MASK) && pthread_mutex_trylock(&shared->owner) == 0) {
        shared->run(count, task, context);
        pthread_mutex_unlock(&shared->owner);
    } else {
        for (int64_t i = 0; i < count; i++) task(context, i);
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

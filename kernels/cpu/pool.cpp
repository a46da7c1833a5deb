// A pool of persistent threads. Of a job's tasks each thread has a contiguous share, always the same part of the whole, so
// that in a chain of jobs over the same tensors a thread finds in its core's caches what it has written. A thread that is
// through with its share goes on in the fullest one, so one that the system has taken off its core holds up only the task
// that it is at. Idle threads spin for some microseconds and then sleep; the caller wakes them, starts on the tasks at
// once, and waits for nobody who has claimed none.
//
// Where all cores were busy of late, Linux looks for no idle one when it wakes a thread, and takes the waker's: two
// threads that wake each other can share a core for good while another is idle. So threads note where they work, and
// one that was last seen on the core of another is woken on one that none of the pool has; or not at all where it may
// use no such core. If it then begins late, that core is another program's, and for some time the system has its way.
//
// Each share is one word: the job's number in the upper half, how many of the share's tasks are unclaimed in the lower. A
// claim is a compare-and-swap of the whole word, and until its task is done the job is unfinished: only in between may a
// thread read what the job is. Whatever was read before a claim may be of the next job already, which its caller writes
// before it changes the words. One job runs at a time; a second caller meanwhile does its tasks alone.
#include "pool.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "clock.h"
#include "cores.h"
#include "kernel.h"

namespace {

constexpr double SPIN_SECONDS = 20e-6;
constexpr double LATE_SECONDS = 200e-6;    // from waking until a thread begins; on an idle core it takes 5 to 50 us
// For which a thread that was late is not woken apart: twice as long each time, up to the second figure.
constexpr double RETREAT_SECONDS = 50e-3, LONGEST_RETREAT_SECONDS = 2.0;
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

// A thread of the pool beside the caller, and how it sleeps.
struct Helper {
    const ThreadId thread = this_thread();
    std::atomic<int> core{-1};          // where it last took part in a job; -1 before the first
    std::atomic<bool> asleep{false};    // and not woken yet; written with `sleep` held
    std::atomic<double> sent{0.0};      // when it was woken on another core, until it begins; else 0
    std::atomic<double> retreat{0.0};   // until when it is not
    double patience = RETREAT_SECONDS;  // for how long, when it is late next
    pthread_mutex_t sleep = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

    // Note where it is, and whether it took long to come there.
    void arrive() {
        core.store(this_core());
        const double begun = sent.exchange(0.0), now = begun > 0.0 ? seconds_now() : 0.0;
        if (now == 0.0) return;
        const bool late = now - begun > LATE_SECONDS;
        if (late) retreat.store(now + patience);
        const double longer = 2 * patience < LONGEST_RETREAT_SECONDS ? 2 * patience : LONGEST_RETREAT_SECONDS;
        patience = late ? longer : RETREAT_SECONDS;
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
    pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
    // Held by the caller whose job runs, and by whoever starts threads.
    pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER;
    int started = 0;
    // By their threads' numbers, from 1 on, in the order in which they come to run; on their own stacks.
    std::atomic<Helper *> helpers[MAX_THREADS]{};
    std::atomic<int> arrived{0};

    int fullest(uint32_t job) const;
    void work(uint32_t job, int thread);
    void serve();
    void start_threads();
    void run(Job given);
    template <class Body> void each_helper(const Body &body);
    void wake_helpers(int core);
    void fall_asleep(Helper &helper);
    void rouse(Helper &helper);
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
    Helper self;
    const int thread = arrived.fetch_add(1) + 1;
    helpers[thread].store(&self);
    uint32_t last = 0;
    const auto called = [&] { return number.load() != last && thread < threads.load(); };
    for (;;) {
        if (!spin(caller_core, called)) {
            pthread_mutex_lock(&self.sleep);
            while (fall_asleep(self), !called()) pthread_cond_wait(&self.wake, &self.sleep);
            rouse(self);
            pthread_mutex_unlock(&self.sleep);
        }
        last = number.load();
        self.arrive();
        helper_core.store(self.core.load());
        work(last, thread);
    }
}

// Those whose shares are of the job, in the order of their numbers.
template <class Body> void Pool::each_helper(const Body &body) {
    for (int thread = 1, count = threads.load(); thread < count; thread++)
        if (Helper *helper = helpers[thread].load()) body(*helper);
}

// With its mutex held.
void Pool::fall_asleep(Helper &helper) {
    if (!helper.asleep.exchange(true)) sleepers.fetch_add(1);
}
void Pool::rouse(Helper &helper) {
    if (helper.asleep.exchange(false)) sleepers.fetch_sub(1);
}

// Wake those that sleep, for a caller on this core.
void Pool::wake_helpers(int core) {
    const double now = seconds_now();
    Cores taken, passed;
    taken.add(core), passed.add(core);
    each_helper([&](const Helper &helper) { taken.add(helper.core.load()); });
    each_helper([&](Helper &helper) {
        const auto wake = [&] {
            pthread_mutex_lock(&helper.sleep);
            rouse(helper);
            pthread_mutex_unlock(&helper.sleep);
            pthread_cond_signal(&helper.wake);
        };
        const int own = helper.core.load();
        const bool shared = passed.has(own);
        passed.add(own);
        if (!helper.asleep.load()) return;
        if (!shared || helper.retreat.load() > now) return wake();
        helper.sent.store(now);
        if (!wake_apart(helper.thread, taken, wake)) helper.sent.store(0.0);
    });
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
    if (sleepers.load() > 0) wake_helpers(caller_core.load());
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

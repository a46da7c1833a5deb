// Jobs for the pool whose every task leaves a trace, for a thread sanitizer to watch: each task is done once, and what
// it writes without atomics is read after the job, by tasks of the next jobs among them. The exit status is 1 for a
// task that was done twice or not at all, or by another thread than before; or for a thread that stays on the core of
// another though it may leave it, or comes back from there with another affinity.
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cores.h"
#include "pool.h"

extern "C" void minigraph_set_threads(int threads);

namespace {

constexpr int JOBS = 400, CALLERS = 3;
constexpr int64_t COUNTS[] = {2, 3, 17, 64};

void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "pool_check: %s\n", what);
    exit(1);
}

void run_jobs() {
    std::vector<int> done(64), wanted(64);
    for (int job = 0; job < JOBS; job++) {
        const int64_t count = COUNTS[job % 4];
        parallel(count, [&](int64_t i) { done[static_cast<size_t>(i)]++; }, job % 3 == 0);
        for (int64_t i = 0; i < count; i++) wanted[static_cast<size_t>(i)]++;
        require(done == wanted, "a task was done twice, or not at all");
    }
}

void on_changing_numbers_of_threads() {
    for (const int threads : {1, 2, 7, 3, 1, 4}) {
        minigraph_set_threads(threads);
        run_jobs();
    }
}

void from_several_callers() {
    pthread_t callers[CALLERS];
    const auto run = [](void *) -> void * {
        run_jobs();
        return nullptr;
    };
    for (pthread_t &caller : callers) require(pthread_create(&caller, nullptr, run, nullptr) == 0, "no thread can be made");
    for (const pthread_t caller : callers) pthread_join(caller, nullptr);
}

#if defined(__linux__)
cpu_set_t affinity(pid_t thread) {
    cpu_set_t found;
    require(sched_getaffinity(thread, sizeof found, &found) == 0, "there is no affinity");
    return found;
}

void set_affinity(pid_t thread, const cpu_set_t &wanted) {
    require(sched_setaffinity(thread, sizeof wanted, &wanted) == 0, "an affinity was refused");
}

cpu_set_t only(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return one;
}

int cores() {
    const cpu_set_t all = affinity(0);
    return CPU_COUNT(&all);
}

// So long that threads are asleep, and that one which has begun late once is woken apart again.
void nap() {
    const timespec time{0, 70'000'000};
    nanosleep(&time, nullptr);
}

// The thread beside the caller in a job of two tasks, and the core on which it began.
struct Other {
    pid_t thread;
    int core;
};

Other other_of_two() {
    std::atomic<int> claimed{0};
    Other seen[2] = {};
    parallel(2, [&](int64_t i) {
        seen[i] = {this_thread(), this_core()};
        claimed++;
        while (claimed < 2) sched_yield();
    });
    return seen[seen[0].thread == this_thread()];
}

// Threads that keep all cores but one busy, for as long as this lives.
class Busy {
public:
    explicit Busy(int idle) : threads(static_cast<size_t>(cores())) {
        const cpu_set_t all = affinity(0);
        size_t started = 0;
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (core != idle && CPU_ISSET(core, &all)) start(threads[started++], core);
        threads.resize(started);
    }
    ~Busy() {
        over = true;
        for (const pthread_t thread : threads) pthread_join(thread, nullptr);
    }

private:
    std::vector<pthread_t> threads;
    std::atomic<bool> over{false};

    void start(pthread_t &thread, int core) {
        pthread_attr_t attributes;
        const cpu_set_t one = only(core);
        pthread_attr_init(&attributes);
        pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
        const auto run = [](void *busy) -> void * {
            while (!static_cast<Busy *>(busy)->over) {}
            return nullptr;
        };
        require(pthread_create(&thread, &attributes, run, this) == 0, "no thread can be made");
        pthread_attr_destroy(&attributes);
    }
};

// The caller goes to the core of the other thread, which is to leave it: the system would not see to that, as it looks
// for idle cores, and there are none.
void on_cores_of_their_own() {
    constexpr int ROUNDS = 8;
    const cpu_set_t all = affinity(0);
    int parted = 0;
    minigraph_set_threads(2);
    for (int round = 0; round < ROUNDS; round++) {
        nap();
        const Other before = other_of_two();
        nap();
        Busy busy(before.core);
        set_affinity(0, only(before.core));
        const Other after = other_of_two();
        set_affinity(0, all);
        parted += after.core != before.core;
        const cpu_set_t left = affinity(after.thread);
        require(CPU_EQUAL(&left, &all), "a thread has come back with another affinity");
    }
    require(parted > 0, "threads stay on one core");
}

// Where two threads may use one core alone, the caller does all.
void alone_on_one_core() {
    constexpr int YIELDS = 100, SEEN_AFTER = 3;  // jobs, in the first of which the other thread comes to the core
    const cpu_set_t all = affinity(0);
    minigraph_set_threads(2);
    nap();
    const Other other = other_of_two();
    int core = 0;
    while (core == other.core || !CPU_ISSET(core, &all)) core++;
    set_affinity(0, only(core)), set_affinity(other.thread, only(core));
    for (int job = -SEEN_AFTER; job < 4; job++) {
        nap();
        parallel(2, [&](int64_t) {
            require(job < 0 || this_thread() != other.thread, "a thread was woken that could only share a core");
            for (int i = 0; i < YIELDS; i++) sched_yield();
        });
    }
    set_affinity(0, all), set_affinity(other.thread, all);
}
#else
int cores() { return 1; }
#endif

// Each task waits until all are claimed, so that no thread can do two: on no more threads than there are cores, beyond
// which a thread may be left asleep.
void with_a_share_for_each_thread() {
    constexpr int THREADS = 4;
    const int threads = cores() < THREADS ? cores() : THREADS;
    minigraph_set_threads(threads);
    pthread_t first[THREADS] = {}, now[THREADS];
    for (int job = 0; job < JOBS; job++) {
        std::atomic<int> claimed{0};
        parallel(threads, [&](int64_t i) {
            now[i] = pthread_self();
            claimed++;
            while (claimed < threads) sched_yield();
        });
        require(pthread_equal(now[0], pthread_self()), "the caller did not begin with the first task");
        for (int i = 0; i < threads; i++) {
            if (job == 0) first[i] = now[i];
            require(pthread_equal(now[i], first[i]), "another thread than before had a share");
        }
    }
}

void backwards() {
    minigraph_set_threads(1);
    std::vector<int64_t> order;
    parallel(3, [&](int64_t i) { order.push_back(i); }, true);
    require(order == std::vector<int64_t>{2, 1, 0}, "tasks were not done backwards");
}

}  // namespace

int main() {
    on_changing_numbers_of_threads();
    from_several_callers();
    with_a_share_for_each_thread();
    backwards();
#if defined(__linux__)
    if (cores() > 1) {
        on_cores_of_their_own();
        alone_on_one_core();
    }
#endif
    return 0;
}

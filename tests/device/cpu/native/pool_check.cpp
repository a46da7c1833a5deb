// Jobs for the pool whose every task leaves a trace, for a thread sanitizer to watch: each task is done once, and what it
// writes without atomics is read after the job, by tasks of the next jobs among them. The exit status is 1 for a task that
// was done twice or not at all, or by another thread than before.
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

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

// Each task waits until all are claimed, so that no thread can do two.
void with_a_share_for_each_thread() {
    constexpr int THREADS = 4;
    minigraph_set_threads(THREADS);
    pthread_t first[THREADS] = {}, now[THREADS];
    for (int job = 0; job < JOBS; job++) {
        std::atomic<int> claimed{0};
        parallel(THREADS, [&](int64_t i) {
            now[i] = pthread_self();
            claimed++;
            while (claimed < THREADS) sched_yield();
        });
        require(pthread_equal(now[0], pthread_self()), "the caller did not begin with the first task");
        for (int i = 0; i < THREADS; i++) {
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
    return 0;
}

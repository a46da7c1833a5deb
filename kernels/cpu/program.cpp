// The loop of a step over prepared calls, and what the running CPU can do.
#include "clock.h"
#include "kernel.h"

struct Call {
    void (*run)(const void *args);
    const void *args;
};

// Run calls first .. last - 1 in order and return the number of the next one: less than `last` when `seconds` were
// over before that, so that the caller may look at signals and come back.
EXPORT int64_t minigraph_run(const Call *calls, int64_t first, int64_t last, double seconds) {
    const double begin = seconds_now();
    while (first < last) {
        calls[first].run(calls[first].args);
        first++;
        if (seconds_now() - begin > seconds) break;
    }
    return first;
}

// The newest x86-64 microarchitecture level, 2 to 4, whose instructions CPU and system support; 0 for less, and for
// other architectures. What each level is compiled with is in flags.json.
EXPORT int minigraph_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const auto all = [](auto... have) { return (have && ...); };
    if (!all(__builtin_cpu_supports("sse4.2"), __builtin_cpu_supports("popcnt"))) return 0;
    if (!all(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"), __builtin_cpu_supports("bmi2"))) return 2;
    return all(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512bw"), __builtin_cpu_supports("avx512dq"),
               __builtin_cpu_supports("avx512vl")) ? 4 : 3;
#else
    return 0;
#endif
}

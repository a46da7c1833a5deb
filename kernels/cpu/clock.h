// The steady clock, without a C++ runtime library: the kernels link to none.
#pragma once
#include <time.h>

static inline double seconds_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

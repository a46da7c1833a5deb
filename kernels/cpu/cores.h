// On which core a thread runs, on which ones it may, and waking one that sleeps on a core that others leave free.
//
// On Linux; elsewhere no thread is known to share a core with another, and all are woken where the system likes.
#pragma once

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef pid_t ThreadId;

inline ThreadId this_thread() { return static_cast<ThreadId>(syscall(SYS_gettid)); }
inline int this_core() { return sched_getcpu(); }

// A set of cores.
class Cores {
public:
    Cores() { CPU_ZERO(&set); }
    bool has(int core) const { return core >= 0 && core < CPU_SETSIZE && CPU_ISSET(core, &set); }
    // No core has the number -1, which stands for one that is not known.
    void add(int core) {
        if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &set);
    }
    bool none() const { return CPU_COUNT(&set) == 0; }
    bool operator==(const Cores &other) const { return CPU_EQUAL(&set, &other.set); }
    Cores without(const Cores &other) const {
        Cores common, left;
        CPU_AND(&common.set, &set, &other.set);
        CPU_XOR(&left.set, &set, &common.set);
        return left;
    }
    // Those on which a thread may run, as far as the system tells and does what is asked.
    bool read_affinity(ThreadId thread) { return sched_getaffinity(thread, sizeof set, &set) == 0; }
    bool write_affinity(ThreadId thread) const { return sched_setaffinity(thread, sizeof set, &set) == 0; }

private:
    cpu_set_t set;
};

// Call wake(), so that a sleeping thread begins on none of the cores that are taken; where it may run on no other, do
// nothing and return false. It may run afterwards where it might before, or where somebody else has it meanwhile.
template <class Wake> bool wake_apart(ThreadId thread, const Cores &taken, const Wake &wake) {
    Cores allowed, now;
    const bool known = allowed.read_affinity(thread);
    const Cores free = allowed.without(taken);
    if (known && free.none()) return false;
    const bool narrowed = known && free.write_affinity(thread);
    wake();  // the system chooses a core here
    if (narrowed && now.read_affinity(thread) && now == free) allowed.write_affinity(thread);
    return true;
}

#else
#include <atomic>

typedef int ThreadId;

inline ThreadId this_thread() { return 0; }

// The same number for no two threads.
inline int this_core() {
    static std::atomic<int> threads{0};
    static thread_local const int number = threads.fetch_add(1);
    return number;
}

class Cores {
public:
    bool has(int) const { return false; }
    void add(int) {}
};

template <class Wake> bool wake_apart(ThreadId, const Cores &, const Wake &wake) {
    wake();
    return true;
}
#endif

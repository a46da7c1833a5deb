// Runs calls of kernels that recording.py wrote to a file, and compares what they compute: a program without Python, so
// that sanitizers see all of its memory and threads, and that an emulator of another architecture can run.
//
//     replay LIBRARY FILE THREADS CALLERS
//
// CALLERS threads go through all cases at once, each with memory of its own, and the pool has THREADS. Every operand lies
// in an allocation of exactly its bytes. Floats are the same when they are apart by no more than TOLERANCE of the largest
// one expected; the exit status is 1 for others, and for a file that cannot be read.
//
// All numbers in the file are int64. A text is its length and its bytes. A case, until the file ends: its name; the number
// of regions, and of each its bytes, whether contents follow, the size of its elements, then contents, and what is
// expected: nothing where the size is 0, whole numbers where it is negative; the number of calls, and of each the kernel's
// name, the bytes of its arguments, the number of pointers among them, the arguments, and of each pointer where it lies,
// the region that it points to, and how far into it, or -1 and the name of a kernel.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernel.h"

namespace {

constexpr double TOLERANCE = 1e-4;
constexpr int POISON = 0xff;  // NaN as a float
constexpr size_t ALIGNMENT = 64;

[[noreturn]] void fail(const std::string &text) {
    fprintf(stderr, "replay: %s\n", text.c_str());
    exit(1);
}

struct Reader {
    const char *at, *end;

    const char *bytes(int64_t count) {
        if (count < 0 || count > end - at) fail("the file ends too early");
        at += count;
        return at - count;
    }
    int64_t number() {
        int64_t value;
        memcpy(&value, bytes(sizeof value), sizeof value);
        return value;
    }
    std::string text() {
        const int64_t size = number();
        return std::string(bytes(size), static_cast<size_t>(size));
    }
};

struct Region {
    char *memory;
    int64_t bytes, element_bytes;
    const char *expected;
};

void *library;

void *symbol(const std::string &name) {
    void *found = dlsym(library, ("minigraph_" + name).c_str());
    if (!found) fail("the library has no " + name);
    return found;
}

const KernelInfo &kernel(const std::string &name) { return *static_cast<const KernelInfo *>(symbol(name)); }

Region read_region(Reader &file) {
    Region r{nullptr, file.number(), 0, nullptr};
    const bool given = file.number() != 0;
    r.element_bytes = file.number();
    void *memory;
    if (posix_memalign(&memory, ALIGNMENT, static_cast<size_t>(r.bytes)) != 0) fail("there is too little memory");
    r.memory = static_cast<char *>(memory);
    memset(r.memory, POISON, static_cast<size_t>(r.bytes));
    if (given) memcpy(r.memory, file.bytes(r.bytes), static_cast<size_t>(r.bytes));
    if (r.element_bytes != 0) r.expected = file.bytes(r.bytes);
    return r;
}

void run_call(Reader &file, const std::vector<Region> &regions) {
    const KernelInfo &info = kernel(file.text());
    const int64_t size = file.number(), pointers = file.number();
    if (size != info.args_bytes) fail("a kernel takes other arguments than were recorded");
    std::vector<char> args(static_cast<size_t>(size));
    memcpy(args.data(), file.bytes(size), args.size());
    for (int64_t i = 0; i < pointers; i++) {
        const int64_t at = file.number(), region = file.number();
        const void *pointer = region < 0 ? reinterpret_cast<const void *>(kernel(file.text()).run)
                                         : regions[static_cast<size_t>(region)].memory + file.number();
        memcpy(args.data() + at, &pointer, sizeof pointer);
    }
    info.run(args.data());
}

template <class Float> bool same_floats(const Region &r) {
    const size_t count = static_cast<size_t>(r.bytes) / sizeof(Float);
    std::vector<Float> found(count), expected(count);
    memcpy(found.data(), r.memory, count * sizeof(Float));
    memcpy(expected.data(), r.expected, count * sizeof(Float));
    double largest = 0;
    for (const Float value : expected)
        if (std::isfinite(value)) largest = std::fmax(largest, std::fabs(static_cast<double>(value)));
    for (size_t i = 0; i < count; i++) {
        const double a = found[i], b = expected[i];
        if (!(a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= TOLERANCE * largest)) {
            fprintf(stderr, "element %zu is %.9g, not %.9g\n", i, a, b);
            return false;
        }
    }
    return true;
}

bool same(const Region &r) {
    if (r.element_bytes == 0 || r.bytes == 0) return true;
    if (r.element_bytes == sizeof(float)) return same_floats<float>(r);
    if (r.element_bytes == sizeof(double)) return same_floats<double>(r);
    return memcmp(r.memory, r.expected, static_cast<size_t>(r.bytes)) == 0;
}

void run_case(Reader &file) {
    const std::string name = file.text();
    std::vector<Region> regions;
    for (int64_t left = file.number(); left > 0; left--) regions.push_back(read_region(file));
    for (int64_t left = file.number(); left > 0; left--) run_call(file, regions);
    for (const Region &r : regions) {
        if (!same(r)) fail(name + " computes something else");
        free(r.memory);
    }
}

// The file's content, in memory for as long as the program runs.
Reader opened(const char *path) {
    const int file = open(path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0 || status.st_size == 0) fail(std::string("nothing to read in ") + path);
    const size_t size = static_cast<size_t>(status.st_size);
    void *begin = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (begin == MAP_FAILED) fail(std::string("cannot map ") + path);
    return {static_cast<const char *>(begin), static_cast<const char *>(begin) + size};
}

std::atomic<int64_t> cases{0};

void *run_all(void *given) {
    Reader file = *static_cast<const Reader *>(given);
    for (; file.at < file.end; cases++) run_case(file);
    return nullptr;
}

}  // namespace

int main(int count, char **words) {
    if (count != 5) fail("give a library, a file, a number of threads, and a number of callers");
    library = dlopen(words[1], RTLD_NOW);
    if (!library) fail(dlerror());
    Reader file = opened(words[2]);
    reinterpret_cast<void (*)(int)>(symbol("set_threads"))(atoi(words[3]));
    std::vector<pthread_t> callers(static_cast<size_t>(atoi(words[4])));
    for (pthread_t &caller : callers)
        if (pthread_create(&caller, nullptr, run_all, &file) != 0) fail("no thread can be made");
    for (pthread_t caller : callers) pthread_join(caller, nullptr);
    printf("%lld cases\n", static_cast<long long>(cases.load()));
    return 0;
}

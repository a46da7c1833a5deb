// How the CPU device calls a kernel: a function of one packed struct of arguments, found by name in the library.
//
// A kernel `name` takes `const NameArgs &`, a struct of pointers and numbers in the order in which Python packs them.
// KERNEL(name, NameArgs) exports what Python looks up: the function, and the struct's size to check the packing with.
#pragma once
#include <cstddef>
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct KernelInfo {
    void (*run)(const void *args);
    int64_t args_bytes;
};

#define KERNEL(name, Args)                                                                   \
    EXPORT const KernelInfo minigraph_##name;                                                \
    const KernelInfo minigraph_##name = {                                                    \
        [](const void *args) { name(*static_cast<const Args *>(args)); }, sizeof(Args)};

// Loops over the elements of tensors of one shape, by tasks of whole blocks.
#pragma once
#include "lanes.h"
#include "pool.h"

constexpr int64_t ELEMENTS = 1 << 14;  // of a task: 64 KiB of each operand

// Call body(access, i) for each vector of `size` elements, in parallel.
template <class Body> static void elementwise(int64_t size, bool streamed, const Body &body) {
    parallel((size + ELEMENTS - 1) / ELEMENTS, [&](int64_t block) {
        const int64_t begin = block * ELEMENTS, count = size - begin < ELEMENTS ? size - begin : ELEMENTS;
        const auto at = [&](auto access, int64_t i) { body(access, begin + i); };
        if (streamed) {
            each_vector<Streamed>(count, at);
            Streamed::finish();
        } else {
            each_vector(count, at);
        }
    });
}

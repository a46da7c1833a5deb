// How a kernel says that a number is out of range: it notes the first one, and Python raises when the run is over.
#pragma once
#include <cstdint>

struct Refusal {
    int64_t position;  // in the tensor of numbers; -1 while there is none
    double value;
};

// Whether a number is a place below `bound`; NaN is none.
static inline bool is_place(float number, int64_t bound) {
    return number >= 0.0f && static_cast<double>(number) < static_cast<double>(bound);
}

// Note the first of some numbers that is no place below `bound` and not `*ignored`, which may be null.
static inline void refuse_others(const float *numbers, int64_t count, int64_t bound, const float *ignored,
                                 Refusal *refusal) {
    for (int64_t i = 0; i < count; i++) {
        if (is_place(numbers[i], bound) || (ignored && numbers[i] == *ignored)) continue;
        if (refusal->position < 0) refusal->value = static_cast<double>(numbers[i]), refusal->position = i;
        return;
    }
}

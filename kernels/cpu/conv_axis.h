// Which outputs along an axis of a convolution all taps reach.
#pragma once
#include "conv.h"

// The outputs along one axis: `at` is where the first tap of the first one lies.
struct Axis {
    int64_t at, stride, step, taps, length;
    int64_t first, last;  // outputs that all taps reach; before and behind them are the edges

    Axis(int64_t tap, int64_t out_stride, int64_t tap_step, int64_t tap_count, int64_t inputs, int64_t outputs)
        : at(tap), stride(out_stride), step(tap_step), taps(tap_count), length(inputs) {
        const int64_t room = length - 1 - at - (taps - 1) * step;  // for the first tap of the last one inside
        first = at < 0 ? min(outputs, ceil_div(-at, stride)) : 0;
        last = room < 0 ? first : max(first, min(outputs, room / stride + 1));
    }
};

// Taps [first, last) of an output that reach inside.
struct Reach {
    int64_t first, last;
    Reach(const Axis &axis, int64_t output) {
        const int64_t at = axis.at + output * axis.stride, end = axis.length - 1 - at;
        first = at >= 0 ? 0 : min(axis.taps, axis.step == 1 ? -at : ceil_div(-at, axis.step));
        last = end < 0 ? 0 : min(axis.taps, (axis.step == 1 ? end : end / axis.step) + 1);
        if (last < first) last = first;
    }
};

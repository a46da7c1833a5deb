// What the kernels of conv.cpp and conv_lanes.cpp are called with.
#pragma once
#include <cstdint>

// Taps along one axis, dealt in turns to so many streams; `turned` has the last tap of a stream first.
struct AxisTaps {
    int64_t count, streams, turned;

    int64_t size(int64_t stream) const { return (count - stream + streams - 1) / streams; }
    int64_t before(int64_t stream) const { return stream ? size(stream - 1) + before(stream - 1) : 0; }
    int64_t place(int64_t tap) const {
        return turned ? size(tap % streams) - 1 - tap / streams : tap / streams;
    }
};

// A packed weight is a stream of taps for each phase of a stride, one after another; one stream for a stride of 1. Each
// is (group, out block, in block, plane, row, column, in lane, 16 out lanes).
struct PackArgs {
    const float *weight;
    float *packed;
    int64_t groups, outs, ins;                // channels of a group
    int64_t group_step, out_step, in_step;    // distances in floats in the weight
    AxisTaps depth, row, column;
    int64_t in_lanes;                         // lanes of an input block that the stream holds
    int64_t small;                            // 0, or channels of the small groups, of which a group here is 16 / small

    int64_t taps() const { return depth.count * row.count * column.count; }
};

// Where a tap goes: taps of streams before its own, those of its own, and its place among them.
struct TapPlace {
    int64_t before, size, at;

    TapPlace() = default;
    TapPlace(const PackArgs &a, int64_t tap) {
        const int64_t s = tap % a.column.count, r = tap / a.column.count % a.row.count;
        const int64_t d = tap / a.column.count / a.row.count;
        const int64_t stream_s = s % a.column.streams, stream_r = r % a.row.streams, stream_d = d % a.depth.streams;
        const int64_t columns = a.column.size(stream_s), rows = a.row.size(stream_r), depths = a.depth.size(stream_d);
        before = a.depth.before(stream_d) * a.row.count * a.column.count +
                 depths * (a.row.before(stream_r) * a.column.count + rows * a.column.before(stream_s));
        size = depths * rows * columns;
        at = (a.depth.place(d) * rows + a.row.place(r)) * columns + a.column.place(s);
    }
};

struct ConvolutionArgs {
    const float *x, *packed, *bias;           // bias: null, or padded to whole blocks of all groups
    float *y;
    int64_t images, groups;
    int64_t plain;                            // whether x is a plain tensor (of one group)
    int64_t in_lanes, in_blocks;              // lanes that a block uses, blocks of a group
    int64_t depth, height, width;             // of x
    int64_t outs, out_blocks;                 // channels of all groups, blocks of a group
    int64_t out_depth, out_height, out_width; // of y
    int64_t depth_phase, depth_step, depths;  // the planes of y that are computed: first, step, count
    int64_t row_phase, row_step, rows;
    int64_t column_phase, column_step, columns;
    int64_t depth_stride, row_stride, column_stride;  // steps in x from one of them to the next
    int64_t tap_depth, tap_depth_step, tap_depths;    // taps, from there
    int64_t tap_row, tap_row_step, tap_rows;
    int64_t tap_column, tap_column_step, tap_columns;
    int64_t add, relu;                        // whether what y holds is added to the sums; whether relu follows
};

// What the kernels of conv.cpp and conv_lanes.cpp are called with.
#pragma once
#include <cstdint>

struct PackArgs {
    const float *weight;
    float *packed;  // (group, out block, in block, row, column, in lane, 16 out lanes)
    int64_t groups, outs, ins;                // channels of a group
    int64_t group_step, out_step, in_step;    // distances in floats in the weight
    int64_t depth_first, depth_step, depths;  // taps in the order of the stream: first, step, count, in floats
    int64_t row_first, row_step, rows;
    int64_t column_first, column_step, columns;
    int64_t in_lanes;                         // lanes of an input block that the stream holds
    int64_t small;                            // 0, or channels of the small groups, of which a group here is 16 / small
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

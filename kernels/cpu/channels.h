// Tensors with channels, as (images, channels, pixels), and how work on them is cut.
//
// A unit is what one vector of channel constants serves: a block of 16 channels in nChw16c, and 16 channels side by side
// where they come last; else one channel, whose pixels lie side by side. A segment is some whole images of one canonical
// chunk of the batch, or a piece of one image; segments are numbered in ascending order, and every sum over a channel is
// made of sums over segments. Cuts depend on the shape of an image alone, so slices of the batch are cut like the whole.
#pragma once
#include "lanes.h"
#include "pool.h"

constexpr int64_t TASK = 1 << 15;    // elements of a task

struct Channels {
    int64_t images, channels, pixels;
    int64_t blocked;  // whether in nChw16c
    int64_t chunk;    // images of a canonical chunk
    int64_t group;    // images of a segment
    int64_t piece;    // pixels of a segment, at most

    bool in_rows() const { return !blocked && pixels > 1; }
    int64_t units() const { return in_rows() ? channels : (channels + LANES - 1) / LANES; }
    int64_t pieces() const { return (pixels + piece - 1) / piece; }  // segments of an image
    int64_t groups_each() const { return (chunk + group - 1) / group; }
    int64_t chunk_segments() const { return groups_each() * pieces(); }
    int64_t chunks() const { return (images + chunk - 1) / chunk; }
    int64_t segments() const { return chunks() * chunk_segments(); }
    int64_t padded() const { return (channels + LANES - 1) / LANES * LANES; }
    int64_t count() const { return images * pixels; }
};

struct Segment {
    int64_t first, last;   // images
    int64_t begin, end;    // pixels of each

    int64_t count() const { return (last - first) * (end - begin); }
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline Segment segment_of(const Channels &c, int64_t number) {
    const int64_t piece = number % c.pieces(), group = number / c.pieces() % c.groups_each();
    const int64_t chunk = number / c.chunk_segments() * c.chunk, first = chunk + group * c.group;
    const int64_t end = least(c.images, least(chunk + c.chunk, first + c.group));
    return {first, end > first ? end : first, piece * c.piece, least(c.pixels, (piece + 1) * c.piece)};
}

// Calls work(segment's number, segment, first unit, unit after the last) in parallel; backwards when `reverse`, so as to
// begin with what a pass before left in the cache.
template <class Work> void for_segments(const Channels &c, bool reverse, const Work &work) {
    const int64_t size = c.group * least(c.pixels, c.piece) * (c.in_rows() ? 1 : LANES), units = c.units();
    const int64_t wide = size < TASK ? TASK / size : 1, columns = (units + wide - 1) / wide;
    const int64_t tasks = c.count() > 0 ? c.segments() * columns : 0;
    parallel(tasks, [&](int64_t task) {
        const int64_t number = task / columns, unit = task % columns * wide;
        const Segment s = segment_of(c, number);
        if (s.count() > 0) work(number, s, unit, least(unit + wide, units));
    }, reverse);
}

// Where elements lie: in nChw16c, in rows, where a channel's pixels lie side by side, or in columns, where channels come
// last. The three differ in numbers alone, so that a kernel's loops need not be compiled for each of them; where vectors
// lie side by side, as in the first two, loops know it.
struct Places {
    const Channels &c;
    const bool in_rows, in_columns;
    const int64_t width;  // floats from a pixel to the next
    const int64_t block;  // pixels of 256 vectors, which stay in the first cache

    explicit Places(const Channels &channels)
        : c(channels), in_rows(c.in_rows()), in_columns(!c.blocked && !in_rows),
          width(in_rows ? 1 : in_columns ? c.channels : LANES), block(in_rows ? 256 * LANES : 256) {}

    // Calls run(offset, pixels) for each image's part of a segment in a unit; in columns images follow each other.
    template <class Run> INLINE void walk(const Segment &s, int64_t unit, const Run &run) const {
        const int64_t images = s.last - s.first, runs = in_columns ? 1 : images;
        for (int64_t n = s.first; n < s.first + runs; n++)
            run(in_columns ? n * c.channels + unit * LANES : ((n * c.units() + unit) * c.pixels + s.begin) * width,
                in_columns ? images : s.end - s.begin);
    }
    // Calls body(access, offset, j) for each vector of so many pixels, with j = 0 .. 3 in turns.
    template <class Body> INLINE void vectors(int64_t unit, int64_t offset, int64_t count, const Body &body) const {
        const int64_t whole = whole_vectors(unit, count);
        if (in_columns) in_turns(offset, whole, width, body);
        else in_turns(offset, whole, LANES, body);
        parts(unit, offset, count, [&](auto access, int64_t at) { body(access, at, 0); });
    }
    // Calls body(access, offset) for each vector of a segment in a unit.
    template <class Body> INLINE void all(const Segment &s, int64_t unit, const Body &body) const {
        walk(s, unit, [&](int64_t offset, int64_t count) {
            const int64_t whole = whole_vectors(unit, count);
            if (in_columns) {
                for (int64_t i = 0; i < whole; i++) body(Whole{}, offset + i * width);
            } else {
#pragma GCC unroll 4
                for (int64_t i = 0; i < whole; i++) body(Whole{}, offset + i * LANES);
            }
            parts(unit, offset, count, body);
        });
    }
    // The numbers of a unit's channels, or in rows its channel's in all lanes.
    INLINE Vec constant(const float *vector, int64_t unit) const {
        return in_rows ? Vec::of(vector[unit]) : Vec::load(vector + unit * LANES);
    }

private:
    INLINE int64_t unit_lanes(int64_t unit) const { return in_columns ? least(LANES, c.channels - unit * LANES) : LANES; }
    INLINE int64_t whole_vectors(int64_t unit, int64_t count) const {
        return in_rows ? count / LANES : unit_lanes(unit) == LANES ? count : 0;
    }
    template <class Body> static INLINE void in_turns(int64_t offset, int64_t whole, int64_t stride, const Body &body) {
        int64_t i = 0;
        for (; i + 4 <= whole; i += 4) {
            body(Whole{}, offset + i * stride, 0);
            body(Whole{}, offset + (i + 1) * stride, 1);
            body(Whole{}, offset + (i + 2) * stride, 2);
            body(Whole{}, offset + (i + 3) * stride, 3);
        }
        for (; i < whole; i++) body(Whole{}, offset + i * stride, 0);
    }
    // Calls body for each vector that is not whole: the last one in rows, or all of a unit in columns.
    template <class Body> INLINE void parts(int64_t unit, int64_t offset, int64_t count, const Body &body) const {
        const int64_t whole = whole_vectors(unit, count), all = in_rows ? (count + LANES - 1) / LANES : count;
        const int64_t stride = in_rows ? LANES : width;
        const Part part{in_rows ? count % LANES : unit_lanes(unit)};
        for (int64_t i = whole; i < all; i++) body(part, offset + i * stride);
    }
};

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

// Where elements lie. A walk calls run(offset, pixels) for each image's part of a segment in a unit, and
// vectors(offset, pixels, ...) calls body(access, offset, j) for each vector there, with j = 0 .. 3 in turns.
struct Blocks {
    const Channels &c;
    template <class Run> INLINE void walk(const Segment &s, int64_t unit, const Run &run) const {
        for (int64_t n = s.first; n < s.last; n++)
            run(((n * c.units() + unit) * c.pixels + s.begin) * LANES, s.end - s.begin);
    }
    template <class Body> static INLINE void strided(int64_t offset, int64_t count, int64_t stride, const Body &body) {
        int64_t i = 0;
        for (; i + 4 <= count; i += 4) {
            body(Whole{}, offset + i * stride, 0);
            body(Whole{}, offset + (i + 1) * stride, 1);
            body(Whole{}, offset + (i + 2) * stride, 2);
            body(Whole{}, offset + (i + 3) * stride, 3);
        }
        for (; i < count; i++) body(Whole{}, offset + i * stride, 0);
    }
    template <class Body> INLINE void vectors(int64_t, int64_t offset, int64_t count, const Body &body) const {
        strided(offset, count, LANES, body);
    }
    int64_t stride() const { return LANES; }       // from a pixel to the next
    static constexpr int64_t BLOCK = 256;          // pixels that stay in the first cache
    static INLINE Vec constant(const float *vector, int64_t unit) { return Vec::load(vector + unit * LANES); }
};

struct Columns {
    const Channels &c;
    template <class Run> INLINE void walk(const Segment &s, int64_t unit, const Run &run) const {
        run(s.first * c.channels + unit * LANES, s.last - s.first);
    }
    template <class Body> INLINE void vectors(int64_t unit, int64_t offset, int64_t count, const Body &body) const {
        const int64_t lanes = c.channels - unit * LANES;
        if (lanes >= LANES) return Blocks::strided(offset, count, c.channels, body);
        for (int64_t i = 0; i < count; i++) body(Part{lanes}, offset + i * c.channels, 0);
    }
    int64_t stride() const { return c.channels; }
    static constexpr int64_t BLOCK = 256;
    static INLINE Vec constant(const float *vector, int64_t unit) { return Vec::load(vector + unit * LANES); }
};

struct Rows {
    const Channels &c;
    template <class Run> INLINE void walk(const Segment &s, int64_t unit, const Run &run) const {
        for (int64_t n = s.first; n < s.last; n++) run((n * c.channels + unit) * c.pixels + s.begin, s.end - s.begin);
    }
    template <class Body> INLINE void vectors(int64_t, int64_t offset, int64_t count, const Body &body) const {
        Blocks::strided(offset, count / LANES, LANES, body);
        if (count % LANES) body(Part{count % LANES}, offset + count / LANES * LANES, 0);
    }
    int64_t stride() const { return 1; }
    static constexpr int64_t BLOCK = 256 * LANES;
    static INLINE Vec constant(const float *vector, int64_t unit) { return Vec::of(vector[unit]); }
};

// Calls work with the Blocks, Columns or Rows of the tensor.
template <class Work> void with_places(const Channels &c, const Work &work) {
    if (c.blocked) work(Blocks{c});
    else if (c.pixels > 1) work(Rows{c});
    else work(Columns{c});
}

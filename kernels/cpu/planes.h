// Planes of a tensor with channels: places that one vector of channels' numbers serves.
//
// In rows, a plane is one channel of one image, its pixels side by side. In nChw16c it is a block of 16 channels of one
// image, a vector a pixel. In columns, where channels come last, it is 16 channels side by side, or what is left of
// them, a vector an image. Padding lanes of nChw16c hold zeros and get what the kernel makes of zeros, and of numbers of
// channels that are zeros.
#pragma once
#include "lanes.h"
#include "pool.h"

enum Form : int64_t { ROWS, BLOCKS, COLUMNS };  // as in minigraph/device/cpu/native/planes.py

struct Planes {
    int64_t images, channels, pixels, form;

    int64_t units() const { return form == ROWS ? channels : (channels + LANES - 1) / LANES; }
    int64_t count() const { return form == COLUMNS ? units() : images * units(); }
    int64_t places() const { return form == COLUMNS ? images : pixels; }  // of a plane: vectors, or in rows elements
    int64_t size() const { return places() * (form == ROWS ? 1 : LANES); }
};

struct Plane {
    const Planes &all;
    int64_t image, channel, first, lanes;  // lanes: channels of it

    Plane(const Planes &planes, int64_t number)
        : all(planes), image(number / planes.units()), channel(number % planes.units() * (in_rows() ? 1 : LANES)),
          first(planes.form == COLUMNS ? channel : number * planes.size()),
          lanes(in_rows() ? 1 : planes.channels - channel < LANES ? planes.channels - channel : LANES) {}

    bool in_rows() const { return all.form == ROWS; }
    // Call body(access, offset) for each vector: the forms differ in numbers alone, so that it is compiled twice, not
    // once for each of them.
    template <class Body> INLINE void each(const Body &body) const {
        const bool wide = all.form == BLOCKS || lanes == LANES;  // channels side by side, all lanes of each vector
        const int64_t stride = all.form == COLUMNS ? all.channels : LANES;
        const int64_t rest = in_rows() ? all.pixels % LANES : lanes;  // lanes of what is not whole
        const int64_t whole = in_rows() ? all.pixels / LANES : wide ? all.places() : 0;
        const int64_t end = in_rows() ? (all.pixels + LANES - 1) / LANES : all.places();
        for (int64_t i = 0; i < whole; i++) body(Whole{}, first + i * stride);
        for (int64_t i = whole; i < end; i++) body(Part{rest}, first + i * stride);
    }
    // The numbers of its channels from a vector of all channels': in rows the same in all lanes, else zero past the last.
    INLINE Vec numbers(const float *vector) const {
        if (in_rows()) return Vec::of(vector[channel]);
        return lanes == LANES ? Vec::load(vector + channel) : Part{lanes}.load(vector + channel);
    }
    // sums[i] = the sum over its places of f(access, offset) for channel i: float32 over 256 vectors, then float64.
    template <class F> INLINE void sum(const F &f, double (&sums)[LANES]) const {
        constexpr int64_t TOGETHER = 256;
        for (double &s : sums) s = 0;
        Vec parts[2] = {Vec::zero(), Vec::zero()};
        int64_t turn = 0;
        const auto close = [&] {
            float held[LANES];
            (parts[0] + parts[1]).store(held);
            for (int i = 0; i < LANES; i++) sums[i] += held[i];
            parts[0] = parts[1] = Vec::zero();
        };
        each([&](auto access, int64_t at) {
            parts[turn & 1] += access.keep(f(access, at));
            if (++turn % TOGETHER == 0) close();
        });
        close();
        if (!in_rows()) return;
        double whole = 0;
        for (double s : sums) whole += s;
        for (double &s : sums) s = whole;
    }
};

// A number for each lane.
static INLINE Vec vector_of(const double (&numbers)[LANES]) {
    float held[LANES];
    for (int i = 0; i < LANES; i++) held[i] = static_cast<float>(numbers[i]);
    return Vec::load(held);
}

// Call work(plane, its number) for all of them, in parallel; a task takes some of them while they are small.
template <class Work> void for_planes(const Planes &planes, const Work &work) {
    constexpr int64_t TASK = 1 << 14;  // elements
    const int64_t size = planes.size(), wide = size == 0 ? TASK : size < TASK ? TASK / size : 1;
    const int64_t count = planes.count();
    parallel((count + wide - 1) / wide, [&](int64_t task) {
        const int64_t last = count < (task + 1) * wide ? count : (task + 1) * wide;
        for (int64_t number = task * wide; number < last; number++) work(Plane(planes, number), number);
    });
}

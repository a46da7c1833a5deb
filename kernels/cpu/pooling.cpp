// Pooling: maximum, average or sum of windows over up to three spatial axes, or of whole images, and the gradients.
//
// Contract: padding lanes stay zero. A plane is one image's channel, or block of channels in nChw16c, with 1 or 16 lanes
// a pixel; nothing is padded: windows are clipped at the image's border. Forward reads each window and writes each output
// once; backward adds each output's gradient to where it came from, plane by plane. Winners are the places of maxima in
// their windows, in row-major order, a byte a place: the first that is not below the output. Forward writes them beside
// its output where asked to.
#include "functions.h"
#include "kernel.h"
#include "pool.h"

namespace {

enum Kind { MAXIMUM, AVERAGE, SUM };
constexpr int64_t TASK_PIXELS = 2048;  // outputs of a task
constexpr int64_t RUN = 64;            // pixels that are summed before their sum is added to others

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

// One lane, where channels are not blocked.
struct Single {
    float value;
    static INLINE Single load(const float *from) { return {*from}; }
    static INLINE Single zero() { return {0.0f}; }
    INLINE void store(float *to) const { *to = value; }
    INLINE Single &operator+=(const Single &other) { return value += other.value, *this; }
};

INLINE Single larger(const Single &a, const Single &b) {
    return {a.value != a.value ? a.value : (b.value <= a.value ? a.value : b.value)};
}
INLINE Single divided(const Single &a, float b) { return {a.value / b}; }
// What of `rest` goes to an element x when the maximum is y; it leaves `rest`.
INLINE Single won(const Single &x, const Single &y, Single &rest) {
    const bool loses = x.value < y.value;
    const Single share{loses ? 0.0f : rest.value};
    rest.value = loses ? rest.value : 0.0f;
    return share;
}
INLINE bool is_maximum(float x, float y) { return x == y || x != x; }
INLINE Single won_whole(const Single &x, const Single &y, Single &rest) {
    const bool wins = is_maximum(x.value, y.value);
    const Single share{wins ? rest.value : 0.0f};
    rest.value = wins ? 0.0f : rest.value;
    return share;
}

INLINE Vec larger(const Vec &a, const Vec &b) {
    return each(a, b, [](Native x, Native y) { return maximum(x, y); });
}
INLINE Vec divided(const Vec &a, float b) { return each(a, [b](Native x) { return x / b; }); }
INLINE Vec won(const Vec &x, const Vec &y, Vec &rest) {
    Vec share;
    for (int i = 0; i < PARTS; i++) {
        share.part[i] = x.part[i] < y.part[i] ? Native{} : rest.part[i];
        rest.part[i] = x.part[i] < y.part[i] ? rest.part[i] : Native{};
    }
    return share;
}
INLINE Vec won_whole(const Vec &x, const Vec &y, Vec &rest) {
    Vec share;
    for (int i = 0; i < PARTS; i++) {
        const NativeInt wins = (x.part[i] == y.part[i]) | (x.part[i] != x.part[i]);
        share.part[i] = wins ? rest.part[i] : Native{};
        rest.part[i] = wins ? Native{} : rest.part[i];
    }
    return share;
}

// The places of winners: one, or those of a block's lanes.
struct Place {
    int32_t value;
    static INLINE Place load(const uint8_t *from) { return {*from}; }
    INLINE void keep(int64_t) {}
    INLINE void store(uint8_t *to) const { *to = static_cast<uint8_t>(value); }
};
typedef uint8_t NativeByte __attribute__((vector_size(NATIVE)));
struct Places {
    NativeInt part[PARTS];
    static INLINE Places load(const uint8_t *from) {
        Places v;
        for (int i = 0; i < PARTS; i++) {
            NativeByte bytes;
            std::memcpy(&bytes, from + i * NATIVE, sizeof bytes);
            v.part[i] = __builtin_convertvector(bytes, NativeInt);
        }
        return v;
    }
    // Zero all lanes but the first ones.
    INLINE void keep(int64_t lanes) {
        for (int i = 0; i < PARTS; i++)
            for (int j = 0; j < NATIVE; j++)
                if (i * NATIVE + j >= lanes) part[i][j] = 0;
    }
    INLINE void store(uint8_t *to) const {
        for (int i = 0; i < PARTS; i++) {
            const NativeByte bytes = __builtin_convertvector(part[i], NativeByte);
            std::memcpy(to + i * NATIVE, &bytes, sizeof bytes);
        }
    }
};
INLINE Place places_of(const Single &, int32_t place = 0) { return {place}; }
INLINE Places places_of(const Vec &, int32_t place = 0) {
    Places v;
    for (int i = 0; i < PARTS; i++) v.part[i] = NativeInt{} + place;
    return v;
}

// `place` where x is not below y, else what was found before.
INLINE void find(const Single &x, const Single &y, int32_t place, Place &found) {
    found.value = x.value < y.value ? found.value : place;
}
INLINE void find(const Vec &x, const Vec &y, int32_t place, Places &found) {
    for (int i = 0; i < PARTS; i++) found.part[i] = x.part[i] < y.part[i] ? found.part[i] : NativeInt{} + place;
}
// An element x at `place` wins where it is larger than what was found.
INLINE void win(const Single &x, int32_t place, Single &found, Place &winner) {
    winner.value = x.value > found.value ? place : winner.value;
    found = larger(found, x);
}
INLINE void win(const Vec &x, int32_t place, Vec &found, Places &winner) {
    for (int i = 0; i < PARTS; i++) winner.part[i] = x.part[i] > found.part[i] ? NativeInt{} + place : winner.part[i];
    found = larger(found, x);
}
// The winner of a maximum that is NaN is the first element.
INLINE void settle(const Single &found, int32_t first, Place &winner) {
    if (found.value != found.value) winner.value = first;
}
INLINE void settle(const Vec &found, int32_t first, Places &winner) {
    for (int i = 0; i < PARTS; i++)
        winner.part[i] = found.part[i] == found.part[i] ? winner.part[i] : NativeInt{} + first;
}
// `grad` where the winner is at `place`, else 0.
INLINE Single share_of(const Single &grad, const Place &winner, int32_t place) {
    return {winner.value == place ? grad.value : 0.0f};
}
INLINE Vec share_of(const Vec &grad, const Places &winner, int32_t place) {
    Vec share;
    for (int i = 0; i < PARTS; i++) share.part[i] = winner.part[i] == place ? grad.part[i] : Native{};
    return share;
}

constexpr int AXES = 3;

struct Windows {
    int64_t planes, blocked, kind, include_pad;
    int64_t in[AXES], out[AXES], kernel[AXES], stride[AXES], pad[AXES];

    int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
    int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
    // No input lies in two windows, and each lies in one.
    bool tiles() const {
        for (int i = 0; i < AXES; i++)
            if (stride[i] != kernel[i] || pad[i] != 0 || out[i] * stride[i] < in[i]) return false;
        return true;
    }
};

// The part of one output's window that lies in the image, where it begins in it, and what an average divides by.
struct Window {
    int64_t start[AXES], first[AXES], last[AXES];
    float count;
};

INLINE void clip(const Windows &w, int axis, int64_t at, Window &window) {
    const int64_t start = at * w.stride[axis] - w.pad[axis], end = start + w.kernel[axis], length = w.in[axis];
    window.start[axis] = start;
    window.first[axis] = start < 0 ? 0 : start;
    window.last[axis] = end < length ? end : length;
    window.count *= static_cast<float>(w.include_pad ? least(end, length + w.pad[axis]) - start
                                                     : window.last[axis] - window.first[axis]);
}

// Call body(offset of an input pixel) for each in a window, in row-major order.
template <class Body> INLINE void each_tap(const Windows &w, const Window &window, int64_t lanes, const Body &body) {
    for (int64_t d = window.first[0]; d < window.last[0]; d++)
        for (int64_t h = window.first[1]; h < window.last[1]; h++) {
            const int64_t row = (d * w.in[1] + h) * w.in[2];
            for (int64_t x = window.first[2]; x < window.last[2]; x++) body((row + x) * lanes);
        }
}

// Call body(offset, place in the window) as each_tap does.
template <class Body> INLINE void each_place(const Windows &w, const Window &window, int64_t lanes, const Body &body) {
    for (int64_t d = window.first[0]; d < window.last[0]; d++)
        for (int64_t h = window.first[1]; h < window.last[1]; h++) {
            const int64_t row = (d * w.in[1] + h) * w.in[2];
            const int64_t places = ((d - window.start[0]) * w.kernel[1] + h - window.start[1]) * w.kernel[2];
            for (int64_t x = window.first[2]; x < window.last[2]; x++)
                body((row + x) * lanes, static_cast<int32_t>(places + x - window.start[2]));
        }
}

// The place of the first element of a window.
INLINE int32_t first_place(const Windows &w, const Window &window) {
    const int64_t row = (window.first[0] - window.start[0]) * w.kernel[1] + window.first[1] - window.start[1];
    return static_cast<int32_t>(row * w.kernel[2] + window.first[2] - window.start[2]);
}

// The same as each_place in the reverse order.
template <class Body>
INLINE void each_place_back(const Windows &w, const Window &window, int64_t lanes, const Body &body) {
    for (int64_t d = window.last[0] - 1; d >= window.first[0]; d--)
        for (int64_t h = window.last[1] - 1; h >= window.first[1]; h--) {
            const int64_t row = (d * w.in[1] + h) * w.in[2];
            const int64_t places = ((d - window.start[0]) * w.kernel[1] + h - window.start[1]) * w.kernel[2];
            for (int64_t x = window.last[2] - 1; x >= window.first[2]; x--)
                body((row + x) * lanes, static_cast<int32_t>(places + x - window.start[2]));
        }
}

// Call body(output pixel, window) for the outputs of a row (of the first two axes) of a plane.
template <class Body> INLINE void each_window(const Windows &w, int64_t row, const Body &body) {
    Window above;
    above.count = 1.0f;
    clip(w, 0, row / w.out[1], above), clip(w, 1, row % w.out[1], above);
    for (int64_t x = 0; x < w.out[2]; x++) {
        Window window = above;
        clip(w, 2, x, window);
        body(row * w.out[2] + x, window);
    }
}

template <class V> constexpr int64_t lanes_of() { return sizeof(V) / sizeof(float); }

template <class Work> void with_lanes(bool blocked, const Work &work) {
    if (blocked) work(Vec::zero());
    else work(Single::zero());
}

// Call body(nothing, plane, its data, offset of the output, window) for the outputs of all planes, in parallel.
template <class Body> void all_windows(const Windows &w, const float *data, const Body &body) {
    const int64_t rows = w.out[0] * w.out[1], wide = largest(1, TASK_PIXELS / largest(1, w.out[2]));
    const int64_t cuts = (rows + wide - 1) / wide;
    with_lanes(w.blocked, [&](auto nothing) {
        parallel(w.planes * cuts, [&](int64_t task) {
            constexpr int64_t lanes = lanes_of<decltype(nothing)>();
            const int64_t plane = task / cuts, first = task % cuts * wide;
            const float *from = data + plane * w.in_pixels() * lanes;
            for (int64_t row = first; row < least(rows, first + wide); row++)
                each_window(w, row, [&](int64_t at, const Window &window) {
                    body(nothing, plane, from, (plane * w.out_pixels() + at) * lanes, window);
                });
        });
    });
}

struct ForwardArgs {
    const float *data;
    float *out;
    Windows w;
};

// The offset of the first element of a window.
INLINE int64_t first_of(const Windows &w, const Window &window, int64_t lanes) {
    return ((window.first[0] * w.in[1] + window.first[1]) * w.in[2] + window.first[2]) * lanes;
}

void pooling_forward(const ForwardArgs &a) {
    const Windows &w = a.w;
    all_windows(w, a.data, [&](auto nothing, int64_t, const float *data, int64_t to, const Window &window) {
        using V = decltype(nothing);
        constexpr int64_t lanes = lanes_of<V>();
        V found = nothing;
        if (w.kind == MAXIMUM) {
            found = V::load(data + first_of(w, window, lanes));
            each_tap(w, window, lanes, [&](int64_t i) { found = larger(found, V::load(data + i)); });
        } else {
            each_tap(w, window, lanes, [&](int64_t i) { found += V::load(data + i); });
            if (w.kind == AVERAGE) found = divided(found, window.count);
        }
        found.store(a.out + to);
    });
}

struct WithWinnersArgs {
    const float *data;
    float *out;
    uint8_t *winners;
    int64_t blocks, last;  // of channels, and lanes of the last one that are no padding
    Windows w;
};

// The maxima, and the winners beside them.
void pooling_forward_winners(const WithWinnersArgs &a) {
    const Windows &w = a.w;
    all_windows(w, a.data, [&](auto nothing, int64_t plane, const float *data, int64_t to, const Window &window) {
        using V = decltype(nothing);
        constexpr int64_t lanes = lanes_of<V>();
        V found = V::load(data + first_of(w, window, lanes));
        const int32_t first = first_place(w, window);
        auto winner = places_of(nothing, first);
        each_place(w, window, lanes, [&](int64_t i, int32_t place) { win(V::load(data + i), place, found, winner); });
        settle(found, first, winner);
        if (plane % a.blocks == a.blocks - 1) winner.keep(a.last);
        found.store(a.out + to);
        winner.store(a.winners + to);
    });
}

struct WinnersArgs {
    const float *data, *pooled;
    uint8_t *winners;
    int64_t blocks, last;  // as above
    Windows w;
};

void pooling_winners(const WinnersArgs &a) {
    const Windows &w = a.w;
    all_windows(w, a.data, [&](auto nothing, int64_t plane, const float *data, int64_t to, const Window &window) {
        using V = decltype(nothing);
        constexpr int64_t lanes = lanes_of<V>();
        const V y = V::load(a.pooled + to);
        auto found = places_of(nothing);
        each_place_back(w, window, lanes, [&](int64_t i, int32_t place) { find(V::load(data + i), y, place, found); });
        if (plane % a.blocks == a.blocks - 1) found.keep(a.last);
        found.store(a.winners + to);
    });
}

// Call body(gradient, offset of the plane in the data, offset in the output, window, give) for all outputs; it hands each
// share of the gradient to give(offset in the plane, share).
template <class Body> void spread(const Windows &w, const float *grad, float *data_grad, const Body &body) {
    const bool tiles = w.tiles();
    with_lanes(w.blocked, [&](auto nothing) {
        using V = decltype(nothing);
        constexpr int64_t lanes = lanes_of<V>();
        parallel(w.planes, [&](int64_t plane) {
            const int64_t in = plane * w.in_pixels() * lanes;
            float *to = data_grad + in;
            if (!tiles) std::memset(to, 0, static_cast<size_t>(w.in_pixels() * lanes) * sizeof(float));
            const auto give = [&](int64_t i, V share) {
                if (!tiles) share += V::load(to + i);
                share.store(to + i);
            };
            for (int64_t row = 0; row < w.out[0] * w.out[1]; row++)
                each_window(w, row, [&](int64_t at, const Window &window) {
                    const int64_t out = (plane * w.out_pixels() + at) * lanes;
                    body(V::load(grad + out), in, out, window, give);
                });
        });
    });
}

struct BackwardArgs {
    const float *grad, *data, *pooled;  // the last two for maxima only
    float *data_grad;
    Windows w;
};

void pooling_backward(const BackwardArgs &a) {
    const Windows &w = a.w;
    spread(w, a.grad, a.data_grad, [&](auto rest, int64_t in, int64_t out, const Window &window, const auto &give) {
        using V = decltype(rest);
        constexpr int64_t lanes = lanes_of<V>();
        if (w.kind == MAXIMUM) {
            const V y = V::load(a.pooled + out);
            each_tap(w, window, lanes, [&](int64_t i) { give(i, won(V::load(a.data + in + i), y, rest)); });
        } else {
            if (w.kind == AVERAGE) rest = divided(rest, window.count);
            each_tap(w, window, lanes, [&](int64_t i) { give(i, rest); });
        }
    });
}

struct ByWinnersArgs {
    const float *grad;
    const uint8_t *winners;
    float *data_grad;
    Windows w;
};

void pooling_by_winners(const ByWinnersArgs &a) {
    const Windows &w = a.w;
    spread(w, a.grad, a.data_grad, [&](auto grad, int64_t, int64_t out, const Window &window, const auto &give) {
        using V = decltype(grad);
        const auto winner = decltype(places_of(grad))::load(a.winners + out);
        each_place(w, window, lanes_of<V>(), [&](int64_t i, int32_t place) { give(i, share_of(grad, winner, place)); });
    });
}

struct WholeForwardArgs {
    const float *data;
    float *out;
    int64_t planes, pixels, blocked, kind;
};

template <class V> INLINE V whole(const float *data, int64_t pixels, int64_t kind) {
    constexpr int64_t lanes = lanes_of<V>();
    V found = kind == MAXIMUM ? V::load(data) : V::zero();
    for (int64_t begin = 0; begin < pixels; begin += RUN) {
        V part = V::zero();
        for (int64_t i = begin; i < least(pixels, begin + RUN); i++) {
            if (kind == MAXIMUM) found = larger(found, V::load(data + i * lanes));
            else part += V::load(data + i * lanes);
        }
        if (kind != MAXIMUM) found += part;
    }
    return kind == AVERAGE ? divided(found, static_cast<float>(pixels)) : found;
}

void pooling_whole_forward(const WholeForwardArgs &a) {
    with_lanes(a.blocked, [&](auto nothing) {
        using V = decltype(nothing);
        constexpr int64_t lanes = lanes_of<V>();
        const int64_t wide = largest(1, TASK_PIXELS / largest(1, a.pixels));
        parallel((a.planes + wide - 1) / wide, [&](int64_t task) {
            for (int64_t plane = task * wide; plane < least(a.planes, (task + 1) * wide); plane++)
                whole<V>(a.data + plane * a.pixels * lanes, a.pixels, a.kind).store(a.out + plane * lanes);
        });
    });
}

struct WholeBackwardArgs {
    const float *grad, *data;
    float *data_grad;
    int64_t planes, pixels, blocked, kind;
};

void pooling_whole_backward(const WholeBackwardArgs &a) {
    with_lanes(a.blocked, [&](auto nothing) {
        using V = decltype(nothing);
        constexpr int64_t lanes = lanes_of<V>();
        const int64_t wide = largest(1, TASK_PIXELS / largest(1, a.pixels));
        parallel((a.planes + wide - 1) / wide, [&](int64_t task) {
            for (int64_t plane = task * wide; plane < least(a.planes, (task + 1) * wide); plane++) {
                const int64_t at = plane * a.pixels * lanes;
                V rest = V::load(a.grad + plane * lanes);
                if (a.kind == MAXIMUM) {
                    const V y = whole<V>(a.data + at, a.pixels, MAXIMUM);
                    for (int64_t i = 0; i < a.pixels; i++)
                        won_whole(V::load(a.data + at + i * lanes), y, rest).store(a.data_grad + at + i * lanes);
                } else {
                    if (a.kind == AVERAGE) rest = divided(rest, static_cast<float>(a.pixels));
                    for (int64_t i = 0; i < a.pixels; i++) rest.store(a.data_grad + at + i * lanes);
                }
            }
        });
    });
}

}  // namespace

KERNEL(pooling_forward, ForwardArgs)
KERNEL(pooling_backward, BackwardArgs)
KERNEL(pooling_forward_winners, WithWinnersArgs)
KERNEL(pooling_winners, WinnersArgs)
KERNEL(pooling_by_winners, ByWinnersArgs)
KERNEL(pooling_whole_forward, WholeForwardArgs)
KERNEL(pooling_whole_backward, WholeBackwardArgs)

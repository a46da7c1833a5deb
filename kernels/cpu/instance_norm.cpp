// Normalisation of each channel of each instance by its own statistics, and its gradients.
//
// Contract: the output may lie on the data, the data's gradient on the data or the output's gradient. Sums are float32
// over some places of a plane, then float64; those over images are made in ascending order. A plane is centred by the
// rounded mean and by what rounding took from it.
#include <cmath>

#include "functions.h"
#include "kernel.h"
#include "planes.h"
#include "pool.h"

namespace {

struct ForwardArgs {
    const float *data, *gamma, *beta;
    float *out, *mean, *inverse;
    Planes planes;
    double eps;
};

double share_of(const Planes &planes) { return 1.0 / static_cast<double>(planes.pixels > 0 ? planes.pixels : 1); }

void scale(double (&numbers)[LANES], double by) {
    for (double &number : numbers) number *= by;
}

void instance_norm_forward(const ForwardArgs &a) {
    const double share = share_of(a.planes);
    for_planes(a.planes, [&](const Plane &plane, int64_t) {
        double sums[LANES], rests[LANES], squares[LANES];
        plane.sum([&](auto access, int64_t at) { return access.load(a.data + at); }, sums);
        scale(sums, share);
        const Vec centre = vector_of(sums);
        plane.sum([&](auto access, int64_t at) { return access.load(a.data + at) - centre; }, rests);
        scale(rests, share);
        const Vec correction = vector_of(rests);
        plane.sum([&](auto access, int64_t at) {
            const Vec centred = access.load(a.data + at) - centre - correction;
            return centred * centred;
        }, squares);
        double inverse[LANES] = {};
        for (int64_t i = 0; i < plane.lanes; i++) inverse[i] = 1.0 / std::sqrt(squares[i] * share + a.eps);
        float centres[LANES];
        centre.store(centres);
        const int64_t first = plane.image * a.planes.channels + plane.channel;
        for (int64_t i = 0; i < plane.lanes; i++) {
            a.mean[first + i] = static_cast<float>(centres[i] + rests[i]);
            a.inverse[first + i] = static_cast<float>(inverse[i]);
        }
        const Vec deviation = plane.in_rows() ? Vec::of(static_cast<float>(inverse[0])) : vector_of(inverse);
        const Vec factor = deviation * plane.numbers(a.gamma), shift = plane.numbers(a.beta);
        plane.each([&](auto access, int64_t at) {
            Vec result = shift;
            result.add_product(access.load(a.data + at) - centre - correction, factor);
            access.store(a.out + at, result);
        });
    });
}

struct BackwardArgs {
    const float *grad, *data, *gamma, *mean, *inverse;
    float *data_grad, *gamma_grad, *beta_grad;
    double *parts;  // of each image and channel the term of gamma's gradient, then of each that of beta's
    Planes planes;
};

void sum_images(const BackwardArgs &a) {
    const int64_t count = a.planes.images * a.planes.channels;
    for (int64_t channel = 0; channel < a.planes.channels; channel++) {
        double products = 0, sum = 0;
        for (int64_t at = channel; at < count; at += a.planes.channels)
            products += a.parts[at], sum += a.parts[count + at];
        a.gamma_grad[channel] = static_cast<float>(products), a.beta_grad[channel] = static_cast<float>(sum);
    }
}

void instance_norm_backward(const BackwardArgs &a) {
    const double share = share_of(a.planes);
    const int64_t count = a.planes.images * a.planes.channels;
    for_planes(a.planes, [&](const Plane &plane, int64_t) {
        const int64_t image = plane.image * a.planes.channels, first = image + plane.channel;
        const Vec mean = plane.numbers(a.mean + image), inverse = plane.numbers(a.inverse + image);
        const auto normal = [&](auto access, int64_t at) { return (access.load(a.data + at) - mean) * inverse; };
        double sums[LANES], products[LANES];
        plane.sum([&](auto access, int64_t at) { return access.load(a.grad + at); }, sums);
        plane.sum([&](auto access, int64_t at) { return access.load(a.grad + at) * normal(access, at); }, products);
        for (int64_t i = 0; i < plane.lanes; i++)
            a.parts[first + i] = products[i], a.parts[count + first + i] = sums[i];
        scale(sums, share);
        scale(products, share);
        const Vec shift = vector_of(sums), slope = vector_of(products), factor = inverse * plane.numbers(a.gamma);
        plane.each([&](auto access, int64_t at) {
            access.store(a.data_grad + at, (access.load(a.grad + at) - shift - normal(access, at) * slope) * factor);
        });
    });
    sum_images(a);
}

}  // namespace

KERNEL(instance_norm_forward, ForwardArgs)
KERNEL(instance_norm_backward, BackwardArgs)

"""Batch normalisation by the statistics of the batch, and its gradients."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, Shape
from .activation import SLOPES
from .channels import (
    Part,
    PartOf,
    Statistics,
    channel_layout,
    channel_parts,
    normalise,
    normalise_part,
    part_scratch,
    parts_of,
    statistics_scratch,
)
from .norm import (
    Normalisation,
    NormaliseParams,
    StatisticsOp,
    Types,
    refuse_statistics_gradient,
    scale_of,
    sliced_by_channels,
)
from .op import Arrays, Sample, Sliced, Workspace
from .registry import register


@register
class _BatchNormTrain(Normalisation):
    """Normalise by the statistics of the batch, outputs too; an empty batch has mean and variance 0.

    `rest` is what rounding took from the mean: with it, mean and var give the same output again.
    """

    name = "_batchnorm_train"
    has_stages = True
    vectors = ("gamma", "beta")
    addend_at = 3

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output", "mean", "var", "rest")

    def visible_outputs(self, p: Any) -> int:
        return 1

    def replay(self, p: NormaliseParams) -> tuple[str, tuple[int, ...]]:
        return "_batchnorm_apply", (1, 2, 3)

    def read_again(self, p: Any) -> tuple[str, ...]:
        return ("data",)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        refuse_statistics_gradient("BatchNorm", grads)
        if grads[0] is None or not any(wanted):
            return [None] * len(ins)
        saved = [ins[0], ins[1], outs[1], outs[2]]
        if p.act_type is not None:
            saved += [ins[2], outs[3]] if sign_from_data(p) else [outs[0]]
        data, gamma, beta, *addend = b.node("_batchnorm_backward", [grads[0], *saved], **vars(p))
        found = [data, None if p.fix_gamma else gamma, beta]
        return [*found, *(addend or grads[:1])] if p.addend else found

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        scratch = Workspace.bytes_for(*statistics_scratch(p.axis, ins[0]))
        return (Algorithm("chunks", scratch, chunk_rows=Statistics.rows(p.axis, ins[0])),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, gamma, beta, *_ = ins
        out, mean, var, rest = outs
        s = Statistics(p.axis, data, work)
        exact, variance = np.zeros(s.layout[2]), np.zeros(s.layout[2])
        s.merge_moments(exact, variance)
        mean[...], var[...] = exact, variance / max(1, s.count)
        rest[...] = exact - mean
        scale, shift = scale_and_shift(p, gamma, beta, var, rest)
        normalise(s.data, mean, scale, shift, out.reshape(s.layout), s.parts, self.epilogue(p, ins, [s.part]))

    def stages(self, b: Builder, p: NormaliseParams, ins: Sequence[Entry]) -> Sequence[Entry]:
        count = elements_a_channel(p.axis, b.shape(ins[0]))
        moments, = b.node("_batchnorm_moments", [ins[0]], axis=p.axis)
        statistics = b.node("_batchnorm_statistics", [moments], count=count, dtype=b.dtype(ins[0]))
        out, = b.node("_batchnorm_apply", [*ins, *statistics], **vars(p))
        return out, *statistics

    def samples(self) -> Sequence[Sample]:
        def sample(shape: Shape, **p: Any) -> Sample:
            vector, addend = (shape[p.get("axis", 1)],), (shape,) * p.get("addend", False)
            return Sample(p, (shape, vector, vector, *addend), differentiable=p.get("act_type") != "relu")
        return (sample((3, 2, 4, 5), fix_gamma=False, act_type="relu"), sample((2, 3, 3), act_type="sigmoid"),
                sample((4, 3, 2), fix_gamma=False, addend=True, axis=-1),
                sample((2, 3, 5), fix_gamma=False, addend=True, act_type="relu"),
                sample((2, 3, 2, 2), fix_gamma=False, addend=True, act_type="tanh", axis=2))


def sign_from_data(p: NormaliseParams) -> bool:
    """Whether backward finds the activation's slope from data, which it reads anyway, and not from the output."""
    return p.act_type == "relu" and not p.addend


def scale_and_shift(p: NormaliseParams, gamma: np.ndarray, beta: np.ndarray, var: np.ndarray, rest: np.ndarray,
                    ) -> tuple[np.ndarray, np.ndarray]:
    """The vectors by which data less the rounded mean is scaled and shifted, in float64."""
    scale = scale_of(p, gamma, var)
    return scale, beta - rest.astype(np.float64) * scale


@register
class _BatchNormApply(Normalisation):
    """What _batchnorm_train makes of its inputs, by statistics that it made before."""

    name = "_batchnorm_apply"
    vectors = ("gamma", "beta", "mean", "var", "rest")
    addend_at = 3

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return sliced_by_channels(self, p, ins, outs)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, gamma, beta, *_ = ins
        mean, var, rest = ins[-3:]
        layout = channel_layout(p.axis, data.shape)
        parts = list(channel_parts(layout, data.dtype.itemsize))
        scale, shift = scale_and_shift(p, gamma, beta, var, rest)
        normalise(data.reshape(layout), mean, scale, shift, outs[0].reshape(layout), parts,
                  self.epilogue(p, ins, self.take(p, data, work)))

    def samples(self) -> Sequence[Sample]:
        def sample(shape: Shape, **p: Any) -> Sample:
            vector, addend = (shape[p.get("axis", 1)],), (shape,) * p.get("addend", False)
            return Sample(p, (shape, vector, vector, *addend, *(vector,) * 3), low=0.5, high=2.0)
        return (sample((3, 2, 4, 5), fix_gamma=False), sample((2, 3, 3), act_type="sigmoid"),
                sample((2, 3, 5), fix_gamma=False, addend=True, act_type="relu", axis=2))


@register
class _BatchNormBackward(StatisticsOp):
    """Gradients of the training form, from (out_grad, data, gamma, mean, var).

    Under an activation out_grad is first multiplied by its slope: relu's comes from data, beta and rest, where there is
    no addend, and that of others from the output. The product is the gradient by the addend.
    """

    name = "_batchnorm_backward"
    has_stages = True
    vectors = ("gamma", "mean", "var")
    tensor = 1

    def inputs(self, p: NormaliseParams) -> tuple[str, ...]:
        slope = () if p.act_type is None else ("beta", "rest") if sign_from_data(p) else ("out",)
        return ("out_grad", "data", *self.vectors, *slope)

    def outputs(self, p: NormaliseParams) -> tuple[str, ...]:
        addend = ("addend_grad",) if p.act_type is not None and p.addend else ()
        return ("data_grad", "gamma_grad", "beta_grad", *addend)

    def unread(self, p: NormaliseParams) -> tuple[int, ...]:
        return (2,) if p.fix_gamma else ()

    def read_again(self, p: NormaliseParams) -> tuple[str, ...]:
        """data and the sloped gradient: as it was stored for the addend, or made once more from what it was made of."""
        if p.act_type is not None and p.addend:
            return ("data", "addend_grad")
        return ("data", "out_grad") if p.act_type is None or sign_from_data(p) else ("data", "out_grad", "out")

    def inplace(self, p: NormaliseParams) -> tuple[tuple[int, int], ...]:
        """Over data where that dies: then gradients lie where activations lay, and leave whole gaps behind."""
        if p.act_type is None:
            return (0, 0), (1, 0)
        return ((1, 0), (0, 3), (5, 3)) if p.addend else ((1, 0), (0, 0))

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        alone = p.act_type is not None and not p.addend
        part = [part_scratch(channel_layout(p.axis, ins[0].shape), ins[0].dtype)] if alone else []
        scratch = Workspace.bytes_for(*statistics_scratch(p.axis, ins[1]), *part)
        return (Algorithm("chunks", scratch, chunk_rows=Statistics.rows(p.axis, ins[1])),)

    def stages(self, b: Builder, p: NormaliseParams, ins: Sequence[Entry]) -> Sequence[Entry]:
        whole = {**vars(p), "count": elements_a_channel(p.axis, b.shape(ins[1]))}
        sums, *addend_grad = b.node("_batchnorm_backward_sums", ins, **whole)
        gamma_grad, beta_grad = b.node("_batchnorm_backward_params", [sums, ins[4]], eps=p.eps, dtype=b.dtype(ins[1]))
        if addend_grad:  # the slope is in it already
            ins, whole = [*addend_grad, *ins[1:5]], {**whole, "act_type": None, "addend": False}
        data_grad, = b.node("_batchnorm_backward_data", [*ins, sums], **whole)
        return data_grad, gamma_grad, beta_grad, *addend_grad

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, gamma, mean, var, *_ = ins
        s = Statistics(p.axis, data, work)
        grad = grad.reshape(s.layout)
        into = outs[3].reshape(s.layout) if p.act_type is not None and p.addend else None
        sloped = sloped_parts(p, s, ins, work, into)
        sums, products = s.moments(mean, sloped)
        if into is not None:
            sloped = parts_of(into)
        outs[1][...], outs[2][...] = products * (1 / np.sqrt(var.astype(np.float64) + p.eps)), sums
        vectors = gradient_vectors(p, gamma, var, sums, products, s.count)
        write_data_gradient(s, sloped, mean, vectors, outs[0].reshape(s.layout))


def sloped_parts(p: NormaliseParams, s: Statistics, ins: Arrays, work: Workspace, into: np.ndarray | None) -> PartOf:
    """Gives parts of out_grad times the activation's slope: as they are without one, else in scratch, or in `into`.

    `ins` are those of `_batchnorm_backward`, or begin with them.
    """
    grad, _, gamma, mean, var, *saved = ins
    grad = grad.reshape(s.layout)
    if p.act_type is None:
        return parts_of(grad)
    slope_of = SLOPES[p.act_type]
    scratch = work.array(*part_scratch(s.layout, grad.dtype)) if into is None else None
    if sign_from_data(p):
        line = scale_and_shift(p, gamma, saved[0], var, saved[1])
        vectors = [vector.astype(grad.dtype, copy=False)[:, None] for vector in (mean, *line)]
    else:
        out = saved[0].reshape(s.layout)

    def sloped(part: Part) -> np.ndarray:
        values = grad[part]
        slope = s.scratch(part) if scratch is None else scratch[:values.size].reshape(values.shape)
        if sign_from_data(p):
            normalise_part(s.data[part], part[2], vectors, slope)
            slope_of(slope, slope)
        else:
            slope_of(out[part], slope)
        return np.multiply(values, slope, out=slope if into is None else into[part])
    return sloped


def gradient_vectors(p: NormaliseParams, gamma: np.ndarray, var: np.ndarray, sums: np.ndarray, products: np.ndarray,
                     count: int) -> list[np.ndarray]:
    """Scale, slope and shift of the data gradient: grad scale + (data - mean) slope + shift, in float64."""
    inverse, scale = 1 / np.sqrt(var.astype(np.float64) + p.eps), scale_of(p, gamma, var)
    return [scale, -scale * inverse * inverse * products / max(1, count), -scale * sums / max(1, count)]


def write_data_gradient(s: Statistics, grad: PartOf, mean: np.ndarray, vectors: Sequence[np.ndarray],
                        out: np.ndarray) -> None:
    """Write out = grad * scale + (data - mean) * slope + shift, with `vectors` scale, slope and shift."""
    scale, slope, shift = (vector.astype(out.dtype)[:, None] for vector in vectors)
    for part in s.parts:
        values = grad(part)
        term = s.centred(part, mean[part[2]])
        np.multiply(term, slope[part[2]], out=term)
        np.add(term, shift[part[2]], out=term)
        np.multiply(values, scale[part[2]], out=out[part])
        np.add(out[part], term, out=out[part])


def elements_a_channel(axis: int, shape: Shape) -> int:
    """Elements of a tensor a channel."""
    layout = channel_layout(axis, shape)
    return layout[0] * layout[1] * layout[3]

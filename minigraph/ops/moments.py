"""moments: the mean and the variance over some axes."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, merge_shapes
from .params import param
from .registry import get_op, register


@dataclass(frozen=True)
class MomentsParams:
    """Parameters of moments."""

    axes: tuple[int, ...] | None = param(None, "shape", "axes over which moments are taken; all of them when not given")
    keepdims: bool = param(False, "bool", "keep those axes with length 1")


@register
class Moments(Op):
    """The mean of data over some axes, and its biased variance, in two passes over data."""

    name = "moments"
    Params = MomentsParams

    def outputs(self, p: MomentsParams) -> tuple[str, ...]:
        return ("output0", "output1")

    def infer_shape(self, p: MomentsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        mean = get_op("mean")
        ins, (out,) = mean.infer_shape(mean.Params(axis=p.axes, keepdims=p.keepdims), ins, [merge_shapes(*outs)])
        return ins, [out, out]

    def expand(self, b: Builder, p: MomentsParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        mean = only(b.node("mean", ins, axis=p.axes, keepdims=True))
        squares = b.node("square", b.node("broadcast_sub", [ins[0], mean]))
        var = only(b.node("mean", squares, axis=p.axes, keepdims=p.keepdims))
        return [mean if p.keepdims else only(b.node("_reshape_like", [mean, var])), var]

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,)) for params, shape in (
            ({"axes": (0,)}, (3, 4)), ({"axes": (0, 2), "keepdims": True}, (2, 3, 4)), ({"axes": (-1,)}, (2, 5)),
            ({}, (2, 3)))]

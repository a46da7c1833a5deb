"""GroupNorm: InstanceNorm over groups of channels."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import Builder, Entry, PartialShape, Shape
from .elemwise import only
from .op import Op, Sample, ShapeError, format_shape, merge_shapes
from .params import param
from .registry import register


@dataclass(frozen=True)
class GroupNormParams:
    """Parameters of GroupNorm."""

    num_groups: int = param(1, "int", "groups that the channels are parted into")
    eps: float = param(1e-5, "float", "added to the variance")
    output_mean_var: bool = param(False, "bool", "whether the groups' means and deviations are outputs too")


@register
class GroupNorm(Op):
    """data (N, C, ...) less its mean, over its deviation, within each group of neighbouring channels of an instance.

    gamma and beta are a number a group, as in MXNet 1.x. The hidden outputs, of shape (N, num_groups), are the means
    and the deviations sqrt(var + eps).
    """

    name = "GroupNorm"
    Params = GroupNormParams

    def inputs(self, p: GroupNormParams) -> tuple[str, ...]:
        return ("data", "gamma", "beta")

    def outputs(self, p: GroupNormParams) -> tuple[str, ...]:
        return ("output", "mean", "std")

    def visible_outputs(self, p: GroupNormParams) -> int:
        return 3 if p.output_mean_var else 1

    def infer_shape(self, p: GroupNormParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.num_groups < 1:
            raise ShapeError(f"num_groups {p.num_groups} must be at least 1")
        data, vector = merge_shapes(ins[0], outs[0]), merge_shapes(*ins[1:], (p.num_groups,))
        batch = None
        if data is not None:
            if len(data) < 3:
                raise ShapeError(f"data {format_shape(data)} must have a batch, channels and places")
            if data[1] is not None and data[1] % p.num_groups:
                raise ShapeError(f"data {format_shape(data)} has {data[1]} channels, which cannot be parted into "
                                 f"num_groups {p.num_groups} groups")
            batch = data[0]
        rows = merge_shapes((batch, p.num_groups), *outs[1:])
        return [data, vector, vector], [data, rows, rows]

    def expand(self, b: Builder, p: GroupNormParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        data, gamma, beta = ins
        grouped = only(b.node("Reshape", [data], shape=(0, p.num_groups, -1)))
        out, mean, inverse = b.node("InstanceNorm", [grouped, gamma, beta], eps=p.eps)
        deviation = only(b.node("reciprocal", [inverse])) if p.output_mean_var else inverse
        return [only(b.node("_reshape_like", [out, data])), mean, deviation]

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[int, float, Shape]] = [(2, 1e-5, (2, 4, 3)), (1, 0.1, (3, 2, 2, 2)), (3, 1e-5, (2, 6, 2, 3))]
        return [Sample({"num_groups": groups, "eps": eps}, (shape, (groups,), (groups,)), rtol=1e-3)
                for groups, eps, shape in cases]

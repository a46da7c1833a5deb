"""The loss scale: gradients multiplied by it where they begin, a check that they all are finite, and what undoes it.

The scale is a word of the control buffer (control.py), and a power of two, so that no bit of a gradient changes but
where one leaves the range of its dtype. `_check_finite` says in one number what becomes of a step: what updates
multiply their gradients by first, or 0, by which they leave weight and states as they are.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Algorithm, PartialShape, TensorType
from .control import LOSS_SCALE, with_words
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .params import param
from .pointwise import BLOCK, blocks
from .registry import register

FLOAT32 = np.dtype(np.float32)


def factor_of(control: np.ndarray, dtype: np.dtype, inverse: bool) -> np.floating:
    """The loss scale of a control buffer for gradients of a dtype, or what undoes it; in float32 at least."""
    number = np.promote_types(dtype, FLOAT32).type
    with np.errstate(divide="ignore"):
        return number(1) / number(control[LOSS_SCALE]) if inverse else number(control[LOSS_SCALE])


@dataclass(frozen=True)
class ScaleGradientParams:
    """Parameters of a gradient times the loss scale."""

    inverse: bool = param(False, "bool", "divide by the loss scale instead")


@register
class ScaleGradient(Op):
    """grad times the loss scale, or with `inverse` divided by it; at least in float32, whatever the dtype."""

    name = "_scale_gradient"
    Params = ScaleGradientParams
    recompute = "cheap"

    def inputs(self, p: ScaleGradientParams) -> tuple[str, ...]:
        return ("grad", "control")

    def infer_shape(self, p: ScaleGradientParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[0], outs[0])
        return [shape, with_words(ins[1])], [shape]

    def infer_dtype(self, p: ScaleGradientParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        dtype = ins[0] or outs[0]
        return [dtype, FLOAT32], [dtype]

    def inplace(self, p: ScaleGradientParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: ScaleGradientParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1,))

    def compute(self, p: ScaleGradientParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.multiply(ins[0], factor_of(ins[1], ins[0].dtype, p.inverse), out=outs[0], casting="same_kind")

    def samples(self) -> Sequence[Sample]:
        return [Sample({"inverse": inverse}, ((3, 5), (8,)), low=0.5, differentiable=False)
                for inverse in (False, True)]


@dataclass(frozen=True)
class FindNonfiniteParams:
    """Parameters of a search for what is not finite."""

    goes_on: bool = param(False, "bool", "whether a last input says what other tensors held")


@register
class FindNonfinite(Op):
    """1 when a tensor holds NaN or an infinity, or `found` is 1 already, and else 0; float32, shape (1,)."""

    name = "_find_nonfinite"
    Params = FindNonfiniteParams
    recompute = "never"

    def inputs(self, p: FindNonfiniteParams) -> tuple[str, ...]:
        return ("grad", "found") if p.goes_on else ("grad",)

    def outputs(self, p: FindNonfiniteParams) -> tuple[str, ...]:
        return ("found",)

    def inplace(self, p: FindNonfiniteParams) -> tuple[tuple[int, int], ...]:
        return ((1, 0),) if p.goes_on else ()

    def infer_shape(self, p: FindNonfiniteParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        found = merge_shapes((1,), outs[0], *ins[1:])
        return [ins[0], *[found] * (len(ins) - 1)], [found]

    def infer_dtype(self, p: FindNonfiniteParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [ins[0], *[FLOAT32] * (len(ins) - 1)], [FLOAT32]

    def algorithms(self, p: FindNonfiniteParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", Workspace.bytes_for(((min(ins[0].size, BLOCK),), np.bool_))),)

    def compute(self, p: FindNonfiniteParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = work.array((min(ins[0].size, BLOCK),), np.bool_)
        found = p.goes_on and ins[1][0] != 0
        for (block,) in blocks(ins[0]):
            finite = np.isfinite(block, out=scratch[:block.size])
            found = found or not finite.all()
        outs[0][0] = found

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 5),), differentiable=False),
                Sample({"goes_on": True}, ((3, 5), (1,)), integer={"found": 2}, differentiable=False)]


@dataclass(frozen=True)
class CheckFiniteParams:
    """Parameters of the check of a step."""

    scaled: bool = param(True, "bool", "whether gradients are times the loss scale still")


@register
class CheckFinite(Op):
    """The state `unscale` becomes what updates multiply gradients by: 0 when `found` is not 0, else 1 / loss scale, or
    1 for gradients that are divided by it already."""

    name = "_check_finite"
    Params = CheckFiniteParams
    recompute = "never"

    def inputs(self, p: CheckFiniteParams) -> tuple[str, ...]:
        return ("unscale", "found", "control")

    def outputs(self, p: CheckFiniteParams) -> tuple[str, ...]:
        return ("unscale",)

    def mutates(self, p: CheckFiniteParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def infer_shape(self, p: CheckFiniteParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        number = merge_shapes((1,), ins[0], ins[1], outs[0])
        return [number, number, with_words(ins[2])], [number]

    def infer_dtype(self, p: CheckFiniteParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [FLOAT32] * 3, [FLOAT32]

    def compute(self, p: CheckFiniteParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        _, found, control = ins
        outs[0][0] = 0 if found[0] != 0 else factor_of(control, FLOAT32, True) if p.scaled else 1

    def samples(self) -> Sequence[Sample]:
        return [Sample({"scaled": scaled}, ((1,), (1,), (8,)), low=0.5, integer={"found": 2}, differentiable=False)
                for scaled in (True, False)]

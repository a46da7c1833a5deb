"""Updates of weights by SGD, momentum, Nesterov and Adam, as nodes of the step's graph.

Rates, decay, rescaling and clipping come from the control buffer (control.py), so a schedule changes no plan.
Everything runs in blocks through a little scratch, over the weight and the states themselves. The order of
rescale, clip and decay is MXNet's: SGD, momentum and Nesterov add the decay outside the clip, Adam inside.
Under a loss scale (loss_scale.py) the gradient is divided by it before everything else, and an update that the check of
the step forbids leaves weight and states as they are.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, PartialShape, TensorType
from .control import CLIP, GLOBAL_NORM, RESCALE, lr_word, with_words
from .elemwise import CountParams
from .loss_scale import FLOAT32, factor_of
from .op import Arrays, Op, Sample, ShapeError, Workspace, merge_shapes, numbered
from .params import REQUIRED, param
from .pointwise import BLOCK, block_bytes, block_scratch, blocks
from .registry import register


@dataclass(frozen=True)
class SgdParams:
    """Parameters of an update by SGD."""

    index: int = param(REQUIRED, "int", "number of the parameter, by which its rate and decay are found")
    has_scale: bool = param(False, "bool", "whether an input scales the gradient to clip the global norm")
    has_unscale: bool = param(False, "bool", "whether a last input undoes the loss scale, or by 0 says to do nothing")


@dataclass(frozen=True)
class MomentumParams(SgdParams):
    """Parameters of an update with momentum."""

    momentum: float = param(0.9, "float", "share of the last update that is kept")


@dataclass(frozen=True)
class AdamParams(SgdParams):
    """Parameters of an update by Adam."""

    beta1: float = param(0.9, "float", "decay of the mean")
    beta2: float = param(0.999, "float", "decay of the mean square")
    epsilon: float = param(1e-8, "float", "added to the root of the mean square")


@dataclass(frozen=True)
class Settings:
    """What the control buffer and the factors say of one update, in the weight's dtype; no `unscale` is None."""

    rescale: Any
    unscale: Any
    clip: Any
    rate: Any
    decay: Any

    @classmethod
    def of(cls, p: Any, ins: Arrays, states: int) -> Settings:
        """The settings of an update whose inputs are weight, gradient, states, control and factors."""
        control, number = ins[2 + states], ins[0].dtype.type
        rescale = number(control[RESCALE])
        if p.has_scale:
            rescale *= number(ins[3 + states][0])
        word = lr_word(p.index)
        return cls(rescale, number(ins[-1][0]) if p.has_unscale else None, number(control[CLIP]),
                   number(control[word]), number(control[word + 1]))

    @property
    def skips(self) -> bool:
        """Whether the check of the step forbids the update."""
        return self.unscale is not None and self.unscale == 0

    def rescaled(self, grad: np.ndarray, out: np.ndarray) -> None:
        """out = the gradient without the loss scale, times rescale_grad."""
        if self.unscale is not None:
            grad = np.multiply(grad, self.unscale, out=out)
        np.multiply(grad, self.rescale, out=out)


class Update(Op):
    """Base: weight and states in, the same bytes with new contents out; `apply` works on one block."""

    recompute = "never"
    states: ClassVar[tuple[str, ...]] = ()
    scratch_count: ClassVar[int] = 1
    Params: ClassVar[type] = SgdParams

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("weight", "grad", *self.states, "control", *(("scale",) if p.has_scale else ()),
                *(("unscale",) if p.has_unscale else ()))

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("weight", *self.states)

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), *((2 + i, 1 + i) for i in range(len(self.states))))

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        count = 2 + len(self.states)
        shape = merge_shapes(*ins[:count], *outs)
        if p.index < 0:
            raise ShapeError(f"index {p.index} is the number of no parameter")
        factors = [merge_shapes(factor, (1,)) for factor in ins[count + 1:]]
        return [*[shape] * count, with_words(ins[count], lr_word(p.index + 1)), *factors], [shape] * len(outs)

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        count = 2 + len(self.states)
        dtype = next((t for t in (*ins[:count], *outs) if t is not None), None)
        return [*[dtype] * count, *[FLOAT32] * (len(ins) - count)], [dtype] * len(outs)

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0], self.scratch_count)),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        states = len(self.states)
        given = Settings.of(p, ins, states)
        if given.skips:
            return
        scratch = [block_scratch(work, ins[0]) for _ in range(self.scratch_count)]
        for weight, grad, *rest in blocks(ins[0], ins[1], *ins[2:2 + states], *outs):
            step, *more = (s[:grad.size] for s in scratch)
            given.rescaled(grad, step)
            self.apply(p, given.rate, given.decay, given.clip, step, [weight, *rest[:states]], rest[states:], more)

    def apply(self, p: Any, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: list[np.ndarray],
              new: list[np.ndarray], scratch: list[np.ndarray]) -> None:
        """One block: `step` is the rescaled gradient; `old`, `new` are weight and states, the same bytes."""
        raise NotImplementedError(self.name)

    def samples(self) -> Sequence[Sample]:
        shapes = ((3, 5), (3, 5), *((3, 5),) * len(self.states), (12,))
        return [Sample({"index": 1}, shapes, low=0.1, differentiable=False),
                Sample({"index": 0, "has_scale": True}, (*shapes, (1,)), low=0.1, differentiable=False),
                Sample({"index": 0, "has_scale": True, "has_unscale": True}, (*shapes, (1,), (1,)), low=0.1,
                       differentiable=False)]


def clip_to(step: np.ndarray, bound: Any) -> None:
    """Clip to [-bound, bound] in place; a negative bound is off."""
    if bound >= 0:
        np.maximum(step, -bound, out=step)
        np.minimum(step, bound, out=step)


@register
class SgdUpdate(Update):
    """weight <- (1 - lr wd) weight - lr clip(rescale grad)."""

    name = "_sgd_update"

    def apply(self, p: SgdParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: list[np.ndarray],
              new: list[np.ndarray], scratch: list[np.ndarray]) -> None:
        clip_to(step, clip)
        np.multiply(step, rate, out=step)
        np.multiply(old[0], 1 - rate * decay, out=new[0])
        np.subtract(new[0], step, out=new[0])


class DecayedOutside(Update):
    """Base of the momentum methods: lr (clip(rescale grad) + wd weight) is made first."""

    Params = MomentumParams
    states = ("mom",)
    scratch_count = 2

    def apply(self, p: MomentumParams, rate: Any, decay: Any, clip: Any, step: np.ndarray,
              old: list[np.ndarray], new: list[np.ndarray], scratch: list[np.ndarray]) -> None:
        clip_to(step, clip)
        np.multiply(old[0], decay, out=scratch[0])
        np.add(step, scratch[0], out=step)
        np.multiply(step, rate, out=step)
        np.multiply(old[1], p.momentum, out=new[1])
        np.subtract(new[1], step, out=new[1])
        self.move(p, step, old, new, scratch[0])

    def move(self, p: MomentumParams, step: np.ndarray, old: list[np.ndarray], new: list[np.ndarray],
             scratch: np.ndarray) -> None:
        """Move the weight; new[1] is the new momentum."""
        raise NotImplementedError(self.name)


@register
class SgdMomUpdate(DecayedOutside):
    """mom <- momentum mom - lr (clip(rescale grad) + wd weight); weight <- weight + mom."""

    name = "_sgd_mom_update"

    def move(self, p: MomentumParams, step: np.ndarray, old: list[np.ndarray], new: list[np.ndarray],
             scratch: np.ndarray) -> None:
        np.add(old[0], new[1], out=new[0])


@register
class NagUpdate(DecayedOutside):
    """mom <- momentum mom - u and weight <- weight + momentum mom - u, u = lr (clip(rescale grad) + wd w)."""

    name = "_nag_update"

    def move(self, p: MomentumParams, step: np.ndarray, old: list[np.ndarray], new: list[np.ndarray],
             scratch: np.ndarray) -> None:
        np.multiply(new[1], p.momentum, out=scratch)
        np.subtract(scratch, step, out=scratch)
        np.add(old[0], scratch, out=new[0])


@register
class AdamUpdate(Update):
    """weight <- weight - lr mean / (sqrt(var) + epsilon), with Adam's correction of bias already in the rate.

    Before that mean and var decay towards g and g^2, where g = clip(rescale grad + wd weight).
    """

    name = "_adam_update"
    Params = AdamParams
    states = ("mean", "var")
    scratch_count = 2

    def apply(self, p: AdamParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: list[np.ndarray],
              new: list[np.ndarray], scratch: list[np.ndarray]) -> None:
        (spare,) = scratch
        np.multiply(old[0], decay, out=spare)
        np.add(step, spare, out=step)
        clip_to(step, clip)
        np.multiply(step, 1 - p.beta1, out=spare)
        np.multiply(old[1], p.beta1, out=new[1])
        np.add(new[1], spare, out=new[1])
        np.square(step, out=step)
        np.multiply(step, 1 - p.beta2, out=step)
        np.multiply(old[2], p.beta2, out=new[2])
        np.add(new[2], step, out=new[2])
        np.sqrt(new[2], out=step)
        np.add(step, p.epsilon, out=step)
        np.divide(new[1], step, out=step)
        np.multiply(step, rate, out=step)
        np.subtract(old[0], step, out=new[0])


@dataclass(frozen=True)
class SumSquaresParams:
    """Parameters of a sum of squares."""

    scaled: bool = param(False, "bool", "whether to divide by the loss scale first, which the control buffer has")


@register
class SumSquares(Op):
    """The sum of squares of a gradient, in float64 block by block, as one float32 number of shape (1,)."""

    name = "_sum_squares"
    Params = SumSquaresParams
    recompute = "cheap"

    def inputs(self, p: SumSquaresParams) -> tuple[str, ...]:
        return ("grad", "control") if p.scaled else ("grad",)

    def infer_shape(self, p: SumSquaresParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return [ins[0], *(with_words(control) for control in ins[1:])], [merge_shapes((1,), outs[0])]

    def infer_dtype(self, p: SumSquaresParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [ins[0], *[FLOAT32] * (len(ins) - 1)], [FLOAT32]

    def algorithms(self, p: SumSquaresParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", Workspace.bytes_for(((min(ins[0].size, BLOCK),), np.float64))),)

    def compute(self, p: SumSquaresParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = work.array((min(ins[0].size, BLOCK),), np.float64)
        unscale = ins[0].dtype.type(factor_of(ins[1], ins[0].dtype, True)) if p.scaled else None
        total = 0.0
        for (block,) in blocks(ins[0]):
            wide = scratch[:block.size]
            if unscale is None:
                np.copyto(wide, block)
            else:
                np.multiply(block, unscale, out=wide, dtype=block.dtype)
            np.square(wide, out=wide)
            total += float(np.add.reduce(wide))
        outs[0][0] = total

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 5),), differentiable=False),
                Sample({"scaled": True}, ((3, 5), (8,)), low=0.5, differentiable=False)]


@register
class GlobalNormScale(Op):
    """min(1, bound / norm), norm = rescale * sqrt(sum of the inputs), each a sum of squares; 1 when off."""

    name = "_global_norm_scale"
    Params = CountParams
    recompute = "cheap"

    def inputs(self, p: CountParams) -> tuple[str, ...]:
        return (*numbered("arg", p.num_args), "control")

    def outputs(self, p: CountParams) -> tuple[str, ...]:
        return ("scale",)

    def count_param(self) -> str | None:
        return "num_args"

    def infer_shape(self, p: CountParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return [*(merge_shapes(s, (1,)) for s in ins[:-1]), with_words(ins[-1])], [merge_shapes((1,), outs[0])]

    def infer_dtype(self, p: CountParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [FLOAT32] * len(ins), [FLOAT32]

    def compute(self, p: CountParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        *sums, control = ins
        bound = float(control[GLOBAL_NORM])
        norm = abs(float(control[RESCALE])) * sum(float(s[0]) for s in sums) ** 0.5
        outs[0][0] = bound / norm if 0 < bound < norm else 1.0

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_args": 2}, ((1,), (1,), (8,)), low=0.1, differentiable=False)]

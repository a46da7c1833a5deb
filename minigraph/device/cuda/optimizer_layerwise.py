"""CUDA forms of the updates by LAMB and LARS; kernels/optimizer_layerwise.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, TensorType, align
from .launch import BLOCK, MAX_BLOCKS, KernelOp, Launch, Operand, address, flat_grid, int32, int64, kernels_for, pointer
from .operands import require_float32, single
from .optimizer import PART

FACTORS_BYTES = align(2 * 4)
"""Workspace of LAMB's factors."""


class Layerwise(KernelOp):
    """Sums of squares by parts, the factor of the rate made of them, and the update."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("parts", FACTORS_BYTES + align(8 * _parts(ins[0].size)))


def _parts(size: int) -> int:
    return -(-size // PART)


def _given(p: Any, ins: Sequence[Operand], states: int) -> tuple[Any, ...]:
    """Control buffer and factors of the gradient, the size, and the parameter's number."""
    scale = pointer(ins[3 + states]) if p.has_scale else address(0)
    unscale = pointer(ins[-1]) if p.has_unscale else address(0)
    return pointer(ins[2 + states]), scale, unscale, int64(ins[0].size), int64(p.index)


@kernels_for("_lamb_update")
class LambUpdate(Layerwise):
    """The factors of this update, means and sums, the factor of the rate, and the update."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_lamb_update", [*ins, *outs])
        size, one = ins[0].size, (1, 1, 1)
        if size == 0:
            return ()
        given, sums, parts = _given(p, ins, 2), address(work + FACTORS_BYTES), _parts(size)
        weight, grad, mean, var = map(pointer, ins[:4])
        factors = (pointer(ins[4]), address(work), ("d", float(p.beta1)), ("d", float(p.beta2)),
                   int32(int(p.bias_correction)))
        rates = map(single, (p.beta1, 1 - p.beta1, p.beta2, 1 - p.beta2, p.epsilon))
        first = (weight, grad, mean, var, *given, address(work), sums, int64(PART), *rates)
        bounds = (sums, int64(parts), single(p.lower_bound), single(p.upper_bound))
        last = (weight, mean, var, *given, address(work), sums, single(p.epsilon))
        block = (BLOCK, 1, 1)
        return (Launch("lamb_update_factors", one, one, factors),
                Launch("lamb_update_parts", (min(parts, MAX_BLOCKS), 1, 1), block, first),
                Launch("lamb_update_combine", one, block, bounds),
                Launch("lamb_update_forward_float32", flat_grid(size), block, last))


class LarsUpdate(Layerwise):
    """Sums, the factor of the rate, and the update, which without norms runs alone."""

    op = "lars_update"
    states = 0

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32(f"_{self.op}", [*ins, *outs])
        size, block = ins[0].size, (BLOCK, 1, 1)
        if size == 0:
            return ()
        given, parts = _given(p, ins, self.states), _parts(size)
        tensors = [pointer(each) for each in ins[:2 + self.states]]
        update = Launch(f"{self.op}_forward_float32", flat_grid(size), block,
                        (*tensors, *given, address(work if p.adapts else 0)))
        if not p.adapts:
            return (update,)
        combine = (given[0], int64(p.index), address(work), int64(parts), single(p.eta), single(p.epsilon))
        return (Launch("lars_update_parts", (min(parts, MAX_BLOCKS), 1, 1), block,
                       (*tensors[:2], *given, address(work), int64(PART))),
                Launch("lars_update_combine", (1, 1, 1), block, combine), update)


@kernels_for("_lars_update")
class LarsPlainUpdate(LarsUpdate):
    """LARS without momentum."""


@kernels_for("_lars_mom_update")
class LarsMomUpdate(LarsUpdate):
    """LARS with momentum."""

    op, states = "lars_mom_update", 1

"""CUDA forms of the updates by AdaGrad, RMSProp, AdaDelta, Ftrl, Adamax, Nadam, FTML, DCASGD, SGLD and signs;
kernels/optimizer_more.cu."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import Algorithm, TensorType, align
from .launch import Launch, Operand, address, kernels_for, pointer
from .operands import single
from .optimizer import Update
from .pointwise import Arguments

FACTORS_BYTES = align(3 * 4)
"""Workspace of the factors that the number of the update decides."""


def _define(name: str, count: int, constants: Callable[[Any], Sequence[float]] = lambda p: ()) -> None:
    """Make _<name>_update an update of a weight and `count` states, with the kernel's constants by parameters."""
    @kernels_for(f"_{name}_update")
    class Defined(Update):
        op, states = f"{name}_update", count

        def scalars(self, p: Any) -> Arguments:
            return tuple(map(single, constants(p)))


_define("adagrad", 1, lambda p: (p.epsilon,))
_define("rmsprop", 1, lambda p: (p.gamma1, 1 - p.gamma1, p.epsilon, p.clip_weights))
_define("rmsprop_centered", 3, lambda p: (p.gamma1, 1 - p.gamma1, p.gamma2, p.epsilon, p.clip_weights))
_define("adadelta", 2, lambda p: (p.rho, 1 - p.rho, p.epsilon))
_define("ftrl", 2, lambda p: (p.lamda1, p.beta))
_define("adamax", 2, lambda p: (p.beta1, 1 - p.beta1, p.beta2))
_define("signsgd", 0)
_define("signum", 1, lambda p: (p.momentum, 1 - p.momentum, p.wd_lh))
_define("dcasgd", 1, lambda p: (p.momentum, p.lamda))
_define("sgld", 1)


class NumberedUpdate(Update):
    """The factors of this update, then the update."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("factors", FACTORS_BYTES)

    def scalars(self, p: Any) -> Arguments:
        return tuple(map(single, (p.beta1, 1 - p.beta1, p.beta2, 1 - p.beta2, p.epsilon)))

    def precise(self, p: Any) -> Sequence[float]:
        """What the factors are made of besides the number, in double precision."""
        return p.beta1, p.beta2, p.schedule_decay

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        launches = super().launches(p, ins, outs, work)
        if not launches:
            return ()
        (update,) = launches
        args = pointer(ins[2 + self.states]), address(work), *(("d", float(x)) for x in self.precise(p))
        count = len(self.scalars(p))
        with_factors = (*update.args[:-count], address(work), *update.args[-count:])
        return (Launch(f"{self.op}_factors", (1, 1, 1), (1, 1, 1), args),
                Launch(update.kernel, update.grid, update.block, with_factors))


@kernels_for("_nadam_update")
class NadamUpdate(NumberedUpdate):
    """Nadam."""

    op, states = "nadam_update", 2


@kernels_for("_ftml_update")
class FtmlUpdate(NumberedUpdate):
    """FTML."""

    op, states = "ftml_update", 3

    def precise(self, p: Any) -> Sequence[float]:
        return (p.beta2,)

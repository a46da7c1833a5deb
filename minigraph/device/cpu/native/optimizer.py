"""Updates of weights by the kernels of kernels/cpu/optimizer.cpp, each in one pass."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....base import Algorithm
from ....ops.optimizer import Update
from ....ops.registry import get_op
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, define, float64, int64, native_for, pointer
from .layout import Layouts

STATES, CONSTANTS = 3, 5
"""Places for states and constants in the kernels' arguments."""
SUM_BLOCK = 1 << 14
"""Elements that the sum of squares takes at a time."""
NULL = address(0)


@dataclass(frozen=True)
class UpdateOp(NativeOp):
    """One kernel over weight, gradient and states; `constants` are those of the rule, of the op's parameters."""

    name: str
    constants: Callable[[Any], tuple[float, ...]]
    precise: Callable[[Any], tuple[float, ...]] = lambda p: ()
    """Constants that the kernel takes in double precision, after the others."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), len(outs)),)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        op = get_op(self.name)
        assert isinstance(op, Update)
        weight, grad, *rest = ins
        count = len(op.states)
        states = [*map(pointer, rest[:count]), *[NULL] * (STATES - count)]
        scale = pointer(rest[count + 1]) if p.has_scale else NULL
        unscale = pointer(rest[-1]) if p.has_unscale else NULL
        constants = self.constants(p)
        padded = f"{CONSTANTS}f4x", (*constants, *[0.0] * (CONSTANTS - len(constants)))
        args = (pointer(weight), pointer(grad), *states, pointer(rest[count]), scale, unscale,
                int64(weight.size, p.index), padded, *map(float64, self.precise(p)), *self.scratch(p, work))
        return [NativeCall(self.name[1:], args)]

    def scratch(self, p: Any, work: int) -> Sequence[Any]:
        """Arguments behind all others: where there is workspace, its address."""
        return ()


@dataclass(frozen=True)
class LayerwiseOp(UpdateOp):
    """A kernel that adds squares by blocks first, two numbers in double precision a block."""

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        return (Algorithm(f"{PREFIX}direct", 16 * -(-ins[0].size // SUM_BLOCK), "native"),)

    def scratch(self, p: Any, work: int) -> Sequence[Any]:
        return address(work), int64(int(p.bias_correction if self.name == "_lamb_update" else p.adapts))


def _adam(p: Any) -> tuple[float, ...]:
    return p.beta1, 1 - p.beta1, p.beta2, 1 - p.beta2, p.epsilon


def _rmsprop(p: Any) -> tuple[float, ...]:
    return p.gamma1, 1 - p.gamma1, p.epsilon, p.clip_weights, p.gamma2


_RULES: dict[str, Callable[[Any], tuple[float, ...]]] = {
    "sgd": lambda p: (), "sgd_mom": lambda p: (p.momentum,), "nag": lambda p: (p.momentum,), "adam": _adam,
    "adagrad": lambda p: (p.epsilon,), "rmsprop": _rmsprop, "rmsprop_centered": _rmsprop,
    "adadelta": lambda p: (p.rho, 1 - p.rho, p.epsilon), "ftrl": lambda p: (p.lamda1, p.beta),
    "adamax": lambda p: (p.beta1, 1 - p.beta1, p.beta2), "signsgd": lambda p: (),
    "signum": lambda p: (p.momentum, 1 - p.momentum, p.wd_lh),
    "dcasgd": lambda p: (p.momentum, p.lamda)}
for _rule, _constants in _RULES.items():
    define(f"_{_rule}_update", UpdateOp(f"_{_rule}_update", _constants))
define("_nadam_update", UpdateOp("_nadam_update", _adam, lambda p: (p.beta1, p.beta2, p.schedule_decay)))
define("_ftml_update", UpdateOp("_ftml_update", _adam, lambda p: (p.beta2,)))


def _lamb(p: Any) -> tuple[float, ...]:
    return p.beta1, p.beta2, p.epsilon, p.lower_bound, p.upper_bound


define("_lamb_update", LayerwiseOp("_lamb_update", _lamb, lambda p: (p.beta1, p.beta2)))
for _rule in ("_lars_update", "_lars_mom_update"):
    define(_rule, LayerwiseOp(_rule, lambda p: (p.eta, p.epsilon), lambda p: (0.0, 0.0)))


@native_for("_sum_squares")
class SumSquares(NativeOp):
    """Sums of blocks in float64, and their sum in ascending order."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), 1),)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        return (Algorithm(f"{PREFIX}direct", 8 * -(-ins[0].size // SUM_BLOCK), "native"),)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        control = pointer(ins[1]) if p.scaled else NULL
        args = pointer(ins[0]), control, pointer(outs[0]), address(work), int64(ins[0].size)
        return [NativeCall("sum_squares", args)]

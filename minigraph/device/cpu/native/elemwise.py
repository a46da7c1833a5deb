"""Elementwise ops by the kernels of kernels/cpu/elemwise.cpp, in any layout that all operands share."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .call import NativeCall, NativeOp, Operand, Types, define, float32, int64, native_for, pointer
from .layout import BLOCKED, LANES, Layouts, alike

Constants = Callable[[Any], tuple[float, float]]


@dataclass(frozen=True)
class Elementwise(NativeOp):
    """One kernel over all stored elements.

    `keeps_zero`: whether the function of zeros is zero, so that padding stays what it is; else the blocked layout is
    taken only where there is none. `constants` are the kernel's, of the op's parameters.
    """

    kernel: str
    keeps_zero: bool = True
    constants: Constants | None = None

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout,) * len(ins), (layout,) * len(outs)) for layout in alike(*ins, *outs)
                if layout != BLOCKED or self.keeps_zero or outs[0].shape[1] % LANES == 0]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        constants = map(float32, self.constants(p)) if self.constants else ()
        return [NativeCall(self.kernel, (*map(pointer, ins), pointer(outs[0]), int64(outs[0].size), *constants))]


def _scalar(p: Any) -> tuple[float, float]:
    return p.scalar, 0.0


def _slope(p: Any) -> tuple[float, float]:
    return p.slope, 0.0


def _bounds(p: Any) -> tuple[float, float]:
    return p.a_min, p.a_max


def _line(p: Any) -> tuple[float, float]:
    return p.alpha, p.beta


def _square(p: Any) -> tuple[float, float]:
    return p.scalar ** 2, 0.0


def _elu(p: Any) -> tuple[float, float]:
    return p.below, p.above


for _name, _keeps_zero in {"negative": True, "abs": True, "sign": True, "square": True, "sqrt": True, "rsqrt": False,
                           "reciprocal": False, "exp": False, "log": False, "log1p": True, "expm1": True, "floor": True,
                           "ceil": True, "trunc": True, "round": True, "rint": True, "logical_not": False}.items():
    define(_name, Elementwise(f"{_name}_forward", _keeps_zero))
define("fix", Elementwise("trunc_forward"))
for _name in ("_copy", "BlockGrad", "MakeLoss"):
    define(_name, Elementwise("copy_forward"))
for _name, _keeps_zero in {"plus": False, "minus": False, "rminus": False, "mul": True, "div": True, "rdiv": False,
                           "maximum": False, "minimum": False}.items():
    define(f"_{_name}_scalar", Elementwise(f"{_name}_scalar_forward", _keeps_zero, _scalar))
for _name in ("add", "sub", "mul"):
    define(f"elemwise_{_name}", Elementwise(f"{_name}_forward"))
for _name in ("_accumulate", "_grad_add"):
    define(_name, Elementwise("add_forward"))
define("elemwise_div", Elementwise("div_forward", False))
for _name in ("maximum", "minimum"):
    define(f"_{_name}", Elementwise(f"{_name}_forward"))
define("clip", Elementwise("clip_forward", False, _bounds))
define("_clip_backward", Elementwise("clip_backward", True, _bounds))
for _name, _keeps_zero in {"equal": False, "not_equal": True, "greater": True, "greater_equal": False, "lesser": True,
                           "lesser_equal": False, "logical_and": True, "logical_or": True, "logical_xor": True}.items():
    define(f"_{_name}", Elementwise(f"{_name}_forward", _keeps_zero))
    define(f"_{_name}_scalar", Elementwise(f"{_name}_scalar_forward", False, _scalar))
define("hard_sigmoid", Elementwise("hard_sigmoid_forward", False, _line))
define("_hard_sigmoid_backward", Elementwise("hard_sigmoid_backward", True, _line))
define("smooth_l1", Elementwise("smooth_l1_forward", True, _square))
define("_smooth_l1_backward", Elementwise("smooth_l1_backward", True, _square))
define("_rdiv_scalar_backward", Elementwise("rdiv_scalar_backward", False, _scalar))
define("_gelu", Elementwise("gelu_forward"))
define("_leaky", Elementwise("leaky_forward", True, _slope))
define("_leaky_backward", Elementwise("leaky_backward", True, _slope))
define("_elu", Elementwise("elu_forward", True, _elu))
define("_elu_backward", Elementwise("elu_backward", True, _elu))
for _name in ("gelu", "square", "abs"):
    define(f"_{_name}_backward", Elementwise(f"{_name}_backward"))
for _name in ("sqrt", "reciprocal"):        # of a zero output the slope is infinite
    define(f"_{_name}_backward", Elementwise(f"{_name}_backward", False))

_KEEP_ZERO = {"relu": True, "sigmoid": False, "tanh": True, "softrelu": False, "softsign": True}
"""Activations, and whether each of zero is zero."""
for _name in ("relu", "sigmoid", "tanh", "softsign"):
    define(_name, Elementwise(f"{_name}_forward", _KEEP_ZERO[_name]))


class OfActivation(NativeOp):
    """Base: the kernel is chosen by the activation's name."""

    def form(self, p: Any) -> Elementwise:
        """What computes the op with these parameters."""
        raise NotImplementedError

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return self.form(p).layouts(p, ins, outs)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return self.form(p).calls(p, ins, outs, work, algorithm)


@native_for("Activation")
class Activation(OfActivation):
    """The function of the data."""

    def form(self, p: Any) -> Elementwise:
        return Elementwise(f"{p.act_type}_forward", _KEEP_ZERO[p.act_type])


@native_for("_activation_backward")
class ActivationBackward(OfActivation):
    """The gradient times the slope, which comes from the output."""

    def form(self, p: Any) -> Elementwise:
        return Elementwise(f"{p.act_type}_backward")


@native_for("add_n")
class AddN(NativeOp):
    """Pairs first, then one input at a time to the output."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return Elementwise("add_forward").layouts(p, ins, outs)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        (out,) = outs
        if len(ins) == 1:
            return Elementwise("copy_forward").calls(p, ins, outs, work, algorithm)
        pairs = [(ins[0], ins[1]), *((out, term) for term in ins[2:])]
        return [call for pair in pairs for call in Elementwise("add_forward").calls(p, pair, outs, work, algorithm)]

"""Activation functions whose derivative is computed from the output, so that the input may be overwritten."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, TensorType
from .bits import relu_encoding
from .elemwise import only
from .op import Arrays, Encoding, Op, Workspace
from .params import REQUIRED, param
from .pointwise import Derivative, Unary, block_bytes, block_scratch, blocks
from .registry import register


def relu(data: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """max(data, 0); NaN stays NaN."""
    np.maximum(data, 0, out=out)


def sigmoid(data: np.ndarray, out: np.ndarray, scratch: np.ndarray | None = None) -> None:
    """1 / (1 + exp(-data)): where exp overflows to infinity the quotient is the right 0."""
    np.negative(data, out=out)
    with np.errstate(over="ignore"):
        np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def tanh(data: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """The hyperbolic tangent."""
    np.tanh(data, out=out)


def softrelu(data: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """log(1 + exp(data)) as max(data, 0) + log1p(exp(-|data|)), which never overflows."""
    np.abs(data, out=scratch)
    np.negative(scratch, out=scratch)
    np.exp(scratch, out=scratch)
    np.log1p(scratch, out=scratch)
    np.maximum(data, 0, out=out)
    np.add(out, scratch, out=out)


def softsign(data: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    """data / (1 + |data|)."""
    np.abs(data, out=scratch)
    np.add(scratch, 1, out=scratch)
    np.divide(data, scratch, out=out)


FORWARD: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], None]] = {
    "relu": relu, "sigmoid": sigmoid, "tanh": tanh, "softrelu": softrelu, "softsign": softsign}
"""Functions of (data, out, scratch) for one block; `out` may be `data`, and `scratch` is neither."""
NEEDS_SCRATCH = ("softrelu", "softsign")


def relu_slope(y: np.ndarray, out: np.ndarray) -> None:
    """1 where the output is positive, else 0."""
    np.greater(y, 0, out=out)


def sigmoid_slope(y: np.ndarray, out: np.ndarray) -> None:
    """y (1 - y)."""
    np.subtract(1, y, out=out)
    np.multiply(out, y, out=out)


def tanh_slope(y: np.ndarray, out: np.ndarray) -> None:
    """1 - y^2."""
    np.square(y, out=out)
    np.subtract(1, out, out=out)


def softrelu_slope(y: np.ndarray, out: np.ndarray) -> None:
    """1 - exp(-y), as -expm1(-y): near y = 0 nothing cancels."""
    np.negative(y, out=out)
    np.expm1(out, out=out)
    np.negative(out, out=out)


def softsign_slope(y: np.ndarray, out: np.ndarray) -> None:
    """(1 - |y|)^2, since 1 - |y| = 1 / (1 + |x|)."""
    np.abs(y, out=out)
    np.subtract(1, out, out=out)
    np.square(out, out=out)


SLOPES: dict[str, Callable[[np.ndarray, np.ndarray], None]] = {
    "relu": relu_slope, "sigmoid": sigmoid_slope, "tanh": tanh_slope, "softrelu": softrelu_slope,
    "softsign": softsign_slope}
"""Derivatives as functions of the output: (output, where to write the derivative)."""


@dataclass(frozen=True)
class ActivationParams:
    """Parameters of Activation."""

    act_type: str = param(REQUIRED, "str", "the function", tuple(FORWARD))


class Activated(Unary):
    """Base of the activations: `kind` names the function."""

    pointwise = True

    def kind(self, p: Any) -> str:
        """The function's name."""
        raise NotImplementedError

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0]) if self.kind(p) in NEEDS_SCRATCH else 0),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        kind = self.kind(p)
        function = FORWARD[kind]
        scratch = block_scratch(work, outs[0]) if kind in NEEDS_SCRATCH else outs[0].reshape(-1)
        for data, out in blocks(ins[0], outs[0]):
            function(data, out, scratch[:out.size])

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_activation_backward", [grad, out], act_type=self.kind(p)))


@register
class Activation(Activated):
    """relu, sigmoid, tanh, softrelu or softsign of data."""

    name = "Activation"
    Params = ActivationParams
    sample_params = tuple({"act_type": kind} for kind in FORWARD)

    def kind(self, p: ActivationParams) -> str:
        return p.act_type


FOLLOWING = ("relu", "sigmoid", "tanh")
"""Activations that other ops apply to their output themselves: those that need no scratch."""


def activation_of(op: Op, p: Any) -> str | None:
    """The function of FORWARD that an op applies to its only input, or None."""
    return op.kind(p) if isinstance(op, Activated) else None


class Named(Activated):
    """Base of the activations that are ops of their own."""

    function: ClassVar[str]

    def kind(self, p: Any) -> str:
        return self.function


@register
class Relu(Named):
    """max(data, 0)."""

    name = function = "relu"


@register
class Sigmoid(Named):
    """1 / (1 + exp(-data))."""

    name = function = "sigmoid"


@register
class Tanh(Named):
    """The hyperbolic tangent of data."""

    name = function = "tanh"


@register
class Softsign(Named):
    """data / (1 + |data|)."""

    name = function = "softsign"


@register
class ActivationBackward(Derivative):
    """grad times the derivative, which each function computes from its output."""

    name = "_activation_backward"
    pointwise = True
    Params = ActivationParams
    sample_params = tuple({"act_type": kind} for kind in FORWARD)

    def derivative(self, p: ActivationParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        SLOPES[p.act_type](saved, out)

    def encoding(self, p: ActivationParams, ins: Sequence[TensorType]) -> Encoding | None:
        return relu_encoding(ins) if p.act_type == "relu" else None

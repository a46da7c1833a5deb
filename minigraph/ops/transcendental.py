"""Roots, logarithms, trigonometric and hyperbolic functions, and the one op that makes all their gradients."""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Entry
from .elemwise import only
from .params import REQUIRED, param
from .pointwise import Derivative
from .registry import register
from .unary import FromUfunc

Slope = Callable[[np.ndarray, np.ndarray], None]
SLOPES: dict[str, Slope] = {}
"""Derivatives by function: each writes that at `saved` to `out`, which is another array."""
FROM_OUTPUT = ("rsqrt", "cbrt", "rcbrt", "expm1", "tan", "erfinv")
"""Functions whose derivative is computed from their output; the others' from their input."""


def slope(name: str) -> Callable[[Slope], Slope]:
    """Decorator: the derivative of a function."""
    def add(function: Slope) -> Slope:
        SLOPES[name] = function
        return function
    return add


def _chain(*steps: tuple[Any, ...]) -> Slope:
    """A derivative as steps: the first reads `saved`, each other the result before it, then constants.

    A step is (ufunc,), or (ufunc, a) for ufunc(x, a), or (ufunc, a, None) for ufunc(a, x).
    """
    def apply(saved: np.ndarray, out: np.ndarray) -> None:
        source = saved
        for ufunc, *constants in steps:
            operands = [source, *constants] if None not in constants else [constants[0], source]
            ufunc(*operands, out=out)
            source = out
    return apply


SLOPES |= {
    "rcbrt": _chain((np.square,), (np.square,), (np.multiply, -1 / 3)),
    "cbrt": _chain((np.square,), (np.multiply, 3), (np.divide, 1, None)),
    "log1p": _chain((np.add, 1), (np.divide, 1, None)),
    "expm1": _chain((np.add, 1)),
    "log2": _chain((np.divide, 1 / math.log(2), None)),
    "log10": _chain((np.divide, 1 / math.log(10), None)),
    "sin": _chain((np.cos,)),
    "cos": _chain((np.sin,), (np.negative,)),
    "tan": _chain((np.square,), (np.add, 1)),
    "arcsin": _chain((np.square,), (np.subtract, 1, None), (np.sqrt,), (np.divide, 1, None)),
    "arccos": _chain((np.square,), (np.subtract, 1, None), (np.sqrt,), (np.divide, -1, None)),
    "arctan": _chain((np.square,), (np.add, 1), (np.divide, 1, None)),
    "sinh": _chain((np.cosh,)),
    "cosh": _chain((np.sinh,)),
    "arcsinh": _chain((np.square,), (np.add, 1), (np.sqrt,), (np.divide, 1, None)),
    "arccosh": _chain((np.square,), (np.subtract, 1), (np.sqrt,), (np.divide, 1, None)),
    "arctanh": _chain((np.square,), (np.subtract, 1, None), (np.divide, 1, None)),
    "erfinv": _chain((np.square,), (np.exp,), (np.multiply, math.sqrt(math.pi) / 2)),
    "erf": _chain((np.square,), (np.negative,), (np.exp,), (np.multiply, 2 / math.sqrt(math.pi))),
}


@slope("rsqrt")
def _rsqrt_slope(saved: np.ndarray, out: np.ndarray) -> None:
    """-y ** 3 / 2."""
    np.square(saved, out=out)
    np.multiply(out, saved, out=out)
    np.multiply(out, -0.5, out=out)


@dataclass(frozen=True)
class FunctionParams:
    """Parameters of the gradient of an elementwise function."""

    function: str = param(REQUIRED, "str", "the function", tuple(SLOPES))


@register
class FunctionBackward(Derivative):
    """grad * f'(saved), where `saved` is the output of the functions in FROM_OUTPUT and the input of others."""

    name = "_function_backward"
    Params = FunctionParams
    low, high = 0.2, 0.8
    sample_params = tuple({"function": name} for name in SLOPES if name != "arccosh")

    def derivative(self, p: FunctionParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        SLOPES[p.function](saved, out)


class Function(FromUfunc):
    """Base of functions whose gradient is in SLOPES."""

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        saved = out if self.name in FROM_OUTPUT else data
        return only(b.node("_function_backward", [grad, saved], function=self.name))


@register
class Rsqrt(Function):
    """1 / sqrt(data)."""

    name = "rsqrt"
    low, high = 0.5, 2.0

    def apply(self, p: Any, data: np.ndarray, out: np.ndarray) -> None:
        np.sqrt(data, out=out)
        np.reciprocal(out, out=out)


@register
class Cbrt(Function):
    """The cube root."""

    name, ufunc = "cbrt", np.cbrt
    low, high = 0.5, 2.0


@register
class Rcbrt(Function):
    """1 / cbrt(data)."""

    name = "rcbrt"
    low, high = 0.5, 2.0

    def apply(self, p: Any, data: np.ndarray, out: np.ndarray) -> None:
        np.cbrt(data, out=out)
        np.reciprocal(out, out=out)


@register
class Log1p(Function):
    """log(1 + data), precise near 0."""

    name, ufunc = "log1p", np.log1p
    low, high = -0.5, 1.0


@register
class Expm1(Function):
    """exp(data) - 1, precise near 0."""

    name, ufunc = "expm1", np.expm1


@register
class Log2(Function):
    """The logarithm to base 2."""

    name, ufunc = "log2", np.log2
    low, high = 0.5, 2.0


@register
class Log10(Function):
    """The logarithm to base 10."""

    name, ufunc = "log10", np.log10
    low, high = 0.5, 2.0


@register
class Sin(Function):
    """The sine of radians."""

    name, ufunc = "sin", np.sin


@register
class Cos(Function):
    """The cosine of radians."""

    name, ufunc = "cos", np.cos


@register
class Tan(Function):
    """The tangent of radians."""

    name, ufunc = "tan", np.tan


@register
class Arcsin(Function):
    """The angle in [-pi/2, pi/2] with this sine; NaN outside [-1, 1]."""

    name, ufunc = "arcsin", np.arcsin
    low, high = -0.9, 0.9


@register
class Arccos(Function):
    """The angle in [0, pi] with this cosine; NaN outside [-1, 1]."""

    name, ufunc = "arccos", np.arccos
    low, high = -0.9, 0.9


@register
class Arctan(Function):
    """The angle in (-pi/2, pi/2) with this tangent."""

    name, ufunc = "arctan", np.arctan


@register
class Sinh(Function):
    """The hyperbolic sine."""

    name, ufunc = "sinh", np.sinh


@register
class Cosh(Function):
    """The hyperbolic cosine."""

    name, ufunc = "cosh", np.cosh


@register
class Arcsinh(Function):
    """The inverse of sinh."""

    name, ufunc = "arcsinh", np.arcsinh


@register
class Arccosh(Function):
    """The inverse of cosh; NaN below 1."""

    name, ufunc = "arccosh", np.arccosh
    low, high = 1.2, 3.0


@register
class Arctanh(Function):
    """The inverse of tanh; NaN outside [-1, 1]."""

    name, ufunc = "arctanh", np.arctanh
    low, high = -0.9, 0.9


class _Angle(FromUfunc):
    """Base of the conversions of angles, which multiply by a constant."""

    factor: float

    def apply(self, p: Any, data: np.ndarray, out: np.ndarray) -> None:
        np.multiply(data, self.factor, out=out)

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_mul_scalar", [grad], scalar=self.factor))


@register
class Degrees(_Angle):
    """Radians as degrees."""

    name, factor = "degrees", 180 / math.pi


@register
class Radians(_Angle):
    """Degrees as radians."""

    name, factor = "radians", math.pi / 180

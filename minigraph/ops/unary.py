"""Elementwise functions of one tensor: exp, log, sqrt, square, abs, negative, reciprocal, sign."""
from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..base import Builder, Entry
from .elemwise import only
from .pointwise import Derivative, Unary
from .registry import register


class FromUfunc(Unary):
    """Base of the functions that NumPy has as a ufunc."""

    ufunc: ClassVar[np.ufunc]

    def apply(self, p: Any, data: np.ndarray, out: np.ndarray) -> None:
        self.ufunc(data, out=out)


@register
class Exp(FromUfunc):
    """e to the power data."""

    name, ufunc = "exp", np.exp
    pointwise = True

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("elemwise_mul", [grad, out]))


@register
class Log(FromUfunc):
    """The natural logarithm; -inf at 0 and NaN below."""

    name, ufunc = "log", np.log
    pointwise = True
    low, high = 0.5, 2.0

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("elemwise_div", [grad, data]))


@register
class Sqrt(FromUfunc):
    """The square root; NaN below 0."""

    name, ufunc = "sqrt", np.sqrt
    pointwise = True
    low, high = 0.5, 2.0

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_sqrt_backward", [grad, out]))


@register
class SqrtBackward(Derivative):
    """grad * 0.5 / out."""

    name = "_sqrt_backward"
    pointwise = True

    def derivative(self, p: Any, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.divide(0.5, saved, out=out)


@register
class Square(FromUfunc):
    """data * data."""

    name, ufunc = "square", np.square
    pointwise = True

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_square_backward", [grad, data]))


@register
class SquareBackward(Derivative):
    """grad * 2 * data."""

    name = "_square_backward"
    pointwise = True

    def derivative(self, p: Any, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.add(saved, saved, out=out)


@register
class Abs(FromUfunc):
    """The absolute value; the gradient at 0 is 0."""

    name, ufunc = "abs", np.absolute
    pointwise = True
    low, high = 0.1, 1.0

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_abs_backward", [grad, data]))


@register
class AbsBackward(Derivative):
    """grad * sign(data)."""

    name = "_abs_backward"
    pointwise = True
    low, high = -1.0, 1.0

    def derivative(self, p: Any, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.sign(saved, out=out)


@register
class Negative(FromUfunc):
    """-data."""

    name, ufunc = "negative", np.negative
    pointwise = True

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("negative", [grad]))


@register
class Reciprocal(FromUfunc):
    """1 / data."""

    name, ufunc = "reciprocal", np.reciprocal
    pointwise = True
    low, high = 0.5, 2.0

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_reciprocal_backward", [grad, out]))


@register
class ReciprocalBackward(Derivative):
    """-grad * out * out."""

    name = "_reciprocal_backward"
    pointwise = True

    def derivative(self, p: Any, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.square(saved, out=out)
        np.negative(out, out=out)


@register
class Sign(FromUfunc):
    """-1, 0 or 1; no gradient."""

    name, ufunc = "sign", np.sign
    pointwise = True
    smooth = False

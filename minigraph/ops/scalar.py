"""Elementwise ops of a tensor and a constant; the constant is converted to the tensor's dtype first."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Builder, Entry
from .elemwise import COMPARISONS, divide, only
from .params import REQUIRED, param
from .pointwise import Derivative, Unary
from .registry import register


@dataclass(frozen=True)
class ScalarParams:
    """Parameters of an op with a constant."""

    scalar: float = param(REQUIRED, "float", "the constant")


@dataclass(frozen=True)
class CompareScalarParams:
    """Parameters of a gradient that passes where a comparison with a constant holds."""

    compare: str = param(REQUIRED, "str", "comparison of data with the constant", tuple(COMPARISONS))
    scalar: float = param(REQUIRED, "float", "the constant")


def constant(p: Any, like: np.ndarray) -> Any:
    """The op's constant in the dtype of a tensor."""
    return like.dtype.type(p.scalar)


class Scalar(Unary):
    """Base: output = ufunc(data, scalar), or ufunc(scalar, data) when `reverse`."""

    Params = ScalarParams
    ufunc: ClassVar[np.ufunc]
    reverse: ClassVar[bool] = False
    sample_params: ClassVar[tuple[dict[str, Any], ...]] = ({"scalar": 1.5}, {"scalar": -2.0})

    def apply(self, p: ScalarParams, data: np.ndarray, out: np.ndarray) -> None:
        if self.reverse:
            self.ufunc(constant(p, data), data, out=out)
        else:
            self.ufunc(data, constant(p, data), out=out)


@register
class PlusScalar(Scalar):
    """data + scalar."""

    name, aliases, ufunc = "_plus_scalar", ("_PlusScalar",), np.add
    pointwise = True

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return grad


@register
class MinusScalar(Scalar):
    """data - scalar."""

    name, aliases, ufunc = "_minus_scalar", ("_MinusScalar",), np.subtract
    pointwise = True

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return grad


@register
class ReverseMinusScalar(Scalar):
    """scalar - data."""

    name, aliases, ufunc, reverse = "_rminus_scalar", ("_RMinusScalar",), np.subtract, True
    pointwise = True

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("negative", [grad]))


@register
class MultiplyScalar(Scalar):
    """data * scalar."""

    name, aliases, ufunc = "_mul_scalar", ("_MulScalar",), np.multiply
    pointwise = True

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_mul_scalar", [grad], scalar=p.scalar))


@register
class DivideScalar(Scalar):
    """data / scalar; integers are divided towards zero."""

    name, aliases = "_div_scalar", ("_DivScalar",)
    pointwise = True

    def apply(self, p: ScalarParams, data: np.ndarray, out: np.ndarray) -> None:
        divide(data, constant(p, data), out)

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_div_scalar", [grad], scalar=p.scalar))


@register
class ReverseDivideScalar(Scalar):
    """scalar / data; integers are divided towards zero."""

    name, aliases = "_rdiv_scalar", ("_RDivScalar",)
    pointwise = True
    low, high = 0.5, 1.5

    def apply(self, p: ScalarParams, data: np.ndarray, out: np.ndarray) -> None:
        divide(constant(p, data), data, out)

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_rdiv_scalar_backward", [grad, data], scalar=p.scalar))


@register
class ReverseDivideScalarBackward(Derivative):
    """-grad * scalar / data ** 2."""

    name = "_rdiv_scalar_backward"
    Params = ScalarParams
    sample_params = ({"scalar": 1.5},)

    def derivative(self, p: ScalarParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.square(saved, out=out)
        np.divide(-constant(p, saved), out, out=out)


@register
class PowerScalar(Scalar):
    """data to the power scalar."""

    name, aliases, ufunc = "_power_scalar", ("_PowerScalar",), np.power
    low, high = 0.5, 1.5

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_power_scalar_backward", [grad, data], scalar=p.scalar))


@register
class PowerScalarBackward(Derivative):
    """grad * scalar * data ** (scalar - 1)."""

    name = "_power_scalar_backward"
    Params = ScalarParams
    sample_params = ({"scalar": 1.5}, {"scalar": 0.0})

    def derivative(self, p: ScalarParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        if p.scalar == 0:
            out.fill(0)
            return
        np.power(saved, constant(p, saved) - 1, out=out)
        np.multiply(out, constant(p, saved), out=out)


@register
class ReversePowerScalar(Scalar):
    """scalar to the power data."""

    name, aliases, ufunc, reverse = "_rpower_scalar", ("_RPowerScalar",), np.power, True
    sample_params = ({"scalar": 1.5}, {"scalar": 1.0})

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_rpower_scalar_backward", [grad, out], scalar=p.scalar))


@register
class ReversePowerScalarBackward(Derivative):
    """grad * out * log(scalar); NaN for a scalar that is not positive."""

    name = "_rpower_scalar_backward"
    Params = ScalarParams
    sample_params = ({"scalar": 1.5},)

    def derivative(self, p: ScalarParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.multiply(saved, math.log(p.scalar) if p.scalar > 0 else math.nan, out=out)


@register
class MultiplyCompareScalar(Derivative):
    """grad where `data compare scalar` holds, 0 elsewhere."""

    name = "_multiply_compare_scalar"
    Params = CompareScalarParams
    low, high = -1.0, 1.0
    sample_params = ({"compare": "greater_equal", "scalar": 0.1},)

    def derivative(self, p: CompareScalarParams, saved: np.ndarray, out: np.ndarray,
                   *extra: np.ndarray) -> None:
        COMPARISONS[p.compare](saved, constant(p, saved), out=out)


@register
class MaximumScalar(Scalar):
    """The larger of data and scalar; a tie passes the gradient, as in MXNet."""

    name, aliases, ufunc = "_maximum_scalar", ("_MaximumScalar",), np.maximum
    pointwise = True
    sample_params = ({"scalar": 0.1},)

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_multiply_compare_scalar", [grad, data], compare="greater_equal",
                           scalar=p.scalar))


@register
class MinimumScalar(Scalar):
    """The smaller of data and scalar; a tie passes the gradient, as in MXNet."""

    name, aliases, ufunc = "_minimum_scalar", ("_MinimumScalar",), np.minimum
    pointwise = True
    sample_params = ({"scalar": 0.1},)

    def backward(self, b: Builder, p: ScalarParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_multiply_compare_scalar", [grad, data], compare="lesser_equal", scalar=p.scalar))


class CompareScalar(Scalar):
    """Base of comparisons with a constant: 1 or 0 in the dtype of data; no gradient."""

    smooth = False
    sample_params = ({"scalar": 0.1},)


@register
class EqualScalar(CompareScalar):
    """data == scalar."""

    name, aliases, ufunc = "_equal_scalar", ("_EqualScalar",), np.equal


@register
class NotEqualScalar(CompareScalar):
    """data != scalar."""

    name, aliases, ufunc = "_not_equal_scalar", ("_NotEqualScalar",), np.not_equal


@register
class GreaterScalar(CompareScalar):
    """data > scalar."""

    name, aliases, ufunc = "_greater_scalar", ("_GreaterScalar",), np.greater


@register
class GreaterEqualScalar(CompareScalar):
    """data >= scalar."""

    name, aliases, ufunc = "_greater_equal_scalar", ("_GreaterEqualScalar",), np.greater_equal


@register
class LesserScalar(CompareScalar):
    """data < scalar."""

    name, aliases, ufunc = "_lesser_scalar", ("_LesserScalar",), np.less


@register
class LesserEqualScalar(CompareScalar):
    """data <= scalar."""

    name, aliases, ufunc = "_lesser_equal_scalar", ("_LesserEqualScalar",), np.less_equal

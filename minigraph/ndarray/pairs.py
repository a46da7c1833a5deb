"""Functions of two values, each an NDArray or a number: `mx.nd.add`, `mx.nd.maximum`, `mx.nd.logical_and` ..."""
from __future__ import annotations

import operator
from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy as np

from ..base import MXNetError
from .array import NDArray

Function = Callable[..., Any]


def _function(name: str, of_arrays: Function, of_numbers: Function, doc: str) -> Function:
    def function(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, Number) and isinstance(rhs, Number):
            return of_numbers(lhs, rhs)
        left = isinstance(lhs, NDArray)
        result = (lhs if left else rhs).binary(rhs if left else lhs, of_arrays, reflected=not left) \
            if left or isinstance(rhs, NDArray) else NotImplemented
        if result is NotImplemented:
            raise MXNetError(f"{name} takes two values, each an NDArray or a number, and one of them an NDArray unless "
                             f"both are numbers; got {type(lhs).__name__} and {type(rhs).__name__}")
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}, element by element with broadcasting; each side an NDArray or a number."
    return function


def _truth(function: Function) -> Function:
    """Of two numbers: 1 or 0, as comparisons of arrays give."""
    return lambda lhs, rhs: int(function(lhs, rhs))


add = _function("add", operator.add, operator.add, "The sum")
subtract = _function("subtract", operator.sub, operator.sub, "The difference")
multiply = _function("multiply", operator.mul, operator.mul, "The product")
divide = _function("divide", operator.truediv, operator.truediv, "The quotient")
true_divide = divide
modulo = _function("modulo", operator.mod, operator.mod, "The remainder, with the sign of the divisor")
power = _function("power", operator.pow, operator.pow, "The first to the power of the second")
maximum = _function("maximum", np.maximum, max, "The larger")
minimum = _function("minimum", np.minimum, min, "The smaller")
hypot = _function("hypot", np.hypot, np.hypot, "The root of the sum of the squares")
equal = _function("equal", operator.eq, _truth(operator.eq), "1 where equal, else 0")
not_equal = _function("not_equal", operator.ne, _truth(operator.ne), "1 where different, else 0")
greater = _function("greater", operator.gt, _truth(operator.gt), "1 where greater, else 0")
greater_equal = _function("greater_equal", operator.ge, _truth(operator.ge), "1 where greater or equal, else 0")
lesser = _function("lesser", operator.lt, _truth(operator.lt), "1 where less, else 0")
lesser_equal = _function("lesser_equal", operator.le, _truth(operator.le), "1 where less or equal, else 0")
logical_and = _function("logical_and", np.logical_and, lambda lhs, rhs: int(bool(lhs) and bool(rhs)),
                        "1 where neither is 0, else 0")
logical_or = _function("logical_or", np.logical_or, lambda lhs, rhs: int(bool(lhs) or bool(rhs)),
                       "1 where either is not 0, else 0")
logical_xor = _function("logical_xor", np.logical_xor, lambda lhs, rhs: int(bool(lhs) != bool(rhs)),
                        "1 where exactly one is not 0, else 0")

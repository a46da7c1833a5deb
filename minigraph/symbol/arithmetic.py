"""Python's operators on symbols, and the functions of two values that go with them."""
from __future__ import annotations

from dataclasses import dataclass
from numbers import Number
from typing import TYPE_CHECKING, Any, NoReturn

from ..base import NotImplementedForSymbol

if TYPE_CHECKING:
    from .symbol import Symbol


@dataclass(frozen=True)
class _Form:
    """The operators behind one operation, each with the hint that its nodes are named by.

    Comparisons have no reflected one, since Python turns `1 < a` into `a > 1`.
    """

    pair: tuple[str, str]
    scalar: tuple[str, str]
    reflected: tuple[str, str] | None = None


def _form(pair: str, word: str, reflected: str | None = None) -> _Form:
    """An arithmetic form of the operators `pair`, `_<word>_scalar` and `_<reflected>_scalar`."""
    other = reflected or word
    return _Form((pair, "_" + word), (f"_{word}_scalar", f"_{word}scalar"),
                 (f"_{other}_scalar", f"_{other}scalar"))


def _comparison(word: str) -> _Form:
    pair, scalar = "_" + word, f"_{word}_scalar"
    return _Form((pair, pair), (scalar, scalar))


_PLUS = _form("elemwise_add", "plus")
_MINUS = _form("elemwise_sub", "minus", "rminus")
_MUL = _form("elemwise_mul", "mul")
_DIV = _form("elemwise_div", "div", "rdiv")
_MOD = _form("_mod", "mod", "rmod")
_POWER = _form("_power", "power", "rpower")
_MAXIMUM = _form("_maximum", "maximum")
_MINIMUM = _form("_minimum", "minimum")
_HYPOT = _Form(("_hypot", "_hypot"), ("_hypot_scalar", "_hypot_scalar"), ("_hypot_scalar", "_hypot_scalar"))
_EQUAL = _comparison("equal")
_NOT_EQUAL = _comparison("not_equal")
_GREATER = _comparison("greater")
_GREATER_EQUAL = _comparison("greater_equal")
_LESSER = _comparison("lesser")
_LESSER_EQUAL = _comparison("lesser_equal")


def _combine(form: _Form, left: Any, right: Any) -> Symbol:
    """`form` of two symbols, or of a symbol and a number; NotImplemented for anything else."""
    from .functions import apply_function

    if isinstance(left, Arithmetic) and isinstance(right, Arithmetic):
        return apply_function(*form.pair, (left, right), {})
    if isinstance(left, Arithmetic) and isinstance(right, Number):
        return apply_function(*form.scalar, (left,), {"scalar": right})
    if isinstance(left, Number) and isinstance(right, Arithmetic) and form.reflected is not None:
        return apply_function(*form.reflected, (right,), {"scalar": left})
    other = right if isinstance(left, Arithmetic) else left
    if hasattr(other, "shape") and hasattr(other, "dtype"):
        raise TypeError(f"{form.pair[0]} of a symbol and an array ({type(other).__name__} of shape {other.shape}): a "
                        f"symbol takes symbols and numbers; make the array a variable, mx.sym.Variable(name, "
                        f"shape={other.shape}), and bind the array under its name, or take a number out by float()")
    return NotImplemented


def _function(form: _Form, word: str, left: Any, right: Any) -> Symbol:
    result = _combine(form, left, right)
    if result is NotImplemented:
        raise TypeError(f"{word} takes two symbols, or a symbol and a number; got {type(left).__name__} and "
                        f"{type(right).__name__}")
    return result


def pow(base: Any, exp: Any) -> Any:
    """`base ** exp` of two symbols, a symbol and a number, or two numbers."""
    return base ** exp if _numbers(base, exp) else _function(_POWER, "pow", base, exp)


def maximum(left: Any, right: Any) -> Any:
    """The larger of two values, element by element; each a symbol or a number."""
    return max(left, right) if _numbers(left, right) else _function(_MAXIMUM, "maximum", left, right)


def minimum(left: Any, right: Any) -> Any:
    """The smaller of two values, element by element; each a symbol or a number."""
    return min(left, right) if _numbers(left, right) else _function(_MINIMUM, "minimum", left, right)


def hypot(left: Any, right: Any) -> Any:
    """The root of the sum of two squares, element by element; each a symbol or a number."""
    if _numbers(left, right):
        return (left * left + right * right) ** 0.5
    return _function(_HYPOT, "hypot", left, right)


def _numbers(left: Any, right: Any) -> bool:
    return isinstance(left, Number) and isinstance(right, Number)


class Arithmetic:
    """Python's + - * / % ** and comparisons, between symbols and with numbers; each makes one new node."""

    __slots__ = ()
    __array_ufunc__ = None  # so that a NumPy scalar on the left leaves the operation to us
    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Symbol:
        return _combine(_PLUS, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Symbol:
        return _combine(_MINUS, self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return _combine(_MINUS, other, self)

    def __mul__(self, other: Any) -> Symbol:
        return _combine(_MUL, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Symbol:
        return _combine(_DIV, self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return _combine(_DIV, other, self)

    def __mod__(self, other: Any) -> Symbol:
        return _combine(_MOD, self, other)

    def __rmod__(self, other: Any) -> Symbol:
        return _combine(_MOD, other, self)

    def __pow__(self, other: Any) -> Symbol:
        return _combine(_POWER, self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return _combine(_POWER, other, self)

    def __neg__(self) -> Symbol:
        return self * -1.0

    def __abs__(self) -> Symbol:
        from .functions import op_function

        return op_function("abs")(self)

    def __eq__(self, other: Any) -> Symbol:  # type: ignore[override]
        return _combine(_EQUAL, self, other)

    def __ne__(self, other: Any) -> Symbol:  # type: ignore[override]
        return _combine(_NOT_EQUAL, self, other)

    def __gt__(self, other: Any) -> Symbol:
        return _combine(_GREATER, self, other)

    def __ge__(self, other: Any) -> Symbol:
        return _combine(_GREATER_EQUAL, self, other)

    def __lt__(self, other: Any) -> Symbol:
        return _combine(_LESSER, self, other)

    def __le__(self, other: Any) -> Symbol:
        return _combine(_LESSER_EQUAL, self, other)

    def __iadd__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol("+=", "write a = a + b")

    def __isub__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol("-=", "write a = a - b")

    def __imul__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol("*=", "write a = a * b")

    def __itruediv__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol("/=", "write a = a / b")

    def __imod__(self, other: Any) -> NoReturn:
        raise NotImplementedForSymbol("%=", "write a = a % b")

    def __bool__(self) -> NoReturn:
        raise NotImplementedForSymbol("bool", "compare with `is None`, or bind the symbol and read outputs")

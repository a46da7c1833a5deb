"""Operator functions as methods: `data.reshape((0, -1))` is `reshape(data, (0, -1))`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..base import NotImplementedForSymbol
from ..ops.registry import public_names
from .splitting import split_v2
from .symbol import Symbol

METHOD_FORMS = (
    "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "argmax", "argmax_channel", "argmin",
    "argsort", "broadcast_axes", "broadcast_like", "broadcast_to", "cbrt", "ceil", "clip", "cos", "cosh",
    "degrees", "depth_to_space", "diag", "exp", "expand_dims", "expm1", "fix", "flatten", "flip", "floor", "log",
    "log10", "log1p", "log2", "log_softmax", "max", "mean", "min", "nanprod", "nansum", "norm", "one_hot",
    "ones_like", "pad", "pick", "prod", "radians", "rcbrt", "reciprocal", "relu", "repeat", "reshape",
    "reshape_like", "rint", "round", "rsqrt", "shape_array", "sigmoid", "sign", "sin", "sinh", "size_array",
    "slice", "slice_axis", "slice_like", "softmax", "softmin", "sort", "space_to_depth", "split", "sqrt",
    "square", "squeeze", "sum", "swapaxes", "take", "tan", "tanh", "tile", "topk", "transpose", "trunc",
    "zeros_like")
"""Operators that MXNet's Symbol and NDArray have as methods, with themselves as the first input."""


def _method(spelling: str) -> Callable[..., Symbol]:
    def method(self: Symbol, *args: Any, **kwargs: Any) -> Symbol:
        from .functions import op_function

        return op_function(spelling)(self, *args, **kwargs)

    method.__name__ = spelling
    method.__qualname__ = f"Symbol.{spelling}"
    method.__doc__ = f"The operator function `{spelling}` with this symbol as its first input."
    return method


def astype(self: Symbol, dtype: Any) -> Symbol:
    """This symbol cast to another dtype."""
    from .functions import op_function

    return op_function("Cast")(self, dtype=dtype)


VALUE_METHODS = ("as_in_context", "asnumpy", "asscalar", "backward", "copy", "detach", "wait_to_read")
"""Methods of NDArray that need values, which MXNet's Symbol names to refuse them."""


def _refusal(spelling: str) -> Callable[..., NoReturn]:
    def method(self: Symbol, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedForSymbol(spelling, "bind the symbol, and read the executor's outputs")

    method.__name__ = spelling
    method.__qualname__ = f"Symbol.{spelling}"
    method.__doc__ = "Not there, since a symbol has no values: NotImplementedForSymbol."
    return method


def add_methods() -> None:
    """Give Symbol the method forms of all operators that exist, and refusals of what needs values."""
    for spelling in VALUE_METHODS:
        setattr(Symbol, spelling, _refusal(spelling))
    Symbol.split_v2 = split_v2  # type: ignore[attr-defined]
    known = {name for name, _ in public_names()}
    for spelling in METHOD_FORMS:
        if spelling in known:
            setattr(Symbol, spelling, _method(spelling))
    Symbol.astype = astype  # type: ignore[attr-defined]

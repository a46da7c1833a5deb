"""Operators as methods: `a.sum(axis=1)` is `mx.nd.sum(a, axis=1)`, for all operators that MXNet's classes so offer."""
from __future__ import annotations

from typing import Any

from ..ops.registry import public_names
from ..symbol.methods import METHOD_FORMS
from .array import NDArray
from .dlpack import to_dlpack_for_read, to_dlpack_for_write
from .functions import Function, op_function
from .rearranging import split_v2


def _method(spelling: str) -> Function:
    def method(self: NDArray, *args: Any, **kwargs: Any) -> Any:
        return op_function(spelling)(self, *args, **kwargs)

    method.__name__ = spelling
    method.__qualname__ = f"NDArray.{spelling}"
    method.__doc__ = f"The operator function `{spelling}` with this array as its first input."
    return method


def add_methods() -> None:
    """Give NDArray the method forms of all operators that exist; a method that its class defines stays."""
    known = {name for name, _ in public_names()}
    for spelling in METHOD_FORMS:
        if spelling in known and not hasattr(NDArray, spelling):
            setattr(NDArray, spelling, _method(spelling))
    for function in (split_v2, to_dlpack_for_read, to_dlpack_for_write):
        setattr(NDArray, function.__name__, function)

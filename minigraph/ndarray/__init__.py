"""NDArrays: the values at the edges of a graph, and what makes, keeps and waits for them."""
from __future__ import annotations

from typing import Any

from .. import random
from ..base import MXNetError
from ..ops.registry import get_op
from ..storage import HostStorage, Storage
from ..symbol.functions import function_names
from .array import NDArray
from .creation import arange, array, concatenate, empty, full, ones, zeros
from .files import load, load_frombuffer, save
from .functions import op_function
from .waiting import register_waiter, waitall

__all__ = ["HostStorage", "NDArray", "Storage", "arange", "array", "concatenate", "empty", "full", "load",
           "load_frombuffer", "ones", "random", "register_waiter", "save", "waitall", "zeros"]


def __getattr__(name: str) -> Any:
    """The function of an operator."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        get_op(name)
    except MXNetError as error:
        raise AttributeError(f"minigraph.ndarray has no {name!r}, and no operator is named so") from error
    return op_function(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *function_names()})

"""NDArrays: the values at the edges of a graph, and what makes, keeps and waits for them."""
from __future__ import annotations

from typing import Any

from .. import random
from ..base import MXNetError
from ..ops.registry import get_op
from ..storage import HostStorage, Storage
from ..symbol.functions import function_names
from .array import NDArray
from .creation import arange, array, concatenate, empty, eye, from_numpy, full, full_like, linspace, ones, zeros
from .dlpack import from_dlpack, to_dlpack_for_read, to_dlpack_for_write
from .files import load, load_frombuffer, save
from .functions import op_function
from .methods import add_methods
from .namespaces import _internal, contrib, image, linalg, op
from .pairs import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    hypot,
    lesser,
    lesser_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    modulo,
    multiply,
    not_equal,
    power,
    subtract,
    true_divide,
)
from .rearranging import (
    choose_element_0index,
    fill_element_0index,
    histogram,
    imdecode,
    moveaxis,
    onehot_encode,
    split_v2,
)
from .samples import SAMPLES
from .updates import update_function, update_names
from .waiting import register_waiter, waitall

add_methods()
globals().update({name: update_function(name) for name in update_names()})

__all__ = ["HostStorage", "NDArray", "Storage", "_internal", "add", "arange", "array", "choose_element_0index",
           "concatenate", "contrib", "divide", "empty", "equal", "eye", "fill_element_0index", "from_dlpack",
           "from_numpy", "full", "full_like", "greater", "greater_equal", "histogram", "hypot", "image", "imdecode",
           "lesser", "lesser_equal", "linalg", "linspace", "load", "load_frombuffer", "logical_and", "logical_or",
           "logical_xor", "maximum", "minimum", "modulo", "moveaxis", "multiply", "not_equal", "onehot_encode", "ones",
           "op", "power", "random", "register_waiter", "save", "split_v2", "subtract", "to_dlpack_for_read",
           "to_dlpack_for_write", "true_divide", "waitall", "zeros"]


_INSTEAD = {**dict.fromkeys(("sparse", "cast_storage"), "arrays are dense"),
            "CachedOp": "bind a symbol"}
"""What serves in the place of MXNet's names that there are not."""


def __getattr__(name: str) -> Any:
    """The function of an operator, or of mx.random."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        get_op(name)
    except MXNetError as error:
        if name in SAMPLES:
            return SAMPLES[name]
        instead = f": {_INSTEAD[name]}" if name in _INSTEAD else ", and no operator is named so"
        raise AttributeError(f"minigraph.ndarray has no {name!r}{instead}") from error
    return op_function(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *update_names(), *SAMPLES, *function_names()})

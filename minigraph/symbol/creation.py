"""Symbols without inputs: variables, groups, constants, and those read from files."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..base import TYPE_FLAGS, MXNetError, dtype_of
from .attribute import current_scope, hidden_spelling
from .functions import apply_function
from .node import SymbolNode
from .symbol import Symbol


def Variable(name: str, attr: Mapping[str, Any] | None = None, shape: Any = None, lr_mult: Any = None,
             wd_mult: Any = None, dtype: Any = None, init: Any = None, stype: str | None = None,
             **kwargs: Any) -> Symbol:
    """A named input of the network: data, a label, or a parameter.

    A 0 in `shape` is an unknown dimension. `init` is an initializer or its text. Further attributes must be
    spelled `__key__`. `stype` may be None or "default": storage is dense.
    """
    if not isinstance(name, str):
        raise TypeError(f"Expect a string for variable `name`, got {type(name).__name__}")
    attrs = {hidden_spelling(key): str(value) for key, value in current_scope().get(attr).items()}
    attrs.update(_declared(shape, lr_mult, wd_mult, dtype, init, stype))
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise ValueError(f"Attribute name={key} is not supported. Additional attributes must start "
                             f"and end with double underscores, e.g, __yourattr__")
        attrs[key] = str(value)
    return Symbol([(SymbolNode(None, name, attrs, []), 0)])


var = Variable


def _declared(shape: Any, lr_mult: Any, wd_mult: Any, dtype: Any, init: Any, stype: str | None,
              ) -> dict[str, str]:
    attrs = {}
    if shape is not None:
        attrs["__shape__"] = str(shape)
    if lr_mult is not None:
        attrs["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attrs["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attrs["__dtype__"] = str(TYPE_FLAGS.index(dtype_of(dtype).name))
    if init is not None:
        attrs["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype not in (None, "default"):
        raise MXNetError(f"storage type {stype!r} is not supported; arrays are dense, leave stype out")
    if stype is not None:
        attrs["__storage_type__"] = "0"
    return attrs


def Group(symbols: Iterable[Symbol]) -> Symbol:
    """One symbol with the outputs of all `symbols`, in order."""
    symbols = list(symbols)
    if not symbols or not all(isinstance(symbol, Symbol) for symbol in symbols):
        raise TypeError(f"Expected a list of symbols as input, got {[type(s).__name__ for s in symbols]}")
    return Symbol(entry for symbol in symbols for entry in symbol.outputs)


def load(fname: str | os.PathLike) -> Symbol:
    """The symbol of a `-symbol.json` file of any MXNet version; MXNetError says what is wrong and where."""
    from ..formats.symbol_json import loads

    with open(fname, "rb") as file:
        data = file.read()
    try:
        return loads(data.decode())
    except UnicodeDecodeError as error:
        raise MXNetError(f"{os.fspath(fname)} is no symbol file: byte {error.start} is not UTF-8") from error
    except MXNetError as error:
        raise MXNetError(f"{os.fspath(fname)}: {error}") from error


def load_json(json_str: str) -> Symbol:
    """The symbol of MXNet's JSON text; as `load`."""
    from ..formats.symbol_json import loads

    if not isinstance(json_str, str):
        raise TypeError(f"load_json takes a text, got {type(json_str).__name__}")
    return loads(json_str)


def zeros(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A constant of zeros; dtype float32 when not given."""
    return _constant("_zeros", {"shape": shape, "dtype": dtype}, kwargs)


def ones(shape: Any, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A constant of ones; dtype float32 when not given."""
    return _constant("_ones", {"shape": shape, "dtype": dtype}, kwargs)


def full(shape: Any, val: float, dtype: Any = None, **kwargs: Any) -> Symbol:
    """A constant of one value; dtype float32 when not given."""
    return _constant("_full", {"shape": shape, "dtype": dtype, "value": float(val)}, kwargs)


def arange(start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1,
           name: str | None = None, dtype: Any = None) -> Symbol:
    """Numbers up to but without `stop`, each `repeat` times; from 0 to `start` when `stop` is not given."""
    values = {"start": start, "stop": stop, "step": step, "repeat": repeat, "dtype": dtype}
    return _constant("_arange", values, {"name": name})


def linspace(start: float, stop: float, num: int, endpoint: bool = True, name: str | None = None,
             dtype: Any = None) -> Symbol:
    """`num` numbers at equal distances from start to stop, which is the last one unless `endpoint` is false."""
    values = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": dtype}
    return _constant("_linspace", values, {"name": name})


def eye(N: int, M: int = 0, k: int = 0, dtype: Any = None, **kwargs: Any) -> Symbol:
    """An N x M matrix (N x N when M is 0) with ones on the diagonal number `k` and zeros elsewhere."""
    return _constant("_eye", {"N": N, "M": M, "k": k, "dtype": dtype}, kwargs)


def _constant(spelling: str, values: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Symbol:
    dtype = "float32" if values["dtype"] is None else dtype_of(values["dtype"]).name
    return apply_function(spelling, spelling, (), {**values, "dtype": dtype, **kwargs})

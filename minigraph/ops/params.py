"""Typed operator parameters: a frozen dataclass an op, read from Python values or from MXNet's text spellings."""
from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..base import MXNetError, dtype_of

REQUIRED: Any = object()


@dataclasses.dataclass(frozen=True)
class NoParams:
    """The parameters of an op that has none."""


def param(default: Any, kind: str, doc: str, choices: tuple[Any, ...] = (), optional: bool = False) -> Any:
    """Declare one parameter of an op: `kind` is int, float, bool, str, shape (a tuple of int), floats or dtype.

    A default of None, or `optional`, lets None be a value; REQUIRED makes the parameter obligatory.
    """
    if kind not in _PARSERS:
        raise TypeError(f"unknown parameter kind {kind!r}; known are {sorted(_PARSERS)}")
    meta = {"kind": kind, "doc": doc, "choices": choices, "required": default is REQUIRED, "optional": optional}
    return dataclasses.field(default=None if default is REQUIRED else default, metadata=meta)


def parse_params(cls: type, values: Mapping[str, Any], where: str) -> Any:
    """An instance of the params dataclass `cls` from texts or values; errors name `where` and the parameter.

    MXNet's tuning attributes (cudnn_*, workspace) and hidden keys (`__x__`) mean nothing here and are dropped.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}
    given = {}
    for key, value in values.items():
        if key in fields:
            given[key] = _parse(fields[key], value, where)
        elif not is_ignored(key):
            raise MXNetError(f"{where}: unknown parameter {key!r}; it takes {', '.join(fields) or 'no parameters'}")
    for name, field in fields.items():
        if field.metadata["required"] and given.get(name) is None:
            raise MXNetError(f"{where}: parameter {name!r} ({field.metadata['doc']}) must be given")
    return cls(**given)


def is_ignored(key: str) -> bool:
    """Whether an attribute is accepted and ignored: hidden keys and tuning hints of MXNet's CUDA code."""
    return (key.startswith("__") and key.endswith("__")) or key.startswith("cudnn_") or key == "workspace"


def format_param(value: Any) -> str:
    """The text of a parameter as MXNet's front end writes it: str(value), with dtypes by name."""
    return getattr(value, "name", None) or getattr(value, "__name__", None) or str(_plain(value))


def _plain(value: Any) -> Any:
    """NumPy's numbers in a sequence as Python's, since their texts are no literals."""
    if isinstance(value, np.ndarray):
        value = tuple(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(item) for item in value)
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    return float(str(value)) if isinstance(value, np.floating) else value


def _parse(field: dataclasses.Field, value: Any, where: str) -> Any:
    meta = field.metadata
    if value is None or isinstance(value, str) and value == "None":
        if field.default is None or meta["optional"]:
            return None
        if meta["kind"] in _LEFT_OUT:
            return field.default
        raise MXNetError(f"{where}: parameter {field.name}=None is no {meta['kind']} ({meta['doc']}); leave it out for "
                         f"{format_param(field.default)!r}")
    try:
        parsed = _PARSERS[meta["kind"]](value)
    except (ValueError, TypeError, SyntaxError, OverflowError, MemoryError, RecursionError, MXNetError) as error:
        raise MXNetError(f"{where}: parameter {field.name}={value!r} is no {meta['kind']} ({meta['doc']})") from error
    if meta["choices"] and parsed not in meta["choices"]:
        raise MXNetError(f"{where}: parameter {field.name}={value!r}; it must be one of "
                         f"{', '.join(map(str, meta['choices']))}")
    return parsed


def _int(value: Any) -> int:
    if isinstance(value, str):
        value = float(value) if re.fullmatch(r"[-+]?\d+\.0*", value) else int(value)
    if isinstance(value, bool) or int(value) != value:
        raise ValueError(value)
    return int(value)


def _bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in ("true", "1"):
        return True
    if text in ("false", "0"):
        return False
    raise ValueError(value)


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = ast.literal_eval(re.sub(r"(\d)L\b", r"\1", value.strip()))
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    return tuple(_int(item) for item in value)


def _floats(value: Any) -> tuple[float, ...]:
    if isinstance(value, str):
        value = ast.literal_eval(value.strip())
    return (float(value),) if isinstance(value, (int, float)) else tuple(map(float, value))


_LEFT_OUT = ("shape", "floats", "dtype")
"""Kinds of which None says that a parameter is left out, as MXNet takes it."""
_PARSERS: dict[str, Callable[[Any], Any]] = {
    "int": _int, "float": float, "bool": _bool, "str": str, "shape": _shape, "floats": _floats, "dtype": dtype_of}

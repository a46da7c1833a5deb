"""Plans as files: one JSON object of columns, compressed by gzip when the name ends in `.gz`.

    {"format": "minigraph-plan", "version": 1, "fingerprint": "...", "checksum": ..., "plan": {...}}

Parameters are kept as {field: value}, each different set once, and read back through the op's own declaration, so a
file holds no code. The checksum is the CRC-32 of the plan's compact JSON text.
"""
from __future__ import annotations

import gzip
import json
import os
import zlib
from array import array
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from ..base import MXNetError, dtype_of
from ..formats.atomic import write_atomically
from ..ops.params import parse_params
from ..ops.registry import get_op
from .diff import diff
from .plan import Arena, BufferColumns, Figures, InstructionColumns, Persistent, Plan

__all__ = ["FORMAT_VERSION", "diff", "dumps", "load", "loads", "save"]
FORMAT, FORMAT_VERSION = "minigraph-plan", 1


def dumps(plan: Plan) -> str:
    """The plan as JSON text; the same plan gives the same text."""
    body = _compact(_encode(plan))
    head = _compact({"format": FORMAT, "version": FORMAT_VERSION, "fingerprint": plan.fingerprint,
                     "checksum": zlib.crc32(body.encode())})
    return f'{head[:-1]},"plan":{body}}}'


def loads(text: str, fingerprint: str | None = None, where: str = "plan") -> Plan:
    """The plan of a JSON text; `where` names its source in errors.

    MXNetError for a text that is no plan or is damaged, for another format version, for an operator that is not
    there, and, when `fingerprint` is given, for a plan made from something else.
    """
    document = _parse(text, where)
    if document.get("format") != FORMAT:
        raise MXNetError(f"{where} is no plan: its format is {document.get('format')!r}, not {FORMAT!r}")
    version = document.get("version")
    if version != FORMAT_VERSION:
        raise MXNetError(f"{where} has format version {version!r}; this minigraph reads version {FORMAT_VERSION}: "
                         "compile the plan again")
    if fingerprint is not None and document.get("fingerprint") != fingerprint:
        raise MXNetError(f"{where} was made for the fingerprint {document.get('fingerprint')!r}, but this program's is "
                         f"{fingerprint!r} (graph, shapes, types, requests or versions differ): compile the plan again")
    body = document.get("plan")
    if not isinstance(body, dict) or zlib.crc32(_compact(body).encode()) != document.get("checksum"):
        raise MXNetError(f"{where} is damaged: its checksum does not fit its contents; save the plan again")
    try:
        return _decode(body, document["fingerprint"], where)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise MXNetError(f"{where} is damaged: {type(error).__name__}: {error}; save the plan again") from error


def save(plan: Plan, path: str | os.PathLike) -> None:
    """Write a plan; the file holds either what it held before or the whole plan."""
    data = dumps(plan).encode()
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, compresslevel=6, mtime=0)
    write_atomically(path, data)


def load(path: str | os.PathLike, fingerprint: str | None = None) -> Plan:
    """Read a plan as `loads` does; MXNetError also when the file cannot be read or unpacked."""
    where = f"plan file {os.fspath(path)!r}"
    try:
        with open(path, "rb") as file:
            data = file.read()
        text = (gzip.decompress(data) if os.fspath(path).endswith(".gz") else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise MXNetError(f"{where} cannot be read: {error}") from error
    return loads(text, fingerprint, where)


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MXNetError(f"{where} is truncated or damaged: {error}") from error
    if not isinstance(document, dict):
        raise MXNetError(f"{where} is no plan: it holds a {type(document).__name__}, not an object")
    return document


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """NumPy's scalars and dtypes as JSON has them."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"a plan file cannot hold a {type(value).__name__}: {value!r}")


# -- to JSON ---------------------------------------------------------------------------------------------------
def _encode(plan: Plan) -> dict[str, Any]:
    """Every field of the plan but its fingerprint, by name, and the table of parameters."""
    table, indices = _encode_params(plan.instructions)
    encoded = {field.name: getattr(plan, field.name) for field in fields(Plan) if field.name != "fingerprint"}
    encoded["arenas"] = [tuple(vars(arena).values()) for arena in plan.arenas]
    encoded["persistent"] = [tuple(vars(tensor).values()) for tensor in plan.persistent]
    encoded["figures"] = vars(plan.figures)
    encoded["buffers"] = vars(plan.buffers)
    encoded["params"] = table
    encoded["instructions"] = {**vars(plan.instructions), "params": indices}
    return encoded


def _encode_params(columns: InstructionColumns) -> tuple[list[dict[str, Any]], list[int]]:
    """The different parameters, each with its op, and for each instruction the number of its own (-1: none)."""
    table: list[dict[str, Any]] = []
    number: dict[str, int] = {}
    indices = []
    for op, params in zip(columns.op, columns.params, strict=True):
        if params is None:
            indices.append(-1)
            continue
        entry = {"op": op, "fields": {field.name: getattr(params, field.name) for field in fields(params)}}
        key = _compact(entry)
        if key not in number:
            number[key] = len(table)
            table.append(entry)
        indices.append(number[key])
    return table, indices


# -- from JSON -------------------------------------------------------------------------------------------------
def _decode(body: dict[str, Any], fingerprint: str, where: str) -> Plan:
    values = {field.name: body[field.name] for field in fields(Plan) if field.name != "fingerprint"}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
    values["arenas"] = tuple(Arena(*row) for row in body["arenas"])
    values["persistent"] = tuple(Persistent(*row) for row in body["persistent"])
    values["figures"] = Figures(**body["figures"])
    values["buffers"] = _decode_buffers(body["buffers"])
    values["instructions"] = _decode_instructions(body, where)
    values["ranges"] = {name: (int(first), int(last)) for name, (first, last) in body["ranges"].items()}
    return Plan(fingerprint=fingerprint, **values)


def _decode_buffers(columns: dict[str, list[Any]]) -> BufferColumns:
    dtypes = {name: dtype_of(name) for name in set(columns["dtype"])}
    text = _Once()
    return _columns(BufferColumns, columns, shape=_Once(tuple), dtype=dtypes.__getitem__, layout=text,
                    buffer_class=text)


def _decode_instructions(body: dict[str, Any], where: str) -> InstructionColumns:
    table = [parse_params(get_op(entry["op"]).Params, entry["fields"], f"{where}, operator {entry['op']}")
             for entry in body["params"]]
    text, number = _Once(), _Once()

    def numbers(row: list[int]) -> tuple[int, ...]:
        return tuple(map(number, row))
    return _columns(InstructionColumns, body["instructions"], reads=numbers, writes=numbers, unread=_Once(tuple),
                    op=text, algorithm=text,
                    params=lambda index: None if index < 0 else table[index])


class _Once:
    """Equal items as one object: a file spells each of them out, and a deep network has few different ones."""

    def __init__(self, convert: Callable[[Any], Any] | None = None) -> None:
        self.convert = convert
        self.known: dict[Any, Any] = {}

    def __call__(self, item: Any) -> Any:
        value = item if self.convert is None else self.convert(item)
        return self.known.setdefault(value, value)


def _columns(cls: type, columns: dict[str, list[Any]], **convert: Callable[[Any], Any]) -> Any:
    """Columns of the class `cls`, all of one length, some of them converted item by item.

    They are taken out of `columns` one by one, so that what was read is let go as soon as it is converted.
    """
    names = [field.name for field in fields(cls)]
    if set(names) != set(columns) or len({len(columns[name]) for name in names}) != 1:
        raise ValueError(f"the columns of {cls.__name__} are not complete or not of one length")
    made = {}
    for name in names:
        read = columns.pop(name)
        made[name] = list(map(convert[name], read)) if name in convert else read
    return cls(**made)

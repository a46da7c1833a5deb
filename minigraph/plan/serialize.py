"""Plans as files: one JSON object of columns, compressed by gzip when the name ends in `.gz`.

    {"format": "minigraph-plan", "version": 4, "fingerprint": "...", "checksum": ..., "plan": {...}}

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
from itertools import starmap
from typing import Any

import numpy as np

from ..base import MXNetError, dtype_of
from ..formats.atomic import write_atomically
from ..ops.params import parse_params
from ..ops.registry import get_op
from .diff import diff
from .plan import Arena, BufferColumns, Extent, Figures, InstructionColumns, Output, Persistent, Plan
from .reading import (
    Reader,
    converting,
    read_object,
    require,
    require_list,
    require_lists,
    require_object,
    skip_spaces,
)

__all__ = ["FORMAT_VERSION", "diff", "dumps", "load", "loads", "save"]
FORMAT, FORMAT_VERSION = "minigraph-plan", 4


def dumps(plan: Plan) -> str:
    """The plan as JSON text; the same plan gives the same text."""
    body = compact(_encode(plan))
    head = compact({"format": FORMAT, "version": FORMAT_VERSION, "fingerprint": plan.fingerprint,
                     "checksum": zlib.crc32(body.encode())})
    return f'{head[:-1]},"plan":{body}}}'


def loads(text: str, fingerprint: str | None = None, where: str = "plan") -> Plan:
    """The plan of a JSON text; `where` names its source in errors.

    MXNetError for a text that is no plan or is damaged, for another format version, for an operator that is not
    there, and, when `fingerprint` is given, for a plan made from something else.
    """
    try:
        document = _Document(text, where, fingerprint).read()
    except (ValueError, RecursionError) as error:
        raise MXNetError(f"{where} is truncated or damaged: {error}") from error
    try:
        return _decode(document["plan"], document["fingerprint"], where)
    except KeyError as error:
        raise MXNetError(f"{where} is damaged: it has no {error}; save the plan again") from error
    except ValueError as error:
        raise MXNetError(f"{where} is damaged: {error}; save the plan again") from error


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


class _Document:
    """Reads a file's text. Columns are converted one by one, since a deep network's plan should leave no more behind
    in memory than it takes itself."""

    def __init__(self, text: str, where: str, fingerprint: str | None) -> None:
        self.text, self.where, self.fingerprint = text, where, fingerprint
        self.checksum = 0
        self.body_at = (0, 0)

    def read(self) -> dict[str, Any]:
        """The document, after its format, version, fingerprint and checksum."""
        if not self.text.lstrip().startswith("{"):
            kind = type(json.loads(self.text)).__name__
            raise MXNetError(f"{self.where} is no plan: it holds a {kind}, not an object")
        document, end = read_object(self.text, 0, {"plan": self._body})
        if skip_spaces(self.text, end) != len(self.text):
            raise ValueError("something follows the plan")
        self._check_head(document)
        if not isinstance(document.get("plan"), dict) or not self._is_intact(document.get("checksum")):
            raise MXNetError(f"{self.where} is damaged: its checksum does not fit its contents; save the plan again")
        return document

    def _body(self, text: str, position: int, head: dict[str, Any]) -> tuple[Any, int]:
        if "format" in head and "version" in head:
            self._check_head(head)  # another version's columns may not be ours to read
        body, end = read_object(text, position, {"buffers": _buffer_columns, "instructions": _instruction_columns})
        self.body_at = position, end
        return body, end

    def _check_head(self, head: dict[str, Any]) -> None:
        where, version = self.where, head.get("version")
        if head.get("format") != FORMAT:
            raise MXNetError(f"{where} is no plan: its format is {head.get('format')!r}, not {FORMAT!r}")
        if version != FORMAT_VERSION:
            raise MXNetError(f"{where} has format version {version!r}; this minigraph reads version {FORMAT_VERSION}: "
                             "compile the plan again")
        if self.fingerprint is not None and head.get("fingerprint") != self.fingerprint:
            raise MXNetError(f"{where} was made for the fingerprint {head.get('fingerprint')!r}, but this program's is "
                             f"{self.fingerprint!r} (graph, shapes, types, requests or versions differ): compile the "
                             f"plan again")

    def _is_intact(self, checksum: Any) -> bool:
        """Whether the checksum is that of the plan's text, or of its compact form when somebody laid it out anew."""
        body = self.text[slice(*self.body_at)]
        return zlib.crc32(body.encode()) == checksum or zlib.crc32(compact(json.loads(body)).encode()) == checksum


def compact(value: Any) -> str:
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
        key = compact(entry)
        if key not in number:
            number[key] = len(table)
            table.append(entry)
        indices.append(number[key])
    return table, indices


# -- from JSON -------------------------------------------------------------------------------------------------
def _decode(body: dict[str, Any], fingerprint: str, where: str) -> Plan:
    values = {field.name: body[field.name] for field in fields(Plan) if field.name != "fingerprint"}
    require_object({"fingerprint": fingerprint, **{name: values[name] for name in ("program", "memory")}}, "a text",
                   "plan")
    for name in ("streams", "parameters", "without_gradient", "late_inputs", "expected"):
        require_list(values[name], "a text", name)
        values[name] = tuple(values[name])
    require_object(values["inputs"], "a whole number", "inputs")
    values["outputs"] = tuple(starmap(Output, _rows(body["outputs"], "outputs", 1, 1)))
    values["arenas"] = _arenas(body["arenas"])
    values["persistent"] = tuple(Persistent(*row) for row in _rows(body["persistent"], "persistent", 1, 2))
    values["figures"] = _figures(body["figures"])
    values["buffers"] = _columns(BufferColumns, body["buffers"])
    values["instructions"] = _decode_instructions(body, where)
    require_object(body["ranges"], "a list", "ranges")
    values["ranges"] = dict(zip(body["ranges"], _rows([*body["ranges"].values()], "ranges", 0, 2), strict=True))
    return Plan(fingerprint=fingerprint, **values)


def _arenas(rows: Any) -> tuple[Arena, ...]:
    """The arenas; each row's last item is the rows of its extents."""
    require_list(rows, "a list", "arenas")
    for k, row in enumerate(rows):
        if len(row) != len(fields(Arena)):
            raise ValueError(f"arenas[{k}] has {len(row)} items; it must have {len(fields(Arena))}")
    whole = _rows([row[:-1] for row in rows], "arenas", 2, 2)
    shown = [_rows(row[-1], f"arenas[{k}], its extents", 0, 2) for k, row in enumerate(rows)]
    return tuple(Arena(name, space, nbytes, page_bytes, tuple(starmap(Extent, extents)))
                 for (name, space, nbytes, page_bytes), extents in zip(whole, shown, strict=True))


def _rows(rows: Any, name: str, texts: int, numbers: int) -> list[tuple[Any, ...]]:
    """A list of rows, each of so many texts and so many whole numbers."""
    require_list(rows, "a list", name)
    for k, row in enumerate(rows):
        if len(row) != texts + numbers:
            raise ValueError(f"{name}[{k}] has {len(row)} items; it must have {texts + numbers}")
        require(row[:texts], "a text", f"{name}[{k}]")
        require(row[texts:], "a whole number", f"{name}[{k}], after {texts} texts,")
    return [tuple(row) for row in rows]


def _figures(members: Any) -> Figures:
    require_object({"figures": members}, "an object", "plan")
    require_object(members.get("pass_seconds"), "a number", "figures.pass_seconds")
    kinds = {"int": "a whole number", "float": "a number", "str": "a text", "dict[str, float]": "an object"}
    for field in fields(Figures):
        require_object({field.name: members[field.name]}, kinds[str(field.type)], "figures")
    return Figures(**members)


def _buffer_columns(text: str, position: int, _: dict[str, Any]) -> tuple[dict[str, Any], int]:
    word = _Once()
    return _read_columns(text, position, "buffers", {
        "name": _each("a text"), "shape": _each_row(_Once(tuple)), "dtype": _each("a text", _Once(dtype_of)),
        "layout": _each("a text", word), "buffer_class": _each("a text", word), "view": _each("true or false"),
        **dict.fromkeys(("arena", "offset", "bytes", "born", "dies", "shares"), _ints)})


def _instruction_columns(text: str, position: int, _: dict[str, Any]) -> tuple[dict[str, Any], int]:
    word, number = _Once(), _Once()
    numbers = _each_row(lambda row: tuple(map(number, row)))
    return _read_columns(text, position, "instructions", {
        "name": _each("a text"), "op": _each("a text", word), "algorithm": _each("a text", word),
        "unread": _each_row(_Once(tuple)), "reads": numbers, "writes": numbers, "value": _each("a number"),
        **dict.fromkeys(("kind", "stream", "workspace", "event", "params"), _ints)})


Column = Callable[[Any, str], Any]
"""From a column of a file, and its place for errors, to that of a plan; ValueError for what is of another kind."""


def _read_columns(text: str, position: int, where: str, columns: dict[str, Column]) -> tuple[dict[str, Any], int]:
    def reader(name: str, column: Column) -> Reader:
        return converting(lambda value: column(value, f"{where}.{name}"))
    return read_object(text, position, {name: reader(name, column) for name, column in columns.items()})


def _decode_instructions(body: dict[str, Any], where: str) -> InstructionColumns:
    require_list(body["params"], "an object", "params")
    for entry in body["params"]:
        require_object({"op": entry.get("op")}, "a text", "params")
        require_object({"fields": entry.get("fields")}, "an object", "params")
    table = [parse_params(get_op(entry["op"]).Params, entry["fields"], f"{where}, operator {entry['op']}")
             for entry in body["params"]]
    columns = body["instructions"]
    for i, index in enumerate(columns["params"]):
        if not -1 <= index < len(table):
            raise ValueError(f"instructions.params[{i}] is {index}; the file has parameters 0 to {len(table) - 1}")
    params = [None if index < 0 else table[index] for index in columns["params"]]
    return _columns(InstructionColumns, {**columns, "params": params})


class _Once:
    """Equal items as one object: a file spells each of them out, and a deep network has few different ones."""

    def __init__(self, convert: Callable[[Any], Any] | None = None) -> None:
        self.convert = convert
        self.known: dict[Any, Any] = {}

    def __call__(self, item: Any) -> Any:
        value = item if self.convert is None else self.convert(item)
        return self.known.setdefault(value, value)


def _each(kind: str, convert: Callable[[Any], Any] | None = None) -> Column:
    """A column of values of a kind."""
    def read(column: Any, where: str) -> Any:
        require_list(column, kind, where)
        return column if convert is None else list(map(convert, column))
    return read


def _each_row(convert: Callable[[Any], Any]) -> Column:
    """A column of lists of whole numbers."""
    def read(column: Any, where: str) -> Any:
        require_lists(column, "a whole number", where)
        return list(map(convert, column))
    return read


def _ints(column: Any, where: str) -> Any:
    require_list(column, "a whole number", where)
    return array("q", column)


def _columns(cls: type, columns: dict[str, Any]) -> Any:
    """Columns of the class `cls`, all of one length."""
    names = [field.name for field in fields(cls)]
    if set(names) != set(columns) or len({len(columns[name]) for name in names}) != 1:
        raise ValueError(f"the columns of {cls.__name__} are not complete or not of one length")
    return cls(**columns)

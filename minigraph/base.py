"""What every part of minigraph shares: errors, tensor types, byte counts and the protocols between layers."""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np

Shape = tuple[int, ...]
PartialShape = tuple["int | None", ...] | None
"""A shape under inference: None when the rank is unknown, and None for each unknown dimension."""
Entry = int
"""A tensor value of a graph, as the number of its entry."""

ALIGNMENT = 64
"""Bytes to which every buffer of an arena is aligned and rounded: one cache line, and one AVX-512 register."""


class MXNetError(RuntimeError):
    """The error that minigraph raises for whatever a user can mend; it carries MXNet's name for old scripts."""


MinigraphError = MXNetError


class NotImplementedForSymbol(MXNetError):
    """An operation that needs values, asked of a symbol, which has none."""

    def __init__(self, operation: str, instead: str) -> None:
        super().__init__(f"{operation} is not implemented for Symbol, only for NDArray; {instead}")


class OutOfMemoryError(MXNetError):
    """A plan or an allocation that does not fit; `asked_bytes` and `free_bytes` say by how much."""

    def __init__(self, message: str, asked_bytes: int, free_bytes: int) -> None:
        super().__init__(message)
        self.asked_bytes = asked_bytes
        self.free_bytes = free_bytes


PLAIN, BLOCKED, TRANSPOSED = "", "nChw16c", "transposed"
"""Layouts: row-major order; blocks of 16 channels: a tensor (N, C, *spatial) lies as (N, ceil(C / 16), *spatial, 16),
and the channels that fill up the last block are zero, always; and a matrix column by column."""
LANES = 16
"""Channels of a block."""


def stored_shape(shape: Shape, layout: str) -> Shape:
    """The shape in which a tensor of a logical shape lies in memory, row-major."""
    if layout == PLAIN:
        return shape
    if layout == TRANSPOSED:
        return shape[::-1]
    return shape[0], -(-shape[1] // LANES), *shape[2:], LANES


@dataclass(frozen=True, slots=True)
class Layouts:
    """Layouts of an op's inputs and outputs that a device takes together, in order.

    `slowdown` is how many times the op's modelled time it takes with them.
    """

    ins: tuple[str, ...]
    outs: tuple[str, ...]
    slowdown: float = 1.0

    @classmethod
    def plain(cls, ins: int, outs: int, slowdown: float = 1.0) -> Layouts:
        """All plain."""
        return cls((PLAIN,) * ins, (PLAIN,) * outs, slowdown)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape, dtype and layout of a tensor value; all that costs and workspaces may depend on."""

    shape: Shape
    dtype: np.dtype
    layout: str = PLAIN

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in its layout, with the channels that fill up blocks."""
        return prod(stored_shape(self.shape, self.layout)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Cost:
    """What one execution of an op does: floating-point operations, bytes read, bytes written.

    Bytes are those between memory and caches: a tensor counts once for each pass that goes over all of it, and what is
    read again while it lies in a cache, as a row or a chunk of the batch, counts once. Where devices differ in that, it
    is what the one with the fewest passes moves.
    """

    flops: float
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One way to compute an op: algorithms of one `numeric_class` give the same bits.

    `extra_bytes` are those that it moves beyond what the op's cost says, for want of workspace to keep them in.
    `chunk_rows` are the rows of a canonical chunk of the batch: where an op may run on slices, those begin at multiples
    of it.
    """

    name: str = "default"
    workspace_bytes: int = 0
    numeric_class: str = "default"
    extra_bytes: int = 0
    chunk_rows: int = 1


class Builder(Protocol):
    """What an op's `expand` and `gradient` may ask of the graph that they add nodes to."""

    def node(self, op: str, inputs: Sequence[Entry], /, **params: object) -> tuple[Entry, ...]:
        """Add a node of `op` and return its output entries."""
        ...

    def shape(self, entry: Entry) -> Shape:
        """The shape of an entry, known in full once inference has run."""
        ...

    def dtype(self, entry: Entry) -> np.dtype:
        """The dtype of an entry."""
        ...

    def random_key(self) -> Entry:
        """The control buffer, which holds the seed and the step number."""
        ...

    def next_random_ordinal(self) -> int:
        """The number of the next random op in forward order."""
        ...

    def next_python_ordinal(self) -> int:
        """The number of the next operator in Python in forward order."""
        ...


def align(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """`nbytes` rounded up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_bytes(text: int | float | str) -> int:
    """A byte count from a number or a text: "2GB" is 2e9 bytes and "2GiB" is 2 * 2**30 bytes.

    ValueError for a negative or infinite count, an unknown unit, or what is neither number nor text.
    """
    if isinstance(text, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", text)
        if match is None or match[2].lower() not in _UNITS:
            raise ValueError(f"{text!r} is no byte count; write for example 1500000, '2GB' (10^9) or '2GiB' (2^30)")
        return int(float(match[1]) * _UNITS[match[2].lower()])
    if isinstance(text, (bool, np.bool_)) or not isinstance(text, (int, float, np.integer, np.floating)):
        raise ValueError(f"{text!r} is no byte count; give a number, or a text such as '2GiB'")
    if not 0 <= text < math.inf:
        raise ValueError(f"a byte count must be finite and not negative, got {text!r}")
    return int(text)


def format_bytes(nbytes: float) -> str:
    """A byte count for people, in binary units: 1536 -> '1.50 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024 or unit == "GiB":
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
        nbytes /= 1024
    raise AssertionError("unreachable")


def dtype_of(value: object) -> np.dtype:
    """A numpy dtype from a dtype, a name, a type, or MXNet's type number as text ("0" is float32).

    MXNetError for anything but the types of MXNet, each of one number.
    """
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value < len(TYPE_FLAGS):
            raise MXNetError(f"unknown MXNet type number {value}; known are 0 to {len(TYPE_FLAGS) - 1}")
        return np.dtype(TYPE_FLAGS[value])
    try:
        found = np.dtype(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise MXNetError(f"{value!r} is no dtype; give a numpy dtype, its name, or an MXNet type number") from error
    if value is None or found.name not in TYPE_FLAGS:
        raise MXNetError(f"{value!r} is no dtype of one number; there are {', '.join(TYPE_FLAGS)}")
    return found


REAL_KINDS = "biuf"
"""numpy's letters of the kinds of dtype that hold real numbers: truths, whole numbers and floats."""
TYPE_FLAGS = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool", "int16",
              "uint16", "uint32", "uint64")
"""MXNet's type numbers, by position."""


def is_number_or_none(value: object) -> bool:
    """Whether a setting that may be left out is so, or converts to a float and is not NaN."""
    return value is None or hasattr(value, "__float__") and value == value


mx_real_t = np.float32
"""MXNet's name of the type that numbers have unless one is given."""
string_types = (str,)
numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)
"""MXNet's names of the Python and NumPy types of texts, numbers and whole numbers."""

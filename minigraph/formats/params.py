"""MXNet's .params format: a list or dictionary of dense arrays, little-endian throughout.

A file is: uint64 magic 0x112, uint64 0, uint64 n, n array records, uint64 m (0 or n), m names (uint64 length
and bytes). Four generations of array records exist, told apart by their first word; all are read. Written are
V2 records, which MXNet has read since 0.12, and V3 for what only they can hold: shapes with a 0 in them, and
().
"""
from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ..base import TYPE_FLAGS, MXNetError

LIST_MAGIC = 0x112
V1_MAGIC, V2_MAGIC, V3_MAGIC = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_CPU_CONTEXT = struct.pack("<ii", 1, 0)
_SPARSE_NAMES = {1: "row_sparse", 2: "csr"}
_BFLOAT16_FLAG = 12
_MAX_NDIM = 32  # what every numpy holds, and as many as MXNet has

Arrays = list[np.ndarray] | dict[str, np.ndarray]


class _Reader:
    """A cursor over the bytes of a file that never passes their end."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data).cast("B")
        self.position = 0

    @property
    def left_bytes(self) -> int:
        """Bytes not yet taken."""
        return len(self.data) - self.position

    def take(self, nbytes: int, what: str) -> memoryview:
        """The next `nbytes`, without a copy; MXNetError when the file is shorter."""
        if nbytes > self.left_bytes:
            raise MXNetError(f"the .params file is truncated or damaged: {what} at byte {self.position} "
                             f"needs {nbytes} bytes and {self.left_bytes} are left")
        self.position += nbytes
        return self.data[self.position - nbytes:self.position]

    def number(self, code: str, what: str) -> int:
        """The next integer, of a struct code."""
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0]


def loads(data: bytes) -> Arrays:
    """The arrays of a .params file: a dictionary if they have names, else a list.

    Each array owns its memory. bfloat16 is widened to float32, which is exact; device numbers are ignored; an
    array that was never given a value has shape (0,). Anything wrong gives one MXNetError, before memory is
    taken.
    """
    reader = _Reader(data)
    if reader.left_bytes < 8 or reader.number("Q", "the magic number") != LIST_MAGIC:
        raise MXNetError("not an MXNet .params file: it does not begin with the magic number 0x112")
    reader.number("Q", "the reserved word")
    count = reader.number("Q", "the number of arrays")
    if count * 4 > reader.left_bytes:
        raise MXNetError(f"the .params file is damaged: it claims {count} arrays in "
                         f"{reader.left_bytes} bytes")
    arrays = [_read_array(reader, index) for index in range(count)]
    names = _read_names(reader, count)
    if reader.left_bytes:
        raise MXNetError(f"the .params file has {reader.left_bytes} bytes after its end at byte "
                         f"{reader.position}")
    return dict(zip(names, arrays, strict=True)) if names else arrays


def _read_names(reader: _Reader, count: int) -> list[str]:
    found = reader.number("Q", "the number of names")
    if found not in (0, count):
        raise MXNetError(f"the .params file is damaged: {found} names for {count} arrays")
    names = []
    for index in range(found):
        raw = reader.take(reader.number("Q", f"the length of name {index}"), f"name {index}")
        try:
            names.append(str(raw, "utf-8"))
        except UnicodeDecodeError as error:
            raise MXNetError(f"the .params file is damaged: name {index} is not UTF-8 text") from error
    if len(set(names)) < len(names):
        raise MXNetError("the .params file is damaged: two of its arrays have the same name")
    return names


def _read_array(reader: _Reader, index: int) -> np.ndarray:
    where = f"array {index}"
    shape = _read_shape(reader, where)
    if shape is None:
        return np.empty((0,), np.float32)
    reader.take(8, f"the context of {where}")
    flag = reader.number("i", f"the type of {where}")
    if flag == _BFLOAT16_FLAG:
        return _widen_bfloat16(_read_elements(reader, np.dtype("<u2"), shape, where))
    if not 0 <= flag < len(TYPE_FLAGS):
        raise MXNetError(f"the .params file is damaged: {where} has the unknown type number {flag}")
    return _read_elements(reader, np.dtype(TYPE_FLAGS[flag]).newbyteorder("<"), shape, where)


def _read_shape(reader: _Reader, where: str) -> tuple[int, ...] | None:
    """The shape that begins an array record of any generation, or None for an array without a value."""
    first = reader.number("I", f"the version of {where}")
    if first in (V2_MAGIC, V3_MAGIC):
        _check_storage_type(reader.number("i", f"the storage type of {where}"), where)
        ndim = reader.number("i", f"the rank of {where}")
        if ndim == (0 if first == V2_MAGIC else -1):
            return None
        code = "q"
    elif first == V1_MAGIC:
        ndim, code = reader.number("I", f"the rank of {where}"), "q"
    else:
        ndim, code = first, "I"  # the oldest records begin with the rank itself
    if ndim == 0 and first != V3_MAGIC:
        return None
    if not 0 <= ndim <= _MAX_NDIM:
        raise MXNetError(f"the .params file is damaged: {where} has rank {ndim}, above {_MAX_NDIM}")
    itemsize = struct.calcsize("<" + code)
    shape = struct.unpack(f"<{ndim}{code}", reader.take(ndim * itemsize, f"the shape of {where}"))
    if any(n < 0 for n in shape):
        raise MXNetError(f"the .params file is damaged: {where} has the shape {shape}")
    return shape


def _check_storage_type(storage_type: int, where: str) -> None:
    if storage_type in _SPARSE_NAMES:
        raise MXNetError(f"{where} of the .params file is {_SPARSE_NAMES[storage_type]}: sparse arrays are "
                         f"not supported; save it with tostype('default')")
    if storage_type not in (0, -1):
        raise MXNetError(f"the .params file is damaged: {where} has the unknown storage type {storage_type}")


def _read_elements(reader: _Reader, dtype: np.dtype, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Copy out the elements; the file is known to hold them before memory is taken."""
    raw = reader.take(prod(shape) * dtype.itemsize, f"the {dtype.name} data of {where}, shape {shape},")
    try:
        return np.frombuffer(raw, dtype).reshape(shape).astype(dtype.newbyteorder("="))
    except ValueError as error:  # no elements, but other dimensions beyond numpy's limits
        raise MXNetError(f"the .params file is damaged: {where} has the shape {shape}") from error


def _widen_bfloat16(bits: np.ndarray) -> np.ndarray:
    """float32 whose upper halves are `bits`."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def dumps(arrays: Sequence[np.ndarray] | Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a .params file with these arrays, in order; MXNetError for a dtype that MXNet lacks."""
    if not isinstance(arrays, (Mapping, list, tuple)):
        raise ValueError(f"give a list or a dictionary of arrays, got {type(arrays).__name__}")
    names = list(arrays) if isinstance(arrays, Mapping) else []
    values = list(arrays.values()) if isinstance(arrays, Mapping) else list(arrays)
    pieces = [struct.pack("<QQQ", LIST_MAGIC, 0, len(values))]
    for index, value in enumerate(values):
        pieces += _array_record(np.asarray(value), repr(names[index]) if names else f"array {index}")
    pieces.append(struct.pack("<Q", len(names)))
    for name in names:
        raw = name.encode()
        pieces += [struct.pack("<Q", len(raw)), raw]
    return b"".join(pieces)


def _array_record(value: np.ndarray, where: str) -> list[bytes]:
    """The pieces of one record."""
    if value.dtype.name not in TYPE_FLAGS:
        raise MXNetError(f"{where} has dtype {value.dtype}, which .params files cannot hold; known are "
                         f"{', '.join(TYPE_FLAGS)}")
    if value.ndim > _MAX_NDIM:
        raise MXNetError(f"{where} has {value.ndim} dimensions, .params files hold at most {_MAX_NDIM}")
    magic = V2_MAGIC if value.size and value.ndim else V3_MAGIC
    head = struct.pack(f"<Iii{value.ndim}q", magic, 0, value.ndim, *value.shape)
    flag = struct.pack("<i", TYPE_FLAGS.index(value.dtype.name))
    return [head, _CPU_CONTEXT, flag, value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()]

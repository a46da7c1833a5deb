"""The safetensors format: named dense arrays behind a JSON header, little-endian, nothing in it is code.

A file is: uint64 n, n bytes of JSON, then the arrays' bytes in C order. The header maps each name to
{"dtype", "shape", "data_offsets": [begin, end)}, offsets counted from the end of the header; "__metadata__" maps texts
to texts. The arrays fill what follows the header without gap or overlap. See huggingface/safetensors.
"""
from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ..base import MXNetError

MAX_HEADER_BYTES = 100_000_000
"""Longest header, as in the format's own reader."""
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
           "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1", "BF16": "<u2"}
"""NumPy's spelling of each type; BF16 is read as its bits."""
_NAMES = {np.dtype(code).name: name for name, code in _DTYPES.items() if name != "BF16"}
_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}
_MAX_NDIM = 32


def loads(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(arrays by name, metadata) of a file's bytes; MXNetError says what is wrong, before memory is taken.

    Each array owns its memory. bfloat16 is widened to float32, which is exact; 8-bit floats are refused.
    """
    header, body = _split(data)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise MXNetError("the safetensors file is damaged: __metadata__ must map texts to texts")
    records = {name: _record(name, entry) for name, entry in header.items()}
    _check_cover(records, len(body))
    return {name: _array(name, record, body) for name, record in records.items()}, metadata


def _split(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """The header and the bytes after it."""
    if len(data) < 8:
        raise MXNetError(f"no safetensors file: it has {len(data)} bytes and begins with a number of 8")
    length, = struct.unpack("<Q", data[:8])
    if length > min(len(data) - 8, MAX_HEADER_BYTES):
        raise MXNetError(f"no safetensors file, or a truncated one: its header is to take {length} bytes, and "
                         f"{len(data) - 8} follow (at most {MAX_HEADER_BYTES} are read)")
    raw = bytes(data[8:8 + length])
    if not raw.startswith(b"{"):
        raise MXNetError("no safetensors file: its header does not begin with '{'")
    try:
        header = json.loads(raw.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MXNetError(f"the safetensors file is damaged: its header is no JSON ({error})") from error
    return header, memoryview(data)[8 + length:]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _record(name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """(dtype, shape, begin, end) of one header entry, each checked."""
    where = f"the safetensors file is damaged: array {name!r}"
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise MXNetError(f"{where} must have {', '.join(sorted(_KEYS))}, got {entry!r:.80}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise MXNetError(f"array {name!r} of the safetensors file has dtype {dtype!r:.40}; known are "
                         f"{', '.join(_DTYPES)}")
    if not _are_sizes(shape) or len(shape) > _MAX_NDIM:
        raise MXNetError(f"{where} has the shape {shape!r:.80}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise MXNetError(f"{where} has the data_offsets {offsets!r:.80}")
    needed = prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if offsets[1] - offsets[0] != needed:
        raise MXNetError(f"{where} of dtype {dtype} and shape {shape!r:.80} needs {needed} bytes, its data_offsets "
                         f"give {offsets[1] - offsets[0]}")
    return dtype, tuple(shape), offsets[0], offsets[1]


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63 for v in values)


def _check_cover(records: Mapping[str, tuple[str, tuple[int, ...], int, int]], nbytes: int) -> None:
    """The arrays lie one after the other and take all bytes."""
    at = 0
    for begin, end, name in sorted((begin, end, name) for name, (_, _, begin, end) in records.items()):
        if begin != at:
            raise MXNetError(f"the safetensors file is damaged: array {name!r} begins at byte {begin}, the one before "
                             f"it ends at {at}")
        at = end
    if at != nbytes:
        raise MXNetError(f"the safetensors file is truncated or damaged: its arrays take {at} bytes, {nbytes} follow "
                         f"the header")


def _array(name: str, record: tuple[str, tuple[int, ...], int, int], body: memoryview) -> np.ndarray:
    dtype, shape, begin, end = record
    raw = np.frombuffer(body[begin:end], _DTYPES[dtype])
    if dtype == "BOOL" and raw.view(np.uint8).max(initial=0) > 1:
        raise MXNetError(f"the safetensors file is damaged: array {name!r} holds a BOOL that is neither 0 nor 1")
    try:
        found = raw.reshape(shape)
    except ValueError as error:  # no elements, but other dimensions beyond NumPy's limits
        raise MXNetError(f"the safetensors file is damaged: array {name!r} has the shape {shape}") from error
    if dtype == "BF16":
        return (found.astype(np.uint32) << 16).view(np.float32)
    return found.astype(found.dtype.newbyteorder("="))


def dumps(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file; arrays of larger elements come first, so that each is aligned to its elements.

    MXNetError for a dtype that the format lacks, and for the name __metadata__.
    """
    if not isinstance(arrays, Mapping):
        raise ValueError(f"a safetensors file holds named arrays: give a dictionary, got {type(arrays).__name__}")
    values = {name: np.asarray(value) for name, value in arrays.items()}
    for name, value in values.items():
        _check_writable(name, value)
    header: dict[str, Any] = {} if metadata is None else {_METADATA: dict(metadata)}
    at, pieces = 0, []
    for name in sorted(values, key=lambda name: (-values[name].dtype.itemsize, name)):
        value = values[name]
        header[name] = {"dtype": _NAMES[value.dtype.name], "shape": list(value.shape),
                        "data_offsets": [at, at + value.nbytes]}
        pieces.append(value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes())
        at += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *pieces])


def _check_writable(name: Any, value: np.ndarray) -> None:
    if not isinstance(name, str) or name == _METADATA:
        raise MXNetError(f"an array of a safetensors file cannot be named {name!r}")
    if value.dtype.name not in _NAMES:
        raise MXNetError(f"array {name!r} has dtype {value.dtype}, which safetensors files cannot hold; known are "
                         f"{', '.join(_NAMES)}")

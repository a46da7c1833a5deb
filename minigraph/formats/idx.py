"""The IDX format of MNIST and its successors: unsigned bytes with a big-endian header, plain or gzipped."""
from __future__ import annotations

import gzip
import os
import struct
import zlib
from math import prod

import numpy as np

from ..base import MXNetError

_UNSIGNED_BYTE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: str | os.PathLike, ndim: int) -> np.ndarray:
    """The uint8 array of `ndim` dimensions in an IDX file (3 for images, 1 for labels).

    The file is recognised as gzipped by its content. MXNetError names the file and what is wrong with it.
    """
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(_GZIP_MAGIC):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise MXNetError(f"{os.fspath(path)}: damaged gzip file ({error})") from error
    return _parse(os.fspath(path), data, ndim)


def _parse(name: str, data: bytes, ndim: int) -> np.ndarray:
    header_bytes = 4 + 4 * ndim
    if data[:4] != bytes((0, 0, _UNSIGNED_BYTE, ndim)) or len(data) < header_bytes:
        raise MXNetError(f"{name}: not an IDX file of unsigned bytes in {ndim} dimensions "
                         f"(it begins with {data[:4]!r})")
    shape = struct.unpack(f">{ndim}I", data[4:header_bytes])
    if len(data) != header_bytes + prod(shape):
        raise MXNetError(f"{name}: the header says shape {shape}, {prod(shape)} bytes, "
                         f"but {len(data) - header_bytes} follow; get the file again")
    return np.frombuffer(data, np.uint8, offset=header_bytes).reshape(shape)

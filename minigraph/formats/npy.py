"""NumPy's `.npy` format: an array's bytes behind a header that reads like a dictionary of Python.

`numpy.load` parses the header with `ast`, which some versions of CPython do not let several threads do at once; here it
is read without.
"""
from __future__ import annotations

import re
from math import prod

import numpy as np

MAGIC = b"\x93NUMPY"
_KEYS = {"descr": rb"'([<>|=][a-zA-Z]\d+)'", "fortran_order": rb"(True|False)", "shape": rb"\(([\dL, ]*)\)"}
"""The header's keys, and what stands for their values."""


def loads(data: bytes) -> np.ndarray:
    """The array of a file's bytes; ValueError when they are damaged, or no plain numbers."""
    if not data.startswith(MAGIC) or len(data) < 10:
        raise ValueError("they do not begin as a .npy file does")
    first = 10 if data[6] == 1 else 12  # version 1 has 2 bytes of length, later ones 4
    begin = first + int.from_bytes(data[8:first], "little")
    found = {key: re.search(rb"['\"]" + key.encode() + rb"['\"]\s*:\s*" + value, data[first:begin])
             for key, value in _KEYS.items()}
    missing = [key for key, match in found.items() if match is None]
    if missing:
        raise ValueError(f"the header lacks {missing[0]}")
    descr, fortran, dimensions = (match[1].decode("latin1") for match in found.values() if match is not None)
    shape = tuple(int(each) for each in dimensions.replace("L", "").split(",") if each.strip())
    try:
        dtype = np.dtype(descr)
    except TypeError:
        raise ValueError(f"there is no type {descr!r}") from None
    if dtype.hasobject:
        raise ValueError(f"elements of type {descr!r} are no plain numbers")
    if len(data) - begin < prod(shape) * dtype.itemsize:
        raise ValueError(f"the shape {shape} of type {descr!r} needs {prod(shape) * dtype.itemsize} bytes behind the "
                         f"header, and there are {max(len(data) - begin, 0)}")
    values = np.frombuffer(data, dtype, prod(shape), begin).copy()
    return values.reshape(shape[::-1]).T if fortran == "True" else values.reshape(shape)

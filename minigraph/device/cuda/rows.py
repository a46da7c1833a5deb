"""Launches of kernels that work row by row (kernels/rows.h), and ids as kernels read them (kernels/ids.h)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import MXNetError
from .launch import BLOCK, Launch, Operand, flat_grid, int32, pointer

Argument = tuple[str, Any]

THREAD_LENGTH = 16
"""Rows up to this length are a thread's: a warp would leave half of its lanes idle."""
BESIDE = 32
"""Where this many rows lie beside each other element by element, a thread for each row reads whole lines."""
BESIDE_LENGTH = 4096
"""Longer rows are a warp's or block's even so: a thread alone would take too long."""
WARP_LENGTH = 1024
"""Rows up to this length are a warp's."""
WIDE_LENGTH = 8192
"""Rows from this length on get a block of 1024 threads."""
ID_KINDS = (np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.int64))
"""dtypes of ids and labels, in the order of IdKind in kernels/ids.h."""


def row_group(length: int, inner: int = 1) -> str:
    """Who works on a row of `length` numbers that are `inner` apart: "thread", "warp" or "block".

    The kernel's name ends in it. It depends on nothing else, so neither do the bits of a row's sums.
    """
    if length <= THREAD_LENGTH or (inner >= BESIDE and length <= BESIDE_LENGTH):
        return "thread"
    return "warp" if length <= WARP_LENGTH else "block"


def row_launch(kernel: str, rows: int, group: str, length: int, args: Sequence[Argument]) -> Launch:
    """The launch of a ROW_KERNELS kernel for a number of rows, with `group` from `row_group`."""
    threads = BLOCK if group != "block" or length <= WIDE_LENGTH else 1024
    threads_a_row = {"thread": 1, "warp": 32, "block": BLOCK}[group]
    return Launch(f"{kernel}_{group}", flat_grid(rows * threads_a_row), (threads, 1, 1), tuple(args))


def ids_arguments(name: str, ids: Operand) -> tuple[Argument, Argument]:
    """Kernel arguments (address, kind) of ids or labels; MXNetError for a dtype that cannot be read."""
    if ids.dtype not in ID_KINDS:
        known = ", ".join(str(kind) for kind in ID_KINDS)
        raise MXNetError(
            f"operator {name}: its CUDA kernels take ids and labels of {known}, got {ids.dtype} of shape "
            f"{ids.shape}; cast them (Cast with dtype='float32'), or run this network on mx.cpu()")
    return pointer(ids), int32(ID_KINDS.index(ids.dtype))

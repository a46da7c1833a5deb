"""CUDA forms of taking rows out of a batch and putting slices together: copies of kernels/basic.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from .basic import copy
from .launch import KernelOp, Launch, Operand, kernels_for


def _rows(whole: Operand, first: int, rows: int) -> Operand:
    """Rows [first, first + rows) of a tensor, where they lie."""
    row_bytes = prod(whole.shape[1:]) * whole.dtype.itemsize
    return Operand(whole.address + first * row_bytes, (rows, *whole.shape[1:]), whole.dtype)


@kernels_for("_take_rows")
class TakeRows(KernelOp):
    """Rows of data in bytes of their own; as a view it needs no launch, and never gets here."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        return copy(_rows(ins[0], p.first, p.rows), outs[0])


@kernels_for("_first_rows")
class FirstRows(KernelOp):
    """The first slice."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        return copy(ins[0], _rows(outs[0], 0, ins[0].shape[0]))


@kernels_for("_place_rows")
class PlaceRows(KernelOp):
    """The whole, unless it is there in place, and then the slice."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        whole, data = ins
        return [*copy(whole, outs[0]), *copy(data, _rows(outs[0], p.first, data.shape[0]))]

"""Layouts of device kernels: blocks of 16 channels, and the ops that convert to them and back; matrices column by
column.

The ops are declared over what lies in memory: of the blocked side that is (N, ceil(C / 16), *spatial, 16).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import BLOCKED, LANES, PLAIN, TRANSPOSED, PartialShape, Shape, TensorType, stored_shape
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import register
from .shape import TransposeParams


def to_blocked(data: np.ndarray, out: np.ndarray) -> None:
    """Write data (N, C, *spatial) in blocks (N, ceil(C / 16), *spatial, 16), with zeros in lanes beyond C."""
    whole, rest = divmod(data.shape[1], LANES)
    full = data[:, :whole * LANES].reshape(len(data), whole, LANES, *data.shape[2:])
    np.copyto(out[:, :whole], np.moveaxis(full, 2, -1))
    if rest:
        np.copyto(out[:, whole, ..., :rest], np.moveaxis(data[:, whole * LANES:], 1, -1))
        out[:, whole, ..., rest:] = 0


def to_plain(data: np.ndarray, out: np.ndarray) -> None:
    """Write what lies in blocks, whose lanes beyond the channels of `out` are not read, as (N, C, *spatial)."""
    whole, rest = divmod(out.shape[1], LANES)
    full = out[:, :whole * LANES].reshape(len(out), whole, LANES, *out.shape[2:])
    np.copyto(full, np.moveaxis(data[:, :whole], -1, 2))
    if rest:
        np.copyto(out[:, whole * LANES:], np.moveaxis(data[:, whole, ..., :rest], -1, 1))


def logical(stored: np.ndarray, shape: Shape, layout: str) -> np.ndarray:
    """The tensor of a logical shape that lies in memory in a layout: itself where that is plain, else a copy."""
    if layout == PLAIN:
        return stored
    if layout == TRANSPOSED:
        return stored.T.copy()
    out = np.empty(shape, stored.dtype)
    to_plain(stored, out)
    return out


def stored(value: np.ndarray, layout: str) -> np.ndarray:
    """A tensor as it lies in memory in a layout: itself where that is plain, else a copy."""
    if layout == PLAIN:
        return value
    if layout == TRANSPOSED:
        return value.T.copy()
    out = np.empty(stored_shape(value.shape, layout), value.dtype)
    to_blocked(value, out)
    return out


class _Conversion(Op):
    """Base of the conversions, which only move bytes."""

    recompute = "cheap"
    moves = True
    as_stored = True

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)


@register
class _ToBlocked(_Conversion):
    """A plain tensor in blocks of 16 channels; lanes beyond the last channel are zero."""

    name = "_to_blocked"

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None or len(shape) < 2 or None in shape:
            return ins, outs
        return ins, [merge_shapes(outs[0], stored_shape(shape, BLOCKED))]  # type: ignore[arg-type]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        to_blocked(ins[0], outs[0])

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,), differentiable=False)
                for shape in ((2, 16, 3, 4), (3, 5, 2), (1, 40, 2, 2), (2, 17), (1, 32, 2, 1, 3))]


@dataclass(frozen=True)
class ToPlainParams:
    """Parameters of _to_plain."""

    channels: int = param(REQUIRED, "int", "number of channels, those that fill up the last block not counted")


@register
class _ToPlain(_Conversion):
    """A tensor in blocks of 16 channels in row-major order."""

    name = "_to_plain"
    Params = ToPlainParams

    def infer_shape(self, p: ToPlainParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = ins[0]
        if shape is None or len(shape) < 3:
            return ins, outs
        if shape[1] is not None and shape[1] != -(-p.channels // LANES):
            raise ShapeError(f"data {format_shape(shape)} has {shape[1]} blocks of channels, and {p.channels} channels "
                             f"lie in {-(-p.channels // LANES)}")
        merge_shapes(shape[-1:], (LANES,))
        return ins, [merge_shapes(outs[0], (shape[0], p.channels, *shape[2:-1]))]

    def compute(self, p: ToPlainParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        to_plain(ins[0], outs[0])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"channels": channels}, (shape,), differentiable=False)
                for channels, shape in ((16, (2, 1, 3, 4, 16)), (5, (3, 1, 2, 16)), (40, (1, 3, 2, 2, 16)),
                                        (17, (2, 2, 16)))]


def conversion(layout: str, channels: int) -> tuple[str, Any]:
    """Name and params of the op that converts a tensor of so many channels to a layout; to row-major order, from
    blocks."""
    if layout == TRANSPOSED:
        return "transpose", TransposeParams()
    return ("_to_plain", ToPlainParams(channels)) if layout == PLAIN else ("_to_blocked", _ToBlocked.Params())



"""shape_array and size_array: what is known of a tensor without reading it, as a tensor of int64."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..base import Builder, Entry, PartialShape
from .op import Arrays, Op, Sample, Workspace, merge_shapes
from .pointwise import Found
from .registry import register


class FromShape(Op):
    """Base: int64 numbers that data's shape alone determines; no gradient."""

    recompute = "cheap"

    def values(self, shape: Sequence[int]) -> list[int]:
        """The numbers for data of a shape."""
        raise NotImplementedError(self.name)

    def count(self, shape: PartialShape) -> int | None:
        """How many they are."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return ins, [merge_shapes((self.count(ins[0]),), outs[0])]

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return list(ins), [np.dtype(np.int64)]

    def unread(self, p: Any) -> tuple[int, ...]:
        return (0,)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0][:] = self.values(ins[0].shape)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,), differentiable=False) for shape in ((2, 3), (5,), (2, 1, 3, 4))]


@register
class ShapeArray(FromShape):
    """The dimensions of data, one number an axis."""

    name = "shape_array"

    def values(self, shape: Sequence[int]) -> list[int]:
        return list(shape)

    def count(self, shape: PartialShape) -> int | None:
        return None if shape is None else len(shape)


@register
class SizeArray(FromShape):
    """The number of elements of data, shape (1,)."""

    name = "size_array"

    def values(self, shape: Sequence[int]) -> list[int]:
        return [prod(shape)]

    def count(self, shape: PartialShape) -> int | None:
        return 1

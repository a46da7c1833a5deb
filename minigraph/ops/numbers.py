"""Constant numbers made of others: an identity matrix, and numbers at equal distances."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, ShapeError, merge_shapes
from .params import REQUIRED, param
from .registry import register

FLOAT32 = np.dtype(np.float32)
Dtypes = list[np.dtype | None]


@dataclass(frozen=True)
class EyeParams:
    """Parameters of an identity matrix."""

    N: int = param(REQUIRED, "int", "number of rows")
    M: int = param(0, "int", "number of columns; as many as rows when 0")
    k: int = param(0, "int", "the diagonal of the ones: 0 the main one, above it positive, below it negative")
    ctx: str = param("", "str", "accepted and not used: a graph lies on one device")
    dtype: np.dtype = param(FLOAT32, "dtype", "dtype")


@dataclass(frozen=True)
class LinspaceParams:
    """Parameters of numbers at equal distances."""

    start: float = param(REQUIRED, "float", "the first number")
    stop: float = param(REQUIRED, "float", "the last number, or the one after it")
    num: int = param(REQUIRED, "int", "how many there are")
    endpoint: bool = param(True, "bool", "whether `stop` is the last of them")
    ctx: str = param("", "str", "accepted and not used: a graph lies on one device")
    dtype: np.dtype = param(FLOAT32, "dtype", "dtype")


class Numbers(Op):
    """Base of operators without inputs whose numbers the parameters give."""

    recompute = "cheap"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ()

    def shape(self, p: Any) -> tuple[int, ...]:
        """The shape that the parameters give."""
        raise NotImplementedError(self.name)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = self.shape(p)
        if min(shape) < 1:
            raise ShapeError(f"parameters ask for a tensor of shape {shape}; dimensions must be at least 1")
        return [], [merge_shapes(shape, outs[0])]

    def infer_dtype(self, p: Any, ins: Dtypes, outs: Dtypes) -> tuple[Dtypes, Dtypes]:
        return [], [p.dtype]


@register
class Eye(Numbers):
    """A matrix with ones on one diagonal and zeros elsewhere."""

    name = "_eye"
    Params = EyeParams

    def shape(self, p: EyeParams) -> tuple[int, ...]:
        return p.N, p.M or p.N

    def expand(self, b: Builder, p: EyeParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        rows, columns = self.shape(p)
        row = b.node("Reshape", b.node("_arange", [], start=0.0, stop=float(rows)), shape=(rows, 1))
        diagonal = b.node("_arange", [], start=float(-p.k), stop=float(columns - p.k))
        ones = b.node("broadcast_equal", [*row, *b.node("Reshape", diagonal, shape=(1, columns))])
        return ones if p.dtype == FLOAT32 else b.node("Cast", ones, dtype=p.dtype)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"N": 3}, (), differentiable=False), Sample({"N": 2, "M": 4, "k": 1}, (), differentiable=False),
                Sample({"N": 4, "M": 2, "k": -1}, (), differentiable=False)]


@register
class Linspace(Numbers):
    """Numbers at equal distances from one to another."""

    name = "_linspace"
    Params = LinspaceParams

    def shape(self, p: LinspaceParams) -> tuple[int, ...]:
        return (p.num,)

    def expand(self, b: Builder, p: LinspaceParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        step = (p.stop - p.start) / max(1, p.num - p.endpoint)
        steps = b.node("_mul_scalar", b.node("_arange", [], start=0.0, stop=float(p.num)), scalar=step)
        numbers = only(b.node("_plus_scalar", steps, scalar=p.start))
        return [numbers] if p.dtype == FLOAT32 else b.node("Cast", [numbers], dtype=p.dtype)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"start": 0.0, "stop": 1.0, "num": 5}, (), differentiable=False),
                Sample({"start": 2.0, "stop": -1.0, "num": 4, "endpoint": False}, (), differentiable=False)]

"""Bases of the ops that work element by element, and the blocks that bound their scratch."""
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, TensorType
from .chunks import chunks
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape
from .registry import get_op

BLOCK = 1 << 15
"""Elements of a block: 128 KiB of float32, so that blocks of operands and scratch stay in a core's cache."""

Found = Sequence["Entry | None"]


def broadcast_shapes(lhs: PartialShape, rhs: PartialShape) -> PartialShape:
    """The shape that two shapes broadcast to, aligned at the last axis; None where it is not known yet."""
    if lhs is None or rhs is None:
        return None
    rank = max(len(lhs), len(rhs))
    left = (1,) * (rank - len(lhs)) + tuple(lhs)
    right = (1,) * (rank - len(rhs)) + tuple(rhs)
    shape: list[int | None] = []
    for a, b in zip(left, right, strict=True):
        if a is not None and b is not None and a != b and 1 not in (a, b):
            raise ShapeError(f"shapes {format_shape(lhs)} and {format_shape(rhs)} do not broadcast: "
                             f"{a} against {b}; dimensions must be equal or 1")
        shape.append(_broadcast_dim(a, b))
    return tuple(shape)


def _broadcast_dim(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        known = b if a is None else a
        return known if known != 1 else None
    return b if a == 1 else a


def flat(array: np.ndarray) -> np.ndarray:
    """The contiguous array as one row, without a copy."""
    return array.reshape(-1)


def block_scratch(work: Workspace, array: np.ndarray) -> np.ndarray:
    """Scratch for one block of an array, of its dtype."""
    return work.array((min(array.size, BLOCK),), array.dtype)


def block_bytes(tensor: TensorType, count: int = 1) -> int:
    """Workspace bytes that `count` calls of `block_scratch` for a tensor take."""
    return count * Workspace.bytes_for(((min(tensor.size, BLOCK),), tensor.dtype))


def blocks(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Flat views of the same block of each array, block after block; the arrays have one size."""
    rows = [flat(a) for a in arrays]
    for s in chunks(rows[0].size, BLOCK):
        yield tuple(row[s] for row in rows)


CHAIN = "_elementwise"
"""The op that runs a program of elementwise ops (chain.py)."""
MAX_INPUTS, MAX_STEPS = 8, 12
"""The largest program: what a GPU's kernel keeps of it."""


def joined(op: Op, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
    """An elementwise op, or a chain of such, and the elementwise consumer of its output as one chain."""
    if not consumer.pointwise or not (op.pointwise or op.name == CHAIN):
        return None
    count, more = len(op.inputs(p)), len(consumer.inputs(q)) - 1
    steps = json.loads(p.program) if op.name == CHAIN else [_step(op, p, range(count))]
    if count + more > MAX_INPUTS or len(steps) >= MAX_STEPS:
        return None
    steps = [[name, [r + more * (r >= count) for r in reads], values] for name, reads, values in steps]
    others = iter(range(count, count + more))
    reads = [count + more + len(steps) - 1 if k == position else next(others) for k in range(more + 1)]
    program = json.dumps([*steps, _step(consumer, q, reads)])
    return CHAIN, get_op(CHAIN).Params(num_args=count + more, program=program)


def _step(op: Op, p: Any, reads: Iterable[int]) -> list[Any]:
    return [op.name, list(reads), {name: value for name, value in vars(p).items() if value is not None}]


class Unary(Op):
    """output = f(data), element by element; a subclass gives `apply` and `backward`."""

    recompute = "cheap"
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 1.0
    smooth: ClassVar[bool] = True
    sample_params: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def absorb(self, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        return joined(self, p, consumer, q, position)

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        self.apply(p, ins[0], outs[0])

    def apply(self, p: Any, data: np.ndarray, out: np.ndarray) -> None:
        """Write f(data) to `out`, which may be `data`."""
        raise NotImplementedError(self.name)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [self.backward(b, p, ins[0], outs[0], grads[0])]

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry | None:
        """The gradient of `data` from that of the output; None for none."""
        return None

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, shape, low=self.low, high=self.high, differentiable=self.smooth)
                for params in self.sample_params for shape in (((2, 3),), ((7,),), ((3, 2, 5),))]


class Binary(Op):
    """output = f(lhs, rhs) of equal shapes, element by element; a subclass gives `apply` and `backward`."""

    recompute = "cheap"
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 1.0
    smooth: ClassVar[bool] = True

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def absorb(self, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        return joined(self, p, consumer, q, position)

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        self.apply(ins[0], ins[1], outs[0])

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        """Write f(lhs, rhs) to `out`, which may be either of them."""
        raise NotImplementedError(self.name)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None:
            return [None, None]
        return self.backward(b, ins[0], ins[1], outs[0], grads[0], wanted)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        """Gradients of `lhs` and `rhs` from that of the output."""
        return [None, None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape, shape), low=self.low, high=self.high, differentiable=self.smooth)
                for shape in ((2, 3), (7,), (3, 2, 5))]


class Derivative(Op):
    """data_grad = grad * f'(saved), block by block through one block of scratch; in place over either input.

    `saved` is whichever of an op's input and output its derivative is computed from. A subclass gives
    `derivative`.
    """

    recompute = "cheap"
    low: ClassVar[float] = 0.1
    high: ClassVar[float] = 0.9
    sample_params: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    extra: ClassVar[int] = 0
    """Blocks of scratch that `derivative` needs besides the one it writes."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "saved")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def absorb(self, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        return joined(self, p, consumer, q, position)

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0], 1 + self.extra)),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = [block_scratch(work, outs[0]) for _ in range(1 + self.extra)]
        for grad, saved, out in blocks(ins[0], ins[1], outs[0]):
            slope, *extra = (s[:out.size] for s in scratch)
            self.derivative(p, saved, slope, *extra)
            np.multiply(grad, slope, out=out)

    def derivative(self, p: Any, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        """Write the derivative at each element of a block to `out`, not `saved`; `extra` is scratch."""
        raise NotImplementedError(self.name)

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape, shape), low=self.low, high=self.high, differentiable=False)
                for params in self.sample_params for shape in ((2, 3), (7,))]

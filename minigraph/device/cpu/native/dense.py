"""FullyConnected and its gradients by the kernels of kernels/cpu/matmul.cpp.

Rows are computed the same wherever they stand, but for a chunk of the batch that has few: so chunks, and slices that
end where chunks do, have the bits of the whole. The weight's gradient adds the products of chunks in order.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ....base import Algorithm
from ....ops.chunks import MAX_CHUNK, chunks
from .call import NativeCall, NativeOp, Operand, Types, address, int64, native_for, pointer
from .layout import PLAIN, TRANSPOSED, Layouts
from .matmul import Matrix, product

FEW_ROWS = 4
"""Most rows for which the weight is not laid out anew, since it is used too seldom."""
LAYING_OUT_ROWS = 8
"""Rows whose products take as long as laying out the weight for them does (measured: 7 to 9)."""


class _Dense(NativeOp):
    """What the ops share: plain operands, and the sizes of the product."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts.plain(len(ins), len(outs))]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        return [replace(algorithm, chunk_rows=MAX_CHUNK) for algorithm in super().algorithms(p, ins, outs)]


def _rows(shape: Sequence[int], width: int) -> int:
    """Rows of `width` features of a tensor."""
    return prod(shape) // width if width else (shape[0] if shape else 1)


def _chunks_of(grad: Operand) -> list[slice]:
    """The rows of each chunk of the batch of an output or its gradient."""
    batch = grad.shape[0] if len(grad.shape) > 1 else 1
    within = prod(grad.shape[1:-1])
    return [slice(s.start * within, s.stop * within) for s in chunks(batch, MAX_CHUNK)]


def _begin(given: Sequence[Operand], out: Operand) -> list[NativeCall]:
    """What puts a running sum, or another gradient, where it is added to: a copy, unless it lies there."""
    return [NativeCall("copy_floats", (pointer(g), pointer(out), int64(g.size)))
            for g in given if g.address != out.address]


@native_for("FullyConnected")
class FullyConnected(_Dense):
    """data weightᵀ + bias. A weight that lies column by column need not be laid out, which pays where many nodes read
    it."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        rows = _rows(outs[0].shape, ins[1].shape[0])
        if rows <= FEW_ROWS and ins[1].layout == PLAIN:
            return super().layouts(p, ins, outs)
        return [Layouts((PLAIN, TRANSPOSED, *(PLAIN,) * (len(ins) - 2)), (PLAIN,)),
                Layouts.plain(len(ins), 1, 1 + LAYING_OUT_ROWS / rows)]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        hidden, features = ins[1].shape
        rows = _rows(outs[0].shape, hidden)
        data, out = Matrix.of(ins[0], rows, features), Matrix.of(outs[0], rows, hidden)
        if ins[1].layout == TRANSPOSED:
            return [product(data, Matrix.of(ins[1], features, hidden), out, 0 if p.no_bias else ins[2].address)]
        weight = Matrix.of(ins[1], hidden, features).transposed
        bias = 0 if p.no_bias else ins[2].address
        parts = _chunks_of(outs[0])
        few = parts[-1] if parts and parts[-1].stop - parts[-1].start <= FEW_ROWS else slice(rows, rows)
        calls = []
        for s, kernel in ((slice(0, few.start), "product"), (few, "product_few_rows")):
            if s.stop > s.start:
                calls.append(product(data.part(s.start, s.stop), weight, out.part(s.start, s.stop), bias,
                                     kernel=kernel))
        return calls


@native_for("_fully_connected_backward_data")
class BackwardData(_Dense):
    """out_grad weight."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        hidden, features = ins[1].shape
        rows, begin = _rows(ins[0].shape, hidden), _begin(ins[3:], outs[0])
        return [*begin, product(Matrix.of(ins[0], rows, hidden), Matrix.of(ins[1], hidden, features),
                                Matrix.of(outs[0], rows, features), add=p.addend)]


@native_for("_fully_connected_backward_weight", "_fully_connected_backward_weight_resume")
class BackwardWeight(_Dense):
    """out_gradᵀ data, chunk upon chunk, from a running sum or another gradient on where there is one."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        hidden, features = outs[0].shape
        rows = _rows(ins[0].shape, hidden)
        grad, data = Matrix.of(ins[0], rows, hidden), Matrix.of(ins[1], rows, features)
        out = Matrix.of(outs[0], hidden, features)
        return [*_begin(ins[3:], outs[0]),
                *(product(grad.part(s.start, s.stop).transposed, data.part(s.start, s.stop), out,
                          add=s.start > 0 or len(ins) > 3) for s in _chunks_of(ins[0]) or [slice(0, 0)])]


@native_for("_fully_connected_backward_bias", "_fully_connected_backward_bias_resume")
class BackwardBias(_Dense):
    """The sum of out_grad over all axes but the last, from a running sum or another gradient on where
    there is one."""

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        grad, *running = ins
        width = grad.shape[-1]
        sizes = int64(_rows(grad.shape, width), width, MAX_CHUNK * (prod(grad.shape[1:-1]) or 1))
        return [NativeCall("sum_rows", (pointer(grad), address(running[0].address if running else 0),
                                        pointer(outs[0]), sizes))]

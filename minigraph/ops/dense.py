"""FullyConnected: one matrix product a canonical chunk of the batch, and its gradients."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Cost, PartialShape, Shape, TensorType
from .activation import FORWARD
from .chunks import MAX_CHUNK, chunks
from .elemwise import is_sum
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .registry import get_op, register
from .weighted import Weighted

Types = Sequence[TensorType]


@dataclass(frozen=True)
class FullyConnectedParams:
    """Parameters of FullyConnected, and of its gradients."""

    num_hidden: int = param(REQUIRED, "int", "number of output features")
    no_bias: bool = param(False, "bool", "whether there is no bias")
    flatten: bool = param(True, "bool", "whether all axes but the first are features; else the last alone")


@register
class FullyConnected(Weighted):
    """Y = X Wᵀ + b with weight (num_hidden, features) and bias (num_hidden,).

    With `flatten`, data (N, ...) becomes (N, num_hidden); without, (..., features) becomes (..., num_hidden).
    """

    name = "FullyConnected"
    stem = "_fully_connected"
    Params = FullyConnectedParams

    def infer_shape(self, p, ins, outs):
        data = ins[0]
        if data is not None and len(data) < 1:
            raise ShapeError(f"data has shape {format_shape(data)}; it needs at least a batch axis")
        weight = _merge_weight(ins[1], (p.num_hidden, _features(p, data)), data)
        out = outs[0]
        if p.flatten:
            out = merge_shapes(out, (None if data is None else data[0], p.num_hidden))
            data = _complete_flat(data, out[0], weight[1])
        elif data is not None or out is not None:
            out = merge_shapes(out, (*(data or out)[:-1], p.num_hidden))
            data = merge_shapes(data, (*out[:-1], weight[1]))
        bias = [merge_shapes(given, (p.num_hidden,)) for given in ins[2:]]
        return [data, weight, *bias], [out]

    def weight_rows(self, p: FullyConnectedParams) -> int | None:
        return 1 if p.flatten else None

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, weight, *bias = ins
        kind = self.act_type(p)
        target, data = _batches(outs[0], data)
        for s in chunks(len(data), MAX_CHUNK):
            out = _rows(target[s])
            np.matmul(data[s].reshape(len(out), weight.shape[1]), weight.T, out=out)
            if bias:
                np.add(out, bias[0], out=out)
            if kind is not None:
                FORWARD[kind](out, out, out)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", chunk_rows=MAX_CHUNK),)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        flops = 2.0 * outs[0].size * ins[1].shape[1] + outs[0].size * (not p.no_bias)
        return Cost(flops, sum(t.nbytes for t in ins), outs[0].nbytes)

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1, 2)) if len(outs[0].shape) > 1 else None

    def samples(self) -> Sequence[Sample]:
        return (Sample({"num_hidden": 4}, ((3, 5), (4, 5), (4,))),
                Sample({"num_hidden": 3, "no_bias": True}, ((5, 2, 3), (3, 6))),
                Sample({"num_hidden": 2, "flatten": False}, ((2, 3, 4), (2, 4), (2,))),
                Sample({"num_hidden": 1}, ((1, 1), (1, 1), (1,))),
                Sample({"num_hidden": 2}, ((3,), (2, 1), (2,))),
                Sample({"num_hidden": 2, "flatten": False}, ((130,), (2, 130), (2,))),
                Sample({"num_hidden": 2}, ((130, 3), (2, 3), (2,))))


def _rows(out: np.ndarray) -> np.ndarray:
    """A contiguous output, or its gradient, as a matrix of rows of its last axis, as a view."""
    return out.reshape(prod(out.shape[:-1]), out.shape[-1])


def _batches(out: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An output, or its gradient, and data with their batch axes; one row of features alone has none."""
    return (out[None], data[None]) if out.ndim == 1 else (out, data)


def _rows_of(grad: Any) -> int:
    """Rows of the batch of an output gradient."""
    return grad.shape[0] if len(grad.shape) > 1 else 1


def _features(p: FullyConnectedParams, data: PartialShape) -> int | None:
    if data is None:
        return None
    axes = data[1:] if p.flatten else data[-1:]
    return None if None in axes else prod(axes)  # type: ignore[arg-type]


def _merge_weight(weight: PartialShape, expected: PartialShape, data: PartialShape) -> Any:
    try:
        return merge_shapes(weight, expected)
    except ShapeError as error:
        raise ShapeError(f"weight has shape {format_shape(weight)}, but data {format_shape(data)} and "
                         f"num_hidden ask for {format_shape(expected)}") from error


def _complete_flat(data: PartialShape, batch: int | None, features: int | None) -> PartialShape:
    """Data of a flattened product with its batch, and its one unknown feature axis, filled in."""
    if data is None:
        return None
    axes = list(data[1:])
    known = prod(d for d in axes if d is not None)
    if features is not None and axes.count(None) == 1 and known and features % known == 0:
        axes[axes.index(None)] = features // known
    return (batch, *axes)


@dataclass(frozen=True)
class BackwardParams(FullyConnectedParams):
    """Parameters of the gradients by data and by weight."""

    addend: bool = param(False, "bool", "whether the gradient is added to another one")


@dataclass(frozen=True)
class BackwardBiasParams:
    """Parameters of the gradient by bias."""

    addend: bool = param(False, "bool", "whether the gradient is added to another one")


class _Backward(Op):
    """What the gradients share: each may take over the sum with another gradient, which is then its last input."""

    resumes: ClassVar[bool] = False
    """Whether a sum over the batch goes on from a running one, the last input."""

    def last(self, p: Any) -> tuple[str, ...]:
        """The name of that input, if there is one."""
        return ("running",) if self.resumes else ("addend",) if p.addend else ()

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((len(self.inputs(p)) - 1, 0),) if self.last(p) else ()

    def absorb(self, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        return (self.name, replace(p, addend=True)) if is_sum(consumer) and not self.last(p) else None


class _FullyConnectedBackward(_Backward):
    """What the gradients by data and by weight share; of input 2 only the shape is read."""

    Params = BackwardParams
    by_data: ClassVar[bool] = False
    """Whether the gradient is by data, and input 1 the weight; else input 1 is data."""

    def infer_shape(self, p, ins, outs):
        like = merge_shapes(*ins[2:], outs[0])
        forward = [like, ins[1]] if self.by_data else [ins[1], like]
        forward, (grad,) = get_op(FullyConnected.name).infer_shape(p, forward, [ins[0]])
        like, other = forward if self.by_data else forward[::-1]
        return [grad, other, *[like] * len(ins[2:])], [like]

    def unread(self, p: Any) -> tuple[int, ...]:
        return (2,)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        weight = ins[1] if self.by_data else outs[0]
        read = ins[0].nbytes + ins[1].nbytes + sum(t.nbytes for t in ins[3:])
        return Cost(2.0 * ins[0].size * weight.shape[1], read, outs[0].nbytes)


@register
class _FullyConnectedBackwardData(_FullyConnectedBackward):
    """Gradient by data, from (out_grad, weight, data[, addend]): out_grad W, a chunk at a time."""

    name = "_fully_connected_backward_data"
    by_data = True

    def inputs(self, p: BackwardParams) -> tuple[str, ...]:
        return ("out_grad", "weight", "data", *self.last(p))

    def compute(self, p: BackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        weight = ins[1]
        term = work.array(self._term(p, ins, outs[0]), outs[0].dtype)
        grad, target = _batches(ins[0], outs[0])
        addend = ins[3].reshape(target.shape) if p.addend else target
        for s in chunks(len(grad), MAX_CHUNK):
            rows = _rows(grad[s])
            out = target[s].reshape(len(rows), weight.shape[1])
            np.matmul(rows, weight, out=term[:len(rows)] if p.addend else out)
            if p.addend:
                np.add(addend[s].reshape(out.shape), term[:len(rows)], out=out)

    def _term(self, p: BackwardParams, ins: Sequence[Any], out: Any) -> Shape:
        """Scratch for a chunk's product, where it is added to another gradient."""
        batch, features = _rows_of(ins[0]), ins[1].shape[1]
        rows = prod(ins[0].shape[:-1]) // max(1, batch) * min(batch, MAX_CHUNK)
        return (rows, features) if p.addend else (0,)

    def algorithms(self, p: BackwardParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        nbytes = Workspace.bytes_for((self._term(p, ins, outs[0]), outs[0].dtype))
        return (Algorithm("chunks", nbytes, chunk_rows=MAX_CHUNK),)

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1,)) if len(ins[0].shape) > 1 else None

    def samples(self) -> Sequence[Sample]:
        flat, last = {"num_hidden": 4, "addend": True}, {"num_hidden": 2, "flatten": False, "addend": True}
        large = (130, 2, 3)
        return (Sample(flat, ((3, 4), (4, 10), (3, 2, 5), (3, 2, 5)), differentiable=False),
                Sample(last, ((130, 2, 2), (2, 3), large, large), differentiable=False))


@register
class _FullyConnectedBackwardWeight(_FullyConnectedBackward):
    """Gradient by weight, from (out_grad, data, weight[, addend]): out_gradᵀ X, added over chunks in order."""

    name = "_fully_connected_backward_weight"

    def inputs(self, p: BackwardParams) -> tuple[str, ...]:
        return ("out_grad", "data", "weight", *self.last(p))

    def compute(self, p: BackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        sums, terms = self._scratch(p, ins[0], outs[0])
        total = work.array(sums, outs[0].dtype) if p.addend else outs[0]
        term = work.array(terms, outs[0].dtype)
        grad, data = _batches(*ins[:2])
        if self.resumes:
            np.copyto(total, ins[3])
        else:
            total.fill(0)
        for s in chunks(len(data), MAX_CHUNK):
            rows = _rows(grad[s])
            left, right = rows.T, data[s].reshape(len(rows), total.shape[1])
            if s.start == 0 and not self.resumes:
                np.matmul(left, right, out=total)
            else:
                np.matmul(left, right, out=term)
                np.add(total, term, out=total)
        if p.addend:
            np.add(ins[3], total, out=outs[0])

    def _scratch(self, p: BackwardParams, grad: Any, out: Any) -> tuple[Shape, Shape]:
        """Scratch for the sum, where it is added to another gradient, and for a chunk's product, where there is a sum
        to add it to."""
        several = self.resumes or _rows_of(grad) > MAX_CHUNK
        return tuple(out.shape) if p.addend else (0,), tuple(out.shape) if several else (0,)

    def algorithms(self, p: BackwardParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        arrays = [(shape, outs[0].dtype) for shape in self._scratch(p, ins[0], outs[0])]
        return (Algorithm("chunks", Workspace.bytes_for(*arrays), chunk_rows=MAX_CHUNK),)

    def sliced(self, p: BackwardParams, ins: Types, outs: Types) -> Sliced | None:
        if len(ins[0].shape) == 1 or p.addend:      # the addend comes after the sum over the batch
            return None
        return Sliced.sums(ins, outs, "_fully_connected_backward_weight_resume", whole=(2,))

    def samples(self) -> Sequence[Sample]:
        last = {"num_hidden": 2, "flatten": False, "addend": True}
        return (Sample({"num_hidden": 4, "addend": True}, ((3, 4), (3, 5), (4, 5), (4, 5)), differentiable=False),
                Sample(last, ((130, 2, 2), (130, 2, 3), (2, 3), (2, 3)), differentiable=False))


@register
class _FullyConnectedBackwardWeightResume(_FullyConnectedBackwardWeight):
    """The running sum of a gradient by weight, and that of a further slice."""

    name = "_fully_connected_backward_weight_resume"
    resumes = True

    def samples(self) -> Sequence[Sample]:
        return tuple(Sample({"num_hidden": 3}, ((rows, 3), (rows, 2), (3, 2), (3, 2)), differentiable=False)
                     for rows in (4, 130))


@register
class _FullyConnectedBackwardBias(_Backward):
    """Gradient by bias, from (out_grad[, addend]): the sum of out_grad (..., num_hidden) over all axes but the last."""

    name = "_fully_connected_backward_bias"
    Params = BackwardBiasParams

    def inputs(self, p: BackwardBiasParams) -> tuple[str, ...]:
        return ("out_grad", *self.last(p))

    def infer_shape(self, p, ins, outs):
        features = merge_shapes(*ins[1:], outs[0], None if ins[0] is None else ins[0][-1:])
        return [ins[0], *[features] * len(ins[1:])], [features]

    def compute(self, p: BackwardBiasParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, (out,) = np.atleast_2d(ins[0]), outs
        total = work.array(out.shape, out.dtype) if p.addend else out
        term = work.array(out.shape, out.dtype)
        if self.resumes:
            np.copyto(total, ins[1])
        else:
            total.fill(0)
        for s in chunks(len(grad), MAX_CHUNK):
            np.add.reduce(_rows(grad[s]), axis=0, out=term)
            np.add(total, term, out=total)
        if p.addend:
            np.add(ins[1], total, out=out)

    def algorithms(self, p: BackwardBiasParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        nbytes = Workspace.bytes_for(*[(outs[0].shape, outs[0].dtype)] * (1 + p.addend))
        return (Algorithm("chunks", nbytes, chunk_rows=MAX_CHUNK),)

    def cost(self, p: BackwardBiasParams, ins: Types, outs: Types) -> Cost:
        return Cost(float(ins[0].size), sum(t.nbytes for t in ins), outs[0].nbytes)

    def sliced(self, p: BackwardBiasParams, ins: Types, outs: Types) -> Sliced | None:
        if len(ins[0].shape) == 1 or p.addend:
            return None
        return Sliced.sums(ins, outs, "_fully_connected_backward_bias_resume")

    def samples(self) -> Sequence[Sample]:
        return (Sample({"addend": True}, ((130, 3), (3,)), differentiable=False),
                Sample({"addend": True}, ((2, 2, 3), (3,)), differentiable=False))


@register
class _FullyConnectedBackwardBiasResume(_FullyConnectedBackwardBias):
    """The running sum of a gradient by bias, and that of a further slice."""

    name = "_fully_connected_backward_bias_resume"
    resumes = True

    def samples(self) -> Sequence[Sample]:
        return tuple(Sample({}, ((rows, 3), (3,)), differentiable=False) for rows in (4, 130))

"""Layer normalisation: every row by its own mean and deviation.

Tensors are seen as (batch, before, features, after). A mean rounded to the dtype may be far off beside a
small deviation, so rows are centred twice: by the rounded mean, then by the mean of what is left.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, Shape, TensorType
from .channels import channel_layout, dot, infer_channels
from .chunks import chunk_rows, chunks
from .norm import refuse_statistics_gradient
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .params import param
from .registry import register

Types = Sequence[TensorType]
Part = tuple[slice, slice]


@dataclass(frozen=True)
class LayerNormParams:
    """Parameters of LayerNorm, and of its gradient."""

    axis: int = param(-1, "int", "the axis that is normalised")
    eps: float = param(1e-5, "float", "added to the variance")
    output_mean_var: bool = param(False, "bool", "whether mean and deviation are visible outputs")


def _row_lengths(layout: Shape, itemsize: int) -> tuple[int, int]:
    """(images, rows of an image) of a part: a canonical chunk of images, or some rows of a large one."""
    batch, before, features, after = layout
    row_bytes = features * after * itemsize
    images = chunk_rows(before * row_bytes)
    return min(batch, images), before if images > 1 else min(before, chunk_rows(row_bytes))


def _parts(layout: Shape, itemsize: int) -> Iterator[Part]:
    images, rows = _row_lengths(layout, itemsize)
    for s in chunks(layout[0], max(1, images)):
        for t in chunks(layout[1], max(1, rows)):
            yield s, t


def _row_array(layout: Shape, dtype: np.dtype) -> tuple[Shape, Any]:
    images, rows = _row_lengths(layout, dtype.itemsize)
    return (images * rows * layout[3],), dtype


def _part_array(layout: Shape, dtype: np.dtype) -> tuple[Shape, Any]:
    images, rows = _row_lengths(layout, dtype.itemsize)
    return (images * rows * layout[2] * layout[3],), dtype


def _view(scratch: np.ndarray, shape: Shape) -> np.ndarray:
    return scratch[:int(np.prod(shape))].reshape(shape)


def _row_means(values: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """Means over the features of (batch, before, features, after), kept as an axis of one."""
    shape = (*values.shape[:2], 1, values.shape[3])
    means = np.add.reduce(values, axis=2, keepdims=True, out=_view(scratch, shape))
    return np.divide(means, values.shape[2], out=means)


def _row_dots(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Means of a * b over the features, written to `out`, whose feature axis is one long."""
    np.einsum("nmcl,nmcl->nml", a, b, out=out[:, :, 0])
    return np.divide(out, a.shape[2], out=out)


@register
class LayerNorm(Op):
    """output = gamma (data - mean) / std + beta with std = sqrt(var + eps), by rows along `axis`.

    mean and std have data's shape, one long on that axis; they are hidden unless output_mean_var.
    """

    name = "LayerNorm"
    Params = LayerNormParams
    recompute = "cheap"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", "gamma", "beta")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output", "mean", "std")

    def visible_outputs(self, p: LayerNormParams) -> int:
        return 3 if p.output_mean_var else 1

    def infer_shape(self, p, ins, outs):
        data, vector = infer_channels(p.axis, merge_shapes(ins[0], outs[0]), ins[1:])
        rows = merge_shapes(*outs[1:], _row_shape(p, data))
        return [data, vector, vector], [data, rows, rows]

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        refuse_statistics_gradient(self.name, grads)
        if grads[0] is None or not any(wanted):
            return [None] * 3
        return b.node("_layernorm_backward", [grads[0], ins[0], ins[1], outs[1], outs[2]], **vars(p))

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        layout = channel_layout(p.axis, ins[0].shape)
        rows = work.array(*_row_array(layout, ins[0].dtype))
        data, out = ins[0].reshape(layout), outs[0].reshape(layout)
        means, deviations = (t.reshape(*layout[:2], 1, layout[3]) for t in outs[1:])
        gamma, beta = ins[1][:, None], ins[2][:, None]
        for part in _parts(layout, data.dtype.itemsize):
            values, mean, deviation = out[part], means[part], deviations[part]
            mean[...] = _row_means(data[part], rows)
            np.subtract(data[part], mean, out=values)
            rest = _row_means(values, rows)
            np.subtract(values, rest, out=values)
            np.add(mean, rest, out=mean)
            _row_dots(values, values, deviation)
            np.add(deviation, p.eps, out=deviation)
            np.sqrt(deviation, out=deviation)
            np.divide(values, deviation, out=values)
            np.multiply(values, gamma, out=values)
            np.add(values, beta, out=values)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        rows = _row_array(channel_layout(p.axis, ins[0].shape), ins[0].dtype)
        return (Algorithm(workspace_bytes=Workspace.bytes_for(rows)),)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(10.0 * ins[0].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs, whole=(1, 2)) if p.axis % len(ins[0].shape) else None

    def samples(self) -> Sequence[Sample]:
        return (Sample({}, ((3, 7), (7,), (7,))), Sample({}, ((2, 3, 4), (4,), (4,))),
                Sample({"axis": 1, "eps": 1e-3}, ((2, 3, 2, 2), (3,), (3,))),
                Sample({"axis": 0}, ((4, 3), (4,), (4,))))


def _row_shape(p: LayerNormParams, data: Any) -> Any:
    if data is None:
        return None
    axis = p.axis % len(data)
    return (*data[:axis], 1, *data[axis + 1:])


@register
class _LayerNormBackward(Op):
    """Gradients by data, gamma and beta, from (out_grad, data, gamma, mean, std)."""

    name = "_layernorm_backward"
    Params = LayerNormParams
    recompute = "cheap"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", "gamma", "mean", "std")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad", "gamma_grad", "beta_grad")

    def infer_shape(self, p, ins, outs):
        data, vector = infer_channels(p.axis, merge_shapes(*ins[:2], outs[0]), [ins[2], *outs[1:]])
        rows = merge_shapes(*ins[3:], _row_shape(p, data))
        return [data, data, vector, rows, rows], [data, vector, vector]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        layout = channel_layout(p.axis, ins[1].shape)
        part_memory, rows = (work.array(*a) for a in self._arrays(p, ins[1]))
        grad, data, out = (t.reshape(layout) for t in (ins[0], ins[1], outs[0]))
        means, deviations = (t.reshape(*layout[:2], 1, layout[3]) for t in ins[3:])
        gamma_grad, beta_grad = np.zeros(layout[2]), np.zeros(layout[2])
        for part in _parts(layout, data.dtype.itemsize):
            values = _view(part_memory, data[part].shape)
            np.subtract(data[part], means[part], out=values)
            np.subtract(values, _row_means(values, rows), out=values)
            np.divide(values, deviations[part], out=values)
            gamma_grad += dot(grad[part], values)
            beta_grad += np.add.reduce(grad[part], axis=(0, 1, 3))
            np.multiply(grad[part], ins[2][:, None], out=out[part])
            _project(out[part], values, deviations[part], rows)
        outs[1][...], outs[2][...] = gamma_grad, beta_grad

    def _arrays(self, p: Any, data: Any) -> tuple[tuple[Shape, Any], ...]:
        layout = channel_layout(p.axis, data.shape)
        return _part_array(layout, data.dtype), _row_array(layout, data.dtype)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm(workspace_bytes=Workspace.bytes_for(*self._arrays(p, ins[1]))),)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(14.0 * ins[0].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))


def _project(grad: np.ndarray, values: np.ndarray, deviation: np.ndarray, rows: np.ndarray) -> None:
    """Replace grad by (grad - mean(grad) - values * mean(grad * values)) / deviation; `values` is used up."""
    np.subtract(grad, _row_means(grad, rows), out=grad)
    slope = _row_dots(grad, values, _view(rows, (*grad.shape[:2], 1, grad.shape[3])))
    np.multiply(values, slope, out=values)
    np.subtract(grad, values, out=grad)
    np.divide(grad, deviation, out=grad)

"""softmax and its kin, and their gradients from the output, row by row of a (outer, classes, inner) view."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType
from .chunks import CHUNK_BYTES, chunks
from .elemwise import only
from .op import Arrays, Op, Sample, Sliced, Workspace, is_complete, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register
from .shape import axis_in


def layout(shape: Sequence[int], axis: int, flatten: bool = False) -> tuple[int, int, int]:
    """(outer, classes, inner) of a softmax over an axis, or over all axes but the first when `flatten`."""
    if flatten:
        return shape[0], prod(shape[1:]), 1
    axis = axis_in(axis, len(shape))
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1:])


def _rows(view: tuple[int, int, int], itemsize: int) -> int:
    """Rows worked on at a time. Rows are independent of each other, so this changes no bit."""
    outer, classes, inner = view
    return max(1, min(outer, CHUNK_BYTES // max(1, classes * inner * itemsize)))


def reduced_bytes(view: tuple[int, int, int], dtype: np.dtype) -> int:
    """Workspace bytes of `softmax_into` and `log_softmax_into`: one number for each row at a time."""
    return Workspace.bytes_for(((_rows(view, dtype.itemsize), 1, view[2]), dtype))


def full_bytes(view: tuple[int, int, int], dtype: np.dtype) -> int:
    """Workspace bytes of the gradients, and of log_softmax: besides, a copy of the rows worked on."""
    rows = _rows(view, dtype.itemsize)
    return Workspace.bytes_for(((rows, *view[1:]), dtype), ((rows, 1, view[2]), dtype))


def _parts(view: tuple[int, int, int], work: Workspace, *arrays: np.ndarray,
           full: bool) -> Iterator[tuple[np.ndarray, ...]]:
    """(scratch like the rows if `full`, scratch of one number a row, the rows of each array) part by part; none where
    there are no classes, of which there is no largest."""
    if not view[1]:
        return
    dtype = arrays[0].dtype
    rows = _rows(view, dtype.itemsize)
    shapes = [(rows, *view[1:])] * full + [(rows, 1, view[2])]
    scratch = [work.array(shape, dtype) for shape in shapes]
    views = [a.reshape(view) for a in arrays]
    for s in chunks(view[0], rows):
        yield (*(a[:s.stop - s.start] for a in scratch), *(v[s] for v in views))


def softmax_into(data: np.ndarray, out: np.ndarray, view: tuple[int, int, int], temperature: float | None,
                 work: Workspace) -> None:
    """softmax(data / temperature), shifted by the largest logit so that nothing overflows."""
    for number, x, y in _parts(view, work, data, out, full=False):
        np.maximum.reduce(x, axis=1, keepdims=True, out=number)
        np.subtract(x, number, out=y)
        if temperature is not None:
            np.divide(y, temperature, out=y)
        np.exp(y, out=y)
        np.add.reduce(y, axis=1, keepdims=True, out=number)
        np.divide(y, number, out=y)


@dataclass(frozen=True)
class SoftmaxParams:
    """Parameters of softmax and log_softmax."""

    axis: int = param(-1, "int", "axis along which the numbers add up to 1")
    temperature: float | None = param(None, "float", "divisor of the logits")


@dataclass(frozen=True)
class SoftmaxTypeParams(SoftmaxParams):
    """Parameters of softmin and log_softmax."""

    dtype: np.dtype | None = param(None, "dtype", "dtype of the output; data's when not given")


@dataclass(frozen=True)
class SoftmaxLengthParams(SoftmaxTypeParams):
    """Parameters of softmax."""

    use_length: bool = param(False, "bool", "whether a second input tells how many of the numbers count, and the rest "
                                            "are to be 0")


@dataclass(frozen=True)
class SoftmaxActivationParams:
    """Parameters of SoftmaxActivation."""

    mode: str = param("instance", "str", "over all of an instance, or over its channels (axis 1)",
                      ("instance", "channel"))


@dataclass(frozen=True)
class SoftmaxBackwardParams:
    """Parameters of the gradient of softmax."""

    axis: int = param(-1, "int", "axis along which the numbers add up to 1")
    temperature: float | None = param(None, "float", "divisor of the logits")
    flatten: bool = param(False, "bool", "over all axes but the first")


class SoftmaxBase(Op):
    """Base of the ops that write a softmax over `view_of` their input."""

    recompute = "cheap"

    def view_of(self, p: Any, shape: Shape) -> tuple[int, int, int]:
        """(outer, classes, inner) of a shape."""
        return layout(shape, p.axis)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        found = super().infer_shape(p, ins, outs)
        if is_complete(found[0][0]):
            self.view_of(p, found[0][0])  # type: ignore[arg-type]  # refuses an axis that is not there
        return found

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("rows", reduced_bytes(self.view_of(p, ins[0].shape), ins[0].dtype)),)


class Converting(SoftmaxBase):
    """Base of those whose output may be of another dtype: they compute in the wider one of the two."""

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        if p.dtype is not None:
            return list(ins), [p.dtype]
        (data,), out = super().infer_dtype(p, ins[:1], outs)
        return [data, *ins[1:]], out

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        if p.dtype is None:
            return self.expand_alike(b, p, ins)
        wider = np.promote_types(b.dtype(ins[0]), p.dtype)
        data = only(b.node("Cast", ins[:1], dtype=wider))
        return b.node("Cast", self.expand_alike(b, replace(p, dtype=None), [data, *ins[1:]]), dtype=p.dtype)

    def expand_alike(self, b: Builder, p: Any, ins: Sequence[Entry]) -> Sequence[Entry]:
        """The nodes that make an output of data's dtype."""
        return b.node(self.name, ins, **vars(p))


@register
class Softmax(Converting):
    """exp(data) / sum(exp(data)) along an axis.

    A probability too small for the dtype is 0 and its logarithm -inf, with NaN in the gradient: for a loss take
    log_softmax, softmax_cross_entropy or SoftmaxOutput, which are exact at any logits.
    """

    name = "softmax"
    Params = SoftmaxLengthParams

    def inputs(self, p: SoftmaxLengthParams) -> tuple[str, ...]:
        return ("data", "length") if p.use_length else ("data",)

    def infer_shape(self, p: SoftmaxLengthParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data,), out = super().infer_shape(p, ins[:1], outs)
        if not p.use_length:
            return [data], out
        rest = None if data is None else tuple(
            d for k, d in enumerate(data) if k != axis_in(p.axis, len(data)))
        return [data, merge_shapes(ins[1], rest)], out

    def expand_alike(self, b: Builder, p: SoftmaxLengthParams, ins: Sequence[Entry]) -> Sequence[Entry]:
        if not p.use_length:
            return super().expand_alike(b, p, ins)
        shape, dtype = b.shape(ins[0]), b.dtype(ins[0])
        axis = axis_in(p.axis, len(shape))
        numbers = b.node("_arange", [], start=0.0, stop=float(shape[axis]))
        numbers = b.node("Reshape", numbers, shape=tuple(n if k == axis else 1 for k, n in enumerate(shape)))
        lengths = b.node("Cast", b.node("BlockGrad", [ins[1]]), dtype=np.dtype(np.float32))
        lengths = b.node("expand_dims", lengths, axis=axis)
        counts = only(b.node("broadcast_lesser", [*numbers, *lengths]))
        # A number so low, and not -inf, that a row of length 0 is 0 too, and not NaN.
        low = b.node("_full", [], shape=shape, dtype=dtype, value=float(np.finfo(dtype).min))
        found = b.node(self.name, b.node("where", [counts, ins[0], *low]), axis=axis, temperature=p.temperature)
        return b.node("where", [counts, *found, *b.node("zeros_like", found)])

    def sliced(self, p: SoftmaxLengthParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs) if axis_in(p.axis, len(ins[0].shape)) else None

    def compute(self, p: SoftmaxLengthParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        softmax_into(ins[0], outs[0], layout(ins[0].shape, p.axis), p.temperature, work)

    def gradient(self, b: Builder, p: SoftmaxLengthParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_softmax_backward", [grads[0], outs[0]], axis=p.axis, temperature=p.temperature))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4),)), Sample({"axis": 1}, ((2, 3, 4),)),
                Sample({"axis": 0, "temperature": 2.0}, ((3, 2),))]


@register
class SoftmaxActivation(SoftmaxBase):
    """softmax over all of each instance, or over its channels at each place."""

    name = "SoftmaxActivation"
    Params = SoftmaxActivationParams

    def sliced(self, p: SoftmaxActivationParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def view_of(self, p: SoftmaxActivationParams, shape: Shape) -> tuple[int, int, int]:
        return layout(shape, 1) if p.mode == "channel" else layout(shape, 1, flatten=True)

    def compute(self, p: SoftmaxActivationParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        softmax_into(ins[0], outs[0], self.view_of(p, ins[0].shape), None, work)

    def gradient(self, b: Builder, p: SoftmaxActivationParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_softmax_backward", [grads[0], outs[0]], axis=1, flatten=p.mode == "instance"))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3, 2),)), Sample({"mode": "channel"}, ((2, 3, 2, 2),))]


class FromOutput(SoftmaxBase):
    """Base of gradients from (grad, out), through a copy of some rows; in place over either."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "out")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad",)

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0))

    def view_of(self, p: Any, shape: Shape) -> tuple[int, int, int]:
        """(outer, classes, inner) of a shape."""
        return layout(shape, p.axis, getattr(p, "flatten", False))

    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs) if axis_in(p.axis, len(ins[0].shape)) else None

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("rows", full_bytes(self.view_of(p, ins[0].shape), ins[0].dtype)),)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4), (3, 4)), differentiable=False),
                Sample({"axis": 1, "temperature": 2.0}, ((2, 3, 4),) * 2, differentiable=False)]


@register
class SoftmaxBackward(FromOutput):
    """(grad - sum(grad * out)) * out / temperature."""

    name = "_softmax_backward"
    Params = SoftmaxBackwardParams

    def compute(self, p: SoftmaxBackwardParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = self.view_of(p, ins[0].shape)
        for scratch, number, grad, y, out in _parts(view, work, *ins, outs[0], full=True):
            np.multiply(grad, y, out=scratch)
            np.add.reduce(scratch, axis=1, keepdims=True, out=number)
            np.subtract(grad, number, out=scratch)
            if p.temperature is not None:
                np.divide(scratch, p.temperature, out=scratch)
            np.multiply(scratch, y, out=out)


@register
class Softmin(Converting):
    """softmax(-data) along an axis."""

    name = "softmin"
    Params = SoftmaxTypeParams

    def expand_alike(self, b: Builder, p: SoftmaxTypeParams, ins: Sequence[Entry]) -> Sequence[Entry]:
        return b.node("softmax", b.node("negative", ins), **vars(p))

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4),)), Sample({"axis": 0, "temperature": 2.0}, ((3, 2),))]


@register
class LogSoftmax(Converting):
    """data - log(sum(exp(data))) along an axis, shifted by the largest logit."""

    name = "log_softmax"
    Params = SoftmaxTypeParams

    def sliced(self, p: SoftmaxParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs) if axis_in(p.axis, len(ins[0].shape)) else None

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("rows", full_bytes(self.view_of(p, ins[0].shape), ins[0].dtype)),)

    def compute(self, p: SoftmaxParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = layout(ins[0].shape, p.axis)
        for scratch, number, x, y in _parts(view, work, ins[0], outs[0], full=True):
            np.maximum.reduce(x, axis=1, keepdims=True, out=number)
            np.subtract(x, number, out=y)
            if p.temperature is not None:
                np.divide(y, p.temperature, out=y)
            np.exp(y, out=scratch)
            np.add.reduce(scratch, axis=1, keepdims=True, out=number)
            np.log(number, out=number)
            np.subtract(y, number, out=y)

    def gradient(self, b: Builder, p: SoftmaxParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("_log_softmax_backward", [grads[0], outs[0]], axis=p.axis, temperature=p.temperature))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 4),)), Sample({"axis": 1, "temperature": 2.0}, ((2, 3, 4),))]


@register
class LogSoftmaxBackward(FromOutput):
    """(grad - exp(out) * sum(grad)) / temperature."""

    name = "_log_softmax_backward"
    Params = SoftmaxParams

    def compute(self, p: SoftmaxParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        view = self.view_of(p, ins[0].shape)
        for scratch, number, grad, y, out in _parts(view, work, *ins, outs[0], full=True):
            np.add.reduce(grad, axis=1, keepdims=True, out=number)
            np.exp(y, out=scratch)
            np.multiply(scratch, number, out=scratch)
            np.subtract(grad, scratch, out=out)
            if p.temperature is not None:
                np.divide(out, p.temperature, out=out)


"""Correlation: how alike the patches of two feature maps are, at each of some displacements (FlowNet)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]


@dataclass(frozen=True)
class CorrelationParams:
    """Parameters of Correlation, and of its gradient."""

    kernel_size: int = param(1, "int", "height and width of a patch, an odd number")
    max_displacement: int = param(1, "int", "how far the second patch lies from the first at most, each way")
    stride1: int = param(1, "int", "step of the first patch")
    stride2: int = param(1, "int", "step of the displacement")
    pad_size: int = param(0, "int", "zeros on each side of both maps")
    is_multiply: bool = param(True, "bool", "whether patches are multiplied; else the absolute differences are added")

    @property
    def steps(self) -> int:
        """Displacements each way from 0."""
        return self.max_displacement // self.stride2

    def displacements(self) -> Iterator[tuple[int, int]]:
        """(rows, columns) of each displacement, in the order of the output's channels."""
        steps = range(-self.steps, self.steps + 1)
        return ((dy * self.stride2, dx * self.stride2) for dy, dx in product(steps, steps))


class _CorrelationOp(Op):
    """Base: two maps (N, C, H, W), and their correlation (N, displacements, rows, columns)."""

    Params = CorrelationParams
    recompute = "costly"

    def sliced(self, p: CorrelationParams, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def shapes(self, p: CorrelationParams, *maps: PartialShape) -> tuple[PartialShape, PartialShape]:
        """(a map, the output)."""
        if p.kernel_size < 1 or p.kernel_size % 2 == 0:
            raise ShapeError(f"kernel_size {p.kernel_size} must be an odd number")
        if min(p.stride1, p.stride2) < 1 or min(p.pad_size, p.max_displacement) < 0:
            raise ShapeError(f"stride1 {p.stride1} and stride2 {p.stride2} must be at least 1, pad_size {p.pad_size} "
                             f"and max_displacement {p.max_displacement} at least 0")
        data = merge_shapes(*maps, (None,) * 4)
        assert data is not None
        if 0 in data[1:]:
            raise ShapeError(f"data {format_shape(data)} is empty along axis {data.index(0, 1)}; only the batch may be")
        border = p.max_displacement + p.kernel_size // 2
        lengths = []
        for x in data[2:]:
            rest = None if x is None else x + 2 * p.pad_size - 2 * border
            if rest is not None and rest < 1:
                raise ShapeError(f"data {format_shape(data)} with pad_size {p.pad_size} leaves no place for a patch of "
                                 f"{p.kernel_size} and displacements of {p.max_displacement}; pad more")
            lengths.append(None if rest is None else -(-rest // p.stride1))
        return data, (data[0], (2 * p.steps + 1) ** 2, *lengths)

    def cost(self, p: CorrelationParams, ins: Types, outs: Types) -> Cost:
        out = max((*ins, *outs), key=lambda t: t.shape[1]) if ins[0].shape == ins[-1].shape else ins[0]
        flops = 2.0 * out.size * ins[-1].shape[1] * p.kernel_size**2 * len(outs)
        return Cost(flops, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def padded(self, p: CorrelationParams, data: TensorType) -> tuple[Shape, np.dtype]:
        """One image of a map with its zeros about it."""
        _, channels, *spatial = data.shape
        return (channels, *(x + 2 * p.pad_size for x in spatial)), data.dtype

    def pairs(self, p: CorrelationParams, maps: Sequence[np.ndarray], out: Sequence[int],
              ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(channel of the output, part of the first map, part of the second) for each displacement and place in a
        patch; the maps have their zeros about them, and `out` are the rows and columns of the output."""
        reach = p.max_displacement
        for channel, (dy, dx) in enumerate(p.displacements()):
            for h, w in product(range(p.kernel_size), repeat=2):
                cuts = [[slice(s, s + (n - 1) * p.stride1 + 1, p.stride1) for s, n in zip(starts, out, strict=True)]
                        for starts in ((reach + h, reach + w), (reach + h + dy, reach + w + dx))]
                yield channel, maps[0][:, cuts[0][0], cuts[0][1]], maps[1][:, cuts[1][0], cuts[1][1]]

    def inner(self, p: CorrelationParams, padded: np.ndarray) -> np.ndarray:
        """The map within its zeros."""
        return padded[:, p.pad_size:padded.shape[1] - p.pad_size, p.pad_size:padded.shape[2] - p.pad_size]


@register
class Correlation(_CorrelationOp):
    """Means of products, or of absolute differences, of patches of data1 and displaced ones of data2.

    Patches lie within the padded maps at every displacement, so the output is smaller by max_displacement and half a
    patch on each side. The channels are the displacements, row by row.
    """

    name = "Correlation"

    def inputs(self, p: CorrelationParams) -> tuple[str, ...]:
        return ("data1", "data2")

    def infer_shape(self, p: CorrelationParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, out = self.shapes(p, *ins)
        return [data, data], [merge_shapes(out, outs[0])]

    def algorithms(self, p: CorrelationParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        part = (ins[0].shape[1], *outs[0].shape[2:])
        kinds = [*[self.padded(p, ins[0])] * 2, (part, ins[0].dtype), (outs[0].shape[2:], ins[0].dtype)]
        return (Algorithm("displacements", Workspace.bytes_for(*kinds)),)

    def compute(self, p: CorrelationParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        kind = TensorType(ins[0].shape, ins[0].dtype)
        padded = [work.array(*self.padded(p, kind)) for _ in ins]
        spatial = outs[0].shape[2:]
        term = work.array((ins[0].shape[1], *spatial), ins[0].dtype)
        total = work.array(spatial, ins[0].dtype)
        outs[0].fill(0)
        for n, out in enumerate(outs[0]):
            for whole, data in zip(padded, ins, strict=True):
                whole.fill(0)
                np.copyto(self.inner(p, whole), data[n])
            for channel, a, b in self.pairs(p, padded, spatial):
                if p.is_multiply:
                    np.multiply(a, b, out=term)
                else:
                    np.subtract(a, b, out=term)
                    np.abs(term, out=term)
                np.add.reduce(term, axis=0, out=total)
                np.add(out[channel], total, out=out[channel])
        np.divide(outs[0], ins[0].shape[1] * p.kernel_size**2, out=outs[0])

    def gradient(self, b: Builder, p: CorrelationParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not any(wanted):
            return [None, None]
        return b.node("_correlation_backward", [grads[0], *ins], **vars(p))

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({"max_displacement": 1, "pad_size": 1}, (2, 3, 4, 5)),
            ({"kernel_size": 3, "max_displacement": 2, "stride2": 2, "pad_size": 3}, (1, 2, 5, 4)),
            ({"max_displacement": 1, "stride1": 2, "pad_size": 2, "is_multiply": False}, (2, 2, 4, 3))]
        return [Sample(params, (shape, shape)) for params, shape in cases]


@register
class _CorrelationBackward(_CorrelationOp):
    """Gradients of both maps from (grad, data1, data2)."""

    name = "_correlation_backward"

    def inputs(self, p: CorrelationParams) -> tuple[str, ...]:
        return ("grad", "data1", "data2")

    def outputs(self, p: CorrelationParams) -> tuple[str, ...]:
        return ("data1_grad", "data2_grad")

    def infer_shape(self, p: CorrelationParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, out = self.shapes(p, *ins[1:], *outs)
        return [merge_shapes(out, ins[0]), data, data], [data, data]

    def algorithms(self, p: CorrelationParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        part = (ins[1].shape[1], *ins[0].shape[2:])
        kinds = [*[self.padded(p, ins[1])] * 4, (part, ins[0].dtype), (part, ins[0].dtype)]
        return (Algorithm("displacements", Workspace.bytes_for(*kinds)),)

    def compute(self, p: CorrelationParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, *maps = ins
        kind = TensorType(maps[0].shape, maps[0].dtype)
        padded, found = ([work.array(*self.padded(p, kind)) for _ in maps] for _ in range(2))
        spatial = grad.shape[2:]
        sign, term = (work.array((maps[0].shape[1], *spatial), grad.dtype) for _ in range(2))
        for n, above in enumerate(grad):
            for whole, target, data in zip(padded, found, maps, strict=True):
                whole.fill(0)
                target.fill(0)
                np.copyto(self.inner(p, whole), data[n])
            both = zip(self.pairs(p, padded, spatial), self.pairs(p, found, spatial), strict=True)
            for (channel, a, b), (_, to_a, to_b) in both:
                if p.is_multiply:
                    np.multiply(b, above[channel], out=term)
                    np.add(to_a, term, out=to_a)
                    np.multiply(a, above[channel], out=term)
                    np.add(to_b, term, out=to_b)
                else:
                    np.subtract(a, b, out=term)
                    np.sign(term, out=sign)
                    np.multiply(sign, above[channel], out=term)
                    np.add(to_a, term, out=to_a)
                    np.subtract(to_b, term, out=to_b)
            for target, out in zip(found, outs, strict=True):
                np.divide(self.inner(p, target), maps[0].shape[1] * p.kernel_size**2, out=out[n])

"""Gradients of a convolution by weight and by bias: sums over the batch, which go on from slice to slice."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Cost, Shape
from .chunks import chunk_rows, chunks
from .column_products import grad_matrix
from .columns import Columns, Filler
from .conv import ConvolutionBackward, Types, algorithms_of, scratch_bytes, take
from .conv_geometry import Geometry, geometry
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .registry import register
from .tiles import most_scratch, parts


@register
class _ConvolutionBackwardWeight(ConvolutionBackward):
    """Gradient by weight, from (out_grad, data, weight): a product a chunk, added in ascending order."""

    name = "_convolution_backward_weight"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", "weight")

    resumes: ClassVar[bool] = False
    """Whether the sum goes on from a running one, the last input."""

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, data, _, *running = ins
        g = geometry(p, data, grad)
        c = g.columns()
        lean = work.nbytes < scratch_bytes(self._sizes(g), grad.dtype)
        *scratch, sums, term = take(work, self._sizes(g, lean), grad.dtype)
        # BLAS is faster with the columns on the left; turning a large weight at the end would cost more.
        shape = (c.kernel[0], g.groups, *((c.depth, g.filters) if g.rows else (g.filters, c.depth)))
        begin = running[0] if running else None
        if not g.rows:
            total = outs[0].reshape(shape)
            _begin(total, None if begin is None else begin.reshape(shape))
            _add_taps(g, data, grad, range(c.kernel[0]), total, term, scratch, begin is not None)
            return
        into = np.moveaxis(g.weight_by_tap(outs[0]), 2, -1)
        before = None if begin is None else np.moveaxis(g.weight_by_tap(begin), 2, -1)
        parts = [range(tap, tap + 1) for tap in range(c.kernel[0])] if lean else [range(c.kernel[0])]
        for taps in parts:
            total, cut = sums.reshape(len(taps), *shape[1:]), slice(taps.start, taps.stop)
            _begin(total.reshape(len(taps), *into.shape[1:]), None if before is None else before[cut])
            _add_taps(g, data, grad, taps, total, term, scratch, begin is not None)
            np.copyto(into[cut], total.reshape(len(taps), *into.shape[1:]))

    def _sizes(self, g: Geometry, lean: bool = False) -> tuple[int, ...]:
        def of(c: Columns, batch: int) -> tuple[int, ...]:
            n = min(c.length, batch)
            return *c.sizes(batch), g.p.num_filter * c.pixels * n * (n > 1)
        terms = 2 if self.resumes else len(list(islice(parts(g.tiles(), g.batch), 2)))
        return (*most_scratch(g.tiles(), g.batch, of), g.arranged_size(lean) * g.rows,
                g.weight_size // g.columns().kernel[0] * (terms > 1))

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        g = geometry(p, ins[1], ins[0])
        c = g.columns()
        filled = g.batch * (2 * c.groups * c.depth * c.width + 2 * (p.num_filter * c.pixels + c.image_size))
        return algorithms_of("rows" if g.rows else "columns", self._sizes(g), self._sizes(g, lean=True),
                           (c.kernel[0] - 1) * filled, ins[0].dtype, g.tiles())

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.sums(ins, outs, "_convolution_backward_weight_resume", whole=(2,))


def _begin(total: np.ndarray, running: np.ndarray | None) -> None:
    """Write to `total` what a sum begins with."""
    if running is None:
        total.fill(0)
    else:
        np.copyto(total, running)


def _add_taps(g: Geometry, data: np.ndarray, grad: np.ndarray, taps: range, total: np.ndarray, term: np.ndarray,
              scratch: Sequence[np.ndarray], resumes: bool) -> None:
    """Add the products of some taps of the first axis to `total` (taps, groups, ...), each summed over images and
    their tiles; the first one takes its place unless it `resumes`."""
    images, matrix, grads = scratch
    fill = Filler(images, matrix)
    for number, (s, tile) in enumerate(parts(g.tiles(), len(data))):
        c = tile.columns
        columns, rows = fill(c, data[s][tile.inputs]), grad_matrix(c, grad[s][tile.outputs], grads)
        is_first = number == 0 and not resumes
        for k, tap in enumerate(taps):
            one = total[k] if is_first else term.reshape(total.shape[1:])
            block = c.block(columns, tap)
            left, right = (block, rows) if g.rows else (rows, block)
            np.matmul(left, right.swapaxes(1, 2), out=one)
            if not is_first:
                np.add(total[k], one, out=total[k])


@register
class _ConvolutionBackwardWeightResume(_ConvolutionBackwardWeight):
    """The running sum of a gradient by weight, and that of a further slice."""

    name = "_convolution_backward_weight_resume"
    resumes = True

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "data", "weight", "running")

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((3, 0),)

    def samples(self) -> Sequence[Sample]:
        def sample(grad: Shape, data: Shape, weight: Shape, **params: Any) -> Sample:
            return Sample({"kernel": weight[2:], "num_filter": weight[0], **params}, (grad, data, weight, weight),
                          differentiable=False)
        return (sample((3, 4, 5, 6), (3, 3, 5, 6), (4, 3, 3, 3), pad=(1, 1)),
                sample((9, 2, 3, 3), (9, 4, 3, 3), (2, 2, 1, 1), num_group=2))


@register
class _ConvolutionBackwardBias(Op):
    """Gradient by bias: the sum of out_grad (N, C, *spatial) over all axes but the channels'."""

    name = "_convolution_backward_bias"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad",)

    def infer_shape(self, p, ins, outs):
        channels = merge_shapes(outs[0], None if ins[0] is None else (ins[0][1],))
        return list(ins), [channels]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, (out,) = ins[0], outs
        self._begin(ins, out)
        pixels = prod(grad.shape[2:])
        for s in chunks(len(grad), self._rows(grad)):
            out += np.add.reduce(grad[s].reshape(s.stop - s.start, grad.shape[1], pixels), axis=(0, 2))

    def _begin(self, ins: Arrays, out: np.ndarray) -> None:
        out.fill(0)

    @staticmethod
    def _rows(grad: Any) -> int:
        return chunk_rows(prod(grad.shape[1:]) * grad.dtype.itemsize)

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("chunks", chunk_rows=self._rows(ins[0])),)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(float(ins[0].size), ins[0].nbytes, outs[0].nbytes)

    def sliced(self, p: Any, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.sums(ins, outs, "_convolution_backward_bias_resume")


@register
class _ConvolutionBackwardBiasResume(_ConvolutionBackwardBias):
    """The running sum of a gradient by bias, and that of a further slice."""

    name = "_convolution_backward_bias_resume"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("out_grad", "running")

    def infer_shape(self, p, ins, outs):
        channels = merge_shapes(ins[1], outs[0], None if ins[0] is None else (ins[0][1],))
        return [ins[0], channels], [channels]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((1, 0),)

    def _begin(self, ins: Arrays, out: np.ndarray) -> None:
        np.copyto(out, ins[1])

    def samples(self) -> Sequence[Sample]:
        return (Sample({}, ((3, 2, 4, 5), (2,)), differentiable=False),)

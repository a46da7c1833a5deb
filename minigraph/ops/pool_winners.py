"""Windowed maxima by their winners: where in each window its first maximal element lies, and gradients from that."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Cost, PartialShape, Shape
from .chunks import chunk_rows
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .params import REQUIRED, param
from .pool import Pooling, PoolingParams, Types, image_chunks, windows_of
from .registry import get_op, register
from .window import ALL

UINT8 = np.dtype(np.uint8)


def _chunk(data: Shape, part: Shape, itemsize: int) -> Shape:
    """The shape of the part of a tensor, whose images have the shape part[1:], that belongs to a chunk of images."""
    return min(data[0], chunk_rows(prod(data[1:]) * itemsize)), *part[1:]


@register
class _PoolingWinners(Op):
    """Of (data, output) of a windowed maximum the number of the first element of each window that is not below the
    output, in row-major order, counted with those outside the image; 0 where there is none. Of NaN, which is the output
    of a window with one, that is the first element."""

    name = "_pooling_winners"
    Params = PoolingParams
    recompute = "cheap"

    def inputs(self, p: PoolingParams) -> tuple[str, ...]:
        return ("data", "output")

    def outputs(self, p: PoolingParams) -> tuple[str, ...]:
        return ("winners",)

    def infer_shape(self, p: PoolingParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data,), (pooled,) = get_op(Pooling.name).infer_shape(p, ins[:1], [merge_shapes(ins[1], outs[0])])
        return [data, pooled], [pooled]

    def infer_dtype(self, p: PoolingParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        known = ins[0] or ins[1]
        return [known, known], [UINT8]

    def algorithms(self, p: PoolingParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm(workspace_bytes=Workspace.bytes_for(self._lost(ins[0], outs[0]))),)

    @staticmethod
    def _lost(data: Any, out: Any) -> tuple[Shape, Any]:
        return _chunk(data.shape, out.shape, data.dtype.itemsize), np.bool_

    def cost(self, p: PoolingParams, ins: Types, outs: Types) -> Cost:
        return Cost(float(prod(p.kernel) * outs[0].size), sum(t.nbytes for t in ins), outs[0].nbytes)

    def sliced(self, p: PoolingParams, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def compute(self, p: PoolingParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        data, pooled, winners = ins[0], ins[1], outs[0]
        windows = windows_of(p, data.shape[2:], pooled.shape[2:])
        scratch = work.array(*self._lost(data, winners))
        winners.fill(0)
        for s in image_chunks(data):
            lost = scratch[:s.stop - s.start]
            for place, (into, read) in reversed(list(zip(windows.places, windows.taps, strict=True))):
                index = (ALL, ALL, *into)
                loses = np.less(data[s][(ALL, ALL, *read)], pooled[s][index], out=lost[index])
                np.copyto(winners[s][index], place, where=np.logical_not(loses, out=loses))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"kernel": (2, 2), "stride": (2, 2)}, ((2, 3, 4, 6), (2, 3, 2, 3))),
                Sample({"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1)}, ((2, 2, 6, 5), (2, 2, 3, 6)))]


@register
class _PoolingWithWinners(Pooling):
    """A windowed maximum, and beside it the winners that _pooling_winners makes of data and output."""

    name = "_pooling_with_winners"

    def outputs(self, p: PoolingParams) -> tuple[str, ...]:
        return ("output", "winners")

    def infer_shape(self, p: PoolingParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        found, (pooled,) = super().infer_shape(p, ins, [merge_shapes(*outs)])
        return found, [pooled, pooled]

    def infer_dtype(self, p: PoolingParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        known = ins[0] or outs[0]
        return [known], [known, UINT8]

    def encoded(self, p: PoolingParams, encoder: str, q: Any, of: Sequence[int]) -> None:
        return None

    def algorithms(self, p: PoolingParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        maximum, = super().algorithms(p, ins, outs)
        winners, = _winners().algorithms(p, [ins[0], outs[0]], outs[1:])
        return (Algorithm(workspace_bytes=maximum.workspace_bytes + winners.workspace_bytes),)

    def cost(self, p: PoolingParams, ins: Types, outs: Types) -> Cost:
        return Cost(float(prod(p.kernel) * outs[0].size), ins[0].nbytes, sum(t.nbytes for t in outs))

    def compute(self, p: PoolingParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        super().compute(p, ins, outs[:1], work)
        _winners().compute(p, [ins[0], outs[0]], outs[1:], work)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"kernel": (2, 2), "stride": (2, 2)}, ((2, 3, 4, 6),), differentiable=False),
                Sample({"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1)}, ((2, 2, 6, 5),), differentiable=False)]


def _winners() -> Op:
    return get_op(_PoolingWinners.name)


@dataclass(frozen=True)
class ByWinnersParams(PoolingParams):
    """Parameters of a maximum's gradient by winners."""

    size: tuple[int, ...] = param(REQUIRED, "shape", "spatial size of the data")


@register
class _PoolingByWinners(Op):
    """What _pooling_backward makes of out_grad, from the winners in the place of data and output."""

    name = "_pooling_by_winners"
    Params = ByWinnersParams
    recompute = "cheap"

    def inputs(self, p: ByWinnersParams) -> tuple[str, ...]:
        return ("out_grad", "winners")

    def outputs(self, p: ByWinnersParams) -> tuple[str, ...]:
        return ("data_grad",)

    def infer_shape(self, p: ByWinnersParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        images = merge_shapes(outs[0], (None, None, *p.size))
        (images,), (pooled,) = get_op(Pooling.name).infer_shape(p, [images], [merge_shapes(*ins)])
        return [pooled, pooled], [images]

    def infer_dtype(self, p: ByWinnersParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        known = ins[0] or outs[0]
        return [known, UINT8], [known]

    def algorithms(self, p: ByWinnersParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm(workspace_bytes=Workspace.bytes_for(*self._arrays(ins[0], outs[0]))),)

    @staticmethod
    def _arrays(grad: Any, out: Any) -> list[tuple[Shape, Any]]:
        part = _chunk(out.shape, grad.shape, grad.dtype.itemsize)
        return [(part, np.bool_), (part, grad.dtype)]

    def cost(self, p: ByWinnersParams, ins: Types, outs: Types) -> Cost:
        return Cost(float(prod(p.kernel) * ins[0].size), sum(t.nbytes for t in ins), outs[0].nbytes)

    def sliced(self, p: ByWinnersParams, ins: Types, outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def compute(self, p: ByWinnersParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (grad, winners), (out,) = ins, outs
        windows = windows_of(p, out.shape[2:], grad.shape[2:])
        scratch = [work.array(shape, dtype) for shape, dtype in self._arrays(grad, out)]
        out.fill(0)
        for s in image_chunks(out):
            wins, terms = (array[:s.stop - s.start] for array in scratch)
            for place, (into, read) in zip(windows.places, windows.taps, strict=True):
                index, part = (ALL, ALL, *into), out[s][(ALL, ALL, *read)]
                win = np.equal(winners[s][index], place, out=wins[index])
                if windows.disjoint:
                    np.multiply(grad[s][index], win, out=part)
                else:
                    np.add(part, np.multiply(grad[s][index], win, out=terms[index]), out=part)

    def samples(self) -> Sequence[Sample]:
        two = {"kernel": (2, 2), "stride": (2, 2), "size": (5, 6)}
        padded = {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 1), "size": (6, 5)}
        return [Sample(params, (shape, shape), integer={"winners": prod(params["kernel"])}, differentiable=False)
                for params, shape in ((two, (2, 3, 2, 3)), (padded, (2, 2, 3, 6)))]

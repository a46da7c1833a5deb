"""split_v2: parts between given places, or equal ones."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, ShapeError, format_shape, numbered
from .params import REQUIRED, param
from .registry import register
from .shape import axis_in


@dataclass(frozen=True)
class SplitParams:
    """Parameters of split_v2."""

    indices: tuple[int, ...] = param(REQUIRED, "shape", "where each part begins, when there are no sections")
    axis: int = param(1, "int", "axis along which data is cut")
    squeeze_axis: bool = param(False, "bool", "drop the axis where parts have length 1")
    sections: int = param(0, "int", "number of equal parts, instead of indices")


@register
class Split(Op):
    """Parts of data along an axis: equal ones, or each from its index to the next one's; negative ones count from the
    end."""

    name = "_split_v2"
    Params = SplitParams

    def outputs(self, p: SplitParams) -> tuple[str, ...]:
        count = p.sections or len(p.indices)
        if count < 1:
            raise ShapeError(f"split_v2: sections {p.sections} and indices {p.indices} ask for no part")
        return numbered("output", count) if count > 1 else ("output",)

    def _bounds(self, p: SplitParams, length: int) -> list[tuple[int, int]]:
        """(begin, end) of each part of an axis of a length."""
        if p.sections:
            if length % p.sections:
                raise ShapeError(f"split_v2: an axis of length {length} cannot be cut into {p.sections} equal parts")
            size = length // p.sections
            return [(k * size, (k + 1) * size) for k in range(p.sections)]
        places = [*(min(i + length if i < 0 else i, length) for i in p.indices), length]
        if any(not 0 <= a < b for a, b in zip(places, places[1:], strict=False)):
            raise ShapeError(f"split_v2: indices {p.indices} of an axis of length {length} do not ascend within it; an "
                             f"empty part cannot be")
        return list(zip(places, places[1:], strict=False))

    def infer_shape(self, p: SplitParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = ins[0]
        if data is None:
            return ins, outs
        axis = axis_in(p.axis, len(data))
        length = data[axis]
        if length is None:
            return ins, outs
        found: list[PartialShape] = []
        for begin, end in self._bounds(p, length):
            if p.squeeze_axis and end - begin != 1:
                raise ShapeError(f"split_v2: squeeze_axis drops axis {axis} of {format_shape(data)}, of which a part "
                                 f"has length {end - begin}")
            found.append((*data[:axis], *(() if p.squeeze_axis else (end - begin,)), *data[axis + 1:]))
        return [data], found

    def expand(self, b: Builder, p: SplitParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        shape = b.shape(ins[0])
        axis = axis_in(p.axis, len(shape))
        parts = [only(b.node("slice_axis", ins, axis=axis, begin=begin, end=end))
                 for begin, end in self._bounds(p, shape[axis])]
        return [only(b.node("squeeze", [part], axis=(axis,))) for part in parts] if p.squeeze_axis else parts

    def samples(self) -> Sequence[Sample]:
        return [Sample({"indices": (0, 1, 3)}, ((2, 6),)), Sample({"indices": (), "sections": 2, "axis": 0}, ((4, 2),)),
                Sample({"indices": (), "sections": 3, "axis": -1, "squeeze_axis": True}, ((2, 3),)),
                Sample({"indices": (0, -1), "axis": 0}, ((3, 2),))]

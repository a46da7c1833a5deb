"""prelu and its gradients by the kernels of kernels/cpu/prelu.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import Algorithm
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, int64, native_for, pointer
from .layout import PLAIN, Layouts, alike
from .planes import Planes

DOUBLE = 8
"""Bytes of a sum."""
Operands = Sequence[Operand]


def _layouts(ins: Types, count: int) -> list[str]:
    """Layouts of data with channels, which the first `count` inputs share."""
    return list(alike(*ins[:count])) if len(ins[0].shape) > 1 else []


@native_for("_prelu")
class Prelu(NativeOp):
    """Plane by plane."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, PLAIN), (layout,)) for layout in _layouts(ins, 1)]

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        data, gamma = ins
        planes = Planes.of(data.shape, data.layout, columns=True).argument()
        return [NativeCall("prelu_forward", (*map(pointer, (data, gamma, outs[0])), planes, int64(gamma.size == 1)))]


@native_for("_prelu_backward_data")
class PreluBackwardData(NativeOp):
    """Plane by plane."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, layout, PLAIN), (layout,)) for layout in _layouts(ins, 2)]

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        planes = Planes.of(ins[1].shape, ins[1].layout, columns=True).argument()
        args = (*map(pointer, (*ins, outs[0])), planes, int64(ins[2].size == 1))
        return [NativeCall("prelu_backward_data", args)]


@native_for("_prelu_backward_gamma")
class PreluBackwardGamma(NativeOp):
    """Sums of planes, and their sums."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, layout, PLAIN), (PLAIN,)) for layout in _layouts(ins, 2)]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        planes = Planes.of(ins[1].shape, ins[1].layout, columns=True)
        return (Algorithm(f"{PREFIX}direct", DOUBLE * planes.lane_count, "native"),)

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        grad, data, _ = ins
        planes = Planes.of(data.shape, data.layout, columns=True).argument()
        args = (pointer(grad), pointer(data), pointer(outs[0]), address(work), planes, int64(outs[0].size == 1))
        return [NativeCall("prelu_backward_gamma", args)]

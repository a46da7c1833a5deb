"""InstanceNorm and L2Normalization by the kernels of kernels/cpu/instance_norm.cpp and l2_norm.cpp."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import Algorithm
from ....ops.instance_norm import norm_view
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, float64, int64, native_for, pointer
from .layout import BLOCKED, PLAIN, Layouts
from .planes import Planes

DOUBLE = 8
"""Bytes of a sum."""
Operands = Sequence[Operand]


@native_for("InstanceNorm")
class InstanceNorm(NativeOp):
    """Plane by plane, plain and blocked."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, PLAIN, PLAIN), (layout, PLAIN, PLAIN)) for layout in (BLOCKED, PLAIN)]

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        planes = Planes.of(ins[0].shape, ins[0].layout).argument()
        return [NativeCall("instance_norm_forward", (*map(pointer, (*ins, *outs)), planes, float64(p.eps)))]


@native_for("_instance_norm_backward")
class InstanceNormBackward(NativeOp):
    """Plane by plane, and sums over images."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, layout, PLAIN, PLAIN, PLAIN), (layout, PLAIN, PLAIN)) for layout in (BLOCKED, PLAIN)]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        images, channels, *_ = ins[1].shape
        return (Algorithm(f"{PREFIX}direct", 2 * DOUBLE * images * channels, "native"),)

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        planes = Planes.of(ins[1].shape, ins[1].layout).argument()
        return [NativeCall("instance_norm_backward", (*map(pointer, (*ins, *outs)), address(work), planes))]


class L2Op(NativeOp):
    """Base: plain operands."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return (Layouts.plain(len(ins), len(outs)),)


@native_for("L2Normalization")
class L2Normalization(L2Op):
    """The output and the norms."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        args = (*map(pointer, (*ins, *outs)), int64(*norm_view(p, ins[0].shape)), float64(p.eps))
        return [NativeCall("l2_normalization_forward", args)]


@native_for("_l2_normalization_backward")
class L2NormalizationBackward(L2Op):
    """The data's gradient."""

    def calls(self, p: Any, ins: Operands, outs: Operands, work: int, algorithm: str) -> Sequence[NativeCall]:
        args = (*map(pointer, (*ins, *outs)), int64(*norm_view(p, ins[0].shape)))
        return [NativeCall("l2_normalization_backward", args)]

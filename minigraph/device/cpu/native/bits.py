"""Bits of comparisons, and gradients by them, by the kernels of kernels/cpu/bits.cpp, in any layout."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base import TensorType
from ....ops.bits import bits_shape
from .call import NativeCall, NativeOp, Operand, Types, define, float32, int64, is_float32, pointer
from .layout import PLAIN, Layouts, alike

Constants = Callable[[Any], tuple[float, float]]


def _none(p: Any) -> tuple[float, float]:
    return 0.0, 0.0


def _suiting(tensor: TensorType, bits: TensorType) -> Iterator[str]:
    """The layouts of a tensor in which it has bits of such a shape."""
    return (layout for layout in alike(tensor) if bits_shape(tensor.shape, layout) == bits.shape)


@dataclass(frozen=True)
class Test(NativeOp):
    """A bit of each stored element; `constants` are the kernel's, of the op's parameters."""

    kernel: str
    constants: Constants = _none

    def takes(self, p: Any, ins: Types, outs: Types) -> bool:
        return is_float32(*ins) and outs[0].dtype == np.uint8

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout,), (PLAIN,)) for layout in _suiting(ins[0], outs[0])]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [NativeCall(self.kernel, (pointer(ins[0]), pointer(outs[0]), int64(ins[0].size),
                                         *map(float32, self.constants(p))))]


@dataclass(frozen=True)
class ByBits(NativeOp):
    """A gradient, scaled by the bit of each stored element."""

    kernel: str
    constants: Constants = _none

    def takes(self, p: Any, ins: Types, outs: Types) -> bool:
        return is_float32(ins[0], outs[0]) and ins[1].dtype == np.uint8

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return [Layouts((layout, PLAIN), (layout,)) for layout in _suiting(ins[0], ins[1])]

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        return [NativeCall(self.kernel, (*map(pointer, ins), pointer(outs[0]), int64(outs[0].size),
                                         *map(float32, self.constants(p))))]


define("_positive_bits", Test("positive_bits"))
define("_within_bits", Test("within_bits", lambda p: (p.a_min, p.a_max)))
define("_relu_backward_bits", ByBits("relu_backward_bits"))
define("_slope_bits", ByBits("slope_bits", lambda p: (p.slope, 0.0)))

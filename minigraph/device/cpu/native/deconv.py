"""Deconvolution: the data gradient of a convolution, with a bias; its own gradients are a convolution's."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import align
from ....ops.deconv import products
from .call import NativeCall, Operand, Types, native_for
from .conv import DirectConvolution, Geometry, geometry, pad_bias
from .conv_data import data_gradient, reaches_all
from .layout import BLOCKED, LANES, PLAIN, Layouts


@native_for("Deconvolution")
class Deconvolution(DirectConvolution):
    """From blocked data to a blocked output."""

    def geometry(self, p: Any, ins: Any, outs: Any) -> Geometry | None:
        """Of the convolution from the output to the data."""
        return geometry(products(p, ins[0].shape), outs[0].shape, ins[0].shape)

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        g = self.geometry(p, ins, outs)
        if g is None or not (p.no_bias or reaches_all(g)):  # a bias belongs to pixels that no tap reaches, too
            return ()
        return [Layouts((BLOCKED, *(PLAIN,) * (len(ins) - 1)), (BLOCKED,))]

    def workspace_floats(self, p: Any, g: Geometry) -> Sequence[int]:
        return g.packed(g.ins, g.outs), 0 if p.no_bias else g.groups * g.in_blocks * LANES

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        g = self.geometry(p, ins, outs)
        assert g is not None
        bias = 0 if p.no_bias else work + align(4 * g.packed(g.ins, g.outs))
        padded = [] if p.no_bias else [pad_bias(ins[2], bias)]
        return [*padded, *data_gradient(g, ins[0], ins[1], outs[0], work, bias)]

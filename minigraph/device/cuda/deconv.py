"""Deconvolution on a GPU: the data gradient of its convolution, and a bias; kernels/conv.cu and deconv.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, TensorType
from ...ops.deconv import products
from .conv import ConvolutionBackwardDataKernels
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32


@kernels_for("Deconvolution")
class DeconvolutionKernels(KernelOp):
    """The data gradient of the convolution from output to data, then the bias in place."""

    kernels = ConvolutionBackwardDataKernels()

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return self.kernels.algorithm(products(p, ins[0].shape), [*ins[:2], outs[0]], outs)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        require_float32("Deconvolution", (*ins, *outs))
        (out,) = outs
        launches = self.kernels.launches(products(p, ins[0].shape), [*ins[:2], out], outs, work)
        if p.no_bias or not out.size:
            return launches
        args = (pointer(out), pointer(ins[2]), int64(out.size), int64(prod(out.shape[2:])), int64(out.shape[1]))
        return [*launches, Launch("deconvolution_bias_inplace", flat_grid(out.size), (BLOCK, 1, 1), args)]

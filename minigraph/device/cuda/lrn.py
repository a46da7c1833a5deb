"""CUDA forms of LRN and its gradient; kernels/lrn.cu."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, Shape, TensorType, align
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single
from .pointwise import PER_THREAD

PIECE_BYTES = 16 << 20
"""Terms of the gradient that lie in workspace at a time, about: enough for a large GPU to be busy."""


def _piece_images(shape: Shape) -> int:
    """Images whose terms are in workspace together; a pieces begins at a multiple of 64 bytes."""
    images = max(1, PIECE_BYTES // max(4, 4 * prod(shape[1:])))
    return shape[0] if images >= shape[0] else max(16, images // 16 * 16)


def _sizes(p: Any, shape: Shape) -> tuple[tuple[str, Any], ...]:
    """The arguments channels, places and reach."""
    return int64(shape[1]), int64(prod(shape[2:])), int64(min(p.nsize // 2, shape[1]))


@kernels_for("LRN")
class Lrn(KernelOp):
    """The base of the power, then the output."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,), (out, norm) = ins, outs
        require_float32("LRN", [data, out, norm])
        if out.size == 0:
            return ()
        args = (pointer(data), pointer(norm), int64(out.size), *_sizes(p, data.shape), single(p.alpha / p.nsize),
                single(p.knorm))
        last = (pointer(data), pointer(norm), pointer(out), int64(out.size), single(p.beta))
        return (Launch("lrn_forward_norm", flat_grid(out.size), (BLOCK, 1, 1), args),
                Launch("lrn_forward_inplace", flat_grid(out.size, PER_THREAD), (BLOCK, 1, 1), last))


@kernels_for("_lrn_backward")
class LrnBackward(KernelOp):
    """The terms of some images, then their gradient, piece by piece."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        shape = outs[0].shape
        return Algorithm("pieces", align(4 * _piece_images(shape) * prod(shape[1:])))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_lrn_backward", [*ins, *outs])
        (out,) = outs
        if out.size == 0:
            return ()
        images, width = _piece_images(out.shape), prod(out.shape[1:])
        launches = []
        for first in range(0, out.shape[0], images):
            size = min(images, out.shape[0] - first) * width
            grad, data, norm, target = (address(t.address + 4 * first * width) for t in (*ins, out))
            terms = (grad, data, norm, address(work), int64(size), single(p.beta))
            rest = (grad, data, norm, address(work), target, int64(size), *_sizes(p, out.shape),
                    single(-2 * p.beta * p.alpha / p.nsize), single(p.beta))
            launches += [Launch("lrn_backward_terms", flat_grid(size, PER_THREAD), (BLOCK, 1, 1), terms),
                         Launch("lrn_backward_inplace", flat_grid(size), (BLOCK, 1, 1), rest)]
        return launches

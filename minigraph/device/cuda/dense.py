"""FullyConnected and its gradients on a GPU: the launches of kernels/dense.cu."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...base import Algorithm, TensorType
from ...ops.chunks import MAX_CHUNK
from .basic import copy
from .channels import THREADS as CHANNEL_THREADS
from .channels import Channels, partition_layout
from .gemm import Gemm, segment_length
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int32, int64, kernels_for, pointer
from .operands import ACTIVATIONS, require_float32

Operands = Sequence[Operand]
Types = Sequence[TensorType]
COMBINE = "fully_connected_combine"


class _Dense(KernelOp):
    """A matrix product: a subclass says of which sizes."""

    def gemm(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Gemm:
        """The product's sizes, from tensors that have a shape."""
        raise NotImplementedError

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return Algorithm("kernel", self.gemm(p, ins, outs).workspace_bytes)


def _row_count(shape: Sequence[int], width: int) -> int:
    """Rows of a tensor seen as rows of `width` elements."""
    return prod(shape) // width if width else shape[0]


@kernels_for("FullyConnected", "_fully_connected_activated")
class FullyConnectedKernels(_Dense):
    """Y = X Wᵀ + b, and perhaps an activation."""

    def gemm(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Gemm:
        features = ins[1].shape[1]
        rows = prod(outs[0].shape) // p.num_hidden
        return Gemm(rows, p.num_hidden, features, segment_length(features), prod(outs[0].shape))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("FullyConnected", (*ins, *outs))
        gemm = self.gemm(p, ins, outs)
        bias = 0 if p.no_bias else ins[2].address
        return gemm.launches("fully_connected_forward", COMBINE, (pointer(ins[0]), pointer(ins[1])), outs[0].address,
                             work, (int64(gemm.depth),), bias, (1, p.num_hidden),
                             ACTIVATIONS[getattr(p, "act_type", None)])


@kernels_for("_fully_connected_backward_data")
class FullyConnectedBackwardDataKernels(_Dense):
    """dX = dY W, added to another gradient where there is one."""

    def gemm(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Gemm:
        features, hidden = ins[1].shape[1], p.num_hidden
        rows = _row_count(ins[0].shape, hidden)
        return Gemm(rows, features, hidden, segment_length(hidden), prod(outs[0].shape))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_fully_connected_backward_data", (*ins, *outs))
        return [*(copy(ins[3], outs[0]) if p.addend else ()), *self.gemm(p, ins, outs).launches(
            "fully_connected_backward_data", COMBINE, (pointer(ins[0]), pointer(ins[1])), outs[0].address, work,
            (int64(p.num_hidden),), resume=p.addend)]


@kernels_for("_fully_connected_backward_weight", "_fully_connected_backward_weight_resume")
class FullyConnectedBackwardWeightKernels(_Dense):
    """dW = dYᵀ X, a canonical chunk of the batch a segment, on from a running sum or another gradient where there
    is one."""

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        return replace(super().algorithm(p, ins, outs), chunk_rows=MAX_CHUNK)

    def gemm(self, p: Any, ins: Sequence[Any], outs: Sequence[Any]) -> Gemm:
        grad = ins[0].shape
        rows = _row_count(grad, p.num_hidden)
        segment = MAX_CHUNK * max(1, rows // max(1, grad[0]))
        return Gemm(p.num_hidden, outs[0].shape[1], rows, segment, prod(outs[0].shape))

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_fully_connected_backward_weight", (*ins, *outs))
        gemm = self.gemm(p, ins, outs)
        resume = len(ins) > 3
        return [*(copy(ins[3], outs[0]) if resume else ()), *gemm.launches(
            "fully_connected_backward_weight", COMBINE, (pointer(ins[0]), pointer(ins[1])), outs[0].address, work,
            (int64(gemm.depth),), resume=resume)]


@kernels_for("_fully_connected_backward_bias", "_fully_connected_backward_bias_resume")
class FullyConnectedBackwardBiasKernels(KernelOp):
    """db = the column sums of dY, on from a running sum or another gradient where there is one."""

    @staticmethod
    def _channels(grad: Sequence[int]) -> Channels:
        return partition_layout(grad[0] if len(grad) > 1 else 1, prod(grad[1:-1]), grad[-1], 1)

    def algorithm(self, p: Any, ins: Types, outs: Types) -> Algorithm:
        c = self._channels(ins[0].shape)
        return Algorithm("kernel", c.partial_bytes(1), chunk_rows=c.images)

    def launches(self, p: Any, ins: Operands, outs: Operands, work: int) -> Sequence[Launch]:
        require_float32("_fully_connected_backward_bias", (*ins, *outs))
        if not outs[0].size:
            return []
        c = self._channels(ins[0].shape)
        begin = copy(ins[1], outs[0]) if len(ins) > 1 else ()
        total = Launch("fully_connected_backward_bias", flat_grid(c.channels), (BLOCK, 1, 1),
                       (address(work), pointer(outs[0]), c.argument(), int32(len(ins) > 1)))
        if not c.parts:
            return [*begin, total]
        return [*begin, Launch("fully_connected_backward_bias_partials", (c.blocks, 1, 1), (CHANNEL_THREADS, 1, 1),
                       (pointer(ins[0]), address(work), c.argument())), total]

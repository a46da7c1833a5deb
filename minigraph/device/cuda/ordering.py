"""CUDA forms of topk and its gradient; kernels/ordering.cu. The gradient leaves out an index out of range, for which
the CPU raises; with poison the program raises (checking.py)."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import Algorithm, MXNetError, Shape, TensorType, align
from ...ops.softmax import layout
from .basic import fill
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, float32, int64, kernels_for, pointer
from .operands import require_float32
from .rows import ids_arguments

INDEX_TYPES = ("float32", "float64", "int32", "int64", "uint8")
"""Dtypes in which topk writes indices."""


def _view(axis: int | None, shape: Shape) -> tuple[int, int, int]:
    """(rows, classes, inner): rows of a tensor (outer, classes, inner)."""
    outer, classes, inner = (1, prod(shape), 1) if axis is None else layout(shape, axis)
    return outer * inner, classes, inner


def _one(kernel: str, args: Sequence[tuple[str, Any]], n: int, *sizes: int) -> Launch:
    return Launch(kernel, flat_grid(n), (BLOCK, 1, 1), (*args, int64(n), *map(int64, sizes)))


@kernels_for("topk")
class Topk(KernelOp):
    """Rows merged in workspace until each is in order; their first k written."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        return Algorithm("merges", 4 * align(4 * ins[0].size))

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (data,) = ins
        require_float32("topk", [data, *(outs if p.ret_typ == "mask" else outs[:p.ret_typ != "indices"])])
        rows, classes, inner = _view(p.axis, data.shape)
        count = p.k if p.k > 0 else classes
        if not data.size:
            return ()
        launches, indices = self._sort(p, data, work)
        taken, sizes = rows * count, (count, classes, inner)
        if p.ret_typ == "mask":
            mask = (address(indices), pointer(outs[0]))
            return [*launches, *fill(outs[0], 0), _one("topk_forward_mask", mask, taken, *sizes)]
        if p.ret_typ != "indices":
            values = (pointer(data), address(indices), pointer(outs[0]))
            launches.append(_one("topk_forward_values", values, taken, *sizes))
        dtype = str(outs[-1].dtype)
        if dtype not in INDEX_TYPES:
            raise MXNetError(f"operator topk: its CUDA kernels write indices of {', '.join(INDEX_TYPES)}, got {dtype}; "
                             f"take one of them, or run this network on mx.cpu()")
        places = (address(indices), pointer(outs[-1]))
        return [*launches, _one(f"topk_forward_indices_{dtype}", places, taken, *sizes)]

    @staticmethod
    def _sort(p: Any, data: Operand, work: int) -> tuple[list[Launch], int]:
        """(launches, the address of the indices in order)."""
        rows, classes, inner = _view(p.axis, data.shape)
        if classes >= 2**31:
            raise MXNetError(f"operator topk: {classes} elements in a row; its CUDA kernels order fewer than 2^31")
        half = align(4 * data.size)
        here, there = ((work, work + half), (work + 2 * half, work + 3 * half))
        begin = (pointer(data), *map(address, here))
        first = _one("topk_forward_begin", begin, data.size, classes, inner)
        launches = [Launch(first.kernel, first.grid, first.block, (*first.args, float32(1 if p.is_ascend else -1)))]
        width = 1
        while width < classes:
            merge = (*map(address, here), *map(address, there))
            launches.append(_one("topk_forward_merge", merge, data.size, classes, width))
            here, there, width = there, here, 2 * width
        return launches, here[1]


@kernels_for("_topk_backward")
class TopkBackward(KernelOp):
    """grad at the place of each element that was taken, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, indices, _ = ins
        (out,) = outs
        require_float32("_topk_backward", [grad, out])
        rows, classes, inner = _view(p.axis, out.shape)
        if not out.size:
            return ()
        args = (pointer(grad), *ids_arguments("_topk_backward", indices), pointer(out))
        scatter = _one("topk_backward_scatter", args, grad.size, grad.size // rows, classes, inner)
        return [*fill(out, 0), *([scatter] if grad.size else [])]

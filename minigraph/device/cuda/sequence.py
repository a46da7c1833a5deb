"""CUDA forms of SequenceMask, SequenceReverse, SequenceLast and _arange; kernels/sequence.cu.

Where the CPU raises for a length out of range, or for a last element of none, a sequence has length 0 here, and its
last element is 0; with poison the program raises (checking.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base import MXNetError, Shape
from .basic import CAST_TYPES
from .launch import BLOCK, KernelOp, Launch, Operand, address, flat_grid, int32, int64, kernels_for, pointer
from .operands import require_float32, single
from .rows import ids_arguments


def _sequences(axis: int, shape: Shape) -> tuple[str, Any]:
    """The kernel argument `Sequences` of a tensor whose time axis is 0 or 1."""
    rest = prod(shape[2:])
    outer, inner = shape[1] * rest, rest
    time_step, batch_step = (outer, inner) if axis == 0 else (inner, outer)
    return "4q", (shape[axis], shape[1 - axis], time_step, batch_step)


def _lengths(name: str, operands: Sequence[Operand]) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The kernel arguments (lengths, kind); null where there are none."""
    return ids_arguments(name, operands[0]) if operands else (address(0), int32(0))


def _launch(kernel: str, args: Sequence[tuple[str, Any]], size: int) -> Sequence[Launch]:
    return (Launch(kernel, flat_grid(size), (BLOCK, 1, 1), tuple(args)),) if size else ()


@kernels_for("SequenceMask")
class SequenceMask(KernelOp):
    """data with a value past the end of each sequence."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, (out,) = ins[0], outs
        require_float32("SequenceMask", [data, out])
        args = (pointer(data), *_lengths("SequenceMask", ins[1:]), pointer(out), int64(out.size),
                _sequences(p.axis, data.shape), single(p.value))
        return _launch("sequence_mask_forward_float32", args, out.size)


@kernels_for("SequenceReverse")
class SequenceReverse(KernelOp):
    """Each sequence in reverse order."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, (out,) = ins[0], outs
        require_float32("SequenceReverse", [data, out])
        args = (pointer(data), *_lengths("SequenceReverse", ins[1:]), pointer(out), int64(out.size),
                _sequences(p.axis, data.shape))
        return _launch("sequence_reverse_forward_float32", args, out.size)


@kernels_for("SequenceLast")
class SequenceLast(KernelOp):
    """The last element of each sequence."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, (out,) = ins[0], outs
        require_float32("SequenceLast", [data, out])
        args = (pointer(data), *_lengths("SequenceLast", ins[1:]), pointer(out), int64(out.size),
                int64(prod(data.shape[2:])), _sequences(p.axis, data.shape))
        return _launch("sequence_last_forward_float32", args, out.size)


@kernels_for("_sequence_last_backward")
class SequenceLastBackward(KernelOp):
    """grad at the last element of each sequence, 0 elsewhere."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        grad, (out,) = ins[0], outs
        require_float32("_sequence_last_backward", [grad, out])
        args = (pointer(grad), *_lengths("_sequence_last_backward", ins[2:]), pointer(out), int64(out.size),
                int64(prod(out.shape[2:])), _sequences(p.axis, out.shape))
        return _launch("sequence_last_backward_float32", args, out.size)


@kernels_for("_arange")
class Arange(KernelOp):
    """Numbers in a row."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        (out,) = outs
        if str(out.dtype) not in CAST_TYPES:
            raise MXNetError(f"operator _arange: its CUDA kernels write {', '.join(CAST_TYPES)}, got {out.dtype}; take "
                             f"one of them, or run this network on mx.cpu()")
        start = 0.0 if p.stop is None else p.start
        args = (pointer(out), int64(out.size), ("d", float(start)), ("d", float(p.step)), int64(p.repeat))
        return _launch(f"arange_forward_{out.dtype}", args, out.size)

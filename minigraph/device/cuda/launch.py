"""How an operator becomes kernel launches: each op's entry says which kernels run, over which grid, on what.

An implementation is a subclass of `KernelOp` registered for an op's name. It is asked twice: for its workspace when the
program is planned, and for its launches when the plan is loaded. Nothing of it runs during a step.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...base import Algorithm, MXNetError, Shape, TensorType

BLOCK = 256
"""Threads of an elementwise block: enough to hide latency at any register count that these kernels reach."""
MAX_BLOCKS = 4096
"""Blocks of a grid-stride launch. Past this every SM of any GPU is full, and grid limits are far away."""
MAX_RANK = 8
"""Dimensions that kernels with general strides take."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in device memory; `address` is 0 for an input of which only the shape may be used."""

    address: int
    shape: Shape
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: `args` are (struct format, value or tuple of values) in the kernel's order of parameters."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[tuple[str, Any], ...]
    shared_bytes: int = 0


class KernelOp:
    """The CUDA form of one op."""

    def takes(self, p: Any) -> bool:
        """Whether there are kernels for these params."""
        return True

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        """The way that the launches compute the op, with its workspace bytes."""
        return Algorithm("kernel")

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        """The launches, in order, on one stream; `work` is the address of the workspace. Outputs without elements
        need none: an empty grid cannot be launched."""
        raise NotImplementedError


_KERNEL_OPS: dict[str, KernelOp] = {}


def kernels_for(*names: str) -> Callable[[type[KernelOp]], type[KernelOp]]:
    """Class decorator: the CUDA form of the ops of these names."""
    def register(cls: type[KernelOp]) -> type[KernelOp]:
        for name in names:
            if name in _KERNEL_OPS:
                raise MXNetError(f"operator {name} has two CUDA forms")
            _KERNEL_OPS[name] = cls()
        return cls
    return register


def kernel_op(name: str) -> KernelOp:
    """The CUDA form of an op; MXNetError when there is none."""
    found = _KERNEL_OPS.get(name)
    if found is None:
        raise MXNetError(f"operator {name} has no CUDA kernel; run this network on mx.cpu(), or register one")
    return found


def implemented() -> frozenset[str]:
    """Names of the ops with a CUDA form."""
    return frozenset(_KERNEL_OPS)


def pointer(operand: Operand) -> tuple[str, Any]:
    """A kernel argument: the tensor's address."""
    return "P", operand.address


def address(value: int) -> tuple[str, Any]:
    """A kernel argument: an address, for pieces of the workspace."""
    return "P", value


def int64(value: int) -> tuple[str, Any]:
    """A kernel argument: a 64-bit size or index."""
    return "q", int(value)


def int32(value: int) -> tuple[str, Any]:
    """A kernel argument: a small number or a switch."""
    return "i", int(value)


def float32(value: float) -> tuple[str, Any]:
    """A kernel argument: a float."""
    return "f", float(value)


def float64(value: float) -> tuple[str, Any]:
    """A kernel argument: a double."""
    return "d", float(value)


def dims(values: Sequence[int], fill: int = 1) -> tuple[str, Any]:
    """A kernel argument `Dims` (eight 64-bit numbers by value): sizes or strides, padded in front with `fill`."""
    if len(values) > MAX_RANK:
        raise MXNetError(f"CUDA kernels take tensors of at most {MAX_RANK} dimensions, got {tuple(values)}")
    return f"{MAX_RANK}q", (fill,) * (MAX_RANK - len(values)) + tuple(int(v) for v in values)


def flat_grid(elements: int, per_thread: int = 1) -> tuple[int, int, int]:
    """A one-dimensional grid-stride grid for a number of elements."""
    return max(1, min(-(-elements // (BLOCK * per_thread)), MAX_BLOCKS)), 1, 1

"""What the GPU's kernels ask of a plan. Nothing here needs a GPU, so plans can be made for one that is not there."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, TensorType
from ...ops.op import Op
from .families import import_families
from .launch import implemented, kernel_op

PAGE_BYTES = 2 << 20
"""The granularity of physical memory that CUDA maps, on every GPU so far (cuMemGetAllocationGranularity)."""


def algorithms(op: Op, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[Algorithm]:
    """The ways to compute an op, fastest first; MXNetError when there is no kernel for it."""
    import_families()
    return (kernel_op(op.name).algorithm(params, ins, outs),)


def fuses(before: str, name: str, params: Any) -> bool:
    """Whether an op that does what two did has kernels."""
    import_families()
    return name in implemented() and kernel_op(name).takes(params)

"""What the launches of many ops need to know about their operands: dtypes and numbers."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...base import MXNetError
from .launch import Operand

ACTIVATIONS = {None: 0, "relu": 1, "sigmoid": 2, "tanh": 3}
"""Numbers of the activations that kernels apply to their output themselves (common.h: Activation)."""
FLOAT32 = np.dtype(np.float32)


def require_float32(name: str, operands: Sequence[Operand]) -> None:
    """MXNetError unless every operand of operator `name` is float32."""
    for operand in operands:
        if operand.dtype != FLOAT32:
            raise MXNetError(
                f"operator {name}: its CUDA kernels take float32, got {operand.dtype} of shape "
                f"{operand.shape}; cast it (Cast with dtype='float32'), or run this network on mx.cpu()")


def single(value: float) -> tuple[str, float]:
    """A kernel argument: a float, of infinite value where float32 cannot hold it, as NumPy converts."""
    with np.errstate(over="ignore"):
        return "f", float(np.float32(value))

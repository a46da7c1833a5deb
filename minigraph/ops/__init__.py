"""The operators: one file a family, read by every stage through the members of `Op`."""
from __future__ import annotations

from . import (
    activation,
    basic,
    broadcast,
    conv,
    dense,
    elemwise,
    entropy,
    gelu,
    indexing,
    layer_norm,
    leaky,
    loss,
    norm,
    optimizer,
    pool,
    prelu,
    random,
    reduce,
    scalar,
    shape,
    slicing,
    softmax,
    unary,
)
from .op import Op, Sample, ShapeError, Workspace
from .registry import get_op, names, public_names, register

FAMILIES = (activation, basic, broadcast, conv, dense, elemwise, entropy, gelu, indexing, layer_norm, leaky,
            loss, norm, optimizer, pool, prelu, random, reduce, scalar, shape, slicing, softmax, unary)
"""The modules whose import fills the registry."""

__all__ = ["FAMILIES", "Op", "Sample", "ShapeError", "Workspace", "get_op", "names", "public_names",
           "register"]

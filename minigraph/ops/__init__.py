"""The operators: one file a family, read by every stage through the members of `Op`."""
from __future__ import annotations

from . import (
    activation,
    attention,
    basic,
    broadcast,
    broadcast_more,
    conv,
    deconv,
    dense,
    elemwise,
    entropy,
    expanding,
    gelu,
    indexing,
    instance_norm,
    layer_norm,
    leaky,
    loss,
    lrn,
    matmul,
    modulo,
    norm,
    norm_inference,
    norm_train,
    optimizer,
    optimizer_more,
    ordering,
    pad,
    pool,
    prelu,
    random,
    reduce,
    reduce_more,
    rnn,
    rounding,
    scalar,
    selecting,
    sequence,
    shape,
    shape_more,
    slicing,
    softmax,
    spatial,
    svm,
    transcendental,
    transfer,
    unary,
)
from .op import Op, Sample, ShapeError, Workspace
from .registry import get_op, names, public_names, register

FAMILIES = (activation, attention, basic, broadcast, broadcast_more, conv, deconv, dense, elemwise, entropy,
            expanding, gelu, indexing, instance_norm, layer_norm, leaky, loss, lrn, matmul, modulo, norm,
            norm_inference, norm_train, optimizer, optimizer_more, ordering, pad, pool, prelu, random, reduce,
            reduce_more, rnn, rounding, scalar, selecting, sequence, shape, shape_more, slicing, softmax, spatial,
            svm, transcendental, transfer, unary)
"""The modules whose import fills the registry."""

__all__ = ["FAMILIES", "Op", "Sample", "ShapeError", "Workspace", "get_op", "names", "public_names",
           "register"]

"""Copies, constants, casts, gradient stops and the sums that the graph builder adds."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, Shape, TensorType, dtype_of
from .elemwise import Sum, only
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .params import REQUIRED, param
from .pointwise import BLOCK, Found, Unary, blocks
from .registry import register


@register
class Copy(Unary):
    """A copy of data in bytes of its own."""

    name = "_copy"
    aliases = ("identity",)

    def apply(self, p: Any, data: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, data)

    def backward(self, b: Builder, p: Any, data: Entry, out: Entry, grad: Entry) -> Entry:
        return grad


@register
class IdentityLike(Op):
    """lhs, whose shape and dtype are those of rhs: inference learns each from the other."""

    name = "_identity_with_attr_like_rhs"
    recompute = "cheap"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("lhs", "rhs")

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return [ins[0]]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3), (2, 3)))]


@register
class BlockGrad(Unary):
    """data, through which no gradient passes back; as a head it needs no head gradient."""

    name = "BlockGrad"
    aliases = ("stop_gradient",)
    smooth = False

    def is_loss(self, p: Any) -> bool:
        return True

    def apply(self, p: Any, data: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, data)


@dataclass(frozen=True)
class MakeLossParams:
    """Parameters of MakeLoss."""

    grad_scale: float = param(1.0, "float", "the gradient")
    valid_thresh: float = param(0.0, "float", "an element counts as valid when it is above this")
    normalization: str = param("null", "str", "what the gradient is divided by", ("null", "batch", "valid"))


@register
class MakeLoss(Unary):
    """data as a loss: its gradient is grad_scale / n everywhere, whatever comes from above.

    n is 1 (null), the batch size (batch), or the number of elements above valid_thresh, at least 1 (valid).
    """

    name = "MakeLoss"
    aliases = ("make_loss",)
    Params = MakeLossParams
    smooth = False

    def is_loss(self, p: MakeLossParams) -> bool:
        return True

    def averages(self, p: MakeLossParams, ins: Sequence[Shape]) -> bool:
        return p.normalization != "null"

    def apply(self, p: MakeLossParams, data: np.ndarray, out: np.ndarray) -> None:
        np.copyto(out, data)

    def gradient(self, b: Builder, p: MakeLossParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [only(b.node("_make_loss_backward", [outs[0]], **vars(p))) if wanted[0] else None]


@register
class MakeLossBackward(Op):
    """grad_scale / n in the shape of data, which is read only to count its valid elements."""

    name = "_make_loss_backward"
    Params = MakeLossParams
    recompute = "cheap"

    def outputs(self, p: MakeLossParams) -> tuple[str, ...]:
        return ("data_grad",)

    def unread(self, p: MakeLossParams) -> tuple[int, ...]:
        return () if p.normalization == "valid" else (0,)

    def inplace(self, p: MakeLossParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),) if p.normalization == "valid" else ()

    def algorithms(self, p: MakeLossParams, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        count = p.normalization == "valid"
        return (Algorithm("blocks", Workspace.bytes_for(((min(ins[0].size, BLOCK),), bool)) if count else 0),)

    def compute(self, p: MakeLossParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        divisor = 1
        if p.normalization == "batch":
            divisor = max(ins[0].shape[0], 1)
        elif p.normalization == "valid":
            divisor = max(_count_above(ins[0], p.valid_thresh, work), 1)
        outs[0].fill(p.grad_scale / divisor)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"normalization": n, "grad_scale": 2.0}, ((3, 4),), differentiable=False)
                for n in ("null", "batch", "valid")]


def _count_above(data: np.ndarray, threshold: float, work: Workspace) -> int:
    scratch = work.array((min(data.size, BLOCK),), bool)
    count = 0
    for (block,) in blocks(data):
        count += int(np.count_nonzero(np.greater(block, threshold, out=scratch[:block.size])))
    return count


class Filled(Op):
    """Base of ops that fill a tensor of another one's shape with a constant; no gradient."""

    recompute = "cheap"
    value: ClassVar[float]

    def unread(self, p: Any) -> tuple[int, ...]:
        return (0,)

    def sliced(self, p: Any, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(self.value)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3),), differentiable=False)]


@register
class ZerosLike(Filled):
    """Zeros in the shape and dtype of data."""

    name, value = "zeros_like", 0.0


@register
class OnesLike(Filled):
    """Ones in the shape and dtype of data."""

    name, value = "ones_like", 1.0


def known_dims(shape: Sequence[int]) -> PartialShape:
    """A shape parameter as a partial shape: 0 or -1 means unknown, and () says nothing at all."""
    return tuple(None if d in (0, -1) else d for d in shape) if shape else None


@dataclass(frozen=True)
class ConstantParams:
    """Parameters of a constant tensor."""

    shape: tuple[int, ...] = param((), "shape", "shape; 0 leaves a dimension to inference")
    ctx: str = param("", "str", "accepted and not used: a graph lies on one device")
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype")


@dataclass(frozen=True)
class FullParams(ConstantParams):
    """Parameters of a constant tensor of any value."""

    value: float = param(REQUIRED, "float", "value of every element")


class Constant(Op):
    """Base of ops without inputs that fill a tensor with a constant."""

    Params: ClassVar[type] = ConstantParams
    recompute = "cheap"
    value: ClassVar[float] = 0.0

    def inputs(self, p: ConstantParams) -> tuple[str, ...]:
        return ()

    def infer_shape(self, p: ConstantParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        return [], [merge_shapes(known_dims(p.shape), outs[0])]

    def infer_dtype(self, p: ConstantParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [], [dtype_of(p.dtype)]

    def completed(self, p: ConstantParams, outs: Sequence[tuple[int, ...]]) -> ConstantParams:
        return replace(p, shape=outs[0])

    def compute(self, p: ConstantParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(self.value)

    def gradient(self, b: Builder, p: ConstantParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return []

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (2, 3)}, (), differentiable=False)]


@register
class Zeros(Constant):
    """Zeros of a given shape."""

    name, value = "_zeros", 0.0


@register
class Ones(Constant):
    """Ones of a given shape."""

    name, value = "_ones", 1.0


@register
class Full(Constant):
    """One value in a given shape."""

    name = "_full"
    Params = FullParams

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(p.value)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"shape": (2, 3), "value": 1.5}, (), differentiable=False)]


@dataclass(frozen=True)
class CastParams:
    """Parameters of Cast."""

    dtype: np.dtype = param(REQUIRED, "dtype", "dtype of the output")


@register
class Cast(Op):
    """data in another dtype, as C converts: a float becomes an integer by truncation."""

    name = "Cast"
    aliases = ("cast",)
    Params = CastParams
    recompute = "cheap"

    def infer_dtype(self, p: CastParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return list(ins), [p.dtype]

    def sliced(self, p: CastParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def compute(self, p: CastParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0], casting="unsafe")

    def gradient(self, b: Builder, p: CastParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return [only(b.node("Cast", [grads[0]], dtype=b.dtype(ins[0])))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"dtype": t}, ((2, 3),), differentiable=False)
                for t in ("float32", "float64", "int32")]


@register
class Accumulate(Sum):
    """lhs + rhs: how the graph builder sums the gradients that reach one tensor."""

    name = "_accumulate"


class Overwrite(Op):
    """Base of ops that write new contents into the bytes of `old`, a persistent tensor."""

    recompute = "never"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("old", "value")

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3), (2, 3)), differentiable=False)]


@register
class Assign(Overwrite):
    """value written over old, which is not read."""

    name = "_assign"

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((1, 0),)

    def unread(self, p: Any) -> tuple[int, ...]:
        return (0,)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[1])


@register
class GradAdd(Overwrite):
    """old + value written over old: a gradient whose request is "add"."""

    name = "_grad_add"

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.add(ins[0], ins[1], out=outs[0])

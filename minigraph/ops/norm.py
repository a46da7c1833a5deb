"""Batch normalisation: a pure normalisation and its gradients, and the update of the moving statistics.

Statistics are merged from those of parts of the batch, in one pass over the data; norm_sliced.py does so by slices.
The normalisation may add a tensor and apply an activation in the same pass.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, MXNetError, Shape, TensorType
from .activation import FOLLOWING, activation_of
from .channels import Epilogue, channel_layout, infer_channels, part_scratch, statistics_scratch
from .elemwise import is_sum, only
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes
from .params import param
from .registry import register

Types = Sequence[TensorType]


@dataclass(frozen=True)
class BatchNormParams:
    """Parameters of BatchNorm, and of the ops that it expands to."""

    eps: float = param(1e-3, "float", "added to the variance")
    momentum: float = param(0.9, "float", "share of the old value that a moving statistic keeps")
    fix_gamma: bool = param(True, "bool", "whether gamma is held at 1")
    use_global_stats: bool = param(False, "bool", "whether training normalises by the moving statistics too")
    output_mean_var: bool = param(False, "bool", "whether mean and 1 / sqrt(var + eps) are visible outputs")
    axis: int = param(1, "int", "the channel axis")


@dataclass(frozen=True)
class NormaliseParams(BatchNormParams):
    """Parameters of the ops that BatchNorm expands to: what follows the normalisation in the same pass."""

    act_type: str | None = param(None, "str", "activation of the output", FOLLOWING)
    addend: bool = param(False, "bool", "whether a tensor is added before the activation")


def scale_of(p: BatchNormParams, gamma: np.ndarray, var: np.ndarray) -> np.ndarray:
    """gamma / sqrt(var + eps), in float64."""
    inverse = 1 / np.sqrt(var.astype(np.float64) + p.eps)
    return inverse if p.fix_gamma else gamma * inverse


class BatchNormOp(Op):
    """What the ops of batch normalisation share."""

    Params: ClassVar[type] = NormaliseParams
    recompute = "cheap"
    tensors: ClassVar[tuple[str, ...]] = ("data", "addend", "output", "out_grad", "data_grad", "addend_grad", "out")
    """Names of inputs and outputs that have the shape of data; all others hold one value a channel."""
    vectors: ClassVar[tuple[str, ...]] = ()
    """Names of the inputs that hold one value a channel."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", *self.vectors)

    def infer_shape(self, p, ins, outs):
        wide = [[name in self.tensors for name in names] for names in (self.inputs(p), self.outputs(p))]
        pairs = [pair for flags, shapes in zip(wide, (ins, outs), strict=True)
                 for pair in zip(flags, shapes, strict=True)]
        data, vector = infer_channels(p.axis, merge_shapes(*(shape for flag, shape in pairs if flag)),
                                      [shape for flag, shape in pairs if not flag])
        completed = [[data if flag else vector for flag in flags] for flags in wide]
        return completed[0], completed[1]

    def read_again(self, p: Any) -> tuple[str, ...]:
        """Names of the inputs and outputs that a second pass over the batch reads, after one for the statistics."""
        return ()

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        read = sum(t.nbytes for i, t in enumerate(ins) if i not in self.unread(p))
        again = self.read_again(p)
        if again:
            types = dict(zip((*self.inputs(p), *self.outputs(p)), (*ins, *outs), strict=True))
            read += sum(types[name].nbytes for name in again)
        return Cost(8.0 * ins[0].size, read, sum(t.nbytes for t in outs))


@register
class BatchNorm(BatchNormOp):
    """Normalise each channel by the biased statistics of the batch, or of the past in evaluation.

    output = gamma (data - mean) / sqrt(var + eps) + beta; moving = momentum moving + (1 - momentum) batch,
    once a training forward. With fix_gamma, gamma acts as 1, is overwritten with 1, and gets no gradient. The output
    named var, which output_mean_var shows, is 1 / sqrt(var + eps), as in MXNet.
    """

    name = "BatchNorm"
    aliases: ClassVar[tuple[str, ...]] = ("CuDNNBatchNorm", "BatchNorm_v1")
    Params = BatchNormParams
    vectors = ("gamma", "beta", "moving_mean", "moving_var")

    def aux(self, p: Any) -> tuple[str, ...]:
        return ("moving_mean", "moving_var")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output", "mean", "var")

    def visible_outputs(self, p: BatchNormParams) -> int:
        return 3 if p.output_mean_var else 1

    def variable_attrs(self, p: Any) -> dict[str, dict[str, str]]:
        return {"moving_mean": {"__init__": '["zero", {}]'}, "moving_var": {"__init__": '["one", {}]'}}

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        data, gamma, beta, moving_mean, moving_var = ins
        if p.fix_gamma:
            gamma, = b.node("_fill_ones", [gamma])
        if not train or p.use_global_stats:
            out, = b.node("_batchnorm_inference", [data, gamma, beta, moving_mean, moving_var], **vars(p))
            return out, moving_mean, self._shown(b, p, moving_var)
        out, mean, var, _ = b.node("_batchnorm_train", [data, gamma, beta], **vars(p))
        b.node("_batchnorm_update_moving", [moving_mean, moving_var, mean, var, data], **vars(p))
        return out, mean, self._shown(b, p, var)

    def _shown(self, b: Builder, p: Any, var: Entry) -> Entry:
        """The third output, of the variance that the normalisation is by."""
        if not p.output_mean_var:
            return var
        return only(b.node("rsqrt", b.node("_plus_scalar", [var], scalar=p.eps)))

    def samples(self) -> Sequence[Sample]:
        cases: list[tuple[dict[str, Any], Shape]] = [
            ({"fix_gamma": False}, (3, 2, 4, 5)), ({"fix_gamma": True, "eps": 2e-5}, (2, 3, 3, 3)),
            ({"fix_gamma": False, "axis": -1}, (4, 3, 2)), ({"fix_gamma": False}, (5, 3)),
            ({"fix_gamma": False, "use_global_stats": True}, (2, 3, 6, 6)),
            ({"fix_gamma": False, "axis": 2}, (2, 3, 4, 5))]
        return [Sample(p, (s, *(((s[p.get("axis", 1)],),) * 4)), low=0.5, high=2.0) for p, s in cases]


@register
class _FillOnes(Op):
    """Overwrite a tensor with ones: what holds gamma at 1."""

    name = "_fill_ones"
    recompute = "never"
    idempotent = True

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        return [None]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        outs[0].fill(1)

    def samples(self) -> Sequence[Sample]:
        return (Sample({}, ((3,),), differentiable=False),)


def refuse_statistics_gradient(name: str, grads: Sequence[Entry | None]) -> None:
    """Raise when a gradient arrives at the outputs after the first, the statistics."""
    if any(grad is not None for grad in grads[1:]):
        raise MXNetError(f"{name} has no gradient by way of its statistics outputs; block them by BlockGrad")


@register
class _BatchNormUpdateMoving(BatchNormOp):
    """Move the statistics towards those of the batch; an empty batch leaves them as they are."""

    name = "_batchnorm_update_moving"
    has_stages = True
    recompute = "never"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("moving_mean", "moving_var", "mean", "var", "data")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("moving_mean", "moving_var")

    def infer_shape(self, p, ins, outs):
        data, vector = infer_channels(p.axis, ins[4], [*ins[:4], *outs])
        return [vector] * 4 + [data], [vector] * 2

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 1))

    def unread(self, p: Any) -> tuple[int, ...]:
        return (4,)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        return [None] * 5

    def stages(self, b: Builder, p: Any, ins: Sequence[Entry]) -> Sequence[Entry]:
        """The same, asking a vector instead of data whether the batch is empty: it is not where it has slices."""
        return b.node(self.name, [*ins[:4], ins[2]], **{**vars(p), "axis": 0})

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        keep = p.momentum if ins[4].size else 1.0
        for moving, batch, out in zip(ins[:2], ins[2:4], outs, strict=True):
            np.multiply(moving, keep, out=out)
            out += (1 - keep) * batch


def sliced_by_channels(op: BatchNormOp, p: Any, ins: Types, outs: Types) -> Sliced | None:
    """Slices of the tensors that have the shape of data; vectors are read whole. None where channels are on axis 0."""
    if not p.axis % len(ins[0].shape):
        return None
    return Sliced.every(ins, outs, whole=[k for k, name in enumerate(op.inputs(p)) if name not in op.tensors])


class StatisticsOp(BatchNormOp):
    """An op that takes statistics, and so needs their scratch."""

    tensor = 0

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        scratch = statistics_scratch(p.axis, ins[self.tensor])
        return (Algorithm(workspace_bytes=Workspace.bytes_for(*scratch)),)


class Normalisation(BatchNormOp):
    """Base of the ops whose output 0 is the normalised data, plus an addend, under an activation."""

    addend_at: ClassVar[int]
    """Place of the addend among the inputs."""

    def inputs(self, p: NormaliseParams) -> tuple[str, ...]:
        names = ("data", *self.vectors)
        return (*names[:self.addend_at], "addend", *names[self.addend_at:]) if p.addend else names

    def unread(self, p: NormaliseParams) -> tuple[int, ...]:
        return (1,) if p.fix_gamma else ()

    def inplace(self, p: NormaliseParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (self.addend_at, 0)) if p.addend else ((0, 0),)

    def absorb(self, p: NormaliseParams, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        kind = activation_of(consumer, q)
        if p.act_type is None and kind in FOLLOWING:
            return self.name, replace(p, act_type=kind)
        if p.act_type is None and not p.addend and is_sum(consumer):
            return self.name, replace(p, addend=True)
        return None

    def scratch(self, p: NormaliseParams, data: Any) -> list[tuple[Shape, Any]]:
        """Scratch of what follows the normalisation."""
        return [part_scratch(channel_layout(p.axis, data.shape), data.dtype)] if p.addend else []

    def epilogue(self, p: NormaliseParams, ins: Arrays, scratch: Sequence[np.ndarray]) -> Epilogue:
        """What follows the normalisation, with `scratch` for one part where there is an addend."""
        if not p.addend:
            return Epilogue(p.act_type)
        return Epilogue(p.act_type, ins[self.addend_at].reshape(channel_layout(p.axis, ins[0].shape)), scratch[0])

    def take(self, p: NormaliseParams, data: np.ndarray, work: Workspace) -> list[np.ndarray]:
        """The arrays of `scratch`."""
        return [work.array(*array) for array in self.scratch(p, data)]

    def algorithms(self, p: NormaliseParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm(workspace_bytes=Workspace.bytes_for(*self.scratch(p, ins[0]))),)

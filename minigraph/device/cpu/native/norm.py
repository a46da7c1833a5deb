"""Batch normalisation by the kernels of kernels/cpu/norm.cpp, plain and blocked."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import Algorithm, align
from ....ops.channels import Statistics
from ....ops.norm import BatchNormOp, NormaliseParams
from ....ops.norm_sliced import Summing
from ....ops.norm_train import sign_from_data
from ....ops.registry import get_op
from .activation import FUSED, keeps_zero
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, float32, float64, int64, native_for, pointer
from .channels import ChannelShape, channel_layouts, channel_shape
from .layout import Layouts

Operands = Sequence[Operand]
MOMENTS, PRODUCTS = 3, 2
"""Doubles a channel of a segment: pivot, sum and squares; sum and products."""
NULL = address(0)


class NormOp(NativeOp):
    """Base: tensors in the layout of the data, vectors plain. The workspace is `sums` rows of doubles of each segment
    with two of the whole after them, and `vectors` float vectors."""

    name: str
    tensor = 0
    """Place of the input that has the data's shape and is read."""
    sums = 0
    vectors = 3

    def layouts(self, p: NormaliseParams, ins: Types, outs: Types) -> Sequence[Layouts]:
        op = get_op(self.name)
        assert isinstance(op, BatchNormOp | Summing)
        if not ChannelShape.of(p.axis, ins[self.tensor].shape, "").pixels:  # the kernels divide by them
            return []
        of_ins, of_outs = ([name in op.tensors for name in names] for names in (op.inputs(p), op.outputs(p)))
        return [Layouts(tuple(layout if wide else "" for wide in of_ins),
                        tuple(layout if wide else "" for wide in of_outs))
                for layout in channel_layouts(p.axis, ins[self.tensor].shape, keeps_zero(self.act_type(p)))]

    def act_type(self, p: Any) -> str | None:
        """The activation of what is written."""
        return p.act_type

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        data = ins[self.tensor]
        shape = ChannelShape.of(p.axis, data.shape, data.layout)
        nbytes = self._sums_bytes(shape) + 4 * self.vectors * shape.padded
        rows = Statistics.rows(p.axis, data) if self.sums else 1
        return (Algorithm(f"{PREFIX}direct", nbytes, "native", chunk_rows=rows),)

    def _sums_bytes(self, shape: ChannelShape) -> int:
        return self._segments_bytes(shape) + align(8 * 2 * shape.channels * (self.sums > 0))

    def _segments_bytes(self, shape: ChannelShape) -> int:
        return align(8 * self.sums * shape.segments * shape.padded)

    def totals(self, shape: ChannelShape, work: int) -> int:
        """Address of the sums of the whole, after those of segments."""
        return work + self._segments_bytes(shape)

    def line(self, shape: ChannelShape, work: int) -> int:
        """Address of the vectors, after the sums."""
        return work + self._sums_bytes(shape)


def line_of(p: NormaliseParams, gamma: Operand | None, var: Operand, line: int, beta: Operand | None = None,
            mean: Operand | None = None, rest: Operand | None = None) -> NativeCall:
    """The call that makes mean, scale and shift of each channel; what is not given is zero."""
    args = (or_null(held(p, gamma)), or_null(beta), or_null(mean), pointer(var), or_null(rest),
            address(line), int64(var.size), float64(p.eps))
    return NativeCall("batchnorm_line", args)


def held(p: NormaliseParams, gamma: Operand | None) -> Operand | None:
    """gamma, unless it acts as one."""
    return None if p.fix_gamma else gamma


def or_null(operand: Operand | None) -> tuple[str, Any]:
    """The address of an operand, or that of nothing."""
    return NULL if operand is None else pointer(operand)


def normalise(p: NormaliseParams, data: Operand, line: int, addend: Operand | None, out: Operand,
              act_type: str | None) -> NativeCall:
    """The call that writes the normalised tensor by the vectors at `line`."""
    args = (pointer(data), address(line), or_null(addend), pointer(out), channel_shape(p.axis, data).argument(),
            int64(FUSED[act_type]))
    return NativeCall("batchnorm_normalise", args)


def applied(p: NormaliseParams, data: Operand, vectors: Operands, addend: Operands, out: Operand,
            line: int) -> list[NativeCall]:
    """The normalised tensor, plus an addend if there is one, by `vectors`: gamma, beta, mean, variance and, where the
    statistics are of this batch, what rounding took from the mean."""
    gamma, beta, mean, var, *rest = vectors
    return [line_of(p, gamma, var, line, beta, mean, rest[0] if rest else None),
            normalise(p, data, line, addend[0] if p.addend else None, out, p.act_type)]


def moments_of(data: Operand, shape: ChannelShape, work: int, totals: int, running: int = 0,
               before: int = 0) -> list[NativeCall]:
    """Moments of the segments at `work`, and from them those of the tensor, with `running` ones of `before` pixels."""
    return [NativeCall("batchnorm_moments", (pointer(data), address(work), shape.argument())),
            NativeCall("batchnorm_combine_moments", (address(work), address(running), address(totals),
                                                     shape.argument(), int64(before)))]


def statistics(moments: int, outs: Operands, count: int) -> NativeCall:
    """Mean, variance and what rounding took from the mean, of `count` elements a channel."""
    return NativeCall("batchnorm_statistics", (address(moments), *map(pointer, outs),
                                               int64(outs[0].size, max(1, count))))


@native_for("_batchnorm_train")
class BatchNormTrain(NormOp):
    """Moments of the segments, statistics of the channels, and the normalised tensor."""

    name = "_batchnorm_train"
    sums = MOMENTS

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        data, gamma, beta, *addend = ins
        shape = channel_shape(p.axis, data)
        moments, line = self.totals(shape, work), self.line(shape, work)
        return [*moments_of(data, shape, work, moments), statistics(moments, outs[1:], shape.count),
                *applied(p, data, (gamma, beta, *outs[1:]), addend, outs[0], line)]


@native_for("_batchnorm_apply")
class BatchNormApply(NormOp):
    """The normalised tensor by statistics that were made before."""

    name = "_batchnorm_apply"

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        data, gamma, beta, *addend, mean, var, rest = ins
        return applied(p, data, (gamma, beta, mean, var, rest), addend, outs[0], work)


@native_for("_batchnorm_inference")
class BatchNormInference(NormOp):
    """The normalised tensor by the moving statistics."""

    name = "_batchnorm_inference"

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        data, gamma, beta, mean, var, *addend = ins
        return applied(p, data, (gamma, beta, mean, var), addend, outs[0], work)


@native_for("_batchnorm_inference_backward_data")
class BatchNormInferenceBackwardData(NormOp):
    """The output gradient, scaled."""

    name = "_batchnorm_inference_backward_data"

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        grad, gamma, var = ins
        return [line_of(p, gamma, var, work), normalise(p, grad, work, None, outs[0], None)]


def sums_of(shape: ChannelShape, grad: Operand, data: Operand, out: Operand | None, sloped: Operand | None, line: int,
            work: int, act_type: str | None, totals: int, running: int = 0) -> list[NativeCall]:
    """Sums of the segments at `work`, and from them those of the tensor, with `running` ones."""
    args = (pointer(grad), pointer(data), or_null(out), address(line), or_null(sloped), address(work),
            shape.argument(), int64(FUSED[act_type]))
    combined = (address(work), address(running), address(totals), shape.argument(), int64(0))
    return [NativeCall("batchnorm_sums", args), NativeCall("batchnorm_combine_sums", combined)]


def slopes_of(eps: float, sums: int, gamma: Operand | None, var: Operand, grads: Operands, slopes: int,
              count: int) -> NativeCall:
    """Gradients of gamma and beta where those are wanted, and the vectors of the data gradient where `slopes` is an
    address; gamma is one where it is not given."""
    args = (address(sums), or_null(gamma), pointer(var),
            *(map(pointer, grads) if grads else (NULL, NULL)), address(slopes), int64(var.size, max(1, count)),
            float64(eps))
    return NativeCall("batchnorm_slopes", args)


def gradient(shape: ChannelShape, grad: Operand, data: Operand, out: Operand | None, line: int, slopes: int,
             data_grad: Operand, act_type: str | None) -> NativeCall:
    """The data gradient."""
    args = (pointer(grad), pointer(data), or_null(out), address(line), address(slopes), pointer(data_grad),
            shape.argument(), int64(FUSED[act_type]))
    return NativeCall("batchnorm_gradient", args)


def slope_operands(p: NormaliseParams, saved: Operands) -> tuple[Operand | None, Operand | None, Operand | None]:
    """What the activation's slope is found from: (beta, rest, None) or (None, None, output)."""
    if p.act_type is None:
        return None, None, None
    return (saved[0], saved[1], None) if sign_from_data(p) else (None, None, saved[0])


@native_for("_batchnorm_backward")
class BatchNormBackward(NormOp):
    """Sums of the segments, gradients of the vectors, and the data gradient.

    Only where the gradient by an addend is wanted is the output gradient times the activation's slope stored; the
    second pass makes it again else.
    """

    name = "_batchnorm_backward"
    tensor = 1
    sums = PRODUCTS
    vectors = 5

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        (grad, data, gamma, mean, var, *saved), (data_grad, gamma_grad, beta_grad, *sloped) = ins, outs
        shape = channel_shape(p.axis, data)
        line = self.line(shape, work)
        slopes, totals = line + 4 * 3 * shape.padded, self.totals(shape, work)
        beta, rest, out = slope_operands(p, saved)
        second = (sloped[0], None, None) if sloped else (grad, out, p.act_type)
        return [line_of(p, gamma, var, line, beta, mean, rest),
                *sums_of(shape, grad, data, out, sloped[0] if sloped else None, line, work, p.act_type, totals),
                slopes_of(p.eps, totals, held(p, gamma), var, (gamma_grad, beta_grad), slopes, shape.count),
                gradient(shape, second[0], data, second[1], line, slopes, data_grad, second[2])]


@native_for("_batchnorm_inference_backward_params")
class BatchNormInferenceBackwardParams(NormOp):
    """Sums of the segments, and gradients of the vectors."""

    name = "_batchnorm_inference_backward_params"
    sums = PRODUCTS

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        (grad, data, mean, var), (gamma_grad, beta_grad) = ins, outs
        shape = channel_shape(p.axis, grad)
        line = self.line(shape, work)
        totals = self.totals(shape, work)
        if p.fix_gamma:
            args = address(totals), pointer(beta_grad), pointer(gamma_grad), int64(shape.channels)
            return [*sums_of(shape, grad, grad, None, None, 0, work, None, totals),
                    NativeCall("batchnorm_totals", args)]
        return [line_of(p, None, var, line, None, mean),
                *sums_of(shape, grad, data, None, None, line, work, None, totals),
                slopes_of(p.eps, totals, None, var, (gamma_grad, beta_grad), 0, shape.count)]


@native_for("_batchnorm_update_moving")
class BatchNormUpdateMoving(NormOp):
    """The moving statistics move towards those of the batch; of the data only the shape is used."""

    name = "_batchnorm_update_moving"
    tensor = 4
    vectors = 0

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        moving_mean, moving_var, mean, var, data = ins
        keep = p.momentum if data.size else 1.0
        args = (pointer(mean), pointer(var), pointer(moving_mean), pointer(moving_var), int64(mean.size),
                float32(keep), float32(1 - keep))
        return [NativeCall("batchnorm_moving", args)]

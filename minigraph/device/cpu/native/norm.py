"""Batch normalisation by the kernels of kernels/cpu/norm.cpp, plain and blocked."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import Algorithm, align
from ....ops.channels import Statistics
from ....ops.norm import BatchNormOp, NormaliseParams
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
    """Base: tensors in the layout of the data, vectors plain; `vectors` float vectors and `sums` rows of doubles of
    each segment are the workspace."""

    name: str
    tensor = 0
    """Place of the input that has the data's shape and is read."""
    sums = 0
    vectors = 3

    def layouts(self, p: NormaliseParams, ins: Types, outs: Types) -> Sequence[Layouts]:
        op = get_op(self.name)
        assert isinstance(op, BatchNormOp)
        of_ins, of_outs = ([name in op.tensors for name in names] for names in (op.inputs(p), op.outputs(p)))
        return [Layouts(tuple(layout if wide else "" for wide in of_ins),
                        tuple(layout if wide else "" for wide in of_outs))
                for layout in channel_layouts(p.axis, ins[self.tensor].shape, keeps_zero(p.act_type))]

    def algorithms(self, p: NormaliseParams, ins: Types, outs: Types) -> Sequence[Algorithm]:
        data = ins[self.tensor]
        shape = ChannelShape.of(p.axis, data.shape, data.layout)
        nbytes = self._sums_bytes(shape) + 4 * self.vectors * shape.padded
        rows = Statistics.rows(p.axis, data) if self.sums else 1
        return (Algorithm(f"{PREFIX}direct", nbytes, "native", chunk_rows=rows),)

    def _sums_bytes(self, shape: ChannelShape) -> int:
        return align(8 * self.sums * shape.segments * shape.padded)

    def line(self, shape: ChannelShape, work: int) -> int:
        """Address of the vectors, after the sums."""
        return work + self._sums_bytes(shape)


def _line(p: NormaliseParams, gamma: Operand | None, var: Operand, line: int, beta: Operand | None = None,
          mean: Operand | None = None, rest: Operand | None = None) -> NativeCall:
    """The call that makes mean, scale and shift of each channel; what is not given is zero."""
    args = (_or_null(None if p.fix_gamma else gamma), _or_null(beta), _or_null(mean), pointer(var), _or_null(rest),
            address(line), int64(var.size), float64(p.eps))
    return NativeCall("batchnorm_line", args)


def _or_null(operand: Operand | None) -> tuple[str, Any]:
    return NULL if operand is None else pointer(operand)


def _normalise(p: NormaliseParams, data: Operand, line: int, addend: Operand | None, out: Operand,
               act_type: str | None) -> NativeCall:
    args = (pointer(data), address(line), _or_null(addend), pointer(out), channel_shape(p.axis, data).argument(),
            int64(FUSED[act_type]))
    return NativeCall("batchnorm_normalise", args)


@native_for("_batchnorm_train")
class BatchNormTrain(NormOp):
    """Moments of the segments, statistics of the channels, and the normalised tensor."""

    name = "_batchnorm_train"
    sums = MOMENTS

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        (data, gamma, beta, *addend), (out, mean, var, rest) = ins, outs
        shape = channel_shape(p.axis, data)
        statistics = (address(work), pointer(mean), pointer(var), pointer(rest), shape.argument())
        line = self.line(shape, work)
        return [NativeCall("batchnorm_moments", (pointer(data), address(work), shape.argument())),
                NativeCall("batchnorm_statistics", statistics), _line(p, gamma, var, line, beta, mean, rest),
                _normalise(p, data, line, addend[0] if p.addend else None, out, p.act_type)]


@native_for("_batchnorm_apply")
class BatchNormApply(NormOp):
    """The normalised tensor by statistics that were made before."""

    name = "_batchnorm_apply"

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        data, gamma, beta, *addend, mean, var, rest = ins
        return [_line(p, gamma, var, work, beta, mean, rest),
                _normalise(p, data, work, addend[0] if p.addend else None, outs[0], p.act_type)]


@native_for("_batchnorm_inference")
class BatchNormInference(NormOp):
    """The normalised tensor by the moving statistics."""

    name = "_batchnorm_inference"

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        data, gamma, beta, mean, var, *addend = ins
        return [_line(p, gamma, var, work, beta, mean),
                _normalise(p, data, work, addend[0] if p.addend else None, outs[0], p.act_type)]


@native_for("_batchnorm_inference_backward_data")
class BatchNormInferenceBackwardData(NormOp):
    """The output gradient, scaled."""

    name = "_batchnorm_inference_backward_data"

    def calls(self, p: NormaliseParams, ins: Operands, outs: Operands, work: int,
              algorithm: str) -> Sequence[NativeCall]:
        grad, gamma, var = ins
        return [_line(p, gamma, var, work), _normalise(p, grad, work, None, outs[0], None)]


def _sums(p: NormaliseParams, shape: ChannelShape, grad: Operand, data: Operand, out: Operand | None,
          sloped: Operand | None, line: int, work: int, act_type: str | None) -> NativeCall:
    args = (pointer(grad), pointer(data), _or_null(out), address(line), _or_null(sloped), address(work),
            shape.argument(), int64(FUSED[act_type]))
    return NativeCall("batchnorm_sums", args)


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
        slopes = line + 4 * 3 * shape.padded
        beta, rest = saved if p.act_type and sign_from_data(p) else (None, None)
        out = None if p.act_type is None or sign_from_data(p) else saved[0]
        second = (sloped[0], None, None) if sloped else (grad, out, p.act_type)
        channels = (address(work), _or_null(None if p.fix_gamma else gamma), pointer(var), pointer(gamma_grad),
                    pointer(beta_grad), address(slopes), shape.argument(), float64(p.eps))
        gradient = (pointer(second[0]), pointer(data), _or_null(second[1]), address(line), address(slopes),
                    pointer(data_grad), shape.argument(), int64(FUSED[second[2]]))
        return [_line(p, gamma, var, line, beta, mean, rest),
                _sums(p, shape, grad, data, out, sloped[0] if sloped else None, line, work, p.act_type),
                NativeCall("batchnorm_slopes", channels), NativeCall("batchnorm_gradient", gradient)]


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
        if p.fix_gamma:
            totals = (address(work), pointer(beta_grad), pointer(gamma_grad), shape.argument())
            return [_sums(p, shape, grad, grad, None, None, 0, work, None), NativeCall("batchnorm_totals", totals)]
        channels = (address(work), NULL, pointer(var), pointer(gamma_grad), pointer(beta_grad), NULL,
                    shape.argument(), float64(p.eps))
        return [_line(p, None, var, line, None, mean), _sums(p, shape, grad, data, None, None, line, work, None),
                NativeCall("batchnorm_slopes", channels)]


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

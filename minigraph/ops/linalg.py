"""Products and diagonals of batches of matrices (mx.sym.linalg): gemm, gemm2, syrk, sumlogdiag, extractdiag."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base import Builder, Entry, PartialShape
from .elemwise import only
from .op import Op, Sample, ShapeError, format_shape, merge_shapes
from .params import param
from .registry import get_op, register


@dataclass(frozen=True)
class SyrkParams:
    """Parameters of syrk."""

    transpose: bool = param(False, "bool", "the product of the transposed matrix and the matrix")
    alpha: float = param(1.0, "float", "factor of the product")


@dataclass(frozen=True)
class Gemm2Params:
    """Parameters of gemm2."""

    transpose_a: bool = param(False, "bool", "take A transposed")
    transpose_b: bool = param(False, "bool", "take B transposed")
    alpha: float = param(1.0, "float", "factor of the product")
    axis: int = param(-2, "int", "axis of the matrices' rows; that of their columns is the last")


@dataclass(frozen=True)
class GemmParams(Gemm2Params):
    """Parameters of gemm."""

    beta: float = param(1.0, "float", "factor of C")


def matrices(b: Builder, data: Entry) -> Entry:
    """data as a batch of matrices (n, rows, columns)."""
    shape = b.shape(data)
    if len(shape) == 2:
        return only(b.node("expand_dims", [data], axis=0))
    return data


def scaled(b: Builder, data: Sequence[Entry], factor: float) -> Sequence[Entry]:
    """data times a factor, which is left out when it is 1."""
    return data if factor == 1 else b.node("_mul_scalar", data, scalar=factor)


def check_matrices(name: str, shape: PartialShape, square: bool = False) -> None:
    """ShapeError unless a shape is that of matrices, square ones if asked for."""
    if shape is None:
        return
    if len(shape) < 2:
        raise ShapeError(f"{name}: {format_shape(shape)} must be matrices, with rows and columns along the last axes")
    if square and None not in shape[-2:] and shape[-1] != shape[-2]:
        raise ShapeError(f"{name}: the matrices of {format_shape(shape)} are not square")


class _Product(Op):
    """Base of what multiplies two batches of matrices."""

    def product(self, b: Builder, lhs: Entry, rhs: Entry, transpose_a: bool, transpose_b: bool, alpha: float,
                ) -> Sequence[Entry]:
        """alpha lhs rhs, each transposed if asked for, with the batch axes of lhs."""
        found = b.node("batch_dot", [matrices(b, lhs), matrices(b, rhs)], transpose_a=transpose_a,
                       transpose_b=transpose_b)
        if len(b.shape(lhs)) == 2:
            found = b.node("squeeze", found, axis=(0,))
        return scaled(b, found, alpha)

    def shapes(self, name: str, ins: Sequence[PartialShape], out: PartialShape, transpose_a: bool, transpose_b: bool,
               ) -> tuple[list[PartialShape], PartialShape]:
        """(shapes of both operands, that of the product), completed by batch_dot."""
        for shape in (*ins, out):
            check_matrices(name, shape)
        dot = get_op("batch_dot")
        flat = [s if s is None or len(s) > 2 else (1, *s) for s in (*ins, out)]
        params = dot.Params(transpose_a=transpose_a, transpose_b=transpose_b)
        (lhs, rhs), (made,) = dot.infer_shape(params, flat[:2], flat[2:])
        drop = next((len(s) == 2 for s in (*ins, out) if s is not None), False)
        lhs, rhs, made = (s if s is None or not drop else s[1:] for s in (lhs, rhs, made))
        return [lhs, rhs], made


@register
class Gemm2(_Product):
    """alpha A B of matrices (..., m, k) and (..., k, n), one by one, each transposed if asked for."""

    name = "_linalg_gemm2"
    Params = Gemm2Params
    aliases = ("linalg_gemm2",)

    def inputs(self, p: Gemm2Params) -> tuple[str, ...]:
        return ("A", "B")

    def infer_shape(self, p: Gemm2Params, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        for shape in ins:
            if p.axis != -2 and (shape is None or p.axis != len(shape) - 2):
                raise ShapeError(f"{self.name}: axis {p.axis}; matrices are taken along the last two axes, so it must "
                                 f"be -2: transpose the operands")
        found, out = self.shapes(self.name, ins[:2], outs[0], p.transpose_a, p.transpose_b)
        return found, [merge_shapes(out, outs[0])]

    def expand(self, b: Builder, p: Gemm2Params, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return self.product(b, ins[0], ins[1], p.transpose_a, p.transpose_b, p.alpha)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3), (3, 4))), Sample({"transpose_a": True, "alpha": 0.5}, ((2, 3, 2), (2, 3, 4))),
                Sample({"transpose_b": True}, ((2, 1, 2, 3), (2, 1, 4, 3)))]


@register
class Gemm(Gemm2):
    """alpha A B + beta C of matrices (..., m, k), (..., k, n) and (..., m, n)."""

    name = "_linalg_gemm"
    Params = GemmParams
    aliases = ("linalg_gemm",)

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("A", "B", "C")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        found, (out,) = super().infer_shape(p, ins[:2], [merge_shapes(ins[2], outs[0])])
        return [*found, out], [out]

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        made = super().expand(b, p, ins[:2], train)
        return b.node("elemwise_add", [*made, *scaled(b, ins[2:], p.beta)])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"beta": 2.0}, ((2, 3), (3, 4), (2, 4))),
                Sample({"transpose_a": True, "alpha": 0.5}, ((2, 3, 2), (2, 3, 4), (2, 2, 4)))]


@register
class Syrk(_Product):
    """alpha A Aᵀ of matrices (..., m, n), or alpha Aᵀ A."""

    name = "_linalg_syrk"
    Params = SyrkParams
    aliases = ("linalg_syrk",)

    def inputs(self, p: SyrkParams) -> tuple[str, ...]:
        return ("A",)

    def infer_shape(self, p: SyrkParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data, _), out = self.shapes(self.name, ins * 2, outs[0], p.transpose, not p.transpose)
        return [data], [merge_shapes(out, outs[0])]

    def expand(self, b: Builder, p: SyrkParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return self.product(b, ins[0], ins[0], p.transpose, not p.transpose, p.alpha)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3),)), Sample({"transpose": True, "alpha": 0.5}, ((2, 2, 3),))]


@register
class SumLogDiagonal(Op):
    """The sum of the logarithms of the diagonal of square matrices (..., n, n); (1,) of one matrix."""

    name = "_linalg_sumlogdiag"
    aliases = ("linalg_sumlogdiag",)

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("A",)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data = ins[0]
        check_matrices(self.name, data, square=True)
        return [data], [outs[0] if data is None else merge_shapes(data[:-2] or (1,), outs[0])]

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        diagonal = b.node("diag", ins, axis1=-2, axis2=-1)
        return b.node("sum", b.node("log", diagonal), axis=(-1,))

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,), low=0.2, high=2.0) for shape in ((3, 3), (2, 2, 2))]


@dataclass(frozen=True)
class DiagonalParams:
    """Parameters of extractdiag."""

    offset: int = param(0, "int", "which diagonal: 0 the main one, above it from 1 on, below it to -1")


@register
class ExtractDiagonal(Op):
    """A diagonal of square matrices (..., n, n), along a last axis."""

    name = "_linalg_extractdiag"
    Params = DiagonalParams
    aliases = ("linalg_extractdiag",)

    def inputs(self, p: DiagonalParams) -> tuple[str, ...]:
        return ("A",)

    def infer_shape(self, p: DiagonalParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        check_matrices(self.name, ins[0], square=True)
        if ins[0] is None:
            return ins, outs
        diag = get_op("diag")
        return diag.infer_shape(diag.Params(k=p.offset, axis1=-2, axis2=-1), ins, outs)

    def expand(self, b: Builder, p: DiagonalParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("diag", ins, k=p.offset, axis1=-2, axis2=-1)

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 3),)), Sample({"offset": 1}, ((2, 3, 3),)), Sample({"offset": -2}, ((2, 3, 3),))]

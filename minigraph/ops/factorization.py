"""Triangles, factors and inverses of batches of matrices (mx.sym.linalg): trmm, trsm, potrf, potri, inverse, det,
slogdet.

Matrices lie along the last two axes. Each is worked on alone, row by row, so nothing is taken but the scratch of one.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, TensorType
from .elemwise import only
from .linalg import check_matrices, matrices, scaled
from .numbers import Eye, EyeParams
from .op import Arrays, Op, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]


def _each(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The matrices of the same number of each array, one after the other."""
    count = prod(arrays[0].shape[:-2])
    return zip(*(a.reshape(count, *a.shape[-2:]) for a in arrays), strict=True)


def _square(name: str, *shapes: PartialShape) -> PartialShape:
    """The one shape of square matrices with elements."""
    shape = merge_shapes(*shapes)
    check_matrices(name, shape, square=True)
    if shape is not None and 0 in shape[-2:]:
        raise ShapeError(f"{name}: the matrices of {format_shape(shape)} have no element")
    return shape


def _turn(b: Builder, data: Entry) -> Entry:
    """Matrices with rows and columns exchanged."""
    rank = len(b.shape(data))
    return only(b.node("transpose", [data], axes=(*range(rank - 2), rank - 1, rank - 2)))


def _multiply(b: Builder, lhs: Entry, rhs: Entry, transpose_a: bool = False, transpose_b: bool = False) -> Entry:
    """The products of matrices one by one."""
    found = b.node("batch_dot", [matrices(b, lhs), matrices(b, rhs)], transpose_a=transpose_a, transpose_b=transpose_b)
    return only(b.node("squeeze", found, axis=(0,)) if len(b.shape(lhs)) == 2 else found)


# -- triangles -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TriangleParams:
    """Parameters of a triangle."""

    lower: bool = param(True, "bool", "whether it is the one below the diagonal, or that above")
    diagonal: float = param(1.0, "float", "factor of the diagonal")


@register
class _Triangle(Op):
    """Matrices with zeros on the other side of the diagonal; it is its own gradient."""

    name = "_triangle"
    Params = TriangleParams
    recompute = "cheap"

    def inplace(self, p: TriangleParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def infer_shape(self, p: TriangleParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = _square(self.name, ins[0], outs[0])
        return [shape], [shape]

    def compute(self, p: TriangleParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        for data, out in _each(ins[0], outs[0]):
            for k, (row, target) in enumerate(zip(data, out, strict=True)):
                kept, zeros = (slice(0, k), slice(k + 1, None)) if p.lower else (slice(k + 1, None), slice(0, k))
                target[k] = row[k] * p.diagonal
                target[kept] = row[kept]
                target[zeros] = 0

    def gradient(self, b: Builder, p: TriangleParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [None] if grads[0] is None or not wanted[0] else b.node(self.name, [grads[0]], **vars(p))

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((3, 3),)), Sample({"lower": False, "diagonal": 0.5}, ((2, 2, 4, 4),))]


@dataclass(frozen=True)
class TriangularParams:
    """Parameters of trmm and trsm."""

    transpose: bool = param(False, "bool", "take A transposed")
    rightside: bool = param(False, "bool", "A stands on the right")
    lower: bool = param(True, "bool", "A is its lower triangle; else its upper one")
    alpha: float = param(1.0, "float", "factor of the result")


class _Triangular(Op):
    """Base of the ops of a triangular matrix A (..., n, n) and B (..., n, m), or (..., m, n) on A's left."""

    Params = TriangularParams

    def inputs(self, p: TriangularParams) -> tuple[str, ...]:
        return ("A", "B")

    def infer_shape(self, p: TriangularParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        a, other = _square(self.name, ins[0]), merge_shapes(ins[1], outs[0])
        check_matrices(self.name, other)
        if other is not None:
            n = other[-1] if p.rightside else other[-2]
            a = _square(self.name, a, (*other[:-2], n, n))
        elif a is not None:
            other = (*a[:-1], None) if not p.rightside else (*a[:-2], None, a[-1])
        if a is not None and other is not None:
            fitting = (*a[:-2], None, a[-1]) if p.rightside else (*a[:-1], None)
            other = merge_shapes(other, fitting)
        return [a, other], [other]

    def samples(self) -> Sequence[Sample]:
        cases: list[dict[str, Any]] = [{}, {"transpose": True, "alpha": 0.5}, {"rightside": True},
                                       {"lower": False}, {"rightside": True, "transpose": True, "lower": False}]
        given = [(case, ((2, 3, 3), (2, 4, 3) if case.get("rightside") else (2, 3, 4))) for case in cases]
        return [Sample(case, shapes, low=0.5, high=1.5, rtol=1e-3) for case, shapes in (*given, ({}, ((3, 3), (3, 2))))]


@register
class TriangularProduct(_Triangular):
    """alpha A B of a triangular matrix A, or alpha B A."""

    name = "_linalg_trmm"
    aliases = ("linalg_trmm",)

    def expand(self, b: Builder, p: TriangularParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        a = only(b.node("_triangle", ins[:1], lower=p.lower))
        found = (_multiply(b, ins[1], a, transpose_b=p.transpose) if p.rightside
                 else _multiply(b, a, ins[1], transpose_a=p.transpose))
        return scaled(b, [found], p.alpha)


@register
class TriangularSolve(_Triangular):
    """alpha times the solution X of A X = B with a triangular matrix A, or of X A = B."""

    name = "_linalg_trsm"
    aliases = ("linalg_trsm",)

    def expand(self, b: Builder, p: TriangularParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        other = _turn(b, ins[1]) if p.rightside else ins[1]
        found = only(b.node("_solve_triangular", [ins[0], other], lower=p.lower, transpose=p.transpose != p.rightside))
        return scaled(b, [_turn(b, found) if p.rightside else found], p.alpha)


@dataclass(frozen=True)
class SolveParams:
    """Parameters of the solution of triangular equations."""

    lower: bool = param(True, "bool", "A is its lower triangle; else its upper one")
    transpose: bool = param(False, "bool", "take A transposed")


@register
class _SolveTriangular(Op):
    """X of A X = B, row by row, with a triangular A (..., n, n) of which the other triangle is not read."""

    name = "_solve_triangular"
    Params = SolveParams

    def inputs(self, p: SolveParams) -> tuple[str, ...]:
        return ("A", "B")

    def inplace(self, p: SolveParams) -> tuple[tuple[int, int], ...]:
        return ((1, 0),)

    def infer_shape(self, p: SolveParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        a, other = _square(self.name, ins[0]), merge_shapes(ins[1], outs[0])
        if a is not None and other is not None:
            other = merge_shapes(other, (*a[:-1], None))
        return [a, other], [other]

    def cost(self, p: SolveParams, ins: Types, outs: Types) -> Cost:
        return Cost(float(ins[0].shape[-1] * outs[0].size), sum(t.nbytes for t in ins), outs[0].nbytes)

    def algorithms(self, p: SolveParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        return (Algorithm("rows", Workspace.bytes_for((outs[0].shape[-1:], outs[0].dtype))),)

    def compute(self, p: SolveParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        term = work.array(outs[0].shape[-1:], outs[0].dtype)
        for a, given, out in _each(*ins, outs[0]):
            n = len(a)
            forward = p.lower != p.transpose
            for k in range(n) if forward else reversed(range(n)):
                np.copyto(out[k], given[k])
                for j in range(k) if forward else range(n - 1, k, -1):
                    np.multiply(out[j], a[j, k] if p.transpose else a[k, j], out=term)
                    np.subtract(out[k], term, out=out[k])
                np.divide(out[k], a[k, k], out=out[k])

    def gradient(self, b: Builder, p: SolveParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not any(wanted):
            return [None, None]
        of_b = only(b.node(self.name, [ins[0], grads[0]], lower=p.lower, transpose=not p.transpose))
        if not wanted[0]:
            return [None, of_b]
        pair = (outs[0], of_b) if p.transpose else (of_b, outs[0])
        product = only(b.node("negative", [_multiply(b, *pair, transpose_b=True)]))
        return [only(b.node("_triangle", [product], lower=p.lower)), of_b]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"lower": lower, "transpose": transpose}, ((2, 4, 4), (2, 4, 3)), low=0.5, high=1.5, rtol=1e-3)
                for lower in (True, False) for transpose in (True, False)]


# -- symmetric matrices --------------------------------------------------------------------------------------
class _OfMatrix(Op):
    """Base of the ops of square matrices A (..., n, n) that give such."""

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("A",)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = _square(self.name, ins[0], outs[0])
        return [shape], [shape]

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(float(ins[0].size * ins[0].shape[-1]), ins[0].nbytes, outs[0].nbytes)


@register
class Cholesky(_OfMatrix):
    """The lower triangular L with L Lᵀ = A, of symmetric positive definite matrices, of which the lower triangle is
    read; NaN from the first column on that shows that A is not positive definite."""

    name = "_linalg_potrf"
    aliases = ("linalg_potrf",)

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        for a, out in _each(ins[0], outs[0]):
            np.copyto(out, a)
            with np.errstate(invalid="ignore"):
                for k in range(len(a)):
                    for j in range(k):
                        out[k:, k] -= out[k:, j] * out[k, j]
                    out[k:, k] /= np.sqrt(out[k, k])
                    out[k, k + 1:] = 0

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        factor = outs[0]
        given = only(b.node("_triangle", [grads[0]]))
        middle = only(b.node("_triangle", [_multiply(b, factor, given, transpose_a=True)], diagonal=0.5))
        half = only(b.node("_solve_triangular", [factor, middle], transpose=True))
        whole = only(b.node("_solve_triangular", [factor, _turn(b, half)], transpose=True))
        both = b.node("elemwise_add", [whole, _turn(b, whole)])
        return b.node("_mul_scalar", both, scalar=0.5)

    def samples(self) -> Sequence[Sample]:
        # Random numbers are positive definite matrices of one row alone; tests give larger ones.
        return [Sample({}, (shape,), low=0.5, high=2.0) for shape in ((1, 1), (2, 3, 1, 1))]


@register
class CholeskyInverse(_OfMatrix):
    """The inverse of L Lᵀ, from the lower triangular factor L that potrf gives."""

    name = "_linalg_potri"
    aliases = ("linalg_potri",)

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        shape = b.shape(ins[0])
        eye = Eye().expand(b, EyeParams(N=shape[-1], dtype=b.dtype(ins[0])), [], train)
        if len(shape) > 2:
            for _ in shape[:-2]:
                eye = b.node("expand_dims", eye, axis=0)
            eye = b.node("broadcast_like", [*eye, *ins])
        inverse = only(b.node("_solve_triangular", [*ins, *eye]))
        return [_multiply(b, inverse, inverse, transpose_a=True)]

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,), low=0.5, high=1.5, rtol=1e-3) for shape in ((3, 3), (2, 2, 2))]


# -- general matrices ----------------------------------------------------------------------------------------
@register
class _Eliminate(_OfMatrix):
    """Inverses, and signs and logarithms of the sizes of determinants (...), by elimination with partial pivoting.

    A singular matrix has sign 0, logarithm -inf, and an inverse without finite numbers.
    """

    name = "_eliminate"

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("inverse", "sign", "logarithm")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = _square(self.name, ins[0], outs[0])
        numbers = merge_shapes(None if shape is None else shape[:-2] or (1,), *outs[1:])
        return [shape], [shape, numbers, numbers]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        n = ins[0].shape[-1]
        return (Algorithm("rows", Workspace.bytes_for(((n, n), ins[0].dtype), ((n,), ins[0].dtype))),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        n = ins[0].shape[-1]
        rest, term = work.array((n, n), ins[0].dtype), work.array((n,), ins[0].dtype)
        signs, logarithms = (out.reshape(-1) for out in outs[1:])
        for k, (a, inverse) in enumerate(_each(ins[0], outs[0])):
            np.copyto(rest, a)
            inverse.fill(0)
            inverse.reshape(-1)[::n + 1] = 1
            with np.errstate(all="ignore"):
                signs[k], logarithms[k] = self._reduce(rest, inverse, term)

    @staticmethod
    def _reduce(rest: np.ndarray, inverse: np.ndarray, term: np.ndarray) -> tuple[float, float]:
        """Turn `rest` into the identity and `inverse` into the inverse; return sign and logarithm."""
        n, sign, logarithm = len(rest), 1.0, rest.dtype.type(0)
        for k in range(n):
            best = k + int(np.argmax(np.abs(rest[k:, k])))
            if best != k:
                sign = -sign
                for matrix in (rest, inverse):
                    np.copyto(term, matrix[k])
                    np.copyto(matrix[k], matrix[best])
                    np.copyto(matrix[best], term)
            pivot = rest[k, k]
            sign *= np.sign(pivot)
            logarithm += np.log(np.abs(pivot))
            for matrix in (rest, inverse):
                np.divide(matrix[k], pivot, out=matrix[k])
            for j in range(n):
                factor = rest[j, k]
                for matrix in (rest, inverse) if j != k else ():
                    np.multiply(matrix[k], factor, out=term)
                    np.subtract(matrix[j], term, out=matrix[j])
        return sign, logarithm

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        inverse = outs[0]
        parts: list[Entry] = []
        if not wanted[0]:
            return [None]
        if grads[0] is not None:
            found = _multiply(b, _multiply(b, inverse, grads[0], transpose_a=True), inverse, transpose_b=True)
            parts += b.node("negative", [found])
        if grads[2] is not None:
            number = b.node("Reshape", [grads[2]], shape=(*b.shape(ins[0])[:-2], 1, 1))
            parts += b.node("broadcast_mul", [_turn(b, inverse), *number])
        if len(parts) == 2:
            return b.node("elemwise_add", parts)
        return parts or [None]


class _Eliminated(_OfMatrix):
    """Base of what is made of those."""

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, (shape,), low=-2.0, high=2.0, rtol=1e-2, atol=1e-3)
                for shape in ((3, 3), (2, 2, 2), (1, 4, 4))]


@register
class Inverse(_Eliminated):
    """The inverses of square matrices (..., n, n)."""

    name = "_linalg_inverse"
    aliases = ("linalg_inverse",)

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("_eliminate", ins)[:1]


@register
class Determinant(_Eliminated):
    """The determinants of square matrices (..., n, n): (...), and (1,) of one matrix."""

    name = "_linalg_det"
    aliases = ("linalg_det",)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = _square(self.name, ins[0])
        numbers = merge_shapes(None if shape is None else shape[:-2] or (1,), *outs)
        return [shape], [numbers] * len(outs)

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        _, sign, logarithm = b.node("_eliminate", ins)
        return b.node("elemwise_mul", [sign, *b.node("exp", [logarithm])])


@register
class SignedLogDeterminant(Determinant):
    """The signs of the determinants of square matrices, which have no gradient, and the logarithms of their sizes."""

    name = "_linalg_slogdet"
    aliases = ("linalg_slogdet",)

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output0", "output1")

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        return b.node("_eliminate", ins)[1:]

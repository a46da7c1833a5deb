"""Elementwise ops of two or more tensors of one shape: arithmetic, powers, extrema, comparisons, sums."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Entry, PartialShape, TensorType
from .op import Arrays, Op, Sample, Sliced, Workspace, merge_shapes, numbered
from .params import REQUIRED, param
from .pointwise import Binary, Found, block_bytes, block_scratch, blocks, broadcast_shapes
from .registry import register

COMPARISONS: dict[str, np.ufunc] = {
    "equal": np.equal, "not_equal": np.not_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "lesser": np.less, "lesser_equal": np.less_equal}
"""Comparisons by MXNet's names; each gives 1 or 0 in the dtype of its operands."""


def only(entries: Sequence[Entry]) -> Entry:
    """The entry of a node with one output."""
    (entry,) = entries
    return entry


def divide(lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
    """lhs / rhs; integers are divided as in C, towards zero."""
    np.divide(lhs, rhs, out=out, casting="unsafe")


class Sum(Binary):
    """Base of the ops that add two tensors of one shape."""

    pointwise = True

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.add(lhs, rhs, out=out)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [grad, grad]


@register
class Add(Sum):
    """lhs + rhs of equal shapes."""

    name = "elemwise_add"
    aliases = ("_plus", "_Plus", "_add", "_Add")


def is_sum(op: Op) -> bool:
    """Whether an op's output is the sum of its two inputs, which have one shape."""
    return isinstance(op, Sum)


@register
class Subtract(Binary):
    """lhs - rhs of equal shapes."""

    name = "elemwise_sub"
    pointwise = True
    aliases = ("_minus", "_Minus", "_sub", "_Sub")

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.subtract(lhs, rhs, out=out)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [grad, only(b.node("negative", [grad])) if wanted[1] else None]


@register
class Multiply(Binary):
    """lhs * rhs of equal shapes."""

    name = "elemwise_mul"
    pointwise = True
    aliases = ("_mul", "_Mul")

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.multiply(lhs, rhs, out=out)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [only(b.node("elemwise_mul", [grad, rhs])) if wanted[0] else None,
                only(b.node("elemwise_mul", [grad, lhs])) if wanted[1] else None]


@register
class Divide(Binary):
    """lhs / rhs of equal shapes; integers are divided towards zero."""

    name = "elemwise_div"
    pointwise = True
    aliases = ("_div", "_Div")
    low, high = 0.5, 1.5

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        divide(lhs, rhs, out)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [only(b.node("elemwise_div", [grad, rhs])) if wanted[0] else None,
                only(b.node("_div_backward_rhs", [grad, rhs, out])) if wanted[1] else None]


@register
class DivideBackwardRhs(Op):
    """-grad * out / rhs, the divisor's gradient before any sum over broadcast axes; rhs may be broadcast."""

    name = "_div_backward_rhs"
    recompute = "cheap"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "rhs", "out")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shape = merge_shapes(ins[0], ins[2], outs[0])
        shape = merge_shapes(shape, broadcast_shapes(shape, ins[1]))
        return [shape, ins[1], shape], [shape]

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (2, 0))

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.multiply(ins[0], ins[2], out=outs[0])
        np.divide(outs[0], ins[1], out=outs[0])
        np.negative(outs[0], out=outs[0])

    def samples(self) -> Sequence[Sample]:
        return [Sample({}, ((2, 3), (2, 3), (2, 3)), low=0.5, high=1.5, differentiable=False),
                Sample({}, ((2, 3), (1, 3), (2, 3)), low=0.5, high=1.5, differentiable=False)]


@register
class Power(Binary):
    """lhs to the power rhs."""

    name = "_power"
    aliases = ("_Power", "_pow")
    low, high = 0.5, 1.5

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        np.power(lhs, rhs, out=out)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [only(b.node("_power_backward_lhs", [grad, lhs, rhs])) if wanted[0] else None,
                only(b.node("_power_backward_rhs", [grad, lhs, out])) if wanted[1] else None]


class Derivative2(Op):
    """Base of backward ops: output = grad * f(first, second), block by block through one block of scratch."""

    recompute = "cheap"
    saved: ClassVar[tuple[str, str]] = ("lhs", "rhs")
    sample_params: ClassVar[tuple[dict[str, Any], ...]] = ({},)

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", *self.saved)

    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0), (1, 0), (2, 0))

    def sliced(self, p: Any, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0])),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = block_scratch(work, outs[0])
        for grad, first, second, out in blocks(*ins, outs[0]):
            slope = scratch[:out.size]
            self.derivative(p, first, second, slope)
            np.multiply(grad, slope, out=out)

    def derivative(self, p: Any, first: np.ndarray, second: np.ndarray, out: np.ndarray) -> None:
        """Write the derivative at each element of a block to `out`, which is neither input."""
        raise NotImplementedError(self.name)

    def samples(self) -> Sequence[Sample]:
        return [Sample(params, (shape,) * 3, low=0.5, high=1.5, differentiable=False)
                for params in self.sample_params for shape in ((2, 3), (7,))]


@register
class PowerBackwardLhs(Derivative2):
    """grad * rhs * lhs ** (rhs - 1)."""

    name = "_power_backward_lhs"

    def derivative(self, p: Any, first: np.ndarray, second: np.ndarray, out: np.ndarray) -> None:
        np.subtract(second, 1, out=out)
        np.power(first, out, out=out)
        np.multiply(out, second, out=out)


@register
class PowerBackwardRhs(Derivative2):
    """grad * out * log(lhs)."""

    name = "_power_backward_rhs"
    saved = ("lhs", "out")

    def derivative(self, p: Any, first: np.ndarray, second: np.ndarray, out: np.ndarray) -> None:
        np.log(first, out=out)
        np.multiply(out, second, out=out)


@dataclass(frozen=True)
class CompareParams:
    """Parameters of a gradient that passes where a comparison holds."""

    compare: str = param(REQUIRED, "str", "comparison of lhs with rhs", tuple(COMPARISONS))


@register
class MultiplyCompare(Derivative2):
    """grad where `lhs compare rhs` holds, 0 elsewhere."""

    name = "_multiply_compare"
    Params = CompareParams
    sample_params = ({"compare": "greater_equal"}, {"compare": "lesser"})

    def derivative(self, p: CompareParams, first: np.ndarray, second: np.ndarray, out: np.ndarray) -> None:
        COMPARISONS[p.compare](first, second, out=out)


class Extremum(Binary):
    """Base of _maximum and _minimum; a tie sends the gradient to lhs, as in MXNet."""

    pointwise = True
    ufunc: ClassVar[np.ufunc]
    takes_lhs: ClassVar[str]
    takes_rhs: ClassVar[str]

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        self.ufunc(lhs, rhs, out=out)

    def backward(self, b: Builder, lhs: Entry, rhs: Entry, out: Entry, grad: Entry,
                 wanted: Sequence[bool]) -> Found:
        return [only(b.node("_multiply_compare", [grad, lhs, rhs], compare=compare)) if ask else None
                for compare, ask in zip((self.takes_lhs, self.takes_rhs), wanted, strict=True)]


@register
class Maximum(Extremum):
    """The larger of lhs and rhs."""

    name = "_maximum"
    aliases = ("_Maximum",)
    ufunc, takes_lhs, takes_rhs = np.maximum, "greater_equal", "lesser"


@register
class Minimum(Extremum):
    """The smaller of lhs and rhs."""

    name = "_minimum"
    aliases = ("_Minimum",)
    ufunc, takes_lhs, takes_rhs = np.minimum, "lesser_equal", "greater"


class Comparison(Binary):
    """Base of comparisons: 1 where it holds and 0 elsewhere, in the operands' dtype; no gradient."""

    compare: ClassVar[str]
    smooth = False

    def apply(self, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray) -> None:
        COMPARISONS[self.compare](lhs, rhs, out=out)


@register
class Equal(Comparison):
    """lhs == rhs."""

    name, aliases, compare = "_equal", ("_Equal",), "equal"


@register
class NotEqual(Comparison):
    """lhs != rhs."""

    name, aliases, compare = "_not_equal", ("_Not_Equal",), "not_equal"


@register
class Greater(Comparison):
    """lhs > rhs."""

    name, aliases, compare = "_greater", ("_Greater",), "greater"


@register
class GreaterEqual(Comparison):
    """lhs >= rhs."""

    name, aliases, compare = "_greater_equal", ("_Greater_Equal",), "greater_equal"


@register
class Lesser(Comparison):
    """lhs < rhs."""

    name, aliases, compare = "_lesser", ("_Lesser",), "lesser"


@register
class LesserEqual(Comparison):
    """lhs <= rhs."""

    name, aliases, compare = "_lesser_equal", ("_Lesser_Equal",), "lesser_equal"


@dataclass(frozen=True)
class CountParams:
    """Parameters of an op with any number of inputs."""

    num_args: int = param(REQUIRED, "int", "number of inputs")


@register
class AddN(Op):
    """The sum of any number of tensors of one shape, added in ascending order."""

    name = "add_n"
    aliases = ("ElementWiseSum",)
    Params = CountParams
    recompute = "cheap"

    def inputs(self, p: CountParams) -> tuple[str, ...]:
        return numbered("arg", p.num_args)

    def count_param(self) -> str | None:
        return "num_args"

    def inplace(self, p: CountParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def sliced(self, p: CountParams, ins: Sequence[TensorType],
               outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

    def compute(self, p: CountParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        if len(ins) == 1:
            np.copyto(outs[0], ins[0])
            return
        np.add(ins[0], ins[1], out=outs[0])
        for array in ins[2:]:
            np.add(outs[0], array, out=outs[0])

    def gradient(self, b: Builder, p: CountParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return [grads[0]] * len(ins)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"num_args": n}, ((3, 2),) * n) for n in (1, 2, 5)]

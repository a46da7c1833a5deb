"""LeakyReLU and what it expands to: leaky, elu and selu here, gelu, prelu and rrelu in files of their own."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Entry, MXNetError, PartialShape, TensorType
from .bits import slope_encoding
from .elemwise import only
from .op import Arrays, Encoding, Op, Sample, Workspace
from .params import REQUIRED, param
from .pointwise import Derivative, Unary, block_bytes, block_scratch, blocks
from .prelu import infer_prelu
from .registry import register

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""Klambauer et al. 2017, "Self-normalizing neural networks"."""


@dataclass(frozen=True)
class LeakyParams:
    """Parameters of LeakyReLU."""

    act_type: str = param("leaky", "str", "the function",
                          ("leaky", "elu", "selu", "gelu", "prelu", "rrelu"))
    slope: float = param(0.25, "float", "slope below 0 of leaky; scale below 0 of elu")
    lower_bound: float = param(0.125, "float", "least slope of rrelu")
    upper_bound: float = param(0.334, "float", "largest slope of rrelu")


@register
class LeakyReLU(Op):
    """data above 0 and something smaller below, by `act_type`; it always expands to the op of that function.

    prelu learns a slope a channel, or one for all, in `gamma`. rrelu draws a slope an element in training and
    takes the mean of its bounds in evaluation; its hidden output `mask` is MXNet's, and its entry is that of
    the output.
    """

    name = "LeakyReLU"
    Params = LeakyParams
    recompute = "cheap"

    def inputs(self, p: LeakyParams) -> tuple[str, ...]:
        return ("data", "gamma") if p.act_type == "prelu" else ("data",)

    def outputs(self, p: LeakyParams) -> tuple[str, ...]:
        return ("output", "mask") if p.act_type == "rrelu" else ("output",)

    def visible_outputs(self, p: LeakyParams) -> int:
        return 1

    def variable_attrs(self, p: LeakyParams) -> dict[str, dict[str, str]]:
        if p.act_type != "prelu":
            return {}
        return {"gamma": {"__init__": '["Constant", {"value": 0.25}]'}}

    def infer_shape(self, p: LeakyParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        check_slopes(p)
        if p.act_type == "prelu":
            return infer_prelu(ins, outs)
        return super().infer_shape(p, ins, outs)

    def expand(self, b: Builder, p: LeakyParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        check_slopes(p)
        if p.act_type in ("gelu", "prelu"):
            return b.node("_" + p.act_type, ins)
        if p.act_type == "elu":
            return b.node("_elu", ins, below=p.slope, above=1.0)
        if p.act_type == "selu":
            return b.node("_elu", ins, below=SELU_SCALE * SELU_ALPHA, above=SELU_SCALE)
        if p.act_type == "leaky":
            return b.node("_leaky", ins, slope=p.slope)
        if train:
            out = only(b.node("_rrelu", [ins[0], b.random_key()], lower_bound=p.lower_bound,
                              upper_bound=p.upper_bound, ordinal=b.next_random_ordinal()))
        else:
            out = only(b.node("_leaky", ins, slope=(p.lower_bound + p.upper_bound) / 2))
        return [out, out]

    def samples(self) -> Sequence[Sample]:
        kinds: list[dict[str, Any]] = [
            {"slope": 0.1}, {"slope": -0.5}, {"act_type": "elu", "slope": 0.5}, {"act_type": "selu"},
            {"act_type": "gelu"}, {"act_type": "rrelu"}]
        return [*(Sample(params, ((3, 4),)) for params in kinds),
                Sample({"act_type": "prelu"}, ((2, 3, 4), (3,))),
                Sample({"act_type": "prelu"}, ((2, 3), (1,)))]


def check_slopes(p: LeakyParams) -> None:
    """Raise for slopes whose functions would hide the input's sign from the output."""
    if p.act_type == "elu" and p.slope < 0:
        raise MXNetError(f"LeakyReLU: elu needs slope >= 0, got {p.slope}")
    if p.act_type == "rrelu" and not 0 <= p.lower_bound <= p.upper_bound:
        raise MXNetError(f"LeakyReLU: rrelu needs 0 <= lower_bound <= upper_bound, got {p.lower_bound} and "
                         f"{p.upper_bound}")


@dataclass(frozen=True)
class SlopeParams:
    """Parameters of leaky."""

    slope: float = param(REQUIRED, "float", "slope below 0")


@dataclass(frozen=True)
class EluParams:
    """Parameters of elu and selu."""

    below: float = param(REQUIRED, "float", "scale of exp(data) - 1 below 0")
    above: float = param(REQUIRED, "float", "slope above 0")


class Bent(Unary):
    """Base of functions with a bend at 0, computed block by block through one block of scratch."""

    def algorithms(self, p: Any, ins: Sequence[TensorType],
                   outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        return (Algorithm("blocks", block_bytes(outs[0])),)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        scratch = block_scratch(work, outs[0])
        for data, out in blocks(ins[0], outs[0]):
            self.block(p, data, out, scratch[:out.size])

    def block(self, p: Any, data: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
        """Write one block to `out`, which may be `data`."""
        raise NotImplementedError(self.name)


@register
class Leaky(Bent):
    """data above 0, slope * data below."""

    name = "_leaky"
    Params = SlopeParams
    sample_params = ({"slope": 0.25}, {"slope": -0.5})

    def block(self, p: SlopeParams, data: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
        np.minimum(data, 0, out=scratch)
        np.multiply(scratch, p.slope, out=scratch)
        np.maximum(data, 0, out=out)
        np.add(out, scratch, out=out)

    def backward(self, b: Builder, p: SlopeParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        saved = out if p.slope >= 0 else data       # only a negative slope hides the sign of data
        return only(b.node("_leaky_backward", [grad, saved], slope=p.slope))


@register
class LeakyBackward(Derivative):
    """grad where saved > 0, slope * grad elsewhere; `saved` is any tensor with the sign of the input."""

    name = "_leaky_backward"
    Params = SlopeParams
    low, high = -1.0, 1.0
    sample_params = ({"slope": 0.25},)
    extra = 1

    def derivative(self, p: SlopeParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        np.greater(saved, 0, out=out)
        np.subtract(1, out, out=extra[0])
        np.multiply(extra[0], p.slope, out=extra[0])
        np.add(out, extra[0], out=out)

    def encoding(self, p: SlopeParams, ins: Sequence[TensorType]) -> Encoding | None:
        return slope_encoding("_positive_bits", ins, p.slope)


@register
class Elu(Bent):
    """above * data above 0, below * (exp(data) - 1) below."""

    name = "_elu"
    Params = EluParams
    sample_params = ({"below": 0.5, "above": 1.0}, {"below": 1.75, "above": 1.05})

    def block(self, p: EluParams, data: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
        np.minimum(data, 0, out=scratch)
        np.expm1(scratch, out=scratch)
        np.multiply(scratch, p.below, out=scratch)
        np.maximum(data, 0, out=out)
        np.multiply(out, p.above, out=out)
        np.add(out, scratch, out=out)

    def backward(self, b: Builder, p: EluParams, data: Entry, out: Entry, grad: Entry) -> Entry:
        return only(b.node("_elu_backward", [grad, out], below=p.below, above=p.above))


@register
class EluBackward(Derivative):
    """above * grad where the output is positive, (output + below) * grad elsewhere."""

    name = "_elu_backward"
    Params = EluParams
    low, high = -0.4, 1.0
    sample_params = ({"below": 0.5, "above": 1.0},)
    extra = 1

    def derivative(self, p: EluParams, saved: np.ndarray, out: np.ndarray, *extra: np.ndarray) -> None:
        (mask,) = extra
        np.add(saved, p.below, out=out)
        np.less_equal(saved, 0, out=mask)
        np.multiply(out, mask, out=out)
        np.greater(saved, 0, out=mask)
        np.multiply(mask, p.above, out=mask)
        np.add(out, mask, out=out)

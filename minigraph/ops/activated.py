"""Layers of weights that apply an activation to their output in the same pass."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base import Builder, Entry, Shape
from .activation import FOLLOWING
from .conv import Convolution
from .conv_geometry import ConvolutionParams
from .dense import FullyConnected, FullyConnectedParams
from .op import Op, Sample
from .params import REQUIRED, param
from .registry import register

ACT_TYPE = "activation of the output"


@dataclass(frozen=True)
class ActivatedConvolutionParams(ConvolutionParams):
    """Parameters of a convolution with an activation."""

    act_type: str = param(REQUIRED, "str", ACT_TYPE, FOLLOWING)


@dataclass(frozen=True)
class ActivatedDenseParams(FullyConnectedParams):
    """Parameters of a dense layer with an activation."""

    act_type: str = param(REQUIRED, "str", ACT_TYPE, FOLLOWING)


class _Activated(Op):
    """What a layer's form with an activation has of its own; it comes before the layer among the bases."""

    def absorb(self, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        return None

    def weight_rows(self, p: Any) -> int | None:
        return None

    def act_type(self, p: Any) -> str:
        return p.act_type

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        if grads[0] is None:
            return [None] * len(ins)
        sloped = b.node("_activation_backward", [grads[0], outs[0]], act_type=p.act_type)
        values = {name: value for name, value in vars(p).items() if name != "act_type"}
        plain = type(p).__mro__[1](**values)
        return super().gradient(b, plain, ins, outs, sloped, wanted)


@register
class _ConvolutionActivated(_Activated, Convolution):
    """Convolution, then an activation."""

    name = "_convolution_activated"
    Params = ActivatedConvolutionParams

    def samples(self) -> Sequence[Sample]:
        def sample(data: Shape, **p: Any) -> Sample:
            weight = (p["num_filter"], data[1] // p.get("num_group", 1), *p["kernel"])
            return Sample(p, (data, weight, (p["num_filter"],)), differentiable=p["act_type"] != "relu")
        return (sample((2, 3, 5, 6), kernel=(3, 3), num_filter=4, pad=(1, 1), act_type="relu"),
                sample((3, 4, 7, 5), kernel=(3, 2), num_filter=6, stride=(2, 1), num_group=2, act_type="tanh"),
                sample((9, 4, 4, 4), kernel=(1, 1), num_filter=4, num_group=4, act_type="sigmoid"),
                sample((2, 3, 17, 18), kernel=(1, 1), num_filter=2, act_type="relu"))


@register
class _FullyConnectedActivated(_Activated, FullyConnected):
    """FullyConnected, then an activation."""

    name = "_fully_connected_activated"
    Params = ActivatedDenseParams

    def samples(self) -> Sequence[Sample]:
        return (Sample({"num_hidden": 4, "act_type": "sigmoid"}, ((3, 5), (4, 5), (4,))),
                Sample({"num_hidden": 3, "no_bias": True, "act_type": "tanh"}, ((5, 2, 3), (3, 6))),
                Sample({"num_hidden": 2, "flatten": False, "act_type": "relu"}, ((2, 3, 4), (2, 4), (2,)),
                       differentiable=False),
                Sample({"num_hidden": 2, "act_type": "relu"}, ((130, 3), (2, 3), (2,)), differentiable=False))

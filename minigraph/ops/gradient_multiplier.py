"""gradientmultiplier: data unchanged, and its gradient times a number (negative for gradient reversal)."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base import Builder, Entry
from .op import Arrays, Sample, Workspace
from .params import param
from .pointwise import Found
from .registry import register
from .shape import View


@dataclass(frozen=True)
class GradientMultiplierParams:
    """Parameters of gradientmultiplier."""

    scalar: float = param(1.0, "float", "factor of the gradient")
    is_int: bool = param(True, "bool", "accepted and not used: the gradient has a dtype of its own")


@register
class GradientMultiplier(View):
    """data, with the gradient of the output times `scalar`."""

    name = "_contrib_gradientmultiplier"
    Params = GradientMultiplierParams

    def compute(self, p: GradientMultiplierParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        np.copyto(outs[0], ins[0])

    def gradient(self, b: Builder, p: GradientMultiplierParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not wanted[0]:
            return [None]
        return b.node("_mul_scalar", [grads[0]], scalar=p.scalar)

    def samples(self) -> Sequence[Sample]:
        return [Sample({"scalar": scalar}, ((3, 4),), differentiable=False) for scalar in (0.5, -1.0)]

"""What operators of (data, weight, bias) share: an activation that follows, and a gradient op for each input."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..base import Builder, Entry
from .activation import FOLLOWING, activation_of
from .op import Op
from .registry import get_op


class Weighted(Op):
    """Base of the ops `STEM`; further ones are named STEM_activated and STEM_backward_data, _weight and _bias."""

    stem: ClassVar[str]

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", "weight") if p.no_bias else ("data", "weight", "bias")

    def absorb(self, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        kind, name = activation_of(consumer, q), f"{self.stem}_activated"
        return (name, get_op(name).Params(**vars(p), act_type=kind)) if kind in FOLLOWING else None

    def act_type(self, p: Any) -> str | None:
        """The activation of the output."""
        return None

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        result: list[Entry | None] = [None] * len(ins)
        if grads[0] is None:
            return result
        if not p.no_bias and wanted[2]:
            result[2], = b.node(f"{self.stem}_backward_bias", [grads[0]])
        if wanted[1]:
            result[1], = b.node(f"{self.stem}_backward_weight", [grads[0], ins[0], ins[1]], **vars(p))
        if wanted[0]:
            result[0], = b.node(f"{self.stem}_backward_data", [grads[0], ins[1], ins[0]], **vars(p))
        return result

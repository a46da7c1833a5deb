"""The loss scale of a training: what gradients are multiplied by, so that small ones do not vanish in half precision.

It is a power of two, so that it changes no bit of what it is undone from, unless a gradient leaves the range of its
dtype. A step whose gradients are not all finite is left out: it changes neither weights nor states, and counts for no
schedule.
"""
from __future__ import annotations

import math
from typing import Any

from .base import MXNetError

LEAST, MOST = 2.0 ** -24, 2.0 ** 24
"""Bounds of a dynamic scale, unless others are given: what half precision can tell from 0, and above 1 as much."""


class LossScaler:
    """A scale that follows the gradients by the rule of PyTorch's GradScaler, with its names and defaults.

    It begins at `init_scale`; a step that was left out multiplies it by `backoff_factor`, and `growth_interval` good
    steps in a row by `growth_factor`, within `least` and `most`, which GradScaler lacks. `dynamic=False` keeps it.
    ValueError for what is no power of two, and for bounds and factors that contradict each other.
    """

    def __init__(self, init_scale: float = 2.0 ** 16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, least: float = LEAST, most: float = MOST, dynamic: bool = True) -> None:
        for name, number in (("init_scale", init_scale), ("growth_factor", growth_factor),
                             ("backoff_factor", backoff_factor), ("least", least), ("most", most)):
            _check_power_of_two(name, number)
        if not growth_factor > 1 > backoff_factor:
            raise ValueError(f"growth_factor must be above 1 and backoff_factor below, got {growth_factor} and "
                             f"{backoff_factor}")
        if isinstance(growth_interval, bool) or not isinstance(growth_interval, int) or growth_interval < 1:
            raise ValueError(f"growth_interval must be a whole number of steps, 1 or more, got {growth_interval!r}")
        if dynamic and not least <= init_scale <= most:
            raise ValueError(f"init_scale {init_scale} must lie within least {least} and most {most}")
        self.scale = float(init_scale)
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval = growth_interval
        self.least, self.most = least, most
        self.dynamic = dynamic
        self.good_steps = 0
        """Good steps since the scale changed, or since one was left out."""
        self.skipped_steps = 0
        """Steps that were left out, in all."""

    @classmethod
    def of(cls, given: Any) -> LossScaler:
        """A scaler of one's own from "dynamic", a number that stays, or a LossScaler whose settings are taken."""
        if isinstance(given, LossScaler):
            made = cls.__new__(cls)
            made.__dict__.update(vars(given))
            return made
        if given == "dynamic":
            return cls()
        try:
            return cls(given, dynamic=False)
        except ValueError as error:
            raise ValueError(f"loss_scale={given!r}: give a power of two, such as 1024, 'dynamic', a LossScaler, or "
                             f"None for none ({error})") from error

    def settle(self, skipped: bool) -> None:
        """Take note of a step that is over."""
        self.skipped_steps += skipped
        self.good_steps = 0 if skipped else self.good_steps + 1
        if not self.dynamic:
            return
        if skipped:
            self.scale = max(self.scale * self.backoff_factor, self.least)
        elif self.good_steps == self.growth_interval:
            self.scale, self.good_steps = min(self.scale * self.growth_factor, self.most), 0

    def state(self) -> tuple[float, int, int]:
        """(scale, good steps, skipped steps): what a training that goes on begins with."""
        return self.scale, self.good_steps, self.skipped_steps

    def restore(self, state: tuple[float, int, int]) -> None:
        """Go on from such a state; a scale that is not dynamic stays what it is. MXNetError for what is none."""
        scale, good, skipped = state
        try:
            _check_power_of_two("the saved loss scale", scale)
        except ValueError as error:
            raise MXNetError(str(error)) from error
        self.good_steps, self.skipped_steps = good, skipped
        if self.dynamic:
            self.scale = min(max(float(scale), self.least), self.most)


def _check_power_of_two(name: str, number: Any) -> None:
    """ValueError unless a number and its inverse are powers of two that float32 holds in full precision."""
    is_number = hasattr(number, "__float__") and not isinstance(number, bool)
    if not is_number or not 2.0 ** -126 <= float(number) <= 2.0 ** 126 or math.frexp(float(number))[0] != 0.5:
        raise ValueError(f"{name} must be a power of two, so that no gradient is rounded, got {number!r}")

"""Learning-rate schedules: the rate as a function of the number of updates, as in MXNet 1.9.

A schedule is called with `num_update` (1 at the first update) and returns the rate. `base_lr` is the present
rate and may be set from outside before training, which an optimizer does when it is given a learning rate as
well.
"""
from __future__ import annotations

import logging
from collections.abc import Sequence
from math import cos, pi

from .settings import SettingError, checks_numbers, is_number


@checks_numbers
class LRScheduler:
    """A constant rate after an optional warm-up of `warmup_steps` updates from `warmup_begin_lr`.

    `warmup_mode` "linear" rises evenly to `base_lr`, "constant" stays at `warmup_begin_lr`.
    """

    def __init__(self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0,
                 warmup_mode: str = "linear") -> None:
        if warmup_begin_lr > base_lr:
            raise ValueError(f"warmup_begin_lr {warmup_begin_lr} must not be above base_lr {base_lr}")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must not be negative, got {warmup_steps}")
        if warmup_mode not in ("linear", "constant"):
            raise ValueError(f"warmup_mode must be 'linear' or 'constant', got {warmup_mode!r}")
        self.base_lr = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_final_lr = base_lr
        self.warmup_mode = warmup_mode

    def get_warmup_lr(self, num_update: int) -> float:
        """The rate at an update below `warmup_steps`."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = self.warmup_final_lr - self.warmup_begin_lr
        return self.warmup_begin_lr + rise * num_update / self.warmup_steps

    def scheduled_lr(self, num_update: int) -> float:
        """The rate at an update after the warm-up; what a schedule overrides."""
        return self.base_lr

    def __call__(self, num_update: int) -> float:
        """The rate to use at this update."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        return self.scheduled_lr(num_update)


@checks_numbers
class FactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` after every `step` updates, down to `stop_factor_lr`.

    The first drop is seen at update step + 1. Updates may be skipped, as when training goes on from a
    checkpoint.
    """

    def __init__(self, step: float, factor: float = 1, stop_factor_lr: float = 1e-8, base_lr: float = 0.01,
                 warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear") -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        _check_steps([step])
        _check_factor(factor)
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr
        self.count: float = 0

    def scheduled_lr(self, num_update: int) -> float:
        """The rate after as many drops as whole steps have been passed."""
        while num_update > self.count + self.step:
            self.count += self.step
            self.base_lr *= self.factor
            if self.base_lr < self.stop_factor_lr:
                self.base_lr = self.stop_factor_lr
                logging.info("Update[%d]: now learning rate arrived at %0.5e, will not change in the future",
                             num_update, self.base_lr)
            else:
                logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


@checks_numbers
class MultiFactorScheduler(LRScheduler):
    """Multiplies the rate by `factor` as each of the increasing update counts in `step` is passed.

    A drop is seen at the first update strictly above its count; counts may be fractions.
    """

    def __init__(self, step: Sequence[float], factor: float = 1, base_lr: float = 0.01, warmup_steps: int = 0,
                 warmup_begin_lr: float = 0, warmup_mode: str = "linear") -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, (list, tuple)) or not all(map(is_number, step)):
            raise SettingError(f"MultiFactorScheduler: step is {step!r}; it must be a list of numbers")
        _check_steps(step)
        _check_factor(factor)
        self.step = list(step)
        self.cur_step_ind = 0
        self.factor = factor
        self.count: float = 0

    def scheduled_lr(self, num_update: int) -> float:
        """The rate after the drops that `num_update` is past."""
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            logging.info("Update[%d]: Change learning rate to %0.5e", num_update, self.base_lr)
        return self.base_lr


class _DecayScheduler(LRScheduler):
    """From the rate given at construction to `final_lr` over `max_update` updates, by the curve `decay`."""

    def __init__(self, max_update: int, base_lr: float, final_lr: float, warmup_steps: int,
                 warmup_begin_lr: float, warmup_mode: str) -> None:
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if max_update < 1 or max_update <= warmup_steps:
            raise ValueError(f"max_update must be at least 1 and above warmup_steps {warmup_steps}, "
                             f"got {max_update}")
        self.base_lr_orig = base_lr
        self.max_update = max_update
        self.final_lr = final_lr
        self.max_steps = max_update - warmup_steps

    def decay(self, progress: float) -> float:
        """What is left of the way to `final_lr`, from 1 at progress 0 to 0 at progress 1."""
        raise NotImplementedError

    def scheduled_lr(self, num_update: int) -> float:
        """The rate on the curve; after `max_update` that of its end, also where training goes on from a checkpoint."""
        left = self.decay((min(num_update, self.max_update) - self.warmup_steps) / self.max_steps)
        self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * left
        return self.base_lr


@checks_numbers
class PolyScheduler(_DecayScheduler):
    """Decays as (1 - progress) ** pwr to `final_lr` at `max_update`.

    As in MXNet the curve begins at the `base_lr` given here: one set later by an optimizer is not used.
    """

    def __init__(self, max_update: int, base_lr: float = 0.01, pwr: float = 2, final_lr: float = 0,
                 warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear") -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def decay(self, progress: float) -> float:
        """(1 - progress) ** pwr."""
        return (1 - progress) ** self.power


@checks_numbers
class CosineScheduler(_DecayScheduler):
    """Decays along half a cosine to `final_lr` at `max_update`; begins at the `base_lr` given here."""

    def __init__(self, max_update: int, base_lr: float = 0.01, final_lr: float = 0, warmup_steps: int = 0,
                 warmup_begin_lr: float = 0, warmup_mode: str = "linear") -> None:
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)

    def decay(self, progress: float) -> float:
        """(1 + cos(pi * progress)) / 2."""
        return (1 + cos(pi * progress)) / 2


def _check_steps(steps: Sequence[float]) -> None:
    if isinstance(steps, (int, float)) or not steps:
        raise ValueError(f"step must be a list of at least one update count, got {steps!r}")
    if any(step < 1 for step in steps):
        raise ValueError(f"a schedule step must be at least 1 update, got {list(steps)}")
    if any(later <= earlier for earlier, later in zip(steps, steps[1:], strict=False)):
        raise ValueError(f"schedule steps must increase, got {list(steps)}")


def _check_factor(factor: float) -> None:
    if factor > 1:
        raise ValueError(f"factor must be at most 1, so that the rate falls, got {factor}")

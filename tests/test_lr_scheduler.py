"""Schedules: exact rates at exact updates, as in MXNet 1.9."""
from __future__ import annotations

import pytest

from minigraph.lr_scheduler import (
    CosineScheduler,
    FactorScheduler,
    LRScheduler,
    MultiFactorScheduler,
    PolyScheduler,
)


def rates(schedule, *updates):
    return [schedule(update) for update in updates]


def test_factor_drops_at_the_first_update_strictly_above_each_step():
    assert rates(FactorScheduler(10, 0.5, base_lr=1), 1, 10, 11, 20, 21, 31) == [1, 1, 0.5, 0.5, 0.25, 0.125]


def test_factor_catches_up_when_updates_are_skipped():
    assert FactorScheduler(10, 0.5, base_lr=1)(35) == 0.125


def test_factor_stops_at_its_floor(caplog):
    caplog.set_level("INFO")
    schedule = FactorScheduler(1, 0.1, stop_factor_lr=0.05, base_lr=1)
    assert rates(schedule, 1, 2, 3, 9) == [1, pytest.approx(0.1), 0.05, 0.05]
    assert "Update[3]: now learning rate arrived at 5.00000e-02" in caplog.text


def test_multifactor_drops_at_the_first_update_strictly_above_each_step():
    schedule = MultiFactorScheduler([5, 8], 0.1, base_lr=1)
    assert rates(schedule, 5, 6, 8, 9, 100) == pytest.approx([1, 0.1, 0.1, 0.01, 0.01])


def test_multifactor_takes_fractions_and_catches_up():
    assert rates(MultiFactorScheduler([2.5, 3.5], 0.5, base_lr=1), 2, 3) == [1, 0.5]
    assert MultiFactorScheduler([2.5, 3.5], 0.5, base_lr=1)(4) == 0.25


def test_multifactor_uses_a_base_lr_set_from_outside_and_logs_each_drop(caplog):
    caplog.set_level("INFO")
    schedule = MultiFactorScheduler(step=[2], factor=0.1)
    schedule.base_lr = 0.5
    assert rates(schedule, 2, 3) == [0.5, 0.05]
    assert caplog.messages == ["Update[3]: Change learning rate to 5.00000e-02"]


def test_poly_follows_its_power_and_stays_at_the_end():
    schedule = PolyScheduler(10, base_lr=1, pwr=2, final_lr=0.1)
    assert rates(schedule, 0, 5, 10, 50) == pytest.approx([1, 0.1 + 0.9 * 0.25, 0.1, 0.1])
    assert PolyScheduler(4, base_lr=1, pwr=1)(1) == 0.75


@pytest.mark.parametrize("kind", [PolyScheduler, CosineScheduler])
def test_a_run_that_goes_on_after_the_end_of_its_schedule_has_the_rate_of_its_end(kind):
    assert kind(10, base_lr=1, final_lr=0.1)(11) == pytest.approx(0.1)


def test_cosine_is_half_way_in_the_middle_and_stays_at_the_end():
    schedule = CosineScheduler(8, base_lr=1, final_lr=0.2)
    assert rates(schedule, 0, 4, 8, 9) == pytest.approx([1, 0.6, 0.2, 0.2])
    assert CosineScheduler(4, base_lr=1)(1) == pytest.approx((1 + 0.5**0.5) / 2)


def test_linear_warmup_rises_to_the_base_rate_and_the_schedule_follows():
    schedule = MultiFactorScheduler([6], 0.1, base_lr=1, warmup_steps=4, warmup_begin_lr=0.2)
    assert rates(schedule, 0, 1, 2, 3, 4, 6, 7) == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 0.1])


def test_constant_warmup_stays_and_decay_begins_after_it():
    schedule = PolyScheduler(10, base_lr=1, pwr=1, warmup_steps=2, warmup_begin_lr=0.3,
                             warmup_mode="constant")
    assert rates(schedule, 0, 1, 2, 6, 10) == pytest.approx([0.3, 0.3, 1, 0.5, 0])
    schedule = CosineScheduler(10, base_lr=1, warmup_steps=2)
    assert rates(schedule, 1, 2, 6) == pytest.approx([0.5, 1, 0.5])


def test_the_base_schedule_is_constant():
    assert rates(LRScheduler(0.3), 0, 7) == [0.3, 0.3]


@pytest.mark.parametrize("make,message", [
    (lambda: FactorScheduler(0), "at least 1"),
    (lambda: FactorScheduler(2, 1.5), "at most 1"),
    (lambda: MultiFactorScheduler([]), "at least one"),
    (lambda: MultiFactorScheduler(5), "list"),
    (lambda: MultiFactorScheduler([5, 5]), r"increase, got \[5, 5\]"),
    (lambda: MultiFactorScheduler([0.5]), "at least 1"),
    (lambda: PolyScheduler(0), "max_update"),
    (lambda: CosineScheduler(5, warmup_steps=5), "above warmup_steps 5"),
    (lambda: LRScheduler(0.1, warmup_begin_lr=0.2), "0.2 must not be above base_lr 0.1"),
    (lambda: LRScheduler(warmup_steps=-1), "negative"),
    (lambda: LRScheduler(warmup_mode="cubic"), "'cubic'"),
])
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Schedules as columns."""
from __future__ import annotations

import numpy as np

from minigraph.memory.schedule import DROP, IN, KINDS, OUT, RUN, Schedule

STEPS = ((RUN, 4), (OUT, 7), (DROP, 7), (RUN, 5), (IN, 7), (RUN, 4))


def test_columns_hold_the_steps_in_order():
    kinds, operands = Schedule(STEPS).columns
    assert [(KINDS[kind], operand) for kind, operand in zip(kinds.tolist(), operands.tolist(), strict=True)] == \
        list(STEPS)


def test_steps_of_a_kind_are_found_with_their_operands():
    schedule = Schedule(STEPS)
    assert schedule.order == (4, 5, 4)
    assert schedule.at(RUN).tolist() == [0, 3, 5]
    np.testing.assert_array_equal(schedule.operands(DROP), [7])


def test_an_empty_schedule_has_empty_columns():
    kinds, operands = Schedule(()).columns
    assert len(kinds) == len(operands) == 0 and Schedule(()).order == ()

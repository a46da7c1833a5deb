"""Versions of values in a schedule, asked for in whole columns."""
from __future__ import annotations

import numpy as np

from minigraph.memory.policies.versions import END, Lists, Versions, follows, repeated


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_a_reader_meets_the_latest_version_made_before_its_own_step() -> None:
    versions = Versions(3, 10, ints(0), ints(2, 5, 2), ints(1, 1, 2))
    assert versions.entry.tolist() == [0, 1, 2, 1]
    assert versions.met(ints(0, 2, 3, 5, 6, 4), ints(0, 1, 1, 1, 1, 2)).tolist() == [0, -1, 1, 1, 3, 2]


def test_a_version_lasts_until_its_last_reader_and_an_output_for_ever() -> None:
    versions = Versions(3, 10, ints(0), ints(2, 5, 2), ints(1, 1, 2))
    versions.use(ints(3, 4, 6), ints(1, 1, -1))
    versions.keep(ints(2))
    assert versions.last.tolist() == [-1, 4, END, 5]


def test_a_value_may_have_a_second_name() -> None:
    versions = Versions(2, 10, ints(0), ints(1), ints(1))
    versions.rename(ints(4), ints(1), ints(0))
    assert versions.met(ints(4, 5), ints(0, 0)).tolist() == [0, 1]


def test_lists_are_gathered_row_by_row_and_empty_ones_leave_no_trace() -> None:
    position, items = Lists.of([(7, 8), (), (9,)]).gather(ints(2, 1, 0, 2))
    assert position.tolist() == [0, 2, 2, 3]
    assert items.tolist() == [9, 7, 8, 9]


def test_what_stood_before_is_found_and_so_is_what_follows_on_an_event_of_its_entry() -> None:
    assert repeated(ints(4, 2, 4, 4)).tolist() == [False, False, True, True]
    first = np.array([True, False, False, False])
    assert follows(ints(1, 9, 3, 5), ints(6, 6, 6, 5), first).tolist() == [False, False, True, False]

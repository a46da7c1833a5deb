"""What lies in a cache follows from addresses and from how many bytes were touched since."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from minigraph.plan.caches import coldness, touched
from minigraph.plan.plan import Kind

from .build import chain, scattered, swap


def beyond(nbytes: int) -> Callable:
    """A cache of so many bytes."""
    return lambda distances: (distances >= nbytes).astype(np.float64)


@pytest.mark.parametrize(("nbytes", "expected"), [
    (64, [128 / 320, 0.0, 128 / 192]),   # the scratch; nothing; the weight, and the output on the data's bytes
    (256, [128 / 320, 0.0, 0.0]),        # all but the scratch was touched by the last instruction of the run before
    (321, [0.0, 0.0, 0.0]),              # both arenas fit
])
def test_operands_are_cold_when_more_than_the_cache_was_touched_since(nbytes: int, expected: list[float]) -> None:
    assert coldness(chain(), beyond(nbytes)) == pytest.approx(expected)


def test_the_share_that_is_cold_is_the_mean_over_all_bytes() -> None:
    assert coldness(chain(), lambda distances: np.full_like(distances, 0.25)) == pytest.approx([0.25] * 3)


def test_what_a_copy_brings_in_is_cold_and_what_it_takes_out_stays_as_it_is() -> None:
    plan = swap()
    found = coldness(plan, beyond(10**9))
    assert found == [0.0] * 12 + [1 / 3]
    assert coldness(plan, beyond(1))[5] == 0.5  # the input, just made and copied out, is warm, and the output is not


def test_copies_touch_their_ends_on_the_device_and_events_touch_nothing() -> None:
    plan = swap()
    ends = {Kind.COPY_OUT: 1, Kind.COPY_IN: 1}
    for i, kind in enumerate(plan.instructions.kind):
        if kind != Kind.COMPUTE:
            assert len(touched(plan, i)) == ends.get(Kind(kind), 0)


def test_what_is_written_in_place_and_what_is_not_read_counts_once_and_not_at_all() -> None:
    plan = chain()
    assert len(touched(plan, 1)) == 1
    plan.instructions.unread[2] = (1,)
    assert len(touched(plan, 2)) == 2


def test_pieces_are_touched_where_they_lie_in_memory() -> None:
    plan = scattered()
    assert touched(plan, 0) == [(1, 0, 64), (1, 192, 64), (1, 64, 64)]
    # of a run that follows another: 2 writes b over the second piece of a, which 1 has read; 3 writes c over the first
    assert coldness(plan, beyond(1)) == pytest.approx([0.0, 1 / 4, 0.0, 2 / 4, 1 / 4])
    assert coldness(plan, beyond(plan.planned_bytes + 1)) == [0.0] * 5

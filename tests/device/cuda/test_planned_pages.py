"""Plans by pages on the GPU: the bits of the plain plan, whatever the driver's schedule, and no race."""
from __future__ import annotations

from typing import Any

import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.passes import pack
from tests.passes.test_pages import POLICIES, bind, mapped_buffers, pack_apart, steps

from .processes import counters, run

PAGE_BYTES = 4096
CHOSEN = ("auto in slices", "superneurons")
"""Policies that need tensors in pieces for their least budgets, with and without copies."""


def by_pages(variants: list[dict[str, Any]]) -> tuple[list[tuple[str, bool, int]], int]:
    """For each policy under the least budget that it can do with, and each variant: whether the bits are those of
    plain, and how many buffers lie in pieces; and the races that were found."""
    plain, answers = steps(bind("plain", mx.gpu(0))), []
    pack.pack = pack_apart
    for policy in CHOSEN:
        options = POLICIES[policy]
        with pytest.raises(OutOfMemoryError) as refused:
            steps(bind(policy, mx.gpu(0), budget=1, **options))
        for variant in variants:
            exe = bind(policy, mx.gpu(0), budget=refused.value.asked_bytes, **options, **variant)
            answers.append((f"{policy} {variant}", steps(exe) == plain, mapped_buffers(exe.plan)))
    return answers, counters()["races"]


@pytest.mark.parametrize("schedule", ("random", "threads"))
def test_tensors_in_pieces_change_no_bit_whatever_the_schedule_and_without_a_race(schedule: str) -> None:
    variants = [{"poison": True}, {"poison": False, "graph": True}]
    answers, races = run(by_pages, variants, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1, SOFTCUDA_ORDER="random",
                         SOFTCUDA_PAGE=PAGE_BYTES)
    assert races == 0 and len(answers) == len(CHOSEN) * len(variants)
    for case, same, mapped in answers:
        assert same, case
        assert mapped > 0, case

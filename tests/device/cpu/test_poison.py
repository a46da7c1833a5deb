"""Poison in plans of several streams: dead bytes hold 0xFF, on the device and on the host."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.device.cpu import CpuDevice, Delay
from minigraph.device.cpu.poison import deaths
from minigraph.plan.plan import Plan
from tests.plan import build
from tests.plan.build import Maker, corrupt, swap
from tests.plan.random_plans import random_plan

from .plans import chain, expected, feeds, in_file, load, run, same_bits


def bytes_of(program, arena: str) -> np.ndarray:
    nbytes = next(each.bytes for each in program.plan.arenas if each.name == arena)
    return program.memory.read(arena, 0, (nbytes,), np.dtype(np.uint8))


@pytest.mark.parametrize("distance", [0, 2])
def test_after_a_run_nothing_but_outputs_and_persistent_tensors_is_left(distance: int) -> None:
    for plan in (chain(8, distance), in_file(chain(8, distance))):
        program = load(plan, CpuDevice(delay=Delay(0, 1e-3, 1e-3, 1e-3)), poison=True)
        assert same_bits(run(program, feeds(plan)), expected(plan, feeds(plan)))
        left = bytes_of(program, "transient").copy()
        out = plan.buffer(dict(plan.outputs)["out"])
        assert not (left[out.offset:out.offset + out.bytes] == 0xFF).all()
        left[out.offset:out.offset + out.bytes] = 0xFF
        assert (left == 0xFF).all()
        assert (bytes_of(program, plan.arenas[2].name) == 0xFF).all()


@pytest.mark.parametrize("plan", [corrupt(swap(), b_dies=(2, 4)), in_file(corrupt(swap(), b_dies=(2, 4))),
                                  corrupt(swap(), b_dies=(3, 6))], ids=["host", "file", "device"])
def test_what_is_read_after_its_death_is_nan(plan: Plan) -> None:
    assert np.isfinite(run(load(plan), feeds(plan))["out"]).all()
    assert np.isnan(run(load(plan, poison=True), feeds(plan))["out"]).any()


def test_what_an_instruction_leaves_unwritten_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
        outs[0][:8] = ins[0][:8] + np.nansum(work._memory)

    m = Maker()
    data, a, scratch, out = (m.value(name) for name in ("data", "a", "scratch", "out"))
    m.fill(a, 0.5)
    m.run("t_first", (a, data), (out,), workspace=scratch)
    plan = m.plan((data,), (out,))
    monkeypatch.setattr(build.First, "compute", half)
    result = run(load(plan, poison=True), feeds(plan))["out"]
    assert result[:8].tolist() == [0.5] * 8, "scratch holds NaN before the instruction"
    assert np.isnan(result[8:]).all()


def test_a_death_waits_for_all_uses_and_later_uses_of_the_bytes_wait_for_it() -> None:
    """In `swap`, %1 is copied on one stream and read on another; instruction 6 waits for both, and 7 writes there."""
    found = deaths(swap())
    assert found[6] == [1]
    assert found[9] == [2]
    assert 6 not in [b for storages in found.values() for b in storages], "an output does not die"


def test_nearly_all_storages_of_random_plans_have_a_death() -> None:
    storages = dead = 0
    for seed in range(40):
        plan = random_plan(seed, 20)
        kept = {*(out.buffer for out in plan.outputs), *(b for t in plan.persistent for b in (t.first, t.last))}
        storages += sum(shares < 0 and b not in kept for b, shares in enumerate(plan.buffers.shares))
        dead += sum(map(len, deaths(plan).values()))
    assert dead > 0.8 * storages

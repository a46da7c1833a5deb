"""Plans of three streams on the CPU give the bits of the plan that shares nothing, whatever the timing."""
from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cpu import CpuDevice, Delay
from minigraph.inspection import stepwise
from minigraph.plan.plan import COMPUTE_STREAM, IN_STREAM, OUT_STREAM, Kind, Plan
from minigraph.plan.verify import verify
from tests.plan.build import Maker, corrupt, swap
from tests.plan.build import chain as one_stream
from tests.plan.failing import failure
from tests.plan.random_plans import random_plan
from tests.plan.test_verify_streams import skip

from .plans import chain, expected, feeds, in_file, load, run, same_bits, set_values

SLOW = [Delay(0), Delay(1, out_seconds=1e-3), Delay(2, in_seconds=1e-3), Delay(3, compute_seconds=1e-3),
        Delay(4, 1e-3, 1e-3, 5e-4)]


@pytest.mark.parametrize("distance", [0, 1, 3, 9])
@pytest.mark.parametrize("floats", [16, 700_000])
def test_a_swapped_chain_gives_the_bits_of_an_unswapped_one(distance: int, floats: int) -> None:
    plan = chain(8, distance, floats)
    verify(plan)
    given = feeds(plan)
    wanted = expected(plan, given)
    assert not np.isnan(wanted["out"]).any()
    for each in (plan, in_file(plan)):
        for poison in (False, True):
            program = load(each, poison=poison)
            for _ in range(3):
                assert same_bits(run(program, given), wanted)


@pytest.mark.parametrize("poison", [False, True])
def test_timing_instructions_one_by_one_gives_the_bits_of_a_run_and_a_time_for_each(poison: bool) -> None:
    swapping, plain = chain(8, 1), one_stream()
    for plan in (swapping, in_file(swapping), plain):
        given, program = feeds(plan), load(plan, poison=poison)
        set_values(program, given)
        ticks = iter(range(10**6))
        seconds = program.times(lambda ticks=ticks: float(next(ticks)))
        assert len(seconds) == len(plan) and all(each > 0 for each in seconds)
        wanted = expected(plan, given)
        assert all(np.array_equal(program.array(b), wanted[name]) for name, b in plan.outputs)


@pytest.mark.parametrize("space", ["host", "file"])
@pytest.mark.parametrize("slow", SLOW, ids=["none", "out", "in", "compute", "all"])
def test_no_timing_changes_a_bit(space: str, slow: Delay) -> None:
    chance = random.Random(slow.seed)
    for seed in range(50):
        plan = chain(8, chance.choice((0, 1, 3, 9)))
        plan = in_file(plan) if space == "file" else plan
        given = feeds(plan, seed)
        program = load(plan, CpuDevice(delay=replace(slow, seed=seed)), poison=seed % 2 == 1)
        assert same_bits(run(program, given), expected(plan, given))


@pytest.mark.parametrize("poison", [False, True])
def test_random_plans_packed_tightly_give_the_bits_of_plans_that_share_nothing(poison: bool) -> None:
    swaps = 0
    for seed in range(60):
        plan = random_plan(seed, 20)
        verify(plan)
        swaps += plan.instructions.kind.count(Kind.COPY_IN)
        given = feeds(plan, seed)
        for each in (plan, in_file(plan)):
            program = load(each, CpuDevice(delay=Delay(seed, 3e-4, 3e-4, 2e-4)), poison=poison)
            for _ in range(2):
                assert same_bits(run(program, given), expected(plan, given))
    assert swaps > 20


def waits(plan: Plan, stream: int, kind: Kind, at: int) -> list[int]:
    """Waits of a stream for events of stream `at` that follow a copy or computation of a kind."""
    code = plan.instructions
    after = {code.event[i]: max(j for j in range(i) if code.stream[j] == at and code.kind[j] < Kind.RECORD)
             for i in range(len(plan)) if code.kind[i] == Kind.RECORD and code.stream[i] == at}
    return [i for i in range(len(plan)) if code.kind[i] == Kind.WAIT and code.stream[i] == stream
            and code.kind[after.get(code.event[i], i)] == kind]


@pytest.mark.parametrize("stream, kind, at, slow", [
    (OUT_STREAM, Kind.COMPUTE, COMPUTE_STREAM, Delay(0, compute_seconds=5e-3)),
    (COMPUTE_STREAM, Kind.COPY_OUT, OUT_STREAM, Delay(0, out_seconds=5e-3)),
    (IN_STREAM, Kind.COPY_OUT, OUT_STREAM, Delay(0, out_seconds=5e-3)),
    (COMPUTE_STREAM, Kind.COPY_IN, IN_STREAM, Delay(0, in_seconds=5e-3)),
    (IN_STREAM, Kind.COMPUTE, COMPUTE_STREAM, Delay(0, compute_seconds=5e-3)),
], ids=["out for compute", "compute for out", "in for out", "compute for in", "in for compute"])
def test_a_dropped_wait_gives_wrong_results_when_copies_are_slow_and_only_the_verifier_tells(
        stream: int, kind: Kind, at: int, slow: Delay) -> None:
    right = chain(8, 1)
    broken, given = right, feeds(right)
    for i in waits(right, stream, kind, at):
        broken = skip(broken, i)
    assert "does not wait for" in str(failure(broken))
    results = [run(load(broken, CpuDevice(delay=replace(slow, seed=seed))), given) for seed in range(5)]
    assert not all(same_bits(result, expected(right, given)) for result in results)


def test_a_plan_without_copies_runs_on_the_calling_thread_in_the_plain_loop() -> None:
    plan = one_stream()
    given = feeds(plan)
    program = load(plan, CpuDevice(delay=Delay(0, 1.0, 1.0, 1.0)))
    assert len(program._calls) == 0 and same_bits(run(program, given), expected(plan, given))
    assert len(program._calls) == len(plan)


def test_fills_and_computations_on_copy_streams_run() -> None:
    m = Maker()
    data, a, b, out = (m.value(name) for name in ("data", "a", "b", "out"))
    m.fill(a, 0.5)
    m.run("t_unary", (data,), (b,), stream=OUT_STREAM)
    m.record(0, OUT_STREAM)
    m.wait(0)
    m.run("t_binary", (a, b), (out,))
    plan = m.plan((data,), (out,))
    verify(plan)
    given = feeds(plan)
    for poison in (False, True):
        assert same_bits(run(load(plan, poison=poison), given), expected(plan, given))


def test_ranges_run_one_by_one_down_to_single_instructions() -> None:
    plan = chain(6, 2)
    given, wanted = feeds(plan), expected(plan, feeds(plan))
    middle = len(plan) // 2
    halves = replace(plan, ranges={"forward": (0, middle), "backward": (middle, len(plan))})
    for each in (halves, stepwise(plan)):
        for poison in (False, True):
            assert same_bits(run(load(each, poison=poison), given), wanted)


def test_programs_of_one_memory_take_turns_and_find_their_arenas_again_when_these_grow() -> None:
    device = CpuDevice()
    memory = device.memory()
    small, large = chain(4, 1), chain(8, 3, 5000)
    first = load(small, memory=memory)
    assert same_bits(run(first, feeds(small)), expected(small, feeds(small)))
    second = load(large, memory=memory)
    for _ in range(2):
        assert same_bits(run(second, feeds(large)), expected(large, feeds(large)))
        assert same_bits(run(first, feeds(small)), expected(small, feeds(small)))


def test_a_wait_that_would_never_end_is_refused_when_loading() -> None:
    with pytest.raises(MXNetError, match="instruction 6 waits for event 77, which no instruction before it records"):
        load(corrupt(swap(), i_event=(6, 77)))


def test_an_unknown_range_is_refused_by_name() -> None:
    with pytest.raises(MXNetError, match="no range 'eval'; it has step"):
        load(swap()).run("eval")

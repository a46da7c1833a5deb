"""Plans that map pages of the transient arena: the same bits as without, and pages that nobody else gets to change."""
from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph import programs
from minigraph.base import align
from minigraph.binding import moved_up
from minigraph.device.cpu import CpuDevice, Delay
from minigraph.device.cpu.poison import deaths
from minigraph.inspection import stepwise
from minigraph.plan.plan import IN_STREAM, OUT_STREAM, Plan
from minigraph.plan.verify import verify
from tests import training
from tests.plan.build import Maker
from tests.plan.build import chain as one_stream
from tests.plan.random_plans import packed, random_plan
from tests.random_graphs import random_case, results, seeds

from .mapping import PAGE_BYTES, remapped
from .plans import chain, expected, feeds, in_file, load, run, same_bits

pytestmark = pytest.mark.skipif(not CpuDevice().page_bytes, reason="this system maps no pages")
FLOATS = 2000
BYTES = np.dtype(np.uint8)


@contextmanager
def _everything_mapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plan]]:
    """Inside, all programs that are compiled for executors have their pages permuted; gives the rewritten plans."""
    compile_program: Callable[..., Plan] = programs.compile_program
    made: list[Plan] = []

    def compile_and_remap(*arguments: Any) -> Plan:
        made.append(remapped(compile_program(*arguments), len(made)))
        return made[-1]

    with monkeypatch.context() as patch:
        patch.setattr(programs, "compile_program", compile_and_remap)
        yield made


# -- the same bits ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("poison", [False, True])
def test_a_plan_of_one_stream_gives_the_same_bits_with_its_pages_permuted(poison: bool) -> None:
    plan = one_stream()
    given = feeds(plan)
    for seed in range(4):
        assert same_bits(run(load(remapped(plan, seed), poison=poison), given), expected(plan, given))


@pytest.mark.parametrize("space", ["host", "file"])
@pytest.mark.parametrize("distance", [0, 3])
def test_swapping_from_and_to_mapped_bytes_gives_the_same_bits_whatever_the_timing(space: str, distance: int) -> None:
    plan = chain(8, distance, FLOATS) if space == "host" else in_file(chain(8, distance, FLOATS))
    given, wanted = feeds(plan), expected(plan, feeds(plan))
    for seed in range(6):
        moved = remapped(plan, seed)
        verify(moved)
        assert moved.planned_bytes - plan.planned_bytes < PAGE_BYTES
        for poison in (False, True):
            program = load(moved, CpuDevice(delay=Delay(seed, 1e-3, 1e-3, 1e-3)), poison=poison)
            for _ in range(2):
                assert same_bits(run(program, given), wanted)


def test_random_plans_of_three_streams_give_the_same_bits() -> None:
    for seed in range(25):
        plan = packed(random_plan(seed, 20))
        given = feeds(plan)
        for poison in (False, True):
            assert same_bits(run(load(remapped(plan, seed), poison=poison), given), expected(plan, given))


@pytest.mark.parametrize("seed", seeds()[:8])
def test_random_networks_train_to_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(seed)

    def trained() -> dict[str, bytes]:
        return results(case, case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, poison=True, **case.shapes),
                       seed)

    plain = trained()
    with _everything_mapped(monkeypatch) as made:
        assert trained() == plain
    assert any(plan.page_bytes for plan in made)


@pytest.mark.parametrize("options", [{}, {"memory": "vdnn_all", "host_budget": "1GiB"}], ids=["plain", "swapping"])
def test_a_module_trains_evaluates_and_looks_inside_by_mapped_plans(
        options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, evaluation, forward and backward with an update behind, another batch size, and back again."""
    def trained() -> dict[str, np.ndarray]:
        mod = training.prepared(training.mlp(dropout=0.3, norm=True), **options)
        for batch in training.batches():
            mod.forward_backward(batch)
            mod.update()
        shown = {f"{k} {name}": array.asnumpy() for k, batch in enumerate(training.batches(2, 4))
                 for name, array in zip("ab", _outputs(mod, batch), strict=False)}
        shown["accuracy"] = np.array(mod.score(training.iterator(), "acc")[0][1])
        return {**training.everything(mod), **shown}

    plain = trained()
    with _everything_mapped(monkeypatch) as made:
        training.assert_same(trained(), plain)
    assert len({plan.program for plan in made if plan.page_bytes}) > 2


def _outputs(mod: Any, batch: Any) -> list[Any]:
    mod.forward(batch, is_train=False)
    return mod.get_outputs()


def test_an_executor_looks_inside_a_mapped_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with _everything_mapped(monkeypatch):
        made = training.executor(training.mlp(), {"data": (8, 6)})
        for name, array in made.arg_dict.items():
            array[:] = 0.5 if name != "data" else np.nan
        made.forward(is_train=True)
        assert "fc1" in str(made.find_nonfinite())
        made.arg_dict["data"][:] = 1
        assert made.check_modes("naive").programs
        assert len(made.profile(1).events) > 0


# -- groups and arenas --------------------------------------------------------------------------------------------
def test_a_transient_arena_that_grows_is_shown_by_what_was_mapped_before() -> None:
    device = CpuDevice()
    here = device.memory()
    small, large = remapped(chain(4, 1, FLOATS), 1), remapped(chain(8, 3, 3 * FLOATS), 2)
    first = load(small, memory=here)
    given, wanted = feeds(small), expected(small, feeds(small))
    assert same_bits(run(first, given), wanted)
    second = load(large, memory=here)
    for _ in range(2):
        assert same_bits(run(second, feeds(large)), expected(large, feeds(large)))
        assert same_bits(run(first, given), wanted)
    here.reserve(10 * PAGE_BYTES, 0)
    given["weight"] += 1
    assert same_bits(run(first, given), expected(small, given))


def test_a_program_that_maps_pages_and_one_that_does_not_share_a_group() -> None:
    plan = chain(4, 1, FLOATS)
    given, wanted = feeds(plan), expected(plan, feeds(plan))
    here = CpuDevice().memory()
    plain = load(plan, memory=here)
    assert same_bits(run(plain, given), wanted)
    generation = here.generation
    mapped = load(remapped(plan), memory=here)
    assert here.generation > generation
    for program in (mapped, plain, mapped):
        assert same_bits(run(program, given), wanted)
    generation = here.generation
    here.reserve(0, PAGE_BYTES + 1, PAGE_BYTES)
    assert here.generation == generation


def test_two_groups_have_pages_of_their_own() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    first, second = load(plan), load(plan)
    one, other = feeds(plan, 1), feeds(plan, 2)
    wanted = run(first, one)
    assert same_bits(run(second, other), expected(plan, other))
    assert same_bits({name: first.array(b).copy() for name, b in plan.outputs},
                     {name: wanted[name] for name, _ in plan.outputs})


def test_mapped_pages_take_the_planned_bytes_once_and_are_counted_as_arrays_are() -> None:
    plan = remapped(chain(8, 1, 300_000))
    planned = plan.planned_bytes + plan.arena_bytes("host")
    given = feeds(plan)
    for _ in range(2):  # what is imported and cached on first use is no part of a program
        tracemalloc.start()
        program = load(plan)
        for name in plan.inputs:
            program.feed(name, given[name])
        program.run("step")
        peak = tracemalloc.get_traced_memory()[1]
        del program
        left = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    assert planned <= peak <= planned + 64 * 1024
    assert left < 64 * 1024


def test_a_plan_moved_up_shows_pages_as_much_higher() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    moved = moved_up(plan, 64)
    assert moved.arenas[1].bytes == plan.arenas[1].bytes + PAGE_BYTES
    assert moved.arenas[-1].name != plan.arenas[-1].name
    for b in range(len(plan.buffers)):
        assert moved.pieces(b) == [(k, offset + (k == 1) * PAGE_BYTES, size) for k, offset, size in plan.pieces(b)]
    assert replace(moved, arenas=plan.arenas, buffers=plan.buffers) == plan


# -- poison ----------------------------------------------------------------------------------------------------
def test_after_a_poisoned_run_nothing_but_outputs_is_left_in_any_page() -> None:
    for seed in range(4):
        plan = remapped(chain(8, 2, FLOATS), seed)
        program = load(plan, CpuDevice(delay=Delay(0, 1e-3, 1e-3, 1e-3)), poison=True)
        wanted = expected(plan, feeds(plan))["out"]
        assert np.array_equal(run(program, feeds(plan))["out"], wanted)
        program.array(dict(plan.outputs)["out"]).view(np.uint8)[:] = 0xFF
        assert (program.memory.view("transient", 0, (plan.arenas[1].bytes,), BYTES) == 0xFF).all()


def test_dead_storages_of_one_stream_are_poisoned_wherever_they_lie() -> None:
    m = Maker()
    first = value = m.value("data", FLOATS)
    for k in range(6):
        value, before = m.value(f"a{k}", FLOATS, at=(k % 3 + 1) * align(4 * FLOATS)), value
        m.run("t_dense", (before, first if k < 3 else before), (value,))
    plan = remapped(m.plan((first,), (value,)), 1)
    program = load(plan, poison=True)
    assert np.array_equal(run(program, feeds(plan))["a5"], expected(plan, feeds(plan))["a5"])
    program.array(value).view(np.uint8)[:] = 0xFF
    assert (program.memory.view("transient", 0, (plan.arenas[1].bytes,), BYTES) == 0xFF).all()


def test_poison_before_a_program_spares_inputs_wherever_they_lie_and_what_lies_below_the_plan() -> None:
    for seed in range(4):
        plan = moved_up(remapped(one_stream(), seed), PAGE_BYTES)
        program = load(plan, poison=True)
        below = program.memory.view("transient", 0, (PAGE_BYTES,), BYTES)
        below[:] = 5
        given = feeds(plan)
        assert same_bits(run(program, given), expected(plan, given))
        assert (below == 5).all()


def test_deaths_of_storages_are_found_by_the_bytes_of_memory_that_they_share() -> None:
    """What is copied in over `a` waits for both uses of it, but not for the instruction at which they have met."""
    m = Maker()
    data, a, host, b = m.value("data"), m.value("a"), m.value("host", arena="host"), m.value("b")
    back, out = m.value("back", at=m.buffers.offset[a]), m.value("out")
    m.run("t_unary", (data,), (a,))
    m.record(0)
    m.wait(0, OUT_STREAM)
    m.copy_out(a, host)
    m.record(1, OUT_STREAM)
    m.run("t_unary", (a,), (b,))
    m.record(2)
    m.wait(1, free=(a,))
    for event in (1, 2):
        m.wait(event, IN_STREAM)
    m.copy_in(host, back)
    m.record(3, IN_STREAM)
    m.wait(3)
    m.run("t_binary", (b, back), (out,))
    plan = m.plan((data,), (out,))
    verify(plan)
    for seed in range(8):
        found = deaths(remapped(plan, seed))
        assert found == deaths(plan) and a not in [root for roots in found.values() for root in roots]


def test_single_instructions_run_over_mapped_arenas() -> None:
    plan = chain(6, 2, FLOATS)
    for poison in (False, True):
        program = load(stepwise(remapped(plan)), poison=poison)
        assert same_bits(run(program, feeds(plan)), expected(plan, feeds(plan)))

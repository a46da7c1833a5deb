"""Mapped arenas on the GPU: the bits of the plain plan under every schedule, no race, the bytes that were planned, and
nothing left when programs and groups are gone."""
from __future__ import annotations

import gc
import sys
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError, OutOfMemoryError, align
from minigraph.device.cuda import DeviceMemoryError, cuda_device
from minigraph.device.cuda.allocator import ALIGNMENT
from minigraph.device.cuda.virtual import VirtualMemory
from minigraph.executor import Executor
from minigraph.memory.packing import Solution
from minigraph.optimizer import SGD
from minigraph.passes import pack
from minigraph.plan.plan import Plan
from tests.plan.build import swap
from tests.plan.mapping import mapped

from .plans import device, line, load, output, step, without
from .processes import SCHEDULES, counters, run, spawn
from .test_driver import in_child
from .test_memory_policies import as_bytes, batches, bind, options_of

PAGE = 4096
MIB = 1 << 20
FLOAT = np.dtype(np.float32)
SMALL = {"SOFTCUDA_PAGE": PAGE, "SOFTCUDA_RACE": 1, "SOFTCUDA_ORDER": "random"}
CASES = [("step", "plain", {}), ("step", "plain", {"graph": True}), ("step", "auto with swaps", {"poison": True}),
         ("train", "vdnn_all", {}), ("train", "vdnn_all", {"graph": True}), ("train", "sublinear", {"poison": True})]
"""Program, policy, and how to run it."""
WAYS: list[dict[str, Any]] = [{}, {"poison": True}, {"graph": True}]


def live() -> tuple[int, ...]:
    """Device bytes by the driver, the pool's in use and reserved, and its ranges and pages of virtual memory."""
    gc.collect()
    cuda_device(0).trim()
    pool, virtual = cuda_device(0).pool, cuda_device(0).virtual
    return counters()["bytes_live"], pool.used_bytes, pool.reserved_bytes, len(virtual._ranges), len(virtual._pages)


NOTHING = [0, 0, 0, 0, 0]


def remapped(plan: Plan, seed: int) -> Plan:
    """The plan with its pages in a random order, and mapped arenas of names that no other seed has."""
    made = mapped(plan, seed, PAGE)
    return replace(made, arenas=tuple(replace(arena, name=f"{arena.name}-{seed}") if arena.space == "mapped" else arena
                                      for arena in made.arenas))


# -- networks ------------------------------------------------------------------------------------------------------

def trained(exe: Executor, program: str) -> list[bytes]:
    """What steps leave."""
    optimizer, found = SGD(learning_rate=0.1, momentum=0.9), []
    for batch in batches():
        if program == "step":
            found += [o.asnumpy() for o in exe.step(optimizer.control, **batch)]
        else:
            found += [o.asnumpy() for o in exe.forward(is_train=True, **batch)]
            exe.backward()
            found += [g.asnumpy() for g in exe.grad_dict.values() if g is not None]
    return as_bytes(found + [a.asnumpy() for a in (*exe.arg_arrays, *exe.aux_arrays)])


def ready(**options: Any) -> Executor:
    exe = bind(**options)
    exe.set_updater(SGD(learning_rate=0.1, momentum=0.9))
    return exe


def in_pieces(program: str, policy: str, seed: int, variant: dict[str, Any]) -> Executor:
    """An executor that runs the policy's plan with its pages in a random order."""
    plan = ready(**({} if policy == "plain" else options_of(policy, program))).program(program).plan
    exe = ready(memory="vdnn_all", host_budget="1GiB", **variant)
    exe.use_plan(program, remapped(plan, seed))
    return exe


def same_bits(cases: int) -> tuple[list[str], int, tuple[int, ...]]:
    plain = {program: trained(ready(), program) for program in ("step", "train")}
    differ = [f"{program} {policy} {variant}" for seed, (program, policy, variant) in enumerate(CASES[:cases])
              if trained(in_pieces(program, policy, seed, variant), program) != plain[program]]
    return differ, counters()["races"], live()


def test_plans_whose_tensors_lie_in_pieces_give_the_bits_of_the_plain_one_and_leave_nothing():
    assert run(same_bits, len(CASES), SOFTCUDA_SCHED="lazy", **SMALL) == [[], 0, NOTHING]


def separately() -> tuple[list[str], int]:
    return same_bits(3)[0], cuda_device(0).page_bytes


def test_with_an_allocation_for_each_tensor_no_page_is_mapped_and_a_mapped_plan_gives_the_same_bits():
    assert run(separately, MINIGRAPH_CUDA_POOL="off", SOFTCUDA_ALIGN=64) == [[], 0]


def by_pages() -> list[Any]:
    """Steps under the least budgets of policies, where tensors in one piece reuse nothing: whether the bits are those
    of plain, the pages' bytes, what the pool counts beyond the plan, and whether the budget is kept."""
    plain, pool, found = trained(ready(), "step"), cuda_device(0).pool, []
    pack.pack = lambda problem, *_: Solution(problem.naive_offsets, problem.naive_bytes, "apart")
    for options in ({"memory": "auto", "graph": True}, {"memory": "vdnn_all", "host_budget": "1GiB"}):
        budget = least_budget(options)
        live()
        pool.peak_bytes = pool.used_bytes
        exe = ready(budget=budget, **options)
        same, (persistent, transient, *_) = trained(exe, "step") == plain, exe.plan.arenas
        counted = pool.peak_bytes - exe.group.memory.staging.device_bytes
        found.append([same, exe.plan.page_bytes, counted - align(persistent.bytes, ALIGNMENT) - transient.bytes,
                      exe.plan.planned_bytes <= budget])
        del exe
    return [found, counters()["races"], live()]


def least_budget(options: dict[str, Any]) -> int:
    with pytest.raises(OutOfMemoryError) as refused:
        ready(budget=1, **options).program("step")
    return refused.value.asked_bytes


def test_plans_by_pages_keep_their_budgets_to_the_byte_and_change_no_bit():
    assert run(by_pages, SOFTCUDA_SCHED="random", **SMALL) == [[[True, PAGE, 0, True]] * 2, 0, NOTHING]


# -- hand-made plans -----------------------------------------------------------------------------------------------

def swapping() -> tuple[list[list[float]], int]:
    device()
    programs = [load(remapped(swap(), 0), **options) for options in WAYS]
    return [[step(program, k)[0] for k in range(3)] for program in programs], counters()["races"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_copies_read_and_write_mapped_arenas_on_their_streams(schedule):
    assert run(swapping, SOFTCUDA_SCHED=schedule, **SMALL) == [[[0, 10, 20]] * len(WAYS), 0]


def without_waits() -> list[int]:
    device()
    races = [0]
    for wait in (2, 6, 8, 11):
        program = load(without(remapped(swap(), 0), wait))
        for k in range(3):
            step(program, k)
        races.append(counters()["races"])
    return [after - before for before, after in pairwise(races)]


def test_a_missing_wait_is_a_race_also_between_two_addresses_of_the_same_bytes():
    outcome = spawn(without_waits, SOFTCUDA_SCHED="lazy", **SMALL)
    assert outcome.error is None and all(outcome.result) and "RACE" in outcome.stderr


def grown() -> list[Any]:
    """An unmapped program in a graph, a mapped one that makes the arena one of pages, and growth after that."""
    device()
    plain, plan = load(line(5), graph=True), remapped(line(5, floats=3000), 3)
    memory, found = plain.memory, [step(plain, 1)[0]]
    memory.reserve(0, plan.arenas[1].bytes, PAGE)
    mapped = device().load(plan, memory, graph=True)
    found += [step(plain, 2)[0], stepped(mapped, 3)]
    before, kept, pages = memory.generation, output(mapped).tolist(), device().virtual._pages.copy()
    memory.reserve(0, 4 * plan.arenas[1].bytes - 5, PAGE)
    memory.reserve(0, PAGE, PAGE)
    moved, same = memory.generation > before, output(mapped).tolist() == kept
    found += [step(plain, 4)[0], stepped(mapped, 5)]
    memory.write("transient", 4 * plan.arenas[1].bytes - PAGE, np.ones(PAGE, np.uint8))
    used = device().pool.used_bytes - align(memory.staging.device_bytes, ALIGNMENT)
    return [*found, moved, same, pages <= device().virtual._pages, used == 4 * plan.arenas[1].bytes]


def stepped(program: Any, value: float) -> float:
    program.feed("data", np.full(3000, value, np.float32))
    program.run("step")
    result = output(program)
    assert (result == result[0]).all()
    return result[0].item()


def test_an_arena_becomes_one_of_pages_and_grows_without_moving_what_is_mapped():
    assert run(grown, SOFTCUDA_SCHED="lazy", **SMALL) == [32, 64, 96, 128, 160, False, True, True, True]


def in_one_group() -> list[Any]:
    device()
    plans = [remapped(line(3, floats=3000), seed) for seed in (3, 5)]
    memory = device().memory()
    memory.reserve(0, max(plan.arenas[1].bytes for plan in plans), PAGE)
    first, second, again = (device().load(plan, memory) for plan in (*plans, plans[0]))
    ranges = len(device().virtual._ranges)
    found = [stepped(program, k) for k, program in enumerate((first, second, again, first, second))]
    del first
    gc.collect()
    device().trim()
    kept = len(device().virtual._ranges)
    found.append(stepped(again, 7))
    del again
    gc.collect()
    device().trim()
    left = len(device().virtual._ranges)
    found += [stepped(second, 8), *(stepped(device().load(plans[0], memory), k) for k in range(9, 30))]
    memory.close()
    return [found == [8 * k for k in (0, 1, 2, 3, 4, *range(7, 30))], ranges, kept, left, live()]


def test_programs_of_one_group_share_equal_mapped_arenas_and_each_goes_with_its_last_program():
    assert run(in_one_group, **SMALL) == [True, 3, 3, 2, NOTHING]


# -- room ----------------------------------------------------------------------------------------------------------

def refused() -> list[Any]:
    memory = cuda_device(0).memory()
    memory.reserve(1024, 4 * MIB)
    memory.write("persistent", 0, np.arange(256, dtype=FLOAT))
    texts, pool = [], cuda_device(0).pool
    for nbytes in (40 * MIB, 6 * MIB, 40 * MIB, 8 * MIB, 15 * MIB):
        try:
            memory.reserve(1024, nbytes, 2 * MIB)
            texts.append(memory.arenas["transient"].nbytes // MIB)
        except DeviceMemoryError as error:
            texts.append((error.asked_bytes // MIB, "executors hold" in str(error)))
        memory.write("transient", 4 * MIB - 4, np.ones(1, FLOAT))
        assert memory.read("transient", 4 * MIB - 4, (1,), FLOAT).tolist() == [1]
    kept = bool((memory.read("persistent", 0, (256,), FLOAT) == np.arange(256)).all())
    held, peak = pool.reserved_bytes, counters()["bytes_peak"]
    memory.close()
    return [texts, kept, held // MIB, peak <= 16 * MIB, live(), cuda_device(0).page_bytes]


@pytest.mark.parametrize("limit", ["MINIGRAPH_CUDA_MEMORY", "SOFTCUDA_MEM"])
def test_pages_count_against_the_devices_memory_and_a_refusal_leaves_the_arenas_usable(limit):
    texts, kept, held, peak, left, page_bytes = run(refused, **{limit: "16M" if limit == "SOFTCUDA_MEM" else "16MiB"})
    assert texts == [[40, True], 6, [34, True], 8, [8, True]]
    assert kept and held == 8 + 2 and peak and left == NOTHING and page_bytes == 2 * MIB


def errors() -> list[str]:
    device()
    plan, other = (remapped(line(3, floats=3000), seed) for seed in (3, 5))
    memory, texts = device().memory(), []
    same_name = replace(plan, arenas=(*plan.arenas[:-1], replace(plan.arenas[-1], extents=other.arenas[-1].extents)))

    def paged() -> None:
        memory.reserve(0, plan.arenas[1].bytes, 2 * PAGE)

    for use in (lambda: memory.reserve(0, PAGE, PAGE + 1), lambda: memory.reserve(0, MIB),
                lambda: device().load(plan, memory), paged, lambda: device().load(plan, memory),
                lambda: [device().load(plan, memory), device().load(same_name, memory)],
                lambda: memory.read("mapped-x", 0, (1,), FLOAT)):
        try:
            use()
        except MXNetError as error:
            texts.append(str(error))
    return texts


def test_what_cannot_be_mapped_is_refused_in_one_sentence():
    size, unpaged, name, unknown = run(errors, **SMALL)
    assert "pages of 4097 bytes" in size and "maps pages of 4096 bytes and their multiples" in size
    assert "the transient arena, which is not made of pages; reserve it with page_bytes=4096 first" in unpaged
    assert "that show other pages; name each after its extents" in name
    assert "the mapped-x arena has 0 bytes" in unknown


def half_shown() -> list[Any]:
    """The driver refuses the third page of a range."""
    device()
    library, plan = device().virtual._library, remapped(line(3, floats=3000), 1)
    memory = device().memory()
    memory.reserve(0, plan.arenas[1].bytes, PAGE)
    before, counted = live(), 0
    cu_map = library._find("cuMemMap")

    def third(*arguments: Any) -> int:
        nonlocal counted
        counted += 1
        return 801 if counted == 3 else cu_map(*arguments)

    library._found["cuMemMap"] = third
    texts = []
    for use in (lambda: device().load(plan, memory), lambda: memory.reserve(0, 2 * plan.arenas[1].bytes, PAGE)):
        counted = 0
        try:
            use()
        except MXNetError as error:
            texts.append(str(error))
        assert live() == before
    library._found["cuMemMap"] = cu_map
    return [*texts, stepped(device().load(plan, memory), 1)]


def test_a_range_that_is_shown_in_part_only_goes_back_and_the_driver_s_reason_is_told():
    *texts, value = run(half_shown, **SMALL)
    assert len(texts) == 2 and value == 8
    for text in texts:
        assert text == ("the CUDA driver cannot map pages of device memory: cuMemMap failed with 801 (operation not "
                        "supported); compile the plan without mapped arenas")


# -- ends ----------------------------------------------------------------------------------------------------------

def alive(how: str) -> float:
    device()
    program = load(remapped(line(3, floats=3000), 1), graph=how == "graph")
    value = stepped(program, 2)
    sys.modules["kept"] = program
    if how == "cycle":
        del sys.modules["kept"]
        program.cycle = program
    if how == "fork":
        def forget() -> bool:
            nonlocal program
            del sys.modules["kept"], program
            return gc.collect() >= 0

        assert in_child(forget) == ("True", 0)
        value = stepped(program, 3)
    return value


@pytest.mark.parametrize(("how", "value"), [("graph", 16), ("cycle", 16), ("fork", 24)])
def test_a_process_ends_in_peace_with_mapped_arenas(how, value):
    assert run(alive, how, **SMALL) == value


# -- the granularity -----------------------------------------------------------------------------------------------

def test_a_device_without_virtual_memory_management_maps_no_pages():
    asked: list[int] = []

    def attribute(answer: Any, number: int, device: int) -> int:
        asked.append(number)
        return 0

    library = SimpleNamespace(cuDeviceGetAttribute=attribute)
    assert VirtualMemory(SimpleNamespace(library=library), 0).page_bytes == 0 and asked == [102]

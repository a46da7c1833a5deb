"""Memory of pages shown at several addresses: who sees it, for how long, and what is refused."""
from __future__ import annotations

import ctypes
import errno
import faulthandler
import gc
import mmap
import os

import numpy as np
import pytest

from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.device.cpu import CpuDevice, pages
from minigraph.device.cpu.pages import Pages
from tests import training

from .mapping import PAGE_BYTES, arena, mappings, memory, remapped
from .plans import chain, expected, feeds, load, run, same_bits

pytestmark = pytest.mark.skipif(not CpuDevice().page_bytes, reason="this system maps no pages")
FLOATS = 2000
BYTES = np.dtype(np.uint8)


# -- arenas ----------------------------------------------------------------------------------------------------
def test_a_mapped_arena_shows_its_extents_in_order_and_both_see_what_either_writes() -> None:
    here = memory()
    held = here.map(arena((2, 1), (3, 1), (0, 1), (2, 1)))
    whole = here.view("transient", 0, (4, PAGE_BYTES), BYTES)
    shown = here.view("mapped", 0, (4, PAGE_BYTES), BYTES)
    whole[:] = np.arange(4)[:, None]
    assert (shown == np.array([2, 3, 0, 2])[:, None]).all() and held.extents
    shown[1:] += 10
    assert (whole == np.array([10, 1, 12, 13])[:, None]).all()
    assert np.array_equal(shown[0], shown[3]), "one page, shown twice"
    here.write("mapped", 2 * PAGE_BYTES - 8, np.arange(4, dtype=np.float32))
    assert here.read("mapped", 2 * PAGE_BYTES - 8, (4,), np.dtype(np.float32)).tolist() == [0, 1, 2, 3]
    assert whole[3, -8:].view(np.float32).tolist() == [0, 1] and whole[0, :8].view(np.float32).tolist() == [2, 3]


def test_a_mapped_arena_is_there_for_as_long_as_somebody_holds_it_and_equal_ones_are_one() -> None:
    here = memory()
    before = mappings()
    first, second = here.map(arena((1, 1), (0, 1))), here.map(arena((1, 1), (0, 1)))
    assert first is second and mappings() == before + 2
    with pytest.raises(MXNetError, match="shows other pages than the plan has it show"):
        here.map(arena((0, 2)))
    del first, second
    assert mappings() == before
    assert here.map(arena((0, 2))).array.size == 2 * PAGE_BYTES


def test_extents_that_continue_each_other_take_one_mapping() -> None:
    here = memory()
    before = mappings()
    held = here.map(arena((0, 1), (1, 1), (2, 2)))
    assert mappings() == before + 1 and held.array.size == 4 * PAGE_BYTES


def test_views_of_results_outlive_program_arenas_and_memory() -> None:
    plans = (remapped(chain(4, 1, FLOATS), seed) for seed in range(20))
    plan = next(plan for plan in plans if plan.buffers.arena[dict(plan.outputs)["out"]] > 2)
    before, program = mappings(), load(plan)
    wanted = run(program, feeds(plan))["out"]
    view = program.array(dict(plan.outputs)["out"])
    program.memory.close()
    del program
    assert np.array_equal(view, wanted)
    view[:] = 1
    assert mappings() > before
    del view
    assert mappings() == before


def test_a_closed_memory_can_be_made_anew_for_the_programs_over_it() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    program = load(plan)
    program.memory.close()
    program.memory.reserve(plan.arenas[0].bytes, plan.arenas[1].bytes, plan.page_bytes)
    assert same_bits(run(program, feeds(plan)), expected(plan, feeds(plan)))


def test_twenty_loads_and_runs_leave_no_mapping_and_no_open_file_behind() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    run(load(plan), feeds(plan))
    before = mappings(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        run(load(plan), feeds(plan))
    assert (mappings(), len(os.listdir("/proc/self/fd"))) == before


# -- forks -----------------------------------------------------------------------------------------------------
def test_a_forked_child_is_refused_its_parents_pages_and_changes_none() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    program = load(plan)
    given = feeds(plan)
    wanted = run(program, given)
    for use in (lambda: program.run("step"), lambda: program.array(dict(plan.outputs)["out"]),
                lambda: program.feed("data", given["data"]), lambda: load(remapped(plan, 1), memory=program.memory)):
        assert "belong to the process" in training.in_a_forked_child(use)
    assert training.in_a_forked_child(lambda: program.array(plan.persistent[0].first)) == "nothing"
    assert np.array_equal(program.array(dict(plan.outputs)["out"]), wanted["out"])
    assert same_bits(run(program, given), wanted)


def test_a_forked_child_may_bind_and_map_for_itself() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    program = load(plan)
    wanted = run(program, feeds(plan))

    def child() -> None:
        assert same_bits(run(load(plan), feeds(plan)), wanted)

    assert training.in_a_forked_child(child) == "nothing"
    assert np.array_equal(program.array(dict(plan.outputs)["out"]), wanted["out"])


def test_an_array_that_a_forked_child_kept_ends_it_at_the_first_access() -> None:
    here = memory()
    held = here.map(arena((1, 1), (0, 1)))
    for kept in (held.array, here.view("transient", 0, (PAGE_BYTES,), BYTES)):
        child = os.fork()
        if child == 0:
            faulthandler.disable()
            kept[0] = 1
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) < 0
    assert not here.view("transient", 0, (4 * PAGE_BYTES,), BYTES).any()


def test_a_child_of_which_python_does_not_know_is_kept_from_the_pages_and_from_giving_back_their_addresses() -> None:
    here = memory()
    held = [here.map(arena((1, 1), (0, 1)))]
    address = held[0].array.ctypes.data

    def write() -> None:
        held[0].array[0] = 1

    def give_back() -> None:
        for _ in range(2):
            ctypes.memset(address, 1, PAGE_BYTES)  # what the child itself has there
            held.clear()

    own = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    for use, ends_well in ((write, False), (give_back, True)):
        child = ctypes.pythonapi.fork()
        if child == 0:
            faulthandler.disable()
            if ends_well:
                pages._mmap(address, PAGE_BYTES, own[0], own[1] | pages._MAP_FIXED, -1, 0)
            use()
            os._exit(0)
        assert (os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0) == ends_well
    assert not here.view("transient", 0, (4 * PAGE_BYTES,), BYTES).any()


def test_a_forked_child_gives_nothing_back_that_it_does_not_have() -> None:
    here = memory()
    held = [here.map(arena((1, 1), (0, 1)))]

    def child() -> None:
        held.clear()
        here.close()
        gc.collect()

    assert training.in_a_forked_child(child) == "nothing"
    held[0].array[:] = 3
    assert (here.view("transient", 0, (2 * PAGE_BYTES,), BYTES) == 3).all()


# -- refusals --------------------------------------------------------------------------------------------------
def test_pages_of_another_size_are_refused() -> None:
    with pytest.raises(MXNetError, match=rf"maps pages of \d+ bytes, and this system maps multiples of {PAGE_BYTES} b"):
        CpuDevice().memory().reserve(0, 6 * PAGE_BYTES, PAGE_BYTES + PAGE_BYTES // 2)


def test_a_system_that_maps_no_pages_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    pages.least_page_bytes.cache_clear()
    try:
        assert CpuDevice().page_bytes == 0
        with pytest.raises(MXNetError, match="this system maps none"):
            CpuDevice().memory().reserve(0, PAGE_BYTES, PAGE_BYTES)
    finally:
        pages.least_page_bytes.cache_clear()


@pytest.mark.parametrize("extents", [((4, 1),), ((3, 2),), ((-1, 1),), ((0, 0),)])
def test_extents_outside_of_the_transient_arena_are_refused(extents: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(MXNetError, match="arena 'mapped' shows bytes .* which must be whole pages of"):
        memory(4).map(arena(*extents))


def test_a_plan_that_maps_pages_is_refused_over_a_transient_arena_without() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    here = CpuDevice().memory()
    here.reserve(plan.arenas[0].bytes, plan.arenas[1].bytes)
    with pytest.raises(MXNetError, match=f"reserve with page_bytes={PAGE_BYTES}"):
        CpuDevice().load(plan, here)


def test_no_room_for_pages_is_an_error_that_leaves_what_there_was() -> None:
    plan = remapped(chain(4, 1, FLOATS))
    program = load(plan)
    for page_bytes in (PAGE_BYTES, 0):
        with pytest.raises(OutOfMemoryError, match="the host has no 1048576.00 GiB for an arena"):
            program.memory.reserve(0, 1 << 50, page_bytes)
        assert same_bits(run(program, feeds(plan)), expected(plan, feeds(plan)))
    plain = load(chain(4, 1))
    with pytest.raises(OutOfMemoryError):
        plain.memory.reserve(0, 1 << 50, PAGE_BYTES)
    assert same_bits(run(plain, feeds(chain(4, 1))), expected(chain(4, 1), feeds(chain(4, 1))))


def test_memory_that_the_system_refuses_to_set_aside_is_told_when_it_is_reserved(
        monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutOfMemoryError, match="the host has no .* for an arena"):
        Pages(4 * PAGE_BYTES)


@pytest.mark.parametrize("error, wanted", [
    (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MXNetError), (KeyboardInterrupt(), KeyboardInterrupt)],
    ids=["files", "interrupt"])
def test_pages_that_cannot_be_made_say_why_and_leave_programs_that_run(
        error: BaseException, wanted: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise error

    plan = chain(4, 1)
    program = load(plan)
    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(wanted) as caught:
        program.memory.reserve(0, PAGE_BYTES, PAGE_BYTES)
    if wanted is MXNetError:
        assert "makes no memory of pages that can be mapped (Too many open files)" in str(caught.value)
    assert same_bits(run(program, feeds(plan)), expected(plan, feeds(plan)))


def test_more_mappings_than_the_system_allows_are_one_clear_error() -> None:
    here = memory(3)
    with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
        most = int(file.read())
    if most > 1 << 17:
        pytest.skip("this system allows too many mappings to try them all")
    before = mappings()
    with pytest.raises(MXNetError, match=rf"shows {most} separate pieces .*may have {most} in all"):
        here.map(arena(*((k % 2 * 2, 1) for k in range(most)), name="many"))
    assert mappings() == before

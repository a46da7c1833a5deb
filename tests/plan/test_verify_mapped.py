"""The verifier on mapped arenas: what must not be shared are bytes of memory, by whatever addresses they are seen."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigraph.plan.plan import OUT_STREAM, Arena, Extent, Output, Plan
from minigraph.plan.verify import VerificationError, verify

from .build import Maker, chain, corrupt, mapped_arena, scattered, training
from .failing import assert_names, failure
from .mapping import mapped, remapping
from .oracle import faults, play
from .random_plans import corruption, random_plan

seeds = st.integers(0, 10**6)
PAGE = 64


def with_arena(plan: Plan, k: int, **changes: Any) -> Plan:
    """The plan with an arena changed."""
    return replace(plan, arenas=tuple(replace(arena, **changes) if number == k else arena
                                      for number, arena in enumerate(plan.arenas)))


# -- random plans ------------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(seeds, seeds)
def test_random_right_plans_over_shuffled_pages_are_verified_and_run_right(seed: int, change: int) -> None:
    plan = mapped(random_plan(seed), change)
    assert faults(plan) == []
    verify(plan)
    assert [play(plan, k) for k in range(2)] == [0, 0]


@settings(max_examples=300, deadline=None)
@given(seeds, seeds, st.sampled_from([remapping, remapping, corruption]))
def test_a_change_is_caught_exactly_when_it_matters(seed: int, change: int, by: Callable[[Plan, int], Plan]) -> None:
    plan = by(mapped(random_plan(seed), seed), change)
    wrong = faults(plan)
    try:
        verify(plan)
    except VerificationError as error:
        assert wrong, f"refused without a reason: {error}"
    else:
        assert wrong == []
        assert [play(plan, k) for k in range(2)] == [0, 0]


def test_changes_are_both_caught_and_let_pass() -> None:
    """The property above is not empty, and its plans have buffers in several pieces."""
    plans = [mapped(random_plan(seed), seed) for seed in range(60)]
    caught = [bool(faults(remapping(plan, seed))) for seed, plan in enumerate(plans)]
    assert 15 < sum(caught) < 50
    assert sum(len(plan.pieces(b)) > 1 for plan in plans for b in range(len(plan.buffers))) > 100


# -- single plans -----------------------------------------------------------------------------------------------
def test_a_value_in_two_pieces_whose_memory_is_used_again_by_other_addresses_is_right() -> None:
    plan = scattered()
    assert faults(plan) == []
    verify(plan)
    assert plan.pieces(1) == [(1, 192, 64), (1, 64, 64)]
    assert plan.pieces(3) == [(1, 64, 64)]


def test_a_live_piece_that_is_overwritten_by_another_address_is_caught() -> None:
    error = failure(corrupt(scattered(), b_dies=(1, 4)))  # `a`, whose second page is that of `b`
    assert_names(error, (0, 2), byte_range=(64, 128))
    assert "which is needed until" in str(error)


def test_an_output_whose_pieces_were_taken_is_caught_at_the_first_of_them() -> None:
    plan = scattered()
    error = failure(replace(plan, outputs=(*plan.outputs, Output("a", 1))))
    assert_names(error, (3, 5), byte_range=(192, 256))
    assert "but its bytes hold buffer 4 'c'" in str(error)


def test_an_instruction_that_writes_over_the_second_piece_of_an_input_is_caught() -> None:
    extents = (Extent(192, 64), Extent(128, 64), Extent(192, 64), Extent(0, 64))
    error = failure(with_arena(scattered(), 3, extents=extents))  # the second page of `a` is that of `kept`
    assert_names(error, (0, 1), byte_range=(128, 192))
    assert "overlapping bytes" in str(error)


def test_two_inputs_in_one_page_by_different_addresses_are_caught() -> None:
    m = Maker(extents=((0, 64),))
    left, right, out = m.value("left", at=0), m.value("right", arena="mapped"), m.value("out", at=64)
    m.run("t_binary", (left, right), (out,))
    assert_names(failure(m.plan(inputs=(left, right), outputs=(out,))), (-1, -1), byte_range=(0, 64))


@pytest.mark.parametrize("stated", [False, True])
def test_in_place_by_another_address_is_refused(stated: bool) -> None:
    m = Maker(extents=((128, 64), (64, 64)))
    data, a = m.value("data"), m.value("a", 32, arena="mapped")
    out, more = m.value("out", at=64), m.value("more", at=192)
    m.run("t_dense", (data, data), (a,))
    m.run("t_dense", (a, a), (out,))
    m.run("t_dense", (out, out), (more,))
    plan = m.plan(inputs=(data,), outputs=(more,))
    plan.buffers.shares[out] = a if stated else -1
    error = failure(plan)
    assert_names(error, (0, 1), byte_range=(64, 128))
    assert ("does not lie inside" if stated else "does not allow") in str(error)


def test_in_place_at_the_same_addresses_of_a_mapped_arena_is_right() -> None:
    m = Maker(extents=((192, 64), (64, 64)))
    data, a = m.value("data"), m.value("a", 32, arena="mapped")
    b = m.value("b", 32, over=a)
    half, out = m.value("half", over=b, view=True, at=64), m.value("out", at=256)
    m.run("t_dense", (data, data), (a,))
    m.run("t_unary", (a,), (b,))
    m.run("t_unary", (half,), (out,))
    plan = m.plan(inputs=(data,), outputs=(out,))
    verify(plan)
    assert faults(plan) == []
    assert "not stated by `shares`" in str(failure(corrupt(plan, b_shares=(b, -1))))


def test_a_buffer_that_sees_a_page_twice_is_refused() -> None:
    plan = with_arena(scattered(), 3, extents=(Extent(192, 64), Extent(192, 64), Extent(64, 64), Extent(0, 64)))
    error = failure(plan)
    assert_names(error, (0,), byte_range=(192, 256))
    assert "at two addresses" in str(error)


def test_a_workspace_over_a_piece_of_an_operand_is_refused() -> None:
    m = Maker(extents=((128, 64), (64, 64)))
    data, a = m.value("data"), m.value("a", 32, arena="mapped")
    scratch = m.value("scratch", at=64, buffer_class="workspace")
    m.run("t_dense", (data, data), (a,), workspace=scratch)
    error = failure(m.plan(inputs=(data,), outputs=(a,)))
    assert "workspace" in str(error) and error.byte_range == (64, 128) and error.arena == "transient"


def test_copies_go_from_and_to_mapped_arenas_and_wait_for_their_pieces() -> None:
    m = Maker(extents=((192, 64), (64, 64)))
    data, a, host = m.value("data"), m.value("a", 32, arena="mapped"), m.value("host", 32, arena="host")
    b, back = m.value("b", at=64), m.value("back", 32, arena="mapped", at=0)
    m.run("t_dense", (data, data), (a,))
    m.record(0)
    m.wait(0, OUT_STREAM)
    m.copy_out(a, host)
    m.record(1, OUT_STREAM)
    free = m.wait(1, free=(a,))
    m.run("t_dense", (data, data), (b,))
    m.copy_in(host, back, stream=0)
    m.run("t_dense", (back, data), (m.value("out", at=256),))
    plan = m.plan(inputs=(data,), outputs=(5,))
    verify(plan)
    assert faults(plan) == []
    error = failure(corrupt(plan, i_kind=(free, 4), i_event=(free, 9)))
    assert_names(error, (3, 6), byte_range=(64, 128))
    assert "does not wait for" in str(error)


# -- forms -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("k", "changes", "told"), [
    (3, {"page_bytes": 0}, "pages of 0 bytes; they must have a multiple of 64"),
    (3, {"page_bytes": -64}, "pages of -64 bytes; they must have a multiple of 64"),
    (3, {"page_bytes": 96}, "pages of 96 bytes; they must have a multiple of 64"),
    (3, {"page_bytes": 128}, "the transient arena 320 bytes; they must be whole pages"),
    (3, {"page_bytes": 1 << 62}, "the transient arena 320 bytes; they must be whole pages"),
    (3, {"extents": ()}, "256 bytes and 0 extents of 0 bytes together"),
    (3, {"extents": (), "bytes": 0}, "0 bytes and 0 extents of 0 bytes together"),
    (3, {"bytes": 320}, "320 bytes and 4 extents of 256 bytes together"),
    (3, {"extents": (Extent(0, 64), Extent(64, 192))[:1]}, "256 bytes and 1 extents of 64 bytes together"),
    (3, {"extents": (Extent(-64, 256),)}, r"shows bytes \[-64, 192\) of the transient arena"),
    (3, {"extents": (Extent(128, 256),)}, r"shows bytes \[128, 384\) of the transient arena"),
    (3, {"extents": (Extent(0, 320), Extent(64, -64))}, r"shows bytes \[64, 0\) of the transient arena"),
    (3, {"extents": (Extent(0, 256), Extent(64, 0))}, r"shows bytes \[64, 64\) of the transient arena"),
    (3, {"extents": (Extent(32, 256),)}, r"shows bytes \[32, 288\) of the transient arena"),
    (3, {"extents": (Extent(0, 224), Extent(0, 32))}, r"shows bytes \[0, 224\) of the transient arena"),
    (3, {"extents": (Extent(2**63 - 64, 2**63 - 64),)}, "within the 320 bytes of that arena"),
    (3, {"space": "device"}, "has pages of 64 bytes and 4 extents; only a mapped arena has any"),
    (1, {"page_bytes": 64}, "has pages of 64 bytes and 0 extents; only a mapped arena has any"),
    (2, {"extents": (Extent(0, 64),)}, "has pages of 0 bytes and 1 extents; only a mapped arena has any"),
    (1, {"space": "host"}, r"'device' are \['persistent'\]; they must be \['persistent', 'transient'\]"),
    (1, {"name": "other"}, r"'device' are \['persistent', 'other'\]; they must be \['persistent', 'transient'\]"),
    (3, {"name": "transient"}, "there are two arenas 'transient'"),
    (0, {"name": "mapped"}, "there are two arenas 'mapped'"),
])
def test_a_mapped_arena_that_shows_what_is_not_there_is_refused(k: int, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(VerificationError, match=told):
        verify(with_arena(scattered(), k, **changes))


def test_two_mapped_arenas_have_pages_of_one_size() -> None:
    plan = with_arena(scattered(), 1, bytes=384)
    more = mapped_arena(64, ((0, 128),), "more")
    verify(replace(plan, arenas=(*plan.arenas, more)))
    other = replace(more, page_bytes=128)
    assert "another mapped arena of 64; they must be equal" in str(failure(replace(plan, arenas=(*plan.arenas, other))))


def test_a_mapped_arena_cannot_show_another_mapped_one() -> None:
    plan = scattered()
    shown = Arena("transient", "mapped", 64, 64, (Extent(0, 64),))
    assert "two arenas" in str(failure(replace(plan, arenas=(*plan.arenas, shown))))


def test_a_persistent_tensor_in_a_mapped_arena_is_refused() -> None:
    plan = training()
    arenas = (*plan.arenas, mapped_arena(64, ((0, 64),)))
    plan = corrupt(replace(plan, arenas=arenas), b_arena=(1, 3))
    plan.buffers.arena[4] = 3
    assert "which lies in arena 'mapped'; that is transient memory" in str(failure(plan))


def test_tensors_without_elements_may_lie_at_the_end_of_a_mapped_arena() -> None:
    m = Maker(extents=((64, 64), (0, 64)))
    data, a = m.value("data", 0, arena="mapped", at=128), m.value("a", 0, arena="mapped", at=64)
    m.run("t_dense", (data, data), (a,))
    verify(m.plan(inputs=(data,), outputs=(a,)))


def test_a_mapped_arena_that_nothing_lies_in_changes_nothing() -> None:
    plan = chain()
    verify(replace(plan, arenas=(*plan.arenas, mapped_arena(PAGE, ((64, 64), (0, 128))))))

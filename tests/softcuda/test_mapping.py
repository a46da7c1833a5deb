"""Virtual memory management behaves as CUDA documents it, and every checker of the driver understands it."""
from __future__ import annotations

import pytest

from .programs import mapping

PAGE = mapping.PAGE
INVALID_VALUE, INVALID_DEVICE, NOT_SUPPORTED = 1, 101, 801


def test_device_says_that_it_manages_virtual_memory_in_pages_of_2_mib_or_as_set(run):
    assert run(mapping.support).value == [1, PAGE, PAGE]
    assert run(mapping.support, PAGE="4K").value == [1, 4096, 4096]


# ---- what mappings show --------------------------------------------------------------------------


def test_one_page_at_two_addresses_shows_the_same_bytes(run):
    assert run(mapping.write_here_read_there).value == [True, True, 0.0]


def test_copies_fills_and_kernels_go_over_pages_side_by_side(run):
    assert run(mapping.cross_mappings).value == [True, True, True, 200]


def test_the_beginning_of_a_handle_may_be_mapped_alone(run):
    assert run(mapping.map_a_part).value is True


def test_reservations_keep_their_alignment(run):
    assert run(mapping.align).value == [0, 0, 0, 0, 0]


def test_addresses_show_another_page_after_remapping_and_pages_keep_their_bytes(run):
    assert run(mapping.map_elsewhere).value == [True, True]


def test_pages_mapped_in_order_take_few_mappings_of_the_operating_system(run):
    assert run(mapping.map_many, 1000, POISON=0).value <= 10


def test_new_memory_is_poison_and_released_memory_stays_while_it_is_mapped(run):
    assert run(mapping.keep_memory_while_mapped).value == [True, True]
    assert run(mapping.keep_memory_while_mapped, POISON=0).value == [True, False]


def test_part_of_mapped_pages_can_be_poisoned_by_any_of_their_addresses(run):
    assert run(mapping.poison_part).value is True


# ---- what is refused -----------------------------------------------------------------------------


def test_calls_that_cuda_does_not_allow_are_refused(run):
    outcome = run(mapping.refusals)
    others = {"create on another device": INVALID_DEVICE, "open for another device": INVALID_DEVICE,
              "create to share": NOT_SUPPORTED}
    results = outcome.value
    assert results == {name: others.get(name, INVALID_VALUE) for name in results}
    for message in ("cuMemCreate: 1048576 bytes are no multiple of the granularity, 2097152",
                    "cuMemMap: the offset is 2097152, and must be 0",
                    "cuMemMap: 6291456 bytes of a handle of 4194304",
                    "cuMemUnmap: 2097152 bytes at", "still has a mapping"):
        assert message in outcome.messages


def test_memory_counts_once_from_creation_until_it_is_released_and_unmapped_everywhere(run):
    outcome = run(mapping.fill_capacity, MEM="6M")
    assert outcome.value == ["2:", [0, 0, 0, 0, 1, 3]]
    assert outcome.counters["bytes_peak"] == 3 * PAGE
    assert [outcome.counters[name] for name in ("allocations", "frees", "bytes_live")] == [2, 2, 0]


def test_what_is_left_at_the_end_of_a_context_is_counted(run):
    outcome = run(mapping.leave_things, LEAKS=1)
    assert "LEAK: 2 handles of cuMemCreate (6291456 bytes) are not released, or still mapped" in outcome.messages
    assert "LEAK: 2 address reservations" in outcome.messages
    assert outcome.counters["bytes_live"] == 3 * PAGE


@pytest.mark.parametrize("guard", [0, 1])
def test_nothing_is_left_when_everything_is_given_back(run, guard):
    outcome = run(mapping.give_everything_back, LEAKS=1, GUARD=guard)
    assert outcome.value == [3, 1]
    assert "LEAK" not in outcome.messages
    left = ("bytes_live", "mappings_live", "reservations_live")
    assert [outcome.counters[name] for name in left] == [0, 0, 0]


def test_access_is_what_was_set(run):
    assert run(mapping.ask_for_access).value == [0, 1, 3, 0]


def test_copies_and_launches_need_mapped_and_opened_addresses(run):
    outcome = run(mapping.use_closed)
    closed: list[str] = []
    assert outcome.value == {
        "reserved": closed, "mapped": closed, "readable": ["read", "launch"],
        "open": ["write", "read", "fill", "launch"], "closed": closed, "unmapped": closed,
    }
    assert "0 bytes into a 4194304-byte reservation, where nothing is mapped" in outcome.messages
    assert "0 bytes into a 2097152-byte mapping that cuMemSetAccess has not opened" in outcome.messages
    assert "a copy writes 256 bytes outside any live device allocation: 0 bytes into a 2097152-byte mapping that " \
        "may only be read" in outcome.messages


@pytest.mark.parametrize(
    ("behind", "message"),
    [
        ("nothing", "0 bytes behind the end of a 2097152-byte reservation"),
        ("no page", "2097152 bytes into a 4194304-byte reservation, where nothing is mapped"),
        ("a closed page", "0 bytes into a 2097152-byte mapping that cuMemSetAccess has not opened"),
    ],
)
def test_kernel_that_leaves_its_pages_faults_with_block_and_thread(run, behind, message):
    outcome = run(mapping.run_off_the_page, behind)
    assert outcome.error[1] == "cuCtxSynchronize failed: an illegal memory access was encountered"
    assert "no_bounds_test: block (0,0,0) thread (64,0,0): illegal address" in outcome.messages
    assert message in outcome.messages


def test_kernel_that_writes_what_may_only_be_read_faults(run):
    outcome = run(mapping.write_what_may_only_be_read)
    assert outcome.error[1] == "cuCtxSynchronize failed: an illegal memory access was encountered"
    assert "0 bytes into a 2097152-byte mapping that may only be read" in outcome.messages

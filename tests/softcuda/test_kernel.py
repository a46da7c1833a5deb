"""The block executor: right kernels give right results in every order and with every number of workers."""
from __future__ import annotations

import sys

import pytest

from .conftest import run_child
from .programs import kernel, memory

ORDERS = [{"ORDER": "asc"}, {"ORDER": "desc"}, {"ORDER": "random", "SEED": 3}, {"WORKERS": 3}]
every_order = pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(map(str, order.values())))


@every_order
def test_tiled_matmul_agrees_with_numpy(run, order):
    assert run(kernel.matmul, 40, 33, 50, **order).value < 1e-5


@every_order
def test_warp_softmax_agrees_with_numpy(run, order):
    assert run(kernel.softmax, **order).value < 1e-6


@every_order
def test_sum_with_shuffles_and_atomics_agrees_with_numpy(run, order):
    assert run(kernel.sum_all, **order).value == sum(range(5000))


@every_order
def test_dynamic_shared_memory_is_shared_by_a_block(run, order):
    assert run(kernel.reverse, **order).value


@every_order
def test_warp_operations_give_what_the_programming_guide_says(run, order):
    half, (up, index, ballot, votes) = run(kernel.warps, **order).value
    assert half == [31 - lane + 16 for lane in range(16, 32)]
    assert up == [lane if lane < 3 else lane - 3 for lane in range(32)]
    assert index == [lane // 8 * 8 + 1 for lane in range(32)]
    assert {votes & 0xFFFFFFFF for votes in ballot} == {sum(1 << lane for lane in range(0, 32, 3))}
    assert set(votes) == {1}            # any: yes; all: no


def test_module_globals_belong_to_one_load(run):
    y, calls = run(kernel.module_globals).value
    assert y == [0.0, 10.0, 2.0, 3.0] and calls == [4, 2]


def test_packed_parameters_have_natural_alignment(run):
    assert run(kernel.packed_parameters).value == 0


def test_orders_are_those_asked_for(run):
    assert run(kernel.ranks, ORDER="asc").value == [list(range(8))] * 2
    assert run(kernel.ranks, ORDER="desc").value == [list(range(7, -1, -1))] * 2
    blocks, threads = run(kernel.ranks, ORDER="random", SEED=5).value
    assert sorted(blocks) == sorted(threads) == list(range(8))
    assert [blocks, threads] == run(kernel.ranks, ORDER="random", SEED=5).value
    assert [blocks, threads] != run(kernel.ranks, ORDER="random", SEED=6).value


def test_shared_memory_is_poison_in_each_block(run):
    assert run(kernel.shared_is_poisoned).value == [[32, 32], [32, 32]]


def test_dynamic_shared_memory_above_48_kib_is_an_attribute(run):
    assert run(kernel.large_dynamic_shared).value
    assert "invalid argument" in run(kernel.large_dynamic_shared, 200_000, CC=80).error[1]
    assert run(kernel.large_dynamic_shared, 200_000, CC=90).value


def test_dropped_launches_do_nothing_and_are_counted(run):
    outcome = run(memory.count_things, DROP=1)
    assert outcome.counters["launches"] == 0 and outcome.counters["dropped_launches"] == 3


def test_unsupported_function_says_so(run):
    assert run(kernel.unsupported_function).value == [801, "cuMemAllocAsync is not supported"]


def test_results_have_cudas_names_and_texts(run):
    name, text = run(kernel.error_texts).value
    assert name == "CUDA_ERROR_ILLEGAL_ADDRESS" and text == "an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("SCHED", "sloppy", "one of threads, eager, lazy, random"),
        ("MEM", "12 parsecs", "a number of bytes"),
        ("RACE", "yes", "0 or 1"),
        ("ALIGN", "3", "a power of two"),
        ("WORKERS", "0", "1 or more"),
    ],
)
def test_unusable_setting_is_refused_by_name(driver, setting, value, expected):
    program = f"import ctypes; print(ctypes.CDLL({str(driver)!r}).cuInit(0))"
    done = run_child([sys.executable, "-c", program], {setting: value})
    assert done.stdout == "1\n"         # CUDA_ERROR_INVALID_VALUE
    assert f"SOFTCUDA_{setting}={value} is not usable: give {expected}" in done.stderr

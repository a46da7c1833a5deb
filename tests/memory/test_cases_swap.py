"""What swapping got wrong elsewhere: copies that race, swaps that free nothing, serial plans on two streams, and memory
that stays lost after one failure."""
from __future__ import annotations

import gc
import os
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigraph as mx
import zoo
from minigraph.base import MXNetError, OutOfMemoryError, align
from minigraph.device.cpu import CpuDevice, Delay, streamed
from minigraph.device.cpu import memory as cpu_memory
from minigraph.executor import Executor
from minigraph.optimizer import SGD
from minigraph.passes import lower
from minigraph.plan.plan import IN_STREAM, OUT_STREAM, Kind, Plan
from minigraph.plan.report import report
from minigraph.planning import plan
from tests.memory.test_cases_recompute import fill
from tests.memory.test_policies import MIB, chain, convolutional

from .schedules import swapped

SLOW = 2e-3
"""The longest sleep before an instruction, in seconds."""


# -- what is ordered before what -----------------------------------------------------------------------------
class Order:
    """What a plan orders: instructions of one stream, and a record before its wait."""

    def __init__(self, found: Plan) -> None:
        code, self.before = found.instructions, list[set[int]]()
        last: dict[int, int] = {}
        recorded: dict[int, int] = {}
        for i in range(len(found)):
            direct = {last[code.stream[i]]} if code.stream[i] in last else set()
            if code.kind[i] == Kind.WAIT:
                direct.add(recorded[code.event[i]])
            elif code.kind[i] == Kind.RECORD:
                recorded[code.event[i]] = i
            self.before.append(direct.union(*(self.before[j] for j in direct)))
            last[code.stream[i]] = i

    def __call__(self, first: int, second: int) -> bool:
        """Whether `first` has ended, whatever the timing, when `second` begins."""
        return first in self.before[second]


def uses(found: Plan) -> list[list[int]]:
    """For each buffer the instructions that read or write its bytes."""
    code, result = found.instructions, [[] for _ in range(len(found.buffers))]
    for i in range(len(found)):
        read = [b for k, b in enumerate(code.reads[i]) if k not in code.unread[i]]
        for b in {*read, *code.writes[i], *([code.workspace[i]] if code.workspace[i] >= 0 else [])}:
            result[b].append(i)
    return result


def storage(found: Plan, b: int) -> set[int]:
    """All names of a buffer's storage."""
    root = list(range(len(found.buffers)))
    for k, shared in enumerate(found.buffers.shares):
        root[k] = k if shared < 0 else root[shared]
    return {k for k in range(len(root)) if root[k] == root[b]}


def assert_shared_bytes_are_ordered(found: Plan) -> None:
    """Any two buffers with a byte in common: all uses of one come before all of the other, by streams and events."""
    order, used, columns = Order(found), uses(found), found.buffers
    names = [storage(found, b) for b in range(len(columns))]
    live = [b for b in range(len(columns)) if used[b] and columns.bytes[b]]
    for k, b in enumerate(live):
        for c in live[k + 1:]:
            apart = columns.arena[b] != columns.arena[c] or c in names[b] \
                or columns.offset[b] + columns.bytes[b] <= columns.offset[c] \
                or columns.offset[c] + columns.bytes[c] <= columns.offset[b]
            if not apart:
                first, second = sorted((used[b], used[c]), key=min)
                late = [(i, j) for i in first for j in second if i != j and not order(i, j)]
                assert not late, f"{columns.name[b]} and {columns.name[c]} share bytes, and {late} are not ordered"


# -- swap and reuse ------------------------------------------------------------------------------------------
def tower(memory: str, device: CpuDevice | None = None, seed: int = 0, **options: Any) -> dict[str, bytes]:
    """Outputs, gradients and weights of two training steps of 8 dense layers of 256 with tanh, at batch 64."""
    executor = chain(8, width=256).simple_bind(mx.cpu(), memory=memory, fuse=False, data=(64, 256), **options)
    executor.set_updater(SGD(learning_rate=0.01))
    if device is not None:
        executor.group.device = device
    rng = np.random.default_rng(seed)
    for array in executor.arg_dict.values():
        array[:] = rng.uniform(-0.1, 0.1, array.shape)
    found = {}
    for k in range(2):
        found[f"out {k}"] = executor.forward(is_train=True)[0].asnumpy().tobytes()
        executor.backward()
        found |= {f"{n} {k}": g.asnumpy().tobytes() for n, g in executor.grad_dict.items() if g is not None}
        executor.update(SGD(learning_rate=0.01).control)
    return found | {n: a.asnumpy().tobytes() for n, a in executor.arg_dict.items()}


@pytest.fixture(scope="module")
def unswapped() -> dict[str, bytes]:
    return tower("plain")


def every_second(name: str) -> bool:
    return bool(re.fullmatch(r"tanh[0246]_output", name))


@pytest.mark.parametrize("seed", range(50))
def test_a_swapped_tower_gives_the_bits_of_the_unswapped_one_whatever_is_late(seed, unswapped, force, tmp_path):
    late = [(SLOW, 0, 0), (0, SLOW, 0), (0, 0, SLOW / 8), (SLOW, SLOW, SLOW / 8)][seed % 4]
    lead = [0, 1, 3, 1000, None][seed % 5]
    force(swapped(every_second, lead, eager=seed % 3 > 0))
    where = {"disk": str(tmp_path)} if seed % 7 == 0 else {"host_budget": "1GiB"}
    found = tower("forced", CpuDevice(tmp_path, Delay(seed, *late)), poison=True, **where)
    different = [name for name in unswapped if found[name] != unswapped[name]]
    assert not different


@pytest.mark.parametrize("what, late", [("release", (SLOW, 0, 0)), ("arrive", (0, SLOW, 0))])
def test_delays_and_poison_show_a_wait_that_is_missing(what, late, unswapped, force, monkeypatch):
    force(swapped(every_second, 3))
    real = lower._Lowering._transfer
    monkeypatch.setattr(lower._Lowering, "_transfer",
                        lambda self, node, kind: None if kind == what else real(self, node, kind))
    found = tower("forced", CpuDevice(delay=Delay(1, *late)), poison=True, verify=False, host_budget="1GiB")
    assert any(found[name] != unswapped[name] for name in unswapped)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("lead", [0, 1, 3, 1000, None])
def test_each_copy_waits_for_the_one_before_it_and_each_reader_for_its_copy(lead, eager, force):
    force(swapped(every_second, lead, eager))
    found = plan(chain(8, width=256), {"data": (64, 256)}, None, "train", "forced", host_budget="1GiB", fuse=False)
    code, order, used = found.instructions, Order(found), uses(found)
    copies = [i for i in range(len(found)) if code.kind[i] == Kind.COPY_OUT]
    assert len(copies) == 4
    for out in copies:
        (source,), (host,) = code.reads[out], code.writes[out]
        back = next(i for i in range(len(found)) if code.kind[i] == Kind.COPY_IN and code.reads[i] == (host,))
        assert (code.stream[out], code.stream[back]) == (OUT_STREAM, IN_STREAM)
        readers = [i for b in storage(found, source) for i in used[b] if i != out]
        assert order(out, back) and all(order(i, out) for i in readers if i < out)
        assert all(i < out for i in readers), "after the copy nobody reads the source"
        again = [i for b in storage(found, code.writes[back][0]) for i in used[b] if i != back]
        assert again and all(order(back, i) for i in again)
    assert_shared_bytes_are_ordered(found)


# -- what swapping frees, and what it takes ------------------------------------------------------------------
def lean(memory: str, **options: Any) -> Plan:
    return plan(chain(16), {"data": (512, 512)}, "sgd", "step", memory, fuse=False, **options)


def activation_bytes(found: Plan) -> int:
    return found.arenas[1].bytes - sum(align(found.buffers.bytes[b]) for b in found.inputs.values())


def test_a_swapped_chain_keeps_a_window_of_two_layers_and_its_host_bytes_are_in_the_plan():
    assert activation_bytes(lean("plain")) > 16 * MIB
    found = lean("vdnn_all", host_budget="1GiB")
    assert activation_bytes(found) <= (2 + 4) * MIB
    assert found.arena_bytes("host") == report(found).host_bytes == 15 * MIB


def test_each_tensor_goes_out_once_and_comes_back_once_and_neither_input_nor_last_activation_move():
    found = lean("vdnn_all", host_budget="1GiB")
    names = {kind: [i.name for i in found if i.kind == kind] for kind in (Kind.COPY_OUT, Kind.COPY_IN)}
    assert names[Kind.COPY_OUT] == [f"tanh{k}_output_out" for k in range(15)]
    assert names[Kind.COPY_IN] == [f"tanh{k}_output_in" for k in reversed(range(15))]


def test_the_bytes_that_are_moved_are_those_of_the_plan(monkeypatch: pytest.MonkeyPatch):
    moved = []
    real = streamed.copy
    monkeypatch.setattr(streamed, "copy", lambda progress, move, n: (moved.append(n), real(progress, move, n))[1])
    executor = chain(8, width=256).simple_bind(mx.cpu(), memory="vdnn_all", host_budget="1GiB", data=(64, 256))
    executor.forward(is_train=True)
    executor.backward()
    found = executor.plan
    planned = sum(found.buffers.bytes[i.reads[0]] for i in found if i.kind in (Kind.COPY_OUT, Kind.COPY_IN))
    assert sum(moved) == planned == report(found).swapped_bytes > 0
    assert executor.group.memory.arenas["swap"].nbytes == found.arena_bytes("host")


def test_host_bytes_are_exactly_those_that_were_asked_for_whatever_their_size():
    memory, odd = CpuDevice().memory(), 3 * MIB + 4096
    for k in range(10):
        memory.reserve_space(f"swap{k}", "host", odd)
    asked = 10 * odd
    assert sum(memory.arenas[f"swap{k}"].nbytes for k in range(10)) == asked
    assert sum(memory.arenas[f"swap{k}"].base.nbytes for k in range(10)) <= 1.05 * asked


@pytest.mark.parametrize("host", [0, 1, 3 * MIB, 15 * MIB - 1])
def test_a_host_budget_below_need_is_refused_before_running_with_the_bytes_that_would_do_or_less_is_swapped(host):
    with pytest.raises(MXNetError, match=f"host budget of {host} bytes .* can do with is {15 * MIB} bytes"):
        lean("vdnn_all", host_budget=host)
    for memory in ("vdnn", "auto"):
        assert lean(memory, host_budget=host, budget="64MiB").arena_bytes("host") <= host
    assert lean("vdnn_all", host_budget=15 * MIB).arena_bytes("host") == 15 * MIB


def least(memory: str, **options: Any) -> int:
    with pytest.raises(OutOfMemoryError) as refused:
        lean(memory, budget=1, **options)
    return refused.value.asked_bytes


def test_swapping_and_recomputation_together_need_no_more_than_the_better_one_alone():
    both = least("auto", host_budget="1GiB")
    assert both <= min(least("auto"), least("sublinear"), least("vdnn_all", host_budget="1GiB"))


# -- two streams ---------------------------------------------------------------------------------------------
def fork() -> mx.sym.Symbol:
    """One value read by two convolutions whose results are joined."""
    x = mx.sym.tanh(mx.sym.Variable("data"), name="x")
    both = [mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name=name) for name in "ab"]
    return mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(mx.sym.Concat(*both, dim=1))))


@pytest.mark.parametrize("seed", range(4))
def test_bytes_of_a_fork_are_shared_only_by_what_streams_and_events_order(seed, force):
    force(swapped(lambda name: name == "x_output", lead=[0, 2, 9, None][seed]))
    results = []
    for memory in ("plain", "forced"):
        executor = fork().simple_bind(mx.cpu(), memory=memory, host_budget="1GiB", poison=True, data=(1, 64, 32, 32))
        executor.group.device.delay = Delay(seed, SLOW, SLOW, SLOW)
        fill(executor)
        out = executor.forward(is_train=True)[0].asnumpy()
        executor.backward()
        results.append([out, *(g.asnumpy() for g in executor.grad_dict.values())])
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    assert Kind.COPY_OUT in executor.plan.instructions.kind
    assert_shared_bytes_are_ordered(executor.plan)


ZOO = [("mlp", {}, (4, 784)), ("lenet", {}, (4, 1, 28, 28)),
       ("resnet", {"depth": 20, "image_shape": (3, 32, 32)}, (2, 3, 32, 32))]


@pytest.mark.parametrize("network, settings, shape", ZOO, ids=lambda value: str(value) if type(value) is str else "")
def test_networks_share_bytes_only_by_what_streams_and_events_order(network, settings, shape):
    found = plan(zoo.get(network)(num_classes=10, **settings), {"data": shape}, "sgd", "step", "vdnn_all",
                 host_budget="1GiB")
    assert Kind.COPY_IN in found.instructions.kind
    assert_shared_bytes_are_ordered(found)


def test_the_check_itself_sees_a_wait_that_is_missing(force):
    force(swapped(lambda name: name == "x_output", lead=0))
    found = plan(fork(), {"data": (1, 64, 32, 32)}, None, "train", "forced", host_budget="1GiB")
    waits = [i for i in range(len(found)) if found.instructions.kind[i] == Kind.WAIT]
    noticed = 0
    for i in waits:
        event = found.instructions.event[i]
        found.instructions.kind[i] = Kind.RECORD
        found.instructions.event[i] = 10_000
        try:
            assert_shared_bytes_are_ordered(found)
        except AssertionError:
            noticed += 1
        found.instructions.kind[i] = Kind.WAIT
        found.instructions.event[i] = event
    assert noticed


# -- after running out of memory -----------------------------------------------------------------------------
def train_once(batch: int, budget: int | None, **options: Any) -> Executor:
    mx.random.seed(7)
    executor = convolutional(2).simple_bind(mx.cpu(), budget=budget, data=(batch, 3, 8, 8), **options)
    fill(executor)
    executor.forward(is_train=True)
    executor.backward()
    return executor


def held_bytes(attempt: Callable[[], Any]) -> int:
    gc.collect()
    attempt()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_after_a_batch_that_is_refused_smaller_ones_train_and_twenty_rounds_hold_no_more():
    budget, quick = train_once(16, None).plan.planned_bytes, {"memory": "sublinear"}  # a search traced takes minutes

    def attempt():
        with pytest.raises(OutOfMemoryError) as refused:
            train_once(512, budget, **quick)
        assert refused.value.asked_bytes > budget == refused.value.free_bytes
        for batch in (16, 8, 1):
            assert train_once(batch, budget, **quick).plan.planned_bytes <= budget

    attempt()
    tracemalloc.start()
    try:
        first = held_bytes(attempt)
        for _ in range(18):
            attempt()
        assert held_bytes(attempt) <= first + 64 * 1024
    finally:
        tracemalloc.stop()


class Failing:
    """Stands in for a function of which one call raises."""

    def __init__(self, real: Callable[..., Any], at: int, error: Exception) -> None:
        self.real, self.left, self.error = real, at, error

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.real(*arguments, **named)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_when_the_host_has_no_memory_in_the_middle_of_a_bind_the_next_attempt_finds_all_as_it_was(
        at, monkeypatch: pytest.MonkeyPatch):
    expected = train_once(4, None).grad_dict["fc_weight"].asnumpy()
    mx.random.seed(7)
    executor = convolutional(2).simple_bind(mx.cpu(), memory="vdnn_all", host_budget="1GiB", data=(4, 3, 8, 8))
    fill(executor)
    before = {name: array.asnumpy() for name, array in executor.arg_dict.items()}
    with monkeypatch.context() as patch:
        lost = OutOfMemoryError("the host has nothing left", 1, 0)
        patch.setattr(cpu_memory, "_allocate", Failing(cpu_memory._allocate, at, lost))
        with pytest.raises(OutOfMemoryError):
            executor.forward(is_train=True)
    for name, array in executor.arg_dict.items():
        assert np.array_equal(array.asnumpy(), before[name]), name
    executor.forward(is_train=True)
    executor.backward()
    assert np.array_equal(executor.grad_dict["fc_weight"].asnumpy(), expected)


@pytest.mark.parametrize("at", [1, 3])
def test_when_the_disk_is_full_in_the_middle_of_a_swap_a_smaller_batch_and_a_new_executor_train(
        at, monkeypatch: pytest.MonkeyPatch, tmp_path):
    def bind(batch):
        mx.random.seed(7)
        return convolutional(2).simple_bind(mx.cpu(), memory="vdnn_all", disk=str(tmp_path), data=(batch, 3, 8, 8))

    broken = bind(16)
    fill(broken)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", Failing(os.pwrite, at, OSError(28, "No space left on device")))
        with pytest.raises(OutOfMemoryError, match="cannot take .* bytes"):
            broken.forward(is_train=True)
    for batch in (8, 1):
        executor = bind(batch)
        fill(executor)
        executor.forward(is_train=True)
        executor.backward()
        expected = train_once(batch, None).grad_dict["fc_weight"].asnumpy()
        assert np.array_equal(executor.grad_dict["fc_weight"].asnumpy(), expected)
    assert not list(tmp_path.iterdir()), "a swap file has no name that could stay behind"

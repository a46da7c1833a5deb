"""Looking inside runs on the GPU: monitors, NaN and times, which change nothing there either."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx

from .processes import SCHEDULES, run
from .test_executor import batches, bound


def watched():
    """Gradients with and without a monitor, and what it was told on the CPU and on the GPU."""
    told, gradients = [], []
    for context, monitored in ((mx.gpu(0), False), (mx.gpu(0), True), (mx.cpu(), True)):
        exe, seen = bound(context, poison=True), {}
        if monitored:
            exe.set_monitor_callback(lambda name, value, seen=seen: seen.update({name: value.asnumpy()}), True)
        exe.forward(is_train=True, **batches(1)[0])
        exe.backward()
        gradients.append([g.asnumpy() for g in exe.grad_dict.values() if g is not None])
        told.append(seen)
    same = all(np.array_equal(a, b) for a, b in zip(*gradients[:2], strict=True))
    return same, list(told[1]) == list(told[2]), max(
        float(np.abs(told[1][name] - told[2][name]).max()) for name in told[2])


def test_a_monitor_is_told_the_same_values_as_on_the_cpu():
    same, names, difference = run(watched)
    assert same and names and difference < 1e-4


def inspected():
    exe = bound(mx.gpu(0))
    batch = batches(1)[0]
    exe.forward(is_train=True, **batch)
    exe.backward()
    before = [g.asnumpy() for g in exe.grad_dict.values() if g is not None]
    clean = exe.find_nonfinite() is None
    trace = exe.profile(2)
    whole = len(trace.events) == 2 * len(exe.plan) and all(event.seconds > 0 for event in trace.events)
    after = [g.asnumpy() for g in exe.grad_dict.values() if g is not None]
    unchanged = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    batch["data"][2, 0, 0, 0] = np.inf
    exe.forward(is_train=True, **batch)
    found = exe.find_nonfinite()
    return clean, whole, unchanged, found.node, found.position[0], list(found.inputs)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nan_is_found_and_instructions_are_timed_without_a_trace(schedule):
    assert run(inspected, SOFTCUDA_SCHED=schedule) == [True, True, True, "conv", 2, ["data"]]


def recorded():
    plain, timed = bound(mx.gpu(0)), bound(mx.gpu(0))
    found = []
    for exe in (plain, timed):
        for batch in batches(2):
            if exe is timed:
                mx.profiler.set_state("run")
            exe.forward(is_train=True, **batch)
            exe.backward()
            mx.profiler.set_state("stop")
        found.append([g.asnumpy() for g in exe.grad_dict.values() if g is not None])
    return all(np.array_equal(a, b) for a, b in zip(*found, strict=True)), mx.profiler.dumps().count("\n") > 5


def test_the_profiler_changes_no_bit():
    assert run(recorded) == [True, True]

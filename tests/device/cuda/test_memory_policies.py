"""Recomputation and swaps on the GPU: the bits of the plain plan under every schedule of the driver, no race, and the
bytes that were planned."""
from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError, align
from minigraph.device.cuda import cuda_device
from minigraph.device.cuda.allocator import ALIGNMENT
from minigraph.device.cuda.resources import PINNED_UNIT
from minigraph.executor import Executor
from minigraph.optimizer import SGD
from minigraph.plan.plan import AGAIN, Kind
from tests.memory.test_policies import convolutional
from tests.training import with_values

from .processes import SCHEDULES, counters, run

SHAPE, STEPS = (2, 3, 8, 8), 2
MIB = 1 << 20


def bind(batch: int = SHAPE[0], **options: Any) -> Executor:
    """A small residual network with Dropout on gpu(0), and parameters that are always the same."""
    symbol, inputs = convolutional(3), ("data", "softmax_label")
    requests = {n: "null" if n in inputs else "write" for n in symbol.list_arguments()}
    mx.random.seed(4)
    exe = Executor(symbol, mx.gpu(0), {"data": (batch, *SHAPE[1:])}, inputs=inputs, grad_req=requests, **options)
    return with_values(exe)


def batches() -> list[dict[str, np.ndarray]]:
    draw = np.random.RandomState(1)
    return [{"data": draw.randn(*SHAPE).astype(np.float32),
             "softmax_label": draw.randint(0, 5, SHAPE[0]).astype(np.float32)} for _ in range(STEPS)]


def by_step(exe: Executor) -> list[bytes]:
    """Outputs of whole steps of momentum SGD, and what they left."""
    exe.set_updater(SGD(learning_rate=0.1, momentum=0.9))
    control = SGD(learning_rate=0.1, momentum=0.9).control
    found = [o.asnumpy() for batch in batches() for o in exe.step(control, **batch)]
    return as_bytes(found + [a.asnumpy() for a in (*exe.arg_arrays, *exe.aux_arrays)])


def by_train(exe: Executor) -> list[bytes]:
    """Outputs of forward, gradients of backward, and statistics."""
    found = []
    for batch in batches():
        found += [o.asnumpy() for o in exe.forward(is_train=True, **batch)]
        exe.backward()
        found += [g.asnumpy() for g in exe.grad_dict.values() if g is not None]
    return as_bytes(found + [a.asnumpy() for a in exe.aux_arrays])


def as_bytes(arrays: list[np.ndarray]) -> list[bytes]:
    assert all(np.isfinite(each).all() for each in arrays)
    return [each.tobytes() for each in arrays]


WAYS = {"step": by_step, "train": by_train}
POLICIES = {"sublinear": {}, "auto": {}, "auto with swaps": {"host_budget": "1GiB"},
            "vdnn_all": {"host_budget": "1GiB"}, "vdnn_conv": {"host_budget": "1GiB"},
            "superneurons with swaps": {"host_budget": "1GiB"}, "capuchin with swaps": {"host_budget": "1GiB"},
            "lms": {"host_budget": "1GiB"}, "openai": {}, "rotor": {}}


def options_of(policy: str, program: str) -> dict[str, Any]:
    """What binds a policy; for `auto` with the least budget that the program can do with."""
    options = {"memory": policy.split()[0], **POLICIES[policy]}
    if "auto" not in policy:
        return options
    with pytest.raises(OutOfMemoryError) as refused:
        WAYS[program](bind(budget=1, **options))
    return options | {"budget": refused.value.asked_bytes}


def same_bits(variants: list[dict[str, Any]]) -> tuple[list, int]:
    """For each program, policy and variant: whether the bits are those of plain, what it repeats, what it copies."""
    answers = []
    for program, way in WAYS.items():
        plain = way(bind())
        for policy in POLICIES:
            options = options_of(policy, program)
            for variant in variants:
                exe = bind(**options, **variant)
                same, code = way(exe) == plain, exe.program(program).plan.instructions
                answers.append((f"{policy} {program} {variant}", same, sum(AGAIN in name for name in code.name),
                                sum(kind in (Kind.COPY_OUT, Kind.COPY_IN) for kind in code.kind)))
    return answers, counters()["races"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_policy_gives_the_bits_of_plain_whatever_the_schedule_and_without_a_race(schedule):
    variants = [{}, {"poison": True}, {"graph": True}]
    answers, races = run(same_bits, variants, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1, SOFTCUDA_ORDER="random")
    assert races == 0 and len(answers) == 2 * len(POLICIES) * len(variants)
    for case, same, again, copies in answers:
        assert same, case
        assert again + copies > 0, case
        assert copies > 0 or "vdnn" not in case, case


def measured() -> list:
    """Planned and counted device bytes of whole steps, and planned and page-locked host bytes, by policy."""
    pool, answers = cuda_device(0).pool, []
    control = SGD(learning_rate=0.1, momentum=0.9).control
    batch = {"data": np.zeros(SHAPE, np.float32), "softmax_label": np.zeros(SHAPE[0], np.float32)}
    for policy in ("plain", *POLICIES):
        gc.collect()
        exe = bind(**({"memory": "plain"} if policy == "plain" else options_of(policy, "step")))
        exe.set_updater(SGD(learning_rate=0.1, momentum=0.9))
        exe.program("step")
        gc.collect()
        with cuda_device(0).context:
            pool.collect()
        pool.peak_bytes = pool.used_bytes
        for _ in range(3):
            exe.step(control, **batch)
        planned = exe.plan
        arenas = sum(align(arena.bytes, ALIGNMENT) for arena in planned.arenas if arena.space == "device")
        pinned = sum(align(arena.bytes, PINNED_UNIT) for arena in planned.arenas if arena.space == "host")
        host = sum(array.nbytes for array in exe.group.memory._host.values())
        answers.append((policy, arenas, pool.peak_bytes - exe.group.memory.staging.device_bytes, planned.planned_bytes,
                        exe.options.memory.budget_bytes, pinned, host))
        del exe
    return answers


def test_device_bytes_counted_by_the_pool_are_the_planned_ones_and_keep_the_budget():
    answers = {policy: rest for policy, *rest in run(measured, SOFTCUDA_SCHED="lazy")}
    for policy, (arenas, counted, planned, budget, pinned, host) in answers.items():
        assert counted == arenas, policy
        assert 0 <= arenas - planned < 2 * ALIGNMENT, "the pool rounds each arena"
        assert budget is None or planned <= budget
        assert host == pinned, "page-locked memory comes in pages, for each arena"
    assert answers["sublinear"][0] < answers["plain"][0] and answers["vdnn_all"][4] > 0


def recovers() -> tuple:
    """A batch that the device has no room for, and one for which the host budget has none; then what fits."""
    expected, pool = by_step(bind(memory="vdnn_all", host_budget="1GiB")), cuda_device(0).pool
    gc.collect()
    with cuda_device(0).context:
        pool.collect()
    before, typed, same = pool.used_bytes, 0, True
    for _ in range(5):
        for options, error in (({"batch": 4096, "memory": "sublinear"}, OutOfMemoryError),
                               ({"batch": 4096, "budget": "64MiB"}, OutOfMemoryError),
                               ({"memory": "vdnn_all", "host_budget": 100}, MXNetError)):
            try:
                bind(**options).program("train")
            except error as refused:
                typed += error is MXNetError or refused.asked_bytes > refused.free_bytes >= 0
            gc.collect()
        same = same and by_step(bind(memory="vdnn_all", host_budget="1GiB")) == expected
        gc.collect()
        with cuda_device(0).context:
            pool.collect()
    return typed, same, before, pool.used_bytes, counters()["bytes_peak"]


def test_after_a_bind_that_ran_out_of_memory_what_fits_trains_with_the_same_bits():
    typed, same, before, after, peak = run(recovers, SOFTCUDA_MEM="32M", SOFTCUDA_SCHED="lazy")
    assert typed == 15 and same and before == after and peak <= 32 * MIB


def pinned() -> tuple[int, int]:
    device, size = cuda_device(0), 3 * MIB + 4096
    with device.context:
        kept = [device.pinned.take(size) for _ in range(10)]
    return counters()["pinned_bytes_live"], sum(array.nbytes for array in kept)


def test_page_locked_memory_is_what_was_asked_for_and_not_the_next_power_of_two():
    live, asked = run(pinned)
    assert asked == 10 * (3 * MIB + 4096) and asked <= live <= 1.05 * asked


def compared() -> tuple[str, str]:
    batch = {"data": np.ones(SHAPE, np.float32), "softmax_label": np.zeros(SHAPE[0], np.float32)}
    swapped, plain = bind(memory="vdnn_all", host_budget="1GiB"), bind()
    plain.set_updater(SGD(learning_rate=0.1, momentum=0.9))
    return str(swapped.check_modes("naive", **batch)), str(plain.check_modes("sublinear", **batch))


def test_modes_can_be_checked_against_each_other_on_the_gpu():
    swapped, plain = run(compared, SOFTCUDA_SCHED="random", SOFTCUDA_RACE=1)
    assert "memory='vdnn_all' and 'naive' agree in every bit" in swapped
    assert "memory='plain' and 'sublinear' agree in every bit" in plain and plain.endswith("of train and step")

"""Poison, planted faults and failures on the GPU: what is wrong shows, and what broke off ends in order."""
from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.plan.build import Maker, corrupt, swap

from .plans import device, line, load, output, step
from .processes import counters, run, spawn

# -- poison and planted faults -------------------------------------------------------------------------------------

def poisoned(change):
    m = Maker()
    data, a, b = m.value("data", buffer_class="input"), m.value("a"), m.value("b")
    scratch = m.value("scratch", buffer_class="workspace")
    c, out = m.value("c", at=m.buffers.offset[a]), m.value("out", buffer_class="output")
    m.run("t_unary", (data,), (a,))
    m.run("t_tuned", (a,), (b,), workspace=scratch)
    m.run("t_unary", (b,), (c,))
    m.run("t_binary", (c, b), (out,))
    plan = m.plan(inputs=(data,), outputs=(out,))
    if change == "reads the dead":
        plan.instructions.reads[3] = (c, data)
    elif change == "wrong offset":
        plan = corrupt(plan, b_offset=(c, plan.buffers.offset[b] + 32))
    return step(load(plan, poison=True), 1)


def test_poison_changes_no_result():
    assert run(poisoned, "nothing", SOFTCUDA_RACE=1) == [12] * 16


def test_poison_makes_a_read_of_the_dead_show():
    assert all(np.isnan(value) for value in run(poisoned, "reads the dead"))


def test_a_wrong_offset_shows_in_the_result():
    assert run(poisoned, "wrong offset") != [12] * 16


def overrun():
    m = Maker()
    data, out = m.value("data", buffer_class="input"), m.value("out", buffer_class="output")
    m.value("rest", 1024)
    m.run("t_first", (data, data), (out,))
    return step(load(m.plan(inputs=(data,), outputs=(out,))), 1)


def test_a_kernel_that_leaves_its_buffer_is_caught_with_an_allocation_for_each():
    assert spawn(overrun).error is None, "inside one arena nothing shows"
    outcome = spawn(overrun, MINIGRAPH_CUDA_POOL="off", SOFTCUDA_ALIGN=64)
    assert outcome.error is not None and outcome.error[0] == "MXNetError"
    assert "illegal memory access" in outcome.error[1] and "started anew" in outcome.error[1]
    assert "elemwise_add_forward_float32" in outcome.stderr and outcome.returncode == 0


def unpooled(options):
    program = load(swap(), **options)
    results = [step(program, k)[0] for k in range(3)]
    return results, counters()["allocations"] > 5


@pytest.mark.parametrize("options", [{}, {"poison": True}, {"graph": True}], ids=["plain", "poison", "graph"])
def test_an_allocation_for_each_buffer_changes_no_result(options):
    settings = {"MINIGRAPH_CUDA_POOL": "off", "SOFTCUDA_ALIGN": 64, "SOFTCUDA_RACE": 1, "SOFTCUDA_SCHED": "lazy"}
    assert run(unpooled, options, **settings) == [[0, 10, 20], True]


def freed_early(settles):
    first = load(line(40, floats=256))
    if not settles:
        device().pool.source.settle = device().pinned._settle = lambda: None
    first.feed("data", np.ones(256, np.float32))
    first.run("step")
    del first
    gc.collect()
    with device().context:
        kept = [device().streams.take() for _ in range(4)]  # or else the stream itself would order the two
    second = load(line(3, floats=256))
    second.feed("data", np.ones(256, np.float32))
    second.run("step")
    return float(output(second)[0]), counters()["races"], len(kept)


def test_bytes_of_a_program_that_still_runs_are_not_given_away():
    assert run(freed_early, True, SOFTCUDA_SCHED="lazy", SOFTCUDA_RACE=1) == [8, 0, 4]


def test_an_early_free_is_reported_as_a_race():
    outcome = spawn(freed_early, False, SOFTCUDA_SCHED="threads", SOFTCUDA_RACE=1)
    assert outcome.result is not None and outcome.result[1] > 0 and "RACE" in outcome.stderr


# -- failures ------------------------------------------------------------------------------------------------------

def broken_off():
    program = load(line(10))
    step(program, 1)

    def interrupt():
        raise KeyboardInterrupt

    program._ready["step"].insert(5, (interrupt, ()))
    program.feed("data", np.ones(16, np.float32))
    with pytest.raises(KeyboardInterrupt):
        program.run("step")
    with device().context:
        done = [stream.is_done() for stream in program.memory.streams]
    del program._ready["step"][5]
    return done, step(program, 1)[0]


def test_a_step_that_is_broken_off_drains_its_streams():
    assert run(broken_off, SOFTCUDA_SCHED="lazy") == [[True] * 3, 1024]

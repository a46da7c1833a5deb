"""Programs from hand-made plans: streams and events, copies, fills, loading, inputs in flight, launches."""
from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import BLOCK, Launch, address, float32, int64
from minigraph.device.cuda.loading import merged, subtract
from minigraph.device.cuda.modules import ready
from minigraph.plan.plan import IN_STREAM, OUT_STREAM
from tests.plan.build import Maker, swap

from .plans import device, line, load, output, step, without
from .processes import SCHEDULES, counters, run, spawn

# -- streams -------------------------------------------------------------------------------------------------------

def swapping(times=3, **options):
    program = load(swap(), **options)
    return [step(program, k)[:2] for k in range(times)]


@pytest.mark.parametrize("options", [{}, {"poison": True}, {"graph": True}], ids=["plain", "poison", "graph"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_copies_out_and_in_run_on_their_streams_as_the_plan_orders_them(schedule, options):
    assert run(swapping_with, options, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1) == [[0, 0], [10, 10], [20, 20]]


def swapping_with(options):
    return swapping(**options)


def swapping_without(instruction):
    program = load(without(swap(), instruction))
    return [step(program, k)[0] for k in range(3)], counters()["races"]


@pytest.mark.parametrize("wait", [2, 6, 8, 11])
def test_a_wait_that_is_left_out_is_reported_as_a_race(wait):
    outcome = spawn(swapping_without, wait, SOFTCUDA_RACE=1, SOFTCUDA_SCHED="lazy")
    assert outcome.error is None and outcome.result[1] > 0 and "RACE" in outcome.stderr


def two_ranges():
    m = Maker()
    data, a, on_host = m.value("data", buffer_class="input"), m.value("a"), m.value("on_host", arena="host")
    back, out = m.value("back"), m.value("out", buffer_class="output")
    m.run("t_unary", (data,), (a,))
    m.record(0)
    m.wait(0, OUT_STREAM)
    m.copy_out(a, on_host)
    m.copy_in(on_host, back, OUT_STREAM)
    m.run("t_binary", (a, back), (out,))
    program = load(m.plan(inputs=(data,), outputs=(out,), ranges={"forward": (0, 5), "backward": (5, 6)}))
    results = []
    for k in range(3):
        program.feed("data", np.full(16, k, np.float32))
        program.run("forward")
        program.run("backward")
        results.append(output(program)[0].tolist())
    return results


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_range_follows_all_streams_of_the_range_before(schedule):
    assert run(two_ranges, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1) == [0, 4, 8]


def next_run():
    """A copy in that waits for nothing within its program, to bytes that the run before still uses."""
    m = Maker()
    data, on_host = m.value("data", buffer_class="input"), m.value("on_host", arena="host")
    back, doubled, out = m.value("back"), m.value("doubled"), m.value("out", buffer_class="output")
    later = m.value("later", at=m.buffers.offset[back])
    m.copy_in(on_host, back)
    m.record(0, IN_STREAM)
    m.wait(0)
    m.run("t_unary", (back,), (doubled,))
    m.run("t_unary", (data,), (later,))
    m.run("t_binary", (doubled, later), (out,))
    program = load(m.plan(inputs=(data,), outputs=(out,)))
    program.memory.host_arena("host", 64)[:64] = np.full(16, 5, np.float32).view(np.uint8)
    for k in range(3):
        program.feed("data", np.full(16, k, np.float32))
        program.run("step")
    return output(program)[0].tolist()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_begins_on_no_stream_before_the_one_before_has_ended(schedule):
    assert run(next_run, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1) == 14


def fills():
    results = {}
    for dtype, value in (("float32", 1.5), ("float16", -2), ("uint8", 7), ("int32", -1), ("int64", 0), ("float64", 0),
                         ("float64", 1), ("float32", float("nan")), ("bool", 1)):
        m = Maker()
        b = m.value("out", 16, buffer_class="output")
        m.buffers.dtype[b] = np.dtype(dtype)
        m.buffers.shape[b] = (64 // np.dtype(dtype).itemsize,)
        m.fill(b, value)
        try:
            program = load(m.plan(outputs=(b,)))
            program.run("step")
            expected = np.full(m.buffers.shape[b], value).astype(dtype)
            results[f"{dtype} {value}"] = output(program).tobytes() == expected.tobytes()
        except MXNetError as error:
            results[f"{dtype} {value}"] = str(error)
    return results


def test_fills_write_the_value_in_every_dtype():
    results = run(fills)
    refused = results.pop("float64 1")
    assert "cannot fill out (float64) with 1" in refused
    assert all(value is True for value in results.values()), results


def timed():
    program, ticks = load(swap()), iter(range(10**6))
    wanted = step(program, 2.0)
    program.feed("data", np.full(16, 2.0, np.float32))
    seconds = program.times(lambda: float(next(ticks)))
    return len(seconds) == len(program.plan), all(each > 0 for each in seconds), output(program).tolist() == wanted


def test_timing_instructions_one_by_one_gives_a_runs_values_and_a_time_for_each():
    assert run(timed) == [True, True, True]


# -- loading -------------------------------------------------------------------------------------------------------

def refused():
    texts = []
    plan = line(2)

    def foreign():
        from minigraph.device.cpu import CpuDevice
        device().load(plan, CpuDevice().memory())

    def small():
        device().load(plan, device().memory())

    def no_workspace():
        m = Maker()
        data, out = m.value("data", buffer_class="input"), m.value("out", buffer_class="output")
        m.run("t_tuned", (data,), (out,))
        load(m.plan(inputs=(data,), outputs=(out,)))

    def no_kernel():
        m = Maker()
        data, out = m.value("data", buffer_class="input"), m.value("out", buffer_class="output")
        m.run("t_dense", (data, data), (out,))
        load(m.plan(inputs=(data,), outputs=(out,)))

    for attempt in (foreign, small, no_workspace, no_kernel, lambda: load(plan).run("backward"),
                    lambda: load(plan).feed("data", np.zeros(3))):
        with pytest.raises(MXNetError) as caught:
            attempt()
        texts.append(str(caught.value))
    return texts


def test_what_cannot_be_loaded_or_run_is_refused_with_the_reason():
    foreign, small, workspace, kernel, unknown, shape = run(refused)
    assert "needs arenas of that device, got CpuMemory" in foreign
    assert "takes 192 B of the transient arena, which has 0 B; reserve it first" in small
    assert "instruction out (t_tuned) takes 64 bytes of workspace on the GPU, the plan grants 0" in workspace
    assert "operator t_dense has no CUDA kernel" in kernel
    assert "has no range 'backward'; it has step" in unknown
    assert "input data has shape (16,), and was given (3,)" in shape


def moved():
    program = load(line(3))
    first = step(program, 1)
    program.memory.reserve(1 << 20, 1 << 22)
    return first[0], step(program, 2)[0], program.memory.generation


def test_a_program_is_bound_again_when_its_arenas_move():
    first, second, generation = run(moved, SOFTCUDA_RACE=1)
    assert (first, second) == (8, 16) and generation >= 3


def work(length):
    """Python calls, driver calls, allocations and look-ups of one run of a loaded program."""
    program = load(line(length))
    step(program, 1)
    looked_up, calls = [], {"call": 0, "c_call": 0}
    program._device.kernels.function = lambda *names: looked_up.append(names)
    before = counters()
    sys.setprofile(lambda frame, event, argument: calls.__setitem__(event, calls.get(event, 0) + 1))
    program.run("step")
    sys.setprofile(None)
    after = counters()
    return calls["call"], after["launches"] - before["launches"], len(looked_up), {
        name: after[name] - before[name] for name in ("allocations", "pinned_allocations", "copies", "memsets")}


def test_a_run_only_walks_a_list_nothing_is_looked_up_or_allocated():
    short, long = run(work, 10), run(work, 1000)
    assert (short[1], long[1]) == (10, 1000)
    assert short[0] == long[0] < 30, "Python functions called must not grow with the plan"
    for _, _, looked_up, made in (short, long):
        assert looked_up == 0 and made == dict.fromkeys(made, 0)


# -- inputs --------------------------------------------------------------------------------------------------------

def in_flight():
    program = load(line(20))
    results = []
    program.feed("data", np.full(16, 1, np.float32))
    for k in range(2, 6):
        program.run("step")
        program.feed("data", np.full(16, k, np.float32))
        if k == 2:
            with device().context:
                program.memory.staging.stream.synchronize()
                results.append(not program.memory.streams[0].is_done())
        results.append(float(output(program)[0] / 2 ** 20))
    program.run("step")
    return [*results, float(output(program)[0] / 2 ** 20)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_next_batch_travels_while_a_step_runs(schedule):
    early, *values = run(in_flight, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1)
    assert values == [1, 2, 3, 4, 5]
    if schedule == "lazy":
        assert early, "the upload must not wait for the end of the step"


def fed_twice():
    program = load(line(1))
    program.feed("data", np.full(16, 1, np.float32))
    values = np.full(16, 2, np.float32)
    program.feed("data", values)
    values[:] = 9
    program.run("step")
    other = device().load(line(1), program.memory)
    other.feed("data", np.full(16, 5, np.float32))
    first = output(program)[0]
    other.run("step")
    return float(first), float(output(other)[0])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_last_value_fed_counts_and_is_copied_at_once(schedule):
    assert run(fed_twice, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1) == [4, 10]


def run_ahead(drop):
    program = load(line(50, floats=4096))
    staging = program.memory.staging
    if drop == "upload":
        take = staging.take
        staging.take = lambda owner, targets: take(owner, targets)[1:]
    if drop == "area":
        begin, left = staging._begin, staging._left
        with device().context:
            never = device().events.take()

        def begin_at_once(owner, total):
            staging._left = never
            begin(owner, total)
            staging._left = left

        staging._begin = begin_at_once
    for k in range(4):
        program.feed("data", np.full(4096, k, np.float32))
        program.run("step")
    return float(output(program)[0] / 2 ** 50), counters()["races"]


def test_batches_may_be_fed_as_fast_as_they_come():
    assert run(run_ahead, "", SOFTCUDA_SCHED="lazy", SOFTCUDA_RACE=1) == [3, 0]


@pytest.mark.parametrize("dropped", ["upload", "area"])
def test_a_step_or_an_upload_that_does_not_wait_is_reported_as_a_race(dropped):
    outcome = spawn(run_ahead, dropped, SOFTCUDA_SCHED="lazy", SOFTCUDA_RACE=1)
    assert outcome.error is None and outcome.result[1] > 0 and "RACE" in outcome.stderr


# -- spans ---------------------------------------------------------------------------------------------------------

def test_spans_merge_and_subtract_as_sets_of_bytes():
    draw = np.random.RandomState(0)
    for _ in range(200):
        spans, holes = ([tuple(sorted(map(int, draw.randint(0, 40, 2)))) for _ in range(draw.randint(0, 5))]
                        for _ in range(2))
        left = {byte for begin, end in spans for byte in range(begin, end)}
        left -= {byte for begin, end in holes for byte in range(begin, end)}
        found = subtract(merged(spans), merged(holes))
        assert sorted(left) == [byte for begin, end in found for byte in range(begin, end)]


# -- launches ------------------------------------------------------------------------------------------------------

def launched(public, shared_bytes):
    """x + x by one launch, through PyCUDA's inner call or its public one."""
    cuda, values = device().driver.cuda, np.arange(100, dtype=np.float32)
    with device().context:
        piece, stream = device().pool.allocate(1024), device().streams.take()
        cuda.memcpy_htod_async(piece.address, values, stream)
        at, to = address(piece.address), address(piece.address + 512)
        arguments = (at, at, to, int64(100))
        launch = Launch("elemwise_add_forward_float32", (1, 1, 1), (BLOCK, 1, 1), arguments, shared_bytes)
        function, arguments = device().kernels.call(launch, stream, "elemwise")
        if public:
            kernel = SimpleNamespace(prepare=device().kernels.function(launch.kernel).prepare)
            formats, packed = zip(*launch.args, strict=True)
            function, arguments = ready(kernel, launch, stream, formats, packed)
        function(*arguments)
        result = np.empty_like(values)
        cuda.memcpy_dtoh_async(result, piece.address + 512, stream)
        stream.synchronize()
    return bool((result == 2 * values).all()), function.__class__.__name__


@pytest.mark.parametrize("public", [False, True])
def test_a_launch_goes_by_pycudas_inner_call_or_else_by_its_public_one(public):
    right, kind = run(launched, public, 0)
    assert right and (kind == "partial") is public


def test_a_launch_may_ask_for_more_shared_memory_than_a_block_has_unasked():
    assert run(launched, False, 64 << 10)[0]


def dims_launch():
    """What a kernel argument of several values becomes: eight numbers in line, and a float behind them."""
    calls = []
    function = SimpleNamespace(_launch_kernel=lambda *arguments: calls.append(arguments))
    launch = Launch("k", (2, 1, 1), (32, 1, 1), (("8q", tuple(range(8))), float32(1.5)))
    call, arguments = ready(function, launch, None, ["8q", "f"], [*range(8), 1.5])
    call(*arguments)
    return calls


def test_arguments_are_packed_as_the_kernel_takes_them():
    ((grid, block, packed, shared, stream),) = dims_launch()
    assert (grid, block, shared, stream) == ((2, 1, 1), (32, 1, 1), 0, None)
    assert packed == np.arange(8, dtype=np.int64).tobytes() + np.float32(1.5).tobytes()

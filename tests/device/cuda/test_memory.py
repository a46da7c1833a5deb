"""Arenas in device memory: contents, growth, running out, page-locked memory."""
from __future__ import annotations

import gc

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda import DeviceMemoryError, cuda_device
from minigraph.device.cuda.memory import TRANSFER_BYTES

from .processes import counters, run, spawn

FLOAT = np.dtype(np.float32)
MIB = 1 << 20


def there_and_back():
    memory = cuda_device(0).memory()
    memory.reserve(4 * TRANSFER_BYTES, 1 << 20)
    draw = np.random.RandomState(0)
    same = []
    for dtype, shape in (("float32", (3, 5)), ("float16", (7,)), ("int64", ()), ("uint16", (2, 2)), ("float32", (0, 4)),
                         ("uint8", (3 * TRANSFER_BYTES + 17,)), ("float64", (2, TRANSFER_BYTES // 16 + 1))):
        value = np.asarray(draw.rand(*shape) * 99).astype(dtype)
        for arena in ("persistent", "transient"):
            if value.nbytes > MIB // 2 and arena == "transient":
                continue
            memory.write(arena, 128, value)
            same.append(bool((memory.read(arena, 128, shape, np.dtype(dtype)) == value).all()))
    strided = np.arange(24, dtype=FLOAT).reshape(4, 6).T
    memory.write("persistent", 0, strided)
    same.append(bool((memory.read("persistent", 0, (6, 4), FLOAT) == strided).all()))
    return same


@pytest.mark.parametrize("schedule", ["eager", "lazy", "threads"])
def test_arrays_of_any_dtype_shape_and_size_come_back_as_they_were_written(schedule):
    assert all(run(there_and_back, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1))


def growth():
    memory = cuda_device(0).memory()
    memory.reserve(64, 64)
    first = memory.read("persistent", 0, (16,), FLOAT).tolist()
    memory.write("persistent", 0, np.arange(16, dtype=FLOAT))
    before = memory.generation
    memory.reserve(64, 64)
    still = memory.generation == before
    memory.reserve(128, 64)
    memory.reserve(40 * MIB, 1024)
    kept = memory.read("persistent", 0, (32,), FLOAT).tolist()
    rest = memory.read("persistent", 64, (40 * MIB // 4 - 16,), FLOAT)
    return first, still, memory.generation > before, kept, float(abs(rest).max())


@pytest.mark.parametrize("schedule", ["lazy", "threads"])
def test_growing_keeps_persistent_contents_and_new_bytes_are_zero(schedule):
    first, still, moved, kept, rest = run(growth, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1)
    assert first == [0] * 16 and still and moved
    assert kept == [*range(16), *[0] * 16] and rest == 0


def outside():
    memory = cuda_device(0).memory()
    memory.reserve(64, 64)
    texts = []
    for use in (lambda: memory.read("transient", 32, (9,), FLOAT),
                lambda: memory.write("persistent", 64, np.ones(1, FLOAT))):
        try:
            use()
        except MXNetError as error:
            texts.append(str(error))
    return texts


def test_places_outside_an_arena_are_refused():
    assert run(outside) == ["the transient arena has 64 bytes, and bytes 32 to 68 were asked for; reserve it first",
                            "the persistent arena has 64 bytes, and bytes 64 to 68 were asked for; reserve it first"]


def exhaust():
    device = cuda_device(0)
    memory = device.memory()
    memory.reserve(1024, 8 * MIB)
    memory.write("persistent", 0, np.arange(256, dtype=FLOAT))
    errors = []
    for _ in range(20):
        try:
            memory.reserve(1024, 512 * MIB)
        except DeviceMemoryError as error:
            errors.append((error.asked_bytes, error.free_bytes, error.largest_hole_bytes))
        memory.write("transient", 0, np.ones(2 * MIB, FLOAT))
        assert memory.read("transient", 4 * MIB, (1,), FLOAT).tolist() == [1]
    kept = memory.read("persistent", 0, (256,), FLOAT)
    memory.reserve(1024, 48 * MIB)
    return sorted(set(errors)), len(errors), bool((kept == np.arange(256)).all()), counters()["bytes_peak"]


def test_running_out_is_typed_and_leaves_the_arenas_usable_twenty_times():
    errors, count, kept, peak = run(exhaust, SOFTCUDA_MEM="64M")
    assert count == 20 and kept and peak <= 64 * MIB
    ((asked, free, hole),) = errors
    assert asked == 512 * MIB and 50 * MIB < hole <= free < 64 * MIB


def capped():
    device = cuda_device(0)
    memory = device.memory()
    try:
        memory.reserve(0, 32 * MIB)
    except DeviceMemoryError as error:
        return error.free_bytes, device.pool.reserved_bytes
    return None


def test_the_capacity_of_the_settings_holds():
    assert run(capped, MINIGRAPH_CUDA_MEMORY="16MiB") == [16 * MIB, 0]


def given_back():
    device = cuda_device(0)
    memory = device.memory()
    memory.reserve(MIB, 40 * MIB)
    memory.write("persistent", 0, np.ones(4, FLOAT))
    memory.host_arena("swap", 3 * MIB)
    used = counters()
    memory.close()
    del memory
    gc.collect()
    device.trim()
    return used, counters(), device.pool.used_bytes, device.pinned.used_bytes


def test_what_is_closed_goes_back_to_the_driver_on_demand():
    before, after, used, pinned = run(given_back)
    assert before["bytes_live"] >= 41 * MIB and before["pinned_bytes_live"] >= 5 * MIB
    assert (after["bytes_live"], after["pinned_bytes_live"], used, pinned) == (0, 0, 0, 0)


def host_growth():
    memory = cuda_device(0).memory()
    memory.host_arena("swap", 4096)[:] = 7
    larger = memory.host_arena("swap", 3 * 4096)
    return larger.nbytes, larger[:4096].tolist() == [7] * 4096, memory.host_arena("swap", 100) is larger


def test_a_host_arena_keeps_its_contents_as_it_grows():
    assert run(host_growth) == [3 * 4096, True, True]


def pinned_reuse():
    device = cuda_device(0)
    seen = set()
    with device.context:
        for _ in range(5):
            arrays = [device.pinned.take(n) for n in (1, 4096, 5000)]
            seen |= {array.ctypes.data for array in arrays}
            for array in arrays:
                device.pinned.give_back(array)
        device.pinned.collect()
    return len(seen), device.pinned.used_bytes, counters()["pinned_bytes_live"]


def test_page_locked_pieces_come_in_pages_and_are_used_again():
    assert run(pinned_reuse) == [3, 0, 4096 + 4096 + 8192]


def touched_in_flight():
    device = cuda_device(0)
    cuda = device.driver.cuda
    with device.context:
        piece, array, stream = device.pool.allocate(4096), device.pinned.take(4096), device.streams.take()
        array[:] = 1
        cuda.memcpy_htod_async(piece.address, array, stream)
        device.touch(array, 4096)
        stream.synchronize()
        races = counters()["races"]
        device.touch(array, 4096)
        return races, counters()["races"]


def test_the_race_detector_is_told_when_the_host_writes_page_locked_memory():
    outcome = spawn(touched_in_flight, SOFTCUDA_RACE=1)
    assert outcome.result == [1, 1] and "RACE" in outcome.stderr

"""The null device verifies and simulates, and computes nothing."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.device.device import Device
from minigraph.device.null import NullDevice
from minigraph.memory.machine import MACHINES
from minigraph.plan.verify import VerificationError

from ..plan.build import chain, corrupt, registered, swap


@pytest.fixture(autouse=True, scope="module")
def _small_operators() -> Iterator[None]:
    with registered():
        yield


def test_loading_verifies_unless_told_not_to() -> None:
    broken = corrupt(chain(), b_offset=(3, 0))
    device: Device = NullDevice("H200")
    with pytest.raises(VerificationError):
        device.load(broken, device.memory())
    program = NullDevice("H200", verify=False).load(broken)
    assert program.verification is None
    good = NullDevice("H200").load(chain())
    assert good.verification is not None and good.verification.instructions == 3


def test_running_lets_simulated_time_pass() -> None:
    device = NullDevice("v100")
    program = device.load(swap())
    program.run("step")
    program.run("step")
    assert program.seconds == 2 * program.simulations["step"].seconds > 0
    with pytest.raises(MXNetError, match="no range 'eval'"):
        program.run("eval")
    device.synchronize()


def test_its_times_are_simulated_ones_whatever_the_clock() -> None:
    program = NullDevice("v100").load(swap())
    simulated = program.simulations["step"]
    assert program.times(lambda: 0.0) == (simulated.end - simulated.start).tolist()


def test_a_plan_that_exceeds_the_machine_is_refused_with_both_byte_counts() -> None:
    small = replace(MACHINES["K40c"], memory_bytes=319)
    with pytest.raises(OutOfMemoryError) as caught:
        NullDevice(small).load(swap())
    assert (caught.value.asked_bytes, caught.value.free_bytes) == (320, 319)
    assert NullDevice(replace(small, memory_bytes=320)).load(swap())


def test_its_memory_has_sizes_and_reads_as_zeros() -> None:
    memory = NullDevice(replace(MACHINES["K40c"], memory_bytes=1000)).memory()
    memory.reserve(600, 300)
    with pytest.raises(OutOfMemoryError):
        memory.reserve(100, 500)
    memory.reserve(100, 400)
    memory.write("persistent", 0, np.ones(3, np.float32))
    assert memory.read("persistent", 0, (3,), np.dtype(np.float32)).tolist() == [0, 0, 0]
    memory.close()
    memory.reserve(100, 900)

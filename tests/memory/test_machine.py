"""The machines that ship with the project."""
from __future__ import annotations

import dataclasses

import pytest

from minigraph.base import MXNetError
from minigraph.memory.machine import MACHINES, Machine, get_machine


def test_the_promised_machines_are_there() -> None:
    assert list(MACHINES) == ["K40c", "TITAN Xp", "P100", "V100", "A100", "H100", "H200", "cpu"]


GPUS = [machine for name, machine in MACHINES.items() if name != "cpu"]


@pytest.mark.parametrize("machine", GPUS, ids=lambda m: m.name)
def test_figures_are_in_bytes_and_seconds(machine: Machine) -> None:
    """Wrong units would be off by a factor of a thousand."""
    assert 8 * 2**30 < machine.memory_bytes < 256 * 2**30
    assert 1e12 < machine.flops < 1e14
    assert 1e11 < machine.bandwidth < 1e13
    assert 1e10 < machine.copy_out < 1e11 and 1e10 < machine.copy_in < 1e11
    assert 1e-6 <= machine.launch_seconds < 1e-4
    assert machine.source


def test_a_machine_is_found_in_any_case_and_a_missing_one_lists_the_names() -> None:
    assert get_machine("titan xp ") is MACHINES["TITAN Xp"]
    with pytest.raises(MXNetError, match="no machine 'abacus'; known are K40c, TITAN Xp"):
        get_machine("abacus")


def test_the_roofline_takes_the_slower_side_and_the_launch() -> None:
    machine = Machine("m", 1, flops=10.0, bandwidth=5.0, copy_out=4.0, copy_in=2.0, launch_seconds=1.0, source="x")
    assert machine.seconds(100.0, 5) == 11.0
    assert machine.seconds(10.0, 50) == 11.0
    assert machine.copy_out_seconds(8) == 3.0
    assert machine.copy_in_seconds(8) == 5.0


def test_machines_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        MACHINES["H200"].flops = 1.0  # type: ignore[misc]

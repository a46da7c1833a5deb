"""What the benchmark of convolutions does beside timing: its calls run, and its sums count each layer as often as a
network has it."""
from __future__ import annotations

import pytest

from benchmarks import kernels, onednn
from benchmarks.kernels import PHASES, Case, Layer, Row
from minigraph.device.cpu.native.families import import_families
from minigraph.device.cpu.native.library import Library, find_library


@pytest.fixture
def library() -> Library:
    found = find_library("auto")
    if found is None:
        pytest.skip("there is no C++ compiler here, so there are no kernels")
    import_families()
    return found


@pytest.mark.parametrize("phase", PHASES)
def test_kernels_run_over_memory_that_their_call_keeps(library: Library, phase: str) -> None:
    call = Case(Layer(1, 8, 6, 16, 3, 1), 2, phase).own(library)
    kernels.least_seconds({"own": call}, 1)


@pytest.mark.parametrize("layer", [Layer(1, 8, 6, 16, 3, 1), Layer(1, 16, 6, 16, 3, 2, 16)], ids=str)
@pytest.mark.parametrize("phase", PHASES)
def test_onednn_computes_every_phase_also_in_groups(layer: Layer, phase: str) -> None:
    path = onednn.installed()
    if path is None:
        pytest.skip("oneDNN is not installed (pip install onednn-cpu-gomp)")
    Case(layer, 2, phase).onednn(onednn.OneDnn(path))()


def test_sums_are_over_all_layers_and_ratios_are_to_every_peer() -> None:
    rows = [Row("net", "a", 2, PHASES[0], 1, {"own": 0.001, "torch": 0.002, kernels.ONEDNN: 0.004}),
            Row("net", "b", 1, PHASES[1], 1, {"own": 0.003, "torch": 0.001, kernels.ONEDNN: 0.002})]
    assert kernels.sums_of(rows, PHASES[0]) == {"own": 0.002, "torch": 0.004, kernels.ONEDNN: 0.008}
    text = kernels.markdown(rows)
    assert "| net | forward | 2.0 | 4.0 | 8.0 | 0.50 | 0.25 |" in text
    assert "| net | sum | 5.0 | 5.0 | 10.0 | 1.00 | 0.50 |" in text
    assert "weight gradient" not in text

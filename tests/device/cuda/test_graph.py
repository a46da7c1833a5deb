"""Replay of CUDA graphs."""
from __future__ import annotations

from types import SimpleNamespace

import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.graph import Graphs

from .plans import device, line, load, step
from .processes import SCHEDULES, counters, run

# -- graphs --------------------------------------------------------------------------------------------------------

def replayed():
    program = load(line(50), graph=True)
    results = [step(program, k)[0] / 2 ** 50 for k in range(3)]
    launches = counters()["launches"]
    results.append(step(program, 3)[0] / 2 ** 50)
    captured_once = counters()["launches"] == launches
    program.memory.reserve(0, 1 << 20)
    results.append(step(program, 4)[0] / 2 ** 50)
    return results, captured_once, counters()["graph_launches"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_graph_replays_the_step_with_new_inputs_and_after_a_move(schedule):
    assert run(replayed, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1) == [[0, 1, 2, 3, 4], True, 5]


def without_graphs():
    loaded = device().driver
    device().graphs = Graphs(SimpleNamespace(library=SimpleNamespace()))
    texts = []
    with pytest.raises(MXNetError) as caught:
        step(load(line(2), graph=True), 1)
    texts.append(str(caught.value))
    device().graphs = Graphs(loaded)
    library = device().graphs._library
    begin = library._find("cuStreamBeginCapture_v2")
    library._found["cuStreamBeginCapture_v2"] = lambda *arguments: 801
    with pytest.raises(MXNetError) as caught:
        step(load(line(2), graph=True), 1)
    library._found["cuStreamBeginCapture_v2"] = begin
    return [*texts, str(caught.value)]


def test_a_driver_that_replays_no_graphs_says_so():
    missing, unsupported = run(without_graphs)
    assert "has no cuStreamBeginCapture_v2" in missing and "without graph=True" in missing
    assert "failed with 801 (operation not supported)" in unsupported and "run without graph=True" in unsupported

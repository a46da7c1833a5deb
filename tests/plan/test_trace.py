"""Chrome traces of simulated runs: events, counters, and the measured run beside them."""
from __future__ import annotations

import json

import numpy as np
import pytest

import minigraph as mx
from minigraph.executor import Executor
from minigraph.memory.machine import get_machine
from minigraph.plan.plan import AGAIN
from minigraph.plan.report import report
from minigraph.plan.simulate import simulate
from minigraph.plan.trace import MEASURED, SIMULATED, trace

from .build import Maker, chain, swap
from .test_simulate import ROUND
from .test_techniques import planned


def events(made: dict, kind: str, process: int = SIMULATED) -> list[dict]:
    return [event for event in made["traceEvents"] if event["ph"] == kind and event["pid"] == process]


def test_every_instruction_that_takes_time_is_an_event_on_its_stream() -> None:
    found = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events(trace(swap(), ROUND), "X")]
    expected = [("a", 0, 0, 2), ("event0", 1, 0, 2), ("a", 1, 2, 4), ("b", 0, 2, 2), ("event1", 0, 4, 2),
                ("c", 0, 6, 2), ("event1", 2, 0, 6), ("back", 2, 6, 2), ("out", 0, 8, 3)]
    assert found == [(name, stream, 1e6 * start, 1e6 * took) for name, stream, start, took in expected]


def test_streams_are_named_threads() -> None:
    names = {e["tid"]: e["args"]["name"] for e in events(trace(swap(), ROUND), "M") if e["name"] == "thread_name"}
    assert names == {0: "compute", 1: "out", 2: "in"}


def test_counters_are_the_live_bytes_by_class() -> None:
    # data until a ends at 2; a from 0 until its copy has left at 6; b 2-8; c 6-11; back 6-11; out 8-11
    counted = {e["ts"] / 1e6: e["args"] for e in events(trace(swap(), ROUND), "C")}
    assert counted == {0.0: {"input": 64, "activation": 64, "output": 0},
                       2.0: {"input": 0, "activation": 128, "output": 0},
                       6.0: {"input": 0, "activation": 192, "output": 0},
                       8.0: {"input": 0, "activation": 128, "output": 64},
                       11.0: {"input": 0, "activation": 0, "output": 64}}


@pytest.mark.parametrize("memory, options", [("plain", {}), ("vdnn_all", {"host_budget": "1GiB"})])
def test_the_highest_counter_stays_within_the_plan(memory, options) -> None:
    made = planned(memory, **options)
    highest = max(sum(e["args"].values()) for e in events(trace(made, "P100"), "C"))
    assert highest <= made.planned_bytes
    assert memory != "plain" or highest == report(made).peak_live_bytes


def test_a_simulation_that_is_there_is_used() -> None:
    plan = chain()
    assert trace(plan, simulate(plan, ROUND)) == trace(plan, ROUND)


def test_what_runs_again_says_so() -> None:
    m = Maker()
    source, a = m.value("data", buffer_class="input"), m.value("a", buffer_class="output")
    m.run("t_unary", (source,), (a,), name=f"a{AGAIN}1")
    event, = events(trace(m.plan(inputs=(source,), outputs=(a,)), ROUND), "X")
    assert event["args"]["recomputed"] is True and event["cat"] == "t_unary"


def test_the_measured_run_stands_beside_the_simulated_one() -> None:
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3), name="softmax")
    inputs = ("data", "softmax_label")
    requests = {name: "write" for name in symbol.list_arguments() if name not in inputs}
    executor = Executor(symbol, mx.cpu(), {"data": (2, 4)}, grad_req=requests, inputs=inputs)
    executor.forward(is_train=True, data=np.zeros((2, 4), np.float32), softmax_label=np.zeros(2, np.float32))
    executor.backward()
    plan = executor.program("train").plan
    measured = executor.profile(2, "train").chrome()
    made = json.loads(json.dumps(trace(plan, get_machine("cpu"), measured)))
    beside = events(made, "X", MEASURED)
    assert [e["name"] for e in beside] == 2 * list(plan.instructions.name)
    assert [e["ts"] for e in beside] == pytest.approx([e["ts"] for e in measured["traceEvents"]])
    names = {e["args"]["name"] for e in events(made, "M", MEASURED) if e["name"] == "process_name"}
    assert names == {"measured train"}
    assert {e["name"] for e in events(made, "X")} == set(plan.instructions.name)

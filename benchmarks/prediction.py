"""Predicted beside measured seconds of a training step, for plans and a batch size that the profile never saw.

    python -m benchmarks.prediction [--quick] [--json FILE] [--rounds N]

The operators of the plain plan of a network are profiled at two batch sizes. Predicted are then the step at a third
batch size between them, and a plan that keeps to a budget by recomputing: by the bare roofline of the machine as it
was measured, and with the profile. Measured is the median over steps of executors that take turns, with the
range of the middle half. The aim is that the profile is within AIM of what is measured.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from minigraph.executor import Executor
from minigraph.measure import measure_machine, merged, profile_ops
from minigraph.memory.machine import Machine
from minigraph.memory.profile import Profile
from minigraph.networks import load_network
from minigraph.optimizer import create
from minigraph.plan.plan import Plan
from minigraph.plan.simulate import simulate
from minigraph.planning import plan

AIM = 0.15


@dataclass(frozen=True)
class Case:
    """A network; the batches that are profiled, the one that is predicted, and the share of the plain plan's bytes
    that a recomputing plan may take (None: there is nothing to recompute)."""

    name: str
    network: str
    settings: dict[str, Any]
    shape: tuple[int, ...]
    profiled: tuple[int, int]
    predicted: int
    share: float | None
    quick: bool = False


CASES = (
    Case("mlp", "zoo.mlp", {}, (784,), (64, 256), 160, None, quick=True),
    Case("lenet", "zoo.lenet", {}, (1, 28, 28), (16, 64), 40, None),
    Case("resnet-20 v2", "zoo.resnet", {"num_classes": 10, "depth": 20, "version": 2}, (3, 32, 32), (16, 64), 32, 0.6,
         quick=True),
    Case("resnet-56 v2", "zoo.resnet", {"num_classes": 10, "depth": 56, "version": 2}, (3, 32, 32), (8, 32), 16, 0.5),
)


@dataclass(frozen=True)
class Row:
    """Seconds of one step; `low` and `high` bound the middle half of those measured."""

    name: str
    what: str
    batch: int
    roofline: float
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1.0


def plan_of(case: Case, batch: int, **options: Any) -> Plan:
    """The plan of a step."""
    shapes = {"data": (batch, *case.shape)}
    symbol = load_network(case.network, case.settings, shapes)
    return plan(symbol, shapes, create("sgd", momentum=0.9), "step", **options)


def stepper(case: Case, made: Plan, batch: int) -> Callable[[], float]:
    """A function that runs one step by a plan and returns its seconds."""
    shapes = {"data": (batch, *case.shape)}
    executor = Executor(load_network(case.network, case.settings, shapes), None, shapes,
                        inputs=("data", "softmax_label"), verify=False)
    optimizer: Any = create("sgd", learning_rate=1e-3, momentum=0.9, rescale_grad=1.0 / batch)
    executor.set_updater(optimizer)
    executor.use_plan("step", made)
    chance = np.random.default_rng(0)
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        array[:] = chance.normal(0, 0.1, array.shape) if name.endswith("weight") else \
            float(name.endswith(("gamma", "var")))
    images = chance.standard_normal(shapes["data"], np.float32)
    labels = np.zeros(batch, np.float32)

    def step() -> float:
        start = time.perf_counter()
        executor.step(optimizer.control, data=images, softmax_label=labels)
        return time.perf_counter() - start
    step()
    return step


def measure(case: Case, machine: Machine, rounds: int) -> list[Row]:
    """Profile, predict, and measure a case."""
    profile = merged(profile_ops(plan_of(case, batch), rounds=rounds) for batch in case.profiled)
    plain = plan_of(case, case.predicted)
    seen = plan_of(case, case.profiled[1])
    plans = [("profiled batch", case.profiled[1], seen), ("new batch", case.predicted, plain)]
    if case.share is not None:
        budget = plain.arenas[0].bytes + round(plain.arenas[1].bytes * case.share)
        lean = plan_of(case, case.predicted, memory="auto", budget=budget)
        plans.append((f"new batch, recomputing (x{_again(lean):.2f} operators)", case.predicted, lean))
    steps = [stepper(case, made, batch) for _, batch, made in plans]
    taken: list[list[float]] = [[] for _ in plans]
    for _ in range(3 * rounds):
        for step, values in zip(steps, taken, strict=True):
            values.append(step())
    return [_row(case.name, what, batch, made, machine, profile, values)
            for (what, batch, made), values in zip(plans, taken, strict=True)]


def _again(made: Plan) -> float:
    """Instructions over different ones: those that run again have names of their own."""
    return len(made) / sum("/again" not in name for name in made.instructions.name)


def _row(name: str, what: str, batch: int, made: Plan, machine: Machine, profile: Profile, values: list[float]) -> Row:
    low, middle, high = statistics.quantiles(values, n=4)
    return Row(name, what, batch, simulate(made, machine).seconds, simulate(made, machine, profile=profile).seconds,
               middle, low, high)


def format_row(row: Row) -> str:
    """A line of the table, times in milliseconds."""
    return (f"{row.name:<14}{row.what:<42}{row.batch:>6}{row.roofline * 1e3:>11.2f}{row.predicted * 1e3:>11.2f}"
            f"{row.measured * 1e3:>11.2f}   {row.low * 1e3:.2f}-{row.high * 1e3:.2f}  {row.error:+.1%}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print predictions beside measurements."""
    parser = argparse.ArgumentParser(prog="prediction", description="Predicted beside measured step times.")
    parser.add_argument("--quick", action="store_true", help="two networks, fewer rounds")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--rounds", type=int, help="runs of each profile; steps are three times as many")
    given = parser.parse_args(argv)
    rounds = given.rounds or (5 if given.quick else 9)
    report = measure_machine(rounds=3 if given.quick else 7)
    print(f"{report.text()}\n\n{'network':<14}{'plan':<42}{'batch':>6}{'roofline':>11}{'predicted':>11}{'measured':>11}"
          f"   middle half  error", flush=True)
    rows = []
    for case in CASES:
        if case.quick or not given.quick:
            for row in measure(case, report.machine, rounds):
                rows.append(row)
                print(format_row(row), flush=True)
    new = [abs(row.error) for row in rows if row.what.startswith("new")]
    summary = {"worst_error": max(new), "median_error": statistics.median(new), "aim": AIM,
               "within_aim": sum(error <= AIM for error in new), "predictions": len(new), "load": os.getloadavg()[0]}
    print(f"worst error {summary['worst_error']:.1%}, median {summary['median_error']:.1%}, load {summary['load']:.1f}")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"summary": summary, "machine": asdict(report), "rows": [asdict(row) for row in rows]}, file,
                      indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

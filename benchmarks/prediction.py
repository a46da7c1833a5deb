"""Predicted beside measured seconds of a training step, for plans and a batch size that the profile never saw.

    MINIGRAPH_CPU_THREADS=1 python -m benchmarks.prediction [--quick] [--only NAME] [--json FILE] [--rounds N]

The operators of the plain plan of a network are profiled at two batch sizes. Predicted are then the step at a third
batch size between them, and plans of it that keep to a budget by recomputing, that swap to host memory, and whose batch
is cut into slices: by the bare roofline of the machine as it was measured, and with the profile. Rounds of the profile
and steps of executors take turns, so that both see the same machine. Operators are timed by their thread's processor
time (so kernels must have one thread), steps without the time that they waited for a core (benchmarks/quiet.py), and
the half of the steps counts whose threads waited least: measured is their median, with the range of the middle half.
The aim is that the profile is within AIM of what is measured.
"""
from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.cases import SGD, Case, add_choice, choose, write_json
from benchmarks.quiet import Timed, least_disturbed, timed
from minigraph.executor import Executor
from minigraph.measure import Profiler, measure_machine, merged
from minigraph.memory.machine import MACHINES, Machine
from minigraph.memory.profile import Profile
from minigraph.optimizer import create
from minigraph.plan.plan import Plan
from minigraph.plan.simulate import simulate
from minigraph.planning import plan

AIM = 0.15
HOST_BYTES = 2**30
"""Host memory that a plan may swap to."""
STEPS = 3
"""Steps of each executor in a round."""


@dataclass(frozen=True)
class Predicted(Case):
    """A network at the batch that is predicted, and the two batches that are profiled; `share` is that of the plain
    plan's transient bytes which a recomputing plan may take, `slices` the number that the batch is cut into, `swaps`
    says whether a plan swaps (None, 1 and False: there is no such plan). `words` is the size of the vocabulary where
    data are words, 0 for others."""

    profiled: tuple[int, int] = (0, 0)
    share: float | None = None
    slices: int = 1
    swaps: bool = False
    words: int = 0

    def at(self, batch: int) -> Predicted:
        """The same at another batch."""
        return replace(self, data=(batch, *self.data[1:]))


def _residual(depth: int) -> dict[str, Any]:
    return {"num_classes": 10, "depth": depth, "version": 2}


CASES = (
    Predicted("mlp", "zoo.mlp", (160, 784), quick=True, profiled=(64, 256)),
    Predicted("lenet", "zoo.lenet", (40, 1, 28, 28), profiled=(16, 64), slices=2),
    Predicted("vgg-11, CIFAR", "zoo.vgg", (40, 3, 32, 32), {"num_classes": 10, "depth": 11}, profiled=(16, 64),
              share=0.9, slices=5, swaps=True),
    Predicted("resnet-20 v2", "zoo.resnet", (32, 3, 32, 32), _residual(20), quick=True, profiled=(16, 64), share=0.6,
              slices=4, swaps=True),
    Predicted("resnet-56 v2", "zoo.resnet", (16, 3, 32, 32), _residual(56), profiled=(8, 32), share=0.5, slices=2,
              swaps=True),
    Predicted("mobilenet", "zoo.mobilenet", (4, 3, 128, 128), {"num_classes": 1000, "version": 1}, profiled=(2, 8),
              share=0.7, slices=2),
    Predicted("densenet-121", "zoo.densenet", (2, 3, 96, 96), {"num_classes": 1000, "depth": 121}, profiled=(1, 4),
              share=0.7, slices=2),
    Predicted("unet", "zoo.unet", (3, 1, 96, 96),
              {"num_classes": 2, "levels": 4, "filters": 32, "padded": True, "image_shape": (1, 96, 96)},
              profiled=(2, 4), share=0.7, slices=3),
    Predicted("lstm", "zoo.lstm", (16, 35), {"num_classes": 2000, "seq_len": 35, "hidden": 200, "p": 0.0},
              profiled=(8, 32), share=0.8, words=2000),
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


def plan_of(case: Case, **options: Any) -> Plan:
    """The plan of a step."""
    return plan(case.symbol(), case.shapes, **SGD, **options)


def stepper(case: Predicted, made: Plan) -> Callable[[], object]:
    """A function that runs one step by a plan."""
    executor = Executor(case.symbol(), None, case.shapes, inputs=("data", "softmax_label"), host_budget=HOST_BYTES,
                        verify=False)
    batch = case.data[0]
    optimizer: Any = create("sgd", learning_rate=1e-3, momentum=0.9, rescale_grad=1.0 / batch)
    executor.set_updater(optimizer)
    executor.use_plan("step", made)
    chance = np.random.default_rng(0)
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        array[:] = chance.normal(0, 0.1, array.shape) if name.endswith("weight") else \
            float(name.endswith(("gamma", "var")))
    data = chance.integers(0, case.words, case.data) if case.words else chance.standard_normal(case.data, np.float32)
    labels = np.zeros(made.buffers.shape[made.inputs["softmax_label"]], np.float32)

    def step() -> object:
        return executor.step(optimizer.control, data=data, softmax_label=labels)
    step()
    return step


def plans_of(case: Predicted) -> list[tuple[str, Predicted, Plan]]:
    """What is predicted of a case: a name, the network at its batch, and its plan; the first was profiled itself."""
    plain, seen = plan_of(case), case.at(case.profiled[1])
    plans: list[tuple[str, Predicted, Plan]] = [("profiled batch", seen, plan_of(seen)), ("new batch", case, plain)]
    if case.share is not None:
        budget = plain.arenas[0].bytes + round(plain.arenas[1].bytes * case.share)
        lean = plan_of(case, memory="auto", budget=budget)
        plans.append((f"new batch, recomputing (x{_again(lean):.2f} operators)", case, lean))
    if case.swaps:
        swapping = plan_of(case, memory="vdnn_all", host_budget=HOST_BYTES)
        swapped = simulate(swapping, MACHINES["cpu"]).copied_out_bytes
        plans.append((f"new batch, swapping {swapped / 2**20:.1f} MiB", case, swapping))
    if case.slices > 1:
        plans.append((f"new batch, in {case.slices} slices", case, plan_of(case, memory="plain", slices=case.slices)))
    return plans


def measure(case: Predicted, machine: Machine, rounds: int) -> list[Row]:
    """Profile, predict, and measure a case."""
    plans = plans_of(case)
    steps = [stepper(at, made) for _, at, made in plans]
    taken: list[list[Timed]] = [[] for _ in plans]
    with ExitStack() as stack:
        profilers = [stack.enter_context(Profiler(plan_of(case.at(batch)), clock=time.thread_time))
                     for batch in case.profiled]
        for _ in range(rounds):
            for profiler in profilers:
                profiler.round()
            for step, values in zip(steps * STEPS, taken * STEPS, strict=True):
                values.append(timed(step))
        profile = merged(profiler.profile() for profiler in profilers)
    return [_row(case.name, what, at.data[0], made, machine, profile, least_disturbed(values))
            for (what, at, made), values in zip(plans, taken, strict=True)]


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
    add_choice(parser, "two networks, fewer rounds")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--rounds", type=int, help="runs of each profile; steps are three times as many")
    given = parser.parse_args(argv)
    rounds = given.rounds or (5 if given.quick else 9)
    report = measure_machine(rounds=3 if given.quick else 7, clock=time.thread_time)
    print(f"{report.text()}\n\n{'network':<14}{'plan':<42}{'batch':>6}{'roofline':>11}{'predicted':>11}{'measured':>11}"
          f"   middle half  error", flush=True)
    rows = []
    for case in choose(CASES, given, parser):
        for row in measure(case, report.machine, rounds):
            rows.append(row)
            print(format_row(row), flush=True)
    new = [abs(row.error) for row in rows if row.what.startswith("new")]
    summary = {"worst_error": max(new), "median_error": statistics.median(new), "aim": AIM,
               "within_aim": sum(error <= AIM for error in new), "predictions": len(new), "load": os.getloadavg()[0]}
    print(f"worst error {summary['worst_error']:.1%}, median {summary['median_error']:.1%}, load {summary['load']:.1f}")
    write_json(given.json, {"summary": summary, "machine": asdict(report), "rows": [asdict(row) for row in rows]})
    return 0


if __name__ == "__main__":
    sys.exit(main())

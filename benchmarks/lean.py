"""A very deep network trained in a small part of the bytes of its plain plan, beside the plain plan.

    python -m benchmarks.lean [--depth 1001] [--batch 32] [--parts 20] [--steps 3] [--json FILE] [--markdown FILE]

The network is the CIFAR ResNet of version 2 (bottlenecks where the depth is no 6n+2), the step SGD with momentum. It is
planned in `plain`, and by `auto` under a budget of the plain plan's bytes over PARTS; both plans then train from the
same values in processes of their own. Losses, parameters and states must agree to the bit. Told are seconds of a step
without waits for a core (benchmarks/quiet.py), and what the processes take: their peak resident memory, and how much
of it the steps added to what there was when the network was bound and its parameters set.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.watch import watch

_MIB = 2**20


@dataclass(frozen=True)
class Run:
    """One plan and the process that trained by it; `seconds` are those of each step, `digest` is of all parameters
    and states after the last one."""

    mode: str
    planned_bytes: int
    compile_seconds: float
    modelled_slowdown: float
    peak_bytes: int
    before_steps_bytes: int
    thread_bytes: int
    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    digest: str

    @property
    def step_seconds(self) -> float:
        """Median of the steps after the first, which binds the plan."""
        return statistics.median(self.seconds[1:] or self.seconds)


def train(mode: str, depth: int, batch: int, steps: int, folder: Path, budget: int | None = None) -> Run:
    """Compile in one process, train in another; RuntimeError with the reason when one of them fails."""
    plan, size = str(folder / f"{mode}.plan.json"), ["--depth", str(depth), "--batch", str(batch)]
    given = [] if budget is None else ["--budget", str(budget)]
    compiled = _done(f"planning in {mode}", ["compile", *size, "--plan", plan, "--memory", mode, *given])
    if "least_bytes" in compiled:
        raise RuntimeError(f"{mode} cannot keep to {budget} bytes: the least is {compiled['least_bytes']}")
    found = _done(f"training in {mode}", ["minigraph", *size, "--steps", str(steps), "--plan", plan])
    return Run(mode, compiled["planned_bytes"], compiled["compile_seconds"], compiled["slower"], found["peak_bytes"],
               found["before_steps_bytes"], found["thread_bytes"], tuple(found["seconds"]), tuple(found["losses"]),
               found["digest"])


def _done(what: str, arguments: list[str]) -> dict[str, Any]:
    found = watch("benchmarks.depth_networks", arguments, None)
    if found.result is None:
        raise RuntimeError(f"{what} failed: {found.error}")
    return found.result


def agree(plain: Run, lean: Run) -> bool:
    """Whether losses, parameters and states are the same to the bit."""
    return (plain.losses, plain.digest) == (lean.losses, lean.digest)


def markdown(plain: Run, lean: Run, depth: int, batch: int) -> str:
    """Both runs as a page."""
    lines = [f"# ResNet-{depth} in 1/{plain.planned_bytes / lean.planned_bytes:.1f} of its plain plan", "",
             f"{time.strftime('%Y-%m-%d', time.gmtime())}, CIFAR ResNet v2, batch {batch}, SGD with momentum; load "
             f"{os.getloadavg()[0]:.1f}. Losses, parameters and states after {len(lean.losses)} steps "
             f"{'agree to the bit' if agree(plain, lean) else 'DIFFER'} (last loss {lean.losses[-1]:.6f}).", "",
             "| | planned MiB | peak of the process, MiB | of it before the steps | s per step | compiled in s |",
             "| --- | --- | --- | --- | --- | --- |"]
    lines += [f"| {run.mode} | {run.planned_bytes / _MIB:.1f} | {run.peak_bytes / _MIB:.1f} | "
              f"{run.before_steps_bytes / _MIB:.1f} | {run.step_seconds:.2f} | {run.compile_seconds:.1f} |"
              for run in (plain, lean)]
    lines += ["", f"The step takes x{lean.step_seconds / plain.step_seconds:.2f} of plain's time (by the machine model "
              f"x{lean.modelled_slowdown:.2f}), the process {lean.peak_bytes / plain.peak_bytes:.3f} of its memory; "
              f"threads of kernels take at most {lean.thread_bytes / _MIB:.1f} MiB of that."]
    return "\n".join([*lines, ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Train by both plans; the exit code is 1 when their results differ."""
    parser = argparse.ArgumentParser(prog="lean", description="Deep training in a part of the plain plan's bytes.")
    parser.add_argument("--depth", type=int, default=1001, help="6n+2, or 9n+2 with bottlenecks (default 1001)")
    parser.add_argument("--batch", type=int, default=32, help="images a step (default 32)")
    parser.add_argument("--parts", type=int, default=20, help="plain bytes over budget (default 20)")
    parser.add_argument("--steps", type=int, default=3, help="of each plan; the first warms up (default 3)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write a page about them")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        plain = train("plain", given.depth, given.batch, given.steps, Path(folder))
        lean = train("auto", given.depth, given.batch, given.steps, Path(folder), plain.planned_bytes // given.parts)
    text = markdown(plain, lean, given.depth, given.batch)
    print(text)
    if given.json:
        document = {"depth": given.depth, "batch": given.batch, "plain": asdict(plain), "lean": asdict(lean)}
        Path(given.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if given.markdown:
        Path(given.markdown).write_text(text, encoding="utf-8")
    return int(not agree(plain, lean))


if __name__ == "__main__":
    sys.exit(main())

"""Time and memory of a training step against PyTorch, on this machine's processor.

    python -m benchmarks.step_time [--quick] [--networks mlp,resnet20] [--threads 1,2] [--busy] [--operators]
                                   [--json FILE] [--markdown FILE]

Every peer is a process of its own: minigraph with its `plain` plan, and PyTorch eager, eager in channels_last and
compiled. First the losses of two steps from the same values are compared; they must agree to LOSS_TOLERANCE,
relatively. Then the peers take turns of about TURN_SECONDS, so that a ratio's two sides saw the same minutes, and the
median over turns counts. With one thread the clock is the process's own processor time, which other work on the machine
does not stretch; with more it is the wall's, and turns during which other processes took more than QUIET cores are
thrown away while enough others are left. `--busy` keeps one core busy with something else meanwhile, and times by the
wall. Memory is the peak resident size of the whole process; PyTorch's best of its modes counts, for time and memory
each. SGD with momentum and weight decay, everything in float32.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.step_networks import NETWORKS, TORCH_MODES

LOSS_TOLERANCE = 2e-3
TURN_SECONDS = 0.5
TURNS, QUICK_TURNS = 9, 3
QUIET = 0.12
"""Cores that others may use during a turn that counts."""
ENOUGH = 3
"""Clean turns from which others are left out."""
QUICK_NETWORKS = ("mlp", "resnet20", "lstm")
_ROOT = Path(__file__).resolve().parent.parent


class Worker:
    """A process of step_networks."""

    def __init__(self, peer: str, mode: str, network: str, threads: int) -> None:
        self.name = "minigraph" if peer == "minigraph" else f"torch {mode}"
        count = str(threads)
        variables = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MINIGRAPH_CPU_THREADS": count}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.step_networks", peer, "--network", network, "--mode", mode,
             "--threads", count], cwd=_ROOT, env={**os.environ, **variables}, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)

    def ask(self, order: str) -> dict[str, Any]:
        """The answer to one order; RuntimeError when the process has ended instead."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()} at `{order}`")
        return dict(json.loads(line))

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


@dataclass
class Side:
    """One peer's figures: seconds of a step in each turn that counts, and peak bytes of its process."""

    name: str
    seconds: list[float] = field(default_factory=list)
    thrown_away: int = 0
    peak_bytes: int = 0
    ready_seconds: float = 0.0

    @property
    def median(self) -> float:
        """Median seconds of a step."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, relative to the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median


@dataclass
class Result:
    """One network at one number of threads."""

    network: str
    threads: int
    busy: bool
    sides: list[Side]
    operators: dict[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> Side:
        """minigraph."""
        return self.sides[0]

    @property
    def best(self) -> Side:
        """PyTorch's fastest mode."""
        return min(self.sides[1:], key=lambda side: side.median)

    @property
    def ratio(self) -> float:
        """Our time over that of PyTorch's fastest mode."""
        return self.own.median / self.best.median

    @property
    def memory_ratio(self) -> float:
        """Our peak over that of PyTorch's most modest mode."""
        return self.own.peak_bytes / min(side.peak_bytes for side in self.sides[1:])


def compare(network: str, threads: int, turns: int, busy: bool, modes: Sequence[str], operators: bool) -> Result:
    """Time one network with all peers in turns."""
    workers = [Worker("minigraph", "plain", network, threads), *(Worker("torch", m, network, threads) for m in modes)]
    sides = [Side(worker.name) for worker in workers]
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        first = [_start(worker, side) for worker, side in zip(workers, sides, strict=True)]
        _check_losses(network, dict(zip((side.name for side in sides), first, strict=True)))
        clock = "cpu" if threads == 1 and not busy else "wall"
        counts = [_steps_a_turn(worker.ask("run 1")[clock]) for worker in workers]
        answers: list[list[dict[str, Any]]] = [[] for _ in workers]
        for _ in range(turns):
            for worker, count, kept in zip(workers, counts, answers, strict=True):
                kept.append(worker.ask(f"run {count}"))
        for side, kept in zip(sides, answers, strict=True):
            _count(side, kept, clock, always=busy or clock == "cpu")
        table = workers[0].ask("operators 5") if operators else {}
        return Result(network, threads, busy, sides, table)
    finally:
        for worker in workers:
            worker.close()
        if burner is not None:
            burner.kill()
            burner.wait()


def _start(worker: Worker, side: Side) -> list[float]:
    answer = worker.ask("start")
    side.ready_seconds = answer["ready_seconds"]
    return list(answer["losses"])


def _steps_a_turn(seconds: float) -> int:
    return max(1, round(TURN_SECONDS / max(seconds, 1e-6)))


def _count(side: Side, answers: list[dict[str, Any]], clock: str, always: bool) -> None:
    """Keep the turns that count; all of them where quiet ones are too few."""
    clean = [a[clock] for a in answers if always or a["others"] <= QUIET]
    side.seconds = clean if len(clean) >= min(ENOUGH, len(answers)) else [a[clock] for a in answers]
    side.thrown_away = len(answers) - len(side.seconds)
    side.peak_bytes = max(a["peak_bytes"] for a in answers)


def _check_losses(network: str, losses: dict[str, list[float]]) -> None:
    own = losses["minigraph"]
    for name, found in losses.items():
        for ours, theirs in zip(own, found, strict=True):
            if not math.isclose(ours, theirs, rel_tol=LOSS_TOLERANCE):
                raise RuntimeError(f"{network}: the losses of two steps are {own} with minigraph and {found} with "
                                   f"{name}; they are not the same network, so no times are taken")


def summary(results: Sequence[Result]) -> dict[str, float]:
    """`geomean_ratio`, `worst_ratio` and `memory_ratio`, the mean, over all results."""
    ratios = [result.ratio for result in results]
    return {"geomean_ratio": statistics.geometric_mean(ratios), "worst_ratio": max(ratios),
            "memory_ratio": statistics.fmean(result.memory_ratio for result in results),
            "worst_memory_ratio": max(result.memory_ratio for result in results)}


def markdown(results: Sequence[Result]) -> str:
    """The table for people."""
    modes = [side.name for side in results[0].sides]
    head = ["network", "threads", *(f"{mode}, ms" for mode in modes), "ratio", "peak MB", "torch's", "ratio"]
    lines = [f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
             f"{platform.python_version()}. Median ms of a step, ± half the quartiles' distance in %; the ratio is to "
             f"PyTorch's fastest mode, memory to its most modest one.\n",
             "| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for result in results:
        times = (f"{side.median * 1e3:.1f} ±{side.spread:.0%}" for side in result.sides)
        theirs = min(side.peak_bytes for side in result.sides[1:])
        lines.append("| " + " | ".join([
            result.network, f"{result.threads}{', busy' if result.busy else ''}", *times, f"**{result.ratio:.2f}**",
            f"{result.own.peak_bytes / 1e6:.0f}", f"{theirs / 1e6:.0f}", f"{result.memory_ratio:.2f}"]) + " |")
    figures = ", ".join(f"{name} {value:.3f}" for name, value in summary(results).items())
    return "\n".join([*lines, "", figures, *(_operator_table(r) for r in results if r.operators)]) + "\n"


def _operator_table(result: Result) -> str:
    lines = [f"\n{result.network}, {result.threads} thread(s), by operator\n",
             "| operator | calls | ms | GFLOP/s | GB/s |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {op} | {row['calls']} | {row['ms']:.2f} | {row['gflops']:.1f} | {row['gbytes']:.1f} |"
              for op, row in result.operators.items()]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="step_time", description="step time and memory against PyTorch")
    parser.add_argument("--quick", action="store_true", help="few networks and turns, one thread, no torch.compile")
    parser.add_argument("--networks", default=None, help=f"some of {','.join(NETWORKS)}")
    parser.add_argument("--threads", default=None, help="numbers of threads, such as 1,2")
    parser.add_argument("--modes", default=None, help=f"PyTorch's modes, some of {','.join(TORCH_MODES)}")
    parser.add_argument("--busy", action="store_true", help="with another process on one core")
    parser.add_argument("--operators", action="store_true", help="a table of operators for each network")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--markdown", type=Path, default=None)
    given = parser.parse_args(argv)
    networks = given.networks.split(",") if given.networks else QUICK_NETWORKS if given.quick else tuple(NETWORKS)
    threads = [int(word) for word in (given.threads or ("1" if given.quick else "1,2")).split(",")]
    modes = given.modes.split(",") if given.modes else TORCH_MODES[:2] if given.quick else TORCH_MODES
    results = []
    for network in networks:
        for count in threads:
            result = compare(network, count, QUICK_TURNS if given.quick else TURNS, given.busy, modes, given.operators)
            results.append(result)
            print(f"{network}, {count} thread(s): {result.own.median * 1e3:.1f} ms against "
                  f"{result.best.median * 1e3:.1f} ms ({result.best.name}), ratio {result.ratio:.3f}, memory "
                  f"{result.memory_ratio:.2f}", flush=True)
    text = markdown(results)
    print(text)
    if given.markdown:
        given.markdown.write_text(f"# Step time against PyTorch\n\n{text}")
    if given.json:
        rows = [{**asdict(result), "ratio": result.ratio, "memory_ratio": result.memory_ratio} for result in results]
        given.json.write_text(json.dumps({"summary": summary(results), "results": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

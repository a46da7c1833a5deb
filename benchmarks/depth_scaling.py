"""How deep a residual network can be trained within a given peak of process memory, against PyTorch.

    python -m benchmarks.depth_scaling [--quick] [--json FILE] [--markdown FILE] [--plot FILE.png]
                                       [--cap 512MiB] [--batch 32] [--threads N] [--earlier FILE]

The network is the CIFAR ResNet of version 2 (depth 6n+2, images of 3x32x32). Every run is a process of its own, and
what counts is the peak resident memory of that whole process: interpreter, libraries and all. A watcher ends it above
the cap. First the losses of two steps are compared at a small depth, from the same values: they must agree to
LOSS_TOLERANCE, relatively. Then the largest depth is sought by doubling and bisection, for

    minigraph plain         no recomputation
    minigraph auto          the policy `auto`; its budget is the cap less what the process takes beside its arenas
    torch eager
    torch checkpoint        each unit, or sqrt(n) parts of units, whichever goes deeper

each with the allocator setting that serves PyTorch best at a depth where it fits. A search ends when the next depth
would be less than RESOLUTION deeper: the real limit lies up to that much above what is found. Then seconds per step
are taken at common depths, in turns, without what the thread waited for a core. minigraph compiles in a process before,
whose time is reported on its own and whose memory does not count: the plan is a file. A trial of the search is two
steps of PyTorch, whose momentum comes with the second, and one of minigraph, which has all its arenas from the first.
With the figures of an `--earlier` run of the same cap, batch and threads, PyTorch's depths and allocator setting, which
do not depend on minigraph, are taken from it, and minigraph's search begins at half of what it found then.
"""
from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.watch import Watched, watch
from minigraph.base import MXNetError, parse_bytes

LOSS_TOLERANCE = 1e-3
RESOLUTION, QUICK_RESOLUTION = 0.1, 0.4
_MIB = 2**20
_QUICK_CAP, _CAP = "360MiB", "512MiB"
_TORCH = ("eager", "block", "sqrt")
MALLOC_SETTINGS: tuple[dict[str, str], ...] = (
    {}, {"MALLOC_ARENA_MAX": "1"}, {"MALLOC_MMAP_THRESHOLD_": "65536"},
    {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"},
)
"""glibc settings that PyTorch's processes are tried with."""


@dataclass(frozen=True)
class Run:
    """One training process: `seconds` per step after the first, which warms up; `overhead_bytes` is the peak less
    what was planned, `thread_bytes` of it are the most that threads of kernels take (minigraph only). `fits` is False
    for one that was ended above the cap, or could not be planned."""

    peer: str
    mode: str
    depth: int
    fits: bool
    peak_bytes: int
    planned_bytes: int = 0
    seconds: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    compile_seconds: float = 0.0
    slower: float = 1.0
    thread_bytes: int = 0

    @property
    def step_seconds(self) -> float:
        """Median seconds of a step."""
        return statistics.median(self.seconds[1:] or self.seconds or (float("nan"),))

    @property
    def overhead_bytes(self) -> int:
        """Peak resident bytes that were not planned."""
        return self.peak_bytes - self.planned_bytes if self.planned_bytes else 0


@dataclass
class Bench:
    """The settings of one benchmark, and what ran so far."""

    cap_bytes: int
    batch: int
    threads: int
    folder: Path
    malloc: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)

    def torch(self, mode: str, depth: int, steps: int = 2, malloc: dict[str, str] | None = None) -> Run:
        """Train with PyTorch under the watcher; the momentum buffers come with the second step."""
        found = self._watch(["torch", "--mode", mode, "--depth", str(depth), "--steps", str(steps)],
                            self.malloc if malloc is None else malloc)
        return self._keep(_run_of("torch", mode, depth, found))

    def minigraph(self, mode: str, depth: int, steps: int = 2) -> Run:
        """Compile in one process, train in another under the watcher."""
        budget = self._budget(depth) if mode == "auto" else None
        least = _parameter_bytes(depth) * 2
        if least + self._overhead(depth) > self.cap_bytes:
            return self._keep(Run("minigraph", mode, depth, False, least))
        plan = str(self.folder / f"{mode}-{depth}-{budget}.plan.json")
        compiled = self._compiled(plan, mode, depth, budget)
        if compiled.get("planned_bytes", self.cap_bytes) >= self.cap_bytes:
            return self._keep(Run("minigraph", mode, depth, False, compiled.get("least_bytes", 0)))
        found = self._watch(["minigraph", "--depth", str(depth), "--steps", str(steps), "--plan", plan], {})
        return self._keep(_run_of("minigraph", mode, depth, found, compiled))

    def _compiled(self, plan: str, mode: str, depth: int, budget: int | None) -> dict[str, Any]:
        figures = Path(plan).with_suffix(".figures")
        if not figures.exists():
            given = ["--memory", mode, *(["--budget", str(budget)] if budget is not None else [])]
            made = watch("benchmarks.depth_networks",
                         ["compile", "--depth", str(depth), "--batch", str(self.batch), "--plan", plan, *given], None)
            if made.result is None:
                raise RuntimeError(f"compiling depth {depth} failed: {made.error}")
            figures.write_text(json.dumps(made.result))
        return dict(json.loads(figures.read_text()))

    def _budget(self, depth: int) -> int:
        return self.cap_bytes - self._overhead(depth)

    def _overhead(self, depth: int) -> int:
        """What a process of this depth takes beside its arenas, by a line through the runs of the least and of the
        greatest depth so far that fitted, and a margin of 1 MiB and 2 %."""
        known = sorted({run.depth: run.overhead_bytes for run in self.runs if run.fits and run.planned_bytes}.items())
        if not known:
            return 64 * _MIB
        (first, low), (last, high) = known[0], known[-1]
        slope = (high - low) / (last - first) if last > first else 0.0
        return int((high + slope * (depth - last)) * 1.02) + _MIB

    def _watch(self, arguments: list[str], extra: dict[str, str]) -> Watched:
        threads = str(self.threads)
        environment = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "MINIGRAPH_CPU_THREADS": threads,
                       **extra}
        return watch("benchmarks.depth_networks", [*arguments, "--batch", str(self.batch)], self.cap_bytes, environment)

    def _keep(self, run: Run) -> Run:
        self.runs.append(run)
        print(format_run(run), flush=True)
        return run


def _run_of(peer: str, mode: str, depth: int, found: Watched, compiled: dict[str, Any] | None = None) -> Run:
    if not found.fits and not found.killed:
        raise RuntimeError(f"{peer} {mode} at depth {depth} failed: {found.error}")
    result = found.result or {}
    figures = compiled or {}
    return Run(peer, mode, depth, found.fits, found.peak_bytes, int(figures.get("planned_bytes", 0)),
               tuple(result.get("seconds", ())), tuple(result.get("losses", ())),
               float(figures.get("compile_seconds", 0.0)), float(figures.get("slower", 1.0)),
               int(result.get("thread_bytes", 0)))


def _parameter_bytes(depth: int) -> int:
    """Bytes of the weights of the units' convolutions; momentum takes as much again."""
    return (depth - 2) // 6 * 2 * 9 * 4 * sum(filters**2 for filters in (16, 32, 64))


def deepest(fits: Callable[[int], bool], first: int = 2, resolution: float = RESOLUTION) -> int:
    """The largest n (stages of n units) that fits, by doubling from `first` and bisection; 0 when `first` does not."""
    low, high = 0, first
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(1, round(low * resolution)):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def depth_of(n: int) -> int:
    """The depth of a network of n units in each stage."""
    return 6 * n + 2


def compare_losses(bench: Bench, depth: int) -> float:
    """The largest relative difference between the losses of two steps; RuntimeError above LOSS_TOLERANCE."""
    theirs = bench.torch("eager", depth).losses
    if not theirs:
        raise RuntimeError(f"PyTorch cannot train {depth} layers within the cap; give a larger --cap")
    worst = 0.0
    for mode in ("plain", "auto"):
        ours = bench.minigraph(mode, depth).losses
        worst = max(worst, *(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True)))
    if not worst <= LOSS_TOLERANCE:
        raise RuntimeError(f"losses differ by {worst:.2e}, more than {LOSS_TOLERANCE}: the networks differ")
    return worst


def best_malloc(bench: Bench, depth: int) -> dict[str, str]:
    """The allocator setting under which PyTorch's checkpointing has the lowest peak."""
    return min(MALLOC_SETTINGS, key=lambda setting: bench.torch("sqrt", depth, malloc=setting).peak_bytes)


def search(bench: Bench, first: int, resolution: float, earlier: Mapping[str, int] | None = None) -> dict[str, int]:
    """The largest depth of each of the four, and of both ways to checkpoint, from `first` units a stage on; PyTorch's
    from an `earlier` run when there is one, and minigraph's from half of its depths on: what a process takes beside its
    arenas is learnt on the way."""
    found, known = {}, {name: (depth - 2) // 6 for name, depth in (earlier or {}).items()}
    for mode in _TORCH:
        def fits(n: int, mode: str = mode) -> bool:
            return bench.torch(mode, depth_of(n)).fits
        name = f"torch {mode}"
        found[name] = known[name] if name in known else deepest(fits, first, resolution)
    for mode in ("plain", "auto"):
        def fits_ours(n: int, mode: str = mode) -> bool:
            return bench.minigraph(mode, depth_of(n), steps=1).fits
        name = f"minigraph {mode}"
        found[name] = deepest(fits_ours, max(known.get(name, 0) // 2, first), resolution)
    depths = {name: depth_of(n) if n else 0 for name, n in found.items()}
    depths["torch checkpoint"] = max(depths["torch block"], depths["torch sqrt"])
    return depths


def time_steps(bench: Bench, depths: Sequence[int], rounds: int, steps: int) -> list[dict[str, Any]]:
    """Seconds per step at common depths, in turns; medians over all steps but each process's first.

    PyTorch runs with its default allocator setting too, where that stays below the cap: it is the faster one.
    """
    settings = {"": bench.malloc, **({" default malloc": {}} if bench.malloc else {})}
    rows = []
    for depth in depths:
        taken: dict[str, list[float]] = {}
        for _ in range(rounds):
            for mode, suffix in itertools.product(_TORCH, settings):
                run = bench.torch(mode, depth, steps, settings[suffix])
                taken.setdefault(f"torch {mode}{suffix}", []).extend(run.seconds[1:] if run.fits else ())
            run = bench.minigraph("auto", depth, steps)
            taken.setdefault("minigraph auto", []).extend(run.seconds[1:] if run.fits else ())
        rows.append({"depth": depth, **{name: {"median": statistics.median(values), "least": min(values),
                                               "most": max(values)} for name, values in taken.items() if values}})
    return rows


def time_ratio(rows: Sequence[dict[str, Any]]) -> float:
    """minigraph's time per layer over that of PyTorch's faster checkpointing, the median over common depths."""
    ratios = []
    for row in rows:
        theirs = [value["median"] for name, value in row.items() if name.startswith(("torch block", "torch sqrt"))]
        if theirs and "minigraph auto" in row:
            ratios.append(row["minigraph auto"]["median"] / min(theirs))
    return statistics.median(ratios) if ratios else float("nan")


def format_run(run: Run) -> str:
    """A line about one process."""
    if not run.fits:
        return f"{run.peer:<10}{run.mode:<7}{run.depth:>6}  does not fit"
    text = f"{run.peer:<10}{run.mode:<7}{run.depth:>6}{run.peak_bytes / _MIB:>9.1f} MiB{run.step_seconds:>9.3f} s"
    if run.planned_bytes:
        text += (f"  planned {run.planned_bytes / _MIB:.1f}, beside it {run.overhead_bytes / _MIB:.1f} MiB; compiled "
                 f"in {run.compile_seconds:.1f} s, x{run.slower:.2f} by the model")
    return text


def earlier_figures(path: str | None, bench: Bench) -> dict[str, Any] | None:
    """The figures of an earlier run; MXNetError when it had another cap, batch or number of threads."""
    if path is None:
        return None
    found: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    theirs, ours = ([settings[name] for name in ("cap_bytes", "batch", "threads")]
                    for settings in (found["summary"], vars(bench)))
    if theirs != ours:
        raise MXNetError(f"{path} is of a run with cap, batch and threads {theirs}; this one has {ours}")
    return found


def measure(bench: Bench, quick: bool, earlier: dict[str, Any] | None = None) -> dict[str, Any]:
    """Everything: losses, the allocator's setting, depths, times; with a `summary`."""
    start, load = time.time(), os.getloadavg()[0]
    difference = compare_losses(bench, 14 if quick else 20)
    bench.malloc = best_malloc(bench, 14 if quick else 56) if earlier is None else earlier["malloc"]
    depths = search(bench, 4, QUICK_RESOLUTION if quick else RESOLUTION, earlier and earlier["summary"]["depths"])
    least = depths["torch checkpoint"]
    common = [depth_of((least // (2 if quick else 1) - 2) // 6)] if quick else \
        [depth_of((least // part - 2) // 6) for part in (3, 1)]
    times = time_steps(bench, common, rounds=1 if quick or earlier else 2, steps=3)
    ours = depths["minigraph auto"]
    last = [run for run in bench.runs if run.fits and run.mode == "auto" and run.depth == ours]
    summary = {
        "cap_bytes": bench.cap_bytes, "batch": bench.batch, "threads": bench.threads, "depths": depths,
        "depth_over_torch_eager": ours / max(depths["torch eager"], 1),
        "depth_over_torch_checkpoint": ours / max(least, 1),
        "time_over_torch_checkpoint": time_ratio(times), "loss_difference": difference,
        "overhead_bytes_at_largest": last[-1].overhead_bytes if last else 0,
        "thread_bytes_at_largest": last[-1].thread_bytes if last else 0,
        "recompute_slowdown_at_largest": last[-1].slower if last else 0.0,
        "seconds_per_step_at_largest": last[-1].step_seconds if last else 0.0,
    }
    return {"summary": summary, "malloc": bench.malloc, "times": times, "machine": platform.processor() or
            platform.machine(), "cores": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d", time.gmtime(start)), "seconds": time.time() - start,
            "torch_depths_of": earlier and earlier["date"],
            "runs": [asdict(run) for run in bench.runs]}


def markdown(found: dict[str, Any]) -> str:
    """The figures as a page."""
    s = found["summary"]
    rows = [f"| {name} | {depth} |" for name, depth in s["depths"].items()]
    times = [f"| {row['depth']} | {name} | {value['median']:.3f} | {value['least']:.3f}-{value['most']:.3f} | "
             f"{value['median'] / row['depth'] * 1e3:.2f} |"
             for row in found["times"] for name, value in row.items() if name != "depth"]
    return "\n".join([
        "# Depth within a cap on process memory", "",
        f"CIFAR ResNet v2, batch {s['batch']}, {s['threads']} thread(s), SGD with momentum; peak resident memory of "
        f"the whole process at most {s['cap_bytes'] / _MIB:.0f} MiB.",
        f"{found['date']}, {found['cores']} cores ({found['machine']}), load {found['load_before']:.1f} before and "
        f"{found['load_after']:.1f} after, {found['seconds'] / 60:.0f} minutes. PyTorch's allocator setting: "
        f"{found['malloc'] or 'default'}."
        + (f" PyTorch's depths are of the run of {found['torch_depths_of']}." if found["torch_depths_of"] else ""), "",
        f"Losses of two steps agree to {s['loss_difference']:.1e} (relative; at most {LOSS_TOLERANCE}).", "",
        "| | largest depth |", "| --- | --- |", *rows, "",
        f"- depth over PyTorch eager: {s['depth_over_torch_eager']:.1f}",
        f"- depth over PyTorch checkpointing: {s['depth_over_torch_checkpoint']:.1f}",
        f"- time per layer over PyTorch checkpointing: {s['time_over_torch_checkpoint']:.2f}",
        f"- at minigraph's largest depth: {s['overhead_bytes_at_largest'] / _MIB:.1f} MiB of the peak are not planned "
        f"(interpreter, libraries, program; threads of kernels at most {s['thread_bytes_at_largest'] / _MIB:.1f}), "
        f"recomputation makes the step x{s['recompute_slowdown_at_largest']:.2f} by the machine model, and a step took "
        f"{s['seconds_per_step_at_largest']:.1f} s", "",
        "| depth | | s per step | range | ms per layer |", "| --- | --- | --- | --- | --- |", *times, ""])


def plot(found: dict[str, Any], path: str) -> None:
    """Peak memory and time per step against depth."""
    from matplotlib.figure import Figure
    figure = Figure(figsize=(9, 4))
    memory, seconds = figure.subplots(1, 2)
    kinds = sorted({(run["peer"], run["mode"]) for run in found["runs"]})
    for peer, mode in kinds:
        runs = sorted({run["depth"]: run for run in found["runs"]
                       if run["fits"] and (run["peer"], run["mode"]) == (peer, mode)}.items())
        memory.plot([depth for depth, _ in runs], [run["peak_bytes"] / _MIB for _, run in runs], "o-",
                    label=f"{peer} {mode}")
        seconds.loglog([depth for depth, _ in runs], [min(run["seconds"]) for _, run in runs], "o-")
    memory.axhline(found["summary"]["cap_bytes"] / _MIB, color="black", linestyle=":")
    memory.set(xscale="log", xlabel="depth", ylabel="peak resident memory, MiB")
    seconds.set(xlabel="depth", ylabel="seconds per step")
    memory.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it and write what was asked for."""
    parser = argparse.ArgumentParser(prog="depth_scaling", description="Depth within a cap on process memory.")
    parser.add_argument("--quick", action="store_true", help=f"a cap of {_QUICK_CAP}, small batch, fewer runs")
    parser.add_argument("--cap", help=f"bytes of peak resident memory (default {_CAP})")
    parser.add_argument("--batch", type=int, help="images a step (default 32)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of both sides (default: all cores)")
    parser.add_argument("--earlier", metavar="FILE", help="figures that PyTorch's depths are taken from")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write a page about them")
    parser.add_argument("--plot", metavar="FILE.png", help="draw them (needs matplotlib)")
    given = parser.parse_args(argv)
    cap = parse_bytes(given.cap or (_QUICK_CAP if given.quick else _CAP))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(cap, given.batch or (8 if given.quick else 32), given.threads, Path(folder))
        found = measure(bench, given.quick, earlier_figures(given.earlier, bench))
    print(markdown(found))
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.markdown:
        Path(given.markdown).write_text(markdown(found), encoding="utf-8")
    if given.plot:
        plot(found, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`auto` at twice the batches of the best published systems: how much of the speed of unlimited memory is left.

    python -m benchmarks.doubled [--only TEXT] [--within usable|memory] [--plan | --arenas] [--markdown FILE]

Networks, machine and sizes are those of `benchmarks.published`; times are modelled. Efficiency is the time of the plain
order in unlimited memory over that of the fastest candidate whose peak is within the capacity, with slices and without.
`--plan` packs candidates, the fastest first, until the arenas of one are within the capacity, too, verifies its plan,
and gives bytes and efficiency. `--arenas` packs the fastest candidate within the capacity of `memory` without one: in
one piece, and by pages of 2 MiB.
"""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from minigraph.base import OutOfMemoryError
from minigraph.memory.machine import get_machine
from minigraph.memory.packing import pack, pack_pages, page_bytes_for, validate
from minigraph.memory.policies import POLICIES, Candidate
from minigraph.passes.evaluate import fastest_within, packs
from minigraph.passes.pack import Placed

from .published.search import Setting, Step
from .published.tables import GIB, HOST_BYTES, NETWORKS

GB = 10**9
MACHINE = "P100"
CAPACITIES = {"usable": 14_750 * GIB // 1000, "memory": get_machine(MACHINE).memory_bytes}
"""What Capuchin's own plain rows fill of its card (as in `benchmarks.published`), and all that the card has."""


@dataclass(frozen=True)
class Case:
    """A network, the batch that was published, whose it is, and how many times that is asked for."""

    network: str
    published: int
    system: str
    times: int = 2

    @property
    def batch(self) -> int:
        """The batch asked for."""
        return self.times * self.published


CASES = (Case("ResNet-50", 1014, "Capuchin"), Case("ResNet-152", 798, "Capuchin"),
         Case("InceptionV3", 716, "Capuchin"), Case("InceptionV4", 468, "Capuchin"),
         Case("VGG16", 228, "TensorFlow, plain", 10), Case("ResNet-50", 832, "TFLMS"),
         Case("3D U-Net 192^3", 1, "TFLMS"))
ARENAS_HEAD = ("| network | batch | buffers | in one piece: ratio, CPU s | by pages: ratio, CPU s | "
               "buffers mapped | extents |\n| --- | --- | --- | --- | --- | --- | --- |")
HEAD = ("| network | batch | published | capacity GB | without slices: peak GB, efficiency | with slices | "
        "planned GB, efficiency | CPU s |\n| --- | --- | --- | --- | --- | --- | --- | --- |")


def measure(case: Case, with_plan: bool, within: Iterable[str] = CAPACITIES) -> Iterator[str]:
    """A line of the table for each of some capacities."""
    build, auto, start = NETWORKS[case.network].build(), POLICIES["auto"], time.process_time()
    setting = Setting(MACHINE, HOST_BYTES)
    step = Step(build, case.batch, setting)
    whole = step.candidates("auto")
    everything = auto.further(step.problem, whole, auto.moves_homes)
    seconds = time.process_time() - start
    for name in within:
        capacity = CAPACITIES[name]
        best = [_fastest(found, capacity) for found in (whole, everything)]
        planned = "-"
        if with_plan and best[1] is not None:
            planned = _planned(Step(build, case.batch, setting), everything, capacity)
        cells = " | ".join(_cell(step, candidate) for candidate in best)
        yield (f"| {case.network} | {case.batch} | {case.times} x {case.published} ({case.system}) | "
               f"{capacity / GB:.2f} ({name}) | {cells} | {planned} | {seconds:.0f} |")


def measure_arenas(case: Case) -> Iterator[str]:
    """A line of the table of arenas over the most bytes that live at once in them."""
    auto, step = POLICIES["auto"], Step(NETWORKS[case.network].build(), case.batch, Setting(MACHINE, HOST_BYTES))
    best = _fastest(auto.further(step.problem, step.candidates("auto"), auto.moves_homes), CAPACITIES["memory"])
    assert best is not None
    state = step.state
    state.request = replace(state.request, budget_bytes=CAPACITIES["memory"])
    packs(state, best)
    assert state.tried is not None
    problem = Placed.of(state.tried).problem
    start = time.process_time()
    whole = pack(problem, effort="budget")
    middle = time.process_time()
    paged = pack_pages(problem, page_bytes_for(problem.lower_bound_bytes, state.request.page_bytes))
    end = time.process_time()
    validate(problem, whole)
    validate(problem, paged)
    ratios = [f"{found.bytes / problem.lower_bound_bytes:.4f}" for found in (whole, paged)]
    yield (f"| {case.network} | {case.batch} | {len(problem):,} | {ratios[0]}, {middle - start:.1f} | "
           f"{ratios[1]}, {end - middle:.1f} | {int(paged.mapped.sum()):,} | {len(paged.extents):,} |")


def _fastest(found: Sequence[Candidate], capacity: int) -> Candidate | None:
    return min((c for c in found if c.peak_bytes <= capacity), key=lambda c: c.seconds, default=None)


def _cell(step: Step, candidate: Candidate | None) -> str:
    if candidate is None:
        return "does not fit"
    return f"{candidate.peak_bytes / GB:.2f}, {step.plain_seconds / candidate.seconds:.1%}"


def _planned(step: Step, found: Sequence[Candidate], capacity: int) -> str:
    """Bytes and efficiency of the packed and verified plan of the fastest candidate whose arenas are within the
    capacity, which may be of a graph in slices."""
    state = step.state
    state.request = replace(state.request, budget_bytes=capacity)
    try:
        candidate = fastest_within(state, found)
    except OutOfMemoryError:
        return "does not fit"
    return f"{step.planned_bytes(candidate) / GB:.2f}, {step.plain_seconds / candidate.seconds:.1%}"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="doubled", description="auto at twice the published batches.")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose network, batch or system has it")
    parser.add_argument("--within", choices=tuple(CAPACITIES), action="append", help="one capacity, not both")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--plan", action="store_true", help="pack and verify the plans, too")
    what.add_argument("--arenas", action="store_true", help="pack without a capacity instead")
    parser.add_argument("--markdown", metavar="FILE", help="write the table to a file")
    given = parser.parse_args(argv)
    if given.arenas and given.within:
        parser.error("--arenas packs without a capacity: leave --within out")
    chosen = [c for c in CASES if given.only in f"{c.network} {c.batch} {c.system}"]
    lines = [ARENAS_HEAD if given.arenas else HEAD]
    print(lines[0], flush=True)
    for case in chosen:
        for line in measure_arenas(case) if given.arenas else measure(case, given.plan, given.within or CAPACITIES):
            lines.append(line)
            print(line, flush=True)
            if given.markdown:
                Path(given.markdown).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Packing: the exact search on minimalloc's hard instances, and arenas over the lower bound on training steps.

    python -m benchmarks.packing [--quick] [--only NAME] [--folder DIR] [--json FILE] [--markdown FILE]

First the eleven "challenging" instances of google/minimalloc, read from DIR: each must fit into 1,048,576 bytes, and
minimalloc (C++) takes 0.6 to 5.4 seconds for each, as its authors say. Then steps of the zoo's networks, in `plain` and
under budgets, packed by the planner's packing and by simple heuristics in the same run. A ratio is the transient arena
over the most bytes that live at once; that of a plan under a budget is what packing reaches when it is not stopped at
the first arena within the budget. The last table packs the same buffers by pages that can be mapped, of which a GPU has
none below 2 MiB and Linux none below 4 KiB. SmartPool's and CnMem's ratios are those of Zhang et al. (arXiv 1903.06631,
batches of 100 of CIFAR).
"""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import SGD, Case, add_choice, choose, write, write_json
from minigraph.base import OutOfMemoryError
from minigraph.memory.packing import Problem, pack, pack_pages, page_bytes_for, validate
from minigraph.memory.packing.placement import Placer
from minigraph.plan.live import device_storages
from minigraph.plan.plan import Plan
from minigraph.planning import plan

CAPACITY_BYTES = 1 << 20
WORST_RATIO = 1.005
"""Arena over lower bound that no plan may exceed."""
_MINIMALLOC_MS = {"A": 4910, "B": 3661, "C": 637, "D": 2674, "E": 3717, "F": 5358, "G": 1181, "H": 1808, "I": 3908,
                  "J": 883, "K": 628}
_UNIT_BYTES = 1024
"""All sizes of the hard instances are multiples of this."""


@dataclass(frozen=True)
class Hard:
    """One hard instance: what was reached, and seconds of processor time; minimalloc's seconds as published."""

    name: str
    buffers: int
    arena_bytes: int
    method: str
    seconds: float
    minimalloc_seconds: float


@dataclass(frozen=True)
class Published(Case):
    """A network's step; `smartpool` and `cnmem` are the published ratios where there are any."""

    smartpool: float | None = None
    cnmem: float | None = None


def _cifar(name: str, network: str, settings: dict[str, Any], smartpool: float, cnmem: float,
           quick: bool = False) -> Published:
    return Published(f"{name}, CIFAR", network, (100, 3, 32, 32), settings, quick=quick, smartpool=smartpool,
                     cnmem=cnmem)


def _wide(units: tuple[int, ...], bottleneck: bool) -> dict[str, Any]:
    """The residual networks of ImageNet on small images: filters from 64 on and no stem that shrinks."""
    return {"num_classes": 10, "units": units, "bottleneck": bottleneck, "widen": 4}


CASES = (
    _cifar("resnet18", "zoo.resnet", _wide((2, 2, 2, 2), False), 1.003, 1.033, quick=True),
    _cifar("resnet34", "zoo.resnet", _wide((3, 4, 6, 3), False), 1.001, 1.028),
    _cifar("resnet50", "zoo.resnet", _wide((3, 4, 6, 3), True), 1.003, 1.030),
    _cifar("resnet101", "zoo.resnet", _wide((3, 4, 23, 3), True), 1.0005, 1.028),
    _cifar("vgg11", "zoo.vgg", {"num_classes": 10, "depth": 11}, 1.013, 1.169, quick=True),
    _cifar("vgg13", "zoo.vgg", {"num_classes": 10, "depth": 13}, 1.016, 1.115),
    _cifar("vgg16", "zoo.vgg", {"num_classes": 10, "depth": 16}, 1.012, 1.113),
    _cifar("vgg19", "zoo.vgg", {"num_classes": 10, "depth": 19}, 1.011, 1.072),
    Published("resnet-20 v2", "zoo.resnet", (32, 3, 32, 32), {"num_classes": 10, "depth": 20, "version": 2},
              quick=True),
    Published("resnet-110 v2", "zoo.resnet", (32, 3, 32, 32), {"num_classes": 10, "depth": 110, "version": 2}),
    Published("googlenet", "zoo.googlenet", (32, 3, 224, 224)),
    Published("inception_v4", "zoo.inception_v4", (32, 3, 299, 299)),
    Published("densenet121", "zoo.densenet", (32, 3, 224, 224), {"depth": 121}),
    Published("mobilenet v2", "zoo.mobilenet", (64, 3, 224, 224), {"version": 2}, quick=True),
    Published("unet", "zoo.unet", (4, 1, 572, 572)),
    Published("lstm medium", "zoo.lstm", (20, 35)),
    Published("bert base", "zoo.bert", (32, 128)),
)
SHARES = (None, 0.5, 0.1)
"""Plans of a network: `plain`, and budgets at these shares of the way from the least that fits to plain."""


LEAST_PAGES = {"2 MiB": 2 << 20, "4 KiB": 4 << 10}
"""Least pages that a device can map: of a GPU, and of Linux."""


@dataclass(frozen=True)
class Paged:
    """One plan packed by pages: arena over lower bound, buffers in the mapped arena, its extents, processor time."""

    page_bytes: int
    pages: int
    ratio: float
    mapped: int
    extents: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """One plan: bytes at the lower bound, and ratios of arenas to it by the planner, by simple heuristics, by pages."""

    name: str
    share: float | None
    buffers: int
    bound_bytes: int
    planned: float
    simple: dict[str, float]
    paged: dict[str, Paged]
    smartpool: float | None
    cnmem: float | None


def measure_hard(path: Path) -> Hard:
    """Pack one hard instance and validate what comes out."""
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)
    problem = Problem(rows[:, 1], rows[:, 2], rows[:, 3], _UNIT_BYTES)
    start = time.process_time()
    solution = pack(problem, CAPACITY_BYTES, "full")
    seconds = time.process_time() - start
    validate(problem, solution)
    name = path.name.split(".")[0]
    return Hard(name, len(problem), solution.bytes, solution.method, seconds, _MINIMALLOC_MS[name] / 1000)


def transient(made: Plan) -> Problem:
    """What a plan has placed in its transient arena, as a problem."""
    storages = device_storages(made)
    chosen = [k for k, held in enumerate(storages.members) if made.arenas[made.buffers.arena[held[0]]].name
              != "persistent"]
    return Problem(storages.born[chosen], storages.dies[chosen], storages.bytes[chosen])


def simple_ratios(problem: Problem) -> dict[str, float]:
    """Ratios of arena to lower bound by heuristics that others use."""
    placer = Placer(problem)
    orders = {"in program order": (np.argsort(placer.born, kind="stable"), False),
              "best fit, program order": (np.argsort(placer.born, kind="stable"), True),
              "largest first": (np.argsort(-placer.size, kind="stable"), False)}
    return {name: placer.top(placer.fit(order.tolist(), best)) / placer.bound for name, (order, best) in orders.items()}


def measure_pages(problem: Problem, least_page_bytes: int) -> Paged:
    """Pack a problem by pages, and validate what comes out."""
    page_bytes = page_bytes_for(problem.lower_bound_bytes, least_page_bytes)
    start = time.process_time()
    solution = pack_pages(problem, page_bytes)
    seconds = time.process_time() - start
    validate(problem, solution)
    return Paged(page_bytes, solution.bytes // page_bytes, solution.bytes / problem.lower_bound_bytes,
                 int(solution.mapped.sum()), len(solution.extents), seconds)


def measure(case: Published) -> list[Row]:
    """Plan one network in plain and under budgets."""
    symbol, shapes = case.symbol(), case.shapes
    plain = plan(symbol, shapes, memory="plain", **SGD)
    try:
        least = plan(symbol, shapes, memory="auto", budget=1, **SGD).planned_bytes
    except OutOfMemoryError as refused:
        least = refused.asked_bytes
    rows = []
    for share in SHARES:
        budget = None if share is None else least + int(share * (plain.planned_bytes - least))
        made = plain if budget is None else plan(symbol, shapes, memory="auto", budget=budget, **SGD)
        problem = transient(made)
        rows.append(Row(case.name, share, len(problem), problem.lower_bound_bytes,
                        pack(problem).bytes / problem.lower_bound_bytes, simple_ratios(problem),
                        {name: measure_pages(problem, least) for name, least in LEAST_PAGES.items()},
                        case.smartpool if share is None else None, case.cnmem if share is None else None))
    return rows


def markdown(hard: Sequence[Hard], rows: Sequence[Row]) -> str:
    """The tables."""
    lines = ["# Packing", "", "Written by `python -m benchmarks.packing`.", ""]
    if hard:
        lines += ["minimalloc's hard instances, within 1,048,576 bytes; seconds of processor time here, by Python, "
                  "beside those of minimalloc, in C++, as published.", "",
                  "| | buffers | arena | method | seconds | minimalloc |", "|---" * 6 + "|"]
        lines += [f"| {h.name} | {h.buffers} | {h.arena_bytes} | {h.method} | {h.seconds:.2f} | "
                  f"{h.minimalloc_seconds:.2f} |" for h in hard]
        lines.append("")
    names = list(rows[0].simple)
    lines += ["Transient arena over the most bytes that live at once, in training steps; `budget` is the share of the "
              "way from the least that fits to plain.", "",
              f"| network | budget | buffers | planned | {' | '.join(names)} | SmartPool | CnMem |",
              "|---" * (len(names) + 6) + "|"]
    for row in rows:
        published = ["-" if value is None else f"{value:.4f}" for value in (row.smartpool, row.cnmem)]
        simple = [f"{row.simple[name]:.4f}" for name in names]
        lines.append(f"| {row.name} | {'plain' if row.share is None else row.share} | {row.buffers} | "
                     f"{row.planned:.4f} | {' | '.join([*simple, *published])} |")
    return "\n".join([*lines, *_paged_lines(rows), ""])


def _paged_lines(rows: Sequence[Row]) -> list[str]:
    """The table of packing by pages."""
    lines = ["", "The same by pages, of at least 2 MiB and of at least 4 KiB: pages of the arena, arena over the most "
             "bytes that live at once, buffers in the mapped arena, extents of that, seconds of processor time. A plan "
             "lies in pages only under a budget that it does not meet in one piece: an arena of few pages is larger.",
             "",
             "| network | budget |" + " pages | ratio | mapped | extents | seconds |" * len(LEAST_PAGES),
             "|---" * (2 + 5 * len(LEAST_PAGES)) + "|"]
    for row in rows:
        cells = [f"{paged.pages} | {paged.ratio:.4f} | {paged.mapped} | {paged.extents} | {paged.seconds:.2f}"
                 for paged in row.paged.values()]
        lines.append(f"| {row.name} | {'plain' if row.share is None else row.share} | {' | '.join(cells)} |")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; the exit code is 1 when a hard instance does not fit or a ratio is above what it may be."""
    parser = argparse.ArgumentParser(prog="packing", description="Pack hard instances and training steps.")
    add_choice(parser, "a part of the networks, in seconds")
    parser.add_argument("--folder", metavar="DIR", help="where the files A.1048576.csv to K.1048576.csv are")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to a file")
    given = parser.parse_args(argv)
    hard = [measure_hard(path) for path in sorted(Path(given.folder).glob("?.1048576.csv"))] if given.folder else []
    rows = [row for case in choose(CASES, given, parser) for row in measure(case)]
    text = markdown(hard, rows)
    print(text)
    write(given.markdown, text)
    write_json(given.json, {"hard": [asdict(h) for h in hard], "networks": [asdict(row) for row in rows]})
    worst = max(rows, key=lambda row: row.planned)
    print(f"worst ratio of arena to lower bound {worst.planned:.4f} ({worst.name}); "
          f"{sum(h.arena_bytes > CAPACITY_BYTES for h in hard)} of {len(hard)} hard instances do not fit")
    return int(worst.planned > WORST_RATIO or any(h.arena_bytes > CAPACITY_BYTES for h in hard))


if __name__ == "__main__":
    sys.exit(main())

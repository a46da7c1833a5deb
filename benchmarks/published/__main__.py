"""Published tables of memory strategies beside minigraph's policies of the same names, and beside `auto`.

    python -m benchmarks.published [--quick] [--only TEXT] [--json FILE] [--markdown FILE]

Each figure is the largest batch or depth that a system reached on its machine, or the bytes that it took. A policy is
asked for the least bytes at the published size, and for the largest size within the same capacity, by its candidates'
quick counts; the size found is then planned, packed and verified. `--quick` asks for the published sizes alone. Files
are written anew after each figure; the deep networks come last. All seconds are processor time.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from minigraph.memory.policies import POLICIES

from . import reproduced
from .search import Build, Cost, Setting, Step, largest, least_bytes, least_seconds
from .tables import FIGURES, GIB, HOST_BYTES, NETWORKS, Figure

GB = 10**9

RESOLUTION = 0.01
"""Share of the capacity that the largest size may leave free."""


@dataclass
class Ours:
    """What one policy comes to: the least bytes at the published size, whether that fits, its modelled time over the
    plain order's there, the largest size, and the bytes of the plan at that size."""

    policy: str
    bytes: int = 0
    fits: bool = False
    slower: float | None = None
    largest: int | None = None
    planned_bytes: int | None = None


@dataclass
class Row:
    """A figure and what the policies come to."""

    figure: Figure
    ours: list[Ours] = field(default_factory=list)
    seconds: float = 0.0


class Bench:
    """Remembers what policies came to, while figures share it."""

    def __init__(self) -> None:
        self.builds: dict[str, Build] = {}
        self.costs: dict[tuple[Any, ...], list[Cost]] = {}
        self.plain_seconds: dict[tuple[Any, ...], float] = {}
        self.step: tuple[tuple[Any, ...], Step] | None = None
        self.largest: dict[tuple[Any, ...], tuple[int, int | None]] = {}

    def measure(self, figure: Figure) -> Row:
        """All policies of one figure that there are, at its published size."""
        start, row = time.process_time(), Row(figure)
        for policy in dict.fromkeys((figure.policy, "auto")):
            if policy is not None and (policy == "plain" or policy in POLICIES):
                row.ours.append(self._ours(figure, policy))
        row.seconds = time.process_time() - start
        return row

    def _ours(self, figure: Figure, policy: str) -> Ours:
        limit = figure.published_bytes or figure.capacity_bytes
        nbytes = self._least(figure, policy, figure.published)
        result = Ours(policy, nbytes, nbytes <= limit)
        key = _key(figure, figure.published)
        seconds = least_seconds(self.costs[(*key, policy)], limit)
        result.slower = None if seconds is None else seconds / self.plain_seconds[key]
        return result

    def search(self, row: Row) -> None:
        """The largest sizes of a figure's policies, where its size is what was published."""
        start = time.process_time()
        for ours in () if row.figure.published_bytes else row.ours:
            ours.largest, ours.planned_bytes = self._largest(row.figure, ours.policy)
        row.seconds += time.process_time() - start

    def _largest(self, figure: Figure, policy: str) -> tuple[int, int | None]:
        """The largest size of a policy and the bytes of its plan, smaller by a share until packing fits too."""
        key = (*_key(figure, 0), figure.capacity_bytes, figure.slowdown, policy)
        if key not in self.largest:
            n = largest(lambda k: self._least(figure, policy, k), figure.capacity_bytes, figure.published, RESOLUTION)
            planned = self._planned_bytes(figure, policy, n) if n else None
            while planned is not None and planned > figure.capacity_bytes:
                n = min(n - 1, int(n * (1 - RESOLUTION)))
                planned = self._planned_bytes(figure, policy, n) if n else None
            self.largest[key] = n, planned
        return self.largest[key]

    def _least(self, figure: Figure, policy: str, n: int) -> int:
        """The least bytes of a policy at a size, within the time that the figure allows."""
        key = _key(figure, n)
        if (*key, policy) not in self.costs:
            step = self._step(figure, n)
            self.costs[(*key, policy)] = [(c.peak_bytes, c.seconds) for c in step.candidates(policy)]
            self.plain_seconds[key] = step.plain_seconds
        return least_bytes(self.costs[(*key, policy)], figure.slowdown * self.plain_seconds[key])

    def _planned_bytes(self, figure: Figure, policy: str, n: int) -> int:
        """Bytes of the plan of the candidate with the lowest peak within the time that the figure allows."""
        step = self._step(figure, n)
        self.step = None
        within = figure.slowdown * step.plain_seconds
        return step.planned_bytes(min((c for c in step.candidates(policy) if c.seconds <= within),
                                      key=lambda c: c.peak_bytes), figure.capacity_bytes)

    def _step(self, figure: Figure, n: int) -> Step:
        key = _key(figure, n)
        if self.step is None or self.step[0] != key:
            self.step = key, Step(self._build(figure), n, _setting(figure))
        return self.step[1]

    def _build(self, figure: Figure) -> Build:
        if figure.network not in self.builds:
            self.builds[figure.network] = NETWORKS[figure.network].build()
        return self.builds[figure.network]


def _key(figure: Figure, n: int) -> tuple[Any, ...]:
    return figure.network, n, figure.machine, figure.host, figure.momentum


def _setting(figure: Figure) -> Setting:
    return Setting(figure.machine, HOST_BYTES if figure.host else 0, figure.momentum)


def format_row(row: Row) -> str:
    """A line of the markdown table."""
    figure = row.figure
    published = f"{figure.published}" + (f" in {figure.published_bytes / GB:.1f} GB" if figure.published_bytes else "")
    own = next((o for o in row.ours if o.policy == figure.policy), None)
    auto = next((o for o in row.ours if o.policy == "auto"), None)
    return (f"| {figure.network} | {figure.system} | {published} | {_form(figure, own, named=True)} | "
            f"{_form(figure, auto)} |")


def _form(figure: Figure, ours: Ours | None, named: bool = False) -> str:
    if ours is None:
        return "-"
    name = f"{ours.policy}: " if named else ""
    reached = "" if ours.fits else " (above)"
    text = f"{name}{ours.bytes / GB:.2f} GB{reached}"
    if ours.slower is not None:
        text += f", x{ours.slower:.2f}"
    if ours.largest is not None:
        packed = "" if ours.planned_bytes is None else f", planned {ours.planned_bytes / GB:.2f} GB"
        text += f"; **{ours.largest}**{packed}"
    return text


def markdown(rows: Sequence[Row], lines: Sequence[str], seconds: float, quick: bool) -> str:
    """The figures as a page."""
    page = ["# Published figures beside minigraph's policies", "",
            f"{time.strftime('%Y-%m-%d', time.gmtime())}, {seconds / 60:.0f} minutes of "
            f"processor time{', the quick form' if quick else ''}. By the machine models; nothing was run on these "
            "machines. Copies go at the link's own rate, 15.75 GB/s for PCIe 3.0; the papers measured 8 to 12.8.", "",
            "## Reproduced from the papers' own rules", "", *lines, "", "## By policy", "",
            "`policy: bytes, xT; **n**, planned bytes`: the least bytes at the published size; modelled time there, of "
            "the fastest candidate within the capacity, over that of the plain order in ample memory; the largest size "
            "within the capacity; and the bytes of its packed and verified plan. `(above)`: more than the capacity.",
            ""]
    for table in dict.fromkeys(row.figure.table for row in rows):
        of_table = [row for row in rows if row.figure.table == table]
        capacity = of_table[0].figure.capacity_bytes
        page += [f"### {table}", "", f"Capacity {capacity / GIB:.2f} GiB, times of a {of_table[0].figure.machine}.", "",
                 f"| network | system | published {of_table[0].figure.by} | its policy here | auto |",
                 "| --- | --- | --- | --- | --- |", *map(format_row, of_table), ""]
    return "\n".join(page)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures to watch from one version to the next."""
    own = [(row.figure, o) for row in rows for o in row.ours if o.policy == row.figure.policy]
    auto = [o for row in rows for o in row.ours if o.policy == "auto"]
    missed = [f"{f.table}: {f.system}, {f.network}" for f, o in own if not o.fits]
    return {"figures": len(rows), "by_their_policy": len(own), "reached": len(own) - len(missed), "missed": missed,
            "reached_by_auto": sum(o.fits for o in auto)}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="published", description="Published tables beside minigraph's policies.")
    parser.add_argument("--quick", action="store_true", help="the published sizes alone, and not the deep networks")
    parser.add_argument("--only", default="", metavar="TEXT", help="figures whose table, network or system has it")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write a page about them")
    given = parser.parse_args(argv)
    chosen = [f for f in FIGURES if (f.quick or not given.quick)
              and given.only in f"{f.table} / {f.network} / {f.system}"]
    if not chosen:
        parser.error(f"no figure has {given.only!r}")
    bench, lines = Bench(), reproduced.lines()
    rows: list[Row] = []
    print("\n".join(lines), flush=True)

    def note(row: Row) -> None:
        print(f"{row.seconds:6.1f} s  {row.figure.table} {format_row(row)}", flush=True)
        seconds = time.process_time()
        if given.json:
            document = {"summary": summary(rows), "quick": given.quick, "seconds": seconds, "reproduced": lines,
                        "figures": [asdict(each) for each in rows]}
            Path(given.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if given.markdown:
            Path(given.markdown).write_text(markdown(rows, lines, seconds, given.quick), encoding="utf-8")
    for figure in chosen:
        rows.append(bench.measure(figure))
        note(rows[-1])
    for row in () if given.quick else rows:
        bench.search(row)
        note(row)
    found = summary(rows)
    print(json.dumps(found, indent=1))
    return int(bool(found["missed"]))


if __name__ == "__main__":
    sys.exit(main())

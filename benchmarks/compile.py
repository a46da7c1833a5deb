"""How long compilation takes and how much memory, against the number of nodes, pass by pass.

    python -m benchmarks.compile [--quick] [--repeat N] [--limit SECONDS] [--json FILE] [--markdown FILE]

Residual networks from 20 to 1001 layers, and chains of up to 50,000 nodes, as steps of SGD with momentum; each is
compiled in a process of its own, so that its peak resident memory is its own, N times (the least time is shown). A pass
that grows faster than the nodes shows in the last column: microseconds a node of the largest over those of the smallest
of a family.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.watch import peak_bytes


@dataclass(frozen=True)
class Case:
    """What to compile: a residual network of a depth, or a chain of about so many nodes; and how."""

    family: str
    size: int
    options: dict[str, Any] = field(default_factory=dict)
    quick: bool = False


CASES = (
    Case("resnet v2", 20, quick=True), Case("resnet v2", 56), Case("resnet v2", 110, quick=True),
    Case("resnet v2", 164), Case("resnet v2", 1001),
    Case("resnet v2, auto", 20, {"memory": "auto", "share": 0.5}, quick=True),
    Case("resnet v2, auto", 110, {"memory": "auto", "share": 0.5}),
    Case("resnet v2, auto", 1001, {"memory": "auto", "share": 0.5}),
    Case("chain", 1_000, quick=True), Case("chain", 10_000), Case("chain", 50_000),
)
_CHAIN_NODES_A_LAYER = 5
"""Nodes that one fully connected layer and its activation come to in a step: two forward, three backward or so."""


@dataclass(frozen=True)
class Row:
    """One compilation: nodes of the plan, seconds in all and by pass, and peak resident bytes of the process."""

    family: str
    size: int
    nodes: int
    seconds: float
    pass_seconds: dict[str, float]
    import_bytes: int
    peak_bytes: int

    @property
    def microseconds_a_node(self) -> float:
        """Time over nodes."""
        return self.seconds / self.nodes * 1e6


def build(case: Case) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """A case's symbol and input shapes."""
    import minigraph as mx
    from minigraph.networks import load_network
    if case.family.startswith("resnet"):
        shapes: dict[str, tuple[int, ...]] = {"data": (32, 3, 32, 32)}
        return load_network("zoo.resnet", {"num_classes": 10, "depth": case.size, "version": 2}, shapes), shapes
    h = mx.sym.Variable("data")
    for k in range(max(case.size // _CHAIN_NODES_A_LAYER, 1)):
        h = mx.sym.Activation(mx.sym.FullyConnected(h, num_hidden=16, no_bias=True, name=f"fc{k}"), act_type="tanh")
    return mx.sym.MakeLoss(mx.sym.sum(h)), {"data": (4, 16)}


def compile_once(case: Case) -> Row:
    """Compile in this process."""
    from minigraph.base import OutOfMemoryError
    from minigraph.planning import plan
    symbol, shapes = build(case)
    options: dict[str, Any] = {"optimizer": "sgd", "program": "step", "optimizer_params": {"momentum": 0.9}}
    if "memory" in case.options:
        plain = plan(symbol, shapes, memory="plain", verify=False, **options).planned_bytes
        try:
            least = plan(symbol, shapes, memory=case.options["memory"], budget=1, verify=False, **options).planned_bytes
        except OutOfMemoryError as refused:
            least = refused.asked_bytes
        options |= {"memory": case.options["memory"], "budget": least + int(case.options["share"] * (plain - least))}
    before = peak_bytes()
    start = time.perf_counter()
    made = plan(symbol, shapes, **options)
    seconds = time.perf_counter() - start
    return Row(case.family, case.size, len(made), seconds, dict(made.figures.pass_seconds), before,
               peak_bytes())


def measure(case: Case, repeat: int, limit_seconds: float | None) -> Row | None:
    """The quickest of several compilations, each in a process of its own; None when one takes longer than the limit."""
    command = [sys.executable, "-m", "benchmarks.compile", "--one", str(CASES.index(case))]
    rows = []
    for _ in range(repeat):
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit_seconds).stdout
        except subprocess.TimeoutExpired:
            return None
        rows.append(Row(**json.loads(answer)))
    return min(rows, key=lambda row: row.seconds)


def markdown(rows: Sequence[Row], left_out: Sequence[str] = ()) -> str:
    """A table with a column for each pass, in milliseconds, and what took longer than the limit."""
    passes = list(rows[0].pass_seconds)
    lines = ["# Compilation", "", "Written by `python -m benchmarks.compile`; passes in milliseconds. "
             f"{os.cpu_count()} cores at a load of {os.getloadavg()[1]:.1f} at the end, other work included.", "",
             f"| network | size | nodes | seconds | microseconds a node | peak MiB | {' | '.join(passes)} |",
             "|---" * (len(passes) + 6) + "|"]
    for row in rows:
        cells = " | ".join(f"{row.pass_seconds[name] * 1e3:.1f}" for name in passes)
        lines.append(f"| {row.family} | {row.size} | {row.nodes} | {row.seconds:.2f} | {row.microseconds_a_node:.0f} | "
                     f"{row.peak_bytes / 2**20:.0f} | {cells} |")
    if left_out:
        lines += ["", f"Not compiled within the limit: {'; '.join(left_out)}."]
    lines += ["", "Microseconds a node of the largest over the smallest of each family:", ""]
    lines += [f"- {family}: {growth:.2f}" for family, growth in growths(rows).items()]
    return "\n".join([*lines, ""])


def growths(rows: Sequence[Row]) -> dict[str, float]:
    """For each family the time a node of its largest over that of its smallest."""
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    return {family: max(held, key=lambda row: row.nodes).microseconds_a_node
            / min(held, key=lambda row: row.nodes).microseconds_a_node for family, held in families.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="compile", description="Time compilation against the number of nodes.")
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="compilations of each (default 3)")
    parser.add_argument("--limit", type=float, metavar="SECONDS",
                        help="leave out a case whose process takes longer, preparation included")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write the table to a file")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one is not None:
        print(json.dumps(asdict(compile_once(CASES[given.one]))))
        return 0
    found = [(case, measure(case, given.repeat, given.limit)) for case in CASES if case.quick or not given.quick]
    rows = [row for _, row in found if row is not None]
    text = markdown(rows, [f"{case.family}, {case.size}" for case, row in found if row is None])
    print(text)
    if given.markdown:
        Path(given.markdown).write_text(text, encoding="utf-8")
    if given.json:
        Path(given.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

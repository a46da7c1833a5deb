"""What training steps take in memory: naive, lower bound and planned, and how long planning takes.

    python -m benchmarks.plan_memory [--quick] [--only NAME] [--json FILE]

Each network is planned as a step of SGD with momentum; nothing is allocated or run. `transient` is the arena of
activations, gradients and workspaces. `MXNet` is "Total N MB allocated" in debug_str() of MXNet 1.9.1 on the CPU for
forward and backward of the same networks (activations and temporaries; its MB are MiB), taken once by hand: what it
holds besides are parameters, their gradients and momentum, which neither column has.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.cases import Case, add_choice, choose, step_report, write_json

_MIB = 2**20
_WORST_RATIO = 1.005
"""Planned over lower bound that no network may exceed."""


@dataclass(frozen=True)
class Beside(Case):
    """A network to plan; `mxnet_mib` is MXNet's figure where there is one."""

    mxnet_mib: int | None = None


def _small(version: int, depth: int, mxnet_mib: int | None, quick: bool = False) -> Beside:
    return Beside(f"resnet-{depth} v{version}", "zoo.resnet", (32, 3, 32, 32),
                  {"num_classes": 10, "depth": depth, "version": version}, quick=quick, mxnet_mib=mxnet_mib)


def _large(depth: int, mxnet_mib: int, quick: bool = False) -> Beside:
    return Beside(f"resnet-{depth} v1", "zoo.resnet", (8, 3, 224, 224), {"depth": depth}, quick=quick,
                  mxnet_mib=mxnet_mib)


CASES = (
    Beside("mlp", "zoo.mlp", (32, 784), quick=True),
    Beside("lenet", "zoo.lenet", (32, 1, 28, 28), quick=True),
    _small(1, 20, 51, quick=True), _small(1, 56, 135), _small(1, 110, 261, quick=True), _small(1, 164, None),
    _small(1, 1001, None),
    _small(2, 20, 49, quick=True), _small(2, 56, 133), _small(2, 110, 259), _small(2, 164, 783, quick=True),
    _small(2, 1001, 4690),
    _large(50, 725, quick=True), _large(101, 1038), _large(152, 1424),
)


@dataclass(frozen=True)
class Row:
    """The figures of one network; bytes, seconds, and planned over lower bound."""

    name: str
    batch: int
    nodes: int
    naive_bytes: int
    lower_bound_bytes: int
    planned_bytes: int
    transient_bytes: int
    mxnet_mib: int | None
    ratio: float
    compile_seconds: float
    verify_seconds: float


def measure(case: Beside) -> Row:
    """Plan and verify one network."""
    figures = step_report(case)
    verify_seconds = figures.verify_seconds or 0.0
    return Row(case.name, case.data[0], figures.nodes, figures.naive_bytes, figures.lower_bound_bytes,
               figures.planned_bytes, figures.transient_bytes, case.mxnet_mib, figures.ratio,
               figures.compile_seconds, verify_seconds)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures to watch from one version to the next."""
    slowest = max(rows, key=lambda row: row.compile_seconds)
    beside = [row.transient_bytes / _MIB / row.mxnet_mib for row in rows if row.mxnet_mib] or [float("nan")]
    return {"networks": len(rows), "worst_ratio": max(row.ratio for row in rows),
            "worst_planned_over_naive": max(row.planned_bytes / row.naive_bytes for row in rows),
            "worst_transient_over_mxnet": max(beside), "slowest": slowest.name,
            "slowest_compile_seconds": slowest.compile_seconds,
            "verify_seconds": sum(row.verify_seconds for row in rows)}


HEADER = (f"{'network':<16}{'batch':>6}{'nodes':>7}{'naive':>10}{'bound':>9}{'planned':>9}{'ratio':>8}{'transient':>11}"
          f"{'MXNet':>7}{'compile':>9}{'verify':>8}")


def format_row(row: Row) -> str:
    """A line of the table, sizes in MiB and times in seconds."""
    mxnet = "-" if row.mxnet_mib is None else str(row.mxnet_mib)
    return (f"{row.name:<16}{row.batch:>6}{row.nodes:>7}{row.naive_bytes / _MIB:>10.1f}"
            f"{row.lower_bound_bytes / _MIB:>9.1f}{row.planned_bytes / _MIB:>9.1f}{row.ratio:>8.4f}"
            f"{row.transient_bytes / _MIB:>11.1f}{mxnet:>7}{row.compile_seconds:>9.2f}{row.verify_seconds:>8.2f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 when a ratio is above what it may be."""
    parser = argparse.ArgumentParser(prog="plan_memory", description="Plan networks and print what they take.")
    add_choice(parser, "a part of the networks, in seconds")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    given = parser.parse_args(argv)
    print(f"{HEADER}\n{'':<16}{'':>13}{'MiB':>10}{'MiB':>9}{'MiB':>9}{'':>8}{'MiB':>11}{'MiB':>7}{'s':>9}{'s':>8}")
    rows = []
    for case in choose(CASES, given, parser):
        rows.append(measure(case))
        print(format_row(rows[-1]), flush=True)
    figures = summary(rows)
    write_json(given.json, {"summary": figures, "networks": [asdict(row) for row in rows]})
    print(f"worst ratio of planned to lower bound {figures['worst_ratio']:.4f}, of transient bytes to MXNet's "
          f"{figures['worst_transient_over_mxnet']:.3f}")
    return int(figures["worst_ratio"] > _WORST_RATIO)


if __name__ == "__main__":
    sys.exit(main())

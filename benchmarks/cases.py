"""Networks of the zoo as cases of benchmarks: what is planned, and which of them a command line asks for."""
from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from minigraph.base import Shape
from minigraph.networks import load_network
from minigraph.plan.report import Report, report
from minigraph.planning import plan

SGD: Mapping[str, Any] = {"optimizer": "sgd", "program": "step", "optimizer_params": {"momentum": 0.9}}
"""A step of SGD with momentum, as options of `plan`."""


@dataclass(frozen=True)
class Case:
    """A network: `data` is the shape of its input, `inputs` those of others; `quick` tells whether it is among the few
    of --quick."""

    name: str
    network: str
    data: Shape
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Shape] = field(default_factory=dict)
    quick: bool = False

    @property
    def shapes(self) -> dict[str, Shape]:
        """Of all inputs."""
        return {"data": self.data, **self.inputs}

    def symbol(self) -> Any:
        """The zoo's network."""
        return load_network(self.network, self.settings, self.shapes)


Chosen = TypeVar("Chosen", bound=Case)


def add_choice(parser: argparse.ArgumentParser, quick: str) -> None:
    """Add --quick, which means what is said, and --only."""
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", default="", metavar="NAME", help="only networks whose name contains this")


def choose(cases: Sequence[Chosen], given: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Chosen]:
    """The cases that a command line asks for; it ends with an error when there are none."""
    chosen = [case for case in cases if (case.quick or not given.quick) and given.only in case.name]
    if not chosen:
        parser.error(f"no network is called {given.only!r}")
    return chosen


def write(path: str | None, text: str) -> None:
    """Write a file that was asked for."""
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")


def write_json(path: str | None, document: Any) -> None:
    """Write a JSON file that was asked for."""
    write(path, json.dumps(document, indent=1) + "\n")


def step_report(case: Case) -> Report:
    """What a planned and verified step of a network takes; nothing is allocated or run."""
    return report(plan(case.symbol(), case.shapes, **SGD))

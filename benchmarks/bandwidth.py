"""The CPU's memory-bound kernels beside a copy of memory, one thread.

    python -m benchmarks.bandwidth [--elements 10000000] [--quick] [--level x86-64-v3] [--json FILE]

Each kernel's rate is that of the bytes that it must move, each operand read and each output written once, and beside it
stands the rate of `numpy.copyto` in the same process, in turns; batch normalisation in training reads its data twice.
The clock is the process's own processor time, and the least of some rounds counts.
"""
from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minigraph.device.cpu import set_num_threads
from minigraph.device.cpu.native.families import import_families
from minigraph.device.cpu.native.library import Library, find_library

from .kernels import bound, least_seconds, random_floats

ROUNDS, QUICK_ROUNDS = 15, 5
CHANNELS, PIXELS = 64, 32 * 32
IMAGE_FLOATS = CHANNELS * PIXELS
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """An op, the shapes of its inputs and outputs, and how many passes over a tensor of the size it makes."""

    name: str
    params: Mapping[str, Any]
    ins: Sequence[Shape]
    outs: Sequence[Shape]
    passes: int


def cases(elements: int) -> dict[str, Case]:
    """What is measured, on tensors of so many elements, whole images of CHANNELS x PIXELS."""
    flat, image, vector = (elements,), (elements // IMAGE_FLOATS, CHANNELS, PIXELS), (CHANNELS,)
    norm = {"fix_gamma": False, "act_type": "relu"}
    return {
        "ReLU": Case("relu", {}, [flat], [flat], 2),
        "ReLU backward": Case("_activation_backward", {"act_type": "relu"}, [flat] * 2, [flat], 3),
        "add": Case("elemwise_add", {}, [flat] * 2, [flat], 3),
        "SGD with momentum": Case("_sgd_mom_update", {"index": 0}, [flat, flat, flat, (12,)], [flat, flat], 5),
        "batch norm + ReLU": Case("_batchnorm_train", norm, [image, vector, vector], [image, vector, vector, vector],
                                  3)}


def measure(library: Library, elements: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Seconds of each kernel and of the copy, and bytes a second."""
    source, target = random_floats(elements), random_floats(elements)
    found = cases(elements)
    peers: dict[str, Callable[[], Any]] = {"copy": lambda: np.copyto(target, source)}
    for name, case in found.items():
        peers[name] = bound(library, case.name, case.params, case.ins, case.outs)
    passes = {"copy": 2, **{name: case.passes for name, case in found.items()}}
    return {name: (seconds, 4 * elements * passes[name] / seconds)
            for name, seconds in least_seconds(peers, rounds).items()}


def table(elements: int, found: Mapping[str, tuple[float, float]]) -> str:
    """Milliseconds and GB/s by kernel, and the share of the copy's rate."""
    lines = [f"{elements} float32 elements", f"{'kernel':<20}{'ms':>10}{'GB/s':>10}{'of copy':>10}"]
    for name, (seconds, rate) in found.items():
        lines.append(f"{name:<20}{seconds * 1e3:>10.3f}{rate / 1e9:>10.1f}{rate / found['copy'][1]:>10.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Time the CPU's memory-bound kernels beside a copy.")
    parser.add_argument("--elements", type=int, default=10_000_000, help="of a tensor, rounded down to whole images")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--level", default="auto", help="the instruction set of the kernels")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args(arguments)
    elements = given.elements // IMAGE_FLOATS * IMAGE_FLOATS
    library = find_library(given.level)
    if library is None or not elements:
        parser.error(f"there must be kernels, by a C++ compiler, and {IMAGE_FLOATS} elements or more")
    import_families()
    set_num_threads(1)
    found = measure(library, elements, QUICK_ROUNDS if given.quick else ROUNDS)
    print(table(elements, found))
    if given.json:
        given.json.write_text(json.dumps({"level": library.level, "elements": elements, "kernels": {
            name: {"seconds": seconds, "bytes_per_second": rate} for name, (seconds, rate) in found.items()}},
            indent=1) + "\n")


if __name__ == "__main__":
    main()

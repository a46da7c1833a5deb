"""What training steps take with and without encodings of what backward only compares, and how long both last.

    python -m benchmarks.encodings [--quick] [--only NAME] [--json FILE]
    python -m benchmarks.encodings --steps 10 [--only NAME]

Planned bytes are those of a step of SGD with momentum, nothing is run. With --steps small networks run instead, with
whole values and with encodings in turns; seconds are the process's processor time, of all threads.
"""
from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import minigraph as mx
from benchmarks.cases import SGD, Case, add_choice, choose, write_json
from benchmarks.zoo_plans import CASES
from minigraph.planning import plan

_MIB = 2**20
STEPS = (
    Case("vgg11", "zoo.vgg", (2, 3, 224, 224), {"depth": 11, "num_classes": 10}),
    Case("alexnet", "zoo.alexnet", (8, 3, 224, 224), {"num_classes": 10}),
    Case("googlenet", "zoo.googlenet", (4, 3, 224, 224), {"num_classes": 10}),
    Case("mobilenet v2", "zoo.mobilenet", (4, 3, 224, 224), {"version": 2, "num_classes": 10}),
    Case("squeezenet 1.0", "zoo.squeezenet", (8, 3, 224, 224), {"version": "1.0", "num_classes": 10}),
    Case("resnet18", "zoo.resnet", (4, 3, 224, 224), {"depth": 18, "num_classes": 10}),
)
"""Networks whose steps are timed."""


def planned(case: Case) -> dict[str, Any]:
    """Planned bytes of a network's step with whole values and with encodings."""
    whole, encoded = (plan(case.symbol(), case.shapes, encode=encode, **SGD).planned_bytes for encode in (False, True))
    return {"name": case.name, "data": case.data, "whole_bytes": whole, "encoded_bytes": encoded}


def _step(case: Case, encode: bool) -> Any:
    """A function that runs one step."""
    module = mx.mod.Module(case.symbol(), encode=encode)
    batch = case.data[0]
    module.bind(data_shapes=[("data", case.data)], label_shapes=[("softmax_label", (batch,))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="sgd")
    images = np.random.default_rng(0).standard_normal(case.data).astype(np.float32)
    data = mx.io.DataBatch(data=[mx.nd.array(images)], label=[mx.nd.array(np.arange(batch) % 10)])

    def step() -> None:
        module.forward_backward(data)
        module.update()
        module.get_outputs()[0].asnumpy()
    return step


def timed(case: Case, count: int) -> dict[str, Any]:
    """Median processor seconds of `count` steps with whole values and as many with encodings, in turns."""
    steps = [_step(case, encode) for encode in (False, True)]
    for step in steps:
        step()
    seconds: tuple[list[float], list[float]] = ([], [])
    for k in range(count):
        for i in (0, 1) if k % 2 == 0 else (1, 0):
            start = time.process_time()
            steps[i]()
            seconds[i].append(time.process_time() - start)
    whole, encoded = map(statistics.median, seconds)
    return {"name": case.name, "data": case.data, "whole_seconds": whole, "encoded_seconds": encoded}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="encodings", description="Training steps with and without encodings.")
    add_choice(parser, "one small network of each kind")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="time N steps of small networks in each form")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    given = parser.parse_args(argv)
    rows = []
    print("| network | input | whole | encoded | ratio |\n| --- | --- | --- | --- | --- |")
    for case in choose(STEPS if given.steps else CASES, given, parser):
        row = timed(case, given.steps) if given.steps else planned(case)
        rows.append(row)
        whole, encoded = list(row.values())[2:]
        texts = [f"{value:.3f} s" if given.steps else f"{value / _MIB:.1f} MiB" for value in (whole, encoded)]
        print(f"| {case.name} | {'x'.join(map(str, case.data))} | {' | '.join(texts)} | {encoded / whole:.3f} |",
              flush=True)
    write_json(given.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

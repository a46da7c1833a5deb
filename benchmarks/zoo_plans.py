"""What a training step of every network of the zoo takes in memory, at its usual batch, and how long planning takes.

    python -m benchmarks.zoo_plans [--quick] [--only NAME] [--json FILE]

Each network is planned as a step of SGD with momentum; nothing is allocated or run. `naive` gives every tensor bytes of
its own, `bound` is the most bytes that live at once, `planned` is what the plan's arenas take.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.cases import Case, add_choice, choose, step_report, write_json
from minigraph.base import Shape

_MIB = 2**20
WORST_RATIO = 1.005
"""Planned over lower bound that no network may exceed."""


def _image(name: str, network: str, batch: int, size: int = 224, quick: bool = False, **settings: Any) -> Case:
    return Case(name, f"zoo.{network}", (batch, 3, size, size), settings, quick=quick)


def _resnet(name: str, batch: int, **settings: Any) -> Case:
    return _image(name, "resnet", batch, **settings)


CASES = (
    Case("mlp", "zoo.mlp", (128, 784), quick=True),
    Case("lenet", "zoo.lenet", (128, 1, 28, 28), quick=True),
    _image("alexnet", "alexnet", 128, quick=True),
    _image("alexnet (SuperNeurons)", "alexnet", 200, 227, variant="superneurons"),
    _image("vgg11", "vgg", 32, depth=11), _image("vgg13", "vgg", 32, depth=13),
    _image("vgg16", "vgg", 32, depth=16), _image("vgg19", "vgg", 32, depth=19),
    _image("vgg16_bn", "vgg", 32, depth=16, batch_norm=True),
    _image("vgg116", "vgg", 32, depth=116), _image("vgg216", "vgg", 32, depth=216),
    _image("vgg316", "vgg", 32, depth=316), _image("vgg416", "vgg", 32, depth=416),
    _image("googlenet", "googlenet", 32, quick=True),
    _image("inception_bn", "inception_bn", 32),
    _image("inception_v3", "inception_v3", 32, 299), _image("inception_v3 (aux)", "inception_v3", 32, 299, aux=True),
    _image("inception_v4", "inception_v4", 32, 299),
    _image("inception_resnet_v2", "inception_resnet_v2", 32, 299),
    _resnet("resnet50", 32, depth=50), _resnet("resnet152", 32, depth=152),
    _resnet("wide_resnet50_2", 32, depth=50, width_per_group=128),
    _resnet("resnext50_32x4d", 32, depth=50, groups=32, width_per_group=4, quick=True),
    _resnet("resnext101_32x8d", 32, depth=101, groups=32, width_per_group=8),
    Case("wrn-28-10", "zoo.resnet", (128, 3, 32, 32), {"num_classes": 10, "units": (4, 4, 4), "bottleneck": False,
                                                      "version": 2, "widen": 10}),
    _image("densenet121", "densenet", 32, depth=121), _image("densenet161", "densenet", 32, depth=161),
    _image("densenet169", "densenet", 32, depth=169), _image("densenet201", "densenet", 32, depth=201),
    _image("densenet264", "densenet", 32, depth=264),
    _image("mobilenet v1", "mobilenet", 64, version=1), _image("mobilenet v2", "mobilenet", 64, version=2, quick=True),
    _image("squeezenet 1.0", "squeezenet", 64, version="1.0"),
    _image("squeezenet 1.1", "squeezenet", 64, version="1.1", quick=True),
    Case("unet", "zoo.unet", (4, 1, 572, 572), quick=True),
    Case("unet (odd, padded)", "zoo.unet", (4, 1, 571, 573), {"padded": True, "odd": "pad"}),
    Case("unet 3-D", "zoo.unet", (2, 3, 132, 132, 116),
         {"num_classes": 3, "dims": 3, "batch_norm": True, "image_shape": (3, 132, 132, 116)}),
    Case("unet 3-D (TFLMS)", "zoo.unet", (1, 4, 192, 192, 192),
         {"num_classes": 4, "dims": 3, "padded": True, "image_shape": (4, 192, 192, 192)}, quick=True),
    Case("lstm medium", "zoo.lstm", (20, 35), quick=True),
    Case("lstm large", "zoo.lstm", (20, 35), {"hidden": 1500, "p": 0.65}),
    Case("bert base", "zoo.bert", (32, 128)),
    Case("bert base (lengths)", "zoo.bert", (32, 128), {"segments": True, "lengths": True},
         {"segments": (32, 128), "length": (32,)}, quick=True),
    Case("bert large", "zoo.bert", (8, 512), {"size": "large", "seq_len": 512}),
    Case("gpt small", "zoo.gpt", (4, 1024)), Case("gpt xl", "zoo.gpt", (1, 1024), {"size": "xl"}),
)


@dataclass(frozen=True)
class Row:
    """The figures of one network: bytes, planned over lower bound, and seconds of planning, of them to verify."""

    name: str
    data: Shape
    nodes: int
    naive_bytes: int
    lower_bound_bytes: int
    planned_bytes: int
    ratio: float
    seconds: float
    verify_seconds: float


def measure(case: Case) -> Row:
    """Plan and verify one network."""
    figures = step_report(case)
    verify_seconds = figures.verify_seconds or 0.0
    return Row(case.name, case.data, figures.nodes, figures.naive_bytes, figures.lower_bound_bytes,
               figures.planned_bytes, figures.ratio, figures.compile_seconds + verify_seconds, verify_seconds)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures to watch from one version to the next."""
    worst = max(rows, key=lambda row: row.ratio)
    slowest = max(rows, key=lambda row: row.seconds)
    return {"networks": len(rows), "worst_ratio": worst.ratio, "worst": worst.name,
            "worst_planned_over_naive": max(row.planned_bytes / row.naive_bytes for row in rows),
            "slowest": slowest.name, "slowest_seconds": slowest.seconds, "seconds": sum(row.seconds for row in rows),
            "nodes": sum(row.nodes for row in rows)}


HEADER = f"{'network':<24}{'input':<22}{'nodes':>7}{'naive':>11}{'bound':>10}{'planned':>10}{'ratio':>9}{'seconds':>9}"


def format_row(row: Row) -> str:
    """A line of the table, sizes in MiB."""
    return (f"{row.name:<24}{'x'.join(map(str, row.data)):<22}{row.nodes:>7}{row.naive_bytes / _MIB:>11.1f}"
            f"{row.lower_bound_bytes / _MIB:>10.1f}{row.planned_bytes / _MIB:>10.1f}{row.ratio:>9.4f}"
            f"{row.seconds:>9.2f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 when a ratio is above what it may be."""
    parser = argparse.ArgumentParser(prog="zoo_plans", description="Plan a training step of every network of the zoo.")
    add_choice(parser, "one small network of each kind")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    given = parser.parse_args(argv)
    chosen = choose(CASES, given, parser)
    print(f"{HEADER}\n{'':<53}{'MiB':>11}{'MiB':>10}{'MiB':>10}")
    rows = []
    for case in chosen:
        rows.append(measure(case))
        print(format_row(rows[-1]), flush=True)
    figures = summary(rows)
    write_json(given.json, {"summary": figures, "networks": [asdict(row) for row in rows]})
    print(f"worst ratio of planned to lower bound {figures['worst_ratio']:.4f} ({figures['worst']}); all planned in "
          f"{figures['seconds']:.1f} s")
    return int(figures["worst_ratio"] > WORST_RATIO)


if __name__ == "__main__":
    sys.exit(main())

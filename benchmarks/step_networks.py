"""One process of step_time: it trains one network with minigraph or with PyTorch, a few steps whenever it is told to.

    python -m benchmarks.step_networks minigraph|torch --network resnet20 [--mode channels_last] [--threads 1]

It reads a line from its input for each thing to do and answers with a line of JSON: `start` binds, compiles and takes
two steps, `run K` takes K steps, `operators` times every operator (minigraph only), and the end of input ends it.
Values come from the parameters' names, so both sides begin with the same ones; both see the same batch at all steps.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np

from benchmarks.depth_networks import initial_value
from benchmarks.watch import peak_bytes

RATE, MOMENTUM, DECAY = 0.0001, 0.9, 1e-4
TORCH_MODES = ("eager", "channels_last", "compile")


@dataclass(frozen=True)
class Network:
    """A network of the zoo, the shape of its data, and its twin in PyTorch: a function's name in `twins`, and what it
    is given. `words` is the size of the vocabulary where data and labels are words, 0 for images; `image_labels` says
    that there is a label for each place of an image."""

    name: str
    settings: dict[str, Any]
    data: tuple[int, ...]
    twin: str
    twin_settings: dict[str, Any] = field(default_factory=dict)
    classes: int = 1000
    words: int = 0
    label: tuple[int, ...] | None = None
    eps: float = 1e-5
    """BatchNorm's."""

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Shape of the labels."""
        return self.label or (self.data if self.words else self.data[:1])

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Data and labels, both float32 as minigraph takes them."""
        chance = np.random.default_rng(0)
        labels = chance.integers(0, self.words or self.classes, self.label_shape).astype(np.float32)
        if self.words:
            return chance.integers(0, self.words, self.data).astype(np.float32), labels
        return chance.standard_normal(self.data, np.float32), labels


def _cifar(depth: int) -> Network:
    n = (depth - 2) // 6
    return Network("resnet", {"depth": depth, "image_shape": (3, 32, 32)}, (32, 3, 32, 32), "resnet",
                   {"units": (n, n, n), "convolutions": 2, "pre": False}, classes=10, eps=2e-5)


NETWORKS = {
    "mlp": Network("mlp", {"hidden": (512, 512)}, (128, 784), "mlp", {"layers": 3}, classes=10),
    "resnet20": _cifar(20),
    "resnet56": _cifar(56),
    "resnet110": _cifar(110),
    "resnet50": Network("resnet", {"depth": 50}, (8, 3, 224, 224), "resnet",
                        {"units": (3, 4, 6, 3), "convolutions": 3, "pre": False, "large": True}, eps=2e-5),
    "vgg16": Network("vgg", {"depth": 16, "p": 0.0}, (4, 3, 224, 224), "vgg",
                     {"groups": (2, 2, 3, 3, 3), "norm": False}),
    "densenet121": Network("densenet", {"depth": 121}, (4, 3, 224, 224), "densenet", {"blocks": (6, 12, 24, 16)}),
    "mobilenet": Network("mobilenet", {"version": 1}, (8, 3, 224, 224), "mobilenet", {"version": 1}),
    "unet": Network("unet", {"levels": 4, "filters": 32, "padded": True, "image_shape": (1, 128, 128)},
                    (4, 1, 128, 128), "unet", {"levels": 4, "padded": True, "norm": False}, classes=2,
                    label=(4, 128, 128)),
    "lstm": Network("lstm", {"seq_len": 35, "hidden": 200, "p": 0.0}, (20, 35), "lstm", {"layers": 2, "tied": False},
                    classes=2000, words=2000),
    "transformer": Network("gpt", {"depth": 4, "hidden": 256, "heads": 8, "seq_len": 128, "places": 128, "p": 0.0,
                                   "tied": False}, (8, 128), "gpt", {"depth": 4, "heads": 8, "tied": False},
                           words=1000),
}
"""The networks of the benchmark by their names in it."""


@dataclass
class Peer:
    """A network ready to train: `step` takes one step and returns its loss."""

    step: Callable[[], float]
    operators: Callable[[int], dict[str, Any]] | None = None


# -- minigraph -----------------------------------------------------------------------------------------------
def minigraph_peer(network: Network, mode: str, threads: int) -> Peer:
    """minigraph's `plain` plan, or that of another memory mode."""
    import zoo
    from minigraph.executor import Executor
    from minigraph.optimizer import create
    symbol = zoo.get(network.name)(num_classes=network.words or network.classes, **network.settings)
    executor = Executor(symbol, None, {"data": network.data, "softmax_label": network.label_shape},
                        inputs=("data", "softmax_label"), memory=mode)
    optimizer = create("sgd", learning_rate=RATE, momentum=MOMENTUM, wd=DECAY, rescale_grad=_rescale(network))
    executor.set_updater(optimizer)
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        array[:] = initial_value(name, array.shape)
    data, labels = network.batch()
    places = _places(labels, network.words or network.classes, prod(network.label[1:]) if network.label else 1)

    def step() -> float:
        output, = executor.step(optimizer.control, data=data, softmax_label=labels)
        return float(-np.log(np.maximum(output.asnumpy().reshape(-1)[places], 1e-30)).mean())
    return Peer(step, partial(_operators, executor))


def _rescale(network: Network) -> float:
    """What makes the gradient one of the mean loss: outputs with a label for each place are divided already."""
    return 1.0 if network.words or network.label else 1.0 / network.data[0]


def _places(labels: np.ndarray, classes: int, pixels: int) -> np.ndarray:
    """Where the labels' probabilities lie among those of all classes, (..., classes, pixels) in a row."""
    outer, pixel = np.divmod(np.arange(labels.size), pixels)
    return (outer * classes + labels.reshape(-1).astype(np.int64)) * pixels + pixel


def _operators(executor: Any, runs: int) -> dict[str, Any]:
    """Milliseconds, GFLOP/s and GB/s of each operator of a step."""
    from minigraph.base import TensorType
    from minigraph.ops.registry import get_op
    trace, plan = executor.profile(runs), executor.plan
    code, buffers = plan.instructions, plan.buffers
    totals: dict[str, list[float]] = {}
    for i in range(len(plan)):
        op = get_op(code.op[i])
        ins, outs = ([TensorType(buffers.shape[b], buffers.dtype[b]) for b in operands]
                     for operands in (code.reads[i], code.writes[i]))
        cost = op.cost(code.params[i], ins, outs)
        total = totals.setdefault(code.op[i], [0.0, 0.0])
        total[0] += cost.flops
        total[1] += cost.read_bytes + cost.written_bytes
    return {op: {"calls": count // runs, "ms": seconds / runs * 1e3,
                 "gflops": totals[op][0] * runs / seconds / 1e9, "gbytes": totals[op][1] * runs / seconds / 1e9}
            for op, (count, seconds) in trace.by_op().items() if op in totals and seconds > 0}


# -- PyTorch -------------------------------------------------------------------------------------------------
def torch_peer(network: Network, mode: str, threads: int) -> Peer:
    """PyTorch: eager, eager in channels_last, or compiled; with its fused SGD and in-place ReLU."""
    import torch
    from torch.nn import functional

    from benchmarks import twins
    torch.set_num_threads(threads)
    images = torch.channels_last if mode == "channels_last" and len(network.data) == 4 else torch.contiguous_format

    class Timed(twins.Twin):
        """A twin that moves its statistics as PyTorch's users do, and notes nothing."""

        def get(self, name: str) -> Any:
            return self.values.get(name)

        def bn(self, x: Any, name: str, fixed: bool = False) -> Any:
            return functional.batch_norm(x, self.statistics[f"{name}_moving_mean"],
                                         self.statistics[f"{name}_moving_var"], self.need(f"{name}_gamma"),
                                         self.need(f"{name}_beta"), True, 0.1, self.eps)

        def relu(self, x: Any) -> Any:
            return functional.relu(x, inplace=True)

    values, statistics = _torch_values(network, images)
    function = partial(getattr(twins, network.twin), **network.twin_settings)
    first, second = network.batch()
    data = torch.from_numpy(first) if network.words else torch.from_numpy(first).contiguous(memory_format=images)
    labels = torch.from_numpy(second).long()

    def loss_of(data: Any) -> Any:
        (logits, axis, _), = function(Timed(values, statistics, network.eps), data)
        return functional.cross_entropy(logits.movedim(axis, -1).flatten(0, -2) if axis != 1 else logits,
                                        labels.flatten() if axis != 1 else labels)
    forward = torch.compile(loss_of) if mode == "compile" else loss_of
    optimizer = torch.optim.SGD(list(values.values()), RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=True)

    def step() -> float:
        loss = forward(data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())
    return Peer(step)


def _torch_values(network: Network, images: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and moving statistics by minigraph's names."""
    import torch

    import zoo
    symbol = zoo.get(network.name)(num_classes=network.words or network.classes, **network.settings)
    shapes, _, aux_shapes = symbol.infer_shape(data=network.data, softmax_label=network.label_shape)
    values = {}
    for name, shape in zip(symbol.list_arguments(), shapes, strict=True):
        if name not in ("data", "softmax_label"):
            value = torch.from_numpy(initial_value(name, shape))
            values[name] = (value.contiguous(memory_format=images) if len(shape) == 4 else value).requires_grad_()
    aux = zip(symbol.list_auxiliary_states(), aux_shapes, strict=True)
    return values, {name: torch.from_numpy(initial_value(name, shape)) for name, shape in aux}


# -- the process ---------------------------------------------------------------------------------------------
def _busy_seconds() -> float:
    """Processor seconds that all processes of the machine have used, where /proc tells them."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except OSError:
        return 0.0
    return sum(ticks[k] for k in (0, 1, 2, 5, 6, 7)) / 100.0


def run_steps(step: Callable[[], float], count: int) -> dict[str, Any]:
    """Seconds a step by the wall's clock and by this process's processor time, and the cores that others used."""
    wall, cpu, busy = time.perf_counter(), time.process_time(), _busy_seconds()
    for _ in range(count):
        step()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    others = max(0.0, _busy_seconds() - busy - cpu) / max(wall, 1e-9)
    return {"wall": wall / count, "cpu": cpu / count, "others": others}


def main(argv: Sequence[str] | None = None) -> int:
    """Answer the lines of the input."""
    parser = argparse.ArgumentParser(prog="step_networks")
    parser.add_argument("peer", choices=("minigraph", "torch"))
    parser.add_argument("--network", choices=tuple(NETWORKS), required=True)
    parser.add_argument("--mode", default="plain", help="minigraph's memory mode, or eager, channels_last, compile")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(argv)
    make = minigraph_peer if given.peer == "minigraph" else torch_peer
    peer: Peer | None = None
    for line in sys.stdin:
        order, _, number = line.strip().partition(" ")
        if order == "start":
            begun = time.perf_counter()
            peer = make(NETWORKS[given.network], given.mode, given.threads)
            losses = [peer.step(), peer.step()]
            answer: dict[str, Any] = {"losses": losses, "ready_seconds": time.perf_counter() - begun}
        elif order == "run" and peer is not None:
            answer = run_steps(peer.step, int(number))
        elif order == "operators" and peer is not None and peer.operators is not None:
            answer = peer.operators(int(number))
        else:
            raise SystemExit(f"step_networks: cannot do {line.strip()!r} now; the first order is start")
        print(json.dumps({**answer, "peak_bytes": peak_bytes()} if order != "operators" else answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

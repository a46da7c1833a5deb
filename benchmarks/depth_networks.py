"""One process's part of depth_scaling and lean: compile a plan, or train a few steps with minigraph or PyTorch.

    python -m benchmarks.depth_networks compile|minigraph|torch --depth 110 --batch 32 ...

The network is the CIFAR ResNet of zoo.resnet, version 2 (normalisation and ReLU before each 3x3 convolution) of depth
6n+2, for images of 3x32x32 and 10 classes, or for minigraph alone with bottlenecks of depth 9n+2; the step is SGD with
momentum 0.9. Values come from the parameters' names, so both sides begin with the same ones, and both see the same
batches. Seconds are without the time that the thread waited for a core (benchmarks/quiet.py). The last line of output
is a JSON object.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.quiet import timed
from benchmarks.watch import peak_bytes

CLASSES, IMAGE = 10, (3, 32, 32)
RATE, MOMENTUM, EPS = 0.01, 0.9, 2e-5
STAGES = ((1, 16), (2, 32), (3, 64))


def initial_value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The first value of a parameter or state, from its name: He et al.'s normal for weights, 1 for gamma and
    variance, 0 for the rest."""
    if not name.endswith("weight"):
        return np.full(shape, float(name.endswith(("gamma", "var"))), np.float32)
    fan_in = int(np.prod(shape[1:]))
    chance = np.random.default_rng(zlib.crc32(name.encode()))
    return chance.standard_normal(shape, np.float32) * np.float32(np.sqrt(2.0 / fan_in))


def batch_of(step: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one step."""
    chance = np.random.default_rng(step)
    return chance.standard_normal((size, *IMAGE), np.float32), chance.integers(0, CLASSES, size)


def _train(steps: int, batch: int, step: Callable[[np.ndarray, np.ndarray], float]) -> dict[str, Any]:
    losses: list[float] = []
    seconds: list[float] = []
    for k in range(steps):
        images, labels = batch_of(k, batch)
        def taken(images: np.ndarray = images, labels: np.ndarray = labels) -> None:
            losses.append(step(images, labels))
        seconds.append(timed(taken).seconds)
    return {"losses": losses, "seconds": seconds, "peak_bytes": peak_bytes()}


# -- minigraph -----------------------------------------------------------------------------------------------
def _symbol(depth: int) -> Any:
    from zoo import resnet
    return resnet.get_symbol(num_classes=CLASSES, depth=depth, version=2, image_shape=IMAGE,
                             bottleneck=(depth - 2) % 6 != 0, eps=EPS)


def _optimizer(batch: int) -> Any:
    from minigraph.optimizer import create
    return create("sgd", learning_rate=RATE, momentum=MOMENTUM, wd=0.0, rescale_grad=1.0 / batch)


def compile_plan(given: argparse.Namespace) -> dict[str, Any]:
    """Compile and save the plan of one step; `least_bytes` instead where the budget does not do."""
    from minigraph.base import OutOfMemoryError
    from minigraph.plan import serialize
    from minigraph.planning import plan
    try:
        made = plan(_symbol(given.depth), {"data": (given.batch, *IMAGE)}, _optimizer(given.batch), "step",
                    given.memory, budget=given.budget)
    except OutOfMemoryError as error:
        return {"least_bytes": error.asked_bytes}
    serialize.save(made, given.plan)
    figures = made.figures
    return {"planned_bytes": made.planned_bytes, "instructions": len(made), "compile_seconds": figures.compile_seconds,
            "slower": figures.step_seconds / figures.plain_step_seconds, "peak_bytes": peak_bytes()}


def train_minigraph(given: argparse.Namespace) -> dict[str, Any]:
    """Train by a plan that another process has compiled and verified."""
    from minigraph.executor import Executor
    from minigraph.plan import serialize
    from minigraph.planning import unplanned_bytes
    shapes = {"data": (given.batch, *IMAGE)}
    executor = Executor(_symbol(given.depth), None, shapes, inputs=("data", "softmax_label"), verify=False)
    optimizer = _optimizer(given.batch)
    executor.set_updater(optimizer)
    made = serialize.load(given.plan)
    executor.use_plan("step", made)
    for name, array in {**executor.arg_dict, **executor.aux_dict}.items():
        array[:] = initial_value(name, array.shape)
    before_bytes = peak_bytes()

    def step(images: np.ndarray, labels: np.ndarray) -> float:
        output, = executor.step(optimizer.control, data=images, softmax_label=labels)
        return float(-np.log(output.asnumpy()[np.arange(len(labels)), labels]).mean())
    trained = _train(given.steps, given.batch, step)
    return {**trained, "digest": _digest(executor), "planned_bytes": made.planned_bytes,
            "before_steps_bytes": before_bytes, "thread_bytes": unplanned_bytes(made)}


def _digest(executor: Any) -> str:
    """A digest of all parameters, auxiliary and optimizer states."""
    found = hashlib.sha256()
    states = [array for group in executor.states.values() for array in group]
    for array in (*executor.arg_dict.values(), *executor.aux_dict.values(), *states):
        found.update(array.asnumpy().tobytes())
    return found.hexdigest()


# -- PyTorch -------------------------------------------------------------------------------------------------
def _torch_network(depth: int, mode: str) -> Any:
    """The same network in PyTorch, with the parameter names of zoo.resnet but for a dot before the last word."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    def conv(channels: int, filters: int, kernel: int, stride: int) -> Any:
        return nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)

    def norm(channels: int) -> Any:
        return nn.BatchNorm2d(channels, eps=EPS, momentum=0.1)

    class Unit(nn.Module):
        def __init__(self, channels: int, filters: int, stride: int) -> None:
            super().__init__()
            self.bn1, self.conv1 = norm(channels), conv(channels, filters, 3, stride)
            self.bn2, self.conv2 = norm(filters), conv(filters, filters, 3, 1)
            self.sc = conv(channels, filters, 1, stride) if channels != filters or stride != 1 else None

        def forward(self, data: Any) -> Any:
            first = functional.relu(self.bn1(data), inplace=True)
            body = self.conv1(first)
            body = self.conv2(functional.relu(self.bn2(body), inplace=True))
            return body + (data if self.sc is None else self.sc(first))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn_data, self.conv0 = norm(IMAGE[0]), conv(IMAGE[0], 16, 3, 1)
            self.bn_data.weight.requires_grad_(False)
            channels, units = 16, []
            for stage, filters in STAGES:
                for number in range(1, (depth - 2) // 6 + 1):
                    units.append(Unit(channels, filters, 2 if stage > 1 and number == 1 else 1))
                    self.add_module(f"stage{stage}_unit{number}", units[-1])
                    channels = filters
            self.units = tuple(units)
            self.bn1, self.fc1 = norm(channels), nn.Linear(channels, CLASSES)

        def forward(self, data: Any) -> Any:
            body = self.conv0(self.bn_data(data))
            if mode == "sqrt":
                parts = max(2, round(len(self.units) ** 0.5))
                body = checkpoint_sequential(nn.Sequential(*self.units), parts, body, use_reentrant=False)
            else:
                for unit in self.units:
                    body = checkpoint(unit, body, use_reentrant=False) if mode == "block" else unit(body)
            return self.fc1(functional.relu(self.bn1(body)).mean((2, 3)))

    torch.set_num_threads(int(_threads()))
    network = Network()
    words = {"running_mean": "moving_mean", "running_var": "moving_var"}
    with torch.no_grad():
        for key, tensor in network.state_dict().items():
            layer, word = key.replace(".", "_", key.count(".") - 1).split(".")
            if word == "num_batches_tracked":
                continue
            if "bn" in layer:
                word = {"weight": "gamma", "bias": "beta", **words}[word]
            tensor.copy_(torch.from_numpy(initial_value(f"{layer}_{word}", tuple(tensor.shape))))
    return network


def _threads() -> str:
    import os
    return os.environ.get("OMP_NUM_THREADS", "1")


def train_torch(given: argparse.Namespace) -> dict[str, Any]:
    """Train with PyTorch: eager, or checkpointing each unit or each of sqrt(n) parts."""
    import torch
    from torch.nn import functional
    network = _torch_network(given.depth, given.mode)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, RATE, momentum=MOMENTUM)

    def step(images: np.ndarray, labels: np.ndarray) -> float:
        loss = functional.cross_entropy(network(torch.from_numpy(images)), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())
    return _train(given.steps, given.batch, step)


def main(argv: Sequence[str] | None = None) -> int:
    """Do one part, and print its figures as JSON."""
    parser = argparse.ArgumentParser(prog="depth_networks")
    parser.add_argument("what", choices=("compile", "minigraph", "torch"))
    parser.add_argument("--depth", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--plan", help="the plan's file")
    parser.add_argument("--memory", default="plain", help="minigraph's memory mode")
    parser.add_argument("--budget", default=None, help="bytes of both of minigraph's arenas")
    parser.add_argument("--mode", default="eager", choices=("eager", "block", "sqrt"), help="PyTorch's checkpoints")
    given = parser.parse_args(argv)
    run = {"compile": compile_plan, "minigraph": train_minigraph, "torch": train_torch}[given.what]
    print(json.dumps(run(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A training step of a small instance of every network of the zoo, in float32, is the same on both devices."""
from __future__ import annotations

import importlib.util
from functools import cache

import numpy as np
import pytest

import minigraph as mx
import zoo

from .processes import run

if importlib.util.find_spec("torch") is None:
    pytest.skip("the instances stand beside their PyTorch twins, and torch is not installed", allow_module_level=True)
from tests.zoo import test_networks_step as instances  # noqa: E402

CLOSE, CLOSE_GRADIENTS = 2e-3, 6e-2
"""Bounds on the distance of two results, relative to their length. Sums are taken in other orders, and where rounding
turns the sign of a ReLU's input or the winner of a pooling window, a gradient takes another way."""


def step(name: str, context: mx.Context) -> dict[str, list[float]]:
    """Outputs, gradients and statistics of one step, by name."""
    case = instances.CASES[name]
    symbol = zoo.get(case.network)(**{"num_classes": instances.CLASSES, **case.settings})
    fixed = {"data", "softmax_label", *case.inputs}
    requests = {n: "null" if n in fixed else "write" for n in symbol.list_arguments()}
    executor = symbol.simple_bind(context, grad_req=requests, data=case.data, **case.inputs)
    given = instances.values(executor, case)
    for n, array in {**executor.arg_dict, **executor.aux_dict}.items():
        array[:] = given[n] if n in given else float("var" in n)
    outputs = executor.forward(is_train=True)
    executor.backward()
    found = {f"output {k}": output for k, output in enumerate(outputs)}
    found |= {f"gradient of {n}": g for n, g in executor.grad_dict.items() if g is not None}
    found |= dict(executor.aux_dict)
    return {n: array.asnumpy().ravel().tolist() for n, array in found.items()}


def steps_on_gpu(names: list[str]) -> dict[str, dict[str, list[float]]]:
    """The steps of several networks on gpu(0), for a process of its own."""
    return {name: step(name, mx.gpu(0)) for name in names}


@cache
def on_gpu(part: int) -> dict[str, dict[str, list[float]]]:
    """One of four parts of all networks: a process loads the kernels once."""
    return run(steps_on_gpu, sorted(instances.CASES)[part::4])


@pytest.mark.parametrize("name", sorted(instances.CASES))
def test_a_step_is_the_same_on_both_devices(name: str) -> None:
    found = on_gpu(sorted(instances.CASES).index(name) % 4)[name]
    for what, expected in step(name, mx.cpu()).items():
        bound = CLOSE_GRADIENTS if what.startswith("gradient") else CLOSE
        distance = float(np.linalg.norm(np.subtract(found[what], expected)))
        assert distance <= bound * float(np.linalg.norm(expected)) + 1e-4, what

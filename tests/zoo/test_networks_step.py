"""A training step of a small instance of every network, in float64, is PyTorch's.

The update itself, p - RATE * gradient, is made here: operators of optimizers keep to float32.
"""
from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import minigraph as mx
import zoo

torch = pytest.importorskip("torch", reason="the twin networks are PyTorch's")
from benchmarks import twins  # noqa: E402

RATE = 2.0 ** 8
"""Learning rate so large that the new parameters are their gradients, all but."""
CLOSE = 1e-9
CLASSES = 5


class Case(NamedTuple):
    """A network's settings, the shapes of its inputs, and its twin."""

    network: str
    settings: dict[str, Any]
    data: tuple[int, ...]
    twin: Any
    eps: float = 1e-5
    integer: dict[str, int] = {}
    inputs: dict[str, tuple[int, ...]] = {}


TINY = {"depth": 2, "hidden": 8, "heads": 2, "inner": 12, "seq_len": 4, "places": 6, "p": 0.0}
WORDS = {"data": 11, "softmax_label": 11}
CASES = {
    "alexnet": Case("alexnet", {"hidden": 7, "p": 0}, (2, 3, 63, 63), partial(twins.alexnet, local=False)),
    "alexnet of SuperNeurons": Case("alexnet", {"variant": "superneurons", "hidden": 7, "p": 0}, (2, 3, 67, 67),
                                    partial(twins.alexnet, local=True)),
    "vgg": Case("vgg", {"depth": 16, "filters": (2, 3, 4, 4, 4), "hidden": 6, "p": 0}, (2, 3, 32, 35),
                partial(twins.vgg, groups=(2, 2, 3, 3, 3), norm=False)),
    "vgg with norms": Case("vgg", {"depth": 11, "batch_norm": True, "filters": (2, 3, 4, 4, 4), "hidden": 6, "p": 0},
                           (3, 3, 64, 64), partial(twins.vgg, groups=(1, 1, 2, 2, 2), norm=True)),
    "vgg of vDNN": Case("vgg", {"depth": 21, "filters": (2, 2, 3, 3, 3), "hidden": 6, "p": 0}, (2, 3, 32, 32),
                        partial(twins.vgg, groups=(3, 3, 4, 4, 4), norm=False)),
    "googlenet": Case("googlenet", {"width": 0.05, "p": 0}, (3, 3, 70, 64), twins.googlenet, 1e-3),
    "inception_bn": Case("inception_bn", {"width": 0.05}, (3, 3, 64, 80), twins.inception_bn),
    "inception_v3": Case("inception_v3", {"width": 0.03, "p": 0}, (3, 3, 107, 107),
                         partial(twins.inception_v3, aux=False), 1e-3),
    "inception_v3 with two classifiers": Case("inception_v3", {"width": 0.02, "p": 0, "aux": True}, (2, 3, 299, 299),
                                              partial(twins.inception_v3, aux=True), 1e-3),
    "inception_v4": Case("inception_v4", {"width": 0.03, "p": 0, "blocks": (1, 1, 1)}, (3, 3, 107, 107),
                         twins.inception_v4, 1e-3),
    "inception_resnet_v2": Case("inception_resnet_v2", {"width": 0.03, "p": 0, "blocks": (1, 1, 1)}, (3, 3, 107, 107),
                                twins.inception_resnet_v2, 1e-3),
    "resnext": Case("resnet", {"units": (1, 2), "groups": 2, "width_per_group": 32, "image_shape": (3, 9, 8)},
                    (3, 3, 9, 8), partial(twins.resnet, units=(1, 2), convolutions=3, pre=False), 2e-5),
    "resnext with norms first": Case(
        "resnet", {"units": (1, 2), "groups": 4, "width_per_group": 16, "version": 2, "image_shape": (3, 8, 8)},
        (3, 3, 8, 8), partial(twins.resnet, units=(1, 2), convolutions=3, pre=True), 2e-5),
    "wide resnet": Case("resnet", {"units": (2, 1), "bottleneck": False, "version": 2, "widen": 2,
                                   "image_shape": (3, 8, 9)}, (3, 3, 8, 9),
                        partial(twins.resnet, units=(2, 1), convolutions=2, pre=True), 2e-5),
    "wide resnet with bottlenecks": Case("resnet", {"units": (1, 1), "width_per_group": 128,
                                                    "image_shape": (3, 8, 8)}, (3, 3, 8, 8),
                                         partial(twins.resnet, units=(1, 1), convolutions=3, pre=False), 2e-5),
    "large resnet": Case("resnet", {"units": (1, 1), "image_shape": (3, 41, 40)}, (3, 3, 41, 40),
                         partial(twins.resnet, units=(1, 1), convolutions=3, pre=False, large=True), 2e-5),
    "mlp": Case("mlp", {"hidden": (5, 4)}, (3, 7), partial(twins.mlp, layers=3)),
    "densenet": Case("densenet", {"blocks": (2, 3, 2), "growth": 3}, (3, 3, 40, 40),
                     partial(twins.densenet, blocks=(2, 3, 2))),
    "mobilenet 1": Case("mobilenet", {"version": 1, "width": 0.1}, (3, 3, 64, 64), partial(twins.mobilenet, version=1)),
    "mobilenet 2": Case("mobilenet", {"width": 0.1, "p": 0}, (3, 3, 64, 64), partial(twins.mobilenet, version=2)),
    "squeezenet 1.0": Case("squeezenet", {"version": "1.0", "p": 0}, (2, 3, 47, 40),
                           partial(twins.squeezenet, pooled=(2, 5, 9))),
    "squeezenet 1.1": Case("squeezenet", {"version": 1.1, "p": 0}, (2, 3, 40, 47),
                           partial(twins.squeezenet, pooled=(2, 4, 6))),
    "unet": Case("unet", {"levels": 2, "filters": 2, "image_shape": (1, 44, 48)}, (2, 1, 44, 48),
                 partial(twins.unet, levels=2, padded=False, norm=False)),
    "unet with norms, cropped": Case("unet", {"levels": 3, "filters": 2, "padded": True, "batch_norm": True,
                                              "image_shape": (2, 31, 13)}, (2, 2, 31, 13),
                                     partial(twins.unet, levels=3, padded=True, norm=True)),
    "unet with padding": Case("unet", {"levels": 3, "filters": 2, "padded": True, "odd": "pad",
                                       "image_shape": (2, 31, 13)}, (2, 2, 31, 13),
                              partial(twins.unet, levels=3, padded=True, norm=False, pad_odd=True)),
    "unet of volumes": Case("unet", {"dims": 3, "levels": 1, "filters": 2, "image_shape": (2, 18, 20, 19)},
                            (2, 2, 18, 20, 19), partial(twins.unet, levels=1, padded=False, norm=False)),
    "unet of padded volumes": Case(
        "unet", {"dims": 3, "levels": 2, "filters": 2, "padded": True, "odd": "pad", "batch_norm": True,
                 "image_shape": (2, 8, 6, 7)}, (2, 2, 8, 6, 7),
        partial(twins.unet, levels=2, padded=True, norm=True, pad_odd=True)),
    "lstm": Case("lstm", {"seq_len": 4, "hidden": 6, "embed": 3, "p": 0}, (3, 4),
                 partial(twins.lstm, layers=2, tied=False), integer={"data": 5, "softmax_label": 5}),
    "lstm with tied weights": Case("lstm", {"seq_len": 4, "layers": 1, "hidden": 3, "p": 0, "tied": True}, (1, 4),
                                   partial(twins.lstm, layers=1, tied=True),
                                   integer={"data": 5, "softmax_label": 5}),
    "bert": Case("bert", {**TINY, "vocabulary": 11, "num_classes": None}, (3, 4),
                 partial(twins.bert, depth=2, heads=2, classes=False), integer=WORDS),
    "bert with segments and lengths": Case(
        "bert", {**TINY, "vocabulary": 11, "segments": True, "lengths": True}, (3, 4),
        partial(twins.bert, depth=2, heads=2, classes=True), integer={"data": 11, "segments": 2, "length": 4},
        inputs={"segments": (3, 4), "length": (3,)}),
    "gpt": Case("gpt", {**TINY, "num_classes": 11}, (3, 4), partial(twins.gpt, depth=2, heads=2, tied=True),
                integer=WORDS),
    "gpt of all places, not tied": Case("gpt", {**TINY, "num_classes": 11, "seq_len": 6, "tied": False}, (3, 6),
                                        partial(twins.gpt, depth=2, heads=2, tied=False), integer=WORDS),
}


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Tensors are tiny: threads of PyTorch would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def bound(case: Case) -> Any:
    """An executor in float64."""
    symbol = zoo.get(case.network)(**{"num_classes": CLASSES, **case.settings})
    fixed = {"data", "softmax_label", *case.inputs}
    names = symbol.list_arguments()
    return symbol.simple_bind(mx.cpu(), grad_req={n: "null" if n in fixed else "write" for n in names},
                              type_dict=dict.fromkeys([*names, *symbol.list_auxiliary_states()], np.float64),
                              poison=True, data=case.data, **case.inputs)


def values(executor: Any, case: Case) -> dict[str, np.ndarray]:
    """Inputs and parameters of a network whose activations neither vanish nor grow."""
    rng, drawn = np.random.default_rng(7), {}
    for name, array in executor.arg_dict.items():
        if name in case.integer or name == "softmax_label":
            drawn[name] = rng.integers(0, case.integer.get(name, CLASSES), array.shape).astype(float)
        elif name.endswith("gamma"):
            drawn[name] = rng.uniform(0.5, 1.5, array.shape)
        else:
            fan_in = np.prod(array.shape[1:]) if array.ndim > 1 and name.endswith("weight") else 1
            drawn[name] = rng.normal(0, min(1.0, np.sqrt(2 / fan_in)), array.shape)
    if len(drawn["softmax_label"].shape) == 2 and "softmax_label" in case.integer:
        drawn["softmax_label"][0, -1] = -1     # which is ignored
    if "length" in drawn:
        drawn["length"] += 1
    return drawn


def step_of_twin(case: Case, given: dict[str, np.ndarray], statistics: dict[str, np.ndarray]) -> tuple[Any, ...]:
    """(probabilities, new parameters, new statistics) of the twin."""
    fixed = {"data", "softmax_label", *case.inputs}
    leaves = {n: torch.tensor(a, requires_grad=n not in fixed) for n, a in given.items()}
    twin = twins.Twin(leaves, {n: torch.tensor(a) for n, a in statistics.items()}, case.eps)
    label, total = leaves["softmax_label"].long(), 0.0
    probabilities = []
    for logits, axis, weight in case.twin(twin, leaves["data"]):
        flat = logits.movedim(axis, -1).flatten(0, -2)
        every = logits.dim() > 2        # a label for each place: the loss is the mean over labels that are not -1
        total = total + weight * torch.nn.functional.cross_entropy(flat, label.flatten(), ignore_index=-1,
                                                                   reduction="mean" if every else "sum")
        probabilities.append(logits.softmax(axis).detach().numpy())
    parameters = [n for n in leaves if n not in fixed]
    assert not set(parameters) - twin.used, "parameters that no layer of the twin reads"
    found = torch.autograd.grad(total, [leaves[n] for n in parameters], materialize_grads=True)
    return probabilities, {n: given[n] - RATE * g.numpy() for n, g in zip(parameters, found, strict=True)}, twin.moved


def agree(found: np.ndarray, expected: Any, what: str) -> None:
    """Equal to 1e-9 of the largest element."""
    np.testing.assert_allclose(found, expected, 0, CLOSE * float(np.abs(np.asarray(expected)).max()), err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_of_torch(name: str) -> None:
    case = CASES[name]
    executor = bound(case)
    given = values(executor, case)
    statistics = {n: np.full(a.shape, float("var" in n)) for n, a in executor.aux_dict.items()}
    for n, a in {**given, **statistics}.items():
        {**executor.arg_dict, **executor.aux_dict}[n][:] = a
    probabilities, parameters, moved = step_of_twin(case, given, statistics)
    outputs = executor.forward(is_train=True)
    executor.backward()
    for output, expected in zip(outputs, probabilities, strict=True):
        agree(output.asnumpy(), expected, "output")
    for n, expected in parameters.items():
        agree(given[n] - RATE * executor.grad_dict[n].asnumpy(), expected, n)
    assert set(moved) == set(executor.aux_dict)
    for n, expected in moved.items():
        agree(executor.aux_dict[n].asnumpy(), expected, n)


def test_every_network_has_a_case() -> None:
    """LeNet has its own among the tests of training."""
    assert {case.network for case in CASES.values()} == set(zoo.NETWORKS) - {"lenet"}

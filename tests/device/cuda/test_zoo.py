"""Networks of the zoo train on the GPU as on the CPU, and every operator has a CUDA form or a reason to have none."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
import zoo
from minigraph.device.cuda import import_families
from minigraph.device.cuda.launch import implemented
from minigraph.executor import Executor
from minigraph.ops import get_op, names
from minigraph.ops.op import Op
from minigraph.optimizer import create

from .harness import stands_for_others
from .processes import counters, run

NETWORKS = {
    "mlp": ("mlp", {"num_classes": 3, "hidden": (9, 7)}, (5, 4, 3)),
    "lenet": ("lenet", {"num_classes": 3, "filters": (4, 5), "hidden": 9, "image_shape": (1, 16, 16)}, (4, 1, 16, 16)),
    "resnet v1": ("resnet", {"num_classes": 3, "units": (1, 1), "bottleneck": False, "image_shape": (3, 8, 8)},
                  (6, 3, 8, 8)),
    "resnet v2": ("resnet", {"num_classes": 3, "units": (1, 1), "version": 2, "image_shape": (3, 8, 8)}, (6, 3, 8, 8)),
}
OPTIMIZERS = {"sgd": {"momentum": 0.9, "wd": 1e-3}, "adam": {"epsilon": 1e-3}}
"""Adam divides by sqrt(v) + epsilon: a usual epsilon would turn the sign of a gradient's rounding error into a step."""
STEPS = 2
OPTIONS = ({"poison": True}, {"graph": True})
RTOL, ATOL = 1e-3, 1e-4
SCHEDULES = ("lazy", "random", "threads")


def bound(network, context, **options):
    """An executor with parameters that are always the same."""
    name, settings, shape = NETWORKS[network]
    symbol = zoo.get(name)(**settings)
    shapes = {"data": shape, "softmax_label": shape[:1]}
    requests = {n: "null" if n in shapes else "write" for n in symbol.list_arguments()}
    exe = Executor(symbol, context, shapes, inputs=tuple(shapes), grad_req=requests, **options)
    draw = np.random.RandomState(0)
    for n, array in sorted(exe.arg_dict.items()):
        array[:] = draw.uniform(-0.4, 0.4, array.shape) + n.endswith("gamma")
    for n, state in exe.aux_dict.items():
        state[:] = 1 if n.endswith("var") else 0
    return exe


def batches(network):
    shape, draw = NETWORKS[network][2], np.random.RandomState(1)
    return [{"data": draw.randn(*shape).astype(np.float32),
             "softmax_label": draw.randint(0, 3, shape[0]).astype(np.float32)} for _ in range(STEPS)]


def train(network, optimizer, context, **options):
    """Outputs of whole steps, of an evaluation after them, of forward and backward, and what training left, by name."""
    exe = bound(network, context, **options)
    updater = create(optimizer, learning_rate=0.05, rescale_grad=0.2, **OPTIMIZERS[optimizer])
    exe.set_updater(updater)
    found = {}
    for k, batch in enumerate(batches(network)):
        found[f"step {k}"] = exe.step(updater.control, **batch)[0].asnumpy()
    found |= {name: array.asnumpy() for name, array in exe.arg_dict.items()}
    found |= {f"{name} {k}": s.asnumpy() for name, held in exe.states.items() for k, s in enumerate(held)}
    found["eval"] = exe.forward(is_train=False, **batches(network)[0])[0].asnumpy()
    found["train"] = exe.forward(is_train=True, **batches(network)[0])[0].asnumpy()
    exe.backward()
    found |= {f"grad {name}": g.asnumpy() for name, g in exe.grad_dict.items() if g is not None}
    return found | {name: array.asnumpy() for name, array in exe.aux_dict.items()}


def same(one, other):
    return [name for name in one if one[name].tobytes() != other[name].tobytes()]


def compare(network, options):
    """By optimizer: names that differ from the CPU's, and per repetition names with other bits. Then the races."""
    found, start = {}, {name: array.asnumpy() for name, array in bound(network, mx.cpu()).arg_dict.items()}
    for optimizer in OPTIMIZERS:
        expected, first = train(network, optimizer, mx.cpu()), train(network, optimizer, mx.gpu(0))
        finite = all(np.isfinite(value).all() for value in expected.values())
        moved = all((first[name] != value).any() for name, value in start.items())
        far = [name for name in expected if not np.allclose(first[name], expected[name], RTOL, ATOL)]
        found[optimizer] = {"finite": finite, "moved": moved, "far": far} | {
            str(option): same(first, train(network, optimizer, mx.gpu(0), **option)) for option in ({}, *options)}
    return found, counters()["races"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("network", NETWORKS)
def test_training_agrees_with_the_cpu_and_gives_the_same_bits_again_poisoned_and_as_a_graph(network, schedule):
    found, races = run(compare, network, OPTIONS, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1, SOFTCUDA_ORDER="random")
    for optimizer in OPTIMIZERS:
        assert found[optimizer].pop("finite") and found[optimizer].pop("moved"), "the case itself shows nothing"
        assert found[optimizer] == {"far": [], **{str(option): [] for option in ({}, *OPTIONS)}}
    assert races == 0


# -- coverage of the operators -------------------------------------------------------------------------------

TRANSFERS = frozenset(("_swap_arrive", "_swap_home", "_swap_in", "_swap_out", "_swap_release"))
"""Ops that lowering turns into copies and waits."""
MISSING: dict[str, tuple[str, ...]] = {
    "Python of a script's own runs on the host": ("_custom", "_custom_again", "_custom_backward")}
"""Ops without kernels, by the reason: they are refused on a GPU."""
LISTED = TRANSFERS | {name for group in MISSING.values() for name in group}


def test_every_operator_that_runs_has_a_cuda_form_or_stands_in_a_list_with_the_reason():
    import_families()
    without = {name for name in set(names()) - implemented() if not stands_for_others(name)}
    assert without - LISTED == set(), "give these a CUDA form, or a place in a list"
    assert LISTED - without == set(), "these have a CUDA form: take them off the lists"


@pytest.mark.parametrize("name", sorted(TRANSFERS))
def test_a_transfer_computes_nothing_on_any_device(name):
    assert type(get_op(name)).compute is Op.compute

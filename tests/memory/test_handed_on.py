"""Gradients that are head gradients handed on as they are, with homes on the host or a disk; inputs that stay."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import OutOfMemoryError
from minigraph.executor import Executor
from minigraph.plan.verify import VerificationError

X = mx.sym.Variable("x")
Y = mx.sym.Variable("y")
HANDING_ON = {
    "identity": (mx.sym.identity(X), 1, 0), "variable": (mx.sym.Group([X]), 1, 0), "flatten": (mx.sym.Flatten(X), 1, 0),
    "reshape": (mx.sym.Reshape(X, shape=(3, 2)), 1, 0), "expand_dims": (mx.sym.expand_dims(X, axis=0), 1, 0),
    "dropout of none": (mx.sym.Dropout(X, p=0.0), 1, 0), "elemwise_add": (X + Y, 1, 1), "elemwise_sub": (X - Y, 1, -1),
    "broadcast_add": (mx.sym.broadcast_add(X, Y), 1, 1), "broadcast_sub": (mx.sym.broadcast_sub(X, Y), 1, -1),
    "add_n": (mx.sym.add_n(X, Y, X), 2, 1)}
"""Symbols of x and y, with how many head gradients the gradient of each is."""
HEAD = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def least(symbol: mx.sym.Symbol, share: float, request: str, folder: Path | None) -> Executor:
    """The symbol bound within the least budget, or at a share of the way from there to what plain takes."""
    shapes = {name: (2, 3) for name in symbol.list_arguments()}
    room = {"host_budget": "1GiB"} if folder is None else {"disk": str(folder)}
    plain = symbol.simple_bind(mx.cpu(), grad_req=request, **shapes).program("train").plan.planned_bytes
    budget = 1
    for _ in range(6):
        try:
            executor = symbol.simple_bind(mx.cpu(), grad_req=request, memory="auto", budget=budget, poison=True, **room,
                                          **shapes)
            executor.program("train")
        except OutOfMemoryError as refused:
            budget = max(refused.asked_bytes, int(refused.asked_bytes + share * (plain - refused.asked_bytes)))
        else:
            return executor
    raise AssertionError("no budget that a refusal named was taken")


@pytest.mark.parametrize("space", ["host", "disk"])
@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("form", HANDING_ON)
def test_a_gradient_that_is_a_head_gradient_arrives_at_its_home(form: str, request_: str, share: float, space: str,
                                                                tmp_path: Path) -> None:
    symbol, *factors = HANDING_ON[form]
    executor = least(symbol, share, request_, tmp_path if space == "disk" else None)
    for gradient in executor.grad_dict.values():
        gradient[:] = 2
    for round_number in range(2):
        outputs = executor.forward(is_train=True)
        seen = [gradient.asnumpy() for gradient in executor.grad_dict.values()]
        executor.backward([HEAD.reshape(outputs[0].shape) * (round_number + 1)])
        for before, gradient, factor in zip(seen, executor.grad_dict.values(), factors, strict=False):
            new = factor * HEAD * (round_number + 1)
            assert np.array_equal(gradient.asnumpy(), new + before if request_ == "add" else new)
    executor.check_modes()


def test_a_plan_that_takes_a_head_gradient_home_in_forward_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from minigraph.graph.graph import FORWARD
    from minigraph.passes import apply_schedule

    take_home = apply_schedule._Writer._take_home

    def too_early(self, variable, copy):
        self.phase = FORWARD
        take_home(self, variable, copy)

    monkeypatch.setattr(apply_schedule._Writer, "_take_home", too_early)
    with pytest.raises(VerificationError, match="in forward; it is given when backward begins"):
        least(mx.sym.identity(X), 0.0, "write", None)


def test_an_output_that_is_a_view_of_a_value_keeps_the_value_under_every_policy() -> None:
    h = mx.sym.FullyConnected(X, num_hidden=4, name="fc")
    shown = mx.sym.Reshape(mx.sym.tanh(h), shape=(-1,), name="shown")
    symbol = mx.sym.Group([shown, mx.sym.MakeLoss(mx.sym.sum(mx.sym.tanh(mx.sym.square(h))))])
    found = []
    for memory in ("naive", "sublinear", "openai", "rotor"):
        executor = symbol.simple_bind(mx.cpu(), memory=memory, poison=True, x=(2, 3))
        executor.arg_dict["x"][:], executor.arg_dict["fc_weight"][:] = HEAD / 6, 0.5
        executor.forward(is_train=True)
        executor.backward([np.ones(8), None])
        found.append([array.asnumpy().tobytes() for array in (*executor.outputs, *executor.grad_arrays)])
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("share", [1.0, 0.85, 0.7])
def test_random_operators_train_within_a_budget_that_leaves_nowhere_to_copy_to(share: float) -> None:
    h = mx.sym.LeakyReLU(mx.sym.Variable("x"), act_type="rrelu", name="rrelu")
    h = mx.sym.Convolution(h, kernel=(3, 3), pad=(1, 1), num_filter=4, name="conv")
    h = mx.sym.Dropout(h, p=0.5, name="drop") * h
    symbol = mx.sym.FullyConnected(h, num_hidden=3, name="fc")

    def run(**options: object) -> tuple[list[bytes], Executor]:
        executor = symbol.simple_bind(mx.cpu(), x=(2, 4, 6, 6), poison=True, **options)
        mx.random.seed(1)
        for name, array in executor.arg_dict.items():
            array[:] = np.random.default_rng(len(name)).uniform(-1, 1, array.shape)
        executor.forward(is_train=True)
        executor.backward([np.ones((2, 3))])
        return [array.asnumpy().tobytes() for array in (*executor.outputs, *executor.grad_arrays)], executor

    plain, executor = run()
    try:
        assert run(memory="auto", budget=int(share * executor.plan.planned_bytes))[0] == plain
    except OutOfMemoryError as refused:
        assert run(memory="auto", budget=refused.asked_bytes)[0] == plain

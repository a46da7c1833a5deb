"""What goes wrong inside a member of a user's operator is told with node, operator and member, and its cause."""
from __future__ import annotations

import dataclasses
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import Algorithm, MXNetError

from .test_custom import forget  # noqa: F401 - operators are gone after each test


def fail(*_: Any) -> Any:
    return 1 / 0


def registered(**members: Any) -> None:
    """An operator `faulty` that passes data on, but for some members."""
    def compute(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
        outs[0][...] = ins[0]

    def gradient(self: Any, b: Any, p: Any, ins: Any, outs: Any, grads: Any, wanted: Any) -> Any:
        return [grads[0]]

    mx.register(type("Faulty", (mx.Op,), {"name": "faulty", "compute": compute, "gradient": gradient, **members}))


def trained(**options: Any) -> Any:
    symbol = mx.sym.faulty(mx.sym.Variable("x") * 2, name="inner") + 1
    executor = symbol.simple_bind(mx.cpu(), x=(4, 8), **options)
    executor.forward(is_train=True)
    executor.backward(np.ones((4, 8)))
    return executor


MEMBERS = sorted(name for name, value in vars(mx.Op).items()
                 if isinstance(value, FunctionType) and not name.startswith("_"))
ASKED = {"fold": {"fold": True}, "sliced": {"slices": 2}}
"""Options under which a member is asked at all."""
NOT_ASKED = {"samples", "stages", "view_offset", "slice_params", "replay", "encoded", "fold", "weight_rows", "is_loss",
             "averages", "completed", "absorb", "encoding", "count_param", "id_ranges"}
"""Members that the network above does not need, or of which a network is no test."""


@pytest.mark.parametrize("member", [name for name in MEMBERS if name not in NOT_ASKED])
def test_what_a_member_raises_is_told_with_node_operator_and_member(member: str) -> None:
    registered(**{member: fail})
    with pytest.raises(MXNetError, match=rf"faulty.*{member} raised ZeroDivisionError: division by zero") as caught:
        trained(**ASKED.get(member, {}))
    assert "inner" in str(caught.value) or member == "inputs"  # which are asked for before there is a node
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(("member", "found", "told"), [
    ("infer_shape", None, "infer_shape returned None; it must return a list for its 1 inputs and one for its 1 out"),
    ("infer_shape", ([(4, 8)], [5]), "of shapes, which are None or tuples of int and None"),
    ("infer_shape", ([(4, 8)], [(2.5,)]), "of shapes"),
    ("infer_dtype", (["float32"], ["float32"]), "of numpy.dtype or None"),
    ("inputs", "data", "inputs returned 'data'; it must return names"),
    ("outputs", ("a", "a"), "names, each once"),
    ("aux", ("other",), r"names of its inputs \('data',\)"),
    ("visible_outputs", 2, "a number from 1 to its 1 outputs"),
    ("variable_attrs", [], "a dictionary of attributes"),
    ("attributes", None, "a mapping of attributes"),
    ("expand", [], "1 entries, as node"),
    ("gradient", None, "1 entries, as node.*, or None"),
    ("gradient", [1.5], "1 entries"),
    ("algorithms", (), "one Algorithm or more"),
    ("algorithms", (Algorithm(workspace_bytes=-1),), "one Algorithm or more, with whole numbers of bytes"),
    ("algorithms", (Algorithm(workspace_bytes=1.5),), "one Algorithm or more"),  # type: ignore[arg-type]
    ("cost", None, "a Cost of finite numbers"),
    ("inplace", ((0, 1),), "pairs of the number of an input, below 1, and of an output, below 1"),
    ("inplace", (0, 0), "pairs"),
    ("mutates", ((3, 0),), "pairs"),
    ("unread", (1,), "numbers of inputs, below 1"),
    ("view", None, "True or False"),
    ("sliced", True, "None, or a Sliced of all inputs and outputs"),
])
def test_a_wrong_return_is_told_with_what_it_must_be(member: str, found: Any, told: str) -> None:
    registered(**{member: lambda *_: found})
    with pytest.raises(MXNetError, match=told) as caught:
        trained(**ASKED.get(member, {}))
    assert ("inner" in str(caught.value) or member == "inputs") and "faulty" in str(caught.value)


def writing(value: Any) -> Any:
    def compute(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
        outs[0][...] = value
    return compute


def rebinding(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
    outs[0] = ins[0]


def another_dtype(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
    np.add(ins[0], 1j, out=outs[0])


@pytest.mark.parametrize(("compute", "told"), [
    (writing(np.zeros((4, 9))), "compute raised ValueError: could not broadcast"),
    (writing("text"), "compute raised ValueError"), (another_dtype, "compute raised .*Cannot cast"),
    (rebinding, r"compute put another array into outs; .* outs\[0\]\[...\] = value")])
def test_a_compute_that_writes_another_shape_or_dtype_is_told(compute: Any, told: str) -> None:
    registered(compute=compute)
    with pytest.raises(MXNetError, match=f"operator faulty, node inner: {told}"):
        trained()


@pytest.mark.parametrize("look", ["check_modes", "find_nonfinite"])
def test_looking_inside_a_run_tells_the_same(look: str) -> None:
    calls: list[int] = []

    def compute(self: Any, p: Any, ins: Any, outs: Any, work: Any) -> None:
        calls.append(1)
        outs[0][...] = ins[0] if len(calls) < 2 else fail()

    registered(compute=compute)
    executor = trained()
    with pytest.raises(MXNetError, match="operator faulty, node inner: compute raised ZeroDivisionError") as caught:
        getattr(executor, look)()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_member_of_a_backward_operator_is_told_too() -> None:
    @mx.register
    class Backward(mx.Op):
        name = "_faulty_backward"

        def compute(self, p: Any, ins: Any, outs: Any, work: Any) -> None:
            fail()

    registered(gradient=lambda self, b, p, ins, outs, grads, wanted: list(b.node("_faulty_backward", [grads[0]])))
    with pytest.raises(MXNetError, match="operator _faulty_backward, node .*inner.*: compute raised ZeroDivision"):
        trained()


def test_what_a_member_says_itself_stays_as_it_is() -> None:
    def refuse(self: Any, p: Any, ins: Any, outs: Any) -> Any:
        raise MXNetError("I take no such thing")

    registered(infer_shape=refuse)
    with pytest.raises(MXNetError, match="^I take no such thing"):
        trained()


def test_declarations_that_are_none_are_refused_when_registered() -> None:
    for member, value in (("recompute", "sometimes"), ("moves", 1), ("looks_up", [0]), ("transfer", "out"),
                          ("aliases", "Faulty")):
        with pytest.raises(MXNetError, match=f"{member} is"):
            registered(**{member: value})


def test_of_several_nodes_all_are_told_that_it_may_be() -> None:
    registered(cost=fail)
    x = mx.sym.Variable("x")
    symbol = mx.sym.Group([mx.sym.faulty(x, name=f"f{k}") for k in range(5)])
    with pytest.raises(MXNetError, match="node f0 or f1 or f2 or 2 others: cost raised"):
        symbol.simple_bind(mx.cpu(), x=(2,)).forward()


def test_parameters_tell_which_node_it_is() -> None:
    params = dataclasses.make_dataclass("P", [("k", int, mx.param(0, "int", "a number"))], frozen=True)
    registered(Params=params, cost=lambda self, p, ins, outs: mx.Op.cost(self, p, ins, outs) if p.k else fail())
    x = mx.sym.Variable("x")
    symbol = mx.sym.Group([mx.sym.faulty(x, k=1, name="right"), mx.sym.faulty(x, k=0, name="wrong")])
    with pytest.raises(MXNetError, match="node wrong: cost raised"):
        symbol.simple_bind(mx.cpu(), x=(2,)).forward()

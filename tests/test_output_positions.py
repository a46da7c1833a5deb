"""Outputs are told apart by their position, and so are head gradients: two of one name are two, and so is one that
is there twice."""
from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.executor import Executor
from minigraph.plan import serialize
from minigraph.symbol.symbol import Symbol

SWAPPING = {"host_budget": "1GiB"}
MODES: dict[str, dict[str, Any]] = {
    "naive": {}, "inplace": {}, "plain": {}, "sublinear": {}, "auto": {}, "openai": {}, "rotor": {},
    "vdnn": SWAPPING, "vdnn_all": SWAPPING, "vdnn_conv": SWAPPING, "superneurons": SWAPPING, "capuchin": SWAPPING,
    "lms": SWAPPING}
X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
W = np.linspace(0.5, -0.7, 48, dtype=np.float32).reshape(6, 8)
Arrays = list[np.ndarray]


def repeated() -> Symbol:
    """Two values called t_output, the first of them twice, a variable twice, and a value between two others."""
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    first = mx.sym.tanh(x * w, name="t")
    return mx.sym.Group([first, x, mx.sym.sigmoid(first + x, name="t"), first, x])


def heads(count: int = 5) -> Arrays:
    draw = np.random.default_rng(4)
    return [draw.uniform(-1, 1, X.shape).astype(np.float32) for _ in range(count)]


def right(given: Arrays) -> tuple[Arrays, dict[str, np.ndarray]]:
    """The outputs of `repeated` and its gradients, in float64."""
    x, w, (a, b, c, d, e) = X.astype(float), W.astype(float), given
    first = np.tanh(x * w)
    second = 1 / (1 + np.exp(-first - x))
    inner = c * second * (1 - second)
    product = (a + d + inner) * (1 - first ** 2)
    return [first, x, second, first, x], {"x": product * w + b + e + inner, "w": product * x}


def check(executor: Executor, scale: float = 1.0) -> None:
    """Forward and backward twice, and an evaluation: all is right, and evaluation has the outputs of training."""
    wanted, gradients = right(heads())
    for _ in range(2):
        for found, value in zip(executor.forward(is_train=True, x=X, w=W), wanted, strict=True):
            np.testing.assert_allclose(found.asnumpy(), value, 1e-5, 1e-6)
        executor.backward([mx.nd.array(head, executor.context) for head in heads()])
        for name, value in gradients.items():
            found = executor.grad_dict[name]
            assert found is not None
            np.testing.assert_allclose(found.asnumpy(), scale * value, 1e-4, 1e-5)
    for found, value in zip(executor.forward(is_train=False), wanted, strict=True):
        np.testing.assert_allclose(found.asnumpy(), value, 1e-5, 1e-6)


@pytest.mark.parametrize("memory", MODES)
def test_outputs_of_one_name_and_one_value_twice_are_right_in_every_memory_mode(memory: str) -> None:
    executor = repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape, memory=memory, poison=True, **MODES[memory])
    check(executor)
    executor.forward(is_train=True)
    executor.backward(heads())
    executor.check_modes("naive")


@pytest.mark.parametrize("host_budget", [None, "1GiB"])
@pytest.mark.parametrize("memory", ["auto", "sublinear", "lms"])
def test_outputs_of_one_name_are_right_under_the_least_budget(memory: str, host_budget: str | None) -> None:
    def bound(budget: int) -> Executor:
        return repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape, memory=memory, budget=budget,
                                      host_budget=host_budget)

    budget = 64
    while True:
        try:
            check(bound(budget))
            break
        except OutOfMemoryError as refused:
            assert refused.asked_bytes > budget
            budget = refused.asked_bytes
    assert budget > 8 * X.nbytes


def test_fused_alone_and_in_slices_the_outputs_are_the_same_ones() -> None:
    for options in ({"fuse": False}, {"slices": 3}, {"encode": False}, {"fold": True}):
        check(repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape, **options))


def test_gradients_of_the_sum_of_equal_heads_are_the_sums_of_their_gradients() -> None:
    t = mx.sym.tanh(mx.sym.Variable("x"), name="t")
    executor = mx.sym.Group([t, t]).simple_bind(mx.cpu(), x=(1,))
    executor.forward(is_train=True, x=np.ones(1))
    executor.backward([mx.nd.array([1]), mx.nd.array([3])])
    assert executor.grad_dict["x"].asnumpy() == pytest.approx(4 * (1 - np.tanh(1) ** 2), 1e-6)


def test_gradients_are_added_to_what_is_there_for_equal_heads_too() -> None:
    executor = repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape, grad_req="add")
    executor.forward(is_train=True, x=X, w=W)
    executor.backward(heads())
    executor.forward(is_train=True)
    executor.backward(heads())
    for name, value in right(heads())[1].items():
        np.testing.assert_allclose(executor.grad_dict[name].asnumpy(), 2 * value, 1e-4, 1e-5)


def test_states_and_arguments_are_outputs_in_the_values_they_have_then() -> None:
    x, mean = mx.sym.Variable("x"), mx.sym.Variable("mean")
    norm = mx.sym.BatchNorm(x, moving_mean=mean, momentum=0.5, name="n")
    executor = mx.sym.Group([mean, norm, mx.sym.Variable("w"), mean]).simple_bind(mx.cpu(), x=(4, 2), w=(3,))
    executor.aux_dict["mean"][:] = 8
    executor.arg_dict["w"][:] = [1, 2, 3]
    executor.arg_dict["x"][:] = 2
    before, _, weight, again = (array.asnumpy() for array in executor.forward(is_train=False))
    assert before.tolist() == again.tolist() == [8, 8] and weight.tolist() == [1, 2, 3]
    assert executor.aux_dict["mean"].asnumpy().tolist() == [8, 8]


@pytest.mark.parametrize("call", ["output_dict", "out_grads"])
def test_names_that_several_outputs_have_are_refused_where_one_must_be_meant(call: str) -> None:
    executor = repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape)
    executor.forward(is_train=True, x=X, w=W)
    if call == "output_dict":
        with pytest.raises(ValueError, match=r"Duplicate names detected, \['t_output', 'x'.*called t_output.*number"):
            _ = executor.output_dict
    else:
        with pytest.raises(MXNetError, match="names 't_output', and several outputs are called so: give a list"):
            executor.backward({"t_output": heads()[0]})


def test_a_missing_head_gradient_is_named_by_its_number_where_the_name_is_not_enough() -> None:
    executor = repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape)
    executor.forward(is_train=True, x=X, w=W)
    with pytest.raises(MXNetError, match=r"output t_output \(output 2\) is no loss"):
        executor.backward([heads()[0], heads()[1], None, *heads(2)])


@pytest.mark.parametrize("name", ["__head_grad_0__", "__control__"])
def test_a_variable_with_the_name_of_an_input_of_programs_is_refused(name: str) -> None:
    with pytest.raises(MXNetError, match=f"{name} is an argument, and also the name of an input that programs"):
        mx.sym.tanh(mx.sym.Variable(name)).simple_bind(mx.cpu(), **{name: (2,)})


def test_all_internal_values_are_outputs_though_nodes_have_one_name() -> None:
    x = mx.sym.Variable("x")
    internals = mx.sym.tanh(mx.sym.sigmoid(mx.sym.tanh(x, name="t"), name="t"), name="t").get_internals()
    assert internals.list_outputs() == ["x", "t_output", "t_output", "t_output"]
    with pytest.raises(ValueError, match="multiple outputs with name \"t_output\""):
        _ = internals["t_output"]
    executor = internals.simple_bind(mx.cpu(), x=X.shape)
    wanted = [X, np.tanh(X), 1 / (1 + np.exp(-np.tanh(X)))]
    for found, value in zip(executor.forward(x=X), [*wanted, np.tanh(wanted[-1])], strict=True):
        np.testing.assert_allclose(found.asnumpy(), value, 1e-5)


@pytest.mark.parametrize("monitor_all", [False, True])
def test_a_monitor_sees_each_of_the_values_of_one_name_in_order(monitor_all: bool) -> None:
    executor = repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape)
    seen: list[tuple[str, np.ndarray]] = []
    executor.set_monitor_callback(lambda name, value: seen.append((name, value.asnumpy())), monitor_all)
    found = [array.asnumpy() for array in executor.forward(is_train=True, x=X, w=W)]
    first, second = (value for name, value in seen if name == "t_output")
    assert (first == found[0]).all() and (second == found[2]).all()
    check(executor)


# -- plans ---------------------------------------------------------------------------------------------------------
def test_a_plan_is_saved_loaded_compared_and_used_with_its_outputs_in_order() -> None:
    def bound() -> Executor:
        return repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape)

    made = bound().program("train").plan
    assert [name for name, _ in made.outputs] == ["t_output", "x", "t_output", "t_output", "x"]
    assert len({made.buffers.offset[out.buffer] for out in made.outputs}) == 5
    loaded = serialize.loads(serialize.dumps(made))
    assert loaded == made and serialize.diff(made, loaded) == "the plans are the same\n"
    executor = bound()
    executor.use_plan("train", loaded)
    check(executor)


def test_a_plan_whose_outputs_are_others_is_refused() -> None:
    executor = repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape)
    made = executor.program("train").plan
    with pytest.raises(MXNetError, match="has the outputs .* and here they are"):
        executor.use_plan("train", replace(made, outputs=made.outputs[:-1]))


def test_a_plan_file_with_outputs_of_another_form_is_damaged() -> None:
    text = serialize.dumps(repeated().simple_bind(mx.cpu(), x=X.shape, w=X.shape).program("eval").plan)
    for wrong in ({"t_output": 3}, [["t_output"]], [[3, "t_output"]]):
        document = json.loads(text)
        document["plan"]["outputs"] = wrong
        body = json.dumps(document["plan"], separators=(",", ":"), ensure_ascii=False)
        document["checksum"] = zlib.crc32(body.encode())
        with pytest.raises(MXNetError, match="outputs"):
            serialize.loads(json.dumps(document))


# -- modules -------------------------------------------------------------------------------------------------------
def module(context: Any, **options: Any) -> mx.mod.Module:
    """Softmax over a dense layer (8, 3), and sums (8,), both called softmax."""
    data = mx.sym.Variable("data")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), name="softmax")
    loss = mx.sym.BlockGrad(mx.sym.sum(data, axis=1), name="softmax")
    made = mx.mod.Module(mx.sym.Group([net, loss]), context=context, **options)
    made.bind([("data", (4, 5))], [("softmax_label", (4,))])
    made.init_params(mx.init.One())
    return made


def test_predictions_of_heads_of_one_name_have_their_own_shapes_and_values() -> None:
    data = np.arange(40, dtype=np.float32).reshape(8, 5)
    made = module(mx.cpu())
    assert made.output_shapes == [("softmax_output", (4, 3)), ("softmax_output", (4,))]
    first, second = made.predict(mx.io.NDArrayIter(data, np.zeros(8), 4))
    np.testing.assert_allclose(first.asnumpy(), np.full((8, 3), 1 / 3), 1e-6)
    np.testing.assert_allclose(second.asnumpy(), data.sum(1), 1e-6)
    assert [array.shape for array in made.get_outputs()] == [(4, 3), (4,)]

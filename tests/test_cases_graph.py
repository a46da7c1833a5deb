"""What a graph means must not depend on where its values lie: requests, sharing, lifetimes, in every memory mode."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import ALIGNMENT, MXNetError
from minigraph.passes.compilation import MEMORY_MODES

Symbol = mx.sym.Symbol
every_mode = pytest.mark.parametrize("memory", MEMORY_MODES)


def bound(symbol: Symbol, memory: str, requests: Any = "write", dtype: Any = np.float32,
          **values: Any) -> Any:
    """An executor over poisoned memory with arguments of these values."""
    arrays = {name: np.asarray(value, dtype) for name, value in values.items()}
    executor = symbol.simple_bind(mx.cpu(), grad_req=requests, memory=memory, poison=True,
                                  type_dict=dict.fromkeys(arrays, dtype),
                                  **{name: array.shape for name, array in arrays.items()})
    for name, handle in executor.arg_dict.items():
        if name in arrays:
            handle[:] = arrays[name]
    return executor


def gradients(executor: Any, *heads: Any) -> dict[str, np.ndarray]:
    """Gradients of a training step by argument; ones for heads that are not given."""
    outputs = executor.forward(is_train=True)
    executor.backward([np.asarray(h) for h in heads] or [np.ones(o.shape) for o in outputs])
    return {name: g.asnumpy() for name, g in executor.grad_dict.items() if g is not None}


# -- gradient requests ---------------------------------------------------------------------------------------
SUMS = {1: 6, 2: 16.75, 3: 34.6875, 4: 63.4375, 5: 108.328125, 6: 177.12890625}
"""Sums of the weight's gradient by how often it is used."""


def repeated(uses: int) -> Symbol:
    weight, y = mx.sym.Variable("w"), mx.sym.Variable("x")
    for _ in range(uses):
        y = mx.sym.FullyConnected(y, weight=weight, num_hidden=2, no_bias=True)
    return y


@every_mode
@pytest.mark.parametrize("uses", [1, 2, 3, 4, 5, 6, 8, 9])
def test_a_weight_used_many_times_is_added_to_once(memory: str, uses: int) -> None:
    w, x = np.array([[1, .5], [.25, 1]]), np.array([[1.0, 2.0]])
    values = [x]
    for _ in range(uses):
        values.append(values[-1] @ w.T)
    expected, head = np.zeros((2, 2)), np.ones((1, 2))
    for value in values[-2::-1]:
        expected, head = expected + head.T @ value, head @ w
    found = gradients(bound(repeated(uses), memory, w=w, x=x))["w"]
    np.testing.assert_array_equal(found, expected)
    if uses in SUMS:
        assert found.sum() == SUMS[uses]
    executor = bound(repeated(uses), memory, {"w": "add", "x": "null"}, w=w, x=x)
    executor.grad_dict["w"][:] = 1
    np.testing.assert_array_equal(gradients(executor)["w"], expected + 1)
    np.testing.assert_array_equal(gradients(executor)["w"], 2 * expected + 1)


@every_mode
def test_five_uses_have_the_value_and_gradient_worked_out_by_hand(memory: str) -> None:
    executor = bound(repeated(5), memory, w=[[1, .5], [.25, 1]], x=[[1, 2]])
    found = gradients(executor)["w"]
    assert executor.outputs[0].asnumpy().tolist() == [[8.59375, 6.22265625]]
    assert found.tolist() == [[24.171875, 24.171875], [29.546875, 30.4375]]


@every_mode
@pytest.mark.parametrize("terms", [2, 3, 7, 8, 9, 64])
def test_an_inner_value_added_to_itself_has_its_multiple_as_gradient(memory: str, terms: int) -> None:
    x = mx.sym.Variable("x")
    inner, total = mx.sym.relu(x), mx.sym.relu(x)
    for _ in range(terms - 1):
        total = total + inner
    both = mx.sym.Group([total, mx.sym.add_n(*[inner] * terms)])
    executor = bound(both, memory, "add", x=[3.0])
    executor.grad_dict["x"][:] = 1
    assert gradients(executor)["x"].tolist() == [2 * terms + 1]
    assert [o.asscalar() for o in executor.outputs] == [3 * terms] * 2


@every_mode
def test_every_pair_of_requests_of_a_sum_is_honoured(memory: str) -> None:
    symbol = mx.sym.Variable("a") + mx.sym.Variable("b")
    expected = {"null": [5, 5], "write": [2021, -3], "add": [2026, 2]}
    for first in expected:
        for second in expected:
            executor = bound(symbol, memory, {"a": first, "b": second}, a=[1, 2], b=[10, 20])
            buffers = {n: g for n, g in executor.grad_dict.items() if g is not None}
            for buffer in buffers.values():
                buffer[:] = 5
            found = gradients(executor, [2021, -3])
            assert executor.outputs[0].asnumpy().tolist() == [11, 22]
            assert {n: g.tolist() for n, g in found.items()} == {
                n: expected[r] for n, r in (("a", first), ("b", second)) if r != "null"}
            assert [n for n, r in (("a", first), ("b", second)) if r == "null"] == [
                n for n, g in executor.grad_dict.items() if g is None]


@every_mode
def test_showing_a_blocked_layer_changes_no_bit_of_a_gradient(memory: str) -> None:
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc")
    loss = mx.sym.SoftmaxOutput(mx.sym.relu(hidden), mx.sym.Variable("label"), name="softmax")
    results = []
    for symbol in (loss, mx.sym.Group([loss, mx.sym.BlockGrad(hidden)])):
        executor = bound(symbol, memory, data=np.ones((1, 4)), label=[1], fc_weight=np.ones((6, 4)),
                         fc_bias=[1, 4, 4, 4, 5, 6])
        executor.forward(is_train=True)
        executor.backward()
        results.append([executor.grad_dict[n].asnumpy() for n in ("fc_weight", "fc_bias")])
    for one, other in zip(*results, strict=True):
        assert one.any() and one.tobytes() == other.tobytes()


@every_mode
def test_a_sum_takes_its_head_gradient_and_asks_for_it_by_name(memory: str) -> None:
    symbol = mx.sym.elemwise_add(2 * mx.sym.Variable("a"), mx.sym.Variable("b"), name="c")
    executor = bound(symbol, memory, a=[1, 2], b=[3, 4])
    executor.forward(is_train=True)
    with pytest.raises(MXNetError, match="output c_output is no loss"):
        executor.backward()
    assert {n: g.tolist() for n, g in gradients(executor, [4, 7]).items()} == {"a": [8, 14], "b": [4, 7]}


@every_mode
@pytest.mark.parametrize("request_", ["write", "add"])
def test_a_weight_tied_to_an_embedding_gets_both_contributions(memory: str, request_: str) -> None:
    weight = mx.sym.Variable("w")
    rows = mx.sym.Embedding(mx.sym.Variable("ids"), weight=weight, input_dim=7, output_dim=3)
    scores = mx.sym.FullyConnected(rows, weight=weight, num_hidden=7, no_bias=True, flatten=False)
    w, head = np.linspace(-1, 1, 21).reshape(7, 3), np.linspace(0, 1, 21).reshape(3, 7)
    ids = np.array([0, 3, 3])
    executor = bound(scores, memory, {"w": request_, "ids": "null"}, np.float64, w=w, ids=ids)
    executor.grad_dict["w"][:] = 0.5
    expected = head.T @ w[ids] + 0.5 * (request_ == "add")
    np.add.at(expected, ids, head @ w)
    np.testing.assert_allclose(gradients(executor, head)["w"], expected, 1e-12, 1e-12)


# -- in-place sharing ----------------------------------------------------------------------------------------
SECOND_READERS: dict[str, Callable[[Symbol], Symbol]] = {
    "relu first": lambda u: mx.sym.relu(u) + 2 * u, "product first": lambda u: 2 * u + mx.sym.relu(u),
    "through a view": lambda u: mx.sym.relu(u) + mx.sym.Reshape(mx.sym.Reshape(u, shape=(3, 1)) * 2, shape=(3,)),
    "of a view": lambda u: mx.sym.Reshape(mx.sym.relu(mx.sym.Reshape(u, shape=(1, 3))), shape=(3,)) + 2 * u}


@every_mode
@pytest.mark.parametrize("reader", SECOND_READERS)
def test_an_input_with_a_later_reader_is_not_written_over(memory: str, reader: str) -> None:
    u = mx.sym.Variable("x") * 1
    executor = bound(SECOND_READERS[reader](u), memory, x=[-1, .5, 2])
    assert gradients(executor)["x"].tolist() == [2, 3, 3]
    assert executor.outputs[0].asnumpy().tolist() == [-2, 1.5, 6]
    assert executor.forward()[0].asnumpy().tolist() == [-2, 1.5, 6]


@every_mode
@pytest.mark.parametrize("relu_first", [True, False])
def test_an_input_that_only_backward_reads_again_is_not_written_over(memory: str, relu_first: bool) -> None:
    u = mx.sym.Variable("x") * 1
    terms = (mx.sym.relu(u), mx.sym.square(u))
    executor = bound(terms[0] + terms[1] if relu_first else terms[1] + terms[0], memory, x=[-1, .5, 2])
    assert gradients(executor)["x"].tolist() == [-2, 2, 5]
    assert executor.outputs[0].asnumpy().tolist() == [1, .75, 6]


@every_mode
def test_outputs_declared_as_copies_stay_apart(memory: str) -> None:
    x = mx.sym.Variable("x")
    copies = [mx.sym.identity(x), mx.sym.identity(mx.sym.identity(x)), x, mx.sym.Reshape(x, shape=(2, 2)),
              mx.sym.Flatten(x), mx.sym.Dropout(x, p=.5), mx.sym.Cast(x, dtype="float32")]
    executor = bound(mx.sym.Group(copies), memory, "null", x=[1, 2, 3, 4])
    executor.forward()
    for written in range(len(copies)):
        executor.outputs[written][:] = 7
        others = [o for k, o in enumerate(executor.outputs) if k != written]
        assert all(o.asnumpy().ravel().tolist() == [1, 2, 3, 4] for o in others)
        if written != 2:
            assert executor.arg_dict["x"].asnumpy().tolist() == [1, 2, 3, 4]
        executor.arg_dict["x"][:] = [1, 2, 3, 4]
        assert all(o.asnumpy().ravel().tolist() == [1, 2, 3, 4] for o in executor.forward())


@every_mode
def test_the_gradient_of_a_tripled_tanh_is_that_worked_out_by_hand(memory: str) -> None:
    executor = bound(3 * mx.sym.tanh(mx.sym.Variable("x")), memory, x=[.5, -1, 2])
    np.testing.assert_allclose(gradients(executor)["x"], [2.359343, 1.259923, 0.211952], 0, 1e-6)


SAVED: dict[str, Callable[[Symbol], Symbol]] = {
    **{kind: lambda u, kind=kind: mx.sym.Activation(u, act_type=kind)
       for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign")},
    **{kind: lambda u, kind=kind: mx.sym.LeakyReLU(u, act_type=kind)
       for kind in ("leaky", "elu", "selu", "gelu", "prelu")},
    "steep leaky": lambda u: mx.sym.LeakyReLU(u, slope=-0.5), "softmax": mx.sym.softmax,
    "log_softmax": mx.sym.log_softmax, "SoftmaxActivation": mx.sym.SoftmaxActivation, "exp": mx.sym.exp,
    "sqrt": lambda u: mx.sym.sqrt(u * u + 1), "log": lambda u: mx.sym.log(u * u + 1), "square": mx.sym.square,
    "reciprocal": lambda u: mx.sym.reciprocal(u * u + 1), "mul": lambda u: u * mx.sym.Variable("other"),
    "div": lambda u: u / (1 + mx.sym.square(mx.sym.Variable("other"))), "power": lambda u: (u * u + 1) ** 1.5,
    "maximum": lambda u: mx.sym.maximum(u, 0.1), "max": lambda u: mx.sym.max(u, axis=2),
    "FullyConnected": lambda u: mx.sym.FullyConnected(u, num_hidden=4),
    "Convolution": lambda u: mx.sym.Convolution(u, kernel=(3, 3), pad=(1, 1), num_filter=2),
    "BatchNorm": lambda u: mx.sym.BatchNorm(u, fix_gamma=False), "LayerNorm": mx.sym.LayerNorm,
    "max pooling": lambda u: mx.sym.Pooling(u, kernel=(2, 2), pool_type="max"),
    "average pooling": lambda u: mx.sym.Pooling(u, kernel=(2, 2), pool_type="avg")}


def directional(executor: Any, head: np.ndarray, steps: dict[str, np.ndarray]) -> float:
    """Derivative of sum(output * head) along a direction, by central differences of a training forward."""
    values = []
    for sign in (1e-6, -1e-6):
        for name, step in steps.items():
            executor.arg_dict[name][:] = executor.arg_dict[name].asnumpy() + sign * step
        values.append(float((executor.forward(is_train=True)[0].asnumpy() * head).sum()))
        for name, step in steps.items():
            executor.arg_dict[name][:] = executor.arg_dict[name].asnumpy() - sign * step
    return (values[0] - values[1]) / 2e-6


@every_mode
@pytest.mark.parametrize("kind", SAVED)
def test_what_backward_needs_is_not_written_over(memory: str, kind: str) -> None:
    """3 f(u) of an inner value u: neither f's input nor its output may be lost."""
    symbol = 3 * SAVED[kind](mx.sym.Variable("x") * 1)
    shape, rng = (2, 2, 4, 5), np.random.default_rng(4)
    executor = symbol.simple_bind(mx.cpu(), memory=memory, poison=True, x=shape, type_dict={
        name: np.float64 for name in symbol.list_arguments()}, **(
            {"other": shape} if "other" in symbol.list_arguments() else {}))
    for array in executor.arg_arrays:
        array[:] = rng.uniform(-1, 1, array.shape)
    head = rng.uniform(-1, 1, executor.forward(is_train=True)[0].shape)
    executor.backward(head)
    found = {n: g.asnumpy() for n, g in executor.grad_dict.items()}
    steps = {n: rng.uniform(-1, 1, g.shape) for n, g in found.items()}
    analytic = sum(float((found[n] * steps[n]).sum()) for n in steps)
    assert analytic == pytest.approx(directional(executor, head, steps), rel=1e-6, abs=1e-7)


# -- lifetimes -----------------------------------------------------------------------------------------------
def classifier() -> Symbol:
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    net = mx.sym.relu(mx.sym.BatchNorm(net, fix_gamma=False, name="bn"))
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc"), name="softmax")


def restored(executor: Any) -> Any:
    rng = np.random.default_rng(2)
    for name, array in sorted(executor.arg_dict.items()):
        array[:] = rng.integers(0, 3, array.shape) if "label" in name else rng.uniform(-1, 1, array.shape)
    for name, array in executor.aux_dict.items():
        array[:] = float("var" in name)
    return executor


def step(executor: Any, seed: int) -> list[bytes]:
    """Outputs and gradients of one step as bytes; outputs may not change in backward."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=executor.arg_dict["data"].shape)
    before = executor.forward(is_train=True, data=data)[0].asnumpy()
    executor.backward()
    after = [executor.outputs[0], *executor.grad_arrays]
    assert np.isfinite(before).all() and before.tobytes() == after[0].asnumpy().tobytes()
    return [a.asnumpy().tobytes() for a in after]


@every_mode
@pytest.mark.parametrize("batch", [2, 5])
def test_evaluation_in_between_changes_no_training_step(memory: str, batch: int) -> None:
    executor = restored(classifier().simple_bind(mx.cpu(), memory=memory, poison=True, data=(2, 3, 8, 8)))
    first = step(executor, 0)
    other = executor if batch == 2 else executor.reshape(allow_up_sizing=True, data=(batch, 3, 8, 8),
                                                         softmax_label=(batch,))
    for _ in range(2):
        assert np.isfinite(other.forward(data=np.ones((batch, 3, 8, 8)))[0].asnumpy()).all()
    assert step(restored(executor), 0) == first


@every_mode
def test_later_rounds_equal_those_of_a_fresh_executor(memory: str) -> None:
    def fresh() -> Any:
        return restored(classifier().simple_bind(mx.cpu(), memory=memory, poison=True, data=(2, 3, 8, 8)))
    executor = fresh()
    for seed in range(3):
        assert step(executor, seed) == step(fresh(), seed)


PARTLY_READ: dict[str, tuple[Callable[[Symbol], Symbol], tuple[int, ...], list[float]]] = {
    "slice_axis": (lambda x: mx.sym.slice_axis(x, axis=0, begin=1, end=3), (5,), [0, 1, 1, 0, 0]),
    "slice": (lambda x: mx.sym.slice(x, begin=(0, 1), end=(2, 3)), (3, 3), [0, 1, 1, 0, 1, 1, 0, 0, 0]),
    "slice with steps": (lambda x: mx.sym.slice(x, begin=(None,), end=(None,), step=(2,)), (5,), [1, 0, 1, 0, 1]),
    "max pooling": (lambda x: mx.sym.Pooling(mx.sym.Reshape(x, shape=(1, 1, 4)), kernel=(2,), stride=(2,),
                                             pool_type="max"), (4,), [0, 1, 0, 1]),
    "pooling past the end": (lambda x: mx.sym.Pooling(mx.sym.Reshape(x, shape=(1, 1, 5)), kernel=(2,), stride=(3,),
                                                      pool_type="sum"), (5,), [1, 1, 0, 1, 1]),
    "strided convolution": (lambda x: mx.sym.Convolution(
        mx.sym.Reshape(x, shape=(1, 1, 5)), kernel=(1,), stride=(2,), num_filter=1, no_bias=True,
        weight=mx.sym.ones((1, 1, 1))), (5,), [1, 0, 1, 0, 1]),
    "take": (lambda x: mx.sym.take(x, mx.sym.ones((1,)) * 2), (4,), [0, 0, 1, 0]),
    "pick": (lambda x: mx.sym.pick(x, mx.sym.ones((2,))), (2, 3), [0, 1, 0, 0, 1, 0]),
    "max": (lambda x: mx.sym.max(x), (3,), [0, 0, 1]),
    "Embedding": (lambda x: mx.sym.Embedding(mx.sym.ones((2,)), weight=x, input_dim=3, output_dim=2), (3, 2),
                  [0, 0, 2, 2, 0, 0]),
    "SliceChannel": (lambda x: mx.sym.SliceChannel(x, num_outputs=2, axis=0)[1], (4,), [0, 0, 1, 1])}


@every_mode
@pytest.mark.parametrize("kind", PARTLY_READ)
def test_gradients_of_what_was_not_read_are_zero(memory: str, kind: str) -> None:
    make, shape, expected = PARTLY_READ[kind]
    inner = make(mx.sym.Variable("x") * 1)
    executor = bound(inner, memory, x=np.arange(np.prod(shape)).reshape(shape))
    for _ in range(2):
        assert gradients(executor)["x"].ravel().tolist() == expected


@every_mode
def test_a_variable_that_no_output_depends_on_has_gradient_zero(memory: str) -> None:
    x, y = mx.sym.Variable("x"), mx.sym.Variable("y")
    executor = bound(mx.sym.Group([x * 2, mx.sym.BlockGrad(y * 3)]), memory, x=[1, 2], y=[1, 2])
    executor.grad_dict["y"][:] = np.nan
    found = gradients(executor)
    assert found["x"].tolist() == [2, 2] and found["y"].tolist() == [0, 0]


@every_mode
def test_products_write_all_of_a_poisoned_output(memory: str) -> None:
    x, w = np.random.default_rng(0).normal(size=(2, 300, 40))
    symbol = mx.sym.FullyConnected(mx.sym.Variable("x") * 1, weight=mx.sym.Variable("w"), num_hidden=300,
                                   no_bias=True)
    executor = bound(symbol * 1, memory, "write", np.float64, x=x, w=w)
    found = gradients(executor)
    np.testing.assert_allclose(executor.outputs[0].asnumpy(), x @ w.T, 1e-12, 1e-12)
    np.testing.assert_allclose(found["w"], np.ones((300, 300)) @ x, 1e-10, 1e-10)
    np.testing.assert_allclose(found["x"], np.ones((300, 300)) @ w, 1e-10, 1e-10)


# -- names and shapes ----------------------------------------------------------------------------------------
def test_two_variables_of_one_name_are_refused_by_name() -> None:
    first, second = mx.sym.Variable("a", shape=(2,)), mx.sym.Variable("a", shape=(2,))
    with pytest.raises(MXNetError, match="'a'"):
        (first + second).simple_bind(mx.cpu())


@every_mode
def test_every_buffer_lies_at_an_aligned_address_and_the_same_graph_is_planned_alike(memory: str) -> None:
    offsets = []
    for _ in range(2):
        executor = restored(classifier().simple_bind(mx.cpu(), memory=memory, poison=True, data=(3, 3, 7, 5)))
        step(executor, 0)
        program = executor.program("train")
        addresses = [program.array(b).ctypes.data for b in range(len(program.plan.buffers))]
        assert addresses and all(address % ALIGNMENT == 0 for address in addresses)
        offsets.append(list(program.plan.buffers.offset))
    assert offsets[0] == offsets[1]


@every_mode
def test_an_empty_batch_keeps_valid_handles_and_gives_zero_gradients(memory: str) -> None:
    executor = restored(classifier().simple_bind(mx.cpu(), memory=memory, poison=True, data=(0, 3, 8, 8)))
    before = [a.asnumpy().tobytes() for a in executor.aux_arrays]
    assert executor.forward(is_train=True)[0].shape == (0, 3)
    executor.backward()
    found = {n: g.asnumpy() for n, g in executor.grad_dict.items()}
    assert found.pop("data").shape == (0, 3, 8, 8)
    assert all(not g.any() for g in found.values())
    assert [a.asnumpy().tobytes() for a in executor.aux_arrays] == before


@every_mode
def test_an_update_of_no_parameter_is_a_graph_of_no_nodes_that_compiles_and_runs(memory):
    executor = bound(mx.sym.Variable("x") * 2, memory, "null", x=np.ones(3))
    executor.set_updater(mx.optimizer.SGD())
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [2, 2, 2]
    executor.update(mx.optimizer.SGD().control)
    assert len(executor.program("update").plan.instructions) == 0

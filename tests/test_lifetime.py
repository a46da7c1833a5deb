"""Bytes, places and objects that serving inputs of ever other shapes leaves behind: those of what is still held."""
from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph import bucketing
from minigraph.base import OutOfMemoryError, align
from minigraph.executor import Executor
from minigraph.memory.layout import HOME, PERSISTENT, Gap, PersistentLayout
from minigraph.optimizer import SGD

FEATURES, HIDDEN = 64, 16
WEIGHT = (np.arange(HIDDEN * FEATURES).reshape(HIDDEN, FEATURES) % 23 - 11).astype(np.float32) / 8


def dense() -> mx.sym.Symbol:
    return mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=HIDDEN, name="fc")


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    """What is let go must go at once, not when the collector of cycles happens to run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def check_run(executor: Executor, n: int) -> None:
    """Forward and backward against closed forms, in whole numbers of eighths."""
    value = (np.arange(n * FEATURES).reshape(n, FEATURES) % 7 - 3).astype(np.float32)
    assert not executor.arg_dict["x"].asnumpy().any(), "new arguments are zero"
    out, = executor.forward(is_train=True, x=value)
    np.testing.assert_array_equal(out.asnumpy(), value @ WEIGHT.T)
    head = np.ones((n, HIDDEN), np.float32)
    executor.backward([head])
    np.testing.assert_array_equal(executor.grad_dict["x"].asnumpy(), head @ WEIGHT)
    np.testing.assert_array_equal(executor.grad_dict["fc_weight"].asnumpy(), head.T @ value)


def own_bytes(n: int) -> int:
    """Of an executor for n rows alone: its input and its gradient."""
    return 2 * align(n * FEATURES * 4)


PARAMETER_BYTES = 2 * (HIDDEN * FEATURES + HIDDEN) * 4
"""Weight and bias, and their gradients."""


def reshape_through(held: list[Executor], sizes: Any) -> None:
    """Executors for all sizes, one after another; the one before lives until the next is bound. `held` holds it."""
    executor = held.pop()
    executor.arg_dict["fc_weight"][:] = WEIGHT
    largest = executor.arg_dict["x"].shape[0]
    for n in sizes:
        executor = executor.reshape(x=(n, FEATURES), allow_up_sizing=True)
        check_run(executor, n)
        largest = max(largest, n)
        layout = executor.group.layout
        assert len(layout.places) <= 3 * 2, sorted(layout.places)
        assert layout.bytes <= 1.5 * (PARAMETER_BYTES + 2 * own_bytes(largest))
    held.append(executor)


def test_reshaped_executors_hold_the_bytes_of_the_largest_of_them() -> None:
    held = [dense().simple_bind(mx.cpu(), x=(1, FEATURES))]
    reshape_through(held, range(1, 200))
    assert held[0].group.memory.arenas["persistent"].size == held[0].group.layout.bytes


def test_sizes_in_any_order_hold_no_more() -> None:
    sizes = np.random.default_rng(5).integers(1, 200, 120).tolist()
    reshape_through([dense().simple_bind(mx.cpu(), x=(1, FEATURES))], sizes)


def test_arenas_that_have_grown_are_not_moved_for_smaller_batches() -> None:
    held = [dense().simple_bind(mx.cpu(), x=(1, FEATURES))]
    reshape_through(held, [200, 199, 200])
    layout = held[0].group.layout
    before = layout.version, layout.bytes
    reshape_through(held, [1, 150, 3, 200, 7, 90, 200])
    assert (layout.version, layout.bytes) == before


def test_an_executor_and_an_array_keep_what_they_hold() -> None:
    first = dense().simple_bind(mx.cpu(), x=(2, FEATURES))
    first.arg_dict["fc_weight"][:] = WEIGHT
    second = first.reshape(x=(5, FEATURES), allow_up_sizing=True)
    check_run(second, 5)
    second.arg_dict["x"][:] = 3
    argument, gradient, part = second.arg_dict["x"], second.grad_dict["x"], second.arg_dict["x"][1:3]
    expected = gradient.asnumpy()
    del second
    for n in (6, 9, 4, 30):
        check_run(first.reshape(x=(n, FEATURES), allow_up_sizing=True), n)
    assert (argument.asnumpy() == 3).all() and (part.asnumpy() == 3).all()
    np.testing.assert_array_equal(gradient.asnumpy(), expected)
    del argument, part
    first.reshape(x=(6, FEATURES), allow_up_sizing=True)
    assert [name for name in first.group.layout.places if name.startswith("x(5")] == ["x(5, 64)float32/grad"]
    check_run(first, 2)


def test_an_output_that_is_an_argument_keeps_its_bytes() -> None:
    symbol = mx.sym.identity(mx.sym.Variable("x"))
    first = symbol.simple_bind(mx.cpu(), x=(2, 3))
    second = first.reshape(x=(4, 3), allow_up_sizing=True)
    second.arg_dict["x"][:] = 7
    out, = second.forward()
    del second
    third = first.reshape(x=(4, 3), allow_up_sizing=True)
    third.arg_dict["x"][:] = 1
    assert (out.asnumpy() == 7).all()


def test_momentum_outlives_the_executor_that_trained() -> None:
    def trained(reshapes: bool) -> np.ndarray:
        executor = mx.sym.LinearRegressionOutput(dense(), name="loss").simple_bind(
            mx.cpu(), x=(4, FEATURES), loss_label=(4, HIDDEN), grad_req={"fc_weight": "write", "fc_bias": "write"})
        optimizer = SGD(learning_rate=0.01, momentum=0.9)
        executor.set_updater(optimizer)
        for _ in range(4):
            if reshapes:
                executor = executor.reshape(x=(4, FEATURES), loss_label=(4, HIDDEN))
                executor = executor.reshape(x=(9, FEATURES), loss_label=(9, HIDDEN), allow_up_sizing=True)
                executor = executor.reshape(x=(4, FEATURES), loss_label=(4, HIDDEN), allow_up_sizing=True)
            executor.step(optimizer.control, x=np.ones((4, FEATURES), np.float32),
                          loss_label=np.ones((4, HIDDEN), np.float32))
        return executor.arg_dict["fc_weight"].asnumpy()

    np.testing.assert_array_equal(trained(True), trained(False))


def test_a_budget_counts_no_gaps() -> None:
    """Gaps that a larger executor cannot use are closed before a budget refuses it."""
    budget = 4 * own_bytes(100)
    executor = dense().simple_bind(mx.cpu(), x=(1, FEATURES), budget=budget)
    held = [executor]
    del executor
    reshape_through(held, range(1, 100, 3))
    with pytest.raises(OutOfMemoryError):
        check_run(held[0].reshape(x=(400, FEATURES), allow_up_sizing=True), 400)
    reshape_through(held, [50])


@pytest.mark.parametrize("disk", [False, True], ids=["host", "disk"])
def test_what_is_at_home_outside_the_device_goes_too(disk: bool, tmp_path: Any) -> None:
    h = mx.sym.Variable("x")
    for k in range(4):
        h = mx.sym.FullyConnected(h, num_hidden=FEATURES, no_bias=True, name=f"fc{k}")

    def bound(n: int, **options: Any) -> Executor:
        return h.simple_bind(mx.cpu(), x=(n, FEATURES), **options)

    request = {"disk": str(tmp_path)} if disk else {"host_budget": "16MB"}
    budget = 96 * 1024
    executor = bound(1, budget=budget, memory="auto", **request)
    weights = [np.eye(FEATURES, dtype=np.float32) * (k + 1) for k in range(4)]
    for k, weight in enumerate(weights):
        executor.arg_dict[f"fc{k}_weight"][:] = weight
    held = []
    for n in [*range(1, 30), *range(1, 30)]:
        executor = executor.reshape(x=(n, FEATURES), allow_up_sizing=True)
        assert not executor.arg_dict["x"].asnumpy().any()
        value = np.full((n, FEATURES), n, np.float32)
        out, = executor.forward(is_train=True, x=value)
        np.testing.assert_array_equal(out.asnumpy(), value * 24)
        executor.backward([np.ones((n, FEATURES), np.float32)])
        np.testing.assert_array_equal(executor.grad_dict["x"].asnumpy(), np.full((n, FEATURES), 24))
        layout = executor.group.layout
        held.append((len(layout.places), layout.bytes + layout.home_bytes))
    assert max(places for places, _ in held) <= 2 * 6
    assert executor.group.layout.home_bytes, "parameters lie outside the device"
    assert max(nbytes for _, nbytes in held) <= 8 * FEATURES * FEATURES * 4 + 6 * own_bytes(30)
    assert len(executor.group.layout.away) <= len(executor.group.layout.places)


# -- modules -------------------------------------------------------------------------------------------------
def objects() -> Counter[str]:
    gc.collect()
    """Those of our types; without what caches of fixed sizes keep."""
    return Counter(type(each).__name__ for each in gc.get_objects()
                   if str(type(each).__module__).startswith("minigraph")
                   and not type(each).__name__.endswith(("Params", "Gap")))


def growth(serve: Any, first: range, second: range) -> dict[str, int]:
    """Of which of our types there are more after serving more shapes."""
    for n in first:
        serve(n)
    before = objects()
    for n in second:
        serve(n)
    return {name: count - before[name] for name, count in objects().items() if count > before[name]}


def test_a_module_of_ever_other_batch_sizes_does_not_grow() -> None:
    module = mx.mod.Module(mx.sym.LinearRegressionOutput(dense(), name="loss"), ["x"], ["loss_label"])
    module.bind([("x", (4, FEATURES))], [("loss_label", (4, HIDDEN))], inputs_need_grad=True)
    module.init_params()
    module.init_optimizer()

    def serve(n: int) -> None:
        batch = mx.io.DataBatch([mx.nd.ones((n, FEATURES))], [mx.nd.ones((n, HIDDEN))])
        module.forward_backward(batch)
        module.update()
        module.get_input_grads()[0].wait_to_read()

    assert growth(serve, range(1, 41), range(41, 81)) == {}
    layout = module._executor.group.layout
    assert len(layout.places) <= 5 + mx.module.MAX_SHAPES
    assert layout.bytes <= PARAMETER_BYTES + 2 * mx.module.MAX_SHAPES * own_bytes(80)


def test_buckets_used_longest_ago_are_let_go_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucketing, "MAX_BUCKETS", 6)
    made = []

    def generate(length: int) -> Any:
        made.append(length)
        steps = mx.sym.sum(mx.sym.Variable("x"), axis=1)
        return (mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(steps, num_hidden=3, name="fc"), name="loss"),
                ["x"], ["loss_label"])

    def batch(length: int) -> Any:
        return mx.io.DataBatch([mx.nd.ones((2, length, 5))], [mx.nd.ones((2, 3))], bucket_key=length,
                               provide_data=[("x", (2, length, 5))], provide_label=[("loss_label", (2, 3))])

    module = mx.mod.BucketingModule(generate, 50)
    first = batch(50)
    module.bind(first.provide_data, first.provide_label)
    module.init_params(mx.init.One())
    module.init_optimizer()
    monitor = mx.mon.Monitor(1)
    module.install_monitor(monitor)

    def serve(length: int) -> None:
        monitor.tic()
        module.forward_backward(batch(length))
        module.update()
        monitor.toc()

    assert growth(serve, range(1, 20), range(20, 40)) == {}
    assert sorted(module._buckets) == [35, 36, 37, 38, 39, 50]
    made.clear()
    serve(39)
    serve(1)
    assert made == [1] and 35 not in module._buckets
    module.forward(batch(1), is_train=False)
    weight, bias = (module.get_params()[0][name].asnumpy() for name in ("fc_weight", "fc_bias"))
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), np.ones((2, 5)) @ weight.T + bias, rtol=1e-6)


# -- the layout ----------------------------------------------------------------------------------------------
def layout_of(**nbytes: int) -> PersistentLayout:
    layout = PersistentLayout()
    for name, count in nbytes.items():
        layout.declare(name, (count,), np.dtype(np.uint8), "parameter")
    return layout


def test_a_tensor_takes_the_smallest_gap_that_holds_it() -> None:
    layout = layout_of(a=256, b=64, c=128, d=64)
    assert layout.remove_unheld({"b", "d"}) == ["a", "c"]
    assert layout.gaps == (Gap(PERSISTENT, 0, 256), Gap(PERSISTENT, 320, 128))
    assert layout.bytes_with([(False, 100), (False, 200), (False, 10)]) == (512 + 64, 0)
    assert layout.declare("e", (100,), np.dtype(np.uint8), "parameter").offset == 320
    assert layout.declare("f", (200,), np.dtype(np.uint8), "parameter").offset == 0
    assert (layout.bytes, layout.gaps) == (512, ())


def test_neighbouring_gaps_are_one() -> None:
    layout = layout_of(a=64, b=64, c=64, d=64)
    layout.remove_unheld({"a", "c", "d"})
    layout.remove_unheld({"a", "d"})
    assert layout.gaps == (Gap(PERSISTENT, 64, 128),)
    layout.place_again()
    assert (layout.places["d"].offset, layout.bytes, layout.gaps, layout.version) == (64, 128, (), 1)


def test_gradients_and_states_go_with_their_parameter() -> None:
    layout = layout_of(w=64, w_extra=64)
    for name, kind in (("w/grad", "gradient"), ("w_extra/grad", "gradient"), ("w/mom", "state"),
                       ("w_extra/mean_square", "state"), ("__unscale__", "state"), ("fed/grad", "gradient")):
        layout.declare(name, (64,), np.dtype(np.uint8), kind)
    assert layout.remove_unheld({"w", "fed"}) == ["w_extra", "w_extra/grad", "w_extra/mean_square"]
    assert layout.remove_unheld({"w/mom"}) == ["w", "w/grad", "fed/grad"]


def test_what_was_away_is_forgotten_with_its_place() -> None:
    layout = layout_of(a=64, b=64)
    layout.send_away(["a"], "host")
    assert layout.places["a"].arena == HOME
    layout.remove_unheld({"b"})
    assert (layout.away, layout.gaps) == (frozenset(), (Gap(HOME, 0, 64),))

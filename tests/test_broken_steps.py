"""A step that breaks off: its executor refuses to run until the parameters are set again; nothing hangs or lingers."""
from __future__ import annotations

import errno
import gc
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.executor import Executor
from minigraph.ops.registry import get_op
from minigraph.optimizer import SGD
from tests.memory.test_policies import convolutional
from tests.training import assert_same, batches, everything, mlp, prepared

SHAPE = (4, 3, 8, 8)


@pytest.fixture(scope="module", autouse=True)
def in_numpy() -> Iterator[None]:
    """Operators are computed in NumPy, where a test can make one fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIGRAPH_CPU_KERNELS", "numpy")
        yield


WAYS = {"plain": {}, "sublinear": {}, "host": {"memory": "vdnn_all", "host_budget": "1GiB"},
        "file": {"memory": "vdnn_all"}}


def bind(way: str, folder: Any) -> Executor:
    """A small residual network with momentum SGD and parameters that are not zero."""
    symbol, inputs = convolutional(3), ("data", "softmax_label")
    options = {"memory": way} if way in ("plain", "sublinear") else dict(WAYS[way])
    if way == "file":
        options["disk"] = str(folder)
    requests = {n: "null" if n in inputs else "write" for n in symbol.list_arguments()}
    executor = Executor(symbol, mx.cpu(), {"data": SHAPE}, inputs=inputs, grad_req=requests, poison=True, **options)
    executor.set_updater(SGD(learning_rate=0.1, momentum=0.9))
    set_parameters(executor)
    return executor


def set_parameters(executor: Executor) -> None:
    """What a user does after a step that broke off: all parameters and states, and the number of the step."""
    rng = np.random.default_rng(1)
    parameters = {n: rng.uniform(-0.5, 0.5, a.shape) for n, a in sorted(executor.arg_dict.items())}
    auxiliary = {n: np.full(a.shape, "var" in n, np.float32) for n, a in executor.aux_dict.items()}
    executor.copy_params_from(parameters, auxiliary)
    executor.clear_states()
    mx.random.seed(2)


def feeds(k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(k)
    return {"data": rng.uniform(-1, 1, SHAPE).astype(np.float32),
            "softmax_label": rng.integers(0, 5, SHAPE[0]).astype(np.float32)}


def train(executor: Executor, steps: int = 2) -> list[bytes]:
    """Outputs, parameters and statistics of some steps."""
    control, found = SGD(learning_rate=0.1, momentum=0.9).control, []
    for k in range(steps):
        found += [o.asnumpy().tobytes() for o in executor.step(control, **feeds(k))]
    return found + [a.asnumpy().tobytes() for a in (*executor.arg_arrays, *executor.aux_arrays)]


def failing(real: Callable[..., Any], at: int, act: Callable[[], Any]) -> Callable[..., Any]:
    """The function, before whose call number `at` something happens."""
    calls = []

    def stand_in(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            act()
        return real(*arguments, **named)

    return stand_in


def throw(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error
    return act


def copy_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("minigraph-")}


def assert_refuses_until_parameters_are_set(executor: Executor, reason: str, expected: list[bytes]) -> None:
    """Every way to run refuses; after new parameters all bits are those of an executor that never broke."""
    control = SGD(learning_rate=0.1, momentum=0.9).control
    attempts = [lambda: executor.step(control, **feeds(0)), lambda: executor.forward(**feeds(0)),
                lambda: executor.forward(is_train=True, **feeds(0)), lambda: executor.update(control)]
    for attempt in attempts:
        with pytest.raises(MXNetError, match=rf"broke off before \({reason} in `step`\).*set the parameters again"):
            attempt()
    set_parameters(executor)
    assert train(executor) == expected


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return train(bind("plain", tmp_path_factory.getbasetemp()))


ways = pytest.mark.parametrize("way", WAYS)


@ways
@pytest.mark.parametrize("op, at", [("Convolution", 2), ("_convolution_backward_weight", 1), ("_sgd_mom_update", 3)])
@pytest.mark.parametrize("error", [ZeroDivisionError("planted"), KeyboardInterrupt(), MemoryError()],
                         ids=lambda error: type(error).__name__)
def test_after_an_error_in_an_operator_nothing_runs_until_parameters_are_set(way, op, at, error, expected, tmp_path,
                                                                             monkeypatch):
    executor = bind(way, tmp_path)
    kind = type(get_op(op))
    with monkeypatch.context() as patch:
        patch.setattr(kind, "compute", failing(kind.compute, at, throw(error)))
        with pytest.raises(type(error)) as caught:
            train(executor)
    assert caught.value is error
    with pytest.raises(MXNetError, match="is gone|no outputs yet"):
        executor.outputs[0].asnumpy()
    assert_refuses_until_parameters_are_set(executor, type(error).__name__, expected)


@pytest.mark.parametrize("at", [1, 4, 7])
def test_a_real_interrupt_while_copies_are_under_way_ends_the_step_and_leaves_threads_idle(at, expected, tmp_path,
                                                                                          monkeypatch):
    executor = bind("file", tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
    try:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "pwrite", failing(os.pwrite, at, lambda: signal.raise_signal(signal.SIGINT)))
            train(executor)
            threading.Event().wait(60)  # the signal comes when it comes
    finally:
        signal.signal(signal.SIGINT, before)
    assert_refuses_until_parameters_are_set(executor, "KeyboardInterrupt", expected)


@pytest.mark.parametrize("at", [1, 4, 7])
@pytest.mark.parametrize("call, number, error", [("pwrite", errno.ENOSPC, OutOfMemoryError),
                                                 ("pwrite", errno.EIO, MXNetError), ("preadv", errno.EIO, MXNetError)])
def test_after_a_full_or_broken_disk_nothing_runs_until_parameters_are_set(call, number, error, at, expected, tmp_path,
                                                                           monkeypatch):
    executor = bind("file", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(getattr(os, call), at, throw(OSError(number, os.strerror(number)))))
        with pytest.raises(error, match=re.escape(os.strerror(number))):
            train(executor)
    assert_refuses_until_parameters_are_set(executor, error.__name__, expected)


@ways
def test_no_thread_and_no_file_outlives_an_executor_whose_step_broke_off(way, tmp_path, monkeypatch):
    gc.collect()
    before = copy_threads()
    executor = bind(way, tmp_path)
    kind = type(get_op("_convolution_backward_weight"))
    with monkeypatch.context() as patch:
        patch.setattr(kind, "compute", failing(kind.compute, 2, throw(KeyboardInterrupt())))
        with pytest.raises(KeyboardInterrupt):
            train(executor)
    assert bool(copy_threads() - before) == (way in ("host", "file"))
    del executor
    gc.collect()
    assert copy_threads() <= before and not list(tmp_path.iterdir())


def test_executors_that_share_parameters_refuse_as_well_and_others_do_not(tmp_path, monkeypatch):
    executor, other = bind("plain", tmp_path), bind("plain", tmp_path)
    smaller = executor.reshape(data=(2, *SHAPE[1:]), softmax_label=(2,))
    with monkeypatch.context() as patch:
        kind = type(get_op("Convolution"))
        patch.setattr(kind, "compute", failing(kind.compute, 1, throw(ValueError("planted"))))
        with pytest.raises(ValueError, match="planted"):
            train(executor)
    with pytest.raises(MXNetError, match=r"broke off before \(ValueError in `step`\)"):
        smaller.forward(data=np.zeros((2, *SHAPE[1:])))
    other.forward(**feeds(0))
    smaller.copy_params_from({})
    with pytest.raises(MXNetError, match="so optimizer states may be half updated; set the optimizer's states again"):
        smaller.forward(data=np.zeros((2, *SHAPE[1:])))
    executor.clear_states()
    smaller.forward(data=np.zeros((2, *SHAPE[1:])))


def test_a_run_that_changes_nothing_may_break_off_and_the_next_one_goes_on(tmp_path, monkeypatch):
    executor, other = bind("plain", tmp_path), bind("plain", tmp_path)
    with monkeypatch.context() as patch:
        kind = type(get_op("Convolution"))
        patch.setattr(kind, "compute", failing(kind.compute, 1, throw(ValueError("planted"))))
        with pytest.raises(ValueError, match="planted"):
            executor.forward(**feeds(0))
    assert executor.forward(**feeds(0))[0].asnumpy().tobytes() == other.forward(**feeds(0))[0].asnumpy().tobytes()


def one_label_out_of_range(batch: mx.io.DataBatch) -> mx.io.DataBatch:
    label = batch.label[0].asnumpy()
    label[1] = 7
    return mx.io.DataBatch(batch.data, [mx.nd.array(label)])


def test_a_label_out_of_range_in_forward_backward_changes_nothing_and_the_next_batch_trains():
    mod, other = (prepared(mlp(), params={"learning_rate": 0.1, "momentum": 0.9}) for _ in range(2))
    first, second = batches(2)
    with pytest.raises(MXNetError, match=r"label: 7.0 at position \(1,\)"):
        mod.forward_backward(one_label_out_of_range(first))
    for each in (mod, other):
        for batch in (first, second):
            each.forward_backward(batch)
            each.update()
    assert_same(everything(mod), everything(other))


def test_gradients_that_are_added_to_are_not_trusted_after_a_run_that_broke_off():
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax")
    executor = net.simple_bind(mx.cpu(), grad_req={"fc_weight": "add"}, data=(2, 4), softmax_label=(2,))
    executor.forward(is_train=True, softmax_label=np.array([0, 7]))
    with pytest.raises(MXNetError, match="label: 7.0"):
        executor.backward()
    with pytest.raises(MXNetError, match="so parameters may be half updated"):
        executor.forward(is_train=True)


@pytest.mark.parametrize("mend", [lambda mod, file: mod.load_optimizer_states(file),
                                  lambda mod, file: mod.init_optimizer(
                                      optimizer_params={"learning_rate": 0.1, "momentum": 0.9}, force_init=True)])
def test_after_an_interrupted_step_the_optimizer_states_must_be_set_again_too(mend, monkeypatch, tmp_path):
    mod, other = (prepared(mlp(), params={"learning_rate": 0.1, "momentum": 0.9}) for _ in range(2))
    start = [{name: array.copy() for name, array in part.items()} for part in mod.get_params()]
    file = str(tmp_path / "before.states")
    mod.save_optimizer_states(file)
    with monkeypatch.context() as patch:
        kind = type(get_op("_sgd_mom_update"))
        patch.setattr(kind, "compute", failing(kind.compute, 2, throw(KeyboardInterrupt())))
        with pytest.raises(KeyboardInterrupt):
            mod.training_step()(batches(1)[0])
    with pytest.raises(MXNetError, match=r"optimizer states and parameters may be half updated; set the parameters "
                                         r"again .* and set the optimizer's states again .*load_optimizer_states"):
        mod.training_step()(batches(1)[0])
    mod.set_params(*start)
    with pytest.raises(MXNetError, match="so optimizer states may be half updated; set the optimizer's"):
        mod.training_step()(batches(1)[0])
    mend(mod, file)
    for each in (mod, other):
        for batch in batches(2):
            each.training_step()(batch)
    assert_same(everything(mod), everything(other))


def test_a_module_goes_on_after_its_parameters_are_set(monkeypatch):
    options = {"params": {"learning_rate": 0.1}}
    mod, other = (prepared(mlp(), **options) for _ in range(2))
    start = mod.get_params()
    start = [{name: array.copy() for name, array in part.items()} for part in start]
    with monkeypatch.context() as patch:
        kind = type(get_op("_fully_connected_backward_weight"))
        patch.setattr(kind, "compute", failing(kind.compute, 1, throw(KeyboardInterrupt())))
        with pytest.raises(KeyboardInterrupt):
            mod.training_step()(batches(1)[0])
    with pytest.raises(MXNetError, match="set the parameters again"):
        mod.training_step()(batches(1)[0])
    mod.set_params(*start)
    for each in (mod, other):
        for batch in batches(2):
            each.training_step()(batch)
    assert_same(everything(mod), everything(other))

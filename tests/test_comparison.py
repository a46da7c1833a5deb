"""check_modes: one step under two memory modes, compared bit by bit, and nothing changed by it."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.executor import Executor
from minigraph.ops import registry
from minigraph.optimizer import SGD
from minigraph.symbol import functions
from tests.random_graphs import random_case, results
from tests.training import assert_same, batches, everything, mlp, prepared

MODES = ["naive", "inplace", "plain", "sublinear", "auto", "vdnn", "vdnn_all", "vdnn_conv"]


@pytest.fixture
def forget():
    """Operators that a test registers are gone after it."""
    before = dict(registry._OPS), dict(registry._ALIASES)
    yield
    for held, kept in zip((registry._OPS, registry._ALIASES), before, strict=True):
        held.clear()
        held.update(kept)
    for name in set(functions._functions) - {*registry._OPS, *registry._ALIASES}:
        del functions._functions[name]


def tower(**options) -> Executor:
    """Convolution, BatchNorm, Dropout and a classifier, with parameters that are not zero."""
    net = mx.sym.Variable("data")
    for k in range(4):
        net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=4, name=f"conv{k}")
        net = mx.sym.Activation(mx.sym.BatchNorm(net, fix_gamma=False, name=f"bn{k}"), act_type="relu")
        net = mx.sym.Dropout(net, p=0.3)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc"), name="softmax")
    inputs = ("data", "softmax_label")
    requests = {n: "null" if n in inputs else "write" for n in net.list_arguments()}
    executor = Executor(net, mx.cpu(), {"data": (2, 3, 6, 6)}, inputs=inputs, grad_req=requests, **options)
    rng = np.random.default_rng(1)
    for array in executor.arg_dict.values():
        array[:] = rng.uniform(-0.5, 0.5, array.shape)
    return executor


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return {"data": rng.uniform(-1, 1, (2, 3, 6, 6)).astype(np.float32), "softmax_label": np.array([0, 2], np.float32)}


@pytest.mark.parametrize("other", MODES)
def test_a_step_is_the_same_under_every_memory_mode_and_the_report_lists_what_was_compared(other):
    executor = tower(memory="sublinear", poison=True)
    executor.set_updater(SGD(learning_rate=0.1, momentum=0.9))
    report = executor.check_modes(other, **batch())
    assert (report.memory, report.other, report.programs) == ("sublinear", other, ("train", "step"))
    for name in ("output softmax_output of `train`", "gradient conv0_weight/grad of `train`",
                 "auxiliary bn3_moving_var of `train`", "parameter fc_bias of `step`",
                 "state conv2_weight/mom of `step`"):
        assert name in report.names
    assert report.bytes > 4 * sum(array.size for array in executor.arg_dict.values())
    assert f"agree in every bit: {len(report.names)} tensors" in str(report)


def test_nothing_is_changed_by_a_check_neither_state_nor_random_numbers_nor_rates():
    def run(check):
        mod = prepared(mlp(dropout=0.5, norm=True), "adam", {"learning_rate": 0.01})
        outputs = []
        for number, each in enumerate(batches()):
            mod.training_step()(each)
            kept = mod.get_outputs()[0]
            if check:
                report = mod._executor.check_modes("naive")
                assert report.programs == ("train", "step")
                if number:
                    mod._executor.check_modes("sublinear", data=np.zeros((8, 6)), softmax_label=np.zeros(8))
            outputs.append(kept.asnumpy().tobytes())
        return outputs, everything(mod), mod._executor

    plain, expected, unchecked = run(False)
    checked, found, executor = run(True)
    assert plain == checked
    assert_same(expected, found)
    assert executor.group.layout.bytes == unchecked.group.layout.bytes
    assert executor.group.transient_bytes == unchecked.group.transient_bytes
    assert executor._bound is None and set(executor._programs) == set(unchecked._programs)


def test_gradients_that_are_added_begin_with_what_is_there_and_heads_are_the_last_ones():
    case = random_case(11)
    requests = dict.fromkeys(case.requests, "add")
    executor = case.symbol.simple_bind(mx.cpu(), grad_req=requests, memory="auto", **case.shapes)
    results(case, executor, 3)
    before = {n: g.asnumpy() for n, g in executor.grad_dict.items() if g is not None}
    assert executor.check_modes().programs == ("train",)
    assert all(np.array_equal(before[n], executor.grad_dict[n].asnumpy()) for n in before)


def test_an_executor_that_never_ran_needs_its_inputs_named():
    executor = tower()
    with pytest.raises(MXNetError, match="input data was not given, and no run before has it; pass data= to check_mod"):
        executor.check_modes()
    with pytest.raises(ValueError, match=r"need: \(2, 3, 6, 6\), received: \(1,\)"):
        executor.check_modes(data=np.zeros(1))
    with pytest.raises(MXNetError, match="unknown memory mode 'thrifty'"):
        executor.check_modes("thrifty", **batch())
    assert executor.check_modes(**batch()).programs == ("train",)
    assert not executor._programs


def test_arguments_given_to_a_check_are_not_kept():
    executor = (mx.sym.Variable("x") * 2).simple_bind(mx.cpu(), x=(3,))
    assert executor.check_modes(x=np.ones(3)).bytes > 0
    assert not executor.arg_dict["x"].asnumpy().any()


def test_a_program_that_the_budget_refuses_is_left_out():
    lean = tower()
    lean.set_updater(SGD(learning_rate=0.1))
    budget = lean.program("step").plan.planned_bytes
    executor = tower(memory="plain", budget=budget)
    executor.set_updater(SGD(learning_rate=0.1))
    assert executor.check_modes(**batch()).programs == ("step",)
    with pytest.raises(OutOfMemoryError, match="too small"):
        tower(budget=budget // 4).check_modes(**batch())


def register_reversal(honest):
    @mx.register
    class Reversal(mx.Op):
        """The rows in reverse order, written one after the other."""

        name = "row_reversal"

        def compute(self, p, ins, outs, work):
            for k in range(len(ins[0])):
                outs[0][k] = ins[0][-1 - k]

        def gradient(self, b, p, ins, outs, grads, wanted):
            return [b.node("row_reversal", [grads[0]])[0]]

        def inplace(self, p):
            return () if honest else ((0, 0),)


@pytest.mark.parametrize("memory, other", [("plain", "naive"), ("naive", "sublinear")])
def test_an_operator_that_wrongly_works_in_place_is_found_with_its_first_wrong_element(forget, memory, other):
    register_reversal(honest=False)
    net = mx.sym.tanh(mx.sym.row_reversal(mx.sym.Variable("x") * 1), name="out")
    executor = net.simple_bind(mx.cpu(), memory=memory, x=(4, 2))
    executor.arg_dict["x"][:] = np.arange(8).reshape(4, 2)
    with pytest.raises(MXNetError) as caught:
        executor.check_modes(other)
    right, wrong = np.tanh(np.float32([2, 4]))
    named = {"naive": right, "plain": wrong, "sublinear": wrong}
    assert str(caught.value).startswith(
        f"output out_output of `train` differs at (2, 0): {named[memory]} with memory={memory!r}, {named[other]} "
        f"with memory={other!r}, and 4 of its 8 elements differ in all")
    executor.forward()


def test_the_same_operator_declared_honestly_passes(forget):
    register_reversal(honest=True)
    net = mx.sym.tanh(mx.sym.row_reversal(mx.sym.Variable("x") * 1))
    executor = net.simple_bind(mx.cpu(), x=(4, 2))
    assert executor.check_modes(x=np.arange(8).reshape(4, 2)).programs == ("train",)


def test_a_difference_of_a_single_bit_counts_and_equal_nans_do_not(forget):
    class Counter:
        runs = 0

    @mx.register
    class Unsteady(mx.Op):
        """Minus zero, and NaN, the second time."""

        name = "unsteady"

        def compute(self, p, ins, outs, work):
            Counter.runs += 1
            outs[0][:] = [np.nan, 0.0 if Counter.runs == 1 else -0.0]

    executor = mx.sym.BlockGrad(mx.sym.unsteady(mx.sym.Variable("x"))).simple_bind(mx.cpu(), "null", x=(2,))
    with pytest.raises(MXNetError, match=r"differs at \(1,\): .*0\.0.* with .*-0\.0.*1 of its 2 elements"):
        executor.check_modes()
    executor.check_modes()

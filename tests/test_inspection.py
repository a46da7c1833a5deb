"""Looking inside runs: where NaN comes from, and the times of instructions; neither changes anything."""
from __future__ import annotations

import json

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from tests.training import assert_same, batches, everything, mlp, prepared


def bound(symbol, memory="plain", grad_req="write", fuse=False, **arrays):
    exe = symbol.simple_bind(mx.cpu(), grad_req, memory=memory, poison=True, fuse=fuse,
                             **{name: np.shape(value) for name, value in arrays.items()})
    for name, value in arrays.items():
        exe.arg_dict[name][:] = np.asarray(value, np.float32)
    return exe


def chain():
    x = mx.sym.Variable("x")
    inner = mx.sym.log(x - 1, name="log")
    return mx.sym.exp(inner * 2, name="exp") + mx.sym.Variable("y")


# -- NaN and infinity ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("memory", ["plain", "inplace", "naive"])
def test_the_first_instruction_that_makes_nan_is_named_with_its_place(memory):
    exe = bound(chain(), memory, x=[[2, 3], [4, 0.5]], y=np.ones((2, 2)))
    exe.forward()
    found = exe.find_nonfinite()
    assert (found.op, found.node, found.output, found.position) == ("log", "log", "log_output", (1, 1))
    assert np.isnan(found.value) and found.inputs == ()
    assert exe.plan.instruction(found.instruction).name == "log"
    assert "log" in str(found) and "(1, 1)" in str(found)


def test_of_operators_that_run_as_one_all_are_named():
    exe = bound(chain(), fuse=True, x=[[2, 3], [4, 0.5]], y=np.ones((2, 2)))
    exe.forward()
    found = exe.find_nonfinite()
    assert {"log", "exp"} <= set(found.node.split("+")) and found.position == (1, 1)


def test_a_weight_that_lies_in_another_order_for_a_kernel_is_named_by_the_operator_that_reads_it():
    net = mx.sym.Convolution(mx.sym.transpose(mx.sym.Variable("x"), axes=(0, 1, 3, 2)), kernel=(3, 3), num_filter=16,
                             no_bias=True, name="conv")
    exe = bound(net, x=np.ones((1, 16, 8, 8)), conv_weight=np.full((16, 16, 3, 3), np.nan))
    exe.forward()
    found = exe.find_nonfinite()
    assert found.node.startswith("conv") and found.inputs == ("conv_weight",)


def test_infinity_in_backward_alone_is_found():
    exe = bound(mx.sym.sqrt(mx.sym.Variable("x"), name="root"), x=[4.0, 0.0])
    exe.forward(is_train=True)
    assert exe.find_nonfinite() is None
    exe.backward(np.ones(2))
    found = exe.find_nonfinite()
    assert found.op == "_sqrt_backward" and found.position == (1,) and found.value == np.inf


def test_arguments_that_were_not_finite_before_are_named():
    exe = bound(chain(), x=[[2, 3], [4, 5]], y=np.ones((2, 2)))
    exe.arg_dict["y"][0, 1] = np.inf
    exe.forward()
    found = exe.find_nonfinite()
    assert found.inputs == ("y",) and found.position == (0, 1)
    assert "it read y, not finite before the run" in str(found)


def test_an_infinite_argument_that_does_no_harm_is_passed_over():
    exe = bound(mx.sym.sigmoid(mx.sym.Variable("x")), x=[-np.inf, 1.0])
    exe.forward()
    assert exe.find_nonfinite() is None


def test_a_step_is_repeated_with_its_batch_and_its_random_numbers_and_nothing_changes():
    first, second = (prepared(mlp(dropout=0.5, norm=True), params={"learning_rate": 0.1, "momentum": 0.9})
                     for _ in range(2))
    for batch in batches():
        for mod in (first, second):
            mod.training_step()(batch)
        out = second.get_outputs()[0].asnumpy()
        assert second._executor.find_nonfinite() is None
        assert np.array_equal(out, second.get_outputs()[0].asnumpy())
    assert_same(everything(first), everything(second))


def test_a_batch_that_breaks_the_weights_is_found_before_and_after_it_does():
    mod = prepared(mlp())
    batch = batches(1)[0]
    batch.data[0][3, 2] = np.inf
    mod.forward_backward(batch)
    found = mod._executor.find_nonfinite()
    assert found.node.split("+")[0] == "fc1" and found.position[0] == 3 and found.inputs == ("data",)
    mod.training_step()(batch)
    found = mod._executor.find_nonfinite()
    assert found.node.split("+")[0] == "fc1" and found.inputs == ("data", "fc1_weight", "fc1_bias")


def test_without_a_run_there_is_nothing_to_repeat():
    with pytest.raises(MXNetError, match="no run to repeat"):
        bound(chain(), x=[[1.0]], y=[[1.0]]).find_nonfinite()


# -- times ---------------------------------------------------------------------------------------------------
def test_a_profile_has_every_instruction_of_every_run_and_changes_nothing(tmp_path):
    mod = prepared(mlp(norm=True))
    mod.training_step()(batches(1)[0])
    before, out = everything(mod), mod.get_outputs()[0].asnumpy()
    exe = mod._executor
    trace = exe.profile(3, fname=tmp_path / "trace.json")
    names = [instruction.name for instruction in exe.plan]
    assert [event.name for event in trace.events] == names * 3
    assert all(event.seconds > 0 for event in trace.events)
    assert_same(before, everything(mod))
    assert np.array_equal(out, mod.get_outputs()[0].asnumpy())
    written = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in written] == names * 3
    assert {event["ph"] for event in written} == {"X"} and {event["tid"] for event in written} == {"compute"}
    ends = [event["ts"] + event["dur"] for event in written]
    assert all(end <= event["ts"] + 1e-3 for end, event in zip(ends, written[1:], strict=False))


def test_a_program_can_be_profiled_before_it_ever_ran():
    exe = bound(chain(), x=[[2.0, 3.0]], y=[[1.0, 1.0]])
    assert {event.program for event in exe.profile(1, "eval").events} == {"eval"}
    with pytest.raises(ValueError, match="n=0"):
        exe.profile(0)


@pytest.fixture
def profiler():
    yield mx.profiler
    mx.profiler.set_state("stop")
    mx.profiler.dumps(reset=True)


def test_the_profiler_times_all_runs_while_it_is_on(profiler, tmp_path):
    first, second = prepared(mlp(dropout=0.5)), prepared(mlp(dropout=0.5))
    profiler.set_config(profile_all=True, filename=str(tmp_path / "all.json"))
    for number, batch in enumerate(batches(4)):
        profiler.set_state("run" if number in (1, 2) else "stop")
        second.training_step()(batch)
        profiler.set_state("stop")
        first.training_step()(batch)
    assert_same(everything(first), everything(second))
    table = profiler.dumps()
    rows = {line.split()[0]: int(line.split()[1]) for line in table.splitlines()[1:]}
    names = ("FullyConnected", "_fully_connected_activated")
    dense = [op for op in second._executor.plan.instructions.op if op in names]
    assert sum(rows[op] for op in set(dense)) == 2 * len(dense) == 4 and rows["SoftmaxOutput"] == 2
    profiler.dump()
    written = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert len(written) == 2 * len(second._executor.plan)
    assert profiler.dumps().count("\n") == 1, "dump begins anew"


def test_forward_and_backward_are_timed_apart(profiler):
    exe = bound(mx.sym.exp(mx.sym.Variable("x")), x=[1.0, 2.0])
    profiler.set_state("run")
    exe.forward(is_train=True)
    exe.backward(np.ones(2))
    np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), np.exp([1, 2]), rtol=1e-6)
    assert "exp" in profiler.dumps() and "elemwise_mul" in profiler.dumps()


@pytest.mark.parametrize("policy", ["sublinear", "vdnn_all"])
def test_plans_that_recompute_and_swap_are_looked_into_as_well(policy, profiler):
    net = mx.sym.Variable("x")
    for k in range(5):
        net = mx.sym.tanh(mx.sym.FullyConnected(net, num_hidden=16, name=f"fc{k}"))
    exe = net.simple_bind(mx.cpu(), memory=policy, host_budget="1MiB" if policy == "vdnn_all" else None, x=(8, 16))
    draw = np.random.RandomState(0)
    for array in exe.arg_arrays:
        array[:] = draw.randn(*array.shape)

    def gradients():
        exe.forward(is_train=True)
        exe.backward(np.ones((8, 16)))
        return {name: gradient.asnumpy() for name, gradient in exe.grad_dict.items()}

    plain = gradients()
    assert exe.find_nonfinite() is None and len(exe.profile(1).events) == len(exe.plan)
    profiler.set_state("run")
    assert_same(plain, gradients())
    profiler.set_state("stop")
    exe.arg_dict["fc3_bias"][2] = np.nan
    gradients()
    assert exe.find_nonfinite().inputs == ("fc3_bias",)


def test_unknown_settings_are_refused(profiler):
    with pytest.raises(TypeError, match="'colour'"):
        profiler.set_config(colour=True)
    with pytest.raises(ValueError, match="'run' or 'stop'"):
        profiler.set_state("go")
    with pytest.raises(ValueError, match="sorted by falling total"):
        profiler.dumps(format="json")

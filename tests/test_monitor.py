"""Monitoring: what callbacks are told, that it changes nothing, and MXNet's debug text."""
from __future__ import annotations

import logging

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from tests.training import assert_same, batches, everything, iterator, mlp, prepared


def network():
    data = mx.sym.Variable("data")
    net = mx.sym.BatchNorm(mx.sym.FullyConnected(data, num_hidden=3, name="fc"), fix_gamma=False, name="bn")
    net = mx.sym.Flatten(mx.sym.Dropout(net, p=0.5, name="drop"), name="flat")
    return mx.sym.LinearRegressionOutput(net, mx.sym.Variable("label"), name="out")


def bound(**options):
    mx.random.seed(5)
    exe = network().simple_bind(mx.cpu(), data=(4, 2), poison=True, **options)
    draw = np.random.RandomState(0)
    for array in exe.arg_dict.values():
        array[:] = draw.randn(*array.shape)
    exe.aux_dict["bn_moving_var"][:] = 1
    return exe


def results(exe):
    exe.forward(is_train=True)
    outputs = [each.asnumpy() for each in exe.outputs]
    exe.backward()
    named = {**exe.grad_dict, **exe.aux_dict}
    return {"outputs": outputs[0], **{name: array.asnumpy() for name, array in named.items()}}


@pytest.mark.parametrize("monitor_all", [False, True])
@pytest.mark.parametrize("memory", ["plain", "inplace", "naive", "sublinear"])
def test_watching_changes_no_bit_of_any_result(memory, monitor_all):
    plain, watched = bound(memory=memory), bound(memory=memory)
    watched.set_monitor_callback(lambda name, value: None, monitor_all)
    for _ in range(2):
        assert_same(results(plain), results(watched))
    assert np.array_equal(plain.forward()[0].asnumpy(), watched.forward()[0].asnumpy())


def test_a_callback_is_told_every_visible_output_in_order():
    seen = {}
    exe = bound()
    exe.set_monitor_callback(lambda name, value: seen.update({name: value}))
    out = exe.forward(is_train=True)[0].asnumpy()
    assert list(seen) == ["fc_output", "bn_output", "drop_output", "flat_output", "out_output"]
    data, weight, bias = (exe.arg_dict[name].asnumpy() for name in ("data", "fc_weight", "fc_bias"))
    np.testing.assert_allclose(seen["fc_output"].asnumpy(), data @ weight.T + bias, rtol=1e-6)
    assert np.array_equal(seen["out_output"].asnumpy(), out)
    assert np.array_equal(seen["drop_output"].asnumpy(), seen["flat_output"].asnumpy())
    kept = seen["fc_output"].asnumpy()
    exe.forward(data=np.zeros((4, 2)))
    assert np.array_equal(seen["flat_output"].asnumpy(), seen["bn_output"].asnumpy()), "evaluation drops nothing"
    assert not np.array_equal(seen["fc_output"].asnumpy(), kept)


def test_inputs_are_told_too_when_asked():
    names = []
    exe = bound()
    exe.set_monitor_callback(lambda name, value: names.append(name), monitor_all=True)
    exe.forward()
    assert names[:4] == ["fc_data", "fc_weight", "fc_bias", "fc_output"]
    assert names[4:10] == ["bn_data", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var", "bn_output"]


def test_gradients_are_told_after_backward_under_the_names_of_their_readers():
    seen = {}
    exe = bound()
    exe.forward(is_train=True)
    exe.set_monitor_callback(lambda name, value: seen.update({name: value.asnumpy()}))
    exe.forward(is_train=True)
    before = set(seen)
    exe.backward()
    told = {name: value for name, value in seen.items() if name not in before}
    expected = {"fc_backward_data": "data", "fc_backward_weight": "fc_weight", "fc_backward_bias": "fc_bias",
                "bn_backward_gamma": "bn_gamma", "bn_backward_beta": "bn_beta", "out_backward_label": "label"}
    assert list(told)[0] == "out_backward_label" and list(told)[-3:] == list(expected)[:3]
    assert_same(told, {name: exe.grad_dict[variable].asnumpy() for name, variable in expected.items()})


def test_the_gradient_of_a_variable_with_several_readers_bears_its_own_name():
    names = []
    x = mx.sym.Variable("x")
    exe = mx.sym.MakeLoss(mx.sym.exp(x, name="e") + mx.sym.exp(x, name="f"), name="loss").simple_bind(mx.cpu(), x=(2,))
    exe.set_monitor_callback(lambda name, value: names.append(name))
    exe.forward(is_train=True)
    del names[:]
    exe.backward()
    assert names == ["x_grad"]


def test_a_callback_can_be_taken_away():
    names = []
    exe = bound()
    exe.set_monitor_callback(lambda name, value: names.append(name))
    exe.forward()
    larger = exe.plan.planned_bytes
    exe.set_monitor_callback(None)
    count = len(names)
    exe.forward()
    assert len(names) == count and exe.plan.planned_bytes <= larger


def test_a_monitor_tells_every_interval_outputs_then_arguments_and_states():
    mod = prepared(mlp(norm=True))
    monitor = mx.mon.Monitor(2, pattern="fc1.*|bn_moving.*|data")
    mod.install_monitor(monitor)
    told = []
    for batch in batches(4):
        monitor.tic()
        mod.forward_backward(batch)
        told.append([name for _, name, _ in monitor.toc()])
    watched = ["fc1_output", "fc1_backward_weight", "fc1_backward_bias", "data", "fc1_weight", "fc1_bias",
               "bn_moving_mean", "bn_moving_var"]
    assert told == [watched, [], watched, []]


@pytest.mark.parametrize("given, reason", [({"interval": 0}, "interval=0"), ({"interval": "x"}, "interval='x'"),
                                           ({"interval": 1, "pattern": "("}, "no regular expression")])
def test_a_monitor_that_cannot_watch_is_refused(given, reason):
    with pytest.raises(MXNetError, match=reason):
        mx.mon.Monitor(**given)


def test_the_default_statistic_is_the_norm_over_the_root_of_the_size():
    mod = prepared()
    monitor = mx.Monitor(1, pattern="fc1_weight", sort=True)
    mod.install_monitor(monitor)
    monitor.tic()
    mod.forward(batches(1)[0])
    (step, name, text), = monitor.toc()
    weight = mod.get_params()[0]["fc1_weight"].asnumpy()
    assert (step, name) == (1, "fc1_weight")
    assert float(text) == pytest.approx(np.sqrt((weight ** 2).mean()), rel=1e-6)


def test_fit_under_a_monitor_gives_the_same_parameters(caplog):
    caplog.set_level(logging.INFO)
    plain, watched = prepared(mlp(dropout=0.5, norm=True)), prepared(mlp(dropout=0.5, norm=True))
    for mod, monitor in ((plain, None), (watched, mx.mon.Monitor(3, lambda x: x * 2, "fc2_output"))):
        mx.random.seed(9)
        mod.fit(iterator(), num_epoch=1, monitor=monitor)
    assert_same(everything(plain), everything(watched))
    assert sum("fc2_output" in record.getMessage() for record in caplog.records) == 3


def test_the_debug_text_ends_in_the_two_lines_that_scripts_read():
    exe = mx.sym.exp(mx.sym.exp(mx.sym.Variable("x"))).simple_bind(mx.cpu(), x=(1 << 20,), memory="naive")
    lines = exe.debug_str().split("\n")
    assert lines[-3].startswith("Total ") and lines[-3].endswith(" MB allocated")
    assert lines[-2:] == ["Total 11 TempSpace resource requested", ""]
    assert int(lines[-3].split()[1]) == exe.plan.arenas[1].bytes >> 20 >= 12
    assert "Op:exp" in exe.debug_str()

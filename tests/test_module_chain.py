"""Modules in a chain and modules in Python train as one symbol does, carried states, and what is refused."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.module_support import UnknownParameters

from .training import iterator, samples


def parts():
    """The layers of a network as two symbols and as one."""
    def first(data):
        return mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=16, name="fc1"), act_type="relu", name="relu")

    def second(data):
        return mx.sym.FullyConnected(data, num_hidden=2, name="fc2")

    data = mx.sym.Variable("data")
    return first(data), second(data), second(first(data))


def chain(second=None, **metas):
    lower, upper, _ = parts()
    seq = mx.mod.SequentialModule()
    seq.add(mx.mod.Module(lower, label_names=[])).add(
        mx.mod.Module(mx.sym.SoftmaxOutput(upper, name="softmax")) if second is None else second,
        **(metas or {"take_labels": True, "auto_wiring": True}))
    return seq


def fitted(module, **kwargs):
    mx.random.seed(1)
    module.fit(iterator(), num_epoch=3, optimizer_params={"learning_rate": 0.5, "momentum": 0.9},
               arg_params={name: mx.nd.array(np.random.RandomState(k).randn(*shape) * 0.3) for k, (name, shape) in
                           enumerate((("fc1_weight", (16, 6)), ("fc1_bias", (16,)), ("fc2_weight", (2, 16)),
                                      ("fc2_bias", (2,))))}, **kwargs)
    return {name: value.asnumpy() for name, value in module.get_params()[0].items()}


def test_a_chain_trains_scores_and_predicts_as_one_module(caplog):
    whole = mx.mod.Module(mx.sym.SoftmaxOutput(parts()[2], name="softmax"))
    expected, seq = fitted(whole), chain()
    found = fitted(seq, batch_end_callback=mx.callback.Speedometer(8, 2))
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
    data = iterator(60, 8)
    assert dict(seq.score(data, "acc")) == pytest.approx(dict(whole.score(data, "acc")))
    np.testing.assert_allclose(seq.predict(data).asnumpy(), whole.predict(data).asnumpy(), rtol=1e-4, atol=1e-5)
    assert seq.data_names == ["data"] and seq.output_names == ["softmax_output"]
    assert seq.output_shapes == [("softmax_output", (8, 2))] and seq.label_shapes == iterator().provide_label


def test_a_chain_gives_the_gradient_of_its_data():
    lower, upper, net = parts()
    whole, seq = mx.mod.Module(net, label_names=[]), chain(mx.mod.Module(upper, label_names=[]), auto_wiring=True)
    draw = np.random.RandomState(2)
    data, head = mx.nd.array(draw.randn(8, 6)), mx.nd.array(draw.randn(8, 2))
    values = {name: mx.nd.array(draw.randn(*shape)) for name, shape in
              (("fc1_weight", (16, 6)), ("fc1_bias", (16,)), ("fc2_weight", (2, 16)), ("fc2_bias", (2,)))}
    found = []
    for module in (whole, seq):
        module.bind([("data", (8, 6))], inputs_need_grad=True)
        module.init_params(arg_params=values)
        module.forward(mx.io.DataBatch([data], []), is_train=True)
        module.backward([head])
        found.append(module.get_input_grads()[0].asnumpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def softmax_gradient(scores, labels):
    scores, labels = scores.asnumpy(), labels.asnumpy().astype(int)
    exponents = np.exp(scores - scores.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True) - np.eye(scores.shape[1])[labels]


def test_a_loss_in_python_trains_as_the_operator_does():
    upper = parts()[1]
    seq = chain(mx.mod.Module(upper, label_names=[]), auto_wiring=True)
    seq.add(mx.mod.PythonLossModule(grad_func=softmax_gradient), take_labels=True, auto_wiring=True)
    found = fitted(seq)
    for name, value in fitted(mx.mod.Module(mx.sym.SoftmaxOutput(parts()[2], name="softmax"))).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
    assert seq.output_names == ["pyloss_output"]
    assert 0.5 < dict(seq.score(iterator(60, 8), "acc"))["accuracy"] <= 1


def test_a_module_of_ones_own_may_follow_in_python():
    class Doubled(mx.mod.PythonModule):
        def _compute_output_shapes(self):
            return [("doubled", self.data_shapes[0][1])]

        def forward(self, data_batch, is_train=None):
            self.value = data_batch.data[0]

        def get_outputs(self, merge_multi_context=True):
            return [self.value * 2]

        def update_metric(self, eval_metric, labels, pre_sliced=False):
            eval_metric.update(labels, self.get_outputs())

    module = Doubled(["data"], ["label"], ["doubled"])
    module.bind([("data", (2, 3))], [("label", (2, 3))], for_training=False)
    module.init_params()
    data = mx.io.NDArrayIter({"data": np.ones((4, 3))}, {"label": np.zeros((4, 3))}, batch_size=2)
    assert dict(module.score(data, "mse")) == {"mse": 4.0} and module.get_params() == ({}, {})
    assert module.predict(data).shape == (4, 3)
    with pytest.raises(MXNetError, match=r"takes the data \['data'\], and was bound with \['x'\]"):
        module.bind([("x", (2, 3))], force_rebind=True)


def test_misuse_of_a_chain_is_told():
    seq = mx.mod.SequentialModule()
    with pytest.raises(MXNetError, match="without modules"):
        seq.bind([("data", (8, 6))])
    with pytest.raises(AssertionError, match='Unknown meta "take_label", a typo'):
        seq.add(mx.mod.Module(parts()[0], label_names=[]), take_label=True)
    twice = mx.mod.SequentialModule()
    for _ in range(2):
        twice.add(mx.mod.Module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="fc"),
                                label_names=[]), auto_wiring=True)
    twice.bind([("data", (8, 6))])
    with pytest.raises(MXNetError, match="'fc_weight' is in the modules 0 and 1"):
        twice.init_params()
    seq = chain()
    data = iterator()
    seq.bind(data.provide_data, data.provide_label)
    with pytest.raises(MXNetError, match="no module has fc9_weight"):
        seq.init_params(arg_params={"fc9_weight": mx.nd.ones(1)}, allow_missing=True)
    with pytest.raises(MXNetError, match="takes no out_grads"):
        mx.mod.PythonLossModule().backward([mx.nd.ones(1)])


def recurrent():
    cell = mx.rnn.GRUCell(4, prefix="g_")
    begin = cell.begin_state(func=mx.sym.Variable)
    outputs, states = cell.unroll(3, mx.sym.Variable("data"), begin, merge_outputs=True)
    return mx.sym.Group([outputs, *states]), [state.name for state in begin]


def test_states_are_carried_from_batch_to_batch():
    """Two halves of a sequence, the second from the state of the first, give the outputs of the whole."""
    net, names = recurrent()
    module = mx.mod.Module(net, label_names=None, state_names=names)
    module.bind([("data", (2, 3, 5))], for_training=False)
    mx.random.seed(0)
    module.init_params(mx.init.Xavier())
    assert sorted(module.get_params()[0]) == ["g_h2h_bias", "g_h2h_weight", "g_i2h_bias", "g_i2h_weight"]
    cell = mx.rnn.GRUCell(4, prefix="g_")
    outputs, _ = cell.unroll(6, mx.sym.Variable("data"), merge_outputs=True)
    whole = mx.mod.Module(outputs, label_names=None)
    whole.bind([("data", (2, 6, 5))], for_training=False)
    whole.init_params(arg_params=module.get_params()[0])
    data = np.random.RandomState(1).randn(2, 6, 5)
    found = []
    for half in (data[:, :3], data[:, 3:]):
        module.forward(mx.io.DataBatch([mx.nd.array(half)], []))
        found.append(module.get_outputs()[0].asnumpy())
        module.set_states(states=module.get_outputs()[1:])
    whole.forward(mx.io.DataBatch([mx.nd.array(data)], []))
    np.testing.assert_allclose(np.concatenate(found, 1), whole.get_outputs()[0].asnumpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(module.get_states()[0].asnumpy(), module.get_outputs()[1].asnumpy())


def test_states_are_zeros_a_number_or_arrays_and_follow_the_batch():
    net, names = recurrent()
    module = mx.mod.Module(net, label_names=None, state_names=names)
    module.bind([("data", (2, 3, 5))], for_training=False)
    module.init_params(mx.init.Zero())      # the output is half the state then
    batch = mx.io.DataBatch([mx.nd.zeros((2, 3, 5))], [])
    module.forward(batch)
    assert not module.get_outputs()[1].asnumpy().any()
    module.set_states(value=1)
    module.forward(batch)
    np.testing.assert_allclose(module.get_outputs()[1].asnumpy(), 0.125)
    module.set_states(states=[[mx.nd.full((2, 4), 8)]])
    module.forward(batch)
    np.testing.assert_allclose(module.get_outputs()[1].asnumpy(), 1.0)
    assert module.get_states(merge_multi_context=False)[0][0].shape == (2, 4)
    module.forward(mx.io.DataBatch([mx.nd.zeros((3, 3, 5))], []))
    assert module.get_states()[0].asnumpy().tolist() == np.zeros((3, 4)).tolist()
    for wrong, message in (({}, "either states="), ({"states": []}, "0 arrays"),
                           ({"states": [mx.nd.zeros((1, 4))]}, r"shape \(3, 4\).*\(1, 4\)")):
        with pytest.raises(MXNetError, match=message):
            module.set_states(**wrong)
    with pytest.raises(ValueError, match="state_names"):
        mx.mod.Module(net, label_names=None, state_names=["nothing"])


def test_states_train_and_are_no_parameters():
    net, names = recurrent()
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(net[0])), name="loss")
    module = mx.mod.Module(net, label_names=None, state_names=names)
    module.bind([("data", (2, 3, 5))])
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 0.1})
    module.set_states(value=1)
    batch, losses = mx.io.DataBatch([mx.nd.array(samples(2)[0][:, None, :5].repeat(3, 1))], []), []
    for _ in range(20):
        module.training_step()(batch)
        losses.append(float(module.get_outputs()[0].asnumpy().sum()))
    assert losses[-1] < losses[0] / 2
    assert (module.get_states()[0].asnumpy() == 1).all()


def test_what_set_params_refuses_is_of_the_kinds_that_scripts_catch():
    module = mx.mod.Module(mx.sym.SoftmaxOutput(parts()[2], name="softmax"))
    data = iterator()
    module.bind(data.provide_data, data.provide_label)
    module.init_params()
    right = module.get_params()[0]
    missing = {name: value for name, value in right.items() if name != "fc2_bias"}
    extra = {**right, "fc9_weight": mx.nd.ones(1)}
    module.set_params(missing, {}, allow_missing=True)
    module.set_params(extra, {}, allow_missing=True, allow_extra=True)
    with pytest.raises(RuntimeError, match="fc2_bias is not presented"):
        module.set_params(missing, {}, allow_missing=False)
    with pytest.raises(ValueError, match="fc9_weight is not in the symbol"):
        module.set_params(extra, {}, allow_missing=True, allow_extra=False)
    with pytest.raises(RuntimeError, match="fc2_bias.*fc9_weight"):
        module.set_params({**missing, "fc9_weight": mx.nd.ones(1)}, {}, allow_missing=False)
    assert issubclass(UnknownParameters, MXNetError)

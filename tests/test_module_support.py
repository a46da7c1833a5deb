"""Module: what it refuses, and what it warns of."""
from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from tests.training import batches, module, prepared, samples


@pytest.mark.parametrize("kwargs, message", [
    ({"context": [mx.cpu(0), mx.cpu(1)]}, "one device"), ({"group2ctxs": {"dev1": mx.cpu()}}, "group2ctxs"),
    ({"context": [mx.cpu(0), mx.cpu(0)]}, r"give one, such as mx.cpu\(\)"),
    ({"compression_params": {"type": "2bit"}}, "compression_params")])
def test_what_needs_several_devices_is_refused_by_name(kwargs, message):
    with pytest.raises(MXNetError, match=message):
        module(**kwargs)


@pytest.mark.parametrize("kvstore", ["local", "device", None, mx.kvstore.create("device")])
def test_kvstores_of_one_worker_mean_nothing(kvstore):
    mod = prepared()
    mod.init_optimizer(kvstore=kvstore, force_init=True)


@pytest.mark.parametrize("kvstore", ["dist_sync", SimpleNamespace(type="dist_sync")])
def test_other_kvstores_are_refused(kvstore):
    with pytest.raises(MXNetError, match="kvstore"):
        prepared().init_optimizer(kvstore=kvstore, force_init=True)


def test_a_kvstore_answers_what_scripts_ask():
    store = mx.kvstore.create("local")
    assert (store.rank, store.num_workers, store.type) == (0, 1, "local")
    with pytest.raises(MXNetError, match="no kvstore 'dist_async'"):
        mx.kvstore.create("dist_async")


def test_an_unknown_data_name_is_an_error_and_an_unknown_label_name_a_warning():
    with pytest.raises(ValueError, match="input with name 'image' is not found.*\n\tdata"):
        module(data_names=["image"])
    with pytest.warns(UserWarning, match="input with name 'label' is not found"):
        module(label_names=["label"])
    with pytest.raises(ValueError, match="fixed_param_names.*\n\tfc1_weight\n\tfc1_bias\n\tfc2_weight\n\tfc2_bias$"):
        module(fixed_param_names=["nothing"])


def test_what_is_no_context_no_initializer_no_iterator_and_no_batch_is_told_so():
    mod, (data, label) = prepared(), samples(8)
    for call, reason in (
            (lambda: module(context="cpu"), "context='cpu' is no context; give mx.cpu"),
            (lambda: mod.init_params("xavier", force_init=True), "initializer='xavier' is no initializer"),
            (lambda: mod.fit(data, num_epoch=1), "fit takes its data from an iterator, got ndarray"),
            (lambda: mod.score(data, "acc"), "score takes its data from an iterator, got ndarray"),
            (lambda: mod.forward(data), "takes a DataBatch .* got ndarray"),
            (lambda: mod.forward(mx.io.DataBatch([data, data], [label])), "2 data arrays, .*data_names are")):
        with pytest.raises(MXNetError, match=reason):
            call()


def test_a_module_is_neither_copied_nor_pickled():
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="save_checkpoint writes it"):
            copied(prepared())


def test_a_batch_that_does_not_fit_leaves_the_module_as_it_was():
    mod, (data, label) = prepared(), samples(8)
    described = mod.data_shapes
    with pytest.raises(MXNetError, match=r"fc1_weight is bound with shape \(16, 6\).*give inputs whose shapes"):
        mod.forward(mx.io.DataBatch([mx.nd.array(data[:, :5])], [mx.nd.array(label)]))
    assert mod.data_shapes == described
    mod.forward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)]))
    assert mod.get_outputs()[0].shape == (8, 2)


def test_shapes_under_other_names_are_refused():
    with pytest.raises(ValueError, match="data_shapes don't match names specified by data_names"):
        module().bind([("image", (8, 6))])


@pytest.mark.parametrize("call", [
    lambda m: m.init_params(), lambda m: m.forward(None), lambda m: m.data_shapes, lambda m: m.get_params(),
    lambda m: m.score(None, "acc"), lambda m: m.init_optimizer()])
def test_steps_of_the_preparation_that_were_left_out_are_named(call):
    with pytest.raises(AssertionError, match="call bind before"):
        call(module())


def test_update_needs_an_optimizer():
    mod = module()
    mod.bind([("data", (8, 6))], [("softmax_label", (8,))])
    with pytest.raises(AssertionError, match="no values"):
        mod.forward(batches(1)[0])
    mod.init_params()
    with pytest.raises(AssertionError, match="call init_optimizer before"):
        mod.update()


def test_a_second_bind_is_ignored_with_a_warning(caplog):
    mod = prepared()
    mod.bind([("data", (4, 6))])
    assert mod.data_shapes[0].shape == (8, 6) and "Already bound" in caplog.text


def test_a_ready_optimizer_that_does_not_divide_by_the_batch_warns():
    with pytest.warns(UserWarning, match="rescale_grad is not normalized"):
        prepared().init_optimizer(optimizer=mx.optimizer.create("sgd"), force_init=True)


def test_a_ready_optimizer_learns_the_names_of_the_parameters(recwarn):
    optimizer = mx.optimizer.create("sgd", rescale_grad=1 / 8)
    prepared().init_optimizer(optimizer=optimizer, force_init=True)
    assert optimizer.idx2name == {0: "fc1_weight", 1: "fc1_bias", 2: "fc2_weight", 3: "fc2_bias"}
    assert not recwarn.list


@pytest.mark.parametrize("normalization", ["batch", "valid"])
def test_dividing_by_the_batch_twice_warns(normalization):
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"),
                               normalization=normalization, name="softmax")
    with pytest.warns(UserWarning, match="softmax divides its gradient"):
        prepared(net)


def labelled(label_shape, normalization="batch", **optimizer_params):
    """One step of a module whose loss is asked to divide, from the same weights: how far the weights move."""
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"),
                               normalization=normalization, name="softmax")
    mod = mx.mod.Module(net)
    mod.bind([("data", (8, 6))], [("softmax_label", label_shape)])
    mod.init_params(mx.init.Constant(0.1))
    mod.init_optimizer(optimizer_params={"learning_rate": 1.0, **optimizer_params})
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 2, 8)
    label = classes if len(label_shape) == 1 else np.eye(2)[classes]
    before = mod.get_params()[0]["fc_weight"].asnumpy()
    mod.forward_backward(mx.io.DataBatch([mx.nd.array(rng.normal(size=(8, 6)))], [mx.nd.array(label)]))
    mod.update()
    return mod.get_params()[0]["fc_weight"].asnumpy() - before


def test_a_loss_over_probabilities_divides_by_nothing_and_nobody_is_told_to_turn_rescaling_off(recwarn):
    means = labelled((8, 2))
    assert not recwarn.list
    np.testing.assert_allclose(means, labelled((8,), "null"), rtol=1e-5)
    assert not recwarn.list


def test_turning_rescaling_off_beside_probabilities_warns_of_steps_that_are_too_large():
    with pytest.warns(UserWarning, match="softmax has labels of its data's shape.*8 times as large"):
        sums = labelled((8, 2), rescale_grad=1.0)
    np.testing.assert_allclose(sums, 8 * labelled((8, 2)), rtol=1e-5)


def test_classes_are_divided_by_the_loss_that_is_asked_to(recwarn):
    np.testing.assert_allclose(labelled((8,), rescale_grad=1.0), labelled((8,), "null"), rtol=1e-5)
    assert not recwarn.list


def test_of_two_losses_of_which_one_divides_the_advice_is_to_divide_nowhere_twice():
    data = mx.sym.Variable("data")
    net = mx.sym.Group([mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=2, name="fc"), name="softmax",
                                             normalization="batch"),
                        mx.sym.MakeLoss(mx.sym.sum(data), name="other")])
    with pytest.warns(UserWarning, match=r"does so again; pass normalization='null' to the loss"):
        prepared(net)
    averaged = mx.sym.MakeLoss(mx.sym.sum(mx.sym.FullyConnected(data, num_hidden=2), axis=1), name="loss",
                               normalization="batch")
    with pytest.warns(UserWarning, match=r"loss divides its gradient.*pass rescale_grad=1.0"):
        prepared(averaged, label_names=None)


def test_a_whole_step_needs_losses():
    mod = module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"), label_names=None)
    mod.bind([("data", (8, 6))])
    mod.init_params()
    mod.init_optimizer()
    with pytest.raises(MXNetError, match="fc_output is no loss"):
        mod.training_step()(batches(1)[0])
    mod.forward(batches(1)[0], is_train=True)
    mod.backward([mx.nd.ones((8, 2))])
    mod.update()

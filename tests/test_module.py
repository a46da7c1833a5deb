"""Module: training, evaluation and prediction, with poisoned memory."""
from __future__ import annotations

import logging
from functools import partial

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.io import DataBatch, NDArrayIter
from tests.training import assert_same, batches, everything, iterator, mlp, module, prepared, samples

# -- fit -----------------------------------------------------------------------------------------------------


def test_fit_learns_a_small_problem(caplog):
    caplog.set_level(logging.INFO)
    mx.random.seed(0)
    mod = module()
    mod.fit(iterator(256, 16), eval_data=iterator(256, 16), num_epoch=30, initializer=mx.init.Xavier(),
            optimizer_params={"learning_rate": 0.1, "momentum": 0.9})
    assert dict(mod.score(iterator(256, 16), "acc"))["accuracy"] > 0.95
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("=")[0] for line in lines[:3]] == [
        "Epoch[0] Train-accuracy", "Epoch[0] Time cost", "Epoch[0] Validation-accuracy"]
    assert list(mod._executor._programs) == ["step", "eval"]


def test_fit_follows_pytorch():
    torch = pytest.importorskip("torch")
    mod = prepared()
    weights = {name: torch.tensor(array, requires_grad=True) for name, array in everything(mod).items()}
    peer = torch.optim.SGD(weights.values(), lr=0.1, momentum=0.9)
    mod.init_optimizer(optimizer_params={"learning_rate": 0.1, "momentum": 0.9}, force_init=True)
    mod.fit(iterator(), num_epoch=3)
    for batch in [batch for _ in range(3) for batch in batches(8)]:
        hidden = torch.tensor(batch.data[0].asnumpy()) @ weights["fc1_weight"].T + weights["fc1_bias"]
        scores = torch.relu(hidden) @ weights["fc2_weight"].T + weights["fc2_bias"]
        peer.zero_grad()
        torch.nn.functional.cross_entropy(scores, torch.tensor(batch.label[0].asnumpy()).long()).backward()
        peer.step()
    for name, array in everything(mod).items():
        np.testing.assert_allclose(array, weights[name].detach().numpy(), rtol=1e-4, atol=1e-5)


def fitted(seed, **kwargs):
    mx.random.seed(seed)
    mod = module(mlp(dropout=0.5, norm=True))
    mod.fit(iterator(shuffle=True), num_epoch=2, initializer=mx.init.Xavier(), **kwargs)
    return everything(mod)


def test_fit_twice_from_one_seed_gives_the_same_bits():
    first, again, other = fitted(1), fitted(1), fitted(2)
    assert_same(first, again)
    assert not np.array_equal(first["fc1_weight"], other["fc1_weight"])


def test_fit_needs_a_number_of_epochs():
    with pytest.raises(AssertionError, match="please specify number of epochs"):
        module().fit(iterator())


def test_fit_trains_on_the_rows_that_fill_the_last_batch():
    data, label = samples(6)
    results = []
    for order in ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 0, 1]):
        mx.random.seed(0)
        mod = module()
        mod.fit(NDArrayIter(data[order], label[order], batch_size=4), num_epoch=1)
        results.append(everything(mod))
    assert_same(*results)


def test_fit_follows_a_scheduler():
    scheduler = mx.lr_scheduler.MultiFactorScheduler(step=[5, 9], factor=0.1)
    mod = module()
    mod.fit(iterator(), num_epoch=2, optimizer_params={"learning_rate": 1.0, "lr_scheduler": scheduler})
    assert mod._optimizer.num_update == 16
    assert mod._optimizer.learning_rate == pytest.approx(0.01)
    before = everything(mod)
    mod._optimizer.lr_scheduler.base_lr = 0.0
    mod.fit(iterator(), num_epoch=1)
    assert_same(before, everything(mod))


@pytest.mark.parametrize("optimizer, first, second", [
    ("sgd", {"momentum": 0.9}, {"momentum": 0.5}), ("sgd", {"momentum": 0.0}, {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9}, {"momentum": 0.0}), ("adam", {"beta1": 0.9}, {"beta1": 0.5, "epsilon": 1e-4}),
    ("sgd", {"clip_gradient": None}, {"clip_gradient": 1e-3, "wd": 0.5}), ("sgd", {}, {"clip_global_norm": 1e-2})])
def test_constants_of_an_optimizer_may_change_between_steps_of_any_form(optimizer, first, second):
    found = []
    for apart in (False, True):
        mod = prepared(optimizer=optimizer, params={"learning_rate": 0.1, **first})
        for k, batch in enumerate(batches(4)):
            if apart:
                mod.forward_backward(batch)
            if k == 2:
                vars(mod._optimizer).update(second)
            if apart:
                mod.update()
            else:
                mod.training_step()(batch)
        found.append(everything(mod))
    assert_same(*found)
    unchanged = prepared(optimizer=optimizer, params={"learning_rate": 0.1, **first})
    for batch in batches(4):
        unchanged.training_step()(batch)
    assert any(not np.array_equal(array, found[0][name]) for name, array in everything(unchanged).items())


def test_callbacks_are_told_epoch_batch_and_metric():
    seen, epochs = [], []
    mod = module()


    def batch_end(param):
        seen.append((param.epoch, param.nbatch, dict(param.eval_metric.get_name_value())))

    def epoch_end(epoch, symbol, arguments, states):
        epochs.append((epoch, symbol, sorted(arguments), states))

    mod.fit(iterator(24), num_epoch=2, eval_metric=["acc", "ce"], batch_end_callback=batch_end,
            epoch_end_callback=epoch_end)
    assert [each[:2] for each in seen] == [(epoch, batch) for epoch in range(2) for batch in range(3)]
    assert set(seen[0][2]) == {"accuracy", "cross-entropy"}
    assert epochs == [(epoch, mod.symbol, ["fc1_bias", "fc1_weight", "fc2_bias", "fc2_weight"], {})
                      for epoch in range(2)]


def test_an_epochs_figure_covers_the_epoch_whatever_callbacks_reset(caplog):
    caplog.set_level(logging.INFO)
    figures = []
    for callback in (None, lambda param: param.eval_metric.reset_local()):
        mx.random.seed(0)
        caplog.clear()
        module().fit(iterator(), num_epoch=1, batch_end_callback=callback)
        figures.append([r.getMessage() for r in caplog.records if "Train" in r.getMessage()])
    assert figures[0] == figures[1] and len(figures[0]) == 1


CASES = {
    "sgd": (mlp(), "sgd", {"learning_rate": 0.1, "wd": 0.01}),
    "momentum": (mlp(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}),
    "adam": (mlp(), "adam", {"learning_rate": 0.01}),
    "dropout": (mlp(dropout=0.5), "sgd", {"learning_rate": 0.1, "momentum": 0.9}),
    "norm": (mlp(norm=True), "nag", {"learning_rate": 0.1, "momentum": 0.9}),
    "norm, dropout, global norm": (mlp(0.5, True), "adam", {"clip_global_norm": 0.01}),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_steps_equal_forward_backward_and_update_bit_for_bit(case):
    symbol, optimizer, params = CASES[case]
    whole, apart = prepared(symbol, optimizer, params), prepared(symbol, optimizer, params)
    start = everything(apart)
    for batch in batches():
        whole.training_step()(batch)
        apart.forward_backward(batch)
        apart.update()
        assert np.array_equal(whole.get_outputs()[0].asnumpy(), apart.get_outputs()[0].asnumpy())
    assert_same(everything(whole), everything(apart))
    assert not np.array_equal(start["fc1_weight"], everything(apart)["fc1_weight"])
    assert set(whole._executor._programs) == {"step"}
    assert set(apart._executor._programs) == {"train", "update"}


class Watcher:
    """A monitor that reads gradients."""

    def __init__(self):
        self.norms = []

    def install(self, executor):
        self.executor = executor

    def tic(self):
        pass

    def toc_print(self):
        self.norms.append(float(np.abs(self.executor.grad_dict["fc1_weight"].asnumpy()).sum()))


def test_fit_keeps_gradients_for_a_monitor_and_says_so_once(caplog):
    caplog.set_level(logging.INFO)
    watcher, results = Watcher(), []
    for monitor in (None, watcher):
        mx.random.seed(0)
        mod = module()
        mod.fit(iterator(24), num_epoch=2, monitor=monitor)
        results.append(everything(mod))
    assert_same(*results)
    assert len(watcher.norms) == 6 and min(watcher.norms) > 0
    told = [r.getMessage() for r in caplog.records if "keeps all gradients" in r.getMessage()]
    assert told == ["fit runs forward, backward and update apart and keeps all gradients, since a monitor is "
                    "installed"]


@pytest.mark.parametrize("bind, optimizer, reason", [
    ({"inputs_need_grad": True}, "sgd", "gradients of the inputs"), ({"grad_req": "add"}, "sgd", "'add'"),
    ({}, "test", "Test has no graph form")])
def test_fit_says_why_it_keeps_gradients(caplog, bind, optimizer, reason):
    caplog.set_level(logging.INFO)
    mod = module()
    data = iterator()
    mod.bind(data.provide_data, data.provide_label, **bind)
    mod.fit(data, num_epoch=1, optimizer=optimizer, optimizer_params={})
    assert sum(reason in record.getMessage() for record in caplog.records) == 1


def test_an_optimizer_without_graph_form_is_called_on_each_parameter():
    mod = prepared(optimizer="test", params={"rescale_grad": 2.0})
    before = everything(mod)
    mod.forward_backward(batches(1)[0])
    gradients = {name: g.asnumpy() for name, g in mod._executor.grad_dict.items()}
    mod.update()
    for name, array in everything(mod).items():
        np.testing.assert_array_equal(array, before[name] + 2 * gradients[name])


@pytest.mark.parametrize("name", ["forward", "backward", "forward_backward", "update"])
def test_fit_calls_what_a_subclass_or_a_script_puts_in_the_place_of_a_method(name, caplog):
    calls = []

    class Mine(mx.mod.Module):
        pass

    def counted(self, *args, **kwargs):
        calls.append(name)
        return getattr(mx.mod.Module, name)(self, *args, **kwargs)

    setattr(Mine, name, counted)
    patched = module()
    setattr(patched, name, partial(counted, patched))
    found = []
    for mod, text in ((Mine(mlp()), f"Mine has {name} of its own"), (patched, f"Module has {name}"), (module(), None)):
        calls.clear()
        caplog.clear()
        mx.random.seed(1)
        with caplog.at_level(logging.INFO):
            mod.fit(iterator(32, 8), num_epoch=1, initializer=mx.init.Xavier())
        assert len(calls) == (4 if text else 0) and (not text or text in caplog.text)
        found.append(everything(mod))
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


def test_the_loss_is_divided_by_the_batch_once():
    mod = prepared(params={"learning_rate": 1.0})
    batch = batches(1)[0]
    before = everything(mod)
    mod.forward_backward(batch)
    gradient = mod._executor.grad_dict["fc2_bias"].asnumpy()
    p = mod.get_outputs()[0].asnumpy()
    p[np.arange(8), batch.label[0].asnumpy().astype(int)] -= 1
    np.testing.assert_allclose(gradient, p.sum(0), rtol=1e-5, atol=1e-6)
    mod.update()
    expected = before["fc2_bias"] - p.mean(0)
    np.testing.assert_allclose(everything(mod)["fc2_bias"], expected, rtol=1e-5, atol=1e-6)


def test_a_dict_of_requests_leaves_the_parameters_that_it_does_not_name_trained():
    mod, data = module(), iterator()
    mod.bind(data.provide_data, data.provide_label, grad_req={"fc1_weight": "add", "fc2_bias": "null"})
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer()
    before = everything(mod)
    for _ in range(2):
        mod.forward_backward(batches(1)[0])
    gradients = {name: g.asnumpy() for name, g in mod._executor.grad_dict.items() if g is not None}
    mod.update()
    moved = {name for name, value in everything(mod).items() if not np.array_equal(value, before[name])}
    assert moved == set(gradients) == {"fc1_weight", "fc1_bias", "fc2_weight"}
    whole = module()
    whole.bind(data.provide_data, data.provide_label)
    whole.set_params({name: mx.nd.array(value) for name, value in before.items()}, {})
    whole.forward_backward(batches(1)[0])
    once = whole._executor.grad_dict["fc1_weight"].asnumpy()
    np.testing.assert_allclose(gradients["fc1_weight"], 2 * once, rtol=1e-6)
    for wrong in ({"fc3_weight": "write"}, {"fc1_weight": "wrte"}, ["write"]):
        with pytest.raises(MXNetError, match="grad_req"):
            module().bind(data.provide_data, data.provide_label, grad_req=wrong)


def test_fixed_parameters_stay():
    mod = prepared(params={"learning_rate": 0.1, "wd": 0.1}, fixed_param_names=["fc1_weight", "fc1_bias"])
    before = everything(mod)
    for batch in batches():
        mod.training_step()(batch)
    after = everything(mod)
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith("fc1")


def test_gradients_of_the_inputs():
    mod, data = module(), iterator()
    mod.bind(data.provide_data, data.provide_label, inputs_need_grad=True)
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer()
    batch = batches(1)[0]
    mod.forward_backward(batch)
    parameters, p = everything(mod), mod.get_outputs()[0].asnumpy()
    p[np.arange(8), batch.label[0].asnumpy().astype(int)] -= 1
    hidden = batch.data[0].asnumpy() @ parameters["fc1_weight"].T + parameters["fc1_bias"]
    expected = ((p @ parameters["fc2_weight"]) * (hidden > 0)) @ parameters["fc1_weight"]
    np.testing.assert_allclose(mod.get_input_grads()[0].asnumpy(), expected, rtol=1e-4, atol=1e-6)
    mod.update()
    assert not np.array_equal(everything(mod)["fc2_bias"], parameters["fc2_bias"])
    assert set(mod._executor.program("update").plan.parameters) == set(parameters)
    with pytest.raises(AssertionError, match="inputs_need_grad=True"):
        prepared().get_input_grads()


# -- other batch sizes, score and predict --------------------------------------------------------------------


def test_score_and_predict_count_real_rows_only():
    mod = prepared(batch_size=4)
    data, label = samples(10)
    expected = mod.predict(NDArrayIter(data, label, batch_size=10)).asnumpy()
    assert expected.shape == (10, 2)
    padded = NDArrayIter(data, label, batch_size=4)
    np.testing.assert_allclose(mod.predict(padded).asnumpy(), expected, rtol=1e-6)
    accuracy = (expected.argmax(1) == label).mean()
    assert dict(mod.score(padded, ["acc", "ce"]))["accuracy"] == pytest.approx(accuracy)
    ce = -np.log(expected[np.arange(10), label.astype(int)]).mean()
    assert dict(mod.score(padded, ["acc", "ce"]))["cross-entropy"] == pytest.approx(ce, rel=1e-5)


def test_predict_gives_batches_apart_or_joined():
    mod = prepared(batch_size=4)
    data = NDArrayIter(samples(10)[0], batch_size=4)
    apart = mod.predict(data, merge_batches=False)
    assert [[out.shape for out in outs] for outs in apart] == [[(4, 2)], [(4, 2)], [(2, 2)]]
    joined, = mod.predict(data, always_output_list=True)
    assert np.array_equal(joined.asnumpy(), np.concatenate([outs[0].asnumpy() for outs in apart]))
    assert mod.predict(data, num_batch=2).shape == (8, 2)
    assert [number for _, number, _ in mod.iter_predict(data)] == [0, 1, 2]
    assert np.array_equal(mod.predict(samples(10)[0][:4]).asnumpy(), joined.asnumpy()[:4])


def test_score_stops_after_the_batches_asked_for_and_calls_back():
    seen = []
    prepared().score(iterator(), "acc", num_batch=3, batch_end_callback=lambda p: seen.append(p.nbatch),
                     score_end_callback=lambda p: seen.append(("end", p.nbatch)), epoch=4)
    assert seen == [0, 1, 2, ("end", 3)]


def test_a_batch_of_another_size_uses_the_same_parameters_and_memory():
    mod = prepared()
    group = mod._executor.group
    large, small = batches(1, 8)[0], batches(1, 2)[0]
    mod.forward(small, is_train=False)
    assert mod.get_outputs()[0].shape == (2, 2) and mod.data_shapes[0].shape == (2, 6)
    mod.training_step()(small)
    mod.training_step()(large)
    assert mod.output_shapes == [("softmax_output", (8, 2))]
    assert mod._executor.group is group and len(mod._executors) == 2
    persistent = group.layout.bytes
    for batch in (small, large, small):
        mod.training_step()(batch)
    assert group.layout.bytes == persistent and len(mod._executors) == 2


def test_training_with_changing_sizes_equals_training_apart():
    whole, apart = [prepared(params={"learning_rate": 0.1, "momentum": 0.9}) for _ in range(2)]
    for size in (8, 2, 8, 3):
        batch = batches(1, size)[0]
        whole.training_step()(batch)
        apart.forward_backward(batch)
        apart.update()
    assert_same(everything(whole), everything(apart))


def test_executors_for_other_shapes_are_let_go():
    from minigraph.module import MAX_SHAPES
    mod = prepared()
    for size in range(1, MAX_SHAPES + 5):
        mod.forward(batches(1, size)[0], is_train=False)
    assert len(mod._executors) == MAX_SHAPES


def test_evaluation_between_forward_and_backward_is_refused():
    mod = prepared()
    mod.forward(batches(1)[0], is_train=True)
    mod.score(iterator(), "acc")
    with pytest.raises(MXNetError, match="backward needs the values of the forward"):
        mod.backward()


def test_a_module_without_labels_predicts():
    mod = module()
    mod.bind([("data", (4, 6))], for_training=False)
    mod.init_params(mx.init.Xavier())
    mod.forward(DataBatch([mx.nd.array(samples(4)[0])]))
    np.testing.assert_allclose(mod.get_outputs()[0].asnumpy().sum(1), np.ones(4), rtol=1e-6)
    assert mod.label_shapes is None


def test_training_without_labels_names_the_input():
    mod = prepared()
    with pytest.raises(MXNetError, match="input softmax_label was not given"):
        mod.forward(DataBatch([mx.nd.array(samples(8)[0])]), is_train=True)


def test_training_a_module_that_is_bound_for_evaluation_is_refused():
    mod, data = module(), iterator()
    mod.bind(data.provide_data, data.provide_label, for_training=False)
    mod.init_params(mx.init.Xavier())
    with pytest.raises(AssertionError, match="re-bind with for_training=True"):
        mod.fit(data, num_epoch=1)
    mod.forward(batches(1)[0], is_train=True)
    with pytest.raises(AssertionError, match="re-bind with for_training=True"):
        mod.backward()
    mod.fit(iterator(), num_epoch=1, force_rebind=True)


def test_reshape_prepares_for_other_shapes():
    mod = prepared()
    mod.reshape([("data", (5, 6))], [("softmax_label", (5,))])
    assert mod.data_shapes[0].shape == (5, 6) and mod.label_shapes[0].shape == (5,)
    mod.training_step()(batches(1, 5)[0])

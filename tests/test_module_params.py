"""Module: parameters, the optimizer's states, and files of both."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from tests.training import assert_same, batches, everything, iterator, mlp, module, prepared


def test_initializers_are_asked_in_the_order_of_names():
    asked = []
    mod = module(mlp(norm=True))
    mod.bind([("data", (8, 6))], [("softmax_label", (8,))])
    mod.init_params(lambda name, array: asked.append(str(name)))
    arguments, states = mod.get_params()
    assert asked == sorted(arguments) + sorted(states)
    assert asked[-2:] == ["bn_moving_mean", "bn_moving_var"]


def test_an_initializer_sees_the_attributes_of_a_variable():
    weight = mx.sym.Variable("fc_weight", init=mx.init.Constant(3))
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), weight, num_hidden=2, name="fc")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    mod = module(net)
    mod.bind([("data", (8, 6))], [("softmax_label", (8,))])
    mod.init_params()
    assert (everything(mod)["fc_weight"] == 3).all() and (everything(mod)["fc_bias"] == 0).all()


def test_missing_extra_and_misshaped_parameters_are_named_at_once_and_nothing_is_set():
    mod = prepared()
    before = everything(mod)
    given = {"fc1_weight": mx.nd.zeros((16, 6)), "fc2_bias": mx.nd.zeros(3), "fc3_weight": mx.nd.zeros(1)}
    with pytest.raises(MXNetError) as raised:
        mod.set_params(given, {})
    message = str(raised.value)
    assert "fc1_bias, fc2_weight are not presented" in message
    assert "fc3_weight is not in the symbol" in message
    assert "fc2_bias has shape (3,), the symbol needs (2,)" in message
    assert_same(before, everything(mod))


def test_a_part_of_a_network_takes_its_own_of_all_parameters_and_warns_of_the_others():
    whole = prepared()
    part = mx.mod.Module(whole.symbol.get_internals()["relu_output"], label_names=None)
    part.bind([("data", (8, 6))], for_training=False)
    with pytest.warns(UserWarning, match="fc2_weight, fc2_bias are not in the symbol"):
        part.set_params(*whole.get_params())
    assert_same(everything(part), {name: value for name, value in everything(whole).items() if "fc1" in name})
    with pytest.raises(MXNetError, match="fc2_weight, fc2_bias are not in the symbol"):
        part.set_params(*whole.get_params(), allow_missing=True)


def test_parameters_may_be_lists_of_numbers_and_what_is_no_array_is_named():
    mod = prepared()
    given = {name: array.tolist() for name, array in everything(mod).items()}
    before = everything(mod)
    mod.set_params(given, {})
    assert_same(before, everything(mod))
    with pytest.raises(MXNetError, match=r"fc1_bias has shape \(\), the symbol needs \(16,\)"):
        mod.set_params({**given, "fc1_bias": "zeros"}, {})


def test_missing_and_extra_parameters_pass_when_allowed():
    mod = prepared()
    before = everything(mod)
    given = {"fc1_bias": mx.nd.ones(16), "more": mx.nd.ones(1)}
    mod.set_params(given, None, allow_missing=True, allow_extra=True)
    assert_same(everything(mod), {**before, "fc1_bias": np.ones(16, np.float32)})
    mod.init_params(mx.init.One(), {"fc1_bias": mx.nd.zeros(16)}, allow_missing=True, force_init=True)
    assert everything(mod)["fc1_bias"].max() == 0 and everything(mod)["fc1_weight"].min() == 1


def test_a_missing_parameter_is_a_runtime_error_as_in_mxnet():
    mod = module()
    mod.bind([("data", (8, 6))], [("softmax_label", (8,))])
    given = {name: array.copy() for name, array in mod._executor.arg_dict.items() if name != "fc2_bias"}
    with pytest.raises(RuntimeError, match="fc2_bias is not presented"):
        mod.init_params(mx.init.Xavier(), given)


def test_parameters_are_initialised_once_unless_forced():
    mod = prepared()
    before = everything(mod)
    with pytest.warns(UserWarning, match="already initialized"):
        mod.init_params(mx.init.One())
    assert_same(before, everything(mod))


def test_parameters_handed_out_are_copies():
    mod = prepared()
    before = everything(mod)
    mod.get_params()[0]["fc1_weight"][:] = 7
    assert_same(before, everything(mod))


def test_rebinding_keeps_parameters_and_optimizer_states():
    whole, rebound = [prepared(optimizer="adam", params={}) for _ in range(2)]
    for number, batch in enumerate(batches(4)):
        whole.training_step()(batch)
        if number == 2:
            rebound.bind([("data", (8, 6))], [("softmax_label", (8,))], force_rebind=True)
        rebound.training_step()(batch)
    assert_same(everything(whole), everything(rebound))


def test_evaluation_between_two_trainings_keeps_the_optimizers_states(tmp_path):
    whole, rebound = [prepared(optimizer="adam", params={}) for _ in range(2)]
    shapes = [("data", (8, 6))], [("softmax_label", (8,))]
    for number, batch in enumerate(batches(4)):
        whole.training_step()(batch)
        if number == 2:
            rebound.save_optimizer_states(str(tmp_path / "before"))
            for rows in (1, 3):
                rebound.bind([("data", (rows, 6))], for_training=False, force_rebind=True)
                assert rebound.predict(batch.data[0][:rows]).shape == (rows, 2)
            rebound.save_optimizer_states(str(tmp_path / "between"))
            rebound.bind(*shapes, force_rebind=True)
        rebound.training_step()(batch)
    assert_same(everything(whole), everything(rebound))
    assert (tmp_path / "before").read_bytes() == (tmp_path / "between").read_bytes()


def test_a_new_optimizer_begins_with_states_of_zero():
    params = {"learning_rate": 0.1, "momentum": 0.9}
    mod, fresh = prepared(params=params), prepared(params=params)
    start = mod.get_params()
    for batch in batches():
        mod.training_step()(batch)
    mod.set_params(*start)
    mod.init_optimizer(optimizer_params=params, force_init=True)
    mod.training_step()(batches()[0])
    fresh.training_step()(batches()[0])
    assert_same(everything(mod), everything(fresh))


def test_an_inference_twin_without_label_names_predicts_with_what_its_lender_has_learnt():
    lender = prepared()
    twin = mx.mod.Module(lender.symbol, label_names=None)
    twin.bind([("data", (8, 6))], for_training=False, shared_module=lender)
    batch = next(iter(batches(1)))
    for _ in range(2):
        twin.forward(mx.io.DataBatch(batch.data))
        found = twin.get_outputs()[0].asnumpy()
        lender.forward(batch, is_train=False)
        np.testing.assert_array_equal(found, lender.get_outputs()[0].asnumpy())
        lender.forward_backward(batch)
        lender.update()


def test_an_update_of_no_parameter_leaves_the_outputs_before_it_even_where_bytes_are_poisoned():
    mod = prepared(fixed_param_names=["fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"])
    mod.forward_backward(next(iter(batches(1))))
    before = mod.get_outputs()[0].asnumpy()
    mod.update()
    np.testing.assert_array_equal(mod.get_outputs()[0].asnumpy(), before)


def test_a_shared_module_lends_parameters_and_memory():
    lender = prepared(optimizer="adam", params={})
    mod = module()
    mod.bind([("data", (2, 6))], [("softmax_label", (2,))], shared_module=lender)
    mod.borrow_optimizer(lender)
    assert mod.params_initialized and mod._executor.group is lender._executor.group
    mod.training_step()(batches(1, 2)[0])
    assert_same(everything(mod), everything(lender))
    assert lender._optimizer.num_update == 1
    with pytest.raises(MXNetError, match="bind with shared_module="):
        prepared().borrow_optimizer(lender)


# -- files -------------------------------------------------------------------------------------------------


def test_parameters_come_back_from_a_file(tmp_path):
    mod, other = prepared(mlp(norm=True)), module(mlp(norm=True))
    mod.training_step()(batches(1)[0])
    mod.save_params(str(tmp_path / "a.params"))
    assert set(mx.nd.load(str(tmp_path / "a.params"))) >= {"arg:fc1_weight", "aux:bn_moving_var"}
    other.bind([("data", (3, 6))], [("softmax_label", (3,))])
    other.load_params(str(tmp_path / "a.params"))
    assert_same(everything(mod), everything(other))


def test_a_params_file_with_other_names_is_refused(tmp_path):
    mx.nd.save(str(tmp_path / "a.params"), {"fc1_weight": mx.nd.zeros(1)})
    with pytest.raises(MXNetError, match="Invalid param file .*a.params: 'fc1_weight' begins neither"):
        prepared().load_params(str(tmp_path / "a.params"))


@pytest.mark.parametrize("optimizer, params", [
    ("sgd", {"momentum": 0.9}), ("adam", {"wd": 0.01}), ("test", {})])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path, optimizer, params):
    symbol, prefix = mlp(dropout=0.5, norm=True), str(tmp_path / "net")
    whole = prepared(symbol, optimizer, params)
    for batch in batches(4):
        whole.training_step()(batch)
    first = prepared(symbol, optimizer, params)
    for batch in batches(4)[:2]:
        first.training_step()(batch)
    first.save_checkpoint(prefix, 2, save_optimizer_states=True)
    mx.random.seed(3)
    second = mx.mod.Module.load(prefix, 2, load_optimizer_states=True, poison=True)
    second.bind([("data", (8, 6))], [("softmax_label", (8,))])
    second.init_optimizer(optimizer=optimizer, optimizer_params=params)
    for batch in batches(4)[2:]:
        second.training_step()(batch)
    assert_same(everything(whole), everything(second))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net-0002.params", "net-0002.states",
                                                                "net-symbol.json"]


def test_fit_resumes_at_an_epoch(tmp_path):
    def fit(mod, begin, end):
        mod.fit(iterator(), optimizer="adam", begin_epoch=begin, num_epoch=end, initializer=mx.init.Xavier())
        return everything(mod)

    prefix = str(tmp_path / "net")
    mx.random.seed(3)
    whole = fit(module(), 0, 3)
    mx.random.seed(3)
    first = module()
    fit(first, 0, 2)
    first.save_checkpoint(prefix, 2, save_optimizer_states=True)
    with pytest.warns(UserWarning, match="already initialized"):
        assert_same(whole, fit(mx.mod.Module.load(prefix, 2, load_optimizer_states=True), 2, 3))


def test_states_of_another_network_are_refused_by_name(tmp_path):
    mod = prepared(params={"momentum": 0.9})
    mod.save_optimizer_states(str(tmp_path / "a.states"))
    other = prepared(mlp(norm=True), params={"momentum": 0.9})
    with pytest.raises(MXNetError, match="a.states: .*bn_beta, bn_gamma are missing"):
        other.load_optimizer_states(str(tmp_path / "a.states"))


def test_checkpoints_are_read_without_a_module(tmp_path):
    mod, prefix = prepared(mlp(norm=True)), str(tmp_path / "net")
    mx.callback.module_checkpoint(mod, prefix)(0)
    mx.callback.do_checkpoint(prefix)(1, mod.symbol, *mod.get_params())
    for epoch in (1, 2):
        symbol, arguments, states = mx.model.load_checkpoint(prefix, epoch)
        assert symbol.tojson() == mod.symbol.tojson()
        assert_same({name: a.asnumpy() for name, a in {**arguments, **states}.items()}, everything(mod))


def test_a_loaded_module_hands_out_its_parameters_before_bind(tmp_path):
    mod, prefix = prepared(), str(tmp_path / "net")
    mod.save_checkpoint(prefix, 1)
    arguments, _ = mx.mod.Module.load(prefix, 1).get_params()
    assert np.array_equal(arguments["fc1_weight"].asnumpy(), everything(mod)["fc1_weight"])

"""A loss scale: no bit differs without overflow, and a step with a gradient that is not finite changes nothing."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.executor import Executor
from minigraph.optimizer import LossScaler
from minigraph.planning import plan
from tests.random_graphs import random_case, results, seeds
from tests.training import assert_same, batches, everything, iterator, mlp, prepared

RULES = {"sgd": ("sgd", {"momentum": 0.0}), "momentum": ("sgd", {"momentum": 0.9}), "nag": ("nag", {"momentum": 0.9}),
         "adam": ("adam", {}), "adagrad": ("adagrad", {}), "rmsprop": ("rmsprop", {}),
         "centered": ("rmsprop", {"centered": True}), "adadelta": ("adadelta", {}), "ftrl": ("ftrl", {}),
         "adamax": ("adamax", {}), "nadam": ("nadam", {}), "signsgd": ("signum", {"momentum": 0.0}),
         "signum": ("signum", {"momentum": 0.9})}
FORMS = ("step", "apart")
SMALLEST = 2.0 ** -100
"""Gradients below it may have passed through numbers below float32's normal ones, where a scale costs bits."""


def trained(rule="momentum", symbol=None, form="step", data=None, module=None, **settings):
    """A module after some batches, whole steps or apart; each gets a rate of 1/8 and a little decay."""
    name, params = RULES[rule]
    mod = module or prepared(symbol, name, {"learning_rate": 0.125, "wd": 0.01, **params, **settings})
    step = mod.training_step()
    for batch in batches(4) if data is None else data:
        if form == "step":
            step(batch)
        else:
            mod.forward_backward(batch)
            mod.update()
    return mod


def held(mod):
    """Parameters, auxiliary states and optimizer states."""
    states = {f"{name} {k}": state.asnumpy() for name, each in mod._executor.states.items()
              for k, state in enumerate(each)}
    return {**everything(mod), **states}


def spoiled(number=np.inf):
    """A batch whose gradients are not finite."""
    data = batches(1)[0].data[0].asnumpy()
    data[3, 2] = number
    return mx.io.DataBatch([mx.nd.array(data)], batches(1)[0].label)


# -- without overflow ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", RULES)
def test_no_bit_of_parameters_and_states_differs_under_a_power_of_two(rule, form):
    assert_same(held(trained(rule, form=form)), held(trained(rule, form=form, loss_scale=2.0 ** 16)))


def regression(output, **params):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="fc1")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="tanh"), num_hidden=1, name="fc2")
    return output(mx.sym.Flatten(net), mx.sym.Variable("softmax_label"), name="out", **params)


def made_loss():
    """Two losses over one body, the first of them hidden in an output that others read."""
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    body = mx.sym.FullyConnected(data, num_hidden=7, name="fc1")
    scores = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=2, name="fc2"), label, name="scores")
    error = mx.sym.square(mx.sym.FullyConnected(body, num_hidden=1, name="fc3"))
    return mx.sym.Group([mx.sym.MakeLoss(mx.sym.mean(scores) + mx.sym.mean(error), grad_scale=3.0, name="loss"),
                         mx.sym.BlockGrad(scores)])


LOSSES = {
    "softmax": lambda: mlp(norm=True),
    "linear": lambda: regression(mx.sym.LinearRegressionOutput),
    "logistic": lambda: regression(mx.sym.LogisticRegressionOutput, grad_scale=0.3),
    "absolute": lambda: regression(mx.sym.MAERegressionOutput),
    "svm": lambda: mx.sym.SVMOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc1"),
                                    mx.sym.Variable("softmax_label"), name="out"),
    "made, and another within": made_loss,
}


@pytest.mark.parametrize("scale", [2.0 ** -10, 2.0 ** 16])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_hands_on_the_scale(loss, scale):
    plain, scaled = (trained("adam", LOSSES[loss](), **given) for given in ({}, {"loss_scale": scale}))
    assert_same(held(plain), held(scaled))
    assert not np.array_equal(everything(plain)["fc1_weight"], everything(prepared(LOSSES[loss]()))["fc1_weight"])


def test_the_scale_is_on_its_way_through_the_graph_and_gone_from_what_is_seen():
    seen = {}
    for scale in (1.0, 2.0 ** 20, 2.0 ** 126):
        mod = prepared(mlp(), params={"loss_scale": scale})
        batch = batches(1)[0]
        batch.data[0][:] = batch.data[0] * 64
        mod.forward_backward(batch)
        seen[scale] = {name: g.asnumpy() for name, g in mod._executor.grad_dict.items() if g is not None}
    assert_same(seen[1.0], seen[2.0 ** 20])
    assert not np.isfinite(seen[2.0 ** 126]["fc1_weight"]).all()


def test_head_gradients_are_scaled_and_gradients_of_inputs_are_not():
    found = []
    for scale in (None, 2.0 ** 10):
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
        mod = mx.mod.Module(net, label_names=None, poison=True)
        mod.bind([("data", (2, 4))], inputs_need_grad=True)
        mx.random.seed(1)
        mod.init_params(mx.init.Xavier())
        mod.init_optimizer(optimizer_params={"learning_rate": 0.5, "loss_scale": scale})
        mod.forward(mx.io.DataBatch([mx.nd.array(np.arange(8).reshape(2, 4))]))
        mod.backward([mx.nd.array([[1, 2, 3], [4, 5, 6]])])
        mod.update()
        found.append({**everything(mod), "data": mod.get_input_grads()[0].asnumpy()})
        ops = mod._executor.program("train").plan.instructions.op
        assert ops.count("_scale_gradient") == (4 if scale else 0)
    assert_same(*found)


@pytest.mark.parametrize("seed", seeds()[:10])
def test_gradients_of_any_graph_are_those_without_the_scale_to_the_bit(seed):
    case, found = random_case(seed), []
    for scale in (None, 2.0 ** 14, 2.0 ** -9):
        executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, poison=True, **case.shapes)
        executor.set_updater(mx.optimizer.create("sgd", loss_scale=scale))
        found.append(results(case, executor, seed))
    for other in found[1:]:
        for name, data in found[0].items():
            one, two = np.frombuffer(data, np.float32), np.frombuffer(other[name], np.float32)
            counts = np.maximum(np.abs(one), np.abs(two)) > SMALLEST
            assert np.array_equal(one[counts], two[counts]), name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale, moved", [(None, 0.0), (2.0 ** 16, 1.0)])
def test_gradients_too_small_for_half_precision_do_not_vanish_under_a_scale(scale, moved, form):
    # 2^-30 lies below the least float16, 2^-24; the rate makes the step of it 1.
    product = mx.sym.Cast(mx.sym.Variable("w_weight"), dtype="float16") * mx.sym.Cast(mx.sym.Variable("x"),
                                                                                      dtype="float16")
    loss = mx.sym.MakeLoss(mx.sym.sum(mx.sym.Cast(product, dtype="float32") * 2.0 ** -30))
    exe = Executor(loss, None, {"x": (2,), "w_weight": (2,)}, inputs=["x"], grad_req={"w_weight": "write"}, poison=True)
    optimizer = mx.optimizer.create("sgd", learning_rate=2.0 ** 30, loss_scale=scale)
    exe.set_updater(optimizer)
    if form == "step":
        exe.step(optimizer.control, x=np.ones(2))
    else:
        exe.forward(is_train=True, x=np.ones(2))
        exe.backward()
        exe.update(optimizer.control)
    assert exe.arg_dict["w_weight"].asnumpy().tolist() == [-moved, -moved]


@pytest.mark.parametrize("form", FORMS)
def test_the_clip_of_the_global_norm_is_that_of_gradients_without_the_scale(form):
    plain, scaled = (trained("adam", form=form, clip_global_norm=0.01, **given) for given in ({}, {"loss_scale": 4096}))
    assert_same(held(plain), held(scaled))


def test_without_a_loss_scale_a_plan_has_nothing_of_it():
    shapes = {"data": (8, 6)}
    without, with_one = (plan(mlp(), shapes, "sgd", optimizer_params=given) for given in ({}, {"loss_scale": 2}))
    own = {"_scale_gradient", "_find_nonfinite", "_check_finite"}
    assert not own & set(without.instructions.op) and own < set(with_one.instructions.op)
    assert [tensor.name for tensor in with_one.persistent if tensor not in without.persistent
            and tensor.name not in {t.name for t in without.persistent}] == ["__unscale__"]
    assert without.fingerprint != with_one.fingerprint


# -- steps that are left out ---------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [np.inf, np.nan])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", RULES)
def test_a_step_with_a_gradient_that_is_not_finite_changes_no_weight_and_no_state(rule, form, number):
    mod = trained(rule, form=form, loss_scale=1024)
    before = held(mod)
    trained(form=form, data=[spoiled(number)], module=mod)
    assert_same(before, held(mod))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", RULES)
def test_training_goes_on_as_if_there_had_been_no_such_step(rule, form):
    first, rest = batches(5)[:2], batches(5)[2:]
    scheduler = {}
    for which in ("without", "with"):
        scheduler[which] = mx.lr_scheduler.MultiFactorScheduler([3], 0.5, base_lr=0.125)
    without, with_one = (trained(rule, form=form, data=data, lr_scheduler=scheduler[which], loss_scale=256)
                         for which, data in (("without", first + rest),
                                             ("with", [spoiled(), *first, spoiled(np.nan), spoiled(), *rest])))
    assert_same(held(without), held(with_one))
    assert with_one._optimizer.num_update == without._optimizer.num_update == 5
    assert with_one._optimizer.loss_scaler.skipped_steps == 3
    assert with_one._optimizer.learning_rate == without._optimizer.learning_rate


def test_moving_statistics_change_in_forward_whatever_becomes_of_the_step():
    mod = trained("adam", mlp(norm=True), loss_scale="dynamic")
    before = held(mod)
    trained(data=[spoiled()], module=mod)
    after = held(mod)
    changed = {name for name, array in before.items() if not np.array_equal(array, after[name])}
    assert changed == {"bn_moving_mean", "bn_moving_var"}


def test_one_gradient_that_is_not_finite_holds_all_parameters_back():
    a, b = mx.sym.Variable("a_weight"), mx.sym.Variable("b_weight")
    loss = mx.sym.MakeLoss(mx.sym.sum(a * mx.sym.Variable("x")) + mx.sym.sum(b))
    exe = Executor(loss, None, {"x": (2,), "a_weight": (2,), "b_weight": (2,)}, inputs=["x"], poison=True,
                   grad_req={"a_weight": "write", "b_weight": "write"})
    optimizer = mx.optimizer.create("sgd", learning_rate=1.0, loss_scale=2)
    exe.set_updater(optimizer)
    for x, moves in (([1.0, np.inf], 0), ([1.0, 3.4e38], 0), ([1.0, 2.0], 1)):
        exe.step(optimizer.control, x=np.array(x, np.float32))
        assert exe.arg_dict["b_weight"].asnumpy().tolist() == [-moves, -moves], x
    assert exe.arg_dict["a_weight"].asnumpy().tolist() == [-1, -2]


def test_a_dynamic_scale_comes_down_until_no_gradient_overflows_and_then_training_is_that_without_a_scale():
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"), name="softmax",
                               grad_scale=2.0 ** 113)
    settings = {"rescale_grad": 2.0 ** -116}
    data = batches(1)
    scaled = trained("adam", net, data=data * 6, loss_scale="dynamic", **settings)
    optimizer = scaled._optimizer
    optimizer.settle()
    assert 0 < optimizer.loss_scaler.skipped_steps < 6
    skipped = optimizer.loss_scaler.skipped_steps
    assert optimizer.loss_scale == 2.0 ** (16 - skipped) and optimizer.num_update == 6 - skipped
    assert_same(held(scaled), held(trained("adam", net, data=data * (6 - skipped), **settings)))


def test_a_dynamic_scale_grows_after_enough_good_steps():
    mod = trained(data=batches(7), loss_scale=LossScaler(8.0, growth_interval=3))
    assert mod._optimizer.loss_scale == 32.0
    assert mod._optimizer.loss_scaler.good_steps == 1


def test_an_evaluation_or_another_optimizer_in_between_loses_no_outcome():
    mod = trained(loss_scale="dynamic", data=[spoiled()])
    mod.forward(batches(1)[0], is_train=False)
    other = mx.optimizer.create("sgd", loss_scale=2)
    first, executor = mod._optimizer, mod._executor
    executor.set_updater(other)
    executor.step(other.control, data=batches(1)[0].data[0], softmax_label=batches(1)[0].label[0])
    assert (first.num_update, first.loss_scale) == (0, 2.0 ** 15)
    assert (other.num_update, other.loss_scaler.skipped_steps) == (1, 0)


def test_what_made_a_step_be_left_out_is_found():
    mod = trained(loss_scale=2, data=[spoiled()])
    found = mod._executor.find_nonfinite()
    assert found is not None and found.node.startswith("fc1")


def test_added_gradients_are_checked_when_they_are_applied():
    def run(scale):
        mod = mx.mod.Module(mlp(), poison=True)
        mod.bind([("data", (8, 6))], [("softmax_label", (8,))], grad_req="add")
        mx.random.seed(3)
        mod.init_params(mx.init.Xavier())
        mod.init_optimizer(optimizer="adam", optimizer_params={"loss_scale": scale})
        for group in (batches(2), [*batches(1), *([spoiled()] if scale else [])], batches(4)[2:]):
            for gradient in mod._executor.grad_arrays:
                if gradient is not None:
                    gradient[:] = 0
            for batch in group:
                mod.forward_backward(batch)
            if scale or len(group) == 2:
                mod.update()
        return held(mod)
    assert_same(run(None), run(512))


# -- memory --------------------------------------------------------------------------------------------------
def tower():
    net = mx.sym.Variable("data")
    for k in range(3):
        net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=8, name=f"conv{k}")
        net = mx.sym.Activation(mx.sym.BatchNorm(net, fix_gamma=False, name=f"bn{k}"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc"), name="softmax")


MODES = {"naive": {"memory": "naive"}, "inplace": {"memory": "inplace"}, "sublinear": {"memory": "sublinear"},
         "slices": {"slices": 2}, "auto": {"budget": "110KiB"}, "swap": {"memory": "vdnn_all", "host_budget": "1MB"},
         "homes": {"budget": "66KiB", "host_budget": "1MB"}}


def steps_of_tower(norm, **options):
    mod = mx.mod.Module(tower(), poison=True, **options)
    mod.bind([("data", (4, 3, 8, 8))], [("softmax_label", (4,))])
    mx.random.seed(2)
    mod.init_params(mx.init.Xavier())
    settings = {"clip_global_norm": 0.5} if norm else {}
    mod.init_optimizer(optimizer="adam", optimizer_params={"loss_scale": LossScaler(growth_interval=2), **settings})
    draw, step = np.random.RandomState(0), mod.training_step()
    for k in range(6):
        data = draw.uniform(-1, 1, (4, 3, 8, 8))
        if k == 3:
            data[0] = np.inf
        step(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(draw.randint(0, 3, 4))]))
    return mod


@pytest.fixture(scope="module")
def plain_tower():
    return {norm: steps_of_tower(norm) for norm in (False, True)}


@pytest.mark.parametrize("mode, norm", [*((mode, True) for mode in MODES), ("slices", False), ("sublinear", False)])
def test_every_memory_mode_leaves_the_same_step_out_and_gives_the_same_bits(mode, norm, plain_tower):
    plain, other = plain_tower[norm], steps_of_tower(norm, **MODES[mode])
    one, two = held(plain), held(other)
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in one | two)
    assert plain._optimizer.num_update == other._optimizer.num_update == 5
    assert plain._optimizer.loss_scaler.state() == other._optimizer.loss_scaler.state()


def test_modes_compare_equal_and_the_check_changes_nothing(plain_tower):
    executor, before = plain_tower[False]._executor, plain_tower[False]._optimizer.num_update
    report = executor.check_modes("sublinear")
    assert report.programs == ("train", "step") and "state __unscale__ of `step`" in report.names
    assert plain_tower[False]._optimizer.num_update == before


def test_gradients_wait_for_the_check_as_they_do_for_the_clip_of_the_norm():
    shapes = {"data": (4, 3, 8, 8)}
    at_once, clipped, scaled = (plan(tower(), shapes, "sgd", optimizer_params=given) for given in (
        {}, {"clip_global_norm": 1.0}, {"loss_scale": "dynamic"}))
    lower = [each.figures.lower_bound_bytes for each in (at_once, clipped, scaled)]
    assert lower[0] < lower[1] and abs(lower[1] - lower[2]) <= 64 * len(scaled.parameters)


# -- going on, and the surface ----------------------------------------------------------------------------------
@pytest.mark.parametrize("stop", range(1, 6))
def test_a_resumed_training_is_the_uninterrupted_one_to_the_bit(stop, tmp_path):
    data = [batches(1)[0], spoiled(), *batches(5)]
    scaler = {"loss_scale": LossScaler(growth_interval=2)}
    whole = trained("nadam", data=data, **scaler)
    stopped = trained("nadam", data=data[:stop], **scaler)
    stopped.save_checkpoint(str(tmp_path / "m"), 1, save_optimizer_states=True)
    again = mx.mod.Module.load(str(tmp_path / "m"), 1, load_optimizer_states=True, poison=True)
    again.bind([("data", (8, 6))], [("softmax_label", (8,))])
    again.init_optimizer(optimizer="nadam", optimizer_params={"learning_rate": 0.125, "wd": 0.01, **scaler})
    trained(data=data[stop:], module=again)
    assert_same(held(whole), held(again))
    assert whole._optimizer.loss_scale == again._optimizer.loss_scale
    assert whole._optimizer.loss_scaler.state() == again._optimizer.loss_scaler.state()
    assert whole._optimizer.num_update == again._optimizer.num_update == len(data) - 1


def test_states_saved_without_a_loss_scale_load_with_one_and_the_other_way_round(tmp_path):
    for before, after, expected in ((None, "dynamic", 2.0 ** 16), ("dynamic", None, 1.0), ("dynamic", 8, 8.0)):
        trained(data=[spoiled(), *batches(1)] if before else batches(1),
                loss_scale=before).save_optimizer_states(str(tmp_path / "states"))
        mod = trained(data=[], loss_scale=after)
        mod.load_optimizer_states(str(tmp_path / "states"))
        assert (mod._optimizer.loss_scale, mod._optimizer.num_update) == (expected, 1)


def test_binding_anew_keeps_the_scale():
    mod = trained(data=[spoiled()], loss_scale="dynamic")
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))], force_rebind=True)
    assert (mod._optimizer.loss_scale, mod._optimizer.num_update) == (2.0 ** 15, 0)
    trained(data=batches(2, 4), module=mod)
    assert mod._optimizer.num_update == 2


def test_fit_takes_a_loss_scale_and_reports_nothing_else():
    results = []
    for scale in (None, "dynamic"):
        mx.random.seed(0)
        mod = mx.mod.Module(mlp(), poison=True)
        mod.fit(iterator(), num_epoch=2, initializer=mx.init.Xavier(), optimizer="adam",
                optimizer_params={"learning_rate": 0.01, "loss_scale": scale})
        results.append(held(mod))
    assert_same(*results)


def test_a_feed_forward_model_takes_a_loss_scale():
    results = []
    for scale in (None, 4096):
        mx.random.seed(0)
        model = mx.model.FeedForward(mlp(), num_epoch=1, loss_scale=scale, learning_rate=0.1,
                                     initializer=mx.init.Xavier())
        model.fit(iterator())
        results.append({name: array.asnumpy() for name, array in model.arg_params.items()})
    assert_same(*results)


def test_buckets_share_one_scale():
    def network(width):
        net = mx.sym.sum(mx.sym.Variable("data"), axis=1, keepdims=True)
        net = mx.sym.FullyConnected(net, num_hidden=2, name="fc")
        return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    mod = mx.mod.BucketingModule(network, default_bucket_key=6)
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))])
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer="adam", optimizer_params={"loss_scale": "dynamic"})
    for width, value in ((6, 1.0), (3, np.inf), (6, 1.0), (3, 1.0)):
        batch = mx.io.DataBatch([mx.nd.ones((4, width)) * value], [mx.nd.array([0, 1, 0, 1])], bucket_key=width,
                                provide_data=[("data", (4, width))], provide_label=[("softmax_label", (4,))])
        mod.forward_backward(batch)
        mod.update()
    optimizer = mod._buckets[6]._optimizer
    assert (optimizer.num_update, optimizer.loss_scale, optimizer.loss_scaler.good_steps) == (3, 2.0 ** 15, 2)


def test_updates_outside_a_graph_are_refused_by_name():
    optimizer = mx.optimizer.create("sgd", loss_scale=2)
    with pytest.raises(MXNetError, match="SGD: loss_scale is for updates in graph form"):
        mx.optimizer.get_updater(optimizer)
    with pytest.raises(MXNetError, match="loss_scale"):
        optimizer.update(0, mx.nd.ones(1), mx.nd.ones(1), None)
    with pytest.raises(MXNetError, match="Test: loss_scale"):
        prepared(optimizer="test", params={"loss_scale": 2})


def test_a_scale_that_is_no_power_of_two_is_refused_by_name():
    with pytest.raises(ValueError, match="loss_scale=1000.*power of two"):
        mx.optimizer.create("sgd", loss_scale=1000)


def test_a_ready_plan_serves_only_with_a_loss_scale_too():
    one, other = prepared(params={"loss_scale": 2}), prepared()
    ready = one._executor.program("step").plan
    with pytest.raises(MXNetError, match="fingerprint"):
        other._executor.use_plan("step", ready)
    fresh = prepared(params={"loss_scale": 4})
    fresh._executor.use_plan("step", ready)
    assert_same(everything(trained(module=fresh)), everything(trained(module=one)))

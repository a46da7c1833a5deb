"""Optimizers: their rules in graph and NDArray form, against PyTorch and by hand, their rates and states."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.executor import Executor
from minigraph.optimizer_base import Optimizer


class GraphTrainer:
    """Weights in graph form with given gradients: the loss is <w0_weight, g0> + <w1_weight, g1> + ..."""

    def __init__(self, optimizer, weights, program="step"):
        terms = [mx.sym.sum(mx.sym.Variable(f"w{k}_weight") * mx.sym.Variable(f"g{k}"))
                 for k in range(len(weights))]
        loss = mx.sym.MakeLoss(mx.sym.add_n(*terms), name="loss")
        gradients = [f"g{k}" for k in range(len(weights))]
        shapes = {f"{prefix}{k}{end}": w.shape for k, w in enumerate(weights)
                  for prefix, end in (("w", "_weight"), ("g", ""))}
        self.names = [f"w{k}_weight" for k in range(len(weights))]
        self.exe = Executor(loss, None, shapes, grad_req=dict.fromkeys(self.names, "write"), inputs=gradients,
                            poison=True)
        self.exe.set_updater(optimizer)
        self.optimizer, self.program = optimizer, program
        for name, weight in zip(self.names, weights, strict=True):
            self.exe.arg_dict[name][:] = weight

    def step(self, gradients):
        feeds = {f"g{k}": gradient for k, gradient in enumerate(gradients)}
        if self.program == "step":
            self.exe.step(self.optimizer.control, **feeds)
        else:
            self.exe.forward(is_train=True, **feeds)
            self.exe.backward()
            self.exe.update(self.optimizer.control)

    @property
    def weights(self):
        return [self.exe.arg_dict[name].asnumpy() for name in self.names]


class NDArrayTrainer:
    """The same weights trained by an Updater."""

    def __init__(self, optimizer, weights):
        self.updater = mx.optimizer.get_updater(optimizer)
        self.arrays = [mx.nd.array(weight) for weight in weights]

    def step(self, gradients):
        for k, (weight, gradient) in enumerate(zip(self.arrays, gradients, strict=True)):
            self.updater(k, mx.nd.array(gradient), weight)

    @property
    def weights(self):
        return [array.asnumpy() for array in self.arrays]


def trainer(form, optimizer, weights):
    weights = [np.asarray(weight, np.float32) for weight in weights]
    return NDArrayTrainer(optimizer, weights) if form == "ndarray" else GraphTrainer(optimizer, weights, form)


FORMS = ("step", "update", "ndarray")


def draw(seed, *shapes):
    generator = np.random.RandomState(seed)
    return [generator.randn(*shape).astype(np.float32) for shape in shapes]


# -- rules ---------------------------------------------------------------------------------------------------

RULES = {
    "sgd": ({}, lambda optim, p: optim.SGD(p, lr=0.1)),
    "sgd with decay": ({"wd": 0.2}, lambda optim, p: optim.SGD(p, lr=0.1, weight_decay=0.2)),
    "momentum": ({"momentum": 0.9}, lambda optim, p: optim.SGD(p, lr=0.1, momentum=0.9)),
    "momentum with decay": ({"momentum": 0.9, "wd": 0.2},
                            lambda optim, p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2)),
    "nag with decay": ({"momentum": 0.9, "wd": 0.2}, lambda optim, p: optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.2)),
    "adam": ({"epsilon": 1e-12}, lambda optim, p: optim.Adam(p, lr=0.1, eps=1e-12)),
    "adam with decay": ({"epsilon": 1e-12, "wd": 0.2, "beta1": 0.8}, lambda optim, p: optim.Adam(
        p, lr=0.1, eps=1e-12, weight_decay=0.2, betas=(0.8, 0.999))),
}
CLASS_OF = {"sgd": "sgd", "momentum": "sgd", "nag": "nag", "adam": "adam"}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("form", FORMS)
def test_five_steps_equal_those_of_pytorch(form, rule):
    torch = pytest.importorskip("torch")
    settings, make = RULES[rule]
    shapes = ((3, 4), (5,))
    starts = draw(0, *shapes)
    name = CLASS_OF[rule.split()[0]]
    mine = trainer(form, mx.optimizer.create(name, learning_rate=0.1, **settings), starts)
    theirs = [torch.tensor(start.astype(np.float64), requires_grad=True) for start in starts]
    peer = make(torch.optim, theirs)
    for seed in range(1, 6):
        gradients = draw(seed, *shapes)
        mine.step(gradients)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = torch.tensor(gradient.astype(np.float64))
        peer.step()
    for got, expected in zip(mine.weights, theirs, strict=True):
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["sgd", "momentum", "nag"])
@pytest.mark.parametrize("gradient, clip, expected",
                         [(10, 1, 1.4), (20, 1, 1.4), (20, None, 0.9), (20, -1, 0.9)])
def test_sgd_decays_outside_the_clip(form, name, gradient, clip, expected):
    momentum = {} if name == "sgd" else {"momentum": 0.9}
    optimizer = mx.optimizer.create(CLASS_OF[name], wd=0.1, clip_gradient=clip, rescale_grad=0.1,
                                    learning_rate=0.5, **momentum)
    mine = trainer(form, optimizer, [[2.0]])
    mine.step([np.array([gradient], np.float32)])
    if name == "nag":  # its first step is 1 + momentum times that of SGD
        expected = 2 - 1.9 * (2 - expected)
    np.testing.assert_allclose(mine.weights[0], [expected], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_adam_decays_inside_the_clip(form):
    optimizer = mx.optimizer.create("adam", wd=0.1, clip_gradient=1, rescale_grad=0.1, learning_rate=0.5)
    mine = trainer(form, optimizer, [[2.0]])
    mine.step([np.array([10], np.float32)])
    moments = mine.exe.states["w0_weight"] if form != "ndarray" else mine.updater.states[0]
    np.testing.assert_allclose(moments[0].asnumpy(), [0.1 * 1], rtol=1e-6)
    np.testing.assert_allclose(mine.weights[0], [1.5], rtol=1e-5)


@pytest.mark.parametrize("form", ["step", "update"])
@pytest.mark.parametrize("bound", [0.5, 1e6])
def test_global_norm_is_clipped_as_in_pytorch(form, bound):
    torch = pytest.importorskip("torch")
    shapes = ((3, 4), (5,), (2, 2))
    starts, gradients = draw(0, *shapes), draw(1, *shapes)
    optimizer = mx.optimizer.create("sgd", learning_rate=1.0, rescale_grad=0.25, clip_global_norm=bound)
    mine = trainer(form, optimizer, starts)
    mine.step(gradients)
    parameters = [torch.tensor(start, requires_grad=True) for start in starts]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(0.25 * gradient)
    norm = torch.nn.utils.clip_grad_norm_(parameters, bound)
    assert (float(norm) > bound) == (bound < 1)
    for got, parameter in zip(mine.weights, parameters, strict=True):
        np.testing.assert_allclose(got, (parameter - parameter.grad).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_global_norm_cannot_be_clipped_one_gradient_at_a_time():
    optimizer = mx.optimizer.create("sgd", clip_global_norm=1.0)
    with pytest.raises(MXNetError, match="needs all gradients at once"):
        optimizer.update(0, mx.nd.ones(1), mx.nd.ones(1), None)


def test_a_global_norm_bound_must_be_positive():
    with pytest.raises(ValueError, match="clip_global_norm must be above 0"):
        mx.optimizer.create("sgd", clip_global_norm=0)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nag", "adam"])
def test_the_three_forms_agree_bit_for_bit(name):
    results = []
    for form in FORMS:
        momentum = {} if name in ("sgd", "adam") else {"momentum": 0.9}
        optimizer = mx.optimizer.create(CLASS_OF[name], wd=0.01, clip_gradient=0.5, rescale_grad=0.5,
                                        **momentum)
        mine = trainer(form, optimizer, draw(0, (3, 4), (5,)))
        for seed in range(1, 4):
            mine.step(draw(seed, (3, 4), (5,)))
        results.append(mine.weights)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_a_shared_parameter_steps_once_by_the_sum_of_its_gradients():
    weight, x = mx.sym.Variable("w_weight"), mx.sym.Variable("x")
    loss = mx.sym.MakeLoss(mx.sym.sum(weight * x) + mx.sym.sum(weight * 3))
    exe = Executor(loss, None, {"x": (2,), "w_weight": (2,)}, grad_req={"w_weight": "write"}, inputs=["x"],
                   poison=True)
    optimizer = mx.optimizer.create("sgd", learning_rate=1.0, momentum=0.9)
    exe.set_updater(optimizer)
    exe.step(optimizer.control, x=np.array([1.0, 2.0]))
    assert exe.arg_dict["w_weight"].asnumpy().tolist() == [-4, -5]
    assert optimizer.num_update == 1
    updates = [op for op in exe.program("step").plan.instructions.op if op == "_sgd_mom_update"]
    assert len(updates) == 1


def test_states_live_in_the_persistent_arena():
    mine = trainer("step", mx.optimizer.create("adam"), draw(0, (3, 4)))
    mine.step(draw(1, (3, 4)))
    plan = mine.exe.program("step").plan
    states = {p.name for p in plan.persistent if plan.buffer(p.first).buffer_class == "state"}
    assert states == {"w0_weight/mean", "w0_weight/var"}
    for persistent in plan.persistent:
        for buffer in (plan.buffer(persistent.first), plan.buffer(persistent.last)):
            assert plan.arenas[buffer.arena].name == "persistent"


def test_a_parameter_that_no_output_depends_on_is_left_alone():
    loss = mx.sym.MakeLoss(mx.sym.sum(mx.sym.Variable("w_weight"))
                           + mx.sym.sum(mx.sym.BlockGrad(mx.sym.Variable("frozen_weight"))))
    for program in ("step", "update"):
        exe = Executor(loss, None, {"w_weight": (2,), "frozen_weight": (2,)}, poison=True)
        optimizer = mx.optimizer.create("sgd", learning_rate=1.0, wd=0.5)
        exe.set_updater(optimizer)
        exe.arg_dict["frozen_weight"][:] = 8
        if program == "step":
            exe.step(optimizer.control)
        else:
            exe.forward(is_train=True)
            exe.backward()
            exe.update(optimizer.control)
        assert exe.arg_dict["w_weight"].asnumpy().tolist() == [-1, -1]
        assert exe.arg_dict["frozen_weight"].asnumpy().tolist() == [8, 8]


def test_weights_in_half_precision_are_refused():
    exe = Executor(mx.sym.MakeLoss(mx.sym.Variable("w_weight") * 2), None, {"w_weight": (2,)},
                   dtypes={"w_weight": "float16"})
    exe.set_updater(mx.optimizer.create("sgd"))
    with pytest.raises(MXNetError, match="updated in float32"):
        exe.program("step")


# -- rates ---------------------------------------------------------------------------------------------------


def rates(optimizer, names):
    words = optimizer.control(names)
    return words[8::2].tolist(), words[9::2].tolist()


def test_decay_applies_to_weights_and_gammas_only():
    optimizer = mx.optimizer.create("sgd", learning_rate=0.5, wd=0.25)
    names = ["fc_weight", "fc_bias", "bn_gamma", "bn_beta", "weight"]
    assert rates(optimizer, names) == ([0.5] * 5, [0.25, 0, 0.25, 0, 0])


def test_attributes_of_variables_multiply_rate_and_decay():
    data = mx.sym.Variable("data")
    weight = mx.sym.Variable("fc_weight", lr_mult=0.5, wd_mult=0.25)
    bias = mx.sym.Variable("fc_bias", wd_mult=4)
    net = mx.sym.FullyConnected(data, weight, bias, num_hidden=2, name="fc")
    optimizer = mx.optimizer.create("sgd", learning_rate=1.0, wd=0.5, sym=net)
    assert rates(optimizer, ["fc_weight", "fc_bias"]) == ([0.5, 1], [0.125, 2])
    optimizer.set_lr_mult({"fc_bias": 0})
    optimizer.set_wd_mult({"fc_weight": 0})
    assert rates(optimizer, ["fc_weight", "fc_bias"]) == ([0.5, 0], [0, 2])


def test_multipliers_may_be_given_by_number():
    optimizer = mx.optimizer.create("sgd", learning_rate=1.0, wd=1.0,
                                    param_idx2name={0: "a_weight", 1: "b_weight"})
    optimizer.set_lr_mult({1: 0.5})
    optimizer.set_wd_mult({0: 3})
    assert rates(optimizer, ["a_weight", "b_weight"]) == ([1, 0.5], [3, 1])


def test_multipliers_may_be_changed_in_their_tables():
    made = mx.optimizer.create("sgd", param_idx2name={0: "a_weight"}, learning_rate=1.0, wd=1.0)
    assert rates(made, ["a_weight"]) == ([1], [1])
    made.lr_mult["a_weight"], made.wd_mult = 0.5, {0: 0.25}
    assert rates(made, ["a_weight"]) == ([0.5], [0.25])


def test_numbers_without_names_decay():
    weight = mx.nd.ones(1)
    mx.optimizer.create("sgd", learning_rate=0.5, wd=0.5).update(0, weight, mx.nd.zeros(1), None)
    assert weight.asnumpy().tolist() == [0.75]


def test_updates_are_counted_by_parameter():
    optimizer = mx.optimizer.create("sgd", begin_num_update=10)
    assert optimizer.num_update == 10
    optimizer.control(["a", "b"])
    optimizer.control(["a"])
    assert optimizer.num_update == 12
    optimizer.control(["b", "c"])
    assert optimizer.num_update == 12
    optimizer.control(["b"])
    assert optimizer.num_update == 13


def test_adams_bias_correction_follows_each_parameters_own_count():
    optimizer = mx.optimizer.create("adam", learning_rate=1.0, beta1=0.5, beta2=0.75)
    optimizer.control(["a"])
    lr, _ = rates(optimizer, ["a", "b"])
    assert lr == pytest.approx([(1 - 0.75**2)**0.5 / 0.75, 0.5 / 0.5])


def test_a_scheduler_sees_the_update_number_and_takes_the_given_rate_as_base():
    scheduler = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5)
    optimizer = mx.optimizer.create("sgd", learning_rate=0.5, lr_scheduler=scheduler)
    assert [rates(optimizer, ["a"])[0][0] for _ in range(5)] == [0.5, 0.5, 0.25, 0.25, 0.125]
    with pytest.raises(UserWarning, match="LRScheduler"):
        optimizer.set_learning_rate(1)


def test_a_scheduler_without_a_rate_keeps_its_own():
    scheduler = mx.lr_scheduler.FactorScheduler(step=2, base_lr=0.125)
    assert mx.optimizer.create("adam", lr_scheduler=scheduler).learning_rate == 0.125


def test_the_rate_can_be_set_between_updates():
    optimizer = mx.optimizer.create("sgd", learning_rate=0.5)
    optimizer.set_learning_rate(0.25)
    assert rates(optimizer, ["a"])[0] == [0.25]
    assert optimizer.learning_rate == 0.25


def test_default_rates_are_those_of_each_rule():
    assert [mx.optimizer.create(name).learning_rate for name in ("sgd", "nag", "adam")] == [0.01, 0.01, 0.001]


# -- registry and forms --------------------------------------------------------------------------------------


def test_optimizers_are_created_by_name_in_any_case():
    assert isinstance(mx.optimizer.create("SGD"), mx.optimizer.SGD)
    with pytest.raises(TypeError, match="sgd: .*'learning_rat'; its arguments are momentum, .*, learning_rate"):
        mx.optimizer.create("sgd", learning_rat=0.1)
    with pytest.raises(ValueError, match="SGD: learning_rate is 'fast'; it must be a number"):
        mx.optimizer.create("sgd", learning_rate="fast")
    with pytest.raises(ValueError, match="Cannot find optimizer nosuch; known are adadelta, adagrad, adam, .*, test"):
        mx.optimizer.create("nosuch")


def test_a_script_may_register_an_optimizer_of_its_own(monkeypatch):
    monkeypatch.setattr("minigraph.optimizer_base._registry", {})

    @mx.optimizer.register
    class Halver(Optimizer):
        def create_state(self, index, weight):
            return None

        def update(self, index, weight, grad, state):
            weight[:] = weight * 0.5

    weight = mx.nd.ones(1)
    mx.optimizer.get_updater(mx.optimizer.create("halver"))(0, mx.nd.ones(1), weight)
    assert weight.asnumpy().tolist() == [0.5]
    with pytest.warns(UserWarning, match="overriding existing optimizer"):
        mx.optimizer.register(Halver)


def test_a_subclass_with_an_update_of_its_own_loses_the_graph_form():
    class Mine(mx.optimizer.SGD):
        def update(self, index, weight, grad, state):
            """Leave the weight."""

    assert mx.optimizer.SGD().has_graph_form and not Mine().has_graph_form
    assert not mx.optimizer.create("test").has_graph_form


def test_the_test_optimizer_adds_the_rescaled_gradient():
    weight, updater = mx.nd.ones(2), mx.optimizer.get_updater(mx.optimizer.create("test", rescale_grad=2))
    updater(0, mx.nd.array([1, 2]), weight)
    assert weight.asnumpy().tolist() == [3, 5] and updater.states[0].asnumpy().tolist() == [3, 5]


def test_an_updater_takes_lists():
    updater = mx.optimizer.get_updater(mx.optimizer.create("sgd", learning_rate=1.0))
    weights = [mx.nd.zeros(1), mx.nd.zeros(1)]
    updater([0, 1], [mx.nd.ones(1), mx.nd.full((1,), 2)], weights)
    assert [weight.asscalar() for weight in weights] == [-1, -2]


# -- states files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_an_updater_goes_on_from_saved_states_bit_for_bit(name):
    def make():
        momentum = {"momentum": 0.9} if name == "momentum" else {}
        return NDArrayTrainer(mx.optimizer.create(CLASS_OF[name], wd=0.1, **momentum), draw(0, (3, 4)))

    whole, first, second = make(), make(), make()
    for seed in range(1, 6):
        whole.step(draw(seed, (3, 4)))
        if seed <= 2:
            first.step(draw(seed, (3, 4)))
    second.updater.set_states(first.updater.get_states())
    assert second.updater.get_states() == first.updater.get_states()
    second.arrays[0][:] = first.arrays[0]
    for seed in range(3, 6):
        second.step(draw(seed, (3, 4)))
    assert np.array_equal(whole.weights[0], second.weights[0])


def test_states_of_another_optimizer_are_refused():
    data = NDArrayTrainer(mx.optimizer.create("adam"), [np.ones(2)]).updater.get_states()
    with pytest.raises(MXNetError, match="saved by the optimizer 'adam' and are loaded into 'sgd'"):
        mx.optimizer.get_updater(mx.optimizer.create("sgd")).set_states(data)


def test_states_of_another_shape_name_the_parameter():
    first = NDArrayTrainer(mx.optimizer.create("sgd", momentum=0.9), [np.ones(2)])
    first.step([np.ones(2)])
    second = NDArrayTrainer(mx.optimizer.create("sgd", momentum=0.9), [np.ones(3)])
    second.updater.set_states(first.updater.get_states())
    with pytest.raises(MXNetError,
                       match=r"states of 0 have shapes \[\(2,\)\], the optimizer needs \[\(3,\)\]"):
        second.step([np.ones(3)])

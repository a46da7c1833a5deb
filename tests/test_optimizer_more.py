"""The further optimizers: five steps against PyTorch where the rules are the same, and by hand where they are not."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph import optimizer_base
from minigraph.base import MXNetError

from .test_optimizer import FORMS, draw, trainer
from .training import batches, everything, prepared

RULES = {
    "adagrad": ({"eps": 1e-20}, lambda optim, p: optim.Adagrad(p, lr=0.1, eps=1e-10)),
    "rmsprop": ({"epsilon": 1e-20, "gamma1": 0.95, "wd": 0.2},
                lambda optim, p: optim.RMSprop(p, lr=0.1, alpha=0.95, eps=1e-10, weight_decay=0.2)),
    "rmsprop centered": ({"epsilon": 1e-20, "gamma1": 0.95, "gamma2": 0.8, "centered": True}, lambda optim, p:
                         optim.RMSprop(p, lr=0.1, alpha=0.95, eps=1e-10, centered=True, momentum=0.8)),
    "adadelta": ({"rho": 0.95, "epsilon": 1e-6}, lambda optim, p: optim.Adadelta(p, lr=1.0, rho=0.95, eps=1e-6)),
    "adamax": ({"wd": 0.2, "beta1": 0.8}, lambda optim, p: optim.Adamax(
        p, lr=0.1, betas=(0.8, 0.999), eps=0.0, weight_decay=0.2)),
    "nadam": ({"wd": 0.2, "schedule_decay": 0.05}, lambda optim, p: optim.NAdam(
        p, lr=0.1, momentum_decay=0.05, weight_decay=0.2)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("form", FORMS)
def test_five_steps_equal_those_of_pytorch(form, rule):
    torch = pytest.importorskip("torch")
    settings, make = RULES[rule]
    starts = draw(0, (3, 4), (5,))
    mine = trainer(form, mx.optimizer.create(rule.split()[0], learning_rate=0.1, **settings), starts)
    theirs = [torch.tensor(start.astype(np.float64), requires_grad=True) for start in starts]
    peer = make(torch.optim, theirs)
    for seed in range(1, 6):
        gradients = draw(seed, (3, 4), (5,))
        mine.step(gradients)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = torch.tensor(gradient.astype(np.float64))
        peer.step()
    for got, expected in zip(mine.weights, theirs, strict=True):
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=2e-4, atol=2e-5)


def stepped(form, optimizer, weight, *gradients):
    mine = trainer(form, optimizer, [np.array(weight, np.float32)])
    for gradient in gradients:
        mine.step([np.array(gradient, np.float32)])
    return mine.weights[0]


@pytest.mark.parametrize("form", FORMS)
def test_decay_is_outside_the_clip_or_inside_it_as_in_mxnet(form):
    settings = {"wd": 0.5, "clip_gradient": 1, "rescale_grad": 0.5, "learning_rate": 0.1}
    create = mx.optimizer.create
    found = stepped(form, create("adagrad", eps=0.0, **settings), [2.0], [10])
    np.testing.assert_allclose(found, [2 - 0.1 * (1 / 1 + 0.5 * 2)], rtol=1e-6)
    # Inside, 0.5 * -2 + 0.5 * 4 is clipped to 1, and the mean square becomes 0.1.
    found = stepped(form, create("rmsprop", epsilon=0.0, **settings), [4.0], [-2])
    np.testing.assert_allclose(found, [4 - 0.1 / np.sqrt(0.1)], rtol=1e-6)
    delta = np.sqrt(1e-5) / np.sqrt(0.1 + 1e-5)
    found = stepped(form, create("adadelta", **settings), [2.0], [10])
    np.testing.assert_allclose(found, [2 - delta - 0.5 * 2], rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_ftrl_holds_small_weights_at_0(form):
    optimizer = mx.optimizer.create("ftrl", learning_rate=0.5, lamda1=1.0, beta=2.0, wd=0.25)
    found = stepped(form, optimizer, [0.0, 0.0], [0.5, 3.0])
    np.testing.assert_allclose(found, [0, -(3 - 1) / ((2 + 3) / 0.5 + 0.25)], rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_signum_moves_by_the_sign_of_its_momentum(form):
    create = mx.optimizer.create
    found = stepped(form, create("signum", learning_rate=0.1, momentum=0.5, wd_lh=0.5), [1.0, 1.0, 1.0],
                    [4, -4, 0], [-1, 1, 0])
    once = 1 - 0.05         # the momentum keeps the sign of the first gradient
    np.testing.assert_allclose(found, [(once - 0.1) * 0.95 - 0.1, (once + 0.1) * 0.95 + 0.1, once * once], rtol=1e-6)
    found = stepped(form, create("signum", learning_rate=0.1, momentum=0.0, wd=0.5), [1.0, 1.0], [4, -4])
    np.testing.assert_allclose(found, [0.95 - 0.1, 0.95 + 0.1], rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop_bounds_the_weights(form, centered):
    optimizer = mx.optimizer.create("rmsprop", learning_rate=1.0, centered=centered, clip_weights=0.5)
    np.testing.assert_array_equal(stepped(form, optimizer, [2.0, -2.0, 0.0], [1, -1, 0]), [-0.5, 0.5, 0])


@pytest.mark.parametrize("form", FORMS)
def test_adamax_leaves_what_never_had_a_gradient(form):
    found = stepped(form, mx.optimizer.create("adamax", learning_rate=0.1), [2.0, 2.0], [0, 1], [0, 1])
    assert found[0] == 2.0 and abs(found[1] - 1.8) < 1e-6


def test_default_rates_are_those_of_mxnet():
    rates = {"adagrad": 0.01, "rmsprop": 0.001, "adadelta": 0.01, "ftrl": 0.1, "adamax": 0.002, "nadam": 0.001,
             "signum": 0.01}
    assert {name: mx.optimizer.create(name).learning_rate for name in rates} == rates


def test_nadam_wants_all_parameters_at_one_update():
    optimizer = mx.optimizer.create("nadam")
    optimizer.control(("a",))
    with pytest.raises(MXNetError, match="updates 1 to 2"):
        optimizer.control(("a", "b"))


def test_an_optimizer_written_for_mxnet_counts_and_scales_as_the_built_in_ones(monkeypatch, tmp_path):
    """Adam in a script's words, by the methods that MXNet's base class has for it, trains as Adam."""
    monkeypatch.setattr("minigraph.optimizer_base._registry", dict(optimizer_base._registry))

    @mx.optimizer.register
    class ScriptAdam(mx.optimizer.Optimizer):
        def create_state(self, index, weight):
            return mx.nd.zeros(weight.shape, weight.context), mx.nd.zeros(weight.shape, weight.context)

        def update(self, index, weight, grad, state):
            self._update_count(index)
            lr, wd, t = self._get_lr(index), self._get_wd(index), self._index_update_count[index]
            grad = grad * self.rescale_grad + wd * weight
            mean, var = state
            mean[:] = 0.9 * mean + 0.1 * grad
            var[:] = 0.999 * var + 0.001 * grad * grad
            weight[:] -= lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * mean / (var**0.5 + 1e-8)

    def train(name, stop=None):
        settings = {"wd": 0.1, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.05)}
        module = prepared(optimizer=name, params=settings)
        module._optimizer.set_lr_mult({"fc1_weight": 0.5})
        for k, batch in enumerate(batches(6)):
            if k == stop:
                module.save_optimizer_states(str(tmp_path / "states"))
                module.load_optimizer_states(str(tmp_path / "states"))
            module.forward_backward(batch)
            module.update()
        return everything(module)

    expected, found, resumed = train("adam"), train("scriptadam"), train("scriptadam", 3)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(resumed[key], found[key])


def test_a_list_of_updates_is_counted_once_each_and_a_parameter_not_updated_has_the_first_count():
    made = mx.optimizer.create("sgd", param_idx2name={0: "a_weight", 1: "b_bias"}, begin_num_update=3, wd=0.5)
    made._update_count([0, 0, 1])
    assert [made._index_update_count[key] for key in (0, 1, "a_weight", 7)] == [5, 4, 5, 3] and made.num_update == 5
    assert [made._get_wd(index) for index in (0, 1, 7)] == [0.5, 0.0, 0.5]


def test_a_subclass_may_decide_rates_and_decays_by_parameter():
    class Slower(mx.optimizer.Adam):
        def _get_lr(self, index):
            return super()._get_lr(index) * (0.5 if self.idx2name[index].startswith("fc1") else 1.0)

        def _get_wd(self, index):
            return 0.0

    modules = [prepared(optimizer=made(rescale_grad=1 / 8, wd=0.1)) for made in (Slower, mx.optimizer.Adam)]
    modules[1]._optimizer.set_lr_mult({"fc1_weight": 0.5, "fc1_bias": 0.5})
    modules[1]._optimizer.wd = 0.0
    for module in modules:
        for batch in batches(3):
            module.training_step()(batch)
    assert not modules[0]._optimizer.has_graph_form and modules[1]._optimizer.has_graph_form
    expected = everything(modules[1])
    for name, value in everything(modules[0]).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7)

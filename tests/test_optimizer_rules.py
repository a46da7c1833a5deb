"""LAMB, LARS, FTML, DCASGD, SGLD and LBSGD: MXNet's values, in every form, and what updates share."""
from __future__ import annotations

import pickle

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

from .test_optimizer import FORMS, trainer
from .training import batches, everything, prepared

COMMON = {"learning_rate": 0.1, "wd": 0.2, "clip_gradient": 1.0, "rescale_grad": 0.5}
CASES = {
    "ftml": ("ftml", COMMON, (
        [[1.56927, 0.34372, 1.1656, 2.23721], [1.78335, -0.75019, 0.81945, 0.02354],
         [-0.13241, 0.69694, 0.04131, 1.42279]], [0.64387, 0.21168, 0.34584, 0.44535, 1.33685])),
    "lamb": ("lamb", COMMON, (
        [[1.12983, 0.52007, 1.35106, 2.09913], [1.73753, -0.30838, 0.44049, 0.38236],
         [-0.01193, 0.93702, -0.1752, 1.29368]], [0.6508, 0.23019, 0.11471, 0.70233, 1.76905])),
    "lamb with bounds": ("lamb", {"learning_rate": 0.1, "wd": 0.2, "lower_bound": 2.0, "upper_bound": 2.5,
                                  "bias_correction": False}, (
        [[1.44349, 0.51149, 1.29984, 2.29211], [1.90363, -0.58824, 0.65991, 0.2092],
         [-0.04525, 0.80271, -0.068, 1.42862]], [0.7312, 0.2588, 0.13167, 0.74134, 1.89449])),
    "lars": ("lars", {**COMMON, "momentum": 0.9, "eta": 0.3, "eps": 0.1}, (
        [[1.46501, 0.37953, 1.06387, 2.12412], [1.78662, -0.67294, 0.76077, -0.01429],
         [-0.06878, 0.49455, 0.05341, 1.33433]], [0.68499, 0.14386, 0.32218, 0.42797, 1.42712])),
    "dcasgd": ("dcasgd", {"learning_rate": 0.1, "wd": 0.2, "lamda": 0.5, "clip_gradient": 1.0}, (
        [[1.4706, 0.33998, 1.13857, 2.09673], [1.81194, -0.59885, 0.80841, 0.02291],
         [-0.05673, 0.63286, 0.02411, 1.26334]], [0.60111, 0.10741, 0.36066, 0.46153, 1.51022])),
}
"""Weights after four steps of MXNet 1.9.1 from the same starts by the same gradients."""


def drawn(seed):
    generator = np.random.RandomState(seed)
    return [generator.randn(3, 4).astype(np.float32), generator.randn(5).astype(np.float32)]


def after_four_steps(form, optimizer):
    mine = trainer(form, optimizer, drawn(0))
    for seed in range(1, 5):
        mine.step(drawn(seed))
    return mine


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", FORMS)
def test_four_steps_equal_those_of_mxnet(form, case):
    name, settings, expected = CASES[case]
    for got, want in zip(after_four_steps(form, mx.optimizer.create(name, **settings)).weights, expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("settings, expected", [
    ({"momentum": 0.9, "batch_scale": 2}, (
        [[1.45159, 0.39229, 1.22103, 2.11564], [1.88215, -0.52157, 0.71802, 0.04988],
         [-0.04165, 0.58004, -0.02035, 1.3062]], [0.67624, 0.15282, 0.31542, 0.47826, 1.48387])),
    ({"warmup_strategy": "lars"}, (
        [[1.33946, 0.31527, 1.22404, 2.13554], [1.87666, -0.42436, 0.78787, 0.01066],
         [-0.0734, 0.66, 0.03687, 1.2431]], [0.61433, 0.0982, 0.36681, 0.46663, 1.50421]))], ids=str)
def test_lbsgd_moves_as_in_mxnet(settings, expected):
    optimizer = mx.optimizer.create("lbsgd", learning_rate=0.1, wd=0.2, **settings)
    for got, want in zip(after_four_steps("ndarray", optimizer).weights, expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
    assert not optimizer.has_graph_form
    with pytest.raises(ValueError, match="warmup_strategy='slow'"):
        mx.optimizer.LBSGD(warmup_strategy="slow")


@pytest.mark.parametrize("name", ["ftml", "lamb", "lars", "dcasgd", "sgld", "ccsgd"])
def test_a_module_trains_by_the_same_bits_in_every_memory_mode(name):
    found = []
    for memory in ("plain", "sublinear", "naive"):
        mx.random.seed(3)
        module = prepared(optimizer=name, params={"learning_rate": 0.01, "wd": 0.01}, memory=memory)
        for batch in batches(3):
            module.forward_backward(batch)
            module.update()
        found.append(everything(module))
    for other in found[1:]:
        assert all(found[0][key].tobytes() == other[key].tobytes() for key in found[0])


@pytest.mark.parametrize("form", FORMS)
def test_lars_leaves_the_rate_of_biases(form):
    optimizer = mx.optimizer.create("lars", learning_rate=0.5, eta=0.1, param_idx2name={0: "w0_bias"})
    op, constants = optimizer.rule_of("w0_bias")
    assert op == "_lars_update" and constants["adapts"] is False
    assert optimizer.rule_of("w0_weight")[1]["adapts"] is True
    mine = trainer("ndarray", optimizer, [[2.0]])
    mine.step([np.ones(1, np.float32)])
    assert mine.weights[0].tolist() == [1.5]


@pytest.mark.parametrize("form", FORMS)
def test_lars_corrects_its_momentum_when_the_rate_changes(form):
    schedule = mx.lr_scheduler.MultiFactorScheduler([1], 0.5, base_lr=1.0)
    optimizer = mx.optimizer.create("lars", lr_scheduler=schedule, momentum=0.5, eta=1.0)
    mine = trainer(form, optimizer, [[4.0]])
    mine.step([np.ones(1, np.float32)])     # rate 1 * 4 / 1: the momentum is -4 and the weight 0
    assert mine.weights[0].tolist() == [0.0]
    mine.step([np.ones(1, np.float32)])     # momentum 0.5 * 0.5 / 1 of -4; the norm of 0 leaves the rate of 0.5
    np.testing.assert_allclose(mine.weights[0], [0.25 * -4 - 0.5])


@pytest.mark.parametrize("form", FORMS)
def test_the_noise_of_sgld_has_the_variance_of_the_rate_and_never_comes_twice(form):
    mx.random.seed(11)
    zeros = np.zeros(20_000, np.float32)
    mine = trainer(form, mx.optimizer.create("sgld", learning_rate=0.25), [zeros, zeros])
    mine.step([zeros, zeros])
    first, other = (weight.copy() for weight in mine.weights)
    mine.step([zeros, zeros])
    second = mine.weights[0] - first
    for noise in (first, other, second):
        assert abs(noise.mean()) < 0.02 and abs(noise.std() - 0.5) < 0.01
    for a, b in ((first, other), (first, second)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.03


@pytest.mark.parametrize("form", FORMS)
def test_sgld_goes_half_the_rate_along_gradient_and_decay(form):
    means = []
    for gradient in (0.0, 1.0):
        mx.random.seed(5)
        mine = trainer(form, mx.optimizer.create("sgld", learning_rate=0.25, wd=0.5), [np.full(7, 2.0)])
        mine.step([np.full(7, gradient, np.float32)])
        means.append(mine.weights[0])
    np.testing.assert_allclose(means[1] - means[0], -0.125, rtol=1e-5)


def test_states_of_several_arrays_are_saved_and_taken_up_again():
    for name in ("ftml", "lamb", "dcasgd", "lbsgd"):
        settings = {"batch_scale": 2, "momentum": 0.9} if name == "lbsgd" else {}
        whole = after_four_steps("ndarray", mx.optimizer.create(name, learning_rate=0.1, **settings)).weights
        first = trainer("ndarray", mx.optimizer.create(name, learning_rate=0.1, **settings), drawn(0))
        for seed in (1, 2, 3):
            first.step(drawn(seed))
        second = trainer("ndarray", mx.optimizer.create(name, learning_rate=0.1, **settings), first.weights)
        second.updater.set_states(first.updater.get_states())
        second.step(drawn(4))
        for a, b in zip(whole, second.weights, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_float16_weights_have_a_float32_copy_where_it_is_asked_for(momentum):
    """Each move alone is too small for float16 beside 1; together they are not, and a saved copy remembers them."""
    gradient, found = mx.nd.full(2, 1e-4, dtype="float16"), {}
    for multi in (False, True):
        weight, saved = mx.nd.ones(2, dtype="float16"), None
        for _ in range(6):
            optimizer = mx.optimizer.create("sgd", learning_rate=1.0, momentum=momentum, multi_precision=multi)
            updater = mx.optimizer.get_updater(optimizer)
            if saved is not None:
                updater.set_states(saved)
            updater(0, gradient, weight)
            saved = updater.get_states()
        found[multi] = weight.asnumpy().tolist()
    assert found[False] == [1.0, 1.0]
    moved = 1 - float(np.float16(1e-4)) * (6 if not momentum else sum(2 - 0.5 ** k for k in range(6)))
    assert found[True] == [float(np.float16(moved))] * 2
    plain = mx.optimizer.create("sgd", momentum=0.9, multi_precision=True)
    assert plain.create_state_multi_precision(0, mx.nd.ones(2)).dtype == np.float32


def test_multipliers_are_those_of_arguments_and_a_number_goes_before_a_name():
    bias = mx.sym.Variable("fc1_bias", lr_mult=1.0)
    fc1 = mx.sym.FullyConnected(mx.sym.Variable("data"), bias=bias, name="fc1", num_hidden=10, lr_mult=0)
    net = mx.sym.FullyConnected(fc1, name="fc2", num_hidden=10, wd_mult=0.5)
    names = [name for name in net.list_arguments() if name != "data"]
    made = mx.optimizer.create("sgd", sym=net, param_idx2name=dict(enumerate(names)))
    assert made.lr_mult == {"fc1_bias": 1.0, "fc1_weight": 0.0}
    assert made.wd_mult == {"fc2_bias": 0.5, "fc2_weight": 0.5, "fc1_bias": 0.0}
    made = mx.optimizer.create("sgd", wd=1.0, param_idx2name={0: "a_bias"})
    made.set_wd_mult({0: 3.0})
    assert made._get_wd(0) == 3.0 and made.control(["a_bias"])[9] == 3.0


def test_lars_decays_weights_only():
    optimizer = mx.optimizer.create("lars", wd=0.5, param_idx2name={0: "a_weight", 1: "a_gamma", 2: "a_bias"})
    assert [optimizer._get_wd(index) for index in range(3)] == [0.5, 0.0, 0.0]


def test_optimizers_are_made_and_registered_through_their_base_class_too():
    assert isinstance(mx.optimizer.Optimizer.create_optimizer("LAMB"), mx.optimizer.LAMB)
    assert mx.optimizer.Optimizer.register is mx.optimizer.register
    assert isinstance(mx.optimizer.create("ccSGD", momentum=0.9), mx.optimizer.SGD)
    copied = pickle.loads(pickle.dumps(mx.optimizer.create("lars", momentum=0.9)))
    assert copied.momentum == 0.9


def test_parameters_at_different_updates_are_refused_where_one_number_serves_all():
    for name in ("ftml", "lamb"):
        optimizer = mx.optimizer.create(name)
        optimizer.control(("a",))
        with pytest.raises(MXNetError, match="updates 1 to 2"):
            optimizer.control(("a", "b"))
    plain = mx.optimizer.create("lamb", bias_correction=False)
    plain.control(("a",))
    plain.control(("a", "b"))

"""Initializers: which rule a name gets, what each rule writes, and that a seed repeats it."""
from __future__ import annotations

import json
from math import sqrt

import numpy as np
import pytest

from minigraph import initializer as init
from minigraph import ndarray as nd
from minigraph import random
from minigraph.base import MXNetError
from minigraph.initializer import InitDesc


@pytest.fixture(autouse=True)
def seeded():
    random.seed(0)


def values(initializer, shape, name="fc_weight", attrs=None):
    """What the initializer writes into an array that held 5s."""
    array = nd.full(shape, 5)
    initializer(InitDesc(name, attrs), array)
    return array.asnumpy()


@pytest.mark.parametrize("name,expected", [
    ("fc_bias", 0), ("bn_gamma", 1), ("bn_beta", 0), ("quantized_min", 0), ("quantized_max", 1),
    ("fc_weight", 3)])
def test_the_names_ending_chooses_the_rule(name, expected):
    class Three(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = 3

    assert (values(Three(), (2, 2), name) == expected).all()


def test_an_init_attribute_decides_before_the_name():
    attrs = {"__init__": '["constant", {"value": 2.5}]'}
    assert (values(init.Uniform(), (2, 2), "fc_bias", attrs) == 2.5).all()
    assert (values(init.Uniform(), (2,), "bn_moving_var", {"__init__": '["one", {}]'}) == 1).all()


@pytest.mark.parametrize("name", ["bn_moving_mean", "data", "embedding"])
def test_a_name_without_a_rule_is_refused(name):
    with pytest.raises(ValueError, match=f"Unknown initialization pattern for {name}"):
        values(init.Uniform(), (2, 2), name)


def test_plain_strings_also_know_auxiliary_states_and_upsampling():
    for name, expected in (("bn_moving_mean", 0), ("bn_moving_var", 1), ("fc_bias", 0)):
        array = nd.full(3, 5)
        init.Uniform()(name, array)
        assert (array.asnumpy() == expected).all()
    array = nd.zeros((1, 1, 4, 4))
    init.Uniform()("upsampling_weight", array)
    np.testing.assert_array_equal(array.asnumpy(), values(init.Bilinear(), (1, 1, 4, 4)))


def test_the_description_learns_the_initializer_that_was_asked():
    uniform, desc = init.Uniform(), InitDesc("a_weight")
    uniform(desc, nd.zeros((2, 2)))
    assert desc.global_init is uniform and desc == "a_weight" and desc.attrs == {}


@pytest.mark.parametrize("name,cls", [
    ("zero", init.Zero), ("Zeros", init.Zero), ("ONES", init.One), ("uniform", init.Uniform),
    ("Xavier", init.Xavier), ("msraprelu", init.MSRAPrelu), ("orthogonal", init.Orthogonal),
    ("lstmbias", init.LSTMBias), ("bilinear", init.Bilinear), ("normal", init.Normal)])
def test_create_finds_names_in_any_case(name, cls):
    assert type(init.create(name)) is cls


@pytest.mark.parametrize("initializer", [
    init.Zero(), init.One(), init.Constant(3), init.Uniform(0.1), init.Normal(2.0), init.Bilinear(),
    init.Orthogonal(1.0, "normal"), init.Xavier("gaussian", "in", 2), init.MSRAPrelu("out", 0.1),
    init.LSTMBias(2.0)], ids=lambda each: type(each).__name__)
def test_dumps_makes_an_equal_initializer_again(initializer):
    again = init.create(initializer.dumps())
    assert again == initializer and again.dumps() == initializer.dumps()


def test_dumps_is_mxnets_text():
    assert init.Xavier(rnd_type="gaussian", magnitude=2).dumps() == (
        '["xavier", {"rnd_type": "gaussian", "factor_type": "avg", "magnitude": 2}]')
    assert json.loads(init.Zero().dumps()) == ["zero", {}]
    assert init.create(init.Constant(np.array([1.0, 2.0])).dumps()).value == [1.0, 2.0]


def test_unknown_names_and_texts_are_refused():
    with pytest.raises(MXNetError, match="'kaiming'; known are .*xavier"):
        init.create("kaiming")
    with pytest.raises(MXNetError, match="is no initializer"):
        init.create('["xavier"')


def test_one_of_ones_own_can_be_registered_and_created():
    @init.register
    class MySeven(init.Initializer):
        def _init_weight(self, name, arr):
            arr[:] = 7

    try:
        assert (values(init.create("myseven"), (2, 2)) == 7).all()
    finally:
        del init._registry["myseven"]


def test_uniform_and_normal_have_their_scales():
    drawn = values(init.Uniform(0.5), (100, 100))
    assert -0.5 <= drawn.min() < -0.49 and 0.49 < drawn.max() <= 0.5 and abs(drawn.mean()) < 0.02
    drawn = values(init.Normal(0.3), (100, 100))
    assert abs(drawn.std() - 0.3) < 0.01 and abs(drawn.mean()) < 0.02


@pytest.mark.parametrize("factor_type,factor", [("in", 6 * 15), ("out", 40 * 15), ("avg", 23 * 15)])
def test_xaviers_scale_is_the_root_of_magnitude_over_the_fan(factor_type, factor):
    scale = sqrt(3 / factor)
    drawn = values(init.Xavier(factor_type=factor_type), (40, 6, 3, 5))
    assert 0.99 * scale < abs(drawn).max() <= scale * (1 + 1e-6)
    drawn = values(init.Xavier("gaussian", factor_type, 2), (40, 6, 3, 5))
    assert drawn.std() == pytest.approx(sqrt(2 / factor), rel=0.05)


def test_msraprelu_is_gaussian_with_the_slopes_magnitude():
    drawn = values(init.MSRAPrelu("in", slope=0.5), (200, 100))
    assert drawn.std() == pytest.approx(sqrt(2 / (1 + 0.25) / 100), rel=0.03)


def test_xavier_refuses_vectors_and_unknown_types():
    with pytest.raises(ValueError, match=r"Xavier.*fc_weight has \(3,\)"):
        values(init.Xavier(), (3,))
    with pytest.raises(ValueError, match="factor_type.*'both'"):
        init.Xavier(factor_type="both")
    with pytest.raises(ValueError, match="rnd_type.*'normal'"):
        init.Xavier("normal")


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 2, 2, 3)])
@pytest.mark.parametrize("rand_type", ["uniform", "normal"])
def test_orthogonal_rows_or_columns_have_the_scales_length_and_right_angles(shape, rand_type):
    matrix = values(init.Orthogonal(1.5, rand_type), shape).reshape(shape[0], -1)
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    np.testing.assert_allclose(matrix @ matrix.T, 1.5**2 * np.eye(len(matrix)), atol=1e-5)


def test_bilinear_is_the_interpolating_kernel_in_every_channel():
    kernel = values(init.Bilinear(), (2, 1, 4, 4))
    row = np.array([0.25, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(kernel, np.broadcast_to(np.outer(row, row), (2, 1, 4, 4)), atol=1e-6)
    row = np.array([1, 2, 3, 2, 1]) / 3
    np.testing.assert_allclose(values(init.Bilinear(), (1, 1, 5, 5))[0, 0], np.outer(row, row), atol=1e-6)


def test_lstm_bias_opens_the_forget_gate_only():
    for attrs in (None, {"__init__": '["lstmbias", {"forget_bias": 1.5}]'}):
        bias = values(init.LSTMBias(1.5), (8,), "lstm_i2h_bias", attrs)
        assert bias.tolist() == [0, 0, 1.5, 1.5, 0, 0, 0, 0]


def test_a_seed_repeats_a_whole_initialization():
    first = values(init.Xavier(), (5, 5))
    assert (values(init.Xavier(), (5, 5)) != first).any()
    random.seed(0)
    np.testing.assert_array_equal(values(init.Xavier(), (5, 5)), first)


def test_load_takes_values_by_name_without_prefix_and_asks_the_default_for_others(tmp_path):
    path = tmp_path / "p.params"
    nd.save(path, {"arg:fc_weight": nd.full((2, 2), 4), "aux:bn_moving_mean": nd.full(2, 6)})
    load = init.Load(path, init.Zero())
    assert (values(load, (2, 2)) == 4).all()
    assert (values(load, (2,), "bn_moving_mean") == 6).all()
    assert (values(load, (2, 2), "other_weight") == 0).all()


def test_load_refuses_other_shapes_and_missing_names():
    load = init.Load({"fc_weight": nd.ones((2, 2))})
    with pytest.raises(ValueError, match=r"fc_weight has shape \(3, 2\).*\(2, 2\)"):
        values(load, (3, 2))
    with pytest.raises(ValueError, match="fc_bias.*no default_init"):
        values(load, (2,), "fc_bias")


def test_mixed_takes_the_first_pattern_that_matches():
    mixed = init.Mixed(["fc1.*", ".*weight", ".*"], [init.Constant(1), init.Constant(2), init.Zero()])
    assert values(mixed, (2, 2), "fc1_weight")[0, 0] == 1
    assert values(mixed, (2, 2), "fc2_weight")[0, 0] == 2
    assert values(mixed, (2,), "fc2_bias")[0] == 0
    with pytest.raises(ValueError, match="fc_bias matches no pattern"):
        values(init.Mixed(["x"], [init.Zero()]), (2,), "fc_bias")
    with pytest.raises(ValueError, match="2 patterns for 1"):
        init.Mixed(["a", "b"], [init.Zero()])


def test_verbosity_logs_name_rule_and_statistic(caplog):
    caplog.set_level("INFO")
    values(init.One().set_verbosity(True), (2, 2))
    assert "Initialized fc_weight as weight: 1.0" in caplog.text

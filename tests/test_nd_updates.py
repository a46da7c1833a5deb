"""Functions that update a weight once: MXNet's formulas, with states changed in place."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph import nd
from minigraph.base import MXNetError
from minigraph.ndarray.updates import update_names

W, G, LR, WD = 2.0, -3.0, 0.1, 0.5
CLIPPED = -1.2
"""The gradient rescaled by 0.5 and clipped to 1.2; where decay goes inside the clip it is -1.5 + WD W = -0.5."""
FTRL_Z = CLIPPED - 1.2 * W / LR


def one(value, dtype="float32"):
    return nd.array([value], dtype=dtype)


@pytest.mark.parametrize("name,states,settings,weight,after", [
    ("sgd_update", [], {}, W - LR * (CLIPPED + WD * W), []),
    ("sgd_mom_update", [0.5], {"momentum": 0.9}, W + 0.45 - LR * (CLIPPED + WD * W), [0.45 - LR * (CLIPPED + WD * W)]),
    ("nag_mom_update", [0.0], {"momentum": 0.5}, W - 1.5 * LR * (CLIPPED + WD * W), [-LR * (CLIPPED + WD * W)]),
    ("signsgd_update", [], {}, W - LR * (-1 + WD * W), []),
    ("signum_update", [0.0], {"momentum": 0.5, "wd_lh": 0.1}, W * (1 - LR * 0.1) + LR, [-0.5 * (CLIPPED + WD * W)]),
    ("adam_update", [0.0, 1.0], {"beta1": 0.5, "beta2": 0.5},
     W + LR * 0.25 / (0.625 ** 0.5 + 1e-8), [-0.25, 0.625]),
    ("rmsprop_update", [1.0], {"gamma1": 0.5}, W + LR * 0.5 / (0.625 + 1e-8) ** 0.5, [0.625]),
    ("rmspropalex_update", [1.0, 0.0, 0.5], {"gamma1": 0.5, "gamma2": 0.5},
     W + 0.25 + LR * 0.5 / (0.5625 + 1e-8) ** 0.5, [0.625, -0.25, 0.25 + LR * 0.5 / (0.5625 + 1e-8) ** 0.5]),
    ("ftrl_update", [0.0, 0.0], {"lamda1": 0.0}, -FTRL_Z / ((1 + 1.2) / LR + WD), [FTRL_Z, 1.44]),
])
def test_an_update_gives_the_new_weight_and_changes_its_states(name, states, settings, weight, after):
    given, kept = one(W), [one(s) for s in states]
    settings = {**settings, "lr": LR, "wd": WD, "rescale_grad": 0.5, "clip_gradient": 1.2}
    result = getattr(nd, name)(given, one(G), *kept, **settings)
    assert result.asscalar() == pytest.approx(weight, rel=1e-5) and given.asscalar() == W
    assert [s.asscalar() for s in kept] == pytest.approx(after, rel=1e-5)
    again = getattr(nd, name)(given, one(G), *(one(s) for s in states), **settings, out=given)
    assert again is given and given.asscalar() == result.asscalar()


def test_ftml_takes_the_number_of_the_update():
    weight, kept = one(W), [one(0.5), one(1.0), one(0.25)]
    result = nd.ftml_update(weight, one(G), *kept, lr=LR, beta1=0.5, beta2=0.5, t=3, wd=WD, rescale_grad=0.5,
                            clip_grad=1.2)
    g, v = -0.5, 0.625
    d = (1 - 0.5 ** 3) / LR * ((v / (1 - 0.5 ** 3)) ** 0.5 + 1e-8)
    z = 0.125 + 0.5 * g - (d - 0.25) * W
    assert [s.asscalar() for s in kept] == pytest.approx([d, v, z], rel=1e-5)
    assert result.asscalar() == pytest.approx(-z / d, rel=1e-5)


@pytest.mark.parametrize("name", ["mp_sgd_update", "mp_sgd_mom_update", "mp_nag_mom_update"])
def test_a_float16_weight_follows_its_float32_copy(name):
    states = [one(0.25)] * ("mom" in name)
    weight, copy = one(1.0, "float16"), one(1.0001)
    getattr(nd, name)(weight, one(0.5, "float16"), *states, copy, lr=1e-4, out=weight)
    plain, state = one(1.0001), [one(0.25)] * ("mom" in name)
    expected = getattr(nd, name.removeprefix("mp_"))(plain, one(0.5), *state, lr=1e-4)
    assert copy.asscalar() == expected.asscalar() and weight.dtype == np.float16
    assert weight.asscalar() == np.float16(copy.asscalar())


def test_what_does_not_fit_is_told():
    with pytest.raises(TypeError, match="'lr'"):
        nd.sgd_update(one(1), one(1))
    with pytest.raises(MXNetError, match="sgd_update: input 'grad' must be an NDArray, got int"):
        nd.sgd_update(one(1), 1, lr=0.1)
    with pytest.raises(MXNetError, match="one dtype .* grad float64"):
        nd.sgd_update(one(1), one(1, "float64"), lr=0.1)
    with pytest.raises(MXNetError, match=r"shapes \(1,\) and \(2,\) differ"):
        nd.sgd_update(one(1), nd.ones(2), lr=0.1)
    assert set(update_names()) <= set(dir(nd))

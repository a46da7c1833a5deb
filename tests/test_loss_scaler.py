"""The loss scale's rule, against PyTorch's GradScaler, its limits, and what it refuses."""
from __future__ import annotations

import pytest

from minigraph.base import MXNetError
from minigraph.loss_scaler import LossScaler


def outcomes(scaler, steps):
    """The scale after each step of a text: "." for a good one, "x" for one that was left out."""
    found = []
    for step in steps:
        scaler.settle(step == "x")
        found.append(scaler.scale)
    return found


@pytest.mark.parametrize("steps", ["x" * 5, "." * 10, "..x...x....x......xx.......", "..." * 5 + "xx" + "." * 9])
@pytest.mark.parametrize("settings", [{"growth_interval": 3}, {
    "init_scale": 8.0, "growth_interval": 2, "growth_factor": 4.0, "backoff_factor": 0.25}])
def test_a_dynamic_scale_follows_the_gradients_as_in_pytorch(steps, settings):
    torch = pytest.importorskip("torch")
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    peer, wanted = torch.amp.GradScaler("cpu", **settings), []
    for step in steps:
        weight.grad = peer.scale(torch.tensor([float("inf") if step == "x" else 1.0]))
        peer.step(optimizer)
        peer.update()
        wanted.append(peer.get_scale())
    assert outcomes(LossScaler(**settings), steps) == wanted


def test_defaults_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    peer, mine = torch.amp.GradScaler("cpu"), LossScaler.of("dynamic")
    assert mine.scale == peer._init_scale == 2.0 ** 16
    assert (mine.growth_factor, mine.backoff_factor, mine.growth_interval) == (
        peer.get_growth_factor(), peer.get_backoff_factor(), peer.get_growth_interval())


def test_a_dynamic_scale_stays_within_its_limits():
    assert outcomes(LossScaler(4.0, growth_interval=1, least=1.0, most=8.0), "....xxxxx") == [8, 8, 8, 8, 4, 2, 1, 1, 1]
    assert outcomes(LossScaler(), "x" * 60)[-1] == 2.0 ** -24


def test_a_static_scale_stays_and_counts_what_was_left_out():
    scaler = LossScaler.of(1024)
    assert set(outcomes(scaler, ".x" * 2000)) == {1024.0} and scaler.skipped_steps == 2000


def test_an_optimizer_takes_settings_and_leaves_the_one_that_was_given_alone():
    given = LossScaler(4.0, growth_interval=1)
    outcomes(LossScaler.of(given), "..")
    assert given.state() == (4.0, 0, 0)


@pytest.mark.parametrize("given", [0, -2.0, 3, 1000, float("inf"), float("nan"), True, "static", "1e4", [2],
                                   2.0 ** 127])
def test_a_scale_that_is_no_power_of_two_is_refused(given):
    with pytest.raises(ValueError, match="loss_scale=.*power of two"):
        LossScaler.of(given)


@pytest.mark.parametrize("settings, names", [
    ({"growth_factor": 3.0}, "growth_factor"), ({"growth_factor": 1.0}, "growth_factor"),
    ({"backoff_factor": 2.0}, "backoff_factor"), ({"growth_interval": 0}, "growth_interval"),
    ({"growth_interval": 2.5}, "growth_interval"), ({"least": 2.0 ** 20}, "least"), ({"most": 8.0}, "most")])
def test_settings_that_make_no_sense_are_refused_by_name(settings, names):
    with pytest.raises(ValueError, match=names):
        LossScaler(**settings)


def test_a_state_goes_on_where_it_was_and_a_damaged_one_is_refused():
    one, other = LossScaler(growth_interval=3), LossScaler(growth_interval=3)
    outcomes(one, "..x..")
    other.restore(one.state())
    assert outcomes(one, "..x....") == outcomes(other, "..x....") and one.state() == other.state()
    with pytest.raises(MXNetError, match="saved loss scale"):
        other.restore((3.0, 0, 0))

"""Update ops: the order of rescale, clip and decay, and trajectories of several steps."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.ops import get_op
from minigraph.ops.control import CLIP, GLOBAL_NORM, RESCALE, control_size, lr_word

from .harness import execute_by_name, parsed, run


def control(lr, wd=0.0, rescale=1.0, clip=-1.0, norm=0.0, index=0):
    words = np.full(control_size(index + 1), np.nan, np.float32)
    words[RESCALE], words[CLIP], words[GLOBAL_NORM] = rescale, clip, norm
    words[lr_word(index)], words[lr_word(index) + 1] = lr, wd
    return words


@pytest.mark.parametrize("g, clip, want", [(10, 1.0, 1.4), (20, 1.0, 1.4), (20, -1.0, 0.9)])
@pytest.mark.parametrize("name, states, params", [
    ("_sgd_update", 0, {}), ("_sgd_mom_update", 1, {"momentum": 0.0}), ("_nag_update", 1, {"momentum": 0.0})])
def test_sgd_methods_decay_outside_the_clip(name, states, params, g, clip, want):
    w = np.array([2.0])
    arrays = [w, np.array([float(g)]), *[np.zeros(1)] * states, control(0.5, 0.1, 0.1, clip, index=2)]
    np.testing.assert_allclose(run(name, {"index": 2, **params}, arrays)[0], [want], rtol=1e-6)


def test_adam_decays_inside_the_clip():
    # With both betas 0 the step is lr g / (|g| + eps): eps = 1 shows g = clip(0.1 * 10 + 0.1 * 2) = 1.
    arrays = [np.array([2.0]), np.array([10.0]), np.zeros(1), np.zeros(1), control(0.5, 0.1, 0.1, 1.0)]
    outs = run("_adam_update", {"index": 0, "beta1": 0, "beta2": 0, "epsilon": 1.0}, arrays)
    np.testing.assert_allclose(outs[0], [2 - 0.5 * 1 / 2], rtol=1e-6)
    np.testing.assert_allclose(outs[1:], [[1], [1]], rtol=1e-6)


def trajectory(name, params, states, rates, wd, torch_optimizer):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    w = rng.normal(size=(7, 5))
    kept = [np.zeros_like(w) for _ in range(states)]
    t = torch.tensor(w, requires_grad=True)
    optimizer = torch_optimizer(torch.optim, [t])
    for step in range(5):
        g = rng.normal(size=w.shape)
        t.grad = torch.tensor(g)
        optimizer.step()
        w, *kept = run(name, {"index": 0, **params}, [w, g, *kept, control(rates(step + 1), wd)])
    np.testing.assert_allclose(w, t.detach().numpy(), rtol=1e-6, atol=1e-7)


def test_five_steps_of_momentum_equal_torch():
    trajectory("_sgd_mom_update", {"momentum": 0.9}, 1, lambda t: 0.0625, 0.125,
               lambda optim, ws: optim.SGD(ws, lr=0.0625, momentum=0.9, weight_decay=0.125))


def test_five_steps_of_nesterov_equal_torch():
    trajectory("_nag_update", {"momentum": 0.9}, 1, lambda t: 0.0625, 0.125,
               lambda optim, ws: optim.SGD(ws, lr=0.0625, momentum=0.9, weight_decay=0.125, nesterov=True))


def test_five_steps_of_adam_equal_torch_in_its_own_epsilon():
    # torch divides by sqrt(v / (1 - b2^t)) + eps: eps so small that the difference vanishes.
    trajectory("_adam_update", {"epsilon": 1e-15}, 2,
               lambda t: 0.0625 * (1 - 0.999 ** t) ** 0.5 / (1 - 0.9 ** t), 0.125,
               lambda optim, ws: optim.Adam(ws, lr=0.0625, eps=1e-15, weight_decay=0.125))


def test_states_are_mutated_in_place_and_never_run_twice():
    for name, pairs in (("_sgd_update", ((0, 0),)), ("_sgd_mom_update", ((0, 0), (2, 1))),
                        ("_adam_update", ((0, 0), (2, 1), (3, 2)))):
        op = get_op(name)
        assert op.mutates(parsed(op, {"index": 0})) == pairs
        assert op.recompute == "never"


def test_updates_run_in_blocks_of_bounded_scratch():
    from minigraph.base import TensorType
    op = get_op("_adam_update")
    big = TensorType((1000, 1000), np.dtype(np.float32))
    (algorithm,) = op.algorithms(parsed(op, {"index": 0}), [big], [big])
    assert algorithm.workspace_bytes <= 1 << 19
    rng = np.random.default_rng(0)
    w, g, m, v = (rng.random(100_001, np.float32) for _ in range(4))
    words = control(0.1, 0.01)
    whole = execute_by_name("_adam_update", {"index": 0}, [w, g, m, v, words])
    for start in (0, 99_000):
        some = [a[start:start + 1001] for a in (w, g, m, v)]
        part = execute_by_name("_adam_update", {"index": 0}, [*some, words])
        for a, b in zip(whole, part, strict=True):
            assert a[start:start + 1001].tobytes() == b.tobytes()


def test_global_norm_scales_the_rescaled_gradients_together():
    grads = [np.array([3.0, 0.0], np.float32), np.array([[8.0, 6.0]], np.float32)]
    sums = [run("_sum_squares", {}, [g])[0] for g in grads]
    assert [s.tolist() for s in sums] == [[9.0], [100.0]]
    norm = 0.5 * 109 ** 0.5
    for bound, want in ((1.0, 1 / norm), (100.0, 1.0), (0.0, 1.0), (-1.0, 1.0)):
        (scale,) = run("_global_norm_scale", {"num_args": 2}, [*sums, control(0.1, rescale=0.5, norm=bound)])
        np.testing.assert_allclose(scale, [want], rtol=1e-6)
    w = np.zeros(2, np.float32)
    (new,) = run("_sgd_update", {"index": 0, "has_scale": True},
                 [w, grads[0], control(1.0, rescale=0.5), np.array([0.25], np.float32)])
    np.testing.assert_allclose(new, [-3 * 0.5 * 0.25, 0])


def test_sums_of_squares_are_accumulated_in_double_precision():
    g = np.full(3_000_000, 0.1, np.float32)
    np.testing.assert_allclose(run("_sum_squares", {}, [g])[0], np.float64(g[0]) ** 2 * g.size, rtol=1e-7)

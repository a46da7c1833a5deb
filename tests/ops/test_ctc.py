"""CTCLoss: known values, sequences of unequal lengths, and what is refused."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

ACTS = np.array([[[1.2, 3.4, 1.2, -0.1, -2.34], [1.2, 3.4, 1.2, -0.1, -2.34]],
                 [[0.1, 0.2, 0.3, 0.22, 0.123], [0.1, 0.2, 0.3, 0.22, 0.123]],
                 [[-15, -14, -13, -12, -11], [-15, -14, -13, -12, -11]]], np.float32)


def losses(data: Any, label: Any, *lengths: Any, **params: Any) -> tuple[np.ndarray, np.ndarray]:
    """The losses and the gradient of their sum."""
    arrays = [np.asarray(a, np.float32) for a in (data, label, *lengths)]
    given = [mx.sym.Variable(f"in{k}") for k in range(len(arrays))]
    executor = mx.sym.ctc_loss(*given, **params).simple_bind(
        mx.cpu(), grad_req={"in0": "write"}, **{f"in{k}": a.shape for k, a in enumerate(arrays)})
    for array, value in zip(executor.arg_arrays, arrays, strict=True):
        array[:] = value
    loss = executor.forward(is_train=True)[0].asnumpy()
    executor.backward([mx.nd.ones(loss.shape)])
    return loss, executor.grad_dict["in0"].asnumpy()


def test_losses_of_padded_labels_are_those_that_torch_and_mxnet_give():
    np.testing.assert_allclose(losses(ACTS, [[2, 3, 0], [2, 3, 0]])[0], 4.04789, rtol=1e-5)
    np.testing.assert_allclose(losses(ACTS, [[2, 3, 1], [2, 0, 0]])[0], [7.459684, 5.216469], rtol=1e-4)
    last = losses(ACTS[:, :, [1, 2, 3, 4, 0]], [[1, 2, -1], [1, 2, 0]], blank_label="last")
    np.testing.assert_allclose(last[0], [4.04789, 7.459684], rtol=1e-4)


def test_frames_and_classes_past_a_length_change_nothing():
    loss, grad = losses(ACTS, [[2, 3, 1], [2, 4, 4]], [3, 2], [2, 1], use_data_lengths=True, use_label_lengths=True)
    whole, whole_grad = losses(ACTS, [[2, 3, 0], [2, 0, 0]])
    short, short_grad = losses(ACTS[:2], [[2, 3, 0], [2, 0, 0]])
    np.testing.assert_allclose(loss, [whole[0], short[1]], rtol=1e-6)
    np.testing.assert_allclose(grad[:, 0], whole_grad[:, 0], atol=1e-6)
    np.testing.assert_allclose(grad[:2, 1], short_grad[:, 1], atol=1e-6)
    assert not grad[2, 1].any()


def test_a_label_that_needs_more_frames_than_there_are_has_loss_and_gradient_0():
    loss, grad = losses(ACTS, [[2, 2, 0], [2, 2, 3]])
    assert loss[0] > 0 and loss[1] == 0 and not grad[:, 1].any()


def test_an_empty_label_is_blanks_all_along():
    logs = ACTS - np.log(np.exp(ACTS).sum(2, keepdims=True))
    np.testing.assert_allclose(losses(ACTS, [[0, 0], [0, 1]])[0], -logs[:, :, 0].sum(0), rtol=1e-5)


def test_long_sequences_do_not_underflow():
    data = np.zeros((3000, 1, 4))
    loss, grad = losses(data, [[1, 2, 3]])
    assert np.isfinite(loss).all() and loss[0] == pytest.approx(4123.0, abs=10) and np.isfinite(grad).all()


def test_labels_and_lengths_out_of_range_are_refused_with_their_place():
    with pytest.raises(MXNetError, match=r"CTCLoss: label: 5.0 at position \(1, 0\) is outside \[0, 5\) and is not"):
        losses(ACTS, [[2, 3, 1], [5, 0, 0]])
    with pytest.raises(MXNetError, match=r"CTCLoss: data length: 4.0 at position \(0,\) is outside \[0, 4\)"):
        losses(ACTS, [[2, 3, 1], [1, 0, 0]], [4, 3], use_data_lengths=True)

"""Losses agree with NumPy under every option, and a label out of range adds no loss and gives no gradient."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cuda.launch import Operand, kernel_op

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("loss", "softmax", "basic")
BACKWARD = "_softmax_output_backward"
CROSS_ENTROPY_BACKWARD = "_softmax_cross_entropy_backward"


def random_labels(shape, bound, kind=np.float32):
    return np.random.default_rng(1).integers(0, bound, shape).astype(kind)


def probabilities(*shape):
    return random_arrays(shape, low=0.0)[0]


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("loss") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("loss"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
@pytest.mark.parametrize("use_ignore", [False, True])
@pytest.mark.parametrize("smooth_alpha", [0.0, 0.1])
@pytest.mark.parametrize("out_grad", [False, True])
@pytest.mark.parametrize("layout", ["flat", "multi_output", "preserve_shape"])
def test_the_gradient_agrees_with_numpy_under_every_option(kernels, normalization, use_ignore, smooth_alpha,
                                                           out_grad, layout):
    shape, label = {"flat": ((5, 3, 2), (5,)), "multi_output": ((3, 6, 4), (3, 4)),
                    "preserve_shape": ((3, 4, 6), (3, 4))}[layout]
    params = {"normalization": normalization, "use_ignore": use_ignore, "smooth_alpha": smooth_alpha,
              "out_grad": out_grad, "ignore_label": 2.0, "grad_scale": 0.5}
    if layout != "flat":
        params[layout] = True
    above = random_arrays(shape, seed=3) if out_grad else []
    arrays = [probabilities(*shape), random_labels(label, 6), *above]
    kernels.check(BACKWARD, params, arrays, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("classes", "inner"), [(17, 1), (1000, 1), (1030, 1), (20, 40)])
def test_rows_of_a_warp_and_a_block_agree_with_numpy(kernels, classes, inner):
    labels = random_labels((4, inner), classes)
    labels[1] = -1
    params = {"multi_output": True, "use_ignore": True, "normalization": "valid"}
    kernels.check(BACKWARD, params, [probabilities(4, classes, inner), labels], rtol=1e-6)
    (data,) = random_arrays((4, classes, inner), low=-4, high=4)
    kernels.check("SoftmaxOutput", {"multi_output": True}, [data, labels], rtol=1e-5)


def test_labels_of_several_pieces_are_all_counted(kernels):
    labels = random_labels((9, 1000), 3)
    params = {"multi_output": True, "normalization": "valid", "use_ignore": True, "ignore_label": 1}
    kernels.check(BACKWARD, params, [probabilities(9, 3, 1000), labels], rtol=1e-6, atol=0)


def test_a_batch_of_ignored_labels_alone_gives_a_gradient_of_zero(kernels):
    params = {"normalization": "valid", "use_ignore": True}
    found, = kernels.check(BACKWARD, params, [probabilities(3, 4), np.full(3, -1, np.float32)])
    assert not found.any()


def test_target_probabilities_take_the_place_of_labels(kernels):
    out, label, above = random_arrays((300, 7), (300, 7), (300, 7), low=0.0)
    kernels.check(BACKWARD, {"grad_scale": 3.0}, [out, label], rtol=1e-6)
    kernels.check(BACKWARD, {"out_grad": True, "normalization": "valid"}, [out, label, above], rtol=1e-6)


BAD = np.array([-1, 10, -100, np.nan, 2147483647, 3], np.float32)


def test_a_label_out_of_range_gets_a_gradient_of_zero(kernels):
    out = probabilities(6, 10)
    found, = kernels.run(BACKWARD, {}, [out, BAD])
    expected = np.zeros_like(out)
    expected[5] = out[5]
    expected[5, 3] -= 1
    assert (found == expected).all()


def test_the_ignored_label_may_be_out_of_range(kernels):
    labels = np.array([-100, 3, -100], np.float32)
    kernels.check(BACKWARD, {"use_ignore": True, "ignore_label": -100}, [probabilities(3, 10), labels])


def test_cross_entropy_skips_a_label_out_of_range_forward_and_backward(kernels):
    (data,) = random_arrays((6, 10))
    grad = np.array([2], np.float32)
    loss, = kernels.run("softmax_cross_entropy", {}, [data, BAD])
    alone, = kernels.run("softmax_cross_entropy", {}, [data[5:], BAD[5:]])
    assert loss == alone
    slopes, = kernels.run(CROSS_ENTROPY_BACKWARD, {}, [grad, data, BAD])
    assert not slopes[:5].any() and slopes[5, 3] < 0


LOGITS = [([100, -21], 1, 121, [1, -1]), ([1e8, 1e8], 1, 0.6931472, [.5, -.5]),
          ([-431, 279, 427], 0, 858, [-1, 0, 1]), ([-1047, -981, 1891], 0, 2938, [-1, 0, 1]),
          ([0, 0, 0, 0], 2, 1.3862944, [.25, .25, -.75, .25])]


@pytest.mark.parametrize(("logits", "label", "loss", "slopes"), LOGITS)
def test_cross_entropy_is_exact_at_extreme_logits(kernels, logits, label, loss, slopes):
    data, labels = np.array([logits], np.float32), np.array([label], np.float32)
    found, = kernels.check("softmax_cross_entropy", {}, [data, labels])
    assert found[0] == np.float32(loss)
    grad = np.ones(1, np.float32)
    found, = kernels.check(CROSS_ENTROPY_BACKWARD, {}, [grad, data, labels])
    np.testing.assert_allclose(found[0], slopes, atol=1e-7)


@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (2100, 3), (9, 100), (3, 1500), (0, 4)])
def test_cross_entropy_of_any_size_agrees_with_numpy(kernels, rows, classes):
    (data,) = random_arrays((rows, classes), low=-4, high=4)
    labels = random_labels(rows, classes)
    kernels.check("softmax_cross_entropy", {}, [data, labels], rtol=1e-5)
    grad = np.array([0.3], np.float32)
    kernels.check(CROSS_ENTROPY_BACKWARD, {}, [grad, data, labels], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integer_labels_are_read(kernels, kind):
    out, labels = probabilities(5, 20), random_labels(5, 20, kind)
    for normalization in ("null", "valid"):
        params = {"normalization": normalization, "ignore_label": int(labels[0])}
        kernels.check(BACKWARD, params, [out, labels])
    kernels.check("softmax_cross_entropy", {}, [out, labels])
    kernels.check(CROSS_ENTROPY_BACKWARD, {}, [np.ones(1, np.float32), out, labels])
    kernels.check("_regression_backward", {"kind": "difference"}, [out[:, :1], labels])


@pytest.mark.parametrize("kind", ["difference", "sign"])
def test_regression_of_several_outputs_a_sample_agrees_with_numpy(kernels, kind):
    out, label = random_arrays((9, 3, 121), (9, 363))
    out[0, 0] = label[0, :121]
    out[1, 1, 1] = np.nan
    kernels.check("_regression_backward", {"kind": kind, "grad_scale": 2.0}, [out, label], rtol=1e-6)


@pytest.mark.parametrize("op_name", [f"{kind}RegressionOutput" for kind in ("Linear", "Logistic", "MAE")])
def test_predictions_agree_with_numpy_at_any_size(kernels, op_name):
    for size in (0, 1, 7, 1025):
        data, label = random_arrays((size, 1), (size, 1), low=-200, high=200)
        kernels.check(op_name, {}, [data, label], rtol=1e-6, atol=1e-7)


def test_rows_beyond_one_grid_are_covered(kernels, monkeypatch):
    monkeypatch.setattr("minigraph.device.cuda.launch.MAX_BLOCKS", 2)
    for rows, classes in ((700, 3), (40, 20), (5, 1030)):
        params = {"normalization": "valid", "use_ignore": True, "ignore_label": 1}
        kernels.check(BACKWARD, params, [probabilities(rows, classes), random_labels(rows, classes)])
    kernels.check(BACKWARD, {"normalization": "valid", "multi_output": True},
                  [probabilities(1, 1, 12500), random_labels((1, 12500), 1)])


def test_another_dtype_is_refused_by_name():
    out, label = Operand(64, (3, 3), np.dtype(np.float32)), Operand(64, (3,), np.dtype(np.float16))
    with pytest.raises(MXNetError, match="operator softmax_cross_entropy: its CUDA kernels take ids"):
        kernel_op("softmax_cross_entropy").launches(None, [out, label], [out], 0)

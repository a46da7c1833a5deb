"""SoftmaxOutput, regression outputs, softmax_cross_entropy."""
from __future__ import annotations

import warnings

import numpy as np
import pytest

import minigraph.ops  # noqa: F401
from minigraph.base import MXNetError
from minigraph.ops import ShapeError, get_op

from .harness import gradients, parsed, run

EDGES = [([100, -21], 1, 121, [1, -1]), ([1e8, 1e8], 1, 0.6931472, [0.5, -0.5]),
         ([-431, 279, 427], 0, 858, [-1, 0, 1]), ([-1047, -981, 1891], 0, 2938, [-1, 0, 1]),
         ([0, 0, 0, 0], 2, 1.3862944, [0.25, 0.25, -0.75, 0.25])]


@pytest.mark.parametrize("logits, label, loss, gradient", EDGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_is_exact_at_extreme_logits(logits, label, loss, gradient, dtype):
    data, labels = np.array([logits], dtype), np.array([label], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (out,) = run("softmax_cross_entropy", {}, [data, labels])
        np.testing.assert_allclose(out, [loss], rtol=1e-6)
        found, _ = gradients("softmax_cross_entropy", {}, [data, labels], [np.ones(1, dtype)])
        np.testing.assert_allclose(found, [gradient], rtol=1e-6, atol=1e-30)
        found, _ = gradients("SoftmaxOutput", {}, [data, labels], [None])
        np.testing.assert_allclose(found, [gradient], rtol=1e-6, atol=1e-30)


def test_cross_entropy_sums_over_rows_and_its_gradient_takes_the_head():
    rng = np.random.default_rng(0)
    x, label = rng.normal(size=(300, 5)), rng.integers(0, 5, 300)
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    (out,) = run("softmax_cross_entropy", {}, [x, label])
    np.testing.assert_allclose(out, [-np.log(p[np.arange(300), label]).sum()])
    found, _ = gradients("softmax_cross_entropy", {}, [x, label], [np.array([3.0])])
    np.testing.assert_allclose(found, 3 * (p - np.eye(5)[label]), rtol=1e-12, atol=1e-15)


def test_cross_entropy_names_the_row_of_a_bad_label():
    label = np.zeros(300)
    label[200] = 7
    with pytest.raises(MXNetError, match=r"7.0 at position \(200,\) is outside \[0, 5\)"):
        run("softmax_cross_entropy", {}, [np.zeros((300, 5)), label])


DATA = np.random.default_rng(5).normal(size=(4, 3))
LABEL = np.array([0, 2, 2, 1])
PROB = np.exp(DATA) / np.exp(DATA).sum(1, keepdims=True)
HOT = np.eye(3)[LABEL]


@pytest.mark.parametrize("params, want", [
    ({}, PROB - HOT), ({"grad_scale": 3.0}, 3 * (PROB - HOT)),
    ({"normalization": "batch"}, (PROB - HOT) / 4), ({"normalization": "valid"}, (PROB - HOT) / 4),
    ({"use_ignore": True, "ignore_label": 2}, (PROB - HOT) * (LABEL != 2)[:, None]),
    ({"use_ignore": True, "ignore_label": 2, "normalization": "valid"},
     (PROB - HOT) * (LABEL != 2)[:, None] / 2),
    ({"ignore_label": 2, "normalization": "valid"}, (PROB - HOT) / 2),
    ({"smooth_alpha": 0.1}, PROB - (0.9 * HOT + 0.05 * (1 - HOT)))])
def test_softmax_output_gradient_by_its_parameters(params, want):
    found, none = gradients("SoftmaxOutput", params, [DATA, LABEL], [None])
    assert none is None
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-15)


def test_softmax_output_is_the_probability_and_does_not_read_its_label():
    assert get_op("Softmax").unread(parsed(get_op("Softmax"), {})) == (1,)
    np.testing.assert_allclose(run("SoftmaxOutput", {}, [DATA, LABEL])[0], PROB)


def test_softmax_output_takes_the_gradient_from_above_only_with_out_grad():
    head = np.random.default_rng(0).normal(size=DATA.shape)
    op = get_op("SoftmaxOutput")
    assert op.is_loss(parsed(op, {})) and not op.is_loss(parsed(op, {"out_grad": True}))
    np.testing.assert_allclose(gradients("SoftmaxOutput", {}, [DATA, LABEL], [head])[0], PROB - HOT)
    np.testing.assert_allclose(gradients("SoftmaxOutput", {"out_grad": "True"}, [DATA, LABEL], [head])[0],
                               (PROB - HOT) * head)
    assert gradients("SoftmaxOutput", {"out_grad": True}, [DATA, LABEL], [None]) == [None, None]


def test_labels_of_the_datas_shape_are_probabilities():
    target = np.full((4, 3), 1 / 3)
    found, _ = gradients("SoftmaxOutput", {"grad_scale": 2.0, "normalization": "batch"}, [DATA, target],
                         [None])
    np.testing.assert_allclose(found, 2 * (PROB - target))


@pytest.mark.parametrize("label_shape", [(2, 6), (2, 2, 3), (2, 1, 2, 3)])
@pytest.mark.parametrize("normalization, divisor", [("null", 6), ("batch", 12), ("valid", 11)])
def test_multi_output_has_a_label_a_place(label_shape, normalization, divisor):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 2, 3))
    label = np.array([0, 1, 2, 3, 1, 1, -1, 2, 3, 0, 0, 1])
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    want = (p - np.moveaxis(np.eye(5)[label][:, :4].reshape(2, 2, 3, 4), -1, 1))
    want[1, :, 0, 0] = 0
    params = {"multi_output": True, "use_ignore": True, "normalization": normalization}
    found, _ = gradients("SoftmaxOutput", params, [x, label.reshape(label_shape)], [None])
    np.testing.assert_allclose(found, want / divisor, rtol=1e-12, atol=1e-15)


def test_preserve_shape_works_along_the_last_axis():
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    label = np.array([[0, 1, 2], [3, 3, 0]])
    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    found, _ = gradients("SoftmaxOutput", {"preserve_shape": True, "normalization": "batch"}, [x, label],
                         [None])
    np.testing.assert_allclose(found, (p - np.eye(4)[label]) / 6, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("params, data, label", [
    ({}, (5, 3), (5,)), ({"multi_output": True}, (5, 3, 2, 2), (5, 4)),
    ({"preserve_shape": True}, (5, 3, 2), (5, 3))])
def test_label_shape_is_inferred_from_data(params, data, label):
    op = get_op("SoftmaxOutput")
    assert op.infer_shape(parsed(op, params), [data, None], [None]) == ([data, label], [data])
    with pytest.raises(ShapeError, match=r"label has shape \(7,\)"):
        op.infer_shape(parsed(op, params), [data, (7,)], [None])


@pytest.mark.parametrize("bad", [3.0, -1.0, -100.0, np.nan])
def test_labels_outside_the_classes_raise_with_position_and_value(bad):
    label = LABEL.astype(np.float64)
    label[2] = bad
    with pytest.raises(MXNetError, match=rf"label: {bad} at position \(2,\) is outside \[0, 3\)"):
        gradients("SoftmaxOutput", {}, [DATA, label], [None])
    params = {"use_ignore": True, "ignore_label": -100}
    if bad == -100:
        found, _ = gradients("SoftmaxOutput", params, [DATA, label], [None])
        assert found[2].tolist() == [0, 0, 0] and found[1].any()
    else:
        with pytest.raises(MXNetError, match="and is not the ignored -100"):
            gradients("SoftmaxOutput", params, [DATA, label], [None])


def test_all_labels_ignored_give_a_zero_gradient():
    params = {"use_ignore": True, "normalization": "valid"}
    found, _ = gradients("SoftmaxOutput", params, [DATA, np.full(4, -1)], [None])
    assert not found.any()


@pytest.mark.parametrize("name, output, gradient", [
    ("LinearRegressionOutput", lambda x: x, lambda y, t: y - t),
    ("LogisticRegressionOutput", lambda x: 1 / (1 + np.exp(-x)), lambda y, t: y - t),
    ("MAERegressionOutput", lambda x: x, lambda y, t: np.sign(y - t))])
def test_regression_outputs_divide_their_gradient_by_the_outputs_a_sample(name, output, gradient):
    target = np.random.default_rng(1).normal(size=(4, 3))
    (out,) = run(name, {}, [DATA, target])
    np.testing.assert_allclose(out, output(DATA))
    found, _ = gradients(name, {"grad_scale": 2.0}, [DATA, target], [None])
    np.testing.assert_allclose(found, gradient(out, target) * 2 / 3)
    assert get_op(name).is_loss(None)


def test_regression_labels_of_one_output_have_one_axis():
    op = get_op("LinearRegressionOutput")
    assert op.infer_shape(None, [(5, 1), None], [None])[0] == [(5, 1), (5,)]
    assert op.infer_shape(None, [(5, 2), None], [None])[0] == [(5, 2), (5, 2)]
    with pytest.raises(ShapeError):
        op.infer_shape(None, [(5, 2), (5,)], [None])

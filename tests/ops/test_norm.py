"""BatchNorm and LayerNorm: statistics, gradients, moving averages, exactness, scratch."""
from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import minigraph.ops.layer_norm  # noqa: F401
import minigraph.ops.norm  # noqa: F401
import minigraph.ops.sync_batch_norm  # noqa: F401
from minigraph.base import MXNetError, TensorType
from minigraph.ops.op import ShapeError, Workspace
from minigraph.ops.registry import get_op

from .harness import EagerBuilder, expand_and_run, gradients, numeric_gradient, parsed, run

RNG = np.random.default_rng(11)
OP = get_op("BatchNorm")
FREE = {"fix_gamma": False}
CASES = [((4, 3, 8, 8), 1), ((5, 3), 1), ((3, 4, 5, 2), 2), ((3, 4, 7), -1), ((3, 5), 0), ((40, 2, 600), 1),
         ((2, 3, 300, 301), 1)]


def batch_arrays(shape, axis=1, dtype=np.float64):
    vector = (shape[axis],)
    gamma, beta, mean = (RNG.standard_normal(vector).astype(dtype) for _ in range(3))
    var = RNG.uniform(0.5, 2, vector).astype(dtype)
    return [(RNG.standard_normal(shape) * 2 + 3).astype(dtype), gamma, beta, mean, var]


def normalised(x, axis, mean, var, eps):
    column = [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
    return (x - mean.reshape(column)) / np.sqrt(var.reshape(column) + eps)


def by_channel(x, axis):
    return np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)


@pytest.mark.parametrize("shape, axis", CASES)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-11), (np.float32, 2e-5)])
def test_training_normalises_by_the_biased_statistics_of_the_batch(shape, axis, dtype, tolerance):
    data, gamma, beta, *_ = batch_arrays(shape, axis, dtype)
    out, mean, var, _ = run("_batchnorm_train", {**FREE, "axis": axis, "eps": 0.01}, [data, gamma, beta])
    wide = by_channel(data.astype(np.float64), axis)
    np.testing.assert_allclose(mean, wide.mean(1), tolerance)
    np.testing.assert_allclose(var, wide.var(1), tolerance)
    column = [-1 if a == axis % data.ndim else 1 for a in range(data.ndim)]
    expected = normalised(data.astype(np.float64), axis, wide.mean(1), wide.var(1), 0.01)
    expected = expected * gamma.reshape(column) + beta.reshape(column)
    np.testing.assert_allclose(out, expected, tolerance, tolerance)


@pytest.mark.parametrize("shape, axis", CASES)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 1e-4)])
def test_training_gradients_are_those_of_torch(shape, axis, dtype, tolerance):
    torch = pytest.importorskip("torch")
    data, gamma, beta, *_ = batch_arrays(shape, axis, dtype)
    head = RNG.standard_normal(shape).astype(dtype)
    tensors = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (data, gamma, beta)]
    second = torch.movedim(tensors[0], axis, 1)
    out = torch.nn.functional.batch_norm(second, None, None, *tensors[1:], training=True, eps=0.01)
    out.backward(torch.movedim(torch.tensor(head.astype(np.float64)), axis, 1))
    found = gradients("_batchnorm_train", {**FREE, "axis": axis, "eps": 0.01}, [data, gamma, beta],
                      [head, None, None, None])
    for got, tensor in zip(found, tensors, strict=True):
        want = tensor.grad.numpy()
        np.testing.assert_allclose(got, want, tolerance, tolerance * np.abs(want).max())


def test_gradients_are_those_of_central_differences():
    arrays = batch_arrays((3, 2, 2, 2))
    head = RNG.standard_normal((3, 2, 2, 2))
    for name, count in (("_batchnorm_train", 3), ("_batchnorm_inference", 5)):
        grads = [head] + [None] * (len(get_op(name).outputs(parsed(OP, {}))) - 1)
        found = gradients(name, FREE, arrays[:count], grads)
        for i in range(3):
            want = numeric_gradient(name, FREE, arrays[:count], i, head)
            np.testing.assert_allclose(found[i], want, 1e-5, 1e-7)


FUSED = [(act_type, addend) for act_type in (None, "relu", "sigmoid", "tanh") for addend in (False, True)
         if act_type or addend]


def after_normalisation(out, addend, act_type):
    """What an addition and an Activation of their own make of a normalised tensor."""
    total = run("elemwise_add", {}, [addend, out])[0] if addend is not None else out
    return run("Activation", {"act_type": act_type}, [total])[0] if act_type else total


@pytest.mark.parametrize("shape, axis", CASES)
@pytest.mark.parametrize("act_type, addend", FUSED)
def test_an_addend_and_an_activation_in_the_same_pass_have_the_bits_of_ops_of_their_own(shape, axis, act_type, addend):
    data, gamma, beta, mean, var = batch_arrays(shape, axis, np.float32)
    other = RNG.standard_normal(shape).astype(np.float32) if addend else None
    more = [other] * addend
    plain, fused = {**FREE, "axis": axis}, {**FREE, "axis": axis, "act_type": act_type, "addend": addend}
    out, *statistics = run("_batchnorm_train", fused, [data, gamma, beta, *more])
    alone, *expected = run("_batchnorm_train", plain, [data, gamma, beta])
    assert [s.tobytes() for s in statistics] == [s.tobytes() for s in expected]
    assert out.tobytes() == after_normalisation(alone, other, act_type).tobytes()
    again, = run("_batchnorm_apply", fused, [data, gamma, beta, *more, *statistics])
    assert again.tobytes() == out.tobytes()
    found, = run("_batchnorm_inference", fused, [data, gamma, beta, mean, var, *more])
    alone, = run("_batchnorm_inference", plain, [data, gamma, beta, mean, var])
    assert found.tobytes() == after_normalisation(alone, other, act_type).tobytes()


@pytest.mark.parametrize("shape, axis", CASES)
@pytest.mark.parametrize("act_type, addend", FUSED)
def test_gradients_in_the_same_pass_have_the_bits_of_ops_of_their_own(shape, axis, act_type, addend):
    data, gamma, beta, *_ = batch_arrays(shape, axis, np.float32)
    other, head = (RNG.standard_normal(shape).astype(np.float32) for _ in range(2))
    plain, fused = {**FREE, "axis": axis}, {**FREE, "axis": axis, "act_type": act_type, "addend": addend}
    b = EagerBuilder()
    found = gradients("_batchnorm_train", fused, [data, gamma, beta, *[other] * addend], [head, None, None, None],
                      builder=b)
    assert b.ops == ["_batchnorm_train", "_batchnorm_backward"]
    if act_type:
        out = run("_batchnorm_train", fused, [data, gamma, beta, *[other] * addend])[0]
        head, = run("_activation_backward", {"act_type": act_type}, [head, out])
    expected = gradients("_batchnorm_train", plain, [data, gamma, beta], [head, None, None, None])
    for got, want in zip(found, [*expected, *[head] * addend], strict=True):
        assert got.tobytes() == want.tobytes()


def test_moving_statistics_take_the_biased_variance_once():
    data = np.array([1, 2, 3, 4], np.float32).reshape(4, 1, 1, 1)
    b = EagerBuilder()
    vectors = [np.array([v], np.float32) for v in (1, 0, 0, 1)]
    _, mean, var = expand_and_run("BatchNorm", {}, [data, *vectors], builder=b)
    assert mean.item() == 2.5 and var.item() == 1.25
    assert b.ops.count("_batchnorm_update_moving") == 1
    moved = run("_batchnorm_update_moving", {}, [vectors[2], vectors[3], mean, var, data])
    np.testing.assert_allclose(moved, [[0.25], [1.025]], 1e-6)


def test_evaluation_and_global_statistics_use_and_keep_the_moving_ones():
    arrays = data, gamma, beta, mean, var = batch_arrays((3, 2, 4))
    for train, extra in ((False, {}), (True, {"use_global_stats": True})):
        b = EagerBuilder()
        out, *statistics = expand_and_run("BatchNorm", {**FREE, **extra}, arrays, train, b)
        assert b.ops == ["_batchnorm_inference"]
        expected = normalised(data, 1, mean, var, 1e-3) * gamma[:, None] + beta[:, None]
        np.testing.assert_allclose(out, expected, 1e-12)
        assert statistics[0] is mean and statistics[1] is var


@pytest.mark.parametrize("train", [True, False])
def test_a_fixed_gamma_acts_as_one_whatever_it_holds_and_is_overwritten(train):
    data, gamma, beta, mean, var = batch_arrays((3, 2, 4))
    b = EagerBuilder()
    out = expand_and_run("BatchNorm", {}, [data, gamma, beta, mean, var], train, b)[0]
    free = expand_and_run("BatchNorm", FREE, [data, np.ones(2), beta, mean, var], train)[0]
    assert out.tobytes() == free.tobytes()
    assert b.ops[0] == "_fill_ones" and (run("_fill_ones", {}, [gamma])[0] == 1).all()


def test_a_fixed_gamma_gets_no_gradient_and_is_not_read():
    arrays = batch_arrays((3, 2, 4))
    head = RNG.standard_normal((3, 2, 4))
    for name, count, rest in (("_batchnorm_train", 3, [None] * 3), ("_batchnorm_inference", 5, [])):
        found = gradients(name, {}, arrays[:count], [head, *rest])
        free = gradients(name, FREE, [arrays[0], np.ones(2), *arrays[2:count]], [head, *rest])
        assert found[1] is None
        assert found[0].tobytes() == free[0].tobytes() and found[2].tobytes() == free[2].tobytes()


def test_the_evaluation_gradient_is_scaled_by_the_moving_variance():
    arrays = batch_arrays((3, 2, 4))
    head = RNG.standard_normal((3, 2, 4))
    found = gradients("_batchnorm_inference", FREE, arrays, [head])
    np.testing.assert_allclose(found[0], head * (arrays[1] / np.sqrt(arrays[4] + 1e-3))[:, None], 1e-12)
    assert found[3] is None and found[4] is None


def test_parameter_gradients_of_evaluation_come_before_the_data_gradient():
    b = EagerBuilder()
    gradients("_batchnorm_inference", FREE, batch_arrays((3, 2, 4)), [np.ones((3, 2, 4))], builder=b)
    assert b.ops[1:] == ["_batchnorm_inference_backward_params", "_batchnorm_inference_backward_data"]
    found = gradients("_batchnorm_inference", FREE, batch_arrays((3, 2, 4)), [np.ones((3, 2, 4))],
                      [True] + [False] * 4)
    assert found[0] is not None and found[1:] == [None] * 4


def test_an_empty_batch_leaves_moving_statistics_as_they_are():
    vectors = [np.full(2, v) for v in (3.0, 4.0, 5.0, 6.0)]
    data = np.empty((0, 2, 4))
    out, mean, var, _ = run("_batchnorm_train", FREE, [data, *vectors[:2]])
    assert out.shape == data.shape and not mean.any() and not var.any()
    moved = run("_batchnorm_update_moving", FREE, [*vectors[2:], mean, var, data])
    assert (moved[0] == 5).all() and (moved[1] == 6).all()
    _, gamma, beta = gradients("_batchnorm_train", FREE, [data, *vectors[:2]], [out, None, None, None])
    assert not gamma.any() and not beta.any()


def test_a_large_mean_does_not_spoil_the_variance():
    x = (10000 + np.arange(64).reshape(16, 1, 4) * 0.001).astype(np.float32)
    out, _, var, _ = run("_batchnorm_train", {"eps": 1e-9}, [x, np.ones(1, np.float32), np.zeros(1, np.float32)])
    exact = x.astype(np.float64)
    np.testing.assert_allclose(var, exact.var(), 1e-5)
    np.testing.assert_allclose(out, (exact - exact.mean()) / np.sqrt(exact.var() + 1e-9), 1e-3, 2e-3)


def test_a_gradient_by_way_of_the_statistics_is_refused():
    arrays = batch_arrays((3, 2))[:3]
    with pytest.raises(MXNetError, match="BatchNorm has no gradient by way of its statistics"):
        gradients("_batchnorm_train", FREE, arrays, [None, np.ones(2), None, None])


def test_the_front_end_sees_what_it_sees_in_mxnet():
    p = parsed(OP, {"cudnn_off": "True"})
    assert p.eps == 1e-3 and p.fix_gamma and OP.visible_outputs(p) == 1
    assert OP.visible_outputs(parsed(OP, {"output_mean_var": True})) == 3
    assert OP.inputs(p)[3:] == OP.aux(p) == ("moving_mean", "moving_var")
    assert OP.variable_attrs(p)["moving_var"] == {"__init__": '["one", {}]'}
    assert get_op("CuDNNBatchNorm") is OP


@pytest.mark.parametrize("train", [False, True])
def test_the_statistics_that_are_shown_are_mean_and_inverse_deviation_as_in_mxnet(train):
    data, gamma, beta, mean, var = batch_arrays((6, 3))
    params = {"output_mean_var": True, "eps": 0.1}
    _, shown_mean, shown = expand_and_run("BatchNorm", params, [data, gamma, beta, mean, var], train)
    if train:
        mean, var = data.mean(0), data.var(0)
    np.testing.assert_allclose(shown_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(shown, 1 / np.sqrt(var + 0.1), rtol=1e-5)
    _, _, plain = expand_and_run("_contrib_SyncBatchNorm", params, [data, gamma, beta, mean, var], train)
    np.testing.assert_allclose(plain, var, rtol=1e-5)


def test_a_normalisation_over_several_devices_is_refused():
    with pytest.raises(ShapeError, match="ndev 4 and axis 1 must be 1: a graph runs on one device"):
        op = get_op("_contrib_SyncBatchNorm")
        op.infer_shape(parsed(op, {"ndev": 4}), [(2, 3), *[None] * 4], [None] * 3)


def test_vector_shapes_follow_from_data_and_channels_from_vectors():
    p = parsed(OP, {})
    ins, outs = OP.infer_shape(p, [(2, 3, 4), None, None, None, None], [None] * 3)
    assert ins == [(2, 3, 4), (3,), (3,), (3,), (3,)] and outs == [(2, 3, 4), (3,), (3,)]
    ins, outs = OP.infer_shape(p, [(2, None, 4), None, (3,), None, None], [None] * 3)
    assert ins[0] == (2, 3, 4) and outs[0] == (2, 3, 4)
    assert OP.infer_shape(p, [None] * 5, [None] * 3)[0] == [None] + [(None,)] * 4


def test_shape_errors_name_both_shapes():
    with pytest.raises(ShapeError, match=r"shape \(4,\), but data \(2, 3, 4\) has 3 channels"):
        OP.infer_shape(parsed(OP, {}), [(2, 3, 4), (4,), None, None, None], [None] * 3)
    with pytest.raises(ShapeError, match=r"axis 3 is outside data of shape \(2, 3\)"):
        OP.infer_shape(parsed(OP, {"axis": 3}), [(2, 3), None, None, None, None], [None] * 3)


def scratch_peak(name, params, ins, outs):
    """Bytes that NumPy allocates while an op runs in its planned scratch."""
    op = get_op(name)
    p = parsed(op, params)
    types = [[TensorType(a.shape, a.dtype) for a in arrays] for arrays in (ins, outs)]
    memory = np.zeros(op.algorithms(p, *types)[0].workspace_bytes, np.uint8)
    op.compute(p, ins, outs, Workspace(memory))
    tracemalloc.start()
    with np.errstate():
        np.setbufsize(2048)     # NumPy's own buffers: that many elements a strided or broadcast operand
        op.compute(p, ins, outs, Workspace(memory))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("shape", [(64, 16, 16, 16), (2, 4, 400, 400)])
def test_all_scratch_that_grows_is_planned(shape):
    data, gamma, beta, mean, var = batch_arrays(shape, 1, np.float32)
    out, grad = np.empty_like(data), np.empty_like(data)
    vectors, rest = (np.empty_like(mean), np.empty_like(mean)), np.empty_like(mean)
    assert scratch_peak("_batchnorm_train", FREE, [data, gamma, beta], [out, *vectors, rest]) < 32 << 10
    fused = {**FREE, "act_type": "relu", "addend": True}
    assert scratch_peak("_batchnorm_train", fused, [data, gamma, beta, data], [out, *vectors, rest]) < 32 << 10
    assert scratch_peak("_batchnorm_backward", fused, [data, data, gamma, mean, var, data],
                        [grad, *vectors, out]) < 32 << 10
    fused = {**FREE, "act_type": "relu"}
    assert scratch_peak("_batchnorm_backward", fused, [data, data, gamma, mean, var, beta, mean],
                        [grad, *vectors]) < 32 << 10
    saved = [data, gamma, mean, var]
    assert scratch_peak("_batchnorm_backward", FREE, [data, *saved], [grad, *vectors]) < 32 << 10
    rows = [np.ones((*shape[:-1], 1), np.float32) for _ in range(2)]
    wide = [np.ones(shape[-1], np.float32) for _ in range(2)]
    assert scratch_peak("LayerNorm", {}, [data, *wide], [out, *rows]) < 32 << 10
    assert scratch_peak("_layernorm_backward", {}, [data, data, wide[0], *rows], [grad, *wide]) < 32 << 10


def layer_norm(rows, dtype=np.float32):
    rows = np.atleast_2d(np.asarray(rows, dtype))
    return run("LayerNorm", {}, [rows, np.ones(rows.shape[1], dtype), np.zeros(rows.shape[1], dtype)])[0]


@pytest.mark.parametrize("mean, first", [(0, -1.341641), (100, -1.341528), (1000, -1.341508),
                                         (10000, -1.331333)])
def test_layer_norm_is_exact_beside_a_large_mean(mean, first):
    rows = (np.float32(mean) + np.arange(16) * 0.001).astype(np.float32)
    exact = rows.astype(np.float64)
    expected = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)
    assert abs(expected[0] - first) < 1e-6
    np.testing.assert_allclose(layer_norm(rows)[0], expected, 0, 2e-6)


def test_layer_norm_of_large_neighbours_and_of_a_constant():
    found = layer_norm([40000, 40001, 40002, 40003])[0]
    np.testing.assert_allclose(found, [-1.341635, -.447212, .447212, 1.341635], 0, 1e-6)
    assert not layer_norm(np.full(256, 1234.0)).any()


def test_layer_norm_gradients_are_exact_beside_a_large_mean():
    rows = (10000 + np.arange(16).reshape(1, 16) * 0.001).astype(np.float32)
    head = RNG.standard_normal(rows.shape).astype(np.float32)
    ones, zeros = np.ones(16, np.float32), np.zeros(16, np.float32)
    found = gradients("LayerNorm", {}, [rows, ones, zeros], [head, None, None])
    wide = [a.astype(np.float64) for a in (rows, ones, zeros)]
    exact = gradients("LayerNorm", {}, wide, [head.astype(np.float64), None, None])
    for got, want in zip(found, exact, strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-5 * np.abs(want).max())


@pytest.mark.parametrize("shape, axis", [((6, 9), -1), ((3, 4, 5), 2), ((3, 4, 5), 1), ((4, 3), 0),
                                         ((1, 700, 600), -1)])
def test_layer_norm_and_its_gradients_are_those_of_torch(shape, axis):
    torch = pytest.importorskip("torch")
    size = shape[axis]
    arrays = [RNG.standard_normal(shape), RNG.standard_normal(size), RNG.standard_normal(size)]
    head = RNG.standard_normal(shape)
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = torch.nn.functional.layer_norm(torch.movedim(tensors[0], axis, -1), (size,), *tensors[1:], 1e-5)
    torch.movedim(out, -1, axis).backward(torch.tensor(head))
    found, mean, std = run("LayerNorm", {"axis": axis}, arrays)
    np.testing.assert_allclose(found, torch.movedim(out, -1, axis).detach().numpy(), 1e-10, 1e-10)
    np.testing.assert_allclose(mean, arrays[0].mean(axis, keepdims=True), 1e-10, 1e-12)
    np.testing.assert_allclose(std, np.sqrt(arrays[0].var(axis, keepdims=True) + 1e-5), 1e-10)
    grads = gradients("LayerNorm", {"axis": axis}, arrays, [head, None, None])
    for got, tensor in zip(grads, tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), 1e-9, 1e-10)


def test_layer_norm_gradients_are_those_of_central_differences():
    arrays = [RNG.standard_normal(s) for s in ((2, 3, 2), (3,), (3,))]
    head = RNG.standard_normal((2, 3, 2))
    found = gradients("LayerNorm", {"axis": 1}, arrays, [head, None, None])
    for i in range(3):
        want = numeric_gradient("LayerNorm", {"axis": 1}, arrays, i, head)
        np.testing.assert_allclose(found[i], want, 1e-5, 1e-7)


def test_layer_norm_of_an_empty_batch_has_zero_parameter_gradients():
    arrays = [np.empty((0, 3, 4)), np.ones(4), np.ones(4)]
    found = gradients("LayerNorm", {}, arrays, [arrays[0], None, None])
    assert found[0].shape == (0, 3, 4) and not found[1].any() and not found[2].any()


def test_layer_norm_shapes_follow_from_data():
    op = get_op("LayerNorm")
    ins, outs = op.infer_shape(parsed(op, {"axis": 1}), [(2, 3, 4), None, None], [None] * 3)
    assert ins == [(2, 3, 4), (3,), (3,)] and outs == [(2, 3, 4), (2, 1, 4), (2, 1, 4)]
    assert op.infer_shape(parsed(op, {}), [None] * 3, [None] * 3)[1] == [None] * 3

"""Layers of the wider set: deconvolution, norms, products, upsampling, SVM and recurrent layers, as users see them."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.ops import ShapeError, get_op
from minigraph.ops.rnn import RnnParams, weight_shapes

from .harness import gradients, parsed, run


def inferred(name, params, ins, outs=(None,)):
    op = get_op(name)
    return op.infer_shape(parsed(op, params), list(ins), list(outs))


# -- deconvolution -------------------------------------------------------------------------------------------
def test_deconvolution_spreads_each_element_as_its_kernel():
    out, = run("Deconvolution", {"kernel": (2, 2), "stride": (2, 2), "num_filter": 1},
               [np.array([[[[1.0, 2], [3, 4]]]]), np.array([[[[1.0, 10], [100, 1000]]]])])
    np.testing.assert_array_equal(out[0, 0], np.kron([[1, 2], [3, 4]], [[1, 10], [100, 1000]]))


def test_deconvolution_has_no_bias_unless_asked_for_one():
    symbol = mx.sym.Deconvolution(mx.sym.Variable("x"), kernel=(2, 2), num_filter=3, name="up")
    assert symbol.list_arguments() == ["x", "up_weight"]
    args, outs, _ = symbol.infer_shape(x=(2, 4, 5, 5))
    assert (args, outs) == ([(2, 4, 5, 5), (4, 3, 2, 2)], [(2, 3, 6, 6)])


def test_target_shape_decides_pad_and_adj():
    params = {"kernel": (4, 4), "stride": (2, 2), "num_filter": 1, "target_shape": (7, 8)}
    assert inferred("Deconvolution", params, [(1, 2, 4, 4), None])[1] == [(1, 1, 7, 8)]
    with pytest.raises(ShapeError, match="larger than the output without padding"):
        inferred("Deconvolution", {**params, "target_shape": (11, 8)}, [(1, 2, 4, 4), None])


def test_adj_is_less_than_the_stride():
    with pytest.raises(ShapeError, match="adj"):
        inferred("Deconvolution", {"kernel": (2,), "num_filter": 1, "adj": (1,)}, [(1, 1, 3), None])


def test_a_bilinear_weight_interpolates_between_neighbours():
    symbol = mx.sym.UpSampling(mx.sym.Variable("x"), scale=2, sample_type="bilinear", num_filter=1, num_args=1,
                               name="upsampling0")
    assert symbol.list_arguments() == ["x", "upsampling0_weight"]
    executor = symbol.simple_bind(mx.cpu(), x=(1, 1, 1, 4))
    weight = executor.arg_dict["upsampling0_weight"]
    mx.init.Bilinear()(mx.init.InitDesc("upsampling0_weight"), weight)
    executor.arg_dict["x"][:] = np.arange(4.0).reshape(1, 1, 1, 4)
    out = executor.forward()[0].asnumpy()[0, 0]
    rows = out[0] / out[0, 3] * 1.25        # each row is at three quarters of its height
    np.testing.assert_allclose(rows[1:7], [0.25, 0.75, 1.25, 1.75, 2.25, 2.75], rtol=1e-6)


# -- norms ---------------------------------------------------------------------------------------------------
def test_lrn_divides_by_the_energy_of_neighbouring_channels():
    data = np.array([1.0, 2, 3, 4]).reshape(1, 4, 1, 1)
    out, norm = run("LRN", {"nsize": 3, "alpha": 3.0, "beta": 0.5, "knorm": 1.0}, [data])
    np.testing.assert_allclose(norm.ravel(), [1 + 5, 1 + 14, 1 + 29, 1 + 25])
    np.testing.assert_allclose(out.ravel(), data.ravel() / np.sqrt([6, 15, 30, 26]))
    with pytest.raises(ShapeError, match="odd"):
        inferred("LRN", {"nsize": 4}, [(1, 4, 2, 2)], [None, None])


def test_instances_far_from_zero_are_normalised_as_well():
    rng = np.random.default_rng(1)
    data = (1e4 + 1e-2 * rng.standard_normal((2, 2, 16, 16))).astype(np.float32)
    out, *_ = run("InstanceNorm", {"eps": 1e-12}, [data, np.ones(2, np.float32), np.zeros(2, np.float32)])
    wide = data.astype(np.float64)
    expected = (wide - wide.mean((2, 3), keepdims=True)) / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-12)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_statistics_have_no_gradient():
    with pytest.raises(MXNetError, match="have no gradient"):
        gradients("InstanceNorm", {}, [np.ones((1, 1, 2)), np.ones(1), np.ones(1)],
                  [np.ones((1, 1, 2)), np.ones((1, 1)), None])


def test_l2_normalization_makes_rows_of_length_1():
    data = np.random.default_rng(0).standard_normal((2, 3, 4))
    for mode, axes in (("instance", (1, 2)), ("channel", (1,)), ("spatial", (2,))):
        out, _ = run("L2Normalization", {"mode": mode}, [data])
        np.testing.assert_allclose((out ** 2).sum(axes), 1)


def test_norms_reduce_as_asked():
    symbol = mx.sym.norm(mx.sym.Variable("x"), ord=1, axis=1)
    executor = symbol.simple_bind(mx.cpu(), x=(2, 2))
    executor.arg_dict["x"][:] = np.array([[3.0, -4], [0, 1]])
    np.testing.assert_array_equal(executor.forward()[0].asnumpy(), [7, 1])
    with pytest.raises(MXNetError, match="ord=3"):
        mx.sym.norm(mx.sym.Variable("x"), ord=3).infer_shape(x=(2, 2))


# -- spatial transformers ------------------------------------------------------------------------------------
def test_a_half_turn_turns_the_image_and_points_outside_are_0():
    symbol = mx.sym.SpatialTransformer(mx.sym.Variable("x"), mx.sym.Variable("loc"), transform_type="affine",
                                       sampler_type="bilinear", target_shape=(2, 3))
    executor = symbol.simple_bind(mx.cpu(), x=(2, 1, 2, 3))
    executor.arg_dict["x"][:] = image = np.arange(12.0).reshape(2, 1, 2, 3)
    executor.arg_dict["loc"][:] = [[-1, 0, 0, 0, -1, 0], [1, 0, 5, 0, 1, 0]]
    out = executor.forward()[0].asnumpy()
    np.testing.assert_array_equal(out[0], image[0, :, ::-1, ::-1])
    np.testing.assert_array_equal(out[1], np.zeros((1, 2, 3)))
    with pytest.raises(ShapeError, match="at least 2"):
        inferred("SpatialTransformer", {"transform_type": "affine", "sampler_type": "bilinear",
                                        "target_shape": (1, 3)}, [(1, 1, 2, 2), None])


# -- products ------------------------------------------------------------------------------------------------
def test_products_refuse_axes_of_unequal_length():
    for name, ins in (("dot", [(2, 3), (4, 3)]), ("batch_dot", [(2, 2, 3), (2, 4, 3)])):
        with pytest.raises(ShapeError, match="lengths 3 and 4"):
            inferred(name, {}, ins)
    assert inferred("dot", {}, [(2, None), (3, 4)]) == ([(2, 3), (3, 4)], [(2, 4)])
    assert inferred("batch_dot", {"transpose_b": True}, [(None, 2, 3), (5, 4, 3)])[1] == [(5, 2, 4)]


def test_products_of_no_rows_are_empty_and_over_no_depth_are_0():
    assert run("dot", {}, [np.zeros((0, 3)), np.zeros((3, 2))])[0].shape == (0, 2)
    np.testing.assert_array_equal(run("dot", {}, [np.zeros((2, 0)), np.zeros((0, 2))])[0], np.zeros((2, 2)))


# -- the support vector machine ------------------------------------------------------------------------------
def test_svm_gradients_vanish_beyond_the_margin():
    data, label = np.array([[2.0, -0.5, 0.5]], np.float32), np.array([0.0], np.float32)
    for linear, expected in ((True, [0, 1, 1]), (False, [0, 1, 3])):
        symbol = mx.sym.SVMOutput(mx.sym.Variable("x"), name="svm", use_linear=linear)
        executor = symbol.simple_bind(mx.cpu(), x=(1, 3))
        executor.arg_dict["x"][:], executor.arg_dict["svm_label"][:] = data, label
        np.testing.assert_array_equal(executor.forward(is_train=True)[0].asnumpy(), data)
        executor.backward()
        np.testing.assert_array_equal(executor.grad_dict["x"].asnumpy(), [expected])


# -- recurrent layers ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode, size", [("rnn_tanh", 1), ("rnn_relu", 1), ("gru", 3), ("lstm", 4)])
def test_all_parameters_of_a_recurrent_network_are_one_vector(mode, size):
    symbol = mx.sym.RNN(mx.sym.Variable("x"), state_size=5, num_layers=2, bidirectional=True, mode=mode, name="rnn")
    args, outs, _ = symbol.infer_shape(x=(7, 3, 4))
    total = 2 * size * 5 * (4 + 5 + 2) + 2 * size * 5 * (10 + 5 + 2)
    assert args == [(7, 3, 4), (total,), *[(4, 3, 5)] * (2 if mode == "lstm" else 1)]
    assert outs == [(7, 3, 10)]


def test_weights_come_before_biases_in_the_vector():
    p = RnnParams(state_size=2, num_layers=2, mode="gru", bidirectional=False)
    assert weight_shapes(p, 3) == [(6, 3), (6, 2), (6, 2), (6, 2), (6,), (6,), (6,), (6,)]


def test_dropout_acts_between_layers_in_training_alone():
    def outputs(layers, train):
        symbol = mx.sym.RNN(mx.sym.Variable("x"), state_size=8, num_layers=layers, mode="rnn_tanh", p=0.5, name="rnn")
        executor = symbol.simple_bind(mx.cpu(), x=(3, 4, 6))
        rng = np.random.default_rng(2)
        for array in executor.arg_arrays:
            array[:] = rng.uniform(-1, 1, array.shape)
        return [executor.forward(is_train=train)[0].asnumpy() for _ in range(2)]
    for layers, train, same in ((2, True, False), (2, False, True), (1, True, True)):
        first, second = outputs(layers, train)
        assert np.array_equal(first, second) == same


def test_an_lstm_learns_to_remember_the_first_element():
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2, (6, 32, 1)).astype(np.float32)
    hidden = mx.sym.RNN(mx.sym.Variable("data"), state_size=8, num_layers=1, mode="lstm", name="lstm")
    last = mx.sym.SequenceLast(hidden)
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(last, num_hidden=2, name="fc"), name="softmax")
    states = ["lstm_state", "lstm_state_cell"]
    executor = symbol.simple_bind(mx.cpu(), data=data.shape, grad_req={
        name: "null" if name in ("data", "softmax_label", *states) else "write" for name in symbol.list_arguments()})
    for name, array in executor.arg_dict.items():
        array[:] = 0 if name in states else rng.uniform(-0.5, 0.5, array.shape)
    executor.arg_dict["data"][:], executor.arg_dict["softmax_label"][:] = data, data[0, :, 0]
    updater = mx.optimizer.get_updater(mx.optimizer.create("rmsprop", learning_rate=0.02, rescale_grad=1 / 32))
    for _ in range(60):
        out = executor.forward(is_train=True)[0].asnumpy()
        executor.backward()
        for k, name in enumerate(n for n, g in executor.grad_dict.items() if g is not None and n not in states):
            updater(k, executor.grad_dict[name], executor.arg_dict[name])
    assert (out.argmax(1) == data[0, :, 0]).mean() > 0.95


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("mode", ["rnn_tanh", "gru", "lstm"])
def test_sequences_of_several_lengths_are_those_of_pytorchs_packed_ones(mode, bidirectional):
    torch = pytest.importorskip("torch")
    lengths, layers, size = [4, 1, 3], 2, 3
    symbol = mx.sym.RNN(mx.sym.Variable("x"), state_size=size, num_layers=layers, mode=mode, state_outputs=True,
                        bidirectional=bidirectional, use_sequence_length=True, name="rnn")
    assert symbol.list_arguments()[-1] == "rnn_sequence_length"
    executor = symbol.simple_bind(mx.cpu(), x=(4, 3, 2), type_dict={"x": np.float64}, poison=True,
                                  grad_req={"x": "write", "rnn_parameters": "write"})
    rng = np.random.default_rng(1)
    for name, array in executor.arg_dict.items():
        array[:] = lengths if name == "rnn_sequence_length" else rng.uniform(-1, 1, array.shape)
    value = {name: torch.tensor(array.asnumpy(), requires_grad=True) for name, array in executor.arg_dict.items()}
    shapes = weight_shapes(RnnParams(size, layers, bidirectional, mode), 2)
    pieces = torch.split(value["rnn_parameters"], [int(np.prod(shape)) for shape in shapes])
    peer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)(
        2, size, layers, bidirectional=bidirectional, dtype=torch.float64)
    ends = [f"l{layer}{end}" for layer in range(layers) for end in ("", "_reverse")[:1 + bidirectional]]
    order = [f"{word}_{which}_{end}" for word in ("weight", "bias") for end in ends for which in ("ih", "hh")]
    weights = {name: piece.reshape(shape) for name, piece, shape in zip(order, pieces, shapes, strict=True)}
    packed = torch.nn.utils.rnn.pack_padded_sequence(value["x"], torch.tensor(lengths), enforce_sorted=False)
    states = value["rnn_state"], *((value["rnn_state_cell"],) if mode == "lstm" else ())
    out, last = torch.func.functional_call(peer, weights, (packed, states if mode == "lstm" else states[0]))
    expected = [torch.nn.utils.rnn.pad_packed_sequence(out)[0], *(last if mode == "lstm" else (last,))]
    found = executor.forward(is_train=True)
    heads = [rng.uniform(-1, 1, each.shape) for each in found]
    executor.backward(heads)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.asnumpy(), theirs.detach(), rtol=1e-9, atol=1e-12)
    sum((each * torch.tensor(head)).sum() for each, head in zip(expected, heads, strict=True)).backward()
    for name in ("x", "rnn_parameters"):
        np.testing.assert_allclose(executor.grad_dict[name].asnumpy(), value[name].grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name, value", [("projection_size", 2), ("lstm_state_clip_min", -1.0),
                                         ("lstm_state_clip_max", 1.0)])
def test_what_mxnet_refuses_on_a_cpu_is_refused_by_name(name, value):
    symbol = mx.sym.RNN(mx.sym.Variable("x"), state_size=4, num_layers=1, mode="lstm", **{name: value})
    with pytest.raises(MXNetError, match=f"RNN: {name}={value} is not supported"):
        symbol.infer_shape(x=(3, 2, 4))


# -- memory --------------------------------------------------------------------------------------------------
def wide_network():
    """Layers of the wider set one after the other, to scores of an SVM."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, pad=(1, 1), name="conv")
    net = mx.sym.InstanceNorm(mx.sym.LRN(net, nsize=3), name="norm")
    net = mx.sym.Deconvolution(net, kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=6, name="deconv")
    net = mx.sym.Pad(net, mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
    net = mx.sym.UpSampling(mx.sym.L2Normalization(net, mode="channel"), scale=2, sample_type="nearest", num_args=1)
    rows = mx.sym.transpose(mx.sym.mean(net.clip(-0.4, 0.4), axis=2), axes=(2, 0, 1))
    hidden = mx.sym.RNN(rows, state_size=5, num_layers=2, mode="lstm", bidirectional=True, p=0.3, name="rnn")
    return mx.sym.SVMOutput(mx.sym.FullyConnected(mx.sym.SequenceLast(hidden), num_hidden=4, name="fc"), name="svm")


def test_a_memory_mode_changes_no_bit():
    found = []
    for memory in ("naive", "plain", "sublinear"):
        executor = wide_network().simple_bind(mx.cpu(), data=(6, 3, 8, 8), memory=memory, poison=True)
        rng = np.random.default_rng(0)
        for name, array in executor.arg_dict.items():
            array[:] = rng.integers(0, 4, array.shape) if name == "svm_label" else rng.uniform(-0.5, 0.5, array.shape)
        mx.random.seed(3)
        out = executor.forward(is_train=True)[0].asnumpy()
        executor.backward()
        found.append([out, *(g.asnumpy() for g in executor.grad_dict.values() if g is not None)])
    for other in found[1:]:
        for expected, array in zip(found[0], other, strict=True):
            assert np.isfinite(array).all()
            assert array.tobytes() == expected.tobytes()

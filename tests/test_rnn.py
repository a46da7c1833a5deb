"""mx.rnn: cells compute what PyTorch's do, fused and unfused agree, and sentences come in buckets."""
from __future__ import annotations

import logging

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 5, 6
MODES = ("rnn_tanh", "rnn_relu", "lstm", "gru")


def cell_of(mode, prefix="c_"):
    return mx.rnn.FusedRNNCell(HIDDEN, 1, mode, prefix="")._single(prefix)


def executor_of(symbol, **shapes):
    """Bound with random values."""
    exe = symbol.simple_bind(mx.cpu(), poison=True, **shapes)
    draw = np.random.RandomState(0)
    for name in sorted(exe.arg_dict):
        exe.arg_dict[name][:] = draw.uniform(-1, 1, exe.arg_dict[name].shape)
    return exe


@pytest.mark.parametrize("mode", MODES)
def test_an_unrolled_cell_computes_outputs_states_and_gradients_of_pytorch(mode):
    torch = pytest.importorskip("torch")
    cell = cell_of(mode)
    outputs, states = cell.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)
    exe = executor_of(mx.sym.Group([outputs, *states]), data=(BATCH, STEPS, FEATURES))
    value = {name: torch.tensor(array.asnumpy().astype(np.float64)) for name, array in exe.arg_dict.items()}
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
    peer = kind(FEATURES, HIDDEN, batch_first=True, dtype=torch.float64,
                **({"nonlinearity": mode[4:]} if mode.startswith("rnn") else {}))
    peer.load_state_dict({f"{theirs}_l0": value[f"c_{ours}"] for theirs, ours in (
        ("weight_ih", "i2h_weight"), ("weight_hh", "h2h_weight"), ("bias_ih", "i2h_bias"), ("bias_hh", "h2h_bias"))})
    data = value["data"].requires_grad_()
    expected, last = peer(data)
    found = exe.forward(is_train=True)
    np.testing.assert_allclose(found[0].asnumpy(), expected.detach(), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(found[1:], last if mode == "lstm" else [last], strict=True):
        np.testing.assert_allclose(ours.asnumpy(), theirs[0].detach(), rtol=1e-5, atol=1e-6)
    head = np.random.RandomState(1).randn(*expected.shape)
    exe.backward([head, *(np.zeros((BATCH, HIDDEN)) for _ in states)])
    (expected * torch.tensor(head)).sum().backward()
    for name, gradient in (("data", data.grad), ("c_h2h_weight", peer.weight_hh_l0.grad),
                           ("c_i2h_bias", peer.bias_ih_l0.grad)):
        np.testing.assert_allclose(exe.grad_dict[name].asnumpy(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_fused_cell_computes_what_its_single_cells_do(mode, bidirectional):
    fused = mx.rnn.FusedRNNCell(HIDDEN, 2, mode, bidirectional, prefix="f_")
    whole = executor_of(fused.unroll(STEPS, mx.sym.Variable("data"))[0], data=(BATCH, STEPS, FEATURES))
    stack = fused.unfuse()
    single = executor_of(stack.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)[0],
                         data=(BATCH, STEPS, FEATURES))
    given = {name: array.copy() for name, array in whole.arg_dict.items()}
    unpacked = fused.unpack_weights(given)
    single.copy_params_from(stack.pack_weights(unpacked))
    np.testing.assert_allclose(single.forward()[0].asnumpy(), whole.forward()[0].asnumpy(), rtol=1e-5, atol=1e-6)
    again = fused.pack_weights(unpacked)
    assert again.keys() == given.keys() and mx.test_utils.same(again["f_parameters"], given["f_parameters"])


def test_parameters_have_mxnets_names_and_are_shared_by_params():
    lstm = mx.rnn.LSTMCell(HIDDEN)
    outputs, _ = lstm.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])
    group = mx.sym.Group(outputs)
    assert group.list_outputs() == ["lstm_t0_out_output", "lstm_t1_out_output"]
    weights = ["lstm_i2h_weight", "lstm_i2h_bias", "lstm_h2h_weight", "lstm_h2h_bias"]
    assert group.list_arguments() == ["x0", *weights, "x1"]
    other = mx.rnn.LSTMCell(HIDDEN, params=lstm.params)
    assert other.unroll(1, [mx.sym.Variable("x0")])[0][0].list_arguments() == group.list_arguments()[:-1]


def test_initial_values_are_those_of_the_cell():
    fused = mx.rnn.FusedRNNCell(HIDDEN, 2, "lstm", bidirectional=True, forget_bias=2.0, prefix="f_")
    single = mx.rnn.LSTMCell(HIDDEN, forget_bias=3.0)
    data = mx.sym.Variable("data")
    net = mx.sym.Concat(fused.unroll(2, data)[0], single.unroll(2, data, merge_outputs=True)[0], dim=2)
    mod = mx.mod.Module(net, label_names=None)
    mod.bind([("data", (1, 2, FEATURES))], for_training=False)
    mod.init_params(mx.init.Uniform(0.25))
    arguments, _ = mod.get_params()
    unpacked = {name: array.asnumpy() for name, array in fused.unpack_weights(single.unpack_weights(arguments)).items()}
    assert len([name for name in unpacked if name.startswith("f_")]) == 4 * 4 * 4
    for name, array in unpacked.items():
        if name.endswith("weight"):
            assert 0.15 < np.abs(array).max() <= 0.25, name
        else:
            forget = (3.0 if name.startswith("lstm_") else 2.0) if "i2h_f" in name else 0.0
            assert (array == forget).all(), name


def test_checkpoints_of_fused_cells_are_taken_up_by_single_ones(tmp_path):
    fused = mx.rnn.FusedRNNCell(HIDDEN, 1, "gru", prefix="g_")
    net = fused.unroll(2, mx.sym.Variable("data"))[0]
    exe = executor_of(net, data=(1, 2, FEATURES))
    arguments = {name: array.copy() for name, array in exe.arg_dict.items() if name != "data"}
    mx.rnn.do_rnn_checkpoint(fused, str(tmp_path / "g"))(0, net, arguments, {})
    _, found, _ = mx.rnn.load_rnn_checkpoint(fused.unfuse(), str(tmp_path / "g"), 1)
    assert sorted(found) == ["g_l0_h2h_bias", "g_l0_h2h_weight", "g_l0_i2h_bias", "g_l0_i2h_weight"]
    _, again, _ = mx.rnn.load_rnn_checkpoint([fused], str(tmp_path / "g"), 1)
    assert mx.test_utils.same(again["g_parameters"], arguments["g_parameters"])


def test_a_dropout_cell_and_misuse():
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.GRUCell(HIDDEN, prefix="a_"))
    stack.add(mx.rnn.DropoutCell(0.5))
    stack.add(mx.rnn.RNNCell(HIDDEN, prefix="b_"))
    outputs, states = stack.unroll(3, mx.sym.Variable("data"), layout="TNC", merge_outputs=True)
    assert outputs.infer_shape(data=(3, BATCH, FEATURES))[1] == [(3, BATCH, HIDDEN)] and len(states) == 2
    with pytest.raises(MXNetError, match="2 steps and was given inputs for 1"):
        stack.unroll(2, [mx.sym.Variable("x")])
    for cell in (mx.rnn.BidirectionalCell(mx.rnn.GRUCell(2, "l_"), mx.rnn.GRUCell(2, "r_")), mx.rnn.FusedRNNCell(2)):
        with pytest.raises(MXNetError, match="cannot be stepped"):
            cell(mx.sym.Variable("x"), [])
    with pytest.raises(MXNetError, match="'elman'"):
        mx.rnn.FusedRNNCell(2, mode="elman")


# -- sentences -----------------------------------------------------------------------------------------------
def test_words_become_numbers_in_the_order_in_which_they_come():
    coded, vocabulary = mx.rnn.encode_sentences([["a", "b"], ["b", "c"]], invalid_label=1, start_label=0)
    assert coded == [[0, 2], [2, 3]] and vocabulary == {"\n": 1, "a": 0, "b": 2, "c": 3}
    assert mx.rnn.encode_sentences([["b", "x"]], vocabulary, unknown_token="a")[0] == [[2, 0]]
    with pytest.raises(ValueError, match="'x' is not in the vocabulary"):
        mx.rnn.encode_sentences([["x"]], vocabulary)


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_sentences_come_in_batches_of_their_buckets_with_the_next_word_as_label(layout, caplog):
    mx.random.seed(0)
    sentences = [[k, k + 1] for k in range(5)] + [[k, k + 1, k + 2, k + 3] for k in range(4)] + [[1] * 9]
    data = mx.rnn.BucketSentenceIter(sentences, 2, buckets=[3, 4], invalid_label=-1, layout=layout)
    assert "discarded 1 sentences" in caplog.text and caplog.records[0].levelno == logging.WARNING
    assert data.default_bucket_key == 4 and data.provide_data[0].shape == ((2, 4) if layout == "NT" else (4, 2))
    for _ in range(2):
        found = list(data)
        assert sorted(batch.bucket_key for batch in found) == [3, 3, 4, 4]
        seen = set()
        for batch in found:
            rows, label = (each[0].asnumpy() if layout == "NT" else each[0].asnumpy().T
                           for each in (batch.data, batch.label))
            assert rows.shape == (2, batch.bucket_key) and batch.provide_data[0].shape == batch.data[0].shape
            assert np.array_equal(label[:, :-1], rows[:, 1:]) and (label[:, -1] == -1).all()
            seen |= {tuple(row[row >= 0]) for row in rows}
        assert len(seen) == 8
        data.reset()


def test_lengths_that_fill_a_batch_are_buckets_by_default():
    assert mx.rnn.BucketSentenceIter([[1, 2]] * 3 + [[1]], 2).buckets == [2]
    with pytest.raises(ValueError, match="no length has 9 sentences"):
        mx.rnn.BucketSentenceIter([[1, 2]] * 3, 9)
    with pytest.raises(ValueError, match="layout"):
        mx.rnn.BucketSentenceIter([[1, 2]] * 3, 1, layout="CT")


def test_a_language_model_learns_in_buckets():
    mx.random.seed(0)
    sentences = [[(k + t) % 5 + 1 for t in range(length)] for k in range(8) for length in (3, 5)]
    data = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[3, 5], invalid_label=0)

    def generate(length):
        words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=6, output_dim=8, name="embed")
        cell = mx.rnn.LSTMCell(12)
        outputs, _ = cell.unroll(length, words, merge_outputs=True)
        scores = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, 12)), num_hidden=6, name="pred")
        label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        return mx.sym.SoftmaxOutput(scores, label, name="softmax", use_ignore=True, ignore_label=0), ["data"], [
            "softmax_label"]

    module = mx.mod.BucketingModule(generate, data.default_bucket_key)
    module.fit(data, num_epoch=25, eval_metric=mx.metric.Perplexity(0), optimizer="adam", initializer=mx.init.Xavier(),
               optimizer_params={"learning_rate": 0.03})
    assert dict(module.score(data, mx.metric.Perplexity(0)))["perplexity"] < 1.2

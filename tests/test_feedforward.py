"""FeedForward, MXNet's first training interface."""
from __future__ import annotations

import pickle

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from tests.training import assert_same, iterator, mlp, samples


def fitted(**kwargs):
    mx.random.seed(0)
    data, label = samples(128)
    settings = {"num_epoch": 30, "learning_rate": 0.1, "momentum": 0.9, "initializer": mx.init.Xavier(),
                "numpy_batch_size": 16, **kwargs}
    return mx.model.FeedForward.create(mlp(), X=data, y=label, **settings)


def test_a_model_is_fitted_to_arrays_and_scored():
    model = fitted()
    assert model.score(iterator(128, 16)) > 0.95
    assert mx.model.FeedForward is type(model)


def test_predictions_cover_the_real_rows_and_come_with_the_data_if_asked():
    model = fitted(num_epoch=1)
    data, _ = samples(21)
    found = model.predict(data)
    assert isinstance(found, np.ndarray) and found.shape == (21, 2)
    outputs, inputs, labels = model.predict(iterator(21, 8), return_data=True)
    np.testing.assert_allclose(outputs, found, rtol=1e-6)
    assert np.array_equal(inputs, data) and labels.shape == (21,)


def test_a_model_is_pickled_with_its_parameters():
    model = fitted(num_epoch=1)
    data, _ = samples(8)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(model.predict(data), again.predict(data))


def test_a_saved_model_is_loaded_and_training_goes_on(tmp_path):
    prefix = str(tmp_path / "model")
    model = fitted(num_epoch=2)
    model.save(prefix)
    again = mx.model.FeedForward.load(prefix, 2, num_epoch=3, learning_rate=0.1)
    data, label = samples(8)
    assert np.array_equal(model.predict(data), again.predict(data))
    before = again.predict(data)
    again.fit(data, label)
    assert again.begin_epoch == 2 and not np.array_equal(before, again.predict(data))


def test_validation_data_may_be_a_pair_and_callbacks_are_called():
    seen = []
    data, label = samples(32)
    model = mx.model.FeedForward(mlp(), num_epoch=2, numpy_batch_size=8)
    model.fit(data, label, eval_data=(data, label), epoch_end_callback=lambda *given: seen.append(given[0]),
              eval_end_callback=lambda param: seen.append(param.eval_metric.get()[0]))
    assert seen == [0, "accuracy", 1, "accuracy"]


def test_validation_is_logged_once_an_epoch(caplog):
    data, label = samples(32)
    with caplog.at_level("INFO"):
        mx.model.FeedForward(mlp(), num_epoch=2, numpy_batch_size=8).fit(data, label, eval_data=(data, label))
    assert [line.split("=")[0] for line in caplog.messages if "Validation" in line] == [
        "Epoch[0] Validation-accuracy", "Epoch[1] Validation-accuracy"]


def test_an_iterator_may_describe_its_arrays_by_pairs():
    class Pairs(mx.io.NDArrayIter):
        @property
        def provide_data(self):
            return [tuple(desc) for desc in super().provide_data]

        @property
        def provide_label(self):
            return [tuple(desc) for desc in super().provide_label]

    model = mx.model.FeedForward(mlp(), num_epoch=1)
    model.fit(Pairs(*samples(32), batch_size=8))
    assert model.predict(Pairs(*samples(20), batch_size=8)).shape == (20, 2)


def test_an_epoch_has_as_many_batches_as_asked():
    counts = []
    model = mx.model.FeedForward(mlp(), num_epoch=2, epoch_size=3)
    model.fit(iterator(16, 8), batch_end_callback=lambda param: counts.append((param.epoch, param.nbatch)))
    assert counts == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_what_is_missing_or_too_much_is_named():
    data, label = samples(8)
    with pytest.raises(ValueError, match="y must be specified"):
        mx.model.FeedForward(mlp(), num_epoch=1).fit(data)
    with pytest.raises(ValueError, match="equally many rows"):
        mx.model.FeedForward(mlp(), num_epoch=1).fit(data, label[:3])
    with pytest.raises(MXNetError, match="no parameters yet"):
        mx.model.FeedForward(mlp()).predict(data)
    with pytest.raises(TypeError, match="list"):
        fitted(num_epoch=1).predict([[1.0]])
    model = fitted(num_epoch=1)
    model.arg_params["other"] = mx.nd.zeros((1,))
    with pytest.raises(MXNetError, match="other belong to no variable"):
        model.fit(data, label)
    model.allow_extra_params = True
    model.fit(data, label)


# -- a function from bucket keys to symbols ------------------------------------------------------------------
def word_model(length):
    """Tells the next word from the present one, at each step of a sentence of that length."""
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=6, output_dim=8, name="embed")
    flat = mx.sym.Reshape(words, shape=(-1, 8))
    net = mx.sym.FullyConnected(flat, num_hidden=6, name="next")
    return mx.sym.SoftmaxOutput(net, mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,)), use_ignore=True,
                                ignore_label=0, name="softmax")


def sentences():
    """Words 1 to 5 in turn, from every one, in two lengths: each word tells the next one."""
    return mx.rnn.BucketSentenceIter([[(first + k) % 5 + 1 for k in range(length)] for length in (3, 6)
                                      for first in range(20)], 10, invalid_label=0)


def test_a_model_of_buckets_is_fitted_scored_saved_and_asked(tmp_path):
    mx.random.seed(0)
    model = mx.model.FeedForward(word_model, num_epoch=12, learning_rate=1.0, initializer=mx.init.Xavier())
    with pytest.raises(MXNetError, match="symbol is not known"):
        str(model.symbol)
    model.fit(sentences(), eval_metric=mx.metric.Perplexity(0), eval_data=sentences())
    assert model.symbol.list_arguments() == word_model(6).list_arguments()
    assert model.score(sentences(), mx.metric.Perplexity(0)) < 1.6
    assert model.predict(sentences(), num_batch=1).shape[1] == 6
    model.save(str(tmp_path / "words"))
    again = mx.model.FeedForward.load(str(tmp_path / "words"), 12)
    assert_same({name: value.asnumpy() for name, value in model.arg_params.items()},
                {name: value.asnumpy() for name, value in again.arg_params.items()})


def test_a_model_of_buckets_asks_for_data_that_name_one():
    with pytest.raises(MXNetError, match="default_bucket_key, which NDArrayIter has not"):
        mx.model.FeedForward(word_model, num_epoch=1).fit(iterator())
    with pytest.raises(MXNetError, match="takes a Symbol, or a function"):
        mx.model.FeedForward(3)

"""Which array of a batch is which input of a Module."""
from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.io import DataBatch, DataDesc, NDArrayIter
from tests.training import mlp, module


def two_inputs():
    """Outputs of two shares: a - 2 b, and b."""
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    losses = [mx.sym.LinearRegressionOutput(value, mx.sym.Variable(label), name=name) for value, label, name in
              ((a - 2 * b, "first", "one"), (b * 1, "second", "two"))]
    return mx.sym.Group(losses)


def sources(rows=6):
    draw = np.random.RandomState(0)
    names = "a", "b", "first", "second"
    return {name: draw.randn(rows, 2).astype(np.float32) for name in names}


def bound(data, label, **kwargs):
    mod = mx.mod.Module(two_inputs(), ["b", "a"], ["second", "first"], poison=True)
    mod.bind(data, label, **kwargs)
    mod.init_params()
    return mod


def test_arrays_of_a_dicts_iterator_belong_to_the_names_it_lists_whatever_the_order_of_the_modules():
    values = sources()
    data = NDArrayIter({name: values[name] for name in "ab"}, {name: values[name] for name in ("first", "second")}, 4)
    mod = bound(data.provide_data, data.provide_label, inputs_need_grad=True)
    assert [desc.name for desc in mod.data_shapes] == ["a", "b"] and mod.data_names == ["b", "a"]
    one, two = mod.predict(data)
    np.testing.assert_allclose(one.asnumpy(), values["a"] - 2 * values["b"], rtol=1e-6)
    np.testing.assert_array_equal(two.asnumpy(), values["b"])
    data.reset()
    mod.forward_backward(next(data))
    of_a, of_b = (grad.asnumpy() for grad in mod.get_input_grads())
    rest = [(out - label)[:4] / 2 for out, label in ((values["a"] - 2 * values["b"], values["first"]),
                                                      (values["b"], values["second"]))]
    np.testing.assert_allclose(of_a, rest[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_b, rest[1] - 2 * rest[0], rtol=1e-5, atol=1e-6)
    metric = mx.metric.MAE(output_names=["two_output"], label_names=["second"])
    (_, error), = mod.score(data, metric)
    parts = [np.abs(values["b"] - values["second"])[part].mean() for part in (slice(0, 4), slice(4, 6))]
    assert error == pytest.approx(np.mean(parts), rel=1e-5)


def test_a_batch_that_describes_its_arrays_is_taken_at_its_word():
    values = sources()
    shapes = [(name, (6, 2)) for name in ("b", "a")]
    mod = bound(shapes, [(name, (6, 2)) for name in ("second", "first")])
    arrays = {name: mx.nd.array(value) for name, value in values.items()}
    for order in (("a", "b"), ("b", "a")):
        mod.forward(DataBatch([arrays[name] for name in order],
                              provide_data=[DataDesc(name, (6, 2)) for name in order]), is_train=False)
        np.testing.assert_array_equal(mod.get_outputs()[1].asnumpy(), values["b"])
    mod.forward(DataBatch([arrays["b"], arrays["a"]]), is_train=False)
    np.testing.assert_array_equal(mod.get_outputs()[1].asnumpy(), values["b"])


def test_reshaping_in_another_order_orders_the_batches_that_follow():
    values = sources()
    mod = bound([(name, (6, 2)) for name in ("b", "a")], None, for_training=False)
    mod.reshape([(name, (6, 2)) for name in ("a", "b")])
    for rows in (6, 3):
        mod.forward(DataBatch([mx.nd.array(values[name][:rows]) for name in ("a", "b")]), is_train=False)
        np.testing.assert_array_equal(mod.get_outputs()[1].asnumpy(), values["b"][:rows])


def test_a_batch_may_have_data_alone():
    batch = namedtuple("Batch", ["data"])
    mod = module(mlp())
    mod.bind([("data", (2, 6))], for_training=False)
    mod.init_params(mx.init.Xavier())
    for rows in (2, 1):
        mod.forward(batch([mx.nd.ones((rows, 6))]))
        np.testing.assert_allclose(mod.get_outputs()[0].asnumpy().sum(1), np.ones(rows), rtol=1e-6)


def test_an_iterator_may_be_any_object_and_its_batches_may_know_no_padding():
    batch = namedtuple("Batch", ["data", "label"])

    class Three:
        provide_data, provide_label = [("data", (2, 6))], [("softmax_label", (2,))]

        def reset(self):
            pass

        def __iter__(self):
            return (batch([mx.nd.ones((2, 6))], [mx.nd.zeros((2,))]) for _ in range(3))

    mod = module(mlp())
    mod.fit(Three(), num_epoch=1)
    assert mod.predict(Three()).shape == (6, 2)
    assert dict(mod.score(Three(), "acc")) == {"accuracy": 1.0}


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "float64"])
def test_data_that_parameters_would_take_their_dtype_from_are_named_when_training_is_prepared(dtype):
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax")
    data = mx.io.NDArrayIter(mx.nd.array(np.ones((8, 4)), dtype=dtype), mx.nd.zeros(8), batch_size=4)
    with pytest.raises(MXNetError, match=rf"fc_weight is {dtype}, as data is, .*float32; give data in float32"):
        mx.mod.Module(net).fit(data, num_epoch=1)
    cast = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Cast(mx.sym.Variable("data"), dtype="float32"),
                                                      num_hidden=3, name="fc"), name="softmax")
    mod = mx.mod.Module(cast)
    mod.fit(data, num_epoch=1)
    assert mod.get_params()[0]["fc_weight"].dtype == np.float32


def test_inputs_whose_gradient_nobody_asks_for_have_none():
    mod = mx.mod.Module(mlp(), poison=True)
    mod.bind([("data", (4, 6))], [("softmax_label", (4,))], inputs_need_grad=True, grad_req="null")
    mod.init_params()
    mod.forward(DataBatch([mx.nd.ones((4, 6))], [mx.nd.zeros(4)]), is_train=True)
    assert mod.get_input_grads() == [None] and mod.get_input_grads(merge_multi_context=False) == [[None]]

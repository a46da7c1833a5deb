"""Metrics compare each output of a module with the label that the symbol has it for."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.heads import Heads
from minigraph.metric_labels import MetricError
from minigraph.symbol.symbol import Symbol

X = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2, 2]]
Z = X.argmax(1)
A = (Z + 1) % 3
LABELS = {"z_label": Z, "a_label": A}
VALUES = {"fz_weight": np.eye(3) * 9, "fa_weight": np.roll(np.eye(3), 1, 0) * 9}
"""With these the head z says the class of a row, and a the class after it."""
DATA = mx.sym.Variable("data")


def dense(name: str) -> Symbol:
    return mx.sym.FullyConnected(DATA, num_hidden=3, no_bias=True, name=name)


def two_losses(z: str = "z", a: str = "a") -> Symbol:
    """Two classifiers, of which the labels come in the other order when they are sorted."""
    return mx.sym.Group([mx.sym.SoftmaxOutput(dense("fz"), mx.sym.Variable("z_label"), name=z),
                         mx.sym.SoftmaxOutput(dense("fa"), mx.sym.Variable("a_label"), name=a)])


def data(labels: Any = LABELS, batch_size: int = 3) -> mx.io.NDArrayIter:
    return mx.io.NDArrayIter(X, labels, batch_size)


def prepared(symbol: Symbol, context: Any = None, labels: Any = LABELS, **options: Any) -> mx.mod.Module:
    made = mx.mod.Module(symbol, label_names=list(labels), context=context or mx.cpu(), **options)
    made.bind(data(labels).provide_data, data(labels).provide_label)
    made.init_params(mx.init.Zero())
    known = made.get_params()[0]
    made.set_params({name: mx.nd.array(value) for name, value in VALUES.items() if name in known}, {}, True)
    return made


def score(made: Any, metric: Any = "acc", labels: Any = LABELS) -> list[float]:
    return [value for _, value in made.score(data(labels), metric)]


@pytest.mark.parametrize("options", [
    {}, {"memory": "naive"}, {"memory": "inplace"}, {"memory": "sublinear"}, {"memory": "auto", "budget": "8KiB"},
    {"memory": "auto", "budget": "8KiB", "host_budget": "1MiB"}, {"memory": "vdnn", "host_budget": "1MiB"}],
    ids=lambda options: " ".join(map(str, options.values())) or "plain")
@pytest.mark.parametrize("names", [("z", "a"), ("t", "t")])
def test_each_head_is_scored_by_its_own_label_also_where_both_have_one_name(names: tuple[str, str],
                                                                            options: dict[str, Any]) -> None:
    assert score(prepared(two_losses(*names), **options)) == [1.0]


def test_one_wrong_head_counts_as_half_of_the_predictions_whichever_it_is() -> None:
    for name in VALUES:
        made = prepared(two_losses())
        made.set_params({name: mx.nd.array(VALUES[name][[1, 2, 0]])}, {}, allow_missing=True)
        assert score(made) == [0.5]


def test_training_and_metrics_of_a_batch_pair_in_the_same_way() -> None:
    seen = []
    made = mx.mod.Module(two_losses(), label_names=list(LABELS))
    made.fit(data(), num_epoch=1, optimizer_params={"learning_rate": 0.0}, initializer=mx.init.Load(
        {name: mx.nd.array(value) for name, value in VALUES.items()}),
        batch_end_callback=lambda param: seen.append(param.eval_metric.get()[1]), eval_data=data())
    assert seen == [1.0] * 3
    metric = mx.metric.create(["acc", "ce"])
    batch = next(iter(data()))
    made.forward(batch, is_train=False)
    made.update_metric(metric, batch.label)
    accuracy, entropy = metric.get()[1]
    assert accuracy == 1 and entropy == pytest.approx(np.log(np.exp(9) + 2) - 9, rel=1e-3)


def test_a_feed_forward_model_and_buckets_pair_in_the_same_way() -> None:
    values = {name: mx.nd.array(value) for name, value in VALUES.items()}
    assert mx.model.FeedForward(two_losses(), arg_params=values, aux_params={}).score(data()) == 1.0
    made = mx.mod.BucketingModule(lambda key: (two_losses(), ["data"], list(LABELS)), default_bucket_key=3)
    made.bind(data().provide_data, data().provide_label, for_training=False)
    made.set_params(values, {})
    assert score(made) == [1.0]


def test_names_of_a_metric_choose_as_in_mxnet_and_one_of_the_two_is_enough() -> None:
    made = prepared(two_losses())
    accuracy = mx.metric.Accuracy
    assert score(made, accuracy(output_names=["z_output"], label_names=["z_label"])) == [1.0]
    assert score(made, accuracy(output_names=["z_output"], label_names=["a_label"])) == [0.0]
    assert score(made, accuracy(output_names=["z_output", "a_output"], label_names=["a_label", "z_label"])) == [0.0]
    for name in ("z", "a"):
        assert score(made, accuracy(output_names=[f"{name}_output"])) == [1.0]
        assert score(made, accuracy(label_names=[f"{name}_label"])) == [1.0]
    parts = [accuracy(), accuracy(label_names=["a_label"]), accuracy(output_names=["a_output"])]
    assert score(made, mx.metric.CompositeEvalMetric(parts)) == [1.0] * 3
    for names in ({"output_names": ["a_output"]}, {"output_names": ["a_output"], "label_names": ["a_label"]}):
        assert score(made, mx.metric.CompositeEvalMetric(parts, **names)) == [1.0] * 3


@pytest.mark.parametrize("metric", [mx.metric.Accuracy(output_names=["t_output"]), "own"])
def test_a_name_that_two_outputs_have_tells_a_metric_nothing_and_is_refused(metric: Any) -> None:
    class ByName(mx.metric.EvalMetric):
        def update_dict(self, label: Any, pred: Any) -> None:
            raise AssertionError("it gets outputs of one name")

    with pytest.raises(MetricError, match="several outputs are called 't_output'.*names of their own"):
        score(prepared(two_losses("t", "t")), ByName("own") if metric == "own" else metric)


def test_a_metric_of_a_script_gets_all_labels_and_outputs_in_order_as_in_mxnet() -> None:
    seen = []

    class ByNumber(mx.metric.Accuracy):
        def update(self, labels: Any, preds: Any) -> None:
            seen.append(([label.asnumpy().tolist() for label in labels], [pred.shape for pred in preds]))
            super().update([labels[1]], [preds[0]])

    class Dicts(mx.metric.EvalMetric):
        def update_dict(self, label: Any, pred: Any) -> None:
            seen.append((list(label), list(pred)))

    made = prepared(two_losses("t", "t"))
    assert made.score(data(), ByNumber(), num_batch=1) == [("accuracy", 1.0)]
    prepared(two_losses()).score(data(), Dicts("d"), num_batch=1)
    assert seen == [([A[:3].tolist(), Z[:3].tolist()], [(3, 3), (3, 3)]),
                    (["a_label", "z_label"], ["z_output", "a_output"])]


def test_a_function_of_label_and_prediction_gets_those_that_belong_together() -> None:
    def right(label: Any, pred: Any) -> float:
        return float((pred.argmax(1) == label).mean())

    assert score(prepared(two_losses()), mx.metric.np(right)) == [1.0]


def test_the_loss_over_all_outputs_needs_no_labels() -> None:
    made = prepared(two_losses())
    assert score(made, "loss") == pytest.approx([1 / 3], rel=1e-6)


# -- what the symbol says ----------------------------------------------------------------------------------------
def softmax(name: str, label: Symbol, **params: Any) -> Symbol:
    return mx.sym.SoftmaxOutput(dense(f"f{name}"), label, name=name, **params)


def test_outputs_without_a_label_and_labels_without_an_output_take_no_part() -> None:
    z, weight = mx.sym.Variable("z_label"), mx.sym.Variable("w_weight")
    features = mx.sym.BlockGrad(dense("fa"), name="features")
    centre = mx.sym.MakeLoss(mx.sym.square(mx.sym.sum(features, axis=1) - z), name="centre")
    symbol = mx.sym.Group([features, softmax("z", z), centre, DATA * weight])
    labels = {"z_label": Z, "unused": Z}
    with pytest.warns(UserWarning, match="'unused' is not found"):
        made = prepared(symbol, labels=labels)
    assert score(made, labels=labels) == [1.0]
    assert Heads(symbol, ["z_label"]).pairs(["z_label"], range(4)) == [("z_label", 1)]


def test_one_label_may_be_that_of_several_predictions() -> None:
    z = mx.sym.Variable("z_label")
    symbol = mx.sym.Group([softmax("z", z), softmax("a", z)])
    assert score(prepared(symbol, labels={"z_label": Z}), labels={"z_label": Z}) == [0.5]


def test_labels_and_predictions_belong_together_through_operators() -> None:
    z, a = mx.sym.Variable("z_label"), mx.sym.Variable("a_label")
    first = softmax("z", mx.sym.Reshape(z + 0, shape=(-1,)))
    second = softmax("a", mx.sym.BlockGrad(a), out_grad=True)
    symbol = mx.sym.Group([mx.sym.Reshape(mx.sym.BlockGrad(first), shape=(-1, 3)), mx.sym.MakeLoss(second)])
    assert score(prepared(symbol)) == [1.0]


def test_predictions_that_build_on_others_have_their_own_labels() -> None:
    first = softmax("z", mx.sym.Variable("z_label"))
    second = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(first, num_hidden=3, no_bias=True, name="fa"),
                                  mx.sym.Variable("a_label"), name="a")
    assert score(prepared(mx.sym.Group([second, first]))) == [1.0]
    target = mx.sym.argmax(first, axis=1)  # what the first one predicts is the second one's target
    symbol = mx.sym.Group([first, softmax("a", target)])
    assert Heads(symbol, ["z_label"]).own == ["z_label", None]


def test_regressions_and_margins_are_predictions_and_losses_are_not() -> None:
    x, labels = mx.sym.Variable("data"), [mx.sym.Variable(name) for name in "abcdef"]
    symbol = mx.sym.Group([
        mx.sym.LinearRegressionOutput(x, labels[3]), mx.sym.LogisticRegressionOutput(x, labels[1]),
        mx.sym.MAERegressionOutput(x, labels[2]), mx.sym.SVMOutput(x, labels[0]),
        mx.sym.softmax_cross_entropy(x, labels[4]), mx.sym.MakeLoss(mx.sym.square(x - labels[5]))])
    heads = Heads(symbol, "abcdef")
    assert heads.own == ["d", "b", "c", "a", None, None]
    assert heads.pairs("abcdef", range(6)) == [("d", 0), ("b", 1), ("c", 2), ("a", 3), ("e", 4), ("f", 5)]


def test_where_no_operator_takes_labels_each_goes_to_the_one_output_that_depends_on_it() -> None:
    def loss(name: str) -> Symbol:
        return mx.sym.MakeLoss(mx.sym.square(DATA - mx.sym.Variable(name)))

    heads = Heads(mx.sym.Group([loss("b"), loss("a")]), ["a", "b"])
    assert heads.pairs(["a", "b"], [0, 1]) == [("b", 0), ("a", 1)]
    assert heads.pairs(["a", "b"], [0]) is None and heads.pairs(["b"], [0]) == [("b", 0)]
    both = Heads(mx.sym.Group([loss("a") + loss("b"), loss("a")]), ["a", "b"])
    assert both.pairs(["a", "b"], [0, 1]) is None


def test_where_the_symbol_does_not_tell_labels_and_outputs_are_taken_in_order_and_must_be_as_many() -> None:
    symbol = mx.sym.Group([mx.sym.softmax(dense("fa")), mx.sym.softmax(dense("fz"))])
    with pytest.warns(UserWarning, match="not found"):
        made = prepared(symbol)
    assert score(made) == [1.0]
    with pytest.warns(UserWarning, match="not found"):
        made = prepared(symbol, labels={"z_label": Z})
    with pytest.raises(MXNetError, match="number of labels, 1, is not the number of predictions, 2"):
        score(made, labels={"z_label": Z})


def test_the_labels_of_many_outputs_are_found_in_one_walk() -> None:
    net, heads = mx.sym.Variable("data"), []
    for k in range(300):
        net = mx.sym.tanh(net)
        heads.append(mx.sym.LinearRegressionOutput(net, mx.sym.Variable(f"l{k}"), name="t"))
    names = [f"l{k}" for k in range(300)]
    found = Heads(mx.sym.Group(heads), names).pairs(sorted(names), range(300))
    assert found == list(zip(names, range(300), strict=True))

"""Metric values against hand-computed ones and scikit-learn, and the difference of local and global sums."""
from __future__ import annotations

import json
from math import exp, isnan, log, nan, sqrt

import numpy as np
import pytest

from minigraph import metric
from minigraph import ndarray as nd
from minigraph.base import MXNetError

PREDS = [[0.1, 0.6, 0.3], [0.7, 0.2, 0.1], [0.2, 0.2, 0.6], [0.3, 0.4, 0.3]]
LABELS = [1, 0, 0, 1]


def value_of(name, labels, preds, **kwargs):
    made = metric.create(name, **kwargs)
    made.update([nd.array(labels)], [nd.array(preds)])
    assert made.get() == made.get_global()
    return made.get()[1]


@pytest.mark.parametrize("name", ["acc", "accuracy", "Accuracy"])
def test_accuracy_counts_the_largest_score(name):
    assert value_of(name, LABELS, PREDS) == 0.75


def test_accuracy_takes_classes_and_other_axes():
    assert value_of("acc", [1, 2, 3, 4], [1, 2, 0, 4]) == 0.75
    maps = np.zeros((2, 3, 4))
    maps[:, 2] = 1  # class 2 at all 4 places
    assert value_of("acc", [[2, 2, 2, 0], [2, 1, 2, 2]], maps) == 0.75


def test_top_k_accuracy_agrees_with_scikit_learn_and_carries_its_k_in_the_name():
    scorer = pytest.importorskip("sklearn.metrics").top_k_accuracy_score
    draw = np.random.default_rng(0)
    preds, labels = draw.random((50, 7), np.float32), draw.integers(0, 7, 50)
    for k in (2, 3, 5):
        assert value_of("top_k_accuracy", labels, preds, top_k=k) == pytest.approx(
            scorer(labels, preds, k=k, labels=range(7)))
    assert metric.create("top_k_acc", top_k=5).get()[0] == "top_k_accuracy_5"
    assert value_of("top_k_accuracy", labels, preds, top_k=20) == 1
    with pytest.raises(ValueError, match="above 1"):
        metric.TopKAccuracy(1)


def test_cross_entropy_is_the_mean_negative_logarithm_under_both_names():
    expected = -(log(0.6) + log(0.7) + log(0.2) + log(0.4)) / 4
    for name, shown in (("ce", "cross-entropy"), ("cross-entropy", "cross-entropy"),
                        ("CrossEntropy", "cross-entropy"),
                        ("nll_loss", "nll-loss"), ("nll-loss", "nll-loss")):
        assert value_of(name, LABELS, PREDS) == pytest.approx(expected, rel=1e-6)
        assert metric.create(name).get()[0] == shown
    assert value_of("ce", [0], [[0.0, 1.0]]) == pytest.approx(-log(1e-12))


def test_perplexity_is_the_exponential_and_leaves_out_ignored_labels():
    expected = exp(-log(0.6 * 0.7 * 0.2 * 0.4) / 4)
    assert value_of("perplexity", LABELS, PREDS) == pytest.approx(expected, rel=1e-6)
    expected = 1 / sqrt(0.6 * 0.4)
    assert value_of("perplexity", LABELS, PREDS, ignore_label=0) == pytest.approx(expected, rel=1e-6)
    assert value_of("perplexity", [0], [[0.0, 1.0]]) == pytest.approx(1e10, rel=1e-3)
    assert value_of("perplexity", [[1], [0]], [[[0.5, 0.5]], [[0.5, 0.5]]]) == pytest.approx(2)


def test_regression_errors_are_averaged_over_batches():
    for name, expected in (("mae", 1.5), ("mse", 2.5), ("rmse", sqrt(2.5))):
        made = metric.create(name)
        made.update([nd.array([1, 2])], [nd.array([[2], [4]])])
        assert made.get() == (name, pytest.approx(expected))
        made.update([nd.array([0])], [nd.array([[0]])])
        assert made.get()[1] == pytest.approx(expected / 2)


@pytest.mark.parametrize("name, scorer", [("f1", "f1_score"), ("mcc", "matthews_corrcoef")])
def test_binary_figures_agree_with_scikit_learn_pooled_and_average_over_batches(name, scorer):
    scorer = getattr(pytest.importorskip("sklearn.metrics"), scorer)
    draw = np.random.default_rng(1)
    labels, preds = draw.integers(0, 2, (3, 20)), draw.random((3, 20, 2), np.float32)
    micro, macro = metric.create(name, average="micro"), metric.create(name)
    for label, pred in zip(labels, preds, strict=True):
        micro.update([nd.array(label)], [nd.array(pred)])
        macro.update([nd.array(label)], [nd.array(pred)])
    guesses = preds.argmax(2)
    assert micro.get()[1] == micro.get_global()[1] == pytest.approx(scorer(labels.ravel(), guesses.ravel()))
    of_batches = [scorer(*pair) for pair in zip(labels, guesses, strict=True)]
    assert macro.get()[1] == pytest.approx(np.mean(of_batches))
    micro.reset_local()
    assert isnan(micro.get()[1]) and not isnan(micro.get_global()[1])
    micro.update([nd.array(labels[0])], [nd.array(preds[0])])
    assert micro.get()[1] == pytest.approx(scorer(labels[0], guesses[0]))
    with pytest.raises(ValueError, match="two classes.*are 0, 2"):
        macro.update([nd.array([0, 2])], [nd.array([[1, 0], [1, 0]])])
    assert value_of("f1", [0, 0], [[1, 0], [1, 0]]) == 0
    assert value_of("mcc", [0, 0], [[1, 0], [1, 0]]) == 0 and value_of("mcc", [0, 1], [[0, 1], [1, 0]]) == -1


def test_pearson_agrees_with_numpy_pooled_and_averages_over_batches():
    draw = np.random.default_rng(2)
    x, y = draw.random((3, 10)), draw.random((3, 10)) + 1000  # a large mean must not cost digits
    micro, macro = metric.create("pearsonr", average="micro"), metric.create("pearsonr")
    for made in (micro, macro):
        for one, two in zip(x, y, strict=True):
            made.update([one], [two])
    assert micro.get()[1] == micro.get_global()[1] == pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1])
    of_batches = [np.corrcoef(*pair)[0, 1] for pair in zip(x, y, strict=True)]
    assert macro.get()[1] == pytest.approx(np.mean(of_batches))
    assert isnan(value_of_pearson_of_constants())


def value_of_pearson_of_constants():
    made = metric.PearsonCorrelation()
    made.update([np.ones(3)], [np.arange(3)])
    return made.get()[1]


def test_loss_averages_the_outputs_and_ignores_labels():
    made = metric.create("loss")
    made.update(None, [nd.array([[1, 2], [3, 6]])])
    made.update(None, nd.array([8]))
    assert made.get() == ("loss", 4.0)


def test_functions_become_metrics_with_their_name():
    def worst(label, pred):
        return float(abs(label - pred).max())

    for made in (metric.np(worst), metric.create(worst), metric.CustomMetric(worst)):
        made.update([nd.array([1, 2])], [nd.array([1, 5])])
        made.update([nd.array([1, 2])], [nd.array([1, 3])])
        assert made.get() == ("worst", 2.0)
    assert metric.np(lambda label, pred: 1).name == "custom(<lambda>)"
    assert metric.np(worst, name="mine").name == "mine"


def test_a_function_may_give_a_sum_and_a_count():
    made = metric.np(lambda label, pred: (float(label.sum()), label.size), name="mean")
    made.update([nd.array([1, 2, 3])], [nd.zeros(3)])
    made.update([nd.array([10])], [nd.zeros(1)])
    assert made.get() == ("mean", 4.0)


def test_extra_outputs_are_refused_unless_allowed():
    labels, preds = [nd.ones(1)], [nd.ones(1), nd.ones(1)]
    with pytest.raises(ValueError, match="number of labels, 1,.*2"):
        metric.np(lambda label, pred: 1).update(labels, preds)
    allowed = metric.np(lambda label, pred: 1, allow_extra_outputs=True)
    allowed.update(labels, preds)
    assert allowed.num_inst == 1
    with pytest.raises(ValueError, match="number of labels"):
        metric.create("acc").update(labels, preds)
    with pytest.raises(ValueError, match=r"predictions \(2, 2\) have 2 rows.*labels \(3,\) are 3"):
        metric.create("acc").update([nd.ones(3)], [nd.ones((2, 2))])


def test_local_sums_restart_and_global_ones_go_on():
    made = metric.create("acc")
    assert isnan(made.get()[1]) and isnan(made.get_global()[1])
    made.update([nd.array([0, 1])], [nd.array([0, 1])])
    made.reset_local()
    assert isnan(made.get()[1])
    made.update([nd.array([0, 0])], [nd.array([1, 1])])
    assert made.get_name_value() == [("accuracy", 0.0)]
    assert made.get_global_name_value() == [("accuracy", 0.5)]
    made.reset()
    assert isnan(made.get_global()[1])


def test_a_metric_of_a_script_that_adds_up_itself_has_its_local_value_for_both():
    class Mine(metric.EvalMetric):
        def update(self, labels, preds):
            self.sum_metric += 3
            self.num_inst += 2

    made = Mine("mine")
    made.update(None, None)
    assert made.get_global() == made.get() == ("mine", 1.5)


def test_a_metric_of_a_script_with_sums_of_its_own_is_restarted_by_its_own_reset():
    class PerTask(metric.EvalMetric):
        def reset(self):
            self.num_inst, self.sum_metric = [0, 0], [0.0, 0.0]

        def update(self, labels, preds):
            for i, label in enumerate(labels):
                self.sum_metric[i] += label.asnumpy().sum()
                self.num_inst[i] += 1

        def get(self):
            return ["a", "b"], [self.sum_metric[i] / max(self.num_inst[i], 1) for i in range(2)]

        def get_name_value(self):
            return [(f"task-{name}", value) for name, value in zip(*self.get(), strict=True)]

    tasks = PerTask("task")
    for restart in (tasks.reset, tasks.reset_local, tasks.reset):
        restart()
        tasks.update([nd.ones((2,)), nd.zeros((2,))], [])
        assert tasks.get_global_name_value() == [("task-a", 2.0), ("task-b", 0.0)]
    assert metric.create([tasks]).get_global_name_value() == [("task-a", 2.0), ("task-b", 0.0)]


def test_a_list_becomes_a_composite_whose_names_and_values_are_lists():
    made = metric.create(["acc", metric.create("ce"), lambda label, pred: 2.0])
    made.update([nd.array(LABELS)], [nd.array(PREDS)])
    names, values = made.get()
    assert names == ["accuracy", "cross-entropy", "custom(<lambda>)"]
    assert values == [0.75, pytest.approx(0.848307, rel=1e-5), 2.0]
    made.reset_local()
    assert all(isnan(value) for _, value in made.get_name_value())
    assert made.get_global_name_value() == list(zip(names, values, strict=True))
    made.reset()
    assert all(isnan(value) for _, value in made.get_global_name_value())
    made.add("mae")
    assert isinstance(made.get_metric(3), metric.MAE)


def test_names_choose_what_a_metric_sees():
    labels = {"a_label": nd.array([0]), "b_label": nd.array([1])}
    preds = {"a_output": nd.array([[1, 0]]), "b_output": nd.array([[1, 0]])}
    made = metric.Accuracy(output_names=["b_output"], label_names=["b_label"])
    made.update_dict(labels, preds)
    assert made.get() == ("accuracy", 0.0)
    made = metric.create("acc")
    made.update_dict(labels, preds)
    assert made.get() == ("accuracy", 0.5)
    composite = metric.CompositeEvalMetric(["acc"], output_names=["a_output"], label_names=["a_label"])
    composite.update_dict(labels, preds)
    assert composite.get() == (["accuracy"], [1.0])


@pytest.mark.parametrize("made", [
    metric.Accuracy(axis=2, name="x"), metric.TopKAccuracy(3), metric.CrossEntropy(1e-3),
    metric.F1(average="micro"), metric.MCC(), metric.PCC(), metric.Accuracy(ignore_label=-1),
    metric.Perplexity(ignore_label=0), metric.CompositeEvalMetric(["acc", metric.TopKAccuracy(2)])],
    ids=lambda each: type(each).__name__)
def test_a_configuration_makes_an_equal_metric(made):
    again = metric.create(**made.get_config())
    assert type(again) is type(made) and again.get_config() == made.get_config() and again.name == made.name
    again = metric.create(json.dumps(made.get_config()))
    assert type(again) is type(made) and again.get_config() == made.get_config()


def test_a_metric_may_be_given_as_json_of_a_name_and_its_arguments():
    assert metric.create('["top_k_accuracy", {"top_k": 3}]').name == "top_k_accuracy_3"
    for text, reason in (('{"axis": 1}', "names no metric"), ("[1", "is no JSON"), ('["acc"]', "a name and a dict"),
                         ('["acc", {"axes": 1}]', "unexpected keyword argument 'axes'")):
        with pytest.raises(MXNetError, match=reason):
            metric.create(text)


COUNTING = ("acc", "ce", "nll_loss", "perplexity", "pcc")


@pytest.mark.parametrize("label", [-1, 3, nan, 1e20, float("inf")])
@pytest.mark.parametrize("name", COUNTING)
def test_a_label_that_is_no_class_is_refused_with_metric_value_and_remedy(name, label):
    made = metric.create(name)
    with pytest.raises(MXNetError, match=r"the label at \(1,\) is .*one of the 3 classes, 0 to 2; 1 of 4") as caught:
        made.update([nd.array([0, label, 1, 2])], [nd.array(PREDS)])
    assert str(caught.value).startswith(made.name) and "ignore_label" in str(caught.value)
    assert isnan(made.get()[1])


def test_labels_to_ignore_do_not_count():
    rows = ([1, 0, -1, 1], PREDS)
    assert value_of("acc", *rows, ignore_label=-1) == 1.0
    assert value_of("acc", [1, -1, 5], [1, 3, 4], ignore_label=-1) == 0.5
    assert value_of("top_k_acc", [1, 2, -1, 1], PREDS, ignore_label=-1, top_k=2) == pytest.approx(2 / 3)
    expected = -(log(0.6) + log(0.7) + log(0.4)) / 3
    assert value_of("ce", *rows, ignore_label=-1) == pytest.approx(expected, rel=1e-6)
    assert value_of("nll_loss", *rows, ignore_label=-1) == pytest.approx(expected, rel=1e-6)
    assert value_of("perplexity", *rows, ignore_label=-1) == pytest.approx(exp(expected), rel=1e-6)
    assert isnan(value_of("ce", [-1, -1], PREDS[:2], ignore_label=-1))


@pytest.mark.parametrize("name", ["mae", "mse", "rmse"])
def test_a_row_is_never_paired_with_a_column(name):
    assert value_of(name, [1, 2], [[1], [2]]) == 0 and value_of(name, [[1, 2]], [[1, 2]]) == 0
    for labels, preds in (([1, 2], [[1, 2]]), ([1, 2, 3], [[1, 2], [1, 2], [1, 2]]), ([[1], [2]], [[[1]], [[2]]])):
        with pytest.raises(MXNetError, match=rf"{name}: labels .* and predictions .* must have equal shapes"):
            metric.create(name).update([nd.array(labels)], [nd.array(preds)])


def test_shapes_that_do_not_fit_are_told_with_both():
    for name, label, pred in (("ce", (3,), (3, 2, 2)), ("top_k_acc", (4,), (4,)),
                              ("f1", (4,), (4, 3)), ("mcc", (4, 1), (4,)), ("pearsonr", (4,), (4, 1)),
                              ("acc", (4,), (2,)), ("perplexity", (4,), (3, 2))):
        made = metric.create(name, **({"top_k": 2} if name == "top_k_acc" else {}))
        with pytest.raises(MXNetError) as caught:
            made.update([nd.zeros(label)], [nd.zeros(pred)])
        assert str(pred) in str(caught.value) and made.name in str(caught.value).lower()


def test_pcc_agrees_with_scikit_learn_pooled():
    scorer = pytest.importorskip("sklearn.metrics").matthews_corrcoef
    draw = np.random.default_rng(4)
    labels, preds = draw.integers(0, 5, (3, 40)), draw.random((3, 40, 5), np.float32)
    made = metric.create("pcc")
    for label, pred in zip(labels, preds, strict=True):
        made.update([nd.array(label)], [nd.array(pred)])
    guesses = preds.argmax(2)
    assert made.get()[1] == made.get_global()[1] == pytest.approx(scorer(labels.ravel(), guesses.ravel()))
    made.reset_local()
    made.update([nd.array(labels[0])], [nd.array(guesses[0])])
    assert made.get()[1] == pytest.approx(scorer(labels[0], guesses[0]))
    assert made.get_global()[1] == pytest.approx(scorer(labels[[0, 1, 2, 0]].ravel(), guesses[[0, 1, 2, 0]].ravel()))
    made.reset()
    made.update([nd.array([0, 0])], [nd.array([[1, 0], [1, 0]])])
    assert isnan(made.get()[1]) and isnan(made.get_global()[1])


def test_pooled_binary_figures_count_their_samples():
    made = metric.create("f1", average="micro")
    made.update([nd.array([0, 1, 1])], [nd.array([[1, 0], [0, 1], [1, 0]])])
    assert (made.num_inst, made.sum_metric) == (3, pytest.approx(3 * 2 / 3))


@pytest.mark.parametrize("name, wrong", [
    ("acc", {"axis": "1"}), ("acc", {"axis": None}), ("acc", {"ignore_label": "none"}), ("ce", {"eps": -1}),
    ("ce", {"eps": nan}), ("top_k_acc", {"top_k": 2.5}), ("top_k_acc", {"top_k": "5"}), ("f1", {"average": "mean"}),
    ("pearsonr", {"average": None}), ("perplexity", {"axis": 1.5}), ("mae", {"axes": 1})])
def test_what_a_metric_cannot_be_made_with_is_told_by_name_and_value(name, wrong):
    (key, value), = wrong.items()
    with pytest.raises(MXNetError, match=f"{key}.*{value}"):
        metric.create(name, **wrong)


def test_labels_and_predictions_may_be_numpy_of_two_dimensions():
    made = metric.create("acc")
    made.update([np.array([[0], [1]])], [np.array([[0.9, 0.1], [0.2, 0.8]])])
    made.update(np.array([[1, 0]]), np.array([[1, 1]]))
    assert made.get() == ("accuracy", 0.75)


def test_a_function_that_gives_no_number_is_told_so():
    for given in (None, "0.5", np.ones(2), (1, 2, 3)):
        with pytest.raises(MXNetError, match="mine: the function gave .*it must give a number, or a sum and a count"):
            metric.np(lambda label, pred: given, name="mine").update([nd.ones(1)], [nd.ones(1)])  # noqa: B023


def test_a_name_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(MXNetError, match="accuracy: label_names has 'c_label', and there are a_label"):
        metric.Accuracy(label_names=["c_label"]).update_dict({"a_label": nd.ones(1)}, {"out": nd.ones(1)})


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(MXNetError, match="'auc'; known are .*accuracy"):
        metric.create("auc")


def test_updating_does_not_change_what_it_reads():
    label, pred = nd.array(LABELS), nd.array(PREDS)
    for name in ("acc", "ce", "perplexity"):
        metric.create(name).update([label], [pred])
    assert label.asnumpy().tolist() == LABELS
    np.testing.assert_array_equal(pred.asnumpy(), np.array(PREDS, np.float32))
    assert str(metric.create("mae")) == f"EvalMetric: {{'mae': {nan}}}"

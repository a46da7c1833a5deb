"""Metrics of training and validation, under MXNet's names; `metric_base` says how their sums work."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, nan, sqrt
from typing import Any

import numpy as _np  # `np` is one of this module's public functions

from .base import REAL_KINDS
from .metric_base import (
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    alias,
    by_pairs,
    check_label_shapes,
    create,
    register,
)
from .metric_base import pairs as _pairs
from .metric_base import read as _read
from .metric_labels import (
    MetricError,
    check_average,
    check_number,
    check_whole,
    class_labels,
    labels_and_rows,
    same_shapes,
)
from .ndarray import NDArray

__all__ = ["F1", "MAE", "MCC", "MSE", "PCC", "RMSE", "Accuracy", "CompositeEvalMetric", "CrossEntropy", "CustomMetric",
           "EvalMetric", "Loss", "NegativeLogLikelihood", "PearsonCorrelation", "Perplexity", "TopKAccuracy",
           "alias", "check_label_shapes", "create", "np", "register"]

Names = Sequence[str] | None
"""Names of outputs, or of labels, that a metric looks at; None for all."""
_SMALLEST_PROBABILITY = 1e-10  # Perplexity's floor, MXNet's value


@register
@alias("acc")
class Accuracy(EvalMetric):
    """Share of right classes; predictions of another shape than the labels are argmaxed over `axis`.

    Labels equal to `ignore_label` do not count. MetricError for one that is none of the classes.
    """

    def __init__(self, axis: int = 1, name: str = "accuracy", output_names: Names = None,
                 label_names: Names = None, ignore_label: float | None = None) -> None:
        super().__init__(name, axis=axis, **_given(ignore_label=ignore_label), output_names=output_names,
                         label_names=label_names)
        self.axis = check_whole("Accuracy", "axis", axis)
        self.ignore_label = check_number("Accuracy", "ignore_label", ignore_label, True)

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            if pred.shape == label.shape:
                chosen, counted = class_labels(self.name, label, None, self.ignore_label)
                with _np.errstate(invalid="ignore"):  # what is no number is no class
                    guess = pred.ravel().astype(_np.int64)
                if counted is not None:
                    chosen, guess = chosen[counted], guess[counted]
            else:
                chosen, rows = labels_and_rows(self.name, label, pred, self.axis, self.ignore_label)
                guess = rows.argmax(1)
            self._add(int((chosen == guess).sum()), len(chosen))


@register
@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """Share of labels among the `top_k` largest of predictions (N, classes); named top_k_accuracy_5.

    Labels equal to `ignore_label` do not count. MetricError for one that is none of the classes.
    """

    def __init__(self, top_k: int = 1, name: str = "top_k_accuracy", output_names: Names = None,
                 label_names: Names = None, ignore_label: float | None = None) -> None:
        if isinstance(top_k, bool) or not isinstance(top_k, (int, _np.integer)) or top_k <= 1:
            raise MetricError(f"TopKAccuracy: top_k={top_k!r} must be a whole number above 1; use Accuracy for the "
                              f"best class alone")
        super().__init__(name, top_k=top_k, **_given(ignore_label=ignore_label), output_names=output_names,
                         label_names=label_names)
        self.top_k = top_k
        self.ignore_label = check_number("TopKAccuracy", "ignore_label", ignore_label, True)
        self.name = f"{name}_{top_k}"

    def get_config(self) -> dict[str, Any]:
        """As of any metric; the name without its number, which is added again."""
        return {**super().get_config(), "name": self.name.removesuffix(f"_{self.top_k}")}

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            chosen, rows = labels_and_rows(self.name, label, _of_rows(self.name, pred), -1, self.ignore_label)
            k = min(self.top_k, rows.shape[1])
            best = _np.argpartition(rows, -k, axis=1)[:, -k:]
            self._add(int((best == chosen[:, None]).sum()), len(chosen))


@register
@alias("ce", "cross-entropy")
class CrossEntropy(EvalMetric):
    """Mean of -log(probability of the label + eps) over predictions (N, classes).

    Labels equal to `ignore_label` do not count. MetricError for one that is none of the classes.
    """

    def __init__(self, eps: float = 1e-12, name: str = "cross-entropy", output_names: Names = None,
                 label_names: Names = None, ignore_label: float | None = None) -> None:
        super().__init__(name, eps=eps, **_given(ignore_label=ignore_label), output_names=output_names,
                         label_names=label_names)
        self.eps = check_number(type(self).__name__, "eps", eps, least=0)
        self.ignore_label = check_number(type(self).__name__, "ignore_label", ignore_label, True)

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            chosen, rows = labels_and_rows(self.name, label, _of_rows(self.name, pred), -1, self.ignore_label)
            probability = rows[_np.arange(len(chosen)), chosen].astype(_np.float64)
            with _np.errstate(divide="ignore"):  # of 0 it is infinite where eps is 0
                self._add(float(-_np.log(probability + self.eps).sum()), len(chosen))


@register
@alias("nll_loss", "nll-loss")
class NegativeLogLikelihood(CrossEntropy):
    """As CrossEntropy, under its other name."""

    def __init__(self, eps: float = 1e-12, name: str = "nll-loss", output_names: Names = None,
                 label_names: Names = None, ignore_label: float | None = None) -> None:
        super().__init__(eps, name, output_names, label_names, ignore_label)


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log(probability of the label); labels equal to `ignore_label` do not count.

    Classes lie along `axis` of the predictions. MetricError for a label that is none of them.
    """

    def __init__(self, ignore_label: float | None = None, axis: int = -1, name: str = "perplexity",
                 output_names: Names = None, label_names: Names = None) -> None:
        super().__init__(name, ignore_label=ignore_label, axis=axis, output_names=output_names,
                         label_names=label_names)
        self.ignore_label = check_number("Perplexity", "ignore_label", ignore_label, True)
        self.axis = check_whole("Perplexity", "axis", axis)

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch; labels have as many elements as predictions have rows along `axis`."""
        for label, pred in _pairs(labels, preds):
            chosen, rows = labels_and_rows(self.name, label, pred, self.axis, self.ignore_label)
            probability = rows[_np.arange(len(chosen)), chosen].astype(_np.float64)
            total = -_np.log(_np.maximum(probability, _SMALLEST_PROBABILITY)).sum()
            self._add(float(total), len(chosen))

    def _value(self, total: float, count: float) -> float:
        return exp(total / count)


def _of_rows(name: str, pred: _np.ndarray) -> _np.ndarray:
    """Predictions (N, classes); MetricError for those of another number of axes."""
    if pred.ndim != 2:
        raise MetricError(f"{name} needs predictions (N, classes), got {pred.shape}; Accuracy and Perplexity take "
                          f"others, with axis=")
    return pred


def _given(**settings: Any) -> dict[str, Any]:
    """The settings that are not None, for a configuration that other frameworks' metrics understand too."""
    return {name: value for name, value in settings.items() if value is not None}


class _BatchError(EvalMetric):
    """The mean over batches of an error of each batch."""

    def error(self, difference: _np.ndarray) -> float:
        """The error of one batch from label - prediction."""
        raise NotImplementedError

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch; vectors count as columns. MetricError unless shapes are equal."""
        for label, pred in _pairs(labels, preds):
            label, pred = same_shapes(self.name, label, pred)
            self._add(float(self.error(label - pred)), 1)


@register
class MAE(_BatchError):
    """Mean absolute error, averaged over batches."""

    def __init__(self, name: str = "mae", output_names: Names = None,
                 label_names: Names = None) -> None:
        super().__init__(name, output_names=output_names,
                         label_names=label_names)

    def error(self, difference: _np.ndarray) -> float:
        """Mean of the absolute differences."""
        return _np.abs(difference).mean()


@register
class MSE(_BatchError):
    """Mean squared error, averaged over batches."""

    def __init__(self, name: str = "mse", output_names: Names = None,
                 label_names: Names = None) -> None:
        super().__init__(name, output_names=output_names,
                         label_names=label_names)

    def error(self, difference: _np.ndarray) -> float:
        """Mean of the squared differences."""
        return (difference**2).mean()


@register
class RMSE(_BatchError):
    """Root of the mean squared error of each batch, averaged over batches."""

    def __init__(self, name: str = "rmse", output_names: Names = None,
                 label_names: Names = None) -> None:
        super().__init__(name, output_names=output_names,
                         label_names=label_names)

    def error(self, difference: _np.ndarray) -> float:
        """Root of the mean of the squared differences."""
        return sqrt((difference**2).mean())


class _Binary(EvalMetric):
    """A figure of class 1 against 0 from predictions (N, 2): "macro" averages over batches, "micro" pools."""

    def __init__(self, name: str, average: str, output_names: Names = None,
                 label_names: Names = None) -> None:
        self.average = check_average(name, average)
        super().__init__(name, average=average, has_global_stats=True, output_names=output_names,
                         label_names=label_names)

    def figure(self, counts: _np.ndarray) -> float:
        """The figure from true positives, false positives, false negatives and true negatives."""
        raise NotImplementedError(f"{type(self).__name__} must define figure")

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._counts = _np.zeros(4)
        self._global_counts = _np.zeros(4)

    def reset_local(self) -> None:
        """Restart the local sums and counts."""
        super().reset_local()
        self._counts = _np.zeros(4)

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        batch = _np.zeros(4)
        for label, pred in _pairs(labels, preds):
            batch += _binary_counts(label, pred, type(self).__name__)
        if self.average == "macro":
            self._add(self.figure(batch), 1)
            return
        self._counts += batch
        self._global_counts += batch
        self.num_inst, self.global_num_inst = self._counts.sum(), self._global_counts.sum()
        self.sum_metric = self.figure(self._counts) * self.num_inst
        self.global_sum_metric = self.figure(self._global_counts) * self.global_num_inst


@register
class F1(_Binary):
    """2 tp / (2 tp + fp + fn), 0 when there is nothing positive; predictions (N, 2) of classes 0 and 1.

    `average` "macro" averages over batches, "micro" pools.
    """

    def __init__(self, name: str = "f1", average: str = "macro", output_names: Names = None,
                 label_names: Names = None) -> None:
        super().__init__(name, average, output_names, label_names)

    def figure(self, counts: _np.ndarray) -> float:
        """F1."""
        tp, fp, fn, _ = counts
        return float(2 * tp / (2 * tp + fp + fn)) if tp else 0.0


@register
class MCC(_Binary):
    """Matthews' correlation coefficient (Matthews 1975), -1 to 1, of predictions (N, 2) of classes 0 and 1.

    It is 0 where a whole row or column of the table of counts is empty. `average` as of F1.
    """

    def __init__(self, name: str = "mcc", average: str = "macro", output_names: Names = None,
                 label_names: Names = None) -> None:
        super().__init__(name, average, output_names, label_names)

    def figure(self, counts: _np.ndarray) -> float:
        """(tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn))."""
        tp, fp, fn, tn = counts
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        return float((tp * tn - fp * fn) / sqrt(product)) if product else 0.0


def _binary_counts(label: _np.ndarray, pred: _np.ndarray, name: str) -> _np.ndarray:
    """True positives, false positives, false negatives and true negatives of one output."""
    if pred.ndim != 2 or pred.shape[1] != 2:
        raise MetricError(f"{name} is for two classes, 0 and 1, and needs predictions (N, 2), got {pred.shape}")
    if label.dtype.kind in REAL_KINDS and not _np.isin(label, (0, 1)).all():
        raise MetricError(f"{name} is for two classes, 0 and 1; the labels are "
                          f"{', '.join(f'{each:g}' for each in _np.unique(label)[:_MOST_NAMED])}")
    truth, rows = labels_and_rows(name, label, pred, 1, None)
    guess = rows.argmax(1)
    return _np.array([(truth & guess).sum(), ((1 - truth) & guess).sum(), (truth & (1 - guess)).sum(),
                      ((1 - truth) & (1 - guess)).sum()], float)


@register
class PCC(EvalMetric):
    """Pearson's correlation of labels and guesses as vectors of indicators, all batches pooled: of two classes it is
    MCC (Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation coefficient").

    Predictions have classes along axis 1, or are classes themselves. nan where labels or guesses are all alike.
    MetricError for a label that is none of the classes.
    """

    def __init__(self, name: str = "pcc", output_names: Names = None,
                 label_names: Names = None) -> None:
        super().__init__(name, has_global_stats=True, output_names=output_names, label_names=label_names)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._table, self._global_table = _np.zeros((2, 2)), _np.zeros((2, 2))

    def reset_local(self) -> None:
        """Restart the local sums and counts."""
        super().reset_local()
        self._table = _np.zeros((2, 2))

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            if pred.shape == label.shape:
                truth = class_labels(self.name, label, _MOST_CLASSES, None)[0]
                guess = class_labels(self.name, pred, _MOST_CLASSES, None)[0]
            else:
                truth, rows = labels_and_rows(self.name, label, pred, 1, None)
                guess = rows.argmax(1)
            seen = _table_of(guess, truth)
            self._table, self._global_table = _sum_of(self._table, seen), _sum_of(self._global_table, seen)
        self.num_inst, self.global_num_inst = self.num_inst + 1, self.global_num_inst + 1
        self.sum_metric = _correlation_of(self._table) * self.num_inst
        self.global_sum_metric = _correlation_of(self._global_table) * self.global_num_inst


_MOST_NAMED = 8  # labels that an error lists
_MOST_CLASSES = 1 << 15  # classes that a table of counts is made for; labels above are no classes


def _table_of(guess: _np.ndarray, truth: _np.ndarray) -> _np.ndarray:
    """How often each guess meets each label, as a square table."""
    classes = int(max(guess.max(initial=1), truth.max(initial=1))) + 1
    return _np.bincount(guess * classes + truth, minlength=classes**2).reshape(classes, classes).astype(float)


def _sum_of(one: _np.ndarray, other: _np.ndarray) -> _np.ndarray:
    """The sum of two square tables, as large as the larger one."""
    large, small = (one, other) if len(one) >= len(other) else (other, one)
    total = large.copy()
    total[:len(small), :len(small)] += small
    return total


def _correlation_of(table: _np.ndarray) -> float:
    """The correlation coefficient of a table of counts; nan where all guesses or all labels are alike."""
    count, guesses, labels = table.sum(), table.sum(1), table.sum(0)
    scale = float((guesses * (count - guesses)).sum() * (labels * (count - labels)).sum())
    return float((table.diagonal() * count - guesses * labels).sum()) / sqrt(scale) if scale else nan


@register
@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions: "macro" averages over batches, "micro" pools them."""

    def __init__(self, name: str = "pearsonr", average: str = "macro", output_names: Names = None,
                 label_names: Names = None) -> None:
        self.average = check_average(name, average)
        super().__init__(name, average=average, has_global_stats=True, output_names=output_names,
                         label_names=label_names)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._moments = _Moments()
        self._global_moments = _Moments()

    def reset_local(self) -> None:
        """Restart the local sums and moments."""
        super().reset_local()
        self._moments = _Moments()

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            if label.shape != pred.shape:
                raise MetricError(f"{self.name}: labels {label.shape} and predictions {pred.shape} must have equal "
                                  f"shapes; reshape one of them")
            if self.average == "macro":
                self._add(_Moments().add(label, pred).correlation(), 1)
                continue
            self.sum_metric, self.num_inst = self._moments.add(label, pred).correlation(), 1
            self.global_sum_metric = self._global_moments.add(label, pred).correlation()
            self.global_num_inst = 1


class _Moments:
    """Count, means and centred second moments of pairs, merged batch by batch (Chan et al. 1979)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = _np.zeros(2)
        self.scatter = _np.zeros((2, 2))

    def add(self, x: _np.ndarray, y: _np.ndarray) -> _Moments:
        """Take in pairs; returns itself."""
        pairs = _np.stack([x.ravel(), y.ravel()]).astype(_np.float64)
        count = pairs.shape[1]
        mean = pairs.mean(1)
        shift = mean - self.mean
        total = self.count + count
        centred = pairs - mean[:, None]
        self.scatter += centred @ centred.T + _np.outer(shift, shift) * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = total
        return self

    def correlation(self) -> float:
        """nan if one of the two is constant."""
        scale = sqrt(self.scatter[0, 0] * self.scatter[1, 1])
        return float(self.scatter[0, 1] / scale) if scale else nan


@register
class Loss(EvalMetric):
    """The mean of the outputs themselves, for networks that end in a loss; labels are not looked at."""

    def __init__(self, name: str = "loss", output_names: Names = None,
                 label_names: Names = None) -> None:
        super().__init__(name, output_names=output_names,
                         label_names=label_names)

    def update(self, _: Any, preds: Any) -> None:
        """Take in one batch."""
        for pred in [preds] if isinstance(preds, (NDArray, _np.ndarray)) else preds:
            values = _read(pred)
            self._add(float(values.sum(dtype=_np.float64)), values.size)


def np(numpy_feval: Callable, name: str | None = None, allow_extra_outputs: bool = False) -> CustomMetric:
    """A metric from a function of numpy arrays; see CustomMetric."""
    return CustomMetric(numpy_feval, name, allow_extra_outputs)

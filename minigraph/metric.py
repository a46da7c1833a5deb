"""Metrics of training and validation, under MXNet's names; `metric_base` says how their sums work."""
from __future__ import annotations

from collections.abc import Callable
from math import exp, nan, sqrt
from typing import Any

import numpy as _np  # `np` is one of this module's public functions

from .metric_base import (
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    alias,
    check_label_shapes,
    create,
    register,
)
from .metric_base import pairs as _pairs
from .metric_base import read as _read
from .ndarray import NDArray

__all__ = ["F1", "MAE", "MCC", "MSE", "RMSE", "Accuracy", "CompositeEvalMetric", "CrossEntropy", "CustomMetric",
           "EvalMetric", "Loss", "NegativeLogLikelihood", "PearsonCorrelation", "Perplexity", "TopKAccuracy",
           "alias", "check_label_shapes", "create", "np", "register"]

_SMALLEST_PROBABILITY = 1e-10  # Perplexity's floor, MXNet's value


@register
@alias("acc")
class Accuracy(EvalMetric):
    """Share of right classes; predictions of another shape than the labels are argmaxed over `axis`."""

    def __init__(self, axis: int = 1, name: str = "accuracy", **names: Any) -> None:
        super().__init__(name, axis=axis, **names)
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            if pred.shape != label.shape:
                pred = pred.argmax(self.axis)
            label, pred = label.ravel().astype(_np.int64), pred.ravel().astype(_np.int64)
            check_label_shapes(label, pred, shape=True)
            self._add(int((label == pred).sum()), len(label))


@register
@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """Share of labels among the `top_k` largest of predictions (N, classes); named top_k_accuracy_5."""

    def __init__(self, top_k: int = 1, name: str = "top_k_accuracy", **names: Any) -> None:
        if top_k <= 1:
            raise ValueError(f"top_k must be above 1, got {top_k}; use Accuracy for the best class alone")
        super().__init__(name, top_k=top_k, **names)
        self.top_k = top_k
        self.name = f"{name}_{top_k}"

    def get_config(self) -> dict[str, Any]:
        """As of any metric; the name without its number, which is added again."""
        return {**super().get_config(), "name": self.name.removesuffix(f"_{self.top_k}")}

    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            if pred.ndim != 2 or label.size != len(pred):
                raise ValueError(f"TopKAccuracy needs predictions (N, classes) and N labels, got shapes "
                                 f"{pred.shape} and {label.shape}")
            k = min(self.top_k, pred.shape[1])
            best = _np.argpartition(pred, -k, axis=1)[:, -k:]
            self._add(int((best == label.reshape(-1, 1).astype(_np.int64)).sum()), len(pred))


@register
@alias("ce", "cross-entropy")
class CrossEntropy(EvalMetric):
    """Mean of -log(probability of the label + eps) over predictions (N, classes)."""

    def __init__(self, eps: float = 1e-12, name: str = "cross-entropy", **names: Any) -> None:
        super().__init__(name, eps=eps, **names)
        self.eps = eps

    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            chosen = label.ravel().astype(_np.int64)
            if len(chosen) != len(pred):
                raise ValueError(f"{self.name} needs one label a row, got {len(chosen)} for {len(pred)} rows")
            probability = pred[_np.arange(len(chosen)), chosen].astype(_np.float64)
            self._add(float(-_np.log(probability + self.eps).sum()), len(chosen))


@register
@alias("nll_loss", "nll-loss")
class NegativeLogLikelihood(CrossEntropy):
    """As CrossEntropy, under its other name."""

    def __init__(self, eps: float = 1e-12, name: str = "nll-loss", **names: Any) -> None:
        super().__init__(eps, name, **names)


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log(probability of the label); labels equal to `ignore_label` do not count."""

    def __init__(self, ignore_label: int | None = None, axis: int = -1, name: str = "perplexity",
                 **names: Any) -> None:
        super().__init__(name, ignore_label=ignore_label, axis=axis, **names)
        self.ignore_label = ignore_label
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch; labels have as many elements as predictions have rows along `axis`."""
        for label, pred in _pairs(labels, preds):
            rows = _np.moveaxis(pred, self.axis, -1).reshape(-1, pred.shape[self.axis])
            chosen = label.ravel().astype(_np.int64)
            if len(chosen) != len(rows):
                raise ValueError(f"perplexity needs one label a row, got {len(chosen)} for {len(rows)} rows")
            used = _np.full(len(rows), True) if self.ignore_label is None else chosen != self.ignore_label
            probability = rows[used, chosen[used]].astype(_np.float64)
            total = -_np.log(_np.maximum(probability, _SMALLEST_PROBABILITY)).sum()
            self._add(float(total), int(used.sum()))

    def _value(self, total: float, count: float) -> float:
        return exp(total / count)


class _BatchError(EvalMetric):
    """The mean over batches of an error of each batch."""

    def error(self, difference: _np.ndarray) -> float:
        """The error of one batch from label - prediction."""
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch; vectors count as columns."""
        for label, pred in _pairs(labels, preds):
            label = label.reshape(-1, 1) if label.ndim == 1 else label
            pred = pred.reshape(-1, 1) if pred.ndim == 1 else pred
            self._add(float(self.error(label.astype(_np.float64) - pred)), 1)


@register
class MAE(_BatchError):
    """Mean absolute error, averaged over batches."""

    def __init__(self, name: str = "mae", **names: Any) -> None:
        super().__init__(name, **names)

    def error(self, difference: _np.ndarray) -> float:
        """Mean of the absolute differences."""
        return _np.abs(difference).mean()


@register
class MSE(_BatchError):
    """Mean squared error, averaged over batches."""

    def __init__(self, name: str = "mse", **names: Any) -> None:
        super().__init__(name, **names)

    def error(self, difference: _np.ndarray) -> float:
        """Mean of the squared differences."""
        return (difference**2).mean()


@register
class RMSE(_BatchError):
    """Root of the mean squared error of each batch, averaged over batches."""

    def __init__(self, name: str = "rmse", **names: Any) -> None:
        super().__init__(name, **names)

    def error(self, difference: _np.ndarray) -> float:
        """Root of the mean of the squared differences."""
        return sqrt((difference**2).mean())


class _Binary(EvalMetric):
    """A figure of class 1 against 0 from predictions (N, 2): "macro" averages over batches, "micro" pools."""

    def __init__(self, name: str, average: str, **names: Any) -> None:
        if average not in ("macro", "micro"):
            raise ValueError(f"average must be 'macro' or 'micro', got {average!r}")
        self.average = average
        super().__init__(name, average=average, has_global_stats=True, **names)

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
        self.sum_metric, self.num_inst = self.figure(self._counts), 1
        self.global_sum_metric, self.global_num_inst = self.figure(self._global_counts), 1


@register
class F1(_Binary):
    """2 tp / (2 tp + fp + fn), 0 when there is nothing positive; predictions (N, 2) of classes 0 and 1.

    `average` "macro" averages over batches, "micro" pools.
    """

    def __init__(self, name: str = "f1", average: str = "macro", **names: Any) -> None:
        super().__init__(name, average, **names)

    def figure(self, counts: _np.ndarray) -> float:
        """F1."""
        tp, fp, fn, _ = counts
        return float(2 * tp / (2 * tp + fp + fn)) if tp else 0.0


@register
class MCC(_Binary):
    """Matthews' correlation coefficient (Matthews 1975), -1 to 1, of predictions (N, 2) of classes 0 and 1.

    It is 0 where a whole row or column of the table of counts is empty. `average` as of F1.
    """

    def __init__(self, name: str = "mcc", average: str = "macro", **names: Any) -> None:
        super().__init__(name, average, **names)

    def figure(self, counts: _np.ndarray) -> float:
        """(tp tn - fp fn) / sqrt((tp + fp) (tp + fn) (tn + fp) (tn + fn))."""
        tp, fp, fn, tn = counts
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        return float((tp * tn - fp * fn) / sqrt(product)) if product else 0.0


def _binary_counts(label: _np.ndarray, pred: _np.ndarray, name: str) -> _np.ndarray:
    """True positives, false positives, false negatives and true negatives of one output."""
    truth = label.ravel().astype(_np.int64)
    guess = pred.argmax(1)
    check_label_shapes(truth, guess, shape=True)
    if not set(_np.unique(truth)) <= {0, 1}:
        raise ValueError(f"{name} is for two classes, 0 and 1; the labels are {_np.unique(truth).tolist()}")
    return _np.array([(truth & guess).sum(), ((1 - truth) & guess).sum(), (truth & (1 - guess)).sum(),
                      ((1 - truth) & (1 - guess)).sum()], float)


@register
@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions: "macro" averages over batches, "micro" pools them."""

    def __init__(self, name: str = "pearsonr", average: str = "macro", **names: Any) -> None:
        if average not in ("macro", "micro"):
            raise ValueError(f"average must be 'macro' or 'micro', got {average!r}")
        self.average = average
        super().__init__(name, average=average, has_global_stats=True, **names)

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._moments = _Moments()
        self._global_moments = _Moments()

    def reset_local(self) -> None:
        """Restart the local sums and moments."""
        super().reset_local()
        self._moments = _Moments()

    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        for label, pred in _pairs(labels, preds):
            check_label_shapes(label, pred, shape=True)
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

    def __init__(self, name: str = "loss", **names: Any) -> None:
        super().__init__(name, **names)

    def update(self, _: Any, preds: Any) -> None:
        """Take in one batch."""
        for pred in [preds] if isinstance(preds, (NDArray, _np.ndarray)) else preds:
            values = _read(pred)
            self._add(float(values.sum(dtype=_np.float64)), values.size)


def np(numpy_feval: Callable, name: str | None = None, allow_extra_outputs: bool = False) -> CustomMetric:
    """A metric from a function of numpy arrays; see CustomMetric."""
    return CustomMetric(numpy_feval, name, allow_extra_outputs)

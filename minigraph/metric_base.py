"""The frame of all metrics: the base class, the registry, and metrics made of functions or of other metrics.

A metric adds up a sum and a count over batches; its value is their quotient, nan before the first batch.
Local sums are restarted by a Speedometer at each line that it logs, global ones only by `reset`, so that an
epoch's figure covers the epoch. `labels` and `preds` are lists of NDArray (or numpy), one per output, read
without a copy.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import Any, TypeVar

import numpy as np

from .base import MXNetError
from .metric_labels import MetricError
from .ndarray import NDArray

_registry: dict[str, type[EvalMetric]] = {}


def register(cls: type[EvalMetric]) -> type[EvalMetric]:
    """Class decorator: make the metric known to `create` by its class name in lower case."""
    _registry[cls.__name__.lower()] = cls
    return cls


def alias(*names: str) -> Callable:
    """Class decorator: further names for `create`."""
    def add(cls: type[EvalMetric]) -> type[EvalMetric]:
        _registry.update({name.lower(): cls for name in names})
        return cls

    return add


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from a name with its arguments, a function, the dict of `get_config`, or a list of these.

    A text may also be JSON, of a dict as `get_config` gives or of a name and a dict of arguments. A function takes
    numpy (label, prediction) and gives a number or (sum, count). A metric is returned as it is. MXNetError names the
    known metrics if there is none of that name.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(each, *args, **kwargs) for each in metric])
    if isinstance(metric, str) and metric.lstrip()[:1] in ("{", "["):
        return _from_json(metric)
    if isinstance(metric, Mapping):
        if "metric" not in metric:
            raise MXNetError(f"the configuration {dict(metric)} names no metric; give one under 'metric'")
        return create(**metric)
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    if not isinstance(metric, str) or metric.lower() not in _registry:
        raise MXNetError(f"no metric is called {metric!r}; known are {', '.join(sorted(_registry))}")
    try:
        return _registry[metric.lower()](*args, **kwargs)
    except TypeError as error:  # of an argument that it does not take
        raise MXNetError(f"the metric {metric!r} with {(*args, *kwargs.items())}: {error}") from error


def _from_json(text: str) -> EvalMetric:
    """A metric from JSON; MXNetError for what is none of one."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise MXNetError(f"the metric {text!r} is no JSON: {error}") from error
    if isinstance(found, dict):
        return create(found)
    if len(found) == 2 and isinstance(found[0], str) and isinstance(found[1], dict):
        return create(found[0], **found[1])
    raise MXNetError(f"the metric {text!r} must be a dict with a 'metric', or a name and a dict of arguments")


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """The pair, if their numbers (or, with `shape`, shapes) are equal; `wrap` puts single arrays in lists."""
    if wrap:
        labels = [labels] if isinstance(labels, (NDArray, np.ndarray)) else labels
        preds = [preds] if isinstance(preds, (NDArray, np.ndarray)) else preds
    mine, other = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if mine != other:
        what = "shape" if shape else "number"
        raise MetricError(f"the {what} of labels, {mine}, is not the {what} of predictions, {other}")
    return labels, preds


def read(value: Any) -> np.ndarray:
    """The value as numpy, not to be written to."""
    return value.storage.read() if isinstance(value, NDArray) else np.asarray(value)


def pairs(labels: Any, preds: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """(label, prediction) of each output, as numpy."""
    labels, preds = check_label_shapes(labels, preds, wrap=True)
    return [(read(label), read(pred)) for label, pred in zip(labels, preds, strict=True)]


Update = TypeVar("Update", bound=Callable)


def by_pairs(update: Update) -> Update:
    """Decorator of an `update` that compares each prediction with one label: a module may leave out those without."""
    vars(update)["compares_pairs"] = True
    return update


class EvalMetric:
    """The base: a name, sums, and `update`, which subclasses define.

    `output_names` and `label_names` select what `update_dict` passes on. A subclass that only adds to
    `sum_metric` and `num_inst` itself, as scripts do, has no global figures of its own: `get_global` then
    gives the local ones, which its own `reset` restarts, if it has one.
    """

    def __init__(self, name: str, output_names: Sequence[str] | None = None,
                 label_names: Sequence[str] | None = None, **kwargs: Any) -> None:
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = bool(kwargs.pop("has_global_stats", False))
        self._kwargs = kwargs
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """Arguments that make an equal metric by `create(**config)`."""
        return {**self._kwargs, "metric": type(self).__name__, "name": self.name,
                "output_names": self.output_names, "label_names": self.label_names}

    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch."""
        raise NotImplementedError(f"{type(self).__name__} must define update(labels, preds)")

    def update_dict(self, label: Mapping[str, NDArray], pred: Mapping[str, NDArray]) -> None:
        """Take in one batch given by names."""
        labels = self.selected(label, self.label_names, "label")
        self.update(labels, self.selected(pred, self.output_names, "output"))

    @property
    def compares_pairs(self) -> bool:
        """Whether `update` compares each prediction with one label; one that a script defines may do anything."""
        return vars(type(self).update).get("compares_pairs", False)

    def selected(self, arrays: Mapping[str, Any], names: Sequence[str] | None, what: str) -> list[Any]:
        """The arrays of these names, or all of them; MetricError for a name that is not there."""
        missing = [name for name in names or () if name not in arrays]
        if missing:
            raise MetricError(f"{self.name}: {what}_names has {missing[0]!r}, and there are "
                              f"{', '.join(arrays) or 'none'}")
        return [arrays[name] for name in names] if names else list(arrays.values())

    def reset(self) -> None:
        """Forget everything."""
        self.num_inst: float = 0
        self.sum_metric: float = 0.0
        self.global_num_inst: float = 0
        self.global_sum_metric: float = 0.0

    def reset_local(self) -> None:
        """Restart the local sums; the global ones go on."""
        if not self._has_global_stats and type(self).reset is not EvalMetric.reset:
            self.reset()
            return
        self.num_inst = 0
        self.sum_metric = 0.0

    def _add(self, total: float, count: float) -> None:
        """Add to both pairs of sums."""
        self._has_global_stats = True
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def _value(self, total: float, count: float) -> float:
        """The figure from a sum and a positive count."""
        return total / count

    def get(self) -> tuple[Any, Any]:
        """(name, value over the batches since the last local reset)."""
        return self.name, self._value(self.sum_metric, self.num_inst) if self.num_inst else nan

    def get_global(self) -> tuple[Any, Any]:
        """(name, value over the batches since `reset`)."""
        if not self._has_global_stats:
            return self.get()
        count = self.global_num_inst
        return self.name, self._value(self.global_sum_metric, count) if count else nan

    def get_name_value(self) -> list[tuple[str, float]]:
        """`get` as a list of pairs."""
        return _as_pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """`get_global` as a list of pairs."""
        return _as_pairs(*self.get_global()) if self._has_global_stats else self.get_name_value()


def _as_pairs(names: Any, values: Any) -> list[tuple[str, float]]:
    return list(zip(names, values, strict=True)) if isinstance(names, (list, tuple)) else [(names, values)]


@register
@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics as one; its names and values are lists."""

    def __init__(self, metrics: Sequence[Any] | None = None, name: str = "composite",
                 output_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None) -> None:
        self.metrics: list[EvalMetric] = []  # the base class resets, which must not touch the given metrics
        super().__init__(name, output_names, label_names, has_global_stats=True)
        self.metrics += [create(metric) for metric in metrics or ()]

    def add(self, metric: Any) -> None:
        """Add a metric, or what `create` makes one from."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """The metric of that number."""
        return self.metrics[index]

    def update(self, labels: Any, preds: Any) -> None:
        """Pass the batch to each metric."""
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, label: Mapping[str, NDArray], pred: Mapping[str, NDArray]) -> None:
        """Pass the batch to each metric, cut down to this one's own names if it has any."""
        if self.label_names is not None:
            label = {name: value for name, value in label.items() if name in self.label_names}
        if self.output_names is not None:
            pred = {name: value for name, value in pred.items() if name in self.output_names}
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def reset(self) -> None:
        """Reset each metric."""
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        """Restart each metric's local sums."""
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[list[str], list[float]]:
        """(names, local values)."""
        return _joined(metric.get_name_value() for metric in self.metrics)

    def get_global(self) -> tuple[list[str], list[float]]:
        """(names, global values)."""
        return _joined(metric.get_global_name_value() for metric in self.metrics)

    def get_config(self) -> dict[str, Any]:
        """As of any metric, with the configurations of its parts."""
        return {**super().get_config(), "metrics": [metric.get_config() for metric in self.metrics]}


def _joined(lists: Any) -> tuple[list[str], list[float]]:
    joined = [pair for each in lists for pair in each]
    return [name for name, _ in joined], [value for _, value in joined]


@register
class CustomMetric(EvalMetric):
    """A function of numpy (label, prediction), one output at a time, which gives a number or (sum, count)."""

    def __init__(self, feval: Callable, name: str | None = None, allow_extra_outputs: bool = False,
                 output_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None) -> None:
        own = getattr(feval, "__name__", type(feval).__name__)
        super().__init__(name or (f"custom({own})" if "<" in own else own), feval=feval,
                         allow_extra_outputs=allow_extra_outputs, output_names=output_names, label_names=label_names)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    @by_pairs
    def update(self, labels: Any, preds: Any) -> None:
        """Take in one batch; ValueError for unequal numbers, unless extra outputs are allowed."""
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=False):
            result = self._feval(read(label), read(pred))
            total, count = result if isinstance(result, tuple) and len(result) == 2 else (result, 1)
            if not all(np.ndim(each) == 0 and np.isreal(each) and each is not None for each in (total, count)):
                raise MetricError(f"{self.name}: the function gave {result!r} for labels {np.shape(label)} and "
                                  f"predictions {np.shape(pred)}; it must give a number, or a sum and a count")
            self._add(total, count)

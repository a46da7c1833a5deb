"""Labels and shapes as metrics need them: what cannot be counted is refused, with the metric and the value, before it
makes a figure wrong."""
from __future__ import annotations

from typing import Any

import numpy as np

from .base import REAL_KINDS, MXNetError


class MetricError(MXNetError, ValueError):
    """A metric was given what it cannot count."""


def labels_and_rows(name: str, label: np.ndarray, pred: np.ndarray, axis: int,
                    ignore_label: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Labels (N,) that count, as int64, and their rows of predictions (N, classes), whose classes lie along `axis`.

    MetricError when rows and labels differ in number, or a label is none of the classes.
    """
    check_axis(name, pred, axis)
    classes = pred.shape[axis]
    rows = np.moveaxis(pred, axis, -1).reshape(-1, classes)
    if label.size != len(rows):
        raise MetricError(f"{name} needs a label for each row of predictions: predictions {pred.shape} have "
                          f"{len(rows)} rows of {classes} classes along axis {axis}, labels {label.shape} are "
                          f"{label.size}")
    chosen, counted = class_labels(name, label, classes, ignore_label)
    return (chosen, rows) if counted is None else (chosen[counted], rows[counted])


def check_axis(name: str, pred: np.ndarray, axis: int) -> None:
    """MetricError when predictions are no numbers, or have no such axis."""
    if pred.dtype.kind not in REAL_KINDS:
        raise MetricError(f"{name}: predictions are of {pred.dtype}, and must be numbers")
    if not -pred.ndim <= axis < pred.ndim:
        raise MetricError(f"{name}: predictions {pred.shape} have no axis {axis} of classes; give predictions with "
                          f"one, or another axis=")


def class_labels(name: str, label: np.ndarray, classes: int | None,
                 ignore_label: float | None) -> tuple[np.ndarray, np.ndarray | None]:
    """All labels in one row, as int64, and which of them count (None: all).

    MetricError for a label that counts and is outside [0, classes), or, without `classes`, NaN or infinite.
    """
    if label.dtype.kind not in REAL_KINDS:
        raise MetricError(f"{name}: labels are of {label.dtype}, and must be numbers of classes")
    flat = label.ravel()
    counted = None if ignore_label is None else flat != ignore_label
    wrong = ~np.isfinite(flat) if classes is None else ~((flat >= 0) & (flat < classes))
    if counted is not None:
        wrong &= counted
    if wrong.any():
        first = int(wrong.argmax())
        where = tuple(map(int, np.unravel_index(first, label.shape)))
        wanted = "a number" if classes is None else f"one of the {classes} classes, 0 to {classes - 1}"
        raise MetricError(f"{name}: the label at {where} is {flat[first]}, and must be {wanted}; {int(wrong.sum())} of "
                          f"{flat.size} labels are not. Mend the labels, or leave one number that stands for no class "
                          f"out by ignore_label=, where the metric takes it")
    if counted is not None:
        flat = np.where(counted, flat, 0)
    return flat.astype(np.int64), counted


def same_shapes(name: str, label: np.ndarray, pred: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both in float64, vectors as columns; MetricError unless their shapes are equal then, for they would be paired
    otherwise than they were meant."""
    for what, array in (("labels", label), ("predictions", pred)):
        if array.dtype.kind not in REAL_KINDS:
            raise MetricError(f"{name}: {what} are of {array.dtype}, and must be numbers")
    columns = [array.reshape(-1, 1) if array.ndim == 1 else array for array in (label, pred)]
    if columns[0].shape != columns[1].shape:
        raise MetricError(f"{name}: labels {label.shape} and predictions {pred.shape} must have equal shapes, of which "
                          f"(N,) counts as (N, 1); reshape one of them")
    return columns[0].astype(np.float64), columns[1].astype(np.float64)


def check_number(metric: str, name: str, value: Any, optional: bool = False, least: float = -np.inf) -> Any:
    """A number of at least `least` that a metric is made with; MetricError for anything else."""
    if optional and value is None:
        return value
    known = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not known or not value >= least:
        bound = "" if least == -np.inf else f" of {least:g} or more"
        raise MetricError(f"{metric}: {name}={value!r} must be a number{bound}{', or None' if optional else ''}")
    return value


def check_whole(metric: str, name: str, value: Any) -> Any:
    """A whole number that a metric is made with; MetricError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise MetricError(f"{metric}: {name}={value!r} must be a whole number")
    return value


def check_average(metric: str, value: Any) -> Any:
    """How batches are put together, "macro" or "micro"; MetricError for anything else."""
    if value not in ("macro", "micro"):
        raise MetricError(f"{metric}: average={value!r} must be 'macro', the mean over batches, or 'micro', all "
                          f"batches as one")
    return value

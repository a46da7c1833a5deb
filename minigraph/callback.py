"""Callbacks of the training loop: progress, checkpoints and validation figures.

Batch callbacks take a BatchEndParam; epoch callbacks take (epoch, symbol, arg_params, aux_params). Lines go
to the root logger, in MXNet's words, so that scripts that read such logs keep working.
"""
from __future__ import annotations

import logging
import time
from collections import namedtuple
from collections.abc import Callable
from math import ceil, inf
from typing import Any

from .settings import whole_number

BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])
BatchEndParam.__doc__ = "What a batch callback is told: epoch, batch in it, metric, the loop's locals."


def do_checkpoint(prefix: str, period: int = 1) -> Callable:
    """An epoch callback that saves prefix-symbol.json and prefix-NNNN.params, NNNN = epoch + 1."""
    period = max(1, whole_number("the callback", "period", period, -1))

    def save(epoch: int, symbol: Any, arg_params: dict, aux_params: dict) -> None:
        from .model import save_checkpoint  # needed only here, and model imports much

        if (epoch + 1) % period == 0:
            save_checkpoint(prefix, epoch + 1, symbol, arg_params, aux_params)

    return save


def module_checkpoint(mod: Any, prefix: str, period: int = 1,
                      save_optimizer_states: bool = False) -> Callable:
    """An epoch callback that has the module save itself, with its optimizer's states if asked."""
    period = max(1, whole_number("the callback", "period", period, -1))

    def save(epoch: int, symbol: Any = None, arg_params: Any = None, aux_params: Any = None) -> None:
        if (epoch + 1) % period == 0:
            mod.save_checkpoint(prefix, epoch + 1, save_optimizer_states)

    return save


def log_train_metric(period: int, auto_reset: bool = False) -> Callable:
    """A batch callback that logs the metric every `period` batches, then restarts its local sums if asked."""
    def log(param: Any) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return log


class Speedometer:
    """A batch callback that logs samples per second and the metric every `frequent` batches.

    The first call of an epoch only starts the clock. With `auto_reset` each line shows the metric over its
    own batches.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        self.batch_size = batch_size
        self.frequent = frequent
        self.auto_reset = auto_reset
        self._running = False
        self._last_count = 0
        self._started = 0.0

    def __call__(self, param: Any) -> None:
        """Count one batch."""
        count = param.nbatch
        if count < self._last_count:  # a new epoch
            self._running = False
        self._last_count = count
        if not self._running:
            self._running = True
            self._started = time.perf_counter()
        elif count % self.frequent == 0:
            elapsed = time.perf_counter() - self._started
            self._log(param, self.frequent * self.batch_size / elapsed if elapsed else inf)
            self._started = time.perf_counter()

    def _log(self, param: Any, speed: float) -> None:
        if param.eval_metric is None:
            logging.info("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, param.nbatch, speed)
            return
        pairs = param.eval_metric.get_name_value()
        if self.auto_reset:
            param.eval_metric.reset_local()
        first = param.nbatch - self.frequent if self.auto_reset else 0
        logging.info("Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec" + "\t%s=%f" * len(pairs),
                     param.epoch, first, param.nbatch, speed, *(part for pair in pairs for part in pair))


class ProgressBar:
    """A batch callback that logs a bar of `length` characters; `total` is the batches of an epoch."""

    def __init__(self, total: int, length: int = 80) -> None:
        self.total = total
        self.length = length

    def __call__(self, param: Any) -> None:
        """Log the bar after this batch."""
        filled = int(round(self.length * param.nbatch / self.total))
        bar = "=" * filled + "-" * (self.length - filled)
        logging.info("[%s] %s%%\r", bar, ceil(100 * param.nbatch / self.total))


class LogValidationMetricsCallback:
    """A callback for the end of validation that logs each figure."""

    def __call__(self, param: Any) -> None:
        """Log the metric's values."""
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)

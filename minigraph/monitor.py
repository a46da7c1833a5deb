"""Monitor, under MXNet's name: statistics of values inside the network, every few batches."""
from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Callable
from math import sqrt
from operator import itemgetter
from typing import Any

import numpy as np

from . import ndarray
from .base import MXNetError
from .ndarray import NDArray

Statistic = Callable[[NDArray], Any]


def mean_size(x: NDArray) -> NDArray:
    """The default statistic: |x| / sqrt(size of x), shape (1,)."""
    value = x.asnumpy().astype(np.float64, copy=False)
    return ndarray.array([np.linalg.norm(value.ravel()) / sqrt(max(x.size, 1))])


class Monitor:
    """Collects `stat_func` of each value whose name matches `pattern`, in every `interval`th batch.

    Values are the visible outputs of all operators during forward (with `monitor_all`, their inputs too, as
    `<node>_<input>`), the visible gradients after backward, as `<node>_backward_<input>`, then the arguments and
    auxiliary states at the end of the batch. Of MXNet's gradients those of values inside the network are not told: no
    program keeps them. A monitored executor keeps all outputs until forward has ended, so it takes more memory.
    """

    def __init__(self, interval: int, stat_func: Statistic | None = None, pattern: str = ".*", sort: bool = False,
                 monitor_all: bool = False) -> None:
        if not isinstance(interval, (int, np.integer)) or interval < 1:
            raise MXNetError(f"Monitor: interval={interval!r} must be a whole number of batches, 1 or more")
        self.interval = interval
        self.stat_func = stat_func or mean_size
        self.sort = sort
        self.monitor_all = monitor_all
        self.activated = False
        self.step = 0
        self._watched: list[weakref.ref[Any]] = []
        self.queue: list[tuple[int, str, Any]] = []
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise MXNetError(f"Monitor: pattern={pattern!r} is no regular expression ({error})") from error

    def stat_helper(self, name: str, array: NDArray) -> None:
        """Take one value, if the present batch is watched; the callback that executors are given."""
        if self.activated and self._pattern.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Any) -> None:
        """Watch an executor."""
        exe.set_monitor_callback(self.stat_helper, self.monitor_all)
        self._watched = [weakref.ref(each) for each in (*self.exes, exe)]

    @property
    def exes(self) -> list[Any]:
        """The executors that are watched; watching keeps none of them."""
        return [exe for reference in self._watched if (exe := reference()) is not None]

    def tic(self) -> None:
        """Begin a batch."""
        if self.step % self.interval == 0:
            self.queue = []
            self.activated = True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """End a batch: (number of the batch, name, statistic as text) of all values, none if it was not watched."""
        if not self.activated:
            return []
        for exe in self.exes:
            held = {**exe.arg_dict, **exe.input_dict, **exe.aux_dict}
            for name in (*exe.arg_names, *exe.aux_names):
                if name in held:
                    self.stat_helper(name, held[name])
        self.activated = False
        found = sorted(self.queue, key=itemgetter(1)) if self.sort else self.queue
        self.queue = []
        return [(step, name, _text(value)) for step, name, value in found]

    def toc_print(self) -> None:
        """End a batch and log one line for each value."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)


def _text(value: Any) -> str:
    """A statistic, one NDArray or a list of them, as text."""
    values = value if isinstance(value, list) else [value]
    return "".join(f"{each.asscalar() if each.size == 1 else each.asnumpy()}\t" if isinstance(each, NDArray)
                   else f"{each}\t" for each in values)

"""FeedForward, MXNet's first training interface: a symbol with its parameters and settings in one object.

It is a Module behind other names, and takes NumPy arrays as well as iterators.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import model
from .base import MXNetError
from .bucketing import BucketingModule
from .context import Context
from .initializer import Uniform
from .io import NDArrayIter
from .io_base import DataIter, ResizeIter
from .module import Module
from .module_base import Params
from .module_support import check_work_load
from .ndarray import NDArray
from .symbol.symbol import Symbol

DEFAULT_INITIALIZER = Uniform(0.01)
BucketSymbols = Callable[[Any], Symbol]
"""From a bucket's key to its symbol."""


class FeedForward:
    """A network that is fitted, scored, asked for predictions, saved, loaded and pickled.

    `epoch_size` is the number of batches that count as one epoch (default: all of the data's), `numpy_batch_size` the
    batch size for NumPy arrays, and further keywords are those of the optimizer. `arg_params` and `aux_params` are
    dicts of NDArrays, None until there are any. Instead of a symbol there may be a function from bucket keys to symbols
    (`sym_gen`); the data must then be an iterator that names its `default_bucket_key`, and `symbol` is that bucket's.
    """

    def __init__(self, symbol: Symbol | BucketSymbols, ctx: Context | Sequence[Context] | None = None,
                 num_epoch: int | None = None, epoch_size: int | None = None, optimizer: Any = "sgd",
                 initializer: Any = DEFAULT_INITIALIZER, numpy_batch_size: int = 128,
                 arg_params: Params | None = None, aux_params: Params | None = None,
                 allow_extra_params: bool = False, begin_epoch: int = 0, **kwargs: Any) -> None:
        if not isinstance(symbol, Symbol) and not callable(symbol):
            raise MXNetError(f"FeedForward takes a Symbol, or a function from bucket keys to Symbols, got "
                             f"{type(symbol).__name__}")
        self._symbol = symbol if isinstance(symbol, Symbol) else None
        self.sym_gen = None if isinstance(symbol, Symbol) else symbol
        self._default_key: Any = None
        self.ctx = ctx
        self.num_epoch = num_epoch
        self.epoch_size = epoch_size
        self.optimizer = optimizer
        self.initializer = initializer
        self.numpy_batch_size = numpy_batch_size
        self.arg_params = arg_params
        self.aux_params = aux_params
        self.allow_extra_params = allow_extra_params
        self.begin_epoch = begin_epoch
        self.kwargs = dict(kwargs)
        self._predictor: Module | BucketingModule | None = None

    @property
    def symbol(self) -> Symbol:
        """The network; of a function from bucket keys, that of the default bucket, once the data have named it."""
        if self._symbol is None:
            raise MXNetError("the symbol is not known before fit, or before data with a default_bucket_key are given")
        return self._symbol

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the compiled predictor."""
        return {**self.__dict__, "_predictor": None}

    @staticmethod
    def create(symbol: Symbol | BucketSymbols, X: Any, y: Any = None, ctx: Any = None, num_epoch: int | None = None,
               epoch_size: int | None = None, optimizer: Any = "sgd", initializer: Any = DEFAULT_INITIALIZER,
               eval_data: Any = None, eval_metric: Any = "acc", epoch_end_callback: Any = None,
               batch_end_callback: Any = None, kvstore: Any = "local", logger: Any = None, work_load_list: Any = None,
               eval_end_callback: Any = None, eval_batch_end_callback: Any = None, **kwargs: Any) -> FeedForward:
        """A new model, fitted to X and y."""
        made = FeedForward(symbol, ctx, num_epoch, epoch_size, optimizer, initializer, **kwargs)
        made.fit(X, y, eval_data, eval_metric, epoch_end_callback, batch_end_callback, kvstore, logger, work_load_list,
                 None, eval_end_callback, eval_batch_end_callback)
        return made

    # -- fitting and asking ----------------------------------------------------------------------------------
    def fit(self, X: Any, y: Any = None, eval_data: Any = None, eval_metric: Any = "acc",
            epoch_end_callback: Any = None, batch_end_callback: Any = None, kvstore: Any = "local",
            logger: Any = None, work_load_list: Any = None, monitor: Any = None, eval_end_callback: Any = None,
            eval_batch_end_callback: Any = None) -> None:
        """Train on an iterator, or on arrays X and y, for epochs begin_epoch … num_epoch - 1.

        `eval_data` is an iterator or a pair (X, y). Parameters that the model already has are gone on from.
        """
        check_work_load(work_load_list)
        data = self._iterator(X, y, is_train=True)
        self._choose_symbol(data)
        if self.epoch_size is not None:
            data = ResizeIter(data, self.epoch_size, reset_internal=False)
        if isinstance(eval_data, (tuple, list)):
            eval_data = self._iterator(eval_data[0], eval_data[1], is_train=False)
        module = self._module(data, logger or logging)
        module.fit(data, eval_data, eval_metric, epoch_end_callback, batch_end_callback, kvstore, self.optimizer,
                   {**({"learning_rate": 0.01} if self.optimizer == "sgd" else {}), **self.kwargs},
                   eval_end_callback, eval_batch_end_callback, self.initializer,
                   *self._fitting(), allow_missing=True, begin_epoch=self.begin_epoch, num_epoch=self.num_epoch,
                   monitor=monitor)
        self.arg_params, self.aux_params = module.get_params()
        self._predictor = None

    def predict(self, X: Any, num_batch: int | None = None, return_data: bool = False, reset: bool = True) -> Any:
        """Outputs for the real rows of X as a NumPy array, or a list if there are several.

        With `return_data` a tuple (outputs, data, label) of these rows.
        """
        data = self._iterator(X, None, is_train=False)
        module = self._prepared(data)
        if reset:
            data.reset()
        rows: list[list[list[np.ndarray]]] = [[], [], []]
        for outputs, _, batch in module.iter_predict(data, num_batch, reset=False):
            count = batch.data[0].shape[0] - (batch.pad or 0)
            for part, arrays in zip(rows, (outputs, batch.data, batch.label or ()), strict=True):
                part.append([array.asnumpy()[:count] for array in arrays])
        joined = [[np.concatenate(parts) for parts in zip(*part, strict=True)] for part in rows]
        single = [part[0] if len(part) == 1 else part for part in joined]
        return tuple(single) if return_data else single[0]

    def score(self, X: Any, eval_metric: Any = "acc", num_batch: int | None = None, batch_end_callback: Any = None,
              reset: bool = True) -> float:
        """A metric's value over the real rows of X, an iterator with labels."""
        if not isinstance(X, DataIter):
            raise TypeError(f"score needs an iterator with labels, such as NDArrayIter(X, y), got {type(X).__name__}")
        found = self._prepared(X).score(X, eval_metric, num_batch, batch_end_callback, reset=reset)
        return found[0][1]

    # -- files -----------------------------------------------------------------------------------------------
    def save(self, prefix: str, epoch: int | None = None, remove_amp_cast: bool = True) -> None:
        """Write prefix-symbol.json and prefix-NNNN.params, by default under the number of epochs."""
        number = self.num_epoch if epoch is None else epoch
        if number is None:
            raise AssertionError("please specify epoch, since the model has no num_epoch")
        arguments, states = self._parameters()
        model.save_checkpoint(prefix, number, self.symbol, arguments, states, remove_amp_cast)

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Any = None, **kwargs: Any) -> FeedForward:
        """The model of a checkpoint; keywords are those of FeedForward, and training goes on at `epoch`."""
        symbol, arguments, states = model.load_checkpoint(prefix, epoch)
        return FeedForward(symbol, ctx, arg_params=arguments, aux_params=states,
                           **{"begin_epoch": epoch, **kwargs})

    # -- inside ----------------------------------------------------------------------------------------------
    def _parameters(self) -> tuple[Params, Params]:
        if self.arg_params is None:
            raise MXNetError("the model has no parameters yet; call fit, or give arg_params")
        return self.arg_params, self.aux_params or {}

    def _fitting(self) -> tuple[Params | None, Params | None]:
        """The parameters to begin with; MXNetError for extra ones, unless they are allowed."""
        arguments, states = self.arg_params, self.aux_params
        known = {*self.symbol.list_arguments(), *self.symbol.list_auxiliary_states()}
        extra = sorted({*(arguments or {}), *(states or {})} - known)
        if extra and not self.allow_extra_params:
            raise MXNetError(f"{', '.join(extra)} belong to no variable of the symbol; allow_extra_params=True lets "
                             f"them pass")
        return _without(arguments, extra), _without(states, extra)

    def _choose_symbol(self, data: DataIter) -> None:
        """Take the symbol of the data's default bucket."""
        if self.sym_gen is None:
            return
        key = getattr(data, "default_bucket_key", None)
        if key is not None and key != self._default_key:
            self._symbol, self._default_key, self._predictor = self.sym_gen(key), key, None
        elif key is None and self._symbol is None:
            raise MXNetError(f"a function from bucket keys to symbols needs data with a default_bucket_key, which "
                             f"{type(data).__name__} has not")

    def _module(self, data: DataIter, logger: Any) -> Module | BucketingModule:
        data_names = [name for name, _ in data.provide_data]
        arguments = self.symbol.list_arguments()
        labels = [name for name, _ in data.provide_label or () if name in arguments]
        if not labels and self.arg_params is not None:  # the loss needs one, though nothing reads it
            labels = [name for name in arguments if name not in self.arg_params and name not in data_names]
        generate = self.sym_gen
        if generate is None:
            return Module(self.symbol, data_names, labels, logger=logger, context=self.ctx)
        return BucketingModule(lambda key: (generate(key), data_names, labels), self._default_key, logger, self.ctx)

    def _prepared(self, data: DataIter) -> Module | BucketingModule:
        """A module bound for evaluation, kept for the next time."""
        self._parameters()
        self._choose_symbol(data)
        names = [name for name, _ in data.provide_data]
        if self._predictor is None or self._predictor.data_names != names:
            module = self._module(data, logging)
            given = [desc for desc in data.provide_label or () if desc[0] in module.label_names]
            module.bind(data.provide_data, given or None, for_training=False)
            arguments, states = self._fitting()
            module.set_params(arguments or {}, states or {})
            self._predictor = module
        return self._predictor

    def _iterator(self, X: Any, y: Any, is_train: bool) -> DataIter:
        if isinstance(X, DataIter):
            return X
        if not isinstance(X, (np.ndarray, NDArray)):
            raise TypeError(f"X must be a DataIter, an NDArray or a NumPy array, got {type(X).__name__}")
        if y is None and is_train:
            raise ValueError("y must be specified when X is numpy.ndarray")
        if y is not None and np.shape(y)[:1] != X.shape[:1]:
            raise ValueError(f"X and y must have equally many rows, got {X.shape[0]} and {np.shape(y)}")
        return NDArrayIter(X, y, min(X.shape[0], self.numpy_batch_size), shuffle=is_train,
                           last_batch_handle="roll_over" if is_train else "pad")


def _without(params: Params | None, names: Sequence[str]) -> Params | None:
    return None if params is None else {name: value for name, value in params.items() if name not in names}

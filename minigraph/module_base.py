"""The training loop and what else can be said in terms of forward, backward and update alone.

`BaseModule` is the frame: `Module` gives the computation, and scripts may give their own.
"""
from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from . import metric as metric_module
from . import model, module_support, ndarray
from .base import MXNetError
from .callback import BatchEndParam
from .initializer import Uniform
from .io_base import DataBatch, DataDesc, DataIter
from .metric_base import EvalMetric
from .ndarray import NDArray

Params = dict[str, NDArray]
SGD_DEFAULTS = (("learning_rate", 0.01),)
DEFAULT_INITIALIZER = Uniform(0.01)


class BaseModule:
    """Forward, backward and update behind the high-level calls `fit`, `score` and `predict`.

    The flags `binded`, `params_initialized`, `optimizer_initialized`, `for_training` and `inputs_need_grad`
    say how far it is prepared.
    """

    def __init__(self, logger: Any = logging) -> None:
        self.logger = logger
        self.binded = False
        self.for_training = False
        self.inputs_need_grad = False
        self.params_initialized = False
        self.optimizer_initialized = False
        self._symbol: Any = None

    @property
    def symbol(self) -> Any:
        """The network."""
        return self._symbol

    # -- what a module must give -----------------------------------------------------------------------------
    def bind(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None,
             for_training: bool = True, inputs_need_grad: bool = False, force_rebind: bool = False,
             shared_module: Any = None, grad_req: Any = "write") -> None:
        """Prepare for inputs of these shapes."""
        raise NotImplementedError(f"{type(self).__name__} must define bind")

    def init_params(self, initializer: Any = DEFAULT_INITIALIZER, arg_params: Params | None = None,
                    aux_params: Params | None = None, allow_missing: bool = False, force_init: bool = False,
                    allow_extra: bool = False) -> None:
        """Give all parameters their first values."""
        raise NotImplementedError(f"{type(self).__name__} must define init_params")

    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd",
                       optimizer_params: Any = SGD_DEFAULTS, force_init: bool = False) -> None:
        """Choose the optimizer."""
        raise NotImplementedError(f"{type(self).__name__} must define init_optimizer")

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients."""
        raise NotImplementedError(f"{type(self).__name__} must define backward")

    def update(self) -> None:
        """Update the parameters by their gradients."""
        raise NotImplementedError(f"{type(self).__name__} must define update")

    def get_outputs(self, merge_multi_context: bool = True) -> list[NDArray]:
        """The outputs of the last batch."""
        raise NotImplementedError(f"{type(self).__name__} must define get_outputs")

    def update_metric(self, eval_metric: EvalMetric, labels: Sequence[NDArray], pre_sliced: bool = False,
                      pad: int = 0) -> None:
        """Take the last batch, less its last `pad` rows, into a metric."""
        raise NotImplementedError(f"{type(self).__name__} must define update_metric")

    def get_params(self) -> tuple[Params, Params]:
        """Copies of (arguments, auxiliary states)."""
        raise NotImplementedError(f"{type(self).__name__} must define get_params")

    def install_monitor(self, mon: Any) -> None:
        """Have a monitor look at each batch."""
        raise NotImplementedError(f"{type(self).__name__} must define install_monitor")

    def prepare(self, data_batch: DataBatch, sparse_row_id_fn: Any = None) -> None:
        """Called with a batch before it is computed; nothing to do for dense parameters."""
        module_support.refuse_sparse_rows(sparse_row_id_fn)

    # -- in terms of those -----------------------------------------------------------------------------------
    def forward_backward(self, data_batch: DataBatch) -> None:
        """Forward in training form, and backward."""
        self.forward(data_batch, is_train=True)
        self.backward()

    def training_step(self) -> Callable[[DataBatch], None]:
        """What `fit` calls for each batch: forward, backward and update."""
        def step(batch: DataBatch) -> None:
            self.forward_backward(batch)
            self.update()

        return step

    def set_params(self, arg_params: Params | None, aux_params: Params | None, allow_missing: bool = False,
                   force_init: bool = True, allow_extra: bool = False) -> None:
        """Set parameters by name; with `allow_missing` the others stay as they are."""
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: str) -> None:
        """Write all parameters to a .params file, or to one that ends in .safetensors."""
        model.save_params(fname, *self.get_params())

    def load_params(self, fname: str) -> None:
        """Set all parameters from such a file."""
        self.set_params(*model.split_params(fname))

    def fit(self, train_data: DataIter, eval_data: DataIter | None = None, eval_metric: Any = "acc",
            epoch_end_callback: Any = None, batch_end_callback: Any = None, kvstore: Any = "local",
            optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS, eval_end_callback: Any = None,
            eval_batch_end_callback: Any = None, initializer: Any = DEFAULT_INITIALIZER,
            arg_params: Params | None = None, aux_params: Params | None = None, allow_missing: bool = False,
            force_rebind: bool = False,
            force_init: bool = False, begin_epoch: int = 0, num_epoch: int | None = None,
            validation_metric: Any = None, monitor: Any = None, sparse_row_id_fn: Any = None) -> None:
        """Bind, initialise, choose the optimizer, and train for epochs begin_epoch … num_epoch - 1.

        After each epoch its metric is logged, `epoch_end_callback` is called and `eval_data` is scored.
        """
        module_support.refuse_sparse_rows(sparse_row_id_fn)
        if num_epoch is None:
            raise AssertionError("please specify number of epochs")
        _check_iterator(train_data, "fit")
        self.bind(train_data.provide_data, train_data.provide_label, for_training=True,
                  force_rebind=force_rebind)
        if monitor is not None:
            self.install_monitor(monitor)
        self.init_params(initializer, arg_params, aux_params, allow_missing, force_init)
        self.init_optimizer(kvstore, optimizer, optimizer_params)
        validation_metric = eval_metric if validation_metric is None else validation_metric
        eval_metric = metric_module.create(eval_metric)
        for epoch in range(begin_epoch, num_epoch):
            self._fit_epoch(epoch, train_data, eval_metric, monitor, as_list(batch_end_callback))
            if epoch_end_callback is not None:
                arguments, states = self.get_params()
                for callback in as_list(epoch_end_callback):
                    callback(epoch, self.symbol, arguments, states)
            if eval_data is not None:
                scores = self.score(eval_data, validation_metric, score_end_callback=eval_end_callback,
                                    batch_end_callback=eval_batch_end_callback, epoch=epoch)
                for name, value in scores:
                    self.logger.info("Epoch[%d] Validation-%s=%f", epoch, name, value)
            train_data.reset()

    def _fit_epoch(self, epoch: int, train_data: DataIter, eval_metric: EvalMetric, monitor: Any,
                   callbacks: Sequence[Callable]) -> None:
        """Train on every batch once; a batch is used up before the next one is fetched."""
        start = time.perf_counter()
        eval_metric.reset()
        step = self.training_step()
        figures: list[tuple[str, float]] = []
        batches = iter(train_data)
        data_batch = next(batches, None)
        nbatch = 0
        while data_batch is not None:
            if monitor is not None:
                monitor.tic()
            self.prepare(data_batch)
            step(data_batch)
            self.update_metric(eval_metric, data_batch.label or ())
            following = next(batches, None)
            if monitor is not None:
                monitor.toc_print()
            if following is None:
                figures = eval_metric.get_global_name_value()
            for callback in callbacks:
                callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
            data_batch = following
            nbatch += 1
        for name, value in figures:
            self.logger.info("Epoch[%d] Train-%s=%f", epoch, name, value)
        self.logger.info("Epoch[%d] Time cost=%.3f", epoch, time.perf_counter() - start)

    def score(self, eval_data: DataIter, eval_metric: Any, num_batch: int | None = None,
              batch_end_callback: Any = None, score_end_callback: Any = None, reset: bool = True,
              epoch: int = 0, sparse_row_id_fn: Any = None) -> list[tuple[str, float]]:
        """Metrics over the real rows of the data: rows that only fill the last batch do not count."""
        module_support.refuse_sparse_rows(sparse_row_id_fn)
        self._require(params=True)
        _check_iterator(eval_data, "score")
        if reset:
            eval_data.reset()
        eval_metric = metric_module.create(eval_metric)
        eval_metric.reset()
        nbatch = -1
        for nbatch, eval_batch in enumerate(islice(eval_data, num_batch)):
            self.prepare(eval_batch)
            self.forward(eval_batch, is_train=False)
            pad = getattr(eval_batch, "pad", 0) or 0
            # A module of a script's own may have an update_metric without `pad`.
            padded: dict[str, Any] = {"pad": pad} if pad else {}
            self.update_metric(eval_metric, eval_batch.label or (), **padded)
            for callback in as_list(batch_end_callback):
                callback(BatchEndParam(epoch, nbatch, eval_metric, locals()))
        for callback in as_list(score_end_callback):
            callback(BatchEndParam(epoch, nbatch + 1, eval_metric, locals()))
        return eval_metric.get_global_name_value()

    def iter_predict(self, eval_data: DataIter, num_batch: int | None = None, reset: bool = True,
                     sparse_row_id_fn: Any = None) -> Iterator[tuple[list[NDArray], int, DataBatch]]:
        """(copies of the outputs' real rows, number of the batch, batch) for each batch."""
        module_support.refuse_sparse_rows(sparse_row_id_fn)
        self._require(params=True)
        if reset:
            eval_data.reset()
        for nbatch, batch in enumerate(islice(eval_data, num_batch)):
            self.prepare(batch)
            self.forward(batch, is_train=False)
            rows = batch.data[0].shape[0]
            pad = getattr(batch, "pad", 0) or 0
            yield [real_rows(out, rows, pad).copy() for out in self.get_outputs()], nbatch, batch

    def predict(self, eval_data: Any, num_batch: int | None = None, merge_batches: bool = True,
                reset: bool = True, always_output_list: bool = False, sparse_row_id_fn: Any = None) -> Any:
        """Outputs for the real rows of the data, joined over the batches.

        One output is returned alone unless `always_output_list`; without `merge_batches` there is a list of
        outputs for each batch. An array instead of an iterator is one batch.
        """
        module_support.refuse_sparse_rows(sparse_row_id_fn)
        if isinstance(eval_data, (NDArray, np.ndarray)):
            self._require(params=True)
            self.forward(DataBatch([ndarray.array(eval_data)]), is_train=False)
            batches = [[output.copy() for output in self.get_outputs()]][:num_batch]
        else:
            batches = [outputs for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset)]
        if not batches or not merge_batches:
            return batches
        if len({len(outputs) for outputs in batches}) > 1:
            raise AssertionError("Cannot merge batches, as num of outputs is not the same in mini-batches. "
                                 "Maybe bucketing is used?")
        merged = [ndarray.concatenate(parts) for parts in zip(*batches, strict=True)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    def _require(self, params: bool = False, optimizer: bool = False, training: bool = False) -> None:
        """AssertionError, as in MXNet, when a step of the preparation was left out."""
        if not self.binded:
            raise AssertionError("the module is not bound; call bind before")
        if training and not self.for_training:
            raise AssertionError("the module is bound for evaluation; re-bind with for_training=True and "
                                 "force_rebind=True to run backward")
        if params and not self.params_initialized:
            raise AssertionError("the parameters have no values; call init_params or set_params before")
        if optimizer and not self.optimizer_initialized:
            raise AssertionError("there is no optimizer; call init_optimizer before")


def _check_iterator(data: Any, what: str) -> None:
    """MXNetError for an array, or anything else that gives no batches."""
    if not hasattr(data, "reset"):
        raise MXNetError(f"{what} takes its data from an iterator, got {type(data).__name__}; write "
                         f"mx.io.NDArrayIter(data, label, batch_size)")


def as_list(value: Any) -> list[Any]:
    """A list from None, one object, or a list or tuple."""
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def real_rows(array: NDArray, batch_size: int, pad: int) -> NDArray:
    """The part of an array that does not come from the last `pad` of `batch_size` rows.

    An array with several rows for each of the batch loses as many for each; one without rows for each of the
    batch, such as a mean over it, is returned as it is.
    """
    rows = array.shape[0] if array.shape else 0
    if not pad or not rows or rows % batch_size:
        return array
    return array[:rows - pad * (rows // batch_size)]


def describe_inputs(names: Sequence[str], shapes: Sequence[Any] | None, what: str) -> list[DataDesc]:
    """Descriptions from DataDescs or (name, shape) pairs, in the order given, which is that of a batch's arrays.

    Data must be described in full; labels may be left out.
    """
    descs = [each if isinstance(each, DataDesc) else DataDesc(*each) for each in shapes or ()]
    given = [desc.name for desc in descs]
    if sorted(given) == sorted(names):
        return descs
    message = (f"Data provided by {what}_shapes don't match names specified by {what}_names "
               f"({descs} vs. {list(names)})")
    if what == "data":
        raise ValueError(message)
    if descs:
        logging.getLogger(__name__).warning(message)
    return descs

"""Modules whose computation is Python: the frame of one, and a loss given by its gradient."""
from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from . import ndarray
from .base import MXNetError
from .io_base import DataBatch
from .metric_base import EvalMetric
from .module_base import DEFAULT_INITIALIZER, SGD_DEFAULTS, BaseModule, Params, real_rows
from .module_support import labels_of_device
from .ndarray import NDArray


class PythonModule(BaseModule):
    """A module without parameters; a subclass gives `_compute_output_shapes`, `forward`, `backward`, `get_outputs` and
    `get_input_grads`."""

    def __init__(self, data_names: Sequence[str], label_names: Sequence[str] | None, output_names: Sequence[str],
                 logger: Any = logging) -> None:
        super().__init__(logger)
        self._data_names = list(data_names)
        self._label_names = None if label_names is None else list(label_names)
        self._output_names = list(output_names)
        self._data_shapes: Any = None
        self._label_shapes: Any = None
        self._output_shapes: Any = None

    @property
    def data_names(self) -> list[str]:
        """Names of the data inputs."""
        return self._data_names

    @property
    def label_names(self) -> list[str] | None:
        """Names of the label inputs."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return self._output_names

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the data."""
        return self._data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels, None when it was bound without."""
        return self._label_shapes

    @property
    def output_shapes(self) -> Any:
        """(name, shape) of each output."""
        return self._output_shapes

    def get_params(self) -> tuple[Params, Params]:
        """None: two empty dicts."""
        return {}, {}

    def init_params(self, initializer: Any = DEFAULT_INITIALIZER, arg_params: Params | None = None,
                    aux_params: Params | None = None, allow_missing: bool = False, force_init: bool = False,
                    allow_extra: bool = False) -> None:
        """Nothing to do without parameters."""
        self.params_initialized = True

    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS,
                       force_init: bool = False) -> None:
        """Nothing to do without parameters."""
        self.optimizer_initialized = True

    def update(self) -> None:
        """Nothing to do without parameters."""

    def update_metric(self, eval_metric: EvalMetric, labels: Sequence[NDArray], pre_sliced: bool = False,
                      pad: int = 0) -> None:
        """Take the outputs of the last batch, less its last `pad` rows, into a metric, if it was bound with labels."""
        if self._label_shapes is None:
            return
        labels = labels_of_device(labels) if pre_sliced else labels
        rows = self._data_shapes[0][1][0]
        eval_metric.update([real_rows(label, rows, pad) for label in labels],
                           [real_rows(output, rows, pad) for output in self.get_outputs()])

    def bind(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None, for_training: bool = True,
             inputs_need_grad: bool = False, force_rebind: bool = False, shared_module: Any = None,
             grad_req: Any = "write") -> None:
        """Take note of the shapes; MXNetError when names are not those of the module."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if grad_req != "write":
            raise MXNetError(f"{type(self).__name__} writes its gradients, and was bound with grad_req={grad_req!r}; "
                             f"leave it 'write'")
        for what, names, shapes in (("data", self._data_names, data_shapes),
                                    ("label", self._label_names, label_shapes)):
            given = None if shapes is None else [each[0] for each in shapes]
            if given is not None and given != names:
                raise MXNetError(f"{type(self).__name__} takes the {what} {names}, and was bound with {given}")
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._data_shapes, self._label_shapes = data_shapes, label_shapes
        self._output_shapes = self._compute_output_shapes()
        self.binded = True

    def _compute_output_shapes(self) -> list[tuple[str, Any]]:
        """(name, shape) of each output, from `data_shapes` and `label_shapes`."""
        raise NotImplementedError(f"{type(self).__name__} must define _compute_output_shapes")

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the data."""
        raise NotImplementedError(f"{type(self).__name__} must define get_input_grads")

    def install_monitor(self, mon: Any) -> None:
        """Nothing to look at."""


class PythonLossModule(PythonModule):
    """A loss at the end of a chain: it hands on the scores that it is given, and `grad_func(scores, labels)` gives
    their gradient, as an NDArray or a NumPy array. A subclass may define `_backward_impl` instead, which sets
    `_scores_grad`.
    """

    def __init__(self, name: str = "pyloss", data_names: Sequence[str] = ("data",),
                 label_names: Sequence[str] = ("softmax_label",), logger: Any = logging,
                 grad_func: Callable[[NDArray, NDArray], Any] | None = None) -> None:
        super().__init__(data_names, label_names, [f"{name}_output"], logger)
        if len(data_names) != 1 or len(label_names) != 1:
            raise MXNetError(f"PythonLossModule takes one data and one label, got {list(data_names)} and "
                             f"{list(label_names)}")
        if grad_func is not None and not callable(grad_func):
            raise MXNetError(f"grad_func={grad_func!r} is no function of scores and labels")
        self._name = name
        self._grad_func = grad_func
        self._scores: Any = None
        self._labels: Any = None
        self._scores_grad: Any = None

    def _compute_output_shapes(self) -> list[tuple[str, Any]]:
        return [(self._output_names[0], self._data_shapes[0][1])]

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Keep the scores, and in training the labels."""
        self._scores = data_batch.data[0]
        if self.for_training if is_train is None else is_train:
            if not data_batch.label:
                raise MXNetError(f"{type(self).__name__}: the batch has no label, which training needs")
            self._labels = data_batch.label[0]

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """The scores."""
        return [self._scores if merge_multi_context else [self._scores]]

    def backward(self, out_grads: Any = None) -> None:
        """Compute the scores' gradient."""
        if out_grads is not None:
            raise MXNetError(f"{type(self).__name__} is a loss and takes no out_grads")
        if not self.for_training:
            raise AssertionError("the module is bound for evaluation; bind it with for_training=True")
        self._backward_impl()

    def _backward_impl(self) -> None:
        if self._grad_func is None:
            raise NotImplementedError(f"give {type(self).__name__} a grad_func, or define _backward_impl")
        gradient = self._grad_func(self._scores, self._labels)
        self._scores_grad = gradient if isinstance(gradient, NDArray) else ndarray.array(gradient)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """The scores' gradient."""
        return [self._scores_grad if merge_multi_context else [self._scores_grad]]

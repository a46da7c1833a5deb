"""SequentialModule: modules in a chain, each taking the outputs of the one before as its data.

Each module has arenas and programs of its own; one symbol of all parts is planned as one, and needs less memory.
"""
from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

from .base import MXNetError
from .io_base import DataBatch, DataDesc
from .metric_base import EvalMetric
from .module_base import DEFAULT_INITIALIZER, SGD_DEFAULTS, BaseModule, Params
from .ndarray import NDArray


class SequentialModule(BaseModule):
    """Modules in a chain, in the order in which they are added."""

    META_TAKE_LABELS = "take_labels"
    META_AUTO_WIRING = "auto_wiring"

    def __init__(self, logger: Any = logging) -> None:
        super().__init__(logger)
        self._modules: list[Any] = []
        self._metas: list[dict[str, Any]] = []
        self._label_shapes: Any = None

    def add(self, module: Any, **kwargs: Any) -> SequentialModule:
        """Put a module at the end; the chain itself is returned. It is to be bound again after that.

        take_labels: whether the module gets the batch's labels, and its outputs are what metrics see. auto_wiring:
        whether the outputs before become its data in their order, whatever their names; otherwise names must agree.
        """
        known = (self.META_TAKE_LABELS, self.META_AUTO_WIRING)
        for key in kwargs:
            if key not in known:
                raise AssertionError(f'Unknown meta "{key}", a typo? known are {", ".join(known)}')
        self._modules.append(module)
        self._metas.append(kwargs)
        self.binded = self.params_initialized = self.optimizer_initialized = False
        return self

    @property
    def data_names(self) -> list[str]:
        """Names of the first module's data."""
        return self._modules[0].data_names if self._modules else []

    @property
    def output_names(self) -> list[str]:
        """Names of the last module's outputs."""
        return self._modules[-1].output_names if self._modules else []

    @property
    def data_shapes(self) -> list[Any]:
        """Descriptions of the first module's data."""
        self._require()
        return self._modules[0].data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels, None where no module takes them."""
        self._require()
        return self._label_shapes

    @property
    def output_shapes(self) -> list[Any]:
        """(name, shape) of each of the last module's outputs."""
        self._require()
        return self._modules[-1].output_shapes

    # -- preparation -----------------------------------------------------------------------------------------
    def bind(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None, for_training: bool = True,
             inputs_need_grad: bool = False, force_rebind: bool = False, shared_module: Any = None,
             grad_req: Any = "write") -> None:
        """Bind each module for the outputs of the one before."""
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if shared_module is not None:
            raise MXNetError("a SequentialModule shares no memory with another module; leave shared_module out")
        if not self._modules:
            raise MXNetError("a SequentialModule without modules cannot be bound; add some")
        shapes = list(data_shapes)
        for number, (module, meta) in enumerate(zip(self._modules, self._metas, strict=True)):
            if meta.get(self.META_AUTO_WIRING):
                shapes = self._wired(module, shapes)
            module.bind(shapes, label_shapes if meta.get(self.META_TAKE_LABELS) else None, for_training,
                        inputs_need_grad or (for_training and number > 0), force_rebind, None, grad_req)
            shapes = module.output_shapes
        takes = any(meta.get(self.META_TAKE_LABELS) for meta in self._metas)
        self._label_shapes = label_shapes if takes else None
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self.binded = True

    @staticmethod
    def _wired(module: Any, shapes: Sequence[Any]) -> list[Any]:
        names = module.data_names
        if len(names) != len(shapes):
            raise MXNetError(f"a module with the data {list(names)} follows one with the outputs "
                             f"{[each[0] for each in shapes]}; auto_wiring needs as many of both")
        return [DataDesc(name, each[1], getattr(each, "dtype", "float32")) for name, each in
                zip(names, shapes, strict=True)]

    def get_params(self) -> tuple[Params, Params]:
        """Copies of the (arguments, auxiliary states) of all modules."""
        self._require(params=True)
        arguments: Params = {}
        states: Params = {}
        for module in self._modules:
            for found, each in zip((arguments, states), module.get_params(), strict=True):
                found.update(each)
        return arguments, states

    def init_params(self, initializer: Any = DEFAULT_INITIALIZER, arg_params: Params | None = None,
                    aux_params: Params | None = None, allow_missing: bool = False, force_init: bool = False,
                    allow_extra: bool = False) -> None:
        """As Module.init_params, for each module; no two may have a parameter of one name, and unknown values are those
        that no module has."""
        if self.params_initialized and not force_init:
            return
        self._require()
        for module in self._modules:
            module.init_params(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra=True)
        owners: dict[str, int] = {}
        for number, module in enumerate(self._modules):
            for name in (name for held in module.get_params() for name in held):
                if name in owners:
                    raise MXNetError(f"Duplicated parameter names: {name!r} is in the modules {owners[name]} and "
                                     f"{number} of the chain; name their layers differently")
                owners[name] = number
        extra = sorted({*(arg_params or ()), *(aux_params or ())} - set(owners))
        if extra and not allow_extra:
            raise MXNetError(f"the parameters do not fit: no module has {', '.join(extra)} (allow_extra=True lets it "
                             f"pass)")
        self.params_initialized = True

    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS,
                       force_init: bool = False) -> None:
        """Choose the optimizer of each module."""
        self._require(params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        for module in self._modules:
            module.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        self.optimizer_initialized = True

    # -- running ---------------------------------------------------------------------------------------------
    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Compute the modules one after the other."""
        self._require(params=True)
        batch = copy.copy(data_batch)
        for number, module in enumerate(self._modules):
            if number:
                before = self._modules[number - 1]
                batch.data = before.get_outputs()
                names = module.data_names if self._metas[number].get(self.META_AUTO_WIRING) else before.output_names
                batch.provide_data = [DataDesc(name, array.shape, array.dtype)
                                      for name, array in zip(names, batch.data, strict=True)]
            module.forward(batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute gradients from the last module to the first; `out_grads` for outputs that are no losses."""
        self._require(params=True, training=True)
        for module in self._modules[::-1]:
            module.backward(out_grads)
            if module is not self._modules[0]:
                out_grads = module.get_input_grads()

    def update(self) -> None:
        """Update the parameters of all modules."""
        self._require(params=True, optimizer=True)
        for module in self._modules:
            module.update()

    def get_outputs(self, merge_multi_context: bool = True) -> list[NDArray]:
        """The last module's outputs."""
        self._require(params=True)
        return self._modules[-1].get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the first module's data; the chain must be bound with inputs_need_grad."""
        self._require(params=True)
        if not self.inputs_need_grad:
            raise AssertionError("no gradients of the inputs were asked for; bind with inputs_need_grad=True")
        return self._modules[0].get_input_grads(merge_multi_context)

    def update_metric(self, eval_metric: EvalMetric, labels: Sequence[NDArray], pre_sliced: bool = False,
                      pad: int = 0) -> None:
        """Take the last batch, less its last `pad` rows, into a metric, by the modules that take labels."""
        self._require(params=True)
        for module, meta in zip(self._modules, self._metas, strict=True):
            if meta.get(self.META_TAKE_LABELS):
                module.update_metric(eval_metric, labels, pre_sliced, **({"pad": pad} if pad else {}))

    def install_monitor(self, mon: Any) -> None:
        """Have a monitor look at each batch of every module."""
        self._require()
        for module in self._modules:
            module.install_monitor(mon)

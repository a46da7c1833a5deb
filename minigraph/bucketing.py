"""BucketingModule: one model in several shapes, such as recurrent networks of several lengths, over one memory.

All buckets share one persistent and one transient arena; the transient one is as large as the largest bucket needs,
whatever the order in which they come.
"""
from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from . import model, module_support, ndarray, symbol
from .base import MXNetError, Shape
from .context import Context
from .io_base import DataBatch, DataDesc
from .metric_base import EvalMetric
from .module import Module
from .module_base import DEFAULT_INITIALIZER, SGD_DEFAULTS, BaseModule, Params
from .ndarray import NDArray
from .symbol.symbol import Symbol

SymbolGenerator = Callable[[Any], tuple[Any, Sequence[str], Sequence[str]]]
"""From a bucket's key to (symbol, data names, label names)."""

MAX_BUCKETS = 256
"""Buckets that a module keeps; the one used longest ago, but never the default one, is let go first."""


class BucketingModule(BaseModule):
    """A module for each bucket key, made by `sym_gen(key)` when its first batch comes.

    Parameters belong to the bucket `default_bucket_key`, and every other bucket may use these and no others.
    `memory` and all that is named after it are those of Module.
    """

    def __init__(self, sym_gen: SymbolGenerator, default_bucket_key: Hashable = None, logger: Any = logging,
                 context: Context | Sequence[Context] | None = None, work_load_list: Any = None,
                 fixed_param_names: Sequence[str] | None = None, state_names: Sequence[str] | None = None,
                 group2ctxs: Any = None, compression_params: Any = None, *, memory: str | None = None,
                 budget: int | str | None = None, host_budget: int | str | None = None, disk: str | None = None,
                 machine: str = "cpu", profile: str | None = None, search: str = "default", slices: int = 1,
                 verify: bool = True, fuse: bool = True, encode: bool = True, fold: bool = False,
                 poison: bool = False) -> None:
        super().__init__(logger)
        if default_bucket_key is None:
            raise MXNetError("BucketingModule needs default_bucket_key, the bucket that holds all parameters")
        if not callable(sym_gen):
            raise MXNetError(f"BucketingModule needs sym_gen, a function of a bucket's key, got "
                             f"{type(sym_gen).__name__}")
        self._sym_gen = sym_gen
        self._default_key = default_bucket_key
        self._options: dict[str, Any] = {
            "logger": logger, "context": context, "work_load_list": work_load_list,
            "fixed_param_names": fixed_param_names, "state_names": state_names, "group2ctxs": group2ctxs,
            "compression_params": compression_params, "memory": memory, "budget": budget, "host_budget": host_budget,
            "disk": disk, "machine": machine, "profile": profile, "search": search, "slices": slices,
            "verify": verify, "fuse": fuse, "encode": encode, "fold": fold, "poison": poison}
        self._buckets: OrderedDict[Hashable, Module] = OrderedDict()
        self._key: Hashable = default_bucket_key
        self._grad_req: Any = "write"
        self._monitor: Any = None
        self._symbols: dict[Hashable, Symbol] = {}

    def _generate(self, key: Hashable) -> Module:
        made = self._sym_gen(key)
        if not isinstance(made, tuple) or len(made) != 3:
            raise MXNetError(f"sym_gen({key!r}) must return (symbol, data_names, label_names), got "
                             f"{type(made).__name__}")
        generated, data_names, label_names = made
        return Module(self._symbols.get(key, generated), data_names, label_names, **self._options)

    # -- files -----------------------------------------------------------------------------------------------
    def save_checkpoint(self, prefix: str, epoch: int, save_optimizer_states: bool = False,
                        remove_amp_cast: bool = False) -> None:
        """Write prefix-NNNN.params, a prefix-KEY-symbol.json for each bucket that there is, their keys as
        prefix.buckets, and if asked prefix-NNNN.states. Keys must be whole numbers of 32 bits, as in MXNet.
        """
        self._require(params=True)
        model.save_checkpoint(prefix, epoch, None, *self.get_params())
        keys = [self._default_key, *(key for key in self._buckets if key != self._default_key)]
        ndarray.save(_buckets_file(prefix), [ndarray.array(_as_integers(keys), dtype=np.int32)])
        for key, module in self._buckets.items():
            module.symbol.save(model.symbol_file(f"{prefix}-{key}"), remove_amp_cast=remove_amp_cast)
        if save_optimizer_states:
            self.save_optimizer_states(module_support.states_file(prefix, epoch))

    @staticmethod
    def load(prefix: str, epoch: int, sym_gen: SymbolGenerator | None = None, default_bucket_key: Hashable = None,
             load_optimizer_states: bool = False, **kwargs: Any) -> BucketingModule:
        """A module from a checkpoint: the buckets saved there have their saved symbols, others those of `sym_gen`."""
        saved = ndarray.load(_buckets_file(prefix))
        if not isinstance(saved, list) or len(saved) != 1:
            raise MXNetError(f"{_buckets_file(prefix)} does not hold one array, the keys of the buckets")
        keys = saved[0].asnumpy().tolist()
        symbols = {key: symbol.load(model.symbol_file(f"{prefix}-{key}")) for key in keys}
        loaded = BucketingModule.load_dict(symbols, sym_gen, default_bucket_key, *model.load_params(prefix, epoch),
                                           **kwargs)
        if load_optimizer_states:
            loaded._buckets[default_bucket_key]._states_file = module_support.states_file(prefix, epoch)
        return loaded

    @staticmethod
    def load_dict(sym_dict: Mapping[Hashable, Symbol] | None = None, sym_gen: SymbolGenerator | None = None,
                  default_bucket_key: Hashable = None, arg_params: Params | None = None,
                  aux_params: Params | None = None, **kwargs: Any) -> BucketingModule:
        """A module whose buckets have these symbols, and which has these parameters once it is bound."""
        for name, value in (("sym_dict", sym_dict), ("sym_gen", sym_gen), ("arg_params", arg_params),
                            ("aux_params", aux_params)):
            if value is None:
                raise AssertionError(f"{name} is required for loading BucketingModule")
        assert sym_gen is not None and sym_dict is not None
        module = BucketingModule(sym_gen, default_bucket_key, **kwargs)
        module._symbols = dict(sym_dict)
        default = module._generate(default_bucket_key)
        default._loaded = module_support.copies(arg_params or {}), module_support.copies(aux_params or {})
        default.params_initialized = module.params_initialized = True
        module._buckets[default_bucket_key] = default
        return module

    @property
    def _module(self) -> Module:
        """The present bucket's module."""
        self._require()
        return self._buckets[self._key]

    @property
    def _curr_module(self) -> Module:
        """The present bucket's module, by the name that scripts know."""
        return self._module

    # -- what it is ------------------------------------------------------------------------------------------
    @property
    def symbol(self) -> Any:
        """The network of the present bucket."""
        return self._module.symbol

    @property
    def data_names(self) -> list[str]:
        """Names of the data inputs."""
        return self._module.data_names if self.binded else list(self._sym_gen(self._default_key)[1])

    @property
    def label_names(self) -> list[str]:
        """Names of the label inputs."""
        return self._module.label_names if self.binded else list(self._sym_gen(self._default_key)[2])

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return self._module.output_names if self.binded else self._sym_gen(self._default_key)[0].list_outputs()

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Descriptions of the data of the present bucket."""
        return self._module.data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Descriptions of the labels of the present bucket."""
        return self._module.label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, Shape]]:
        """(name, shape) of each output of the present bucket."""
        return self._module.output_shapes

    # -- binding ---------------------------------------------------------------------------------------------
    def bind(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None, for_training: bool = True,
             inputs_need_grad: bool = False, force_rebind: bool = False, shared_module: Any = None,
             grad_req: Any = "write") -> None:
        """Prepare the default bucket for inputs of these shapes. `force_rebind` begins anew with all buckets."""
        if shared_module is not None:
            raise MXNetError("a BucketingModule shares memory between its buckets, not with another module")
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        default = self._buckets.get(self._default_key) or self._generate(self._default_key)
        default.bind(data_shapes, label_shapes, for_training, inputs_need_grad, force_rebind, None, grad_req)
        self._buckets = OrderedDict({self._default_key: default})
        self._key = self._default_key
        self._grad_req = grad_req
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self.binded = True

    def switch_bucket(self, bucket_key: Hashable, data_shapes: Sequence[Any],
                      label_shapes: Sequence[Any] | None = None) -> None:
        """Make another bucket the present one; at its first time it is made, for inputs of these shapes.

        Of more than MAX_BUCKETS the one used longest ago is let go, and made again by `sym_gen` when it is used again.
        MXNetError names parameters that the default bucket does not have.
        """
        self._require()
        if bucket_key not in self._buckets:
            self._buckets[bucket_key] = self._bound(bucket_key, data_shapes, label_shapes)
        self._key = bucket_key
        self._buckets.move_to_end(bucket_key)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.pop(next(key for key in self._buckets if key != self._default_key))

    def _bound(self, key: Hashable, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None) -> Module:
        default, module = self._buckets[self._default_key], self._generate(key)
        missing = sorted({*module._param_names, *module._aux_names}
                         - {*default._param_names, *default._aux_names})
        if missing:
            raise MXNetError(f"bucket {key!r} has the parameters {', '.join(missing)}, which the default bucket "
                             f"{self._default_key!r} has not; all buckets share the default one's parameters")
        module.bind(data_shapes, label_shapes, self.for_training, self.inputs_need_grad, shared_module=default,
                    grad_req=self._grad_req)
        module.params_initialized = self.params_initialized
        if self.optimizer_initialized:
            module.borrow_optimizer(default)
        if self._monitor is not None:
            module.install_monitor(self._monitor)
        return module

    # -- parameters and optimizer ----------------------------------------------------------------------------
    def get_params(self) -> tuple[Params, Params]:
        """Copies of (arguments, auxiliary states) of the default bucket, which all share."""
        self._require(params=True)
        return self._buckets[self._default_key].get_params()

    def init_params(self, initializer: Any = DEFAULT_INITIALIZER, arg_params: Params | None = None,
                    aux_params: Params | None = None, allow_missing: bool = False, force_init: bool = False,
                    allow_extra: bool = False) -> None:
        """As Module.init_params, for the parameters of the default bucket."""
        self._require()
        self._buckets[self._default_key].init_params(initializer, arg_params, aux_params, allow_missing, force_init,
                                                     allow_extra)
        for module in self._buckets.values():
            module.params_initialized = True
        self.params_initialized = True

    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd", optimizer_params: Any = SGD_DEFAULTS,
                       force_init: bool = False) -> None:
        """Choose the optimizer of all buckets; its states and update counts are theirs in common."""
        self._require(params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        default = self._buckets[self._default_key]
        default.init_optimizer(kvstore, optimizer, optimizer_params, force_init)
        for module in self._buckets.values():
            if module is not default:
                module.borrow_optimizer(default)
        self.optimizer_initialized = True

    def save_optimizer_states(self, fname: str) -> None:
        """As Module.save_optimizer_states."""
        self._require(optimizer=True)
        self._buckets[self._default_key].save_optimizer_states(fname)

    def load_optimizer_states(self, fname: str) -> None:
        """As Module.load_optimizer_states."""
        self._require(optimizer=True)
        self._buckets[self._default_key].load_optimizer_states(fname)

    # -- running ---------------------------------------------------------------------------------------------
    def _switch_to(self, batch: DataBatch) -> Module:
        """The module of a batch's bucket; a batch without a key belongs to the default one."""
        key = self._default_key if batch.bucket_key is None else batch.bucket_key
        if key not in self._buckets and batch.provide_data is None:
            raise MXNetError(f"the first batch of bucket {key!r} has no provide_data, which tells the shapes of its "
                             f"inputs; give the DataBatch provide_data and provide_label, or call switch_bucket before")
        self.switch_bucket(key, batch.provide_data or (), batch.provide_label)
        return self._module

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Compute the outputs of a batch in its bucket, `data_batch.bucket_key`."""
        self._require(params=True)
        self._switch_to(data_batch).forward(data_batch, is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute gradients from the forward pass just before."""
        self._module.backward(out_grads)

    def update(self) -> None:
        """Update the parameters by the gradients that backward left."""
        self._require(params=True, optimizer=True)
        self._module.update()

    def training_step(self) -> Callable[[DataBatch], None]:
        """Each batch's step in its bucket: one program, unless gradients must be seen."""
        if module_support.own_methods(self, BucketingModule):
            return super().training_step()

        def step(batch: DataBatch) -> None:
            self._switch_to(batch).training_step()(batch)

        return step

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """As Module.get_outputs."""
        return self._module.get_outputs(merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """As Module.get_input_grads."""
        return self._module.get_input_grads(merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Copies of the present bucket's states."""
        return self._module.get_states(merge_multi_context)

    def set_states(self, states: Sequence[Any] | None = None, value: float | None = None) -> None:
        """As Module.set_states, for the present bucket."""
        self._module.set_states(states, value)

    def update_metric(self, eval_metric: EvalMetric, labels: Sequence[NDArray], pre_sliced: bool = False,
                      pad: int = 0) -> None:
        """As Module.update_metric."""
        self._module.update_metric(eval_metric, labels, pre_sliced, pad)

    def install_monitor(self, mon: Any) -> None:
        """Have a monitor look at each batch of every bucket."""
        self._require()
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)


def _buckets_file(prefix: str) -> str:
    """The name of the file with the keys of a checkpoint's buckets."""
    return f"{prefix}.buckets"


def _as_integers(keys: Collection[Any]) -> list[int]:
    """The keys, if MXNet's file can hold them."""
    limits = np.iinfo(np.int32)
    for key in keys:
        if not isinstance(key, (int, np.integer)) or not limits.min <= key <= limits.max:
            raise MXNetError(f"bucket key {key!r} cannot be saved; a checkpoint holds whole numbers of 32 bits")
    return [int(key) for key in keys]

"""Module: a network with its parameters, its optimizer and its executors, under MXNet's interface."""
from __future__ import annotations

import logging
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import heads, model, module_support
from . import kvstore as kvstore_module
from .base import MXNetError, Shape
from .breakage import PARAMETERS
from .context import Context
from .executor import Executor
from .formats.atomic import write_atomically
from .io_base import DataBatch, DataDesc
from .metric_base import EvalMetric
from .module_base import DEFAULT_INITIALIZER, SGD_DEFAULTS, BaseModule, Params, describe_inputs, real_rows
from .module_states import ModuleStates
from .ndarray import NDArray
from .optimizer import Updater

if TYPE_CHECKING:
    from .bucketing import BucketingModule

__all__ = ["BaseModule", "BucketingModule", "Module"]

MAX_SHAPES = 16
"""Executors for different input shapes that a module keeps; the one used longest ago is let go first."""


class Module(BaseModule):
    """A symbol whose arguments are data, labels, and parameters that it keeps and trains.

    `memory`, `budget`, `machine`, `profile`, `search`, `slices` and `fold` are those of Executor, `verify=False` skips
    the proof of each plan, `fuse=False` lets every operator run by itself, `encode=False` keeps whole values where
    backward needs only a sign, and `poison=True` runs with NaN in all bytes that nobody may read, and has a GPU
    raise for ids and labels out of range, as the CPU always does. One context only. `state_names` are arguments that
    are no parameters and come from no iterator: zeros, or what `set_states` says.
    Outputs are handles that show the last run's values until something else runs.
    """

    def __init__(self, symbol: Any, data_names: Sequence[str] | None = ("data",),
                 label_names: Sequence[str] | None = ("softmax_label",), logger: Any = logging,
                 context: Context | Sequence[Context] | None = None, work_load_list: Any = None,
                 fixed_param_names: Sequence[str] | None = None, state_names: Sequence[str] | None = None,
                 group2ctxs: Any = None, compression_params: Any = None, *, memory: str | None = None,
                 budget: int | str | None = None, host_budget: int | str | None = None, disk: str | None = None,
                 machine: str = "cpu", profile: str | None = None, search: str = "default", slices: int = 1,
                 verify: bool = True, fuse: bool = True, encode: bool = True, fold: bool = False,
                 poison: bool = False) -> None:
        super().__init__(logger)
        module_support.refuse_unsupported(group2ctxs=group2ctxs, compression_params=compression_params)
        module_support.check_work_load(work_load_list)
        self._symbol = symbol
        self._context = module_support.one_context(context)
        self._options: dict[str, Any] = {"memory": memory, "budget": budget, "host_budget": host_budget,
                                         "disk": disk, "machine": machine, "profile": profile, "search": search,
                                         "slices": slices, "verify": verify, "fuse": fuse, "encode": encode,
                                         "fold": fold, "poison": poison}
        module_support.check_symbol(symbol)
        self._data_names = module_support.name_list("data_names", data_names)
        self._label_names = module_support.name_list("label_names", label_names)
        self._fixed = frozenset(module_support.name_list("fixed_param_names", fixed_param_names))
        self._states = ModuleStates(state_names or (), lambda name: self._executor.input_type(name))
        for names, what in ((self._data_names, "data"), (self._label_names, "label"), (self._states.names, "state"),
                            (sorted(self._fixed), "fixed_param")):
            module_support.check_names(symbol, names, what, must_exist=what != "label")
        arguments = symbol.list_arguments()
        inputs = {*self._data_names, *self._label_names, *self._states.names}
        self._param_names = [name for name in arguments if name not in inputs]
        self._aux_names: list[str] = symbol.list_auxiliary_states()
        self._inputs = [name for name in arguments if name in inputs]
        self._loaded: tuple[Params, Params] | None = None
        self._states_file: str | None = None
        self._waiting_states: bytes | None = None
        self._heads = heads.Heads(symbol, self._label_names)
        self._executors: OrderedDict[Any, Executor] = OrderedDict()
        self._optimizer: Any = None
        self._updater: Updater | None = None
        self._monitored = False
        self._told = False
        self._reset_bind()

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module from a checkpoint; its optimizer's states are read when the optimizer is initialised."""
        symbol, arguments, states = model.load_checkpoint(prefix, epoch)
        module = Module(symbol, **kwargs)
        module._loaded = arguments, states
        module.params_initialized = True
        if load_optimizer_states:
            module._states_file = module_support.states_file(prefix, epoch)
        return module

    def save_checkpoint(self, prefix: str, epoch: int, save_optimizer_states: bool = False,
                        remove_amp_cast: bool = True) -> None:
        """Write prefix-symbol.json, prefix-NNNN.params, and if asked prefix-NNNN.states."""
        arguments, states = self.get_params()
        model.save_checkpoint(prefix, epoch, self._symbol, arguments, states, remove_amp_cast)
        if save_optimizer_states:
            name = module_support.states_file(prefix, epoch)
            self.save_optimizer_states(name)
            logging.info('Saved optimizer state to "%s"', name)

    # -- what it is ------------------------------------------------------------------------------------------
    @property
    def data_names(self) -> list[str]:
        """Names of the data inputs."""
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the label inputs."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return self._symbol.list_outputs()

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Descriptions of the data that it is prepared for."""
        self._require()
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        """Descriptions of the labels, None when it was bound without."""
        self._require()
        return self._label_shapes or None

    @property
    def output_shapes(self) -> list[tuple[str, Shape]]:
        """(name, shape) of each output."""
        self._require()
        return [(name, kind.shape) for name, kind in zip(self.output_names, self._executor.output_types, strict=True)]

    # -- binding ---------------------------------------------------------------------------------------------
    def _reset_bind(self) -> None:
        self.binded = False
        self._executors.clear()
        self._bound: Executor | None = None
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] = []
        self._described = self._data_shapes, self._label_shapes
        self._label_order = self._label_names

    @property
    def _executor(self) -> Executor:
        """The executor of the present shapes."""
        if self._bound is None:
            raise AssertionError("the module is not bound; call bind before")
        return self._bound

    def bind(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None,
             for_training: bool = True, inputs_need_grad: bool = False, force_rebind: bool = False,
             shared_module: Module | None = None, grad_req: Any = "write") -> None:
        """Prepare for inputs of these shapes, (name, shape) or DataDesc each.

        `shared_module` lends its parameters and memory. `force_rebind` begins anew and keeps the parameters'
        values. A batch of another size later is a matter of `forward` itself.
        """
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad and not for_training:
            raise AssertionError("gradients of the inputs need a module that is bound for training")
        kept = None
        if self.binded and self.params_initialized:
            self._loaded = self.get_params()
        if self.binded and self.optimizer_initialized:
            kept = self._states_bytes()
        self._reset_bind()
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self._describe(data_shapes, label_shapes)
        self._described = self._data_shapes, self._label_shapes
        descs = [desc for desc in (*self._data_shapes, *self._label_shapes) if desc.name in self._inputs]
        self._bound = Executor(self._symbol, self._context, {desc.name: desc.shape for desc in descs},
                               dtypes={desc.name: desc.dtype for desc in descs}, inputs=self._inputs,
                               grad_req=self._requests(grad_req), **self._options,
                               shared=shared_module._executor if shared_module is not None else None)
        self._executors[self._shape_key()] = self._bound
        self.binded = True
        self._take_over(shared_module, kept)

    def _take_over(self, shared_module: Module | None, states: bytes | None) -> None:
        """Put values from a file, or from before, into the executor, or note that a lender has them there."""
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            self.set_params(*loaded)
        elif shared_module is not None:
            held = {*shared_module._param_names, *shared_module._aux_names, *shared_module._label_names}
            self.params_initialized = (shared_module.params_initialized
                                       and held.issuperset((*self._param_names, *self._aux_names)))
        self._waiting_states = None if self.for_training else states
        if states is not None and self.for_training:
            self._attach_optimizer()
            module_support.restore_states(self._executor, self._optimizer, self._updater, states)

    def _describe(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None) -> None:
        self._data_shapes = describe_inputs(self._data_names, data_shapes, "data")
        self._label_shapes = describe_inputs(self._label_names, label_shapes, "label")

    def _requests(self, grad_req: Any) -> dict[str, str]:
        """Requests for parameters that are not fixed, and for the data when their gradients are asked for."""
        wanted = set(self._param_names) - self._fixed if self.for_training else set()
        if self.inputs_need_grad:
            wanted.update(self._data_names)
        return module_support.requests_for(self._symbol.list_arguments(), grad_req, wanted)

    def _shape_key(self) -> tuple:
        return tuple((desc.name, desc.shape) for desc in (*self._data_shapes, *self._label_shapes))

    def reshape(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None = None) -> None:
        """Prepare for other input shapes over the same parameters and memory."""
        self._require()
        before = self._data_shapes, self._label_shapes
        self._describe(data_shapes, label_shapes)
        key = self._shape_key()
        executor = self._executors.pop(key, None)
        if executor is None:
            try:
                shapes = {name: shape for name, shape in key if name in self._inputs}
                executor = self._executor.reshape(allow_up_sizing=True, **shapes)
            except BaseException:
                self._data_shapes, self._label_shapes = before
                raise
        self._executors[key] = self._bound = executor
        if len(self._executors) > MAX_SHAPES:
            self._executors.popitem(last=False)

    # -- parameters ------------------------------------------------------------------------------------------
    def get_params(self) -> tuple[Params, Params]:
        """Copies of (arguments, auxiliary states) in host memory; a loaded module has them before bind."""
        if self._loaded is not None:
            arguments, states = self._loaded
            return module_support.copies(arguments), module_support.copies(states)
        self._require(params=True)
        arguments, states = self._executor.arg_dict, self._executor.aux_dict
        return module_support.host_copies(arguments), module_support.host_copies(states)

    def init_params(self, initializer: Any = DEFAULT_INITIALIZER, arg_params: Params | None = None,
                    aux_params: Params | None = None, allow_missing: bool = False, force_init: bool = False,
                    allow_extra: bool = False) -> None:
        """Take values from the dicts where they are given, else ask the initializer, in the order of names.

        One MXNetError lists all values that are missing, unknown, or of a wrong shape, before any is set; unknown ones
        beside all that are needed are only warned of. A dict that is None leaves everything to the initializer.
        """
        if self.params_initialized and not force_init:
            warnings.warn("Parameters already initialized and force_init=False. init_params call ignored.",
                          stacklevel=2)
            return
        self._require()
        parts = [(self._executor.arg_dict, arg_params), (self._executor.aux_dict, aux_params)]
        checked = [part for part in parts if part[1] is not None or initializer is None]
        module_support.check_values(checked, allow_missing, allow_extra)
        module_support.set_values(parts, initializer, self._symbol.attr_dict())
        self.params_initialized = True
        self._executor.group.breakage.mended(PARAMETERS)

    # -- optimizer -------------------------------------------------------------------------------------------
    def init_optimizer(self, kvstore: Any = "local", optimizer: Any = "sgd",
                       optimizer_params: Any = SGD_DEFAULTS, force_init: bool = False) -> None:
        """Choose the optimizer: by name with its parameters, or a ready one.

        By name, `rescale_grad` is 1 / batch size unless it is given, so that gradients summed over the batch
        become means.
        """
        self._require(params=True)
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        kvstore_module.check(kvstore)
        self._optimizer = module_support.make_optimizer(
            optimizer, dict(optimizer_params), self._symbol, self._param_names,
            module_support.batch_size_of(self._data_shapes[0]), self._executor.graph)
        self._updater = None if self._optimizer.has_graph_form else Updater(self._optimizer)
        if self._updater is None:
            module_support.check_dtypes(self._executor, self._param_names)
        self._attach_optimizer()
        self._executor.clear_states()
        self.optimizer_initialized = True
        if self._states_file is not None:
            self.load_optimizer_states(self._states_file)
            self._states_file = None

    def _attach_optimizer(self) -> None:
        """Hand an optimizer in graph form to the executors."""
        for executor in self._executors.values():
            executor.set_updater(self._optimizer if self._updater is None else None)

    def borrow_optimizer(self, shared_module: Module) -> None:
        """Use the optimizer, states and update counts of the module that was `shared_module` in bind."""
        if not shared_module.optimizer_initialized:
            raise AssertionError("the lending module has no optimizer; call its init_optimizer before")
        if self._executor.group is not shared_module._executor.group:
            raise MXNetError("an optimizer's states lie beside the parameters, so only a module that shares "
                             "those can borrow it; bind with shared_module= the lender")
        self._optimizer, self._updater = shared_module._optimizer, shared_module._updater
        self._attach_optimizer()
        self.optimizer_initialized = True

    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states, its update counts and the random step, in minigraph's own format."""
        self._require(optimizer=True)
        write_atomically(fname, self._states_bytes())

    def _states_bytes(self) -> bytes:
        """The bytes of a states file; those from before, while the module is bound for evaluation."""
        return self._waiting_states or module_support.states_bytes(self._executor, self._optimizer, self._updater)

    def load_optimizer_states(self, fname: str) -> None:
        """Go on from a file of `save_optimizer_states`; MXNetError when it does not fit this optimizer."""
        self._require(optimizer=True)
        module_support.restore_states_file(self._executor, self._optimizer, self._updater, fname)

    def __reduce__(self) -> tuple:
        raise TypeError("a module holds memory of its device, so it cannot be copied or pickled; save_checkpoint "
                        "writes it, and Module.load reads it")

    # -- running ---------------------------------------------------------------------------------------------
    def _prepare_inputs(self, batch: DataBatch) -> dict[str, Any]:
        """The batch's arrays by input name, once the executor of their shapes is the present one."""
        data = module_support.data_of(batch, self._data_names, self._data_shapes)
        labels = module_support.labels_of(batch, self._label_names, self._label_shapes or self._described[1])
        self._label_order = list(labels) or self._label_order
        arrays = {**data, **labels}
        shapes = {desc.name: desc.shape for desc in (*self._data_shapes, *self._label_shapes)}
        if any(shapes.get(name, array.shape) != tuple(array.shape) for name, array in arrays.items()):
            data_descs, label_descs = self._described
            self.reshape(module_support.with_shapes(data_descs, data),
                         module_support.with_shapes(label_descs, labels))
        return {name: array for name, array in {**arrays, **self._states.feeds()}.items() if name in self._inputs}

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Compute the outputs, in training form if `is_train`, or by default if bound for training.

        A batch of other shapes than the present ones is prepared for first, and kept for the next time.
        """
        self._require(params=True)
        feeds = self._prepare_inputs(data_batch)
        self._executor.forward(self.for_training if is_train is None else is_train, **feeds)

    def backward(self, out_grads: Any = None) -> None:
        """Compute gradients from the forward pass just before; `out_grads` for outputs that are no losses."""
        self._require(params=True, training=True)
        self._executor.backward(out_grads)

    def update(self) -> None:
        """Update the parameters by the gradients that backward left."""
        self._require(params=True, optimizer=True)
        if self._updater is None:
            self._executor.update(self._optimizer.control)
            return
        module_support.update_each(self._executor, self._param_names, self._updater)

    def training_step(self) -> Callable[[DataBatch], None]:
        """One run of the program `step`; apart, and saying so once, where gradients must be seen."""
        self._require(params=True, optimizer=True, training=True)
        reason = module_support.reason_for_gradients(self, Module, self._executor, self._monitored, self._optimizer)
        if reason is None:
            return self._step
        if not self._told:
            self._told = True
            self.logger.info("fit runs forward, backward and update apart and keeps all gradients, since %s",
                             reason)
        return super().training_step()

    def _step(self, batch: DataBatch) -> None:
        feeds = self._prepare_inputs(batch)
        self._executor.step(self._optimizer.control, **feeds)

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Handles to the outputs of the last batch, valid until something else runs.

        Without `merge_multi_context` each output is a list with the part of every device, of which there is one.
        """
        self._require(params=True)
        return module_support.by_device(self._executor.outputs, merge_multi_context)

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Gradients of the data, None where grad_req asks for none; the module must be bound with inputs_need_grad.

        Without `merge_multi_context` each is a list with the part of every device, of which there is one.
        """
        self._require(params=True)
        if not self.inputs_need_grad:
            raise AssertionError("no gradients of the inputs were asked for; bind with inputs_need_grad=True")
        gradients = self._executor.grad_dict
        return module_support.by_device([gradients.get(desc.name) for desc in self._data_shapes], merge_multi_context)

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Copies of the states `state_names`; each in a list of one without `merge_multi_context`."""
        self._require(params=True)
        return [state if merge_multi_context else [state] for state in self._states.arrays()]

    def set_states(self, states: Sequence[Any] | None = None, value: float | None = None) -> None:
        """Set the states for the batches that follow: to copies of arrays, such as outputs, or all to one number."""
        self._require(params=True)
        self._states.set(states, value)

    def update_metric(self, eval_metric: EvalMetric, labels: Sequence[NDArray], pre_sliced: bool = False,
                      pad: int = 0) -> None:
        """Take the last batch, less its last `pad` rows, into a metric: each label with the output that the symbol has
        it for, whatever the order of either (see `minigraph.heads`).

        With `pre_sliced` there is a list of labels for every device, of which there is one.
        """
        labels = module_support.labels_of_device(labels) if pre_sliced else labels
        rows = module_support.batch_size_of(self._data_shapes[0])
        named = {name: real_rows(label, rows, pad) for name, label in zip(self._label_order, labels, strict=False)}
        heads.update_metric(eval_metric, named, [real_rows(output, rows, pad) for output in self.get_outputs()],
                            self._heads)

    def install_monitor(self, mon: Any) -> None:
        """Have `mon.install(executor)` called, and keep gradients in view for it."""
        self._require()
        mon.install(self._executor)
        self._monitored = True


def __getattr__(name: str) -> Any:
    """BucketingModule, which is built on Module."""
    return module_support.elsewhere(__name__, name)

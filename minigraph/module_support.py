"""What a Module checks and makes when it is prepared."""
from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base import MXNetError
from .binding import normalise_requests
from .breakage import STATES
from .context import Context, cpu
from .executor import Executor
from .graph import Graph
from .initializer import InitDesc
from .io_base import DataDesc
from .ndarray import HostStorage, NDArray
from .optimizer import Optimizer, Updater, create, fill_states

Parts = Sequence[tuple[Mapping[str, NDArray], Mapping[str, Any] | None]]
"""Pairs of (parameters of one kind, values given for them or None)."""

PARAMETER_ENDINGS = ("_weight", "_bias", "_gamma", "_beta")


def one_context(context: Context | Sequence[Context] | None) -> Context:
    """The one context asked for, cpu() by default; MXNetError for several."""
    if context is None:
        return cpu()
    contexts: list[Any] = list(context) if isinstance(context, (list, tuple)) else [context]
    wrong = [each for each in contexts if not isinstance(each, Context)]
    if wrong:
        raise MXNetError(f"context={context!r} is no context; give mx.cpu() or mx.gpu(0)")
    if len(contexts) != 1:
        raise MXNetError(f"a module runs on one device, got the contexts {contexts}; training on several is "
                         f"not supported: give one, such as mx.cpu()")
    return contexts[0]


def refuse_unsupported(**given: Any) -> None:
    """MXNetError for an argument of MXNet's Module that was given, and means nothing here."""
    for name, value in given.items():
        if value:
            raise MXNetError(f"Module(..., {name}=) is not supported: a module runs on one device; leave it out")


_ELSEWHERE = {"BucketingModule": "bucketing", "SequentialModule": "sequential_module", "PythonModule": "python_module",
              "PythonLossModule": "python_module"}
"""What MXNet has in `mx.mod`, and the modules here that have it."""


def check_work_load(work_load_list: Any) -> None:
    """MXNetError for shares of the batch other than those of one device."""
    if work_load_list is not None and len(work_load_list) != 1:
        raise MXNetError(f"work_load_list={work_load_list!r} has the shares of {len(work_load_list)} devices, and a "
                         f"module runs on one; leave it out")


def refuse_sparse_rows(sparse_row_id_fn: Any) -> None:
    """MXNetError for a function that chooses the rows of sparse parameters."""
    if sparse_row_id_fn is not None:
        raise MXNetError("sparse_row_id_fn= chooses rows of sparse parameters, and all parameters are dense here; "
                         "leave it out")


def by_device(arrays: list[Any], merged: bool) -> list[Any]:
    """The arrays, or a list for each with its part on every device: the one that there is has all."""
    return arrays if merged else [[array] for array in arrays]


def labels_of_device(labels: Any) -> Sequence[Any]:
    """The labels of the one device, from a list of them for every device; MXNetError when it is none."""
    if len(labels) != 1 or not isinstance(labels[0], (list, tuple)):
        raise MXNetError(f"update_metric(pre_sliced=True) takes a list of labels for each device, and there is one "
                         f"device: give [labels], got {len(labels)} of {type(labels[0]).__name__ if labels else 'any'}")
    return labels[0]


def elsewhere(module: str, name: str) -> Any:
    """What `_ELSEWHERE` tells of; AttributeError, which names `module`, for anything else."""
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __package__), name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def check_symbol(symbol: Any) -> None:
    """MXNetError for what is no symbol."""
    if not hasattr(symbol, "list_arguments"):
        raise MXNetError(f"symbol={symbol!r} is no symbol; give one such as mx.sym.SoftmaxOutput(...), or "
                         f"mx.sym.load(file)")


def name_list(what: str, names: Sequence[str] | None) -> list[str]:
    """The names as a list, none for None; MXNetError for what is no list of names."""
    if names is None:
        return []
    if isinstance(names, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in names):
        return list(names)
    raise MXNetError(f"{what}={names!r} must be a list of names" + (f", such as [{names!r}]" if isinstance(names, str)
                                                                    else ""))


def check_names(symbol: Any, names: Sequence[str], what: str, must_exist: bool) -> None:
    """ValueError, or a warning, for input names that are no arguments of the symbol."""
    arguments = symbol.list_arguments()
    for name in names:
        if name in arguments:
            continue
        wants_parameters = what == "fixed_param"
        candidates = [each for each in arguments if each.endswith(PARAMETER_ENDINGS) == wants_parameters]
        message = (f"You created Module with Module(..., {what}_names={list(names)}) but input with name "
                   f"{name!r} is not found in symbol.list_arguments(). Did you mean one of:\n\t"
                   + "\n\t".join(candidates))
        if must_exist:
            raise ValueError(message)
        warnings.warn(message, stacklevel=3)


class UnknownParameters(MXNetError, ValueError):
    """Values for parameters that there are not; old scripts catch a ValueError."""


def check_values(parts: Parts, allow_missing: bool, allow_extra: bool) -> None:
    """One MXNetError with all that is wrong with the values, if anything is; a ValueError too where only unknown
    values are.

    Extra ones that are not allowed are a UserWarning where all of the symbol's are there and must be: of a larger
    network's parameters a part of it takes its own.
    """
    missing = [name for handles, given in parts for name in handles if name not in (given or {})]
    extra = [name for handles, given in parts for name in given or {} if name not in handles]
    problems = [problem for handles, given in parts for problem in _misfits(handles, given or {})]
    if missing and not allow_missing:
        problems.append(f"{', '.join(missing)} {_is(missing)} not presented (with allow_missing=True the "
                        f"initializer is asked)")
    unknown = f"{', '.join(extra)} {_is(extra)} not in the symbol (allow_extra=True lets it pass)"
    refuses_extra = extra and not allow_extra and (missing or allow_missing)
    if refuses_extra and not problems:
        raise UnknownParameters(f"the parameters do not fit: {unknown}")
    if problems:
        problems += [unknown] if refuses_extra else []
        raise MXNetError(f"the parameters do not fit: {'; '.join(problems)}")
    if extra and not allow_extra:
        warnings.warn(f"parameters were given that nothing takes: {unknown}", stacklevel=4)


def _misfits(handles: Mapping[str, NDArray], given: Mapping[str, Any]) -> list[str]:
    problems = []
    for name, handle in handles.items():
        if name in given and np.shape(given[name]) != handle.shape:
            problems.append(f"{name} has shape {np.shape(given[name])}, the symbol needs {handle.shape}")
    return problems


def set_values(parts: Parts, initializer: Any, attrs: Mapping[str, Mapping[str, str]]) -> None:
    """Set parameters to the values given for them, else by the initializer, in the order of names."""
    if initializer is not None and not callable(initializer):
        raise MXNetError(f"initializer={initializer!r} is no initializer; give one such as mx.init.Xavier(), or "
                         f"mx.init.create(name)")
    for handles, given in parts:
        for name, handle in sorted(handles.items()):
            if given is not None and name in given:
                handle[:] = given[name]
            elif initializer is not None:
                initializer(InitDesc(name, attrs.get(name)), handle)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def batch_size_of(desc: DataDesc) -> int:
    """The size along the batch axis of an input's layout."""
    return desc.shape[max(DataDesc.get_batch_axis(desc.layout), 0)]


def _in_order(names: Sequence[str], *descriptions: Sequence[Any] | None) -> list[str]:
    """The names in the order of the first descriptions that are of all of them, else as they are."""
    for descs in descriptions:
        given = [desc[0] for desc in descs or ()]
        if sorted(given) == sorted(names):
            return given
    return list(names)


def data_of(batch: Any, names: Sequence[str], descs: Sequence[DataDesc]) -> dict[str, Any]:
    """The data arrays of a batch by name; MXNetError when they are not as many as the module's names.

    They come in the order of the batch's own descriptions or else of those that the module was bound with, which need
    not be that of the names: an iterator over a dict sorts them.
    """
    arrays = getattr(batch, "data", None)
    if not isinstance(arrays, (list, tuple)) or not all(hasattr(array, "shape") for array in arrays):
        raise MXNetError(f"a module takes a DataBatch with a list of NDArrays as data, got {type(batch).__name__}; "
                         f"write mx.io.DataBatch([data], [label])")
    if len(arrays) != len(names):
        raise MXNetError(f"the batch has {len(arrays)} data arrays, and the module's data_names are {list(names)}; "
                         f"give one array for each")
    return dict(zip(_in_order(names, getattr(batch, "provide_data", None), descs), arrays, strict=True))


def labels_of(batch: Any, names: Sequence[str], descs: Sequence[DataDesc]) -> dict[str, Any]:
    """The label arrays of a batch by name, in an order as of `data_of`; none where it has no attribute `label`."""
    order = _in_order(names, getattr(batch, "provide_label", None), descs)
    return dict(zip(order, getattr(batch, "label", None) or (), strict=False))


def with_shapes(descs: Sequence[DataDesc], arrays: Mapping[str, NDArray]) -> list[DataDesc]:
    """Descriptions of the arrays in their order and with their shapes, as far as there were some of these inputs."""
    known = {desc.name: desc for desc in descs}
    return [DataDesc(name, array.shape, known[name].dtype, known[name].layout)
            for name, array in arrays.items() if name in known]


def requests_for(names: Sequence[str], grad_req: Any, wanted: set[str]) -> dict[str, str]:
    """The request of each argument: as `grad_req` says for those wanted, null for the others.

    Those wanted that a dict does not name are written, as in MXNet's Module; its executors take them for null.
    """
    if isinstance(grad_req, Mapping):
        grad_req = {**dict.fromkeys(names, "write"), **grad_req}
    asked = normalise_requests(grad_req, names)
    return {name: asked[name] if name in wanted else "null" for name in names}


def make_optimizer(chosen: Any, params: Mapping[str, Any], symbol: Any, names: Sequence[str],
                   batch_size: int, graph: Graph) -> Optimizer:
    """The optimizer of that name, with rescale_grad = 1 / batch size unless given, or the ready one itself.

    Warns when a ready one does not divide by the batch size, and when the losses of `graph`, the symbol's with all
    shapes known, would divide gradients once more, or not at all where they are asked to.
    """
    by_number = dict(enumerate(names))
    if isinstance(chosen, str):
        made = create(chosen, sym=symbol, param_idx2name=by_number,
                                **{"rescale_grad": 1.0 / batch_size, **params})
    elif isinstance(chosen, Optimizer):
        made = chosen
        made.idx2name = made.idx2name or by_number
    else:
        raise AssertionError(f"optimizer must be a name or an Optimizer, got {type(chosen).__name__}")
    averaging, summing, unheard = _losses(graph)
    if averaging and batch_size > 1 and made.rescale_grad == 1.0 / batch_size:
        remedy = "" if summing else "pass rescale_grad=1.0 in optimizer_params, or "
        warnings.warn(f"{', '.join(averaging)} divides its gradient by the number of samples, and "
                      f"rescale_grad = 1/{batch_size} does so again; {remedy}pass normalization='null' to the loss",
                      stacklevel=3)
    elif unheard and batch_size > 1 and made.rescale_grad == 1.0:
        warnings.warn(f"{', '.join(unheard)} has labels of its data's shape, which are probabilities, and divides "
                      f"their gradient by nothing, whatever its normalization; with rescale_grad = 1 steps are "
                      f"{batch_size} times as large as with means; leave rescale_grad out, or give 1/{batch_size}",
                      stacklevel=3)
    elif not averaging and made.rescale_grad != 1.0 / batch_size and made is chosen:
        warnings.warn(f"Optimizer created manually outside Module but rescale_grad is not normalized to "
                      f"1.0/batch_size/num_workers ({made.rescale_grad} vs. {1.0 / batch_size}). Is this "
                      f"intended?", stacklevel=3)
    return made


def check_dtypes(executor: Executor, names: Sequence[str]) -> None:
    """MXNetError for a parameter that an optimizer in a plan cannot update, with the inputs it has its dtype from."""
    given = {input_name: array.dtype for input_name, array in executor.input_types.items()}
    for name in names:
        dtype = np.dtype(executor.arg_dict[name].dtype)
        if executor.requests[name] == "null" or dtype == np.float32:
            continue
        sources = [source for source, kind in given.items() if kind == dtype]
        cause = f", as {' and '.join(sources)} {_is(sources)}" if sources else ""
        remedy = f"give {sources[0]} in float32, as by .astype('float32')," if sources else "declare it in float32,"
        raise MXNetError(f"{name} is {dtype}{cause}, and parameters are updated in float32; {remedy} or Cast it in the "
                         f"symbol: mx.sym.Cast({sources[0] if sources else name}, dtype='float32')")


def _losses(graph: Graph) -> tuple[list[str], list[str], list[str]]:
    """The names of losses that divide their gradients by the number of samples, of those that do not, and of those
    among these that are asked to."""
    averaging, summing, unheard = [], [], []
    for node in graph:
        if node.op is None:
            continue
        if node.op.averages(node.params, [graph.type_of(e).shape for e in node.inputs]):
            averaging.append(node.name)
        elif node.op.is_loss(node.params):
            summing.append(node.name)
            if getattr(node.params, "normalization", "null") != "null":
                unheard.append(node.name)
    return averaging, summing, unheard


def own_methods(module: Any, base: type) -> list[str]:
    """Those of forward, backward, forward_backward and update that a class below `base`, or the object, has itself."""
    names = "forward", "backward", "forward_backward", "update"
    return [name for name in names
            if name in vars(module) or getattr(type(module), name) is not getattr(base, name)]


def reason_for_gradients(module: Any, base: type, executor: Executor, monitored: bool,
                         optimizer: Optimizer) -> str | None:
    """Why a module's training must keep all gradients in view, and so cannot run whole steps; None if nothing asks."""
    own = own_methods(module, base)
    if own:
        return f"{type(module).__name__} has {' and '.join(own)} of its own"
    if module.inputs_need_grad:
        return "gradients of the inputs are asked for"
    if "add" in executor.requests.values():
        return "grad_req is 'add'"
    if monitored:
        return "a monitor is installed"
    return None if optimizer.has_graph_form else f"the optimizer {type(optimizer).__name__} has no graph form"


def copies(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Copies by name, of NDArrays and NumPy arrays as they are."""
    return {name: array.copy() for name, array in arrays.items()}


def host_copies(arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Copies in host memory, by name."""
    return {name: NDArray(HostStorage(array.asnumpy(), cpu())) for name, array in arrays.items()}


def states_file(prefix: str, epoch: int) -> str:
    """The name of a checkpoint's file of optimizer states."""
    return f"{prefix}-{epoch:04d}.states"


def states_bytes(executor: Executor, optimizer: Optimizer, updater: Updater | None) -> bytes:
    """A file's bytes with the optimizer's states, which lie in the executor or in the updater."""
    if updater is not None:
        arrays: Mapping[Any, Sequence[Any]] = updater.get_arrays()
    else:
        arrays = {name: [state.asnumpy() for state in states] for name, states in executor.states.items()}
    return optimizer.export_states(arrays, executor.group.random_step)


def restore_states(executor: Executor, optimizer: Optimizer, updater: Updater | None, data: bytes) -> None:
    """Go on from such bytes; MXNetError names parameters that only one side has."""
    if updater is not None:
        loaded = updater.set_states(data)
    else:
        loaded = optimizer.import_states(data)
        _fill(executor.states, loaded.arrays)
    executor.group.breakage.mended(STATES)
    if loaded.random_step is not None:
        executor.group.resume_at(loaded.random_step)


def restore_states_file(executor: Executor, optimizer: Optimizer, updater: Updater | None, fname: str) -> None:
    """Go on from a file of such bytes, which errors name."""
    with open(fname, "rb") as file:
        data = file.read()
    try:
        restore_states(executor, optimizer, updater, data)
    except MXNetError as error:
        raise MXNetError(f"{fname}: {error}") from error


def update_each(executor: Executor, names: Sequence[str], updater: Updater) -> None:
    """Update the parameters of these names, which the updater knows by number, by their visible gradients."""
    arguments, gradients = executor.arg_dict, executor.grad_dict
    for index, name in enumerate(names):
        gradient = gradients[name]
        if gradient is not None:
            updater(index, gradient, arguments[name])


def _fill(states: Mapping[str, Sequence[NDArray]], loaded: Mapping[Any, Sequence[Any]]) -> None:
    missing = sorted(set(states) - set(loaded))
    extra = sorted(map(str, set(loaded) - set(states)))
    if missing or extra:
        raise MXNetError("the saved optimizer states do not fit: "
                         + (f"{', '.join(missing)} {_is(missing)} missing; " if missing else "")
                         + (f"{', '.join(extra)} {_is(extra)} not trained here; " if extra else "")
                         + "they belong to another network or other fixed parameters")
    for name, places in states.items():
        fill_states(name, places, loaded[name])

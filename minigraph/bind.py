"""Symbol.simple_bind and Symbol.bind: executors from shapes, or from arrays that the user has."""
from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base import MXNetError, Shape
from .binding import Group, PersistentStorage, normalise_requests
from .context import Context
from .executor import Executor
from .ndarray import NDArray


def simple_bind(symbol: Any, ctx: Context | None, grad_req: Any, type_dict: Mapping[str, Any] | None,
                shapes: Mapping[str, Shape], shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with arrays of the executor's own, all zero; unknown shapes are inferred from `shapes`."""
    return Executor(symbol, ctx, shapes, grad_req=grad_req, dtypes=type_dict, shared=shared_exec, **options)


def bind(symbol: Any, ctx: Context | None, args: Any, args_grad: Any, grad_req: Any, aux_states: Any,
         shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with the user's arrays: NDArrays become handles to the executor's memory with their contents kept.

    They were handles to another executor's memory if they were bound before; a UserWarning names those.
    """
    names, auxiliary = symbol.list_arguments(), symbol.list_auxiliary_states()
    arguments = _by_name(args, names, "args", required=True)
    gradients = _by_name(args_grad, names, "args_grad", required=False)
    states = _by_name(aux_states, auxiliary, "aux_states", required=True)
    _check_apart([*arguments.items(), *((f"the gradient of {name}", value) for name, value in gradients.items()),
                  *states.items()])
    requests = {name: request if gradients.get(name) is not None else "null"
                for name, request in normalise_requests(grad_req, names).items()}
    given = {**arguments, **states}
    executor = Executor(symbol, ctx, {name: np.shape(value) for name, value in given.items()}, grad_req=requests,
                        dtypes={name: value.dtype for name, value in given.items()}, shared=shared_exec, **options)
    places = [(name, given[name], handle) for name, handle in {**executor.arg_dict, **executor.aux_dict}.items()]
    places += [(f"the gradient of {name}", gradients[name], handle)
               for name, handle in executor.grad_dict.items() if handle is not None]
    moved = [name for name, value, handle in places if _adopt(value, handle, name, executor.group)]
    if moved:
        warnings.warn(f"bind: {', '.join(moved)} lay in the memory of another executor and now lie in this one's: "
                      f"the two do not share them, as they would in MXNet; give shared_exec= the other executor to "
                      f"share, or copies to keep them apart", stacklevel=3)
    return executor


def _by_name(values: Any, names: Sequence[str], what: str, required: bool) -> dict[str, Any]:
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        if len(values) != len(names):
            raise MXNetError(f"{what} has {len(values)} arrays for {len(names)} names ({', '.join(names)})")
        values = dict(zip(names, values, strict=True))
    unknown = [name for name in values if name not in names]
    missing = [name for name in names if required and values.get(name) is None]
    if unknown or missing:
        raise MXNetError(f"{what}: " + (f"{', '.join(unknown)} unknown; " if unknown else "")
                         + (f"{', '.join(missing)} missing; " if missing else "") + f"expected {', '.join(names)}")
    wrong = [name for name, value in values.items() if value is not None and not hasattr(value, "dtype")]
    if wrong:
        raise MXNetError(f"{what}: {wrong[0]} must be an NDArray or a numpy array, got "
                         f"{type(values[wrong[0]]).__name__}")
    return dict(values)


def _check_apart(given: Sequence[tuple[str, Any]]) -> None:
    """MXNetError when one NDArray is given twice: it can be a handle to one place only."""
    seen: dict[int, str] = {}
    for name, value in given:
        if isinstance(value, NDArray) and seen.setdefault(id(value), name) != name:
            raise MXNetError(f"bind: {name} and {seen[id(value)]} are given one NDArray, and each has bytes of its "
                             f"own; give a copy() to one of them, or use one Variable for both")


def _adopt(value: Any, handle: NDArray, name: str, group: Group) -> bool:
    """Copy a user's array into the arena of a group and, when it is an NDArray, make it a handle to that place; whether
    it was one to the memory of another group."""
    if np.shape(value) != handle.shape:
        raise MXNetError(f"{name} has shape {np.shape(value)}, the symbol needs {handle.shape}")
    handle[:] = value
    if not isinstance(value, NDArray):
        return False
    held, value.storage = value.storage, handle.storage
    return isinstance(held, PersistentStorage) and held.group is not group

"""Symbol.simple_bind and Symbol.bind: executors from shapes, or from arrays that the user has."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base import MXNetError, Shape
from .binding import normalise_requests
from .context import Context
from .executor import Executor
from .ndarray import NDArray


def simple_bind(symbol: Any, ctx: Context | None, grad_req: Any, type_dict: Mapping[str, Any] | None,
                shapes: Mapping[str, Shape], shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with arrays of the executor's own, all zero; unknown shapes are inferred from `shapes`."""
    return Executor(symbol, ctx, shapes, grad_req=grad_req, dtypes=type_dict, shared=shared_exec, **options)


def bind(symbol: Any, ctx: Context | None, args: Any, args_grad: Any, grad_req: Any, aux_states: Any,
         shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with the user's arrays: NDArrays become handles to the executor's memory with their contents kept."""
    names, auxiliary = symbol.list_arguments(), symbol.list_auxiliary_states()
    arguments = _by_name(args, names, "args", required=True)
    gradients = _by_name(args_grad, names, "args_grad", required=False)
    states = _by_name(aux_states, auxiliary, "aux_states", required=True)
    requests = {name: request if gradients.get(name) is not None else "null"
                for name, request in normalise_requests(grad_req, names).items()}
    given = {**arguments, **states}
    executor = Executor(symbol, ctx, {name: np.shape(value) for name, value in given.items()}, grad_req=requests,
                        dtypes={name: value.dtype for name, value in given.items()}, shared=shared_exec, **options)
    for name, value in {**executor.arg_dict, **executor.aux_dict}.items():
        _adopt(given[name], value, name)
    for name, handle in executor.grad_dict.items():
        if handle is not None:
            _adopt(gradients[name], handle, f"the gradient of {name}")
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
    return dict(values)


def _adopt(value: Any, handle: NDArray, name: str) -> None:
    """Copy a user's array into the arena and, when it is an NDArray, make it a handle to that place."""
    if np.shape(value) != handle.shape:
        raise MXNetError(f"{name} has shape {np.shape(value)}, the symbol needs {handle.shape}")
    handle[:] = value
    if isinstance(value, NDArray):
        value.storage = handle.storage

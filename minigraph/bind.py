"""Symbol.simple_bind and Symbol.bind: executors from shapes, or from arrays that the user has."""
from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base import MXNetError, Shape
from .binding import PersistentStorage, normalise_requests
from .context import Context
from .executor import Executor
from .ndarray import NDArray
from .storage import ReshapedStorage, Storage, View, locate


def simple_bind(symbol: Any, ctx: Context | None, grad_req: Any, type_dict: Mapping[str, Any] | None,
                shapes: Mapping[str, Shape], shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with arrays of the executor's own, all zero; unknown shapes are inferred from `shapes`."""
    return Executor(symbol, ctx, shapes, grad_req=grad_req, dtypes=type_dict, shared=shared_exec, **options)


def bind(symbol: Any, ctx: Context | None, args: Any, args_grad: Any, grad_req: Any, aux_states: Any,
         shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with the user's arrays: NDArrays lie in the executor's memory from now on, with their contents kept, and
    go on sharing it with all that are views of them, or that they are views of.

    They lay in another executor's memory if they were bound before; a UserWarning names those. MXNetError where arrays
    cannot share memory any more: views that overlap, or views of another executor's memory.
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
    for name, value, _ in places:
        _check_movable(value, name)
    moved = [name for name, value, handle in places if _adopt(value, handle, name)]
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
    """MXNetError when two names are given memory that they would share: each has bytes of its own."""
    seen: list[tuple[str, NDArray, np.ndarray | None]] = []
    for name, value in given:
        if not isinstance(value, NDArray):
            continue
        found = locate(value.storage)
        view = None if found is None else found[1]
        for other, held, whole in seen:
            if value is held or view is not None and whole is not None and _overlap(view, whole):
                what = "one NDArray" if value is held else "NDArrays that share memory"
                raise MXNetError(f"bind: {name} and {other} are given {what}, and each has bytes of its own; give a "
                                 f"copy() to one of them, or use one Variable for both")
        seen.append((name, value, view))


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two views have elements in common; when that is too hard to tell, whether they may have."""
    shares: Any = np.shares_memory  # NumPy's own types know of no limit but none
    try:
        return bool(shares(a, b, max_work=10**6))
    except RuntimeError:  # TooHardError, which NumPy's versions have in different places
        return np.may_share_memory(a, b)


def _place_of(storage: Storage) -> PersistentStorage | None:
    """The place of an executor's memory that a storage is, in whatever shape."""
    while isinstance(storage, ReshapedStorage):
        storage = storage.parent
    return storage if isinstance(storage, PersistentStorage) else None


def _in_use(storage: Storage) -> bool:
    """Whether a storage lies in memory of executors that are still there."""
    place = _place_of(storage)
    return place is not None and len(place.group.users) > 0


def _check_movable(value: Any, name: str) -> None:
    """MXNetError when a view cannot share its memory with an executor, together with all that it is a view of."""
    if not isinstance(value, NDArray) or not isinstance(value.storage, View):
        return
    found = locate(value.storage)
    if found is None:
        raise MXNetError(f"bind: {name} is a view of another executor's memory, or one whose elements are copied since "
                         f"they do not lie in order; an executor cannot share it: give a copy()")
    root, view = found
    if root.whole is not None and view.size != root.array.size and _in_use(root.whole):
        raise MXNetError(f"bind: {name} is a part of an array that lies in the memory of another executor as a whole; "
                         f"an executor cannot share it: give a copy()")
    for part, storage in root.parts:
        if not _same(part, view) and _overlap(part, view) and _in_use(storage):
            raise MXNetError(f"bind: {name} shares elements with a part that lies in the memory of another executor; "
                             f"give a copy(), or bind the same parts")


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two views show the same elements in the same order, in whatever shape."""
    in_order = a.flags.c_contiguous and b.flags.c_contiguous
    return (a.ctypes.data, a.size) == (b.ctypes.data, b.size) \
        and (in_order or (a.shape, a.strides) == (b.shape, b.strides))


def _adopt(value: Any, handle: NDArray, name: str) -> bool:
    """Copy a user's array into the place of a handle and, when it is an NDArray, have that be where it lies, for all
    that are views of it too; whether it lay elsewhere in the memory of executors that are still there."""
    if np.shape(value) != handle.shape:
        raise MXNetError(f"{name} has shape {np.shape(value)}, the symbol needs {handle.shape}")
    handle[:] = value
    if not isinstance(value, NDArray):
        return False
    found = locate(value.storage)
    if found is None:
        held: list[Storage] = [value.storage]
        value.storage = handle.storage
    else:
        root, view = found
        held = [storage for part, storage in root.parts if _overlap(part, view)]
        held += [root.whole] if root.whole is not None else []
        for storage in held:
            root.take_back(storage)
        found = locate(value.storage)
        assert found is not None
        root.move(found[1], handle.storage)
    return any(_in_use(storage) and not _is_place(storage, handle.storage) for storage in held)


def _is_place(storage: Storage, other: Storage) -> bool:
    """Whether two storages are one place of one group's memory."""
    here, there = _place_of(storage), _place_of(other)
    return (here is not None and there is not None and here.group is there.group and here.name == there.name)

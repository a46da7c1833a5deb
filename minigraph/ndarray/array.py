"""NDArray: the value type at the edges of a graph, under MXNet's name and interface.

An NDArray is a handle to a *storage*, which holds the value: host memory here, an executor's arena elsewhere.
Nothing is cached, so a handle that a caller keeps always shows the storage's present value. Operators on
NDArrays run in NumPy; networks are written as symbols.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from ..base import MXNetError, Shape, dtype_of
from ..context import Context
from ..ops.op import ShapeError
from ..ops.shape import ReshapeParams, check_size, reshaped
from ..storage import (
    HostStorage,
    PartStorage,
    ReshapedStorage,
    Storage,
    as_shape,
    is_basic,
    keep_one_axis,
)


def _plain_index(key: Any) -> Any:
    """`key` with NDArrays replaced by integer arrays, as MXNet reads them."""
    if isinstance(key, tuple):
        return tuple(_plain_index(part) for part in key)
    return key.asnumpy().astype(np.int64) if isinstance(key, NDArray) else key


def _slices(begin: Sequence[int | None], end: Sequence[int | None], step: Sequence[int | None]) -> tuple[slice, ...]:
    """The key of a part, of which `step` may be left out."""
    steps = step or (None,) * len(begin)
    return tuple(slice(*each) for each in zip(begin, end, steps, strict=True))


def _operand(value: Any) -> np.ndarray | None:
    """The other side of an operator as numpy, or None where NDArray does not know it."""
    if isinstance(value, NDArray):
        return value.storage.read()
    if isinstance(value, (bool, int, float, np.ndarray, np.number, np.bool_)):
        return np.asarray(value)
    return None


class NDArray:
    """A handle to a value of fixed shape, dtype and context."""

    __slots__ = ("storage", "__weakref__")
    __array_priority__ = 1000.0  # so that numpy_array + NDArray asks NDArray
    __hash__ = object.__hash__

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Shape."""
        return tuple(self.storage.shape)

    @property
    def dtype(self) -> type:
        """Element type as a numpy scalar type, such as numpy.float32."""
        return self.storage.dtype.type

    @property
    def stype(self) -> str:
        """The storage type: always "default", which is dense."""
        return "default"

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.storage.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.storage.shape)

    @property
    def context(self) -> Context:
        """Where the value lives."""
        return self.storage.context

    ctx = context

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an NDArray of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[NDArray]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"\n{self.storage.read()}\n<NDArray {'x'.join(map(str, self.shape))} @{self.context}>"

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError(f"the truth value of an NDArray of shape {self.shape} is ambiguous")
        return self.size == 1 and bool(self.asscalar())

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __reduce__(self) -> tuple:
        return _rebuild, (self.asnumpy(), self.context.device_type, self.context.device_id)

    # -- gradients are an executor's ---------------------------------------------------------------------

    @property
    def grad(self) -> None:
        """None: no gradient belongs to an array; an executor has them in `grad_dict`."""
        return None

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> NoReturn:
        """Not there: MXNetError."""
        raise MXNetError("attach_grad is not supported: operators on NDArrays record no tape; bind a symbol, whose "
                         "executor has the gradients in grad_dict")

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not there: MXNetError."""
        raise MXNetError("NDArray.backward is not supported: operators on NDArrays record no tape; bind a symbol, and "
                         "call its executor's backward")

    # -- values out ------------------------------------------------------------------------------------

    def asnumpy(self) -> np.ndarray:
        """A numpy copy of the value."""
        return np.array(self.storage.read(), order="C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an NDArray gives numpy a copy only: its storage may change or lie on a device")
        return np.array(self.storage.read(), dtype=dtype)

    def asscalar(self) -> Any:
        """The one element, as a numpy scalar; ValueError if there is not exactly one."""
        if self.size != 1:
            raise ValueError(f"only an array of one element is a scalar, this one has shape {self.shape}")
        return self.storage.read().reshape(()).copy()[()]

    def item(self, *args: int) -> Any:
        """One element as a Python number, by NumPy's rules: the only one when no position is given."""
        return self.storage.read().item(*args)

    def wait_to_read(self) -> None:
        """Return when the value is there; a storage whose device works asynchronously offers `wait()`."""
        wait = getattr(self.storage, "wait", None)
        if wait is not None:
            wait()

    # -- copies and views ------------------------------------------------------------------------------

    def astype(self, dtype: Any, copy: bool = True) -> NDArray:
        """The value in another dtype; the same handle if `copy` is false and nothing changes."""
        wanted = dtype_of(dtype)
        if not copy and wanted == self.storage.dtype:
            return self
        return NDArray(HostStorage(np.array(self.storage.read(), dtype=wanted, order="C"), self.context))

    def copy(self) -> NDArray:
        """A new array with the present value."""
        return NDArray(HostStorage(self.asnumpy(), self.context))

    def copyto(self, other: NDArray | Context) -> NDArray:
        """Write the value into `other` of the same shape, or copy it to a context; returns the target."""
        if isinstance(other, Context):
            return NDArray(HostStorage(self.asnumpy(), other))
        if other.shape != self.shape:
            raise ValueError(f"cannot copy an NDArray of shape {self.shape} to one of shape {other.shape}")
        other[:] = self
        return other

    def as_in_context(self, context: Context) -> NDArray:
        """The array itself if it lives there already, else a copy there."""
        return self if context == self.context else self.copyto(context)

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """A view in another shape, which writes through, in MXNet's code.

        0 keeps a dimension, -1 is inferred, -2 keeps all that are left, -3 merges two, -4 splits one into the two that
        follow it; with `reverse=True` dimensions are matched from the right. MXNetError when the sizes do not fit.
        """
        wanted = kwargs.pop("shape", shape[0] if len(shape) == 1 else shape)
        reverse = kwargs.pop("reverse", False)
        if kwargs:
            raise TypeError(f"reshape knows `shape` and `reverse`, got {sorted(kwargs)}")
        code = ReshapeParams(as_shape(wanted), reverse)
        try:
            new = reshaped(code, self.shape)
            check_size(self.shape, new)
        except ShapeError as error:
            raise MXNetError(f"cannot reshape {self.shape} into {code.shape}: {error}") from error
        return NDArray(ReshapedStorage(self.storage, new))

    def detach(self) -> NDArray:
        """Another handle to the same storage; there is no tape to detach from."""
        return NDArray(self.storage)

    as_nd_ndarray = detach

    def tostype(self, stype: str) -> NDArray:
        """A copy in the storage type "default", the only one; MXNetError for another."""
        if stype != "default":
            raise MXNetError(f"tostype({stype!r}) is not supported: arrays are dense; leave it out")
        return self.copy()

    @property
    def T(self) -> NDArray:
        """A copy with its axes in reverse order."""
        return NDArray(HostStorage(np.array(self.storage.read().T, order="C"), self.context))

    # -- parts -----------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NDArray:
        """Basic keys (integers, slices) give a view that writes through; arrays of indices give a copy."""
        key = _plain_index(key)
        if not is_basic(key):
            return NDArray(HostStorage(np.array(self.storage.read()[key]), self.context))
        key = keep_one_axis(self.shape, key)
        return NDArray(PartStorage(self.storage, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a scalar, or an array that broadcasts to the selected shape; else ValueError names both shapes."""
        key = _plain_index(key)
        if isinstance(key, slice) and key == slice(None) or key is Ellipsis:
            self._write(value)
        elif is_basic(key):
            self[key]._write(value)
        else:
            whole = self.asnumpy()
            whole[key] = value.storage.read() if isinstance(value, NDArray) else value
            self._write(whole)

    def slice_assign(self, rhs: NDArray, begin: Sequence[int | None], end: Sequence[int | None],
                     step: Sequence[int | None] = ()) -> NDArray:
        """Write `rhs` into the part from `begin` to `end` along the first axes, and return the array."""
        self[_slices(begin, end, step)] = rhs
        return self

    def slice_assign_scalar(self, value: float, begin: Sequence[int | None], end: Sequence[int | None],
                            step: Sequence[int | None] = ()) -> NDArray:
        """Write a number into the part from `begin` to `end` along the first axes, and return the array."""
        self[_slices(begin, end, step)] = value
        return self

    def _write(self, value: Any) -> None:
        values = value.storage.read() if isinstance(value, NDArray) else np.asarray(value)
        shape = values.shape
        while values.ndim > self.ndim and values.shape[0] == 1:
            values = values[0]
        try:
            values = np.broadcast_to(values, self.shape)
        except ValueError:
            raise ValueError(f"cannot write a value of shape {shape} into an NDArray of shape {self.shape}; give a "
                             f"scalar, or a shape that broadcasts to it") from None
        self.storage.write(values.astype(self.storage.dtype, copy=False))

    # -- arithmetic ------------------------------------------------------------------------------------

    def binary(self, other: Any, function: Callable, reflected: bool = False) -> NDArray:
        """`function` with numpy's broadcasting; a scalar keeps the dtype, and truths are 0 and 1 of it."""
        value = _operand(other)
        if value is None:
            return NotImplemented
        mine = self.storage.read()
        result = function(value, mine) if reflected else function(mine, value)
        dtype = np.result_type(mine.dtype, value.dtype) if value.ndim else mine.dtype
        return NDArray(HostStorage(np.asarray(result).astype(dtype, copy=False), self.context))

    def _in_place(self, other: Any, function: Callable) -> NDArray:
        result = self.binary(other, function)
        if result is NotImplemented:
            return result
        self._write(result)
        return self

    def __neg__(self) -> NDArray:
        return NDArray(HostStorage(np.negative(self.storage.read()), self.context))

    def __abs__(self) -> NDArray:
        return NDArray(HostStorage(np.abs(self.storage.read()), self.context))

    def __add__(self, other: Any) -> NDArray:
        return self.binary(other, operator.add)

    def __radd__(self, other: Any) -> NDArray:
        return self.binary(other, operator.add, reflected=True)

    def __iadd__(self, other: Any) -> NDArray:
        return self._in_place(other, operator.add)

    def __sub__(self, other: Any) -> NDArray:
        return self.binary(other, operator.sub)

    def __rsub__(self, other: Any) -> NDArray:
        return self.binary(other, operator.sub, reflected=True)

    def __isub__(self, other: Any) -> NDArray:
        return self._in_place(other, operator.sub)

    def __mul__(self, other: Any) -> NDArray:
        return self.binary(other, operator.mul)

    def __rmul__(self, other: Any) -> NDArray:
        return self.binary(other, operator.mul, reflected=True)

    def __imul__(self, other: Any) -> NDArray:
        return self._in_place(other, operator.mul)

    def __truediv__(self, other: Any) -> NDArray:
        return self.binary(other, operator.truediv)

    def __rtruediv__(self, other: Any) -> NDArray:
        return self.binary(other, operator.truediv, reflected=True)

    def __itruediv__(self, other: Any) -> NDArray:
        return self._in_place(other, operator.truediv)

    def __mod__(self, other: Any) -> NDArray:
        return self.binary(other, operator.mod)

    def __imod__(self, other: Any) -> NDArray:
        return self._in_place(other, operator.mod)

    def __rmod__(self, other: Any) -> NDArray:
        return self.binary(other, operator.mod, reflected=True)

    def __pow__(self, other: Any) -> NDArray:
        return self.binary(other, operator.pow)

    def __rpow__(self, other: Any) -> NDArray:
        return self.binary(other, operator.pow, reflected=True)

    def __ipow__(self, other: Any) -> NDArray:
        return self._in_place(other, operator.pow)

    def __lt__(self, other: Any) -> NDArray:
        return self.binary(other, operator.lt)

    def __le__(self, other: Any) -> NDArray:
        return self.binary(other, operator.le)

    def __gt__(self, other: Any) -> NDArray:
        return self.binary(other, operator.gt)

    def __ge__(self, other: Any) -> NDArray:
        return self.binary(other, operator.ge)

    def __eq__(self, other: Any) -> Any:
        return self.binary(other, operator.eq)

    def __ne__(self, other: Any) -> Any:
        return self.binary(other, operator.ne)


def _rebuild(values: np.ndarray, device_type: str, device_id: int) -> NDArray:
    """Unpickle."""
    return NDArray(HostStorage(values, Context(device_type, device_id)))

"""New NDArrays: of given values, of one value, and of numbers in a row."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import MXNetError, dtype_of
from ..context import Context
from ..storage import HostStorage, as_shape
from .array import NDArray


def host(values: np.ndarray, ctx: Context | None) -> NDArray:
    """A new array around `values`, which nothing else may hold."""
    return NDArray(HostStorage(values, ctx))


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array with a copy of `source_array`: an NDArray keeps its dtype, anything else becomes float32.

    A scalar gives shape (). The values lie in host memory whatever the context: an executor copies them on.
    """
    values = source_array.storage.read() if isinstance(source_array, NDArray) else np.asarray(source_array)
    if dtype is None:
        dtype = values.dtype if isinstance(source_array, NDArray) else np.float32
    return host(np.array(values, dtype=dtype_of(dtype), order="C"), ctx)


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """The values of a NumPy array in its dtype; with `zero_copy` both share the memory, which must be contiguous."""
    if zero_copy and not ndarray.flags["C_CONTIGUOUS"]:
        raise ValueError("from_numpy shares memory only with arrays in C order; give zero_copy=False, or "
                         "numpy.ascontiguousarray of it")
    return host(ndarray if zero_copy else ndarray.copy(), None)


def empty(shape: int | Sequence[int], ctx: Context | None = None, dtype: Any = None, stype: str | None = None,
          ) -> NDArray:
    """A new array whose values are not set."""
    refuse_sparse(stype)
    return host(np.empty(as_shape(shape), dtype_of(dtype or np.float32)), ctx)


def zeros(shape: int | Sequence[int], ctx: Context | None = None, dtype: Any = None, stype: str | None = None,
          out: NDArray | None = None) -> NDArray:
    """A new array of zeros, float32 unless `dtype` is given; or `out` of that shape, filled."""
    refuse_sparse(stype)
    return _filled(shape, 0, ctx, dtype, out)


def ones(shape: int | Sequence[int], ctx: Context | None = None, dtype: Any = None,
         out: NDArray | None = None) -> NDArray:
    """A new array of ones, float32 unless `dtype` is given; or `out` of that shape, filled."""
    return _filled(shape, 1, ctx, dtype, out)


def full(shape: int | Sequence[int], val: float, ctx: Context | None = None, dtype: Any = None,
         out: NDArray | None = None) -> NDArray:
    """A new array filled with `val`, float32 unless `dtype` is given; or `out` of that shape, filled."""
    return _filled(shape, val, ctx, dtype, out)


def _filled(shape: int | Sequence[int], value: float, ctx: Context | None, dtype: Any,
            out: NDArray | None) -> NDArray:
    if min(as_shape(shape), default=0) < 0:
        raise MXNetError(f"an array of shape {as_shape(shape)} was asked for; dimensions must not be negative")
    if out is None:
        return host(np.full(as_shape(shape), value, dtype_of(dtype or np.float32)), ctx)
    if out.shape != as_shape(shape):
        raise MXNetError(f"out has shape {out.shape}, and {as_shape(shape)} was asked for; give an array of that shape")
    out[:] = value
    return out


def full_like(a: NDArray, fill_value: float, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """A new array of the shape, and unless `dtype` is given the dtype, of another, filled with a value."""
    return full(a.shape, fill_value, ctx or a.context, dtype or a.dtype)


def arange(start: float, stop: float | None = None, step: float = 1.0, repeat: int = 1,
           infer_range: bool | None = None, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """start, start + step … below stop, each `repeat` times; with one argument, from 0 to it.

    `infer_range` decides about symbols alone: a UserWarning for anything but None.
    """
    if infer_range is not None:
        warnings.warn("arange: infer_range decides about symbols, mx.sym.arange; an array needs its `stop`",
                      stacklevel=2)
    begin, end = (0, start) if stop is None else (start, stop)
    return host(np.repeat(np.arange(begin, end, step), repeat).astype(dtype_of(dtype or np.float32)), ctx)


def linspace(start: float, stop: float, num: int, endpoint: bool = True, ctx: Context | None = None,
             dtype: Any = None) -> NDArray:
    """`num` numbers at equal distances from start to stop, which is the last one unless `endpoint` is false."""
    return host(np.linspace(start, stop, num, endpoint).astype(dtype_of(dtype or np.float32)), ctx)


def eye(N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: Any = None) -> NDArray:
    """An N x M matrix (N x N when M is 0) with ones on the diagonal number `k` and zeros elsewhere."""
    return host(np.eye(N, M or N, k, dtype_of(dtype or np.float32)), ctx)


def refuse_sparse(stype: str | None) -> None:
    """MXNetError for a storage type other than the dense one."""
    if stype not in (None, "default"):
        raise MXNetError(f"storage type {stype!r} is not supported; arrays are dense, leave stype out")


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """The arrays joined along `axis`; a single array is returned as it is unless `always_copy`."""
    if not arrays:
        raise ValueError("concatenate needs at least one array")
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    return host(np.concatenate([each.storage.read() for each in arrays], axis), arrays[0].context)

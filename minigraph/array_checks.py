"""Checks of arrays for tests, under MXNet's names: tolerances by dtype, and comparisons that name the worst element."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .base import Shape
from .ndarray import NDArray

Tolerance = float | Mapping[Any, float] | None
_RTOLS = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-5}
_ATOLS = {"float16": 1e-1, "float32": 1e-3, "float64": 1e-20}
_EXACT = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64")


def default_rtols() -> dict[np.dtype, float]:
    """The relative tolerance of each dtype: 1e-2, 1e-4 and 1e-5 of floats, 0 of the others."""
    return {np.dtype(name): value for name, value in {**_RTOLS, **dict.fromkeys(_EXACT, 0)}.items()}


def default_atols() -> dict[np.dtype, float]:
    """The absolute tolerance of each dtype: 1e-1, 1e-3 and 1e-20 of floats, 0 of the others."""
    return {np.dtype(name): value for name, value in {**_ATOLS, **dict.fromkeys(_EXACT, 0)}.items()}


def effective_dtype(dat: Any) -> np.dtype:
    """The dtype whose tolerances hold for a value: its own."""
    return np.asarray(dat).dtype if not hasattr(dat, "dtype") else np.dtype(dat.dtype)


def get_tolerance(dat: Any, tol: Tolerance, default_tol: Mapping[np.dtype, float]) -> float:
    """A tolerance given as a number or by dtypes; the default of the value's dtype, or 0, where none is given."""
    if isinstance(tol, (int, float)):
        return float(tol)
    given = {np.dtype(key): value for key, value in (tol or {}).items()}
    dtype = effective_dtype(dat)
    return float(given.get(dtype, default_tol.get(dtype, 0)))


def get_tols(x: Any, y: Any, rtol: Tolerance, atol: Tolerance) -> tuple[float, float]:
    """(relative, absolute) tolerance of two values: the larger of both where none is given."""
    return (max(get_tolerance(v, rtol, default_rtols()) for v in (x, y)),
            max(get_tolerance(v, atol, default_atols()) for v in (x, y)))


def get_rtol(rtol: float | None = None, dtype: Any = np.float64) -> float:
    """A relative tolerance, or the default of a dtype when it is None."""
    return default_rtols().get(np.dtype(dtype), 0) if rtol is None else rtol


def get_atol(atol: float | None = None, dtype: Any = np.float64) -> float:
    """An absolute tolerance, or the default of a dtype when it is None."""
    return default_atols().get(np.dtype(dtype), 0) if atol is None else atol


def get_etol(etol: float | None = None) -> float:
    """The share of elements that may differ: 0 when it is None."""
    return 0 if etol is None else etol


def as_numpy(value: Any) -> np.ndarray:
    """A NumPy array of an NDArray, an array, or numbers."""
    return value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)


def same(a: Any, b: Any) -> bool:
    """Whether two arrays have the same shape and equal elements."""
    return np.array_equal(as_numpy(a), as_numpy(b))


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Whether two NDArrays are one memory: what is written to one is read from the other."""
    array1[:] += 1
    together = same(array1, array2)
    array1[:] -= 1
    return together and same(array1, array2)


def almost_equal(a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None, equal_nan: bool = False,
                 use_broadcast: bool = True) -> bool:
    """Whether |a - b| <= atol + rtol |b| everywhere; the tolerances of the dtypes by default.

    Shapes may broadcast, unless `use_broadcast` is false.
    """
    left, right = as_numpy(a), as_numpy(b)
    if left.shape != right.shape and not use_broadcast:
        return False
    rtol, atol = get_tols(left, right, rtol, atol)
    return np.allclose(left, right, rtol, atol, equal_nan)


def assert_almost_equal(a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None,
                        names: tuple[str, str] = ("a", "b"), equal_nan: bool = False, use_broadcast: bool = True,
                        mismatches: tuple[int, int] = (10, 10)) -> None:
    """AssertionError with the worst element when not `almost_equal`. `mismatches` is MXNet's, of what it prints."""
    assert_almost_equal_with_err(a, b, rtol, atol, 0, names, equal_nan, mismatches, use_broadcast)


def assert_almost_equal_with_err(a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None,
                                 etol: float | None = None, names: tuple[str, str] = ("a", "b"),
                                 equal_nan: bool = False, mismatches: tuple[int, int] = (10, 10),
                                 use_broadcast: bool = True) -> None:
    """As `assert_almost_equal`, where a share `etol` of the elements may differ by more."""
    left, right = as_numpy(a), as_numpy(b)
    if left.shape != right.shape:
        try:
            if not use_broadcast:
                raise ValueError
            left, right = np.broadcast_arrays(left, right)
        except ValueError:
            raise AssertionError(f"{names[0]} has shape {left.shape} and {names[1]} {right.shape}") from None
    rtol, atol = get_tols(left, right, rtol, atol)
    wrong = ~np.isclose(left, right, rtol, atol, equal_nan)
    if wrong.sum() <= get_etol(etol) * wrong.size:
        return
    with np.errstate(all="ignore"):
        x, y = (v.astype(np.float64) for v in (left, right))
        error = np.abs(x - y) / (atol + rtol * np.abs(y))
    error = np.where(wrong, np.where(np.isnan(error), np.inf, error), 0.0)
    at = tuple(int(k) for k in np.unravel_index(int(np.argmax(error)), error.shape))
    raise AssertionError(f"{names[0]} and {names[1]} differ by more than rtol={rtol:g}, atol={atol:g} at "
                         f"{int(wrong.sum())} of {error.size} elements; the worst at {at}: {left[at]!r} against "
                         f"{right[at]!r}")


def assert_almost_equal_ignore_nan(a: Any, b: Any, rtol: Tolerance = None, atol: Tolerance = None,
                                   names: tuple[str, str] = ("a", "b")) -> None:
    """As `assert_almost_equal`, without the elements where either is NaN."""
    left, right = (as_numpy(v).copy() for v in (a, b))
    missing = np.isnan(left) | np.isnan(right)
    left[missing] = right[missing] = 0
    assert_almost_equal(left, right, rtol, atol, names)


def assert_allclose(a: Any, b: Any, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True) -> None:
    """As `assert_almost_equal`, with NumPy's defaults."""
    assert_almost_equal(a, b, rtol, atol, equal_nan=equal_nan)


def compare_ndarray_tuple(t1: Any, t2: Any, rtol: Tolerance = None, atol: Tolerance = None) -> None:
    """`assert_almost_equal` for two arrays, or two tuples of arrays, nested in any way; None is passed over."""
    if t1 is None or t2 is None:
        return
    if not isinstance(t1, tuple):
        assert_almost_equal(t1, t2, rtol, atol)
        return
    if len(t1) != len(t2):
        raise AssertionError(f"{len(t1)} arrays against {len(t2)}")
    for one, other in zip(t1, t2, strict=True):
        compare_ndarray_tuple(one, other, rtol, atol)


def np_reduce(dat: np.ndarray, axis: int | Sequence[int] | None, keepdims: Any,
              numpy_reduce_func: Callable[..., Any]) -> np.ndarray:
    """A reduction over several axes by a NumPy function of one; a scalar result has shape (1,)."""
    axes = range(dat.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    axes = sorted(k % dat.ndim for k in axes)
    result = dat
    for k in reversed(axes):
        result = numpy_reduce_func(result, axis=k)
    if keepdims:
        return np.reshape(result, [1 if k in axes else d for k, d in enumerate(dat.shape)])
    return np.asarray(result)


def collapse_sum_like(a: np.ndarray, shape: Shape) -> np.ndarray:
    """The sum of an array over what broadcasting `shape` to its shape repeats: what its gradient is."""
    extra = a.ndim - len(shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(shape, a.shape[extra:], strict=True)):
        raise ValueError(f"shape {shape} does not broadcast to {a.shape}")
    ones = tuple(k for k, n in enumerate(shape, extra) if n == 1 and a.shape[k] != 1)
    return a.sum(axis=(*range(extra), *ones), keepdims=True).reshape(shape)


def assign_each(the_input: np.ndarray, function: Callable[[Any], Any] | None) -> np.ndarray:
    """A copy with `function` of each element, or the input itself without one."""
    if function is None:
        return np.array(the_input)
    return np.array([function(x) for x in the_input.ravel()], the_input.dtype).reshape(the_input.shape)


def assign_each2(input1: np.ndarray, input2: np.ndarray, function: Callable[[Any, Any], Any] | None) -> np.ndarray:
    """A new array with `function` of each pair of elements, or a copy of the first input without one."""
    if function is None:
        return np.array(input1)
    pairs = zip(input1.ravel(), input2.ravel(), strict=True)
    return np.array([function(x, y) for x, y in pairs], input1.dtype).reshape(input1.shape)

"""Checks for tests, under MXNet's names: comparing arrays, and checking a symbol against NumPy and finite differences.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import ndarray, random
from .base import Shape
from .context import Context, current_context
from .executor import Executor
from .ndarray import NDArray

__test__ = False

Values = Mapping[str, Any] | Sequence[Any] | None


def default_context() -> Context:
    """The context that checks run on: the innermost `with`, or cpu()."""
    return current_context()


def default_dtype() -> type:
    """float32."""
    return np.float32


def rand_shape_nd(num_dim: int, dim: int = 10) -> Shape:
    """A shape of `num_dim` dimensions, each from 1 to `dim`."""
    return tuple(int(n) for n in random.generator().integers(1, dim + 1, num_dim))


def rand_shape_2d(dim0: int = 10, dim1: int = 10) -> Shape:
    """A shape (1 … dim0, 1 … dim1)."""
    return rand_shape_nd(1, dim0) + rand_shape_nd(1, dim1)


def rand_ndarray(shape: Shape, stype: str = "default", dtype: Any = None, ctx: Context | None = None) -> NDArray:
    """Values drawn evenly from [-1, 1)."""
    if stype != "default":
        raise ValueError(f"arrays are dense, got stype {stype!r}")
    return ndarray.array(random.generator().uniform(-1, 1, shape), ctx, dtype).reshape(shape)


def _numpy(value: Any) -> np.ndarray:
    return value.asnumpy() if isinstance(value, NDArray) else np.asarray(value)


def same(a: Any, b: Any) -> bool:
    """Whether two arrays have the same shape and equal elements."""
    return np.array_equal(_numpy(a), _numpy(b))


def almost_equal(a: Any, b: Any, rtol: float | None = None, atol: float | None = None,
                 equal_nan: bool = False) -> bool:
    """Whether |a - b| <= atol + rtol |b| everywhere; rtol 1e-5 and atol 1e-20 by default."""
    return np.allclose(_numpy(a), _numpy(b), 1e-5 if rtol is None else rtol, 1e-20 if atol is None else atol, equal_nan)


def assert_almost_equal(a: Any, b: Any, rtol: float | None = None, atol: float | None = None,
                        names: tuple[str, str] = ("a", "b"), equal_nan: bool = False) -> None:
    """AssertionError with the worst element when not `almost_equal`."""
    left, right = _numpy(a), _numpy(b)
    if left.shape != right.shape:
        raise AssertionError(f"{names[0]} has shape {left.shape} and {names[1]} {right.shape}")
    rtol, atol = 1e-5 if rtol is None else rtol, 1e-20 if atol is None else atol
    if almost_equal(left, right, rtol, atol, equal_nan):
        return
    with np.errstate(all="ignore"):
        error = np.abs(left - right) / (atol + rtol * np.abs(right))
    error = np.where(left == right, 0.0, np.where(np.isnan(error), np.inf, error))
    at = tuple(int(k) for k in np.unravel_index(int(np.argmax(error)), error.shape))
    raise AssertionError(f"{names[0]} and {names[1]} differ by more than rtol={rtol:g}, atol={atol:g} at "
                         f"{int((error > 1).sum())} of {error.size} elements; the worst at {at}: {left[at]!r} against "
                         f"{right[at]!r}")


# -- checks of symbols ---------------------------------------------------------------------------------------
def _by_name(values: Values, names: Sequence[str], what: str) -> dict[str, np.ndarray]:
    """Arrays by name from a dict, or a list in the order of `names`."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        if len(values) != len(names):
            raise ValueError(f"{what} has {len(values)} values for {len(names)} names ({', '.join(names)})")
        values = dict(zip(names, values, strict=True))
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ValueError(f"{what} names {', '.join(unknown)}; the symbol has {', '.join(names)}")
    return {name: _numpy(value) for name, value in values.items()}


def _bound(sym: Any, location: Values, aux_states: Values, grad_req: Any, ctx: Context | None,
           dtype: Any) -> Executor:
    """An executor with these values; floating arguments take `dtype`, others keep theirs."""
    arguments = _by_name(location, sym.list_arguments(), "location")
    states = _by_name(aux_states, sym.list_auxiliary_states(), "aux_states")
    given = {**arguments, **states}
    types = {name: np.dtype(dtype) if value.dtype.kind == "f" else value.dtype for name, value in given.items()}
    executor = Executor(sym, ctx or default_context(), {name: value.shape for name, value in given.items()},
                        dtypes=types, grad_req=grad_req)
    executor.copy_params_from(arguments, states)
    return executor


def check_symbolic_forward(sym: Any, location: Values, expected: Values, rtol: float = 1e-4,
                           atol: float | None = None, aux_states: Values = None, ctx: Context | None = None,
                           equal_nan: bool = False, dtype: Any = np.float32) -> list[NDArray]:
    """Evaluate for the arguments `location` and compare with the outputs `expected`; returns the outputs."""
    executor = _bound(sym, location, aux_states, "null", ctx, dtype)
    outputs = executor.forward(is_train=False)
    for name, value in _by_name(expected, executor.output_names, "expected").items():
        assert_almost_equal(executor.output_dict[name], value, rtol, 1e-20 if atol is None else atol,
                            (name, "expected"), equal_nan)
    return outputs


def check_symbolic_backward(sym: Any, location: Values, out_grads: Any, expected: Values, rtol: float = 1e-5,
                            atol: float | None = None, aux_states: Values = None, grad_req: Any = "write",
                            ctx: Context | None = None, equal_nan: bool = False,
                            dtype: Any = np.float32) -> dict[str, NDArray]:
    """Run forward and backward and compare with the gradients `expected`; returns the gradients by argument.

    With the request "add" a gradient begins at random values, which are added to what is expected.
    """
    executor = _bound(sym, location, aux_states, grad_req, ctx, dtype)
    found = {name: gradient for name, gradient in executor.grad_dict.items() if gradient is not None}
    before = {name: rand_ndarray(gradient.shape, dtype=gradient.dtype).asnumpy() for name, gradient in found.items()}
    for name, gradient in found.items():
        gradient[:] = before[name]
    executor.forward(is_train=True)
    executor.backward(_head_gradients(out_grads))
    for name, value in _by_name(expected, executor.arg_names, "expected").items():
        request = executor.requests[name]
        wanted = value + before[name] if request == "add" else value
        if request != "null":
            assert_almost_equal(found[name], wanted, rtol, 1e-20 if atol is None else atol,
                                (f"the gradient of {name}", "expected"), equal_nan)
    return found


def _head_gradients(out_grads: Any) -> Any:
    if isinstance(out_grads, Mapping):
        return {name: _numpy(value) for name, value in out_grads.items()}
    if isinstance(out_grads, (list, tuple)):
        return [None if value is None else _numpy(value) for value in out_grads]
    return out_grads


def check_numeric_gradient(sym: Any, location: Values, aux_states: Values = None, numeric_eps: float = 1e-3,
                           rtol: float = 1e-2, atol: float | None = None, grad_nodes: Any = None,
                           use_forward_train: bool = True, ctx: Context | None = None, dtype: Any = np.float64) -> None:
    """Compare the gradients of one output, weighted at random, with central differences of step `numeric_eps`.

    `grad_nodes` are the arguments to check, by default all of floating type. float64 by default, so that the
    differences and not the rounding decide.
    """
    arguments = _by_name(location, sym.list_arguments(), "location")
    nodes = list(grad_nodes) if grad_nodes is not None else [n for n, v in arguments.items() if v.dtype.kind == "f"]
    executor = _bound(sym, location, aux_states, {name: "write" for name in nodes}, ctx, dtype)
    states = {name: state.asnumpy() for name, state in executor.aux_dict.items()}
    if len(executor.output_names) != 1:
        raise ValueError(f"check_numeric_gradient takes a symbol of one output, got {', '.join(executor.output_names)}")
    shape = executor.forward(is_train=True)[0].shape
    weights = random.generator().uniform(0.1, 1.1, shape)
    executor.copy_params_from({}, states)
    executor.forward(is_train=True)
    executor.backward([weights])
    gradients = {name: gradient for name, gradient in executor.grad_dict.items() if gradient is not None}
    analytic = {name: gradients[name].asnumpy() for name in nodes}
    for name in nodes:
        numeric = _central_differences(executor, name, weights, states, numeric_eps, use_forward_train)
        assert_almost_equal(analytic[name], numeric, rtol, 1e-4 if atol is None else atol,
                            (f"the gradient of {name}", "central differences"))


def _central_differences(executor: Executor, name: str, weights: np.ndarray, states: Mapping[str, np.ndarray],
                         step: float, is_train: bool) -> np.ndarray:
    """The derivative of the weighted sum of the output by each element of one argument."""
    place = executor.arg_dict[name]
    value = place.asnumpy()
    result = np.empty(value.shape)
    for at in np.ndindex(value.shape):
        sums = []
        for sign in (step / 2, -step / 2):
            moved = value.copy()
            moved[at] += sign
            place[:] = moved
            executor.copy_params_from({}, states)
            sums.append(float((executor.forward(is_train=is_train)[0].asnumpy() * weights).sum()))
        result[at] = (sums[0] - sums[1]) / step
    place[:] = value
    return result

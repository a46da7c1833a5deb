"""Checks of symbols for tests, under MXNet's names: against NumPy, finite differences, and other dtypes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import ndarray, random
from .array_checks import Tolerance, as_numpy, assert_almost_equal, get_atol, get_tols
from .base import MXNetError
from .bound import distinct
from .context import Context, current_context
from .executor import Executor
from .ndarray import NDArray

Values = Mapping[str, Any] | Sequence[Any] | None


def _by_name(values: Values, names: Sequence[str], what: str) -> dict[str, Any]:
    """Values by name from a dict, or a list in the order of `names`."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        if len(values) != len(names):
            raise ValueError(f"{what} has {len(values)} values for {len(names)} names ({', '.join(names)})")
        values = dict(zip(names, values, strict=True))
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ValueError(f"{what} names {', '.join(unknown)}; the symbol has {', '.join(names)}")
    return dict(values)


def _converted(value: Any, dtype: Any) -> np.ndarray:
    """A value in `dtype`, or in its own with "asnumpy"; whole numbers in an NDArray keep theirs."""
    array = as_numpy(value)
    if isinstance(dtype, str) and dtype == "asnumpy" or isinstance(value, NDArray) and array.dtype.kind != "f":
        return array
    return array.astype(dtype)


def _bound(sym: Any, location: Values, aux_states: Values, grad_req: Any, ctx: Context | None,
           dtype: Any) -> Executor:
    """An executor with these values."""
    arguments = {name: _converted(value, dtype)
                 for name, value in _by_name(location, sym.list_arguments(), "location").items()}
    states = {name: _converted(value, dtype)
              for name, value in _by_name(aux_states, sym.list_auxiliary_states(), "aux_states").items()}
    given = {**arguments, **states}
    executor = Executor(sym, ctx or current_context(), {name: value.shape for name, value in given.items()},
                        dtypes={name: value.dtype for name, value in given.items()}, grad_req=grad_req)
    executor.copy_params_from(arguments, states)
    return executor


def _refuse_sparse(**given: Any) -> None:
    for key, value in given.items():
        types = value.values() if isinstance(value, Mapping) else value or ()
        if any(stype not in (None, "default") for stype in types):
            raise MXNetError(f"{key}={value!r} is not supported: arrays are dense; leave it out")


def simple_forward(sym: Any, ctx: Context | None = None, is_train: bool = False, **inputs: Any) -> Any:
    """The outputs of a symbol for inputs by name, as NumPy arrays: a list, or the one there is."""
    executor = _bound(sym, inputs, None, "null", ctx, "asnumpy" if inputs else np.float32)
    outputs = [output.asnumpy() for output in executor.forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def check_symbolic_forward(sym: Any, location: Values, expected: Values, rtol: Tolerance = None,
                           atol: Tolerance = None, aux_states: Values = None, ctx: Context | None = None,
                           equal_nan: bool = False, dtype: Any = np.float32) -> list[NDArray]:
    """Evaluate for the arguments `location` and compare with the outputs `expected`; returns the outputs.

    Both are dicts or lists in the symbol's order. Values are converted to `dtype`, unless it is "asnumpy".
    """
    executor = _bound(sym, location, aux_states, "null", ctx, dtype)
    outputs = executor.forward(is_train=False)
    if isinstance(expected, Mapping):
        found = dict(zip(distinct(executor.output_names), outputs, strict=True))
        pairs = [(found[name], value, name) for name, value in _by_name(expected, list(found), "expected").items()]
    else:
        _by_name(expected, [f"{k}" for k in range(len(outputs))], "expected")
        pairs = list(zip(outputs, expected or (), executor.output_names, strict=True))
    for output, value, name in pairs:
        assert_almost_equal(output, as_numpy(value), rtol, atol, (name, "expected"), equal_nan)
    return outputs


def check_symbolic_backward(sym: Any, location: Values, out_grads: Any, expected: Values, rtol: Tolerance = None,
                            atol: Tolerance = None, aux_states: Values = None, grad_req: Any = "write",
                            ctx: Context | None = None, grad_stypes: Any = None, equal_nan: bool = False,
                            dtype: Any = np.float32) -> list[NDArray | None]:
    """Run forward and backward and compare with the gradients `expected`; returns those of all arguments.

    With the request "add" a gradient begins at random values, which are added to what is expected.
    """
    _refuse_sparse(grad_stypes=grad_stypes)
    executor = _bound(sym, location, aux_states, grad_req, ctx, dtype)
    found = {name: gradient for name, gradient in executor.grad_dict.items() if gradient is not None}
    before = _random_gradients(found)
    executor.forward(is_train=True)
    executor.backward(_head_gradients(out_grads))
    for name, value in _by_name(expected, executor.arg_names, "expected").items():
        request = executor.requests[name]
        if request != "null":
            wanted = as_numpy(value) + before[name] if request == "add" else as_numpy(value)
            assert_almost_equal(found[name], wanted, rtol, atol, (f"the gradient of {name}", "expected"), equal_nan)
    return executor.grad_arrays


def _random_gradients(found: Mapping[str, NDArray]) -> dict[str, np.ndarray]:
    """Fill gradients with random values, which a request "add" adds to; the values."""
    for gradient in found.values():
        gradient[:] = random.generator().normal(size=gradient.shape)
    return {name: gradient.asnumpy() for name, gradient in found.items()}


def _head_gradients(out_grads: Any) -> Any:
    if isinstance(out_grads, Mapping):
        return {name: as_numpy(value) for name, value in out_grads.items()}
    if isinstance(out_grads, (list, tuple)):
        return [None if value is None else as_numpy(value) for value in out_grads]
    return out_grads


def default_numeric_eps() -> dict[np.dtype, float]:
    """The step of central differences in each dtype: powers of 2, so that the points are exact."""
    return {np.dtype(np.float16): 2.0 ** -6, np.dtype(np.float32): 2.0 ** -9, np.dtype(np.float64): 2.0 ** -14}


def check_numeric_gradient(sym: Any, location: Values, aux_states: Values = None, numeric_eps: float | None = None,
                           rtol: float | None = None, atol: float | None = None, grad_nodes: Any = None,
                           use_forward_train: bool = True, ctx: Context | None = None, grad_stype_dict: Any = None,
                           dtype: Any = np.float64) -> None:
    """Compare the gradients of one output, weighted at random, with central differences of step `numeric_eps`.

    `grad_nodes` are the arguments to check, by default all of floating type; a dict gives their requests, of which
    "null" checks nothing. float64 by default, so that the differences and not the rounding decide; rtol is 1e-2 and
    atol 1e-4, or the dtype's if that is larger.
    """
    _refuse_sparse(grad_stype_dict=grad_stype_dict)
    arguments = _by_name(location, sym.list_arguments(), "location")
    if grad_nodes is None:
        grad_nodes = [name for name, value in arguments.items() if as_numpy(value).dtype.kind == "f"]
    requests = dict(grad_nodes) if isinstance(grad_nodes, Mapping) else {name: "write" for name in grad_nodes}
    executor = _bound(sym, location, aux_states, requests, ctx, dtype)
    if len(executor.output_names) != 1:
        raise ValueError(f"check_numeric_gradient takes a symbol of one output, got {', '.join(executor.output_names)}")
    states = {name: state.asnumpy() for name, state in executor.aux_dict.items()}
    found = {name: gradient for name, gradient in executor.grad_dict.items() if gradient is not None}
    before = _random_gradients(found)
    weights = random.generator().uniform(0.1, 1.1, executor.forward(is_train=True)[0].shape)
    executor.copy_params_from({}, states)
    executor.forward(is_train=True)
    executor.backward([weights])
    checked = next((np.dtype(executor.arg_dict[name].dtype) for name in found), np.dtype(np.float64))
    step = default_numeric_eps()[checked] if numeric_eps is None else numeric_eps
    analytic = {name: gradient.asnumpy() - (before[name] if requests[name] == "add" else 0)
                for name, gradient in found.items()}
    for name in found:
        numeric = _central_differences(executor, name, weights, states, step, use_forward_train)
        assert_almost_equal(analytic[name], numeric, 1e-2 if rtol is None else rtol,
                            max(1e-4, get_atol(None, checked)) if atol is None else atol,
                            (f"the gradient of {name}", "central differences"))


def numeric_grad(executor: Executor, location: Mapping[str, Any], aux_states: Mapping[str, Any] | None = None,
                 eps: float = 1e-4, use_forward_train: bool = True, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Central differences of step `eps` of the sum of an executor's first output, by each of the arguments `location`.
    """
    executor.copy_params_from({name: as_numpy(value) for name, value in location.items()}, {})
    states = {name: as_numpy(value) for name, value in (aux_states or {}).items()}
    return {name: _central_differences(executor, name, np.ones(()), states, eps, use_forward_train).astype(dtype)
            for name in location}


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
            output = executor.forward(is_train=is_train)[0].asnumpy().astype(np.float64)
            sums.append(float((output * weights).sum()))
        result[at] = (sums[0] - sums[1]) / step
    place[:] = value
    return result


def check_consistency(sym: Any, ctx_list: Sequence[Mapping[str, Any]], scale: float = 1.0, grad_req: Any = "write",
                      arg_params: Mapping[str, Any] | None = None, aux_params: Mapping[str, Any] | None = None,
                      rtol: Tolerance = None, atol: Tolerance = None, raise_on_err: bool = True,
                      ground_truth: Mapping[str, Any] | None = None, equal_nan: bool = False,
                      use_uniform: bool = False, rand_type: Any = np.float64) -> dict[str, np.ndarray]:
    """Compare outputs and gradients of a symbol in several contexts or dtypes with those of the widest dtype.

    Each of `ctx_list` has `ctx`, the shapes of arguments, and perhaps `type_dict`; `sym` may be a list of symbols, one
    for each. Arguments are drawn, of deviation `scale`, unless `arg_params` gives them; head gradients are the
    outputs. Returns the values compared with, by name, or those of `ground_truth`.
    """
    symbols = list(sym) if isinstance(sym, (list, tuple)) else [sym] * len(ctx_list)
    runs = []
    values = dict(arg_params or {})
    for symbol, how in zip(symbols, ctx_list, strict=True):
        options = dict(how)
        executor = symbol.simple_bind(options.pop("ctx"), grad_req=grad_req, **options)
        for name, array in executor.arg_dict.items():
            if name not in values:
                draw = random.generator()
                values[name] = (draw.uniform(-0.92, 0.92, array.shape) if use_uniform
                                else draw.normal(size=array.shape)).astype(rand_type) * scale
            array[:] = as_numpy(values[name])
        for name, array in executor.aux_dict.items():
            array[:] = as_numpy((aux_params or {}).get(name, 0))
        runs.append(_run(executor, grad_req))
    widest = max(runs, key=lambda results: max(value.dtype.itemsize for value in results.values()))
    truth = widest if ground_truth is None else {name: as_numpy(value) for name, value in ground_truth.items()}
    for k, results in enumerate(runs):
        if results is truth:
            continue
        narrowest = min((value.dtype for value in results.values()), key=lambda dtype: dtype.itemsize)
        tolerances = get_tols(np.zeros((), narrowest), np.zeros((), narrowest), rtol, atol)
        for name, value in results.items():
            try:
                assert_almost_equal(value, truth[name].astype(value.dtype), *tolerances,
                                    (f"{name} of ctx_list[{k}]", "the widest"), equal_nan)
            except AssertionError:
                if raise_on_err:
                    raise
    return truth


def _run(executor: Executor, grad_req: Any) -> dict[str, np.ndarray]:
    """Outputs by name, and unless nothing is asked for, gradients by argument."""
    train = grad_req != "null"
    outputs = executor.forward(is_train=train)
    names = distinct([*executor.output_names, *executor.arg_names])[:len(outputs)]
    results = {name: output.asnumpy() for name, output in zip(names, outputs, strict=True)}
    if train:
        executor.backward([ndarray.array(value, dtype=value.dtype) for value in results.values()])
        results.update((name, gradient.asnumpy()) for name, gradient in executor.grad_dict.items()
                       if gradient is not None)
    return results

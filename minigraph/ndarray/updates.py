"""MXNet's functions that update a weight once: `mx.nd.sgd_mom_update(weight, grad, mom, lr=0.1, out=weight)`.

They run the update operators that optimizers put into a step, with a rate and decay of their own. States change in
place; the weight does only as `out`. Those that begin with `mp_` update a float32 copy, of which the result is cast.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base import MXNetError
from ..ops.control import CLIP, RESCALE, UPDATE_COUNT, control_size, lr_word
from ..ops.optimizer import Update
from ..ops.registry import get_op
from ..storage import HostStorage
from .array import NDArray
from .execute import execute
from .functions import deliver


@dataclass(frozen=True)
class _Form:
    """An operator, MXNet's names of its states, and MXNet's defaults of its parameters before and after the decay."""

    op: str
    states: tuple[str, ...] = ()
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    clip: str = "clip_gradient"
    counts: bool = False
    """Whether the number `t` of the update is a parameter, and the rate is corrected by it."""


_MOMENTUM = {"momentum": 0.0}
_FORMS = {
    "sgd_update": _Form("_sgd_update"),
    "sgd_mom_update": _Form("_sgd_mom_update", ("mom",), _MOMENTUM),
    "nag_mom_update": _Form("_nag_update", ("mom",), _MOMENTUM),
    "signsgd_update": _Form("_signsgd_update"),
    "signum_update": _Form("_signum_update", ("mom",), _MOMENTUM, {"wd_lh": 0.0}),
    "adam_update": _Form("_adam_update", ("mean", "var"), {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}),
    "rmsprop_update": _Form("_rmsprop_update", ("n",), {"gamma1": 0.95, "epsilon": 1e-8}, {"clip_weights": -1.0}),
    "rmspropalex_update": _Form("_rmsprop_centered_update", ("n", "g", "delta"),
                                {"gamma1": 0.95, "gamma2": 0.9, "epsilon": 1e-8}, {"clip_weights": -1.0}),
    "ftrl_update": _Form("_ftrl_update", ("z", "n"), {"lamda1": 0.01, "beta": 1.0}),
    "ftml_update": _Form("_ftml_update", ("d", "v", "z"), {"beta1": 0.6, "beta2": 0.999, "epsilon": 1e-8},
                         clip="clip_grad", counts=True),
}
_MIXED = ("sgd_update", "sgd_mom_update", "nag_mom_update")
"""Those that also take a float32 copy of the weight, under a name that begins with `mp_`."""


def update_function(name: str) -> Callable[..., NDArray]:
    """The function of one of `update_names()`."""
    mixed = name.startswith("mp_")
    form = _FORMS[name.removeprefix("mp_")]
    inputs = ("weight", "grad", *form.states, *(("weight32",) if mixed else ()))
    settings = {**form.before, **({"t": 1} if form.counts else {}), "wd": 0.0, "rescale_grad": 1.0, form.clip: -1.0,
                **form.after, "lazy_update": True}
    make, kind = inspect.Parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([*(make(n, kind) for n in (*inputs, "lr")),
                                   *(make(n, kind, default=value) for n, value in settings.items()),
                                   *(make(n, kind, default=None) for n in ("out", "name"))])

    def function(*args: Any, **kwargs: Any) -> NDArray:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        values = dict(given.arguments)
        arrays = {n: values.pop(n) for n in inputs}
        wrong = [n for n, array in arrays.items() if not isinstance(array, NDArray)]
        if wrong:
            raise MXNetError(f"{name}: input {wrong[0]!r} must be an NDArray, got {type(arrays[wrong[0]]).__name__}")
        out = values.pop("out")
        result = _update(form, values.pop("name") or name, arrays, values)
        weight = arrays["weight"]
        if out is None:
            return NDArray(HostStorage(result, weight.context))
        deliver(out, result, name)
        return out

    function.__name__ = function.__qualname__ = name
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = (f"The weight after one update: {inspect.getdoc(type(get_op(form.op)))}\n\nThe states change in "
                        f"place, the weight only as `out`. A negative `{form.clip}` clips nothing; `lazy_update` is "
                        f"MXNet's, for sparse gradients.")
    return function


def update_names() -> list[str]:
    """The names of all such functions."""
    return [*_FORMS, *(f"mp_{name}" for name in _MIXED)]


def _update(form: _Form, name: str, arrays: Mapping[str, NDArray], values: Mapping[str, Any]) -> np.ndarray:
    """The new weight; the states, and the float32 copy where there is one, are written."""
    op = get_op(form.op)
    assert isinstance(op, Update)
    control = np.zeros(control_size(1), np.float32)
    control[RESCALE], control[CLIP] = values["rescale_grad"], values[form.clip]
    rate = values["lr"]
    if form.counts:
        rate = rate / (1 - values["beta1"] ** values["t"])
        control[UPDATE_COUNT] = values["t"]
    control[lr_word(0)], control[lr_word(0) + 1] = rate, values["wd"]
    params = op.Params(index=0, **{key: float(values[key]) for key in (*form.before, *form.after)})
    states = [arrays[state] for state in form.states]
    weight, grad = arrays.get("weight32", arrays["weight"]), arrays["grad"].storage.read()
    if "weight32" in arrays:
        grad = grad.astype(np.float32)
    given = [weight.storage.read(), grad, *(state.storage.read() for state in states), control]
    _check(op, name, given[:-1])
    _, changed = execute(op, params, name, given, [])
    for k, state in enumerate(states):
        state.storage.write(changed[2 + k])
    if "weight32" in arrays:
        weight.storage.write(changed[0])
    return changed[0].astype(arrays["weight"].dtype, copy=False)


def _check(op: Update, name: str, arrays: Sequence[np.ndarray]) -> None:
    """MXNetError where weight, gradient and states are of several dtypes."""
    if len({array.dtype for array in arrays}) > 1:
        given = ", ".join(f"{k} {array.dtype}" for k, array in zip(("weight", "grad", *op.states), arrays, strict=True))
        raise MXNetError(f"{name}: inputs of one dtype are expected, got {given}; convert them by astype")

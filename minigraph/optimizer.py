"""Optimizers, under MXNet's names: the rule of each is one operator, used in graphs and on NDArrays alike.

Gradients are multiplied by `rescale_grad`, then clipped. SGD and NAG add the weight decay after clipping,
Adam before.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import ndarray
from .base import MXNetError
from .formats.optimizer_states import Key, OptimizerStates
from .loss_scaler import LossScaler
from .ndarray import NDArray
from .optimizer_base import Optimizer, as_tuple, create, register
from .optimizer_large_batch import LAMB, LARS, LBSGD
from .optimizer_more import DCASGD, FTML, SGLD, AdaDelta, AdaGrad, Adamax, Ftrl, Nadam, RMSProp, Signum

__all__ = ["DCASGD", "FTML", "LAMB", "LARS", "LBSGD", "NAG", "SGD", "SGLD", "AdaDelta", "AdaGrad", "Adam", "Adamax",
           "Ftrl", "LossScaler", "Nadam", "Optimizer", "RMSProp", "Signum", "Test", "Updater", "ccSGD", "create",
           "fill_states", "get_updater", "register"]


@register
class SGD(Optimizer):
    """Stochastic gradient descent, g = clip(rescale_grad * gradient).

    Without momentum w <- (1 - lr wd) w - lr g; with it m <- momentum m - lr wd w - lr g, w <- w + m.
    `lazy_update` is for sparse gradients, which there are not.
    """

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lazy_update = lazy_update

    def state_names(self) -> tuple[str, ...]:
        """The momentum, if there is any."""
        return ("mom",) if self.momentum else ()

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return ("_sgd_mom_update", {"momentum": self.momentum}) if self.momentum else ("_sgd_update", {})


@register
class ccSGD(SGD):
    """SGD under its name in old scripts."""


@register
class NAG(SGD):
    """SGD with Nesterov's momentum: d = lr (g + wd w), m <- momentum m - d, w <- w + momentum m - d.

    With decay MXNet 1.9 takes the new weight into m, since its kernel overwrites the old one before.
    """

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return ("_nag_update", {"momentum": self.momentum}) if self.momentum else ("_sgd_update", {})


@register
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), with decay inside: g = clip(rescale_grad * gradient + wd w).

    m and v are the moving means of g and g²; w <- w - lr_t m / (sqrt(v) + epsilon), where
    lr_t = lr sqrt(1 - beta2^t) / (1 - beta1^t) at update t.
    """

    DEFAULT_RATE = 0.001

    def __init__(self, learning_rate: float | None = None, beta1: float = 0.9, beta2: float = 0.999,
                 epsilon: float = 1e-8, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update

    def state_names(self) -> tuple[str, ...]:
        """Moving means of the gradient and of its square."""
        return ("mean", "var")

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_adam_update", {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}

    def _step_sizes(self, rates: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return rates * np.sqrt(1.0 - self.beta2 ** counts) / (1.0 - self.beta1 ** counts)


@register
class Test(Optimizer):
    """For tests: w <- w + rescale_grad * gradient, and the state is a copy of w. It has no graph form."""

    __test__ = False

    def create_state(self, index: Key, weight: NDArray) -> NDArray:
        """Zeros."""
        return ndarray.zeros(weight.shape, weight.context, weight.dtype)

    def update(self, index: Key, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Add the rescaled gradient."""
        weight[:] = weight + grad * self.rescale_grad
        state[:] = weight


class Updater:
    """Calls an optimizer on NDArrays and keeps the states: `updater(index, grad, weight)`."""

    def __init__(self, optimizer: Optimizer) -> None:
        optimizer.check_graph_form()
        self.optimizer = optimizer
        self.states: dict[Key, Any] = {}
        self._loaded: dict[Key, tuple[np.ndarray, ...]] = {}

    def __call__(self, index: Any, grad: Any, weight: Any) -> None:
        """Update one parameter, or several given by lists."""
        if isinstance(index, (list, tuple)):
            for each in zip(index, grad, weight, strict=True):
                self(*each)
            return
        if index not in self.states:
            self.states[index] = self._create(index, weight)
        self.optimizer.update_multi_precision(index, weight, grad, self.states[index])

    def _create(self, index: Key, weight: NDArray) -> Any:
        """States as the optimizer makes them, with the values of a states file where it has some."""
        state = self.optimizer.create_state_multi_precision(index, weight)
        loaded = self._loaded.pop(index, None)
        if loaded is not None:
            fill_states(index, as_tuple(state), loaded)
        return state

    def get_states(self, dump_optimizer: bool = False) -> bytes:
        """The states and update counts as bytes, which hold no code; `dump_optimizer` must be False."""
        if dump_optimizer:
            raise MXNetError("an optimizer itself is not saved; save its states and create it again")
        return self.optimizer.export_states(self.get_arrays())

    def get_arrays(self) -> dict[Key, Sequence[np.ndarray]]:
        """Copies of the states by parameter."""
        arrays: dict[Key, Sequence[np.ndarray]] = dict(self._loaded)
        for key, state in self.states.items():
            arrays[key] = [each.asnumpy() for each in as_tuple(state)]
        return arrays

    def set_states(self, states: bytes) -> OptimizerStates:
        """Go on from the bytes of `get_states`; each parameter's states are filled at its next update."""
        loaded = self.optimizer.import_states(states)
        self._loaded = dict(loaded.arrays)
        self.states = {}
        return loaded


def fill_states(key: Key, states: Sequence[NDArray], values: Sequence[np.ndarray]) -> None:
    """Copy saved values into a parameter's states; MXNetError names the parameter when they do not fit."""
    shapes, given = [state.shape for state in states], [value.shape for value in values]
    if shapes != given:
        raise MXNetError(f"the saved states of {key} have shapes {given}, the optimizer needs {shapes}")
    for state, value in zip(states, values, strict=True):
        state[:] = value


def get_updater(optimizer: Optimizer) -> Updater:
    """An Updater around the optimizer."""
    return Updater(optimizer)

"""Optimizers for large batches, under MXNet's names and by its rules: LAMB, LARS, and LBSGD, which accumulates."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import ndarray
from .formats.optimizer_states import Key
from .ndarray import NDArray
from .ops.control import MOMENTUM
from .optimizer_base import Optimizer, register
from .optimizer_more import NumberedUpdates

__all__ = ["LAMB", "LARS", "LBSGD"]


@register
class LAMB(NumberedUpdates):
    """Adam with a rate for each layer (You et al. 2020), g = clip(rescale_grad * gradient).

    m and v are the moving means of g and g^2, divided by 1 - beta1^t and 1 - beta2^t with `bias_correction`;
    u = m / (sqrt(v) + epsilon) + wd w, and w <- w - lr |w| / |u| u. The norm |w| is held within `lower_bound` and
    `upper_bound`; where it or |u| is 0 the step is lr u.
    """

    DEFAULT_RATE = 0.001

    def __init__(self, learning_rate: float | None = None, beta1: float = 0.9, beta2: float = 0.999,
                 epsilon: float = 1e-6, lower_bound: float | None = None, upper_bound: float | None = None,
                 bias_correction: bool = True, **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.bias_correction = bias_correction

    def state_names(self) -> tuple[str, ...]:
        """Moving means of the gradient and of its square."""
        return ("mean", "var")

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants; a bound of 0 is none, as in MXNet."""
        return "_lamb_update", {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon,
                                "lower_bound": self.lower_bound or -1.0, "upper_bound": self.upper_bound or -1.0,
                                "bias_correction": bool(self.bias_correction)}

    def _step_sizes(self, rates: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return super()._step_sizes(rates, counts) if self.bias_correction else rates


@register
class LARS(Optimizer):
    """SGD with a rate for each layer (You et al. 2017), g = rescale_grad * gradient.

    r = lr eta |w| / (|g| + wd |w| + eps), and lr where a norm is 0 or the name ends in gamma, beta or bias;
    m <- momentum m - r (clip(g) + wd w), w <- w + m. With `momentum_correction` the momentum is multiplied by the rate
    over that of the update before; MXNet does so for the first parameters of a step only. Only names that end in
    _weight decay.
    """

    DECAYED_ENDINGS = ("_weight",)

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, eta: float = 0.001, eps: float = 0,
                 momentum_correction: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lazy_update = lazy_update
        self.eta = eta
        self.eps = eps
        self.momentum_correction = momentum_correction
        self._last_rates: dict[tuple[Key, ...], float] = {}

    def state_names(self) -> tuple[str, ...]:
        """The momentum, if there is any."""
        return ("mom",) if self.momentum else ()

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_lars_mom_update" if self.momentum else "_lars_update", {"eta": self.eta, "epsilon": self.eps}

    def rule_of(self, name: str) -> tuple[str, dict[str, Any]]:
        """The rule, which leaves the rate of biases and of factors and shifts of norms as it is."""
        op, constants = self.update_rule()
        return op, {**constants, "adapts": not name.endswith(("gamma", "beta", "bias"))}

    def control(self, parameters: Sequence[Key]) -> np.ndarray:
        """As for every optimizer, with the momentum besides."""
        keys = tuple(parameters)
        words = super().control(keys)
        rate = self.learning_rate
        last = self._last_rates.get(keys, rate)
        self._last_rates[keys] = rate
        words[MOMENTUM] = self.momentum * (rate / last if self.momentum_correction and last != 0 else 1.0)
        return words


@register
class LBSGD(Optimizer):
    """SGD on gradients of `batch_scale` batches together, with a rate that grows.

    Each update adds its gradient to a sum; every `batch_scale`-th moves the weight by SGD with their mean, and the rate
    times a factor: until `warmup_epochs * updates_per_epoch` updates it grows from 1 to `batch_scale` by
    `warmup_strategy` (linear, power2, sqrt); with lars it is sqrt(|w|^2 / (|g|^2 + wd |w|^2)), within 0.01 and 100.
    The updates made before are those of `begin_epoch` epochs. It has no graph form. A scheduler is asked when an update
    has been counted, as by every optimizer; MXNet's LBSGD asks it before, for the first parameter.
    """

    STRATEGIES = ("linear", "power2", "sqrt", "lars")

    def __init__(self, momentum: float = 0.0, multi_precision: bool = False, warmup_strategy: str = "linear",
                 warmup_epochs: int = 5, batch_scale: int = 1, updates_per_epoch: int = 32, begin_epoch: int = 0,
                 num_epochs: int = 60, **kwargs: Any) -> None:
        super().__init__(multi_precision=multi_precision, **kwargs)
        if warmup_strategy not in self.STRATEGIES:
            raise ValueError(f"LBSGD: warmup_strategy={warmup_strategy!r}; it must be one of "
                             f"{', '.join(self.STRATEGIES)}")
        self.momentum = momentum
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = warmup_epochs
        self.batch_scale = batch_scale
        self.updates_per_epoch = updates_per_epoch
        self.init_updates = begin_epoch * updates_per_epoch
        self.num_epochs = num_epochs
        self._factor = 1.0

    @property
    def has_graph_form(self) -> bool:
        """False: what an update does depends on how many there were."""
        return False

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator that moves the weight, and its constants."""
        return ("_sgd_mom_update", {"momentum": self.momentum}) if self.momentum else ("_sgd_update", {})

    def create_state(self, index: Key, weight: NDArray) -> tuple[NDArray, ...]:
        """The sum of gradients, and the momentum if there is any."""
        return tuple(ndarray.zeros(weight.shape, weight.context, weight.dtype)
                     for _ in range(2 if self.momentum else 1))

    def update(self, index: Key, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Add a gradient, and update the parameter by every `batch_scale`-th."""
        total, *momentum = state
        total[:] = total + grad
        number = self._index_update_count[index] - self.begin_num_update + self.init_updates + 1
        if number % self.batch_scale:
            self._update_count(index)
            return
        mean = total / self.batch_scale
        self._factor = self._lars(index, weight, mean) if self.warmup_strategy == "lars" else self._warmed_up(number)
        super().update(index, weight, mean, momentum)
        total[:] = 0

    def _step_sizes(self, rates: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return rates * self._factor

    def _warmed_up(self, number: int) -> float:
        """The factor of the rate at an update."""
        length = self.warmup_epochs * self.updates_per_epoch
        if number >= length:
            return float(self.batch_scale)
        share = number / length
        grown = {"linear": share, "power2": share ** 2, "sqrt": share ** 0.5}[self.warmup_strategy]
        return 1 + (self.batch_scale - 1) * grown

    def _lars(self, index: Key, weight: NDArray, grad: NDArray) -> float:
        squares = [float(np.square(each.asnumpy(), dtype=np.float64).sum()) for each in (weight, grad)]
        factor = (squares[0] / (squares[1] + self._get_wd(index) * squares[0] + 1e-18)) ** 0.5
        return min(max(factor, 0.01), 100.0)

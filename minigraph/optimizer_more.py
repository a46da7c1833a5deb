"""Further optimizers under MXNet's names and by its rules: AdaGrad, RMSProp, AdaDelta, Ftrl, Adamax, Nadam, Signum,
FTML, DCASGD, SGLD.

Throughout g is the gradient times rescale_grad, clipped; where it says so, with the decay inside the clip.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import random
from .base import Builder, Entry, MXNetError
from .formats.optimizer_states import Key
from .ndarray import NDArray
from .ops.control import UPDATE_COUNT
from .optimizer_base import Optimizer, register

__all__ = ["DCASGD", "FTML", "SGLD", "AdaDelta", "AdaGrad", "Adamax", "Ftrl", "Nadam", "RMSProp", "Signum"]

NOISE_ORDINAL = 2**30
"""The place in the random sequence of the first parameter's noise, far behind those of a graph's random operators."""


class NumberedUpdates(Optimizer):
    """Base of the rules that read the number of the update, one for all parameters of a step."""

    _count = 1

    def control(self, parameters: Sequence[Key]) -> np.ndarray:
        """As for every optimizer, with the number of the update besides."""
        words = super().control(parameters)
        words[UPDATE_COUNT] = self._count
        return words

    def _step_sizes(self, rates: np.ndarray, counts: np.ndarray) -> np.ndarray:
        if counts.size and counts.min() != counts.max():
            raise MXNetError(f"{type(self).__name__}: parameters are at updates {counts.min()} to {counts.max()}, and "
                             f"one step has one number; begin with new states")
        self._count = int(counts.max(initial=1))
        return rates


@register
class AdaGrad(Optimizer):
    """AdaGrad (Duchi et al. 2011): h <- h + g^2, w <- w - lr (g / sqrt(h + eps) + wd w)."""

    def __init__(self, eps: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def state_names(self) -> tuple[str, ...]:
        """The sum of squares."""
        return ("history",)

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_adagrad_update", {"epsilon": self.float_stable_eps}


@register
class RMSProp(Optimizer):
    """RMSProp, with decay inside: g = clip(rescale_grad * gradient + wd w).

    Plain (Tieleman and Hinton 2012): n <- gamma1 n + (1 - gamma1) g^2, w <- w - lr g / sqrt(n + epsilon).
    Centered (Graves 2013): besides m <- gamma1 m + (1 - gamma1) g,
    d <- gamma2 d - lr g / sqrt(n - m^2 + epsilon), w <- w + d. `clip_weights` bounds the weights afterwards.
    """

    DEFAULT_RATE = 0.001

    def __init__(self, learning_rate: float | None = None, gamma1: float = 0.9, gamma2: float = 0.9,
                 epsilon: float = 1e-8, centered: bool = False, clip_weights: float | None = None,
                 **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.epsilon = epsilon
        self.centered = centered
        self.clip_weights = clip_weights

    def state_names(self) -> tuple[str, ...]:
        """The mean square; when centered also the mean and the last update."""
        return ("n", "mean", "delta") if self.centered else ("n",)

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        bound = -1.0 if self.clip_weights is None else self.clip_weights
        return "_rmsprop_centered_update" if self.centered else "_rmsprop_update", {
            "gamma1": self.gamma1, "gamma2": self.gamma2, "epsilon": self.epsilon, "clip_weights": bound}


@register
class AdaDelta(Optimizer):
    """AdaDelta (Zeiler 2012), which has no rate: w <- w - d - wd w, d = g sqrt(D + epsilon) / sqrt(G + epsilon).

    G and D are the moving means of g^2, taken before, and of d^2, taken after.
    """

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def state_names(self) -> tuple[str, ...]:
        """Moving means of the squares of gradients and of updates."""
        return ("acc_g", "acc_delta")

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_adadelta_update", {"rho": self.rho, "epsilon": self.epsilon}


@register
class Ftrl(Optimizer):
    """Follow the regularised leader (McMahan et al. 2013).

    z <- z + g - (sqrt(n + g^2) - sqrt(n)) w / lr, n <- n + g^2; w is 0 where |z| <= lamda1, and elsewhere
    (sign(z) lamda1 - z) / ((beta + sqrt(n)) / lr + wd). A learning rate given together with a scheduler becomes its
    base as for every optimizer, which MXNet's Ftrl leaves out.
    """

    DEFAULT_RATE = 0.1

    def __init__(self, lamda1: float = 0.01, learning_rate: float | None = None, beta: float = 1,
                 **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.lamda1 = lamda1
        self.beta = beta

    def state_names(self) -> tuple[str, ...]:
        """z, and the sum of squares."""
        return ("z", "n")

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_ftrl_update", {"lamda1": self.lamda1, "beta": self.beta}


@register
class Adamax(Optimizer):
    """Adam by the largest gradient (Kingma and Ba 2015): u <- max(beta2 u, |g|), w <- w - lr / (1 - beta1^t) m / u.

    m is the moving mean of g = clip(rescale_grad * gradient + wd w). While every gradient of an element is 0 it
    stays as it is, where MXNet makes it NaN.
    """

    DEFAULT_RATE = 0.002

    def __init__(self, learning_rate: float | None = None, beta1: float = 0.9, beta2: float = 0.999,
                 **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def state_names(self) -> tuple[str, ...]:
        """The moving mean, and the decaying bound of gradients."""
        return ("mean", "bound")

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_adamax_update", {"beta1": self.beta1, "beta2": self.beta2}

    def _step_sizes(self, rates: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return rates / (1.0 - self.beta1 ** counts)


@register
class Nadam(NumberedUpdates):
    """Adam with Nesterov's momentum (Dozat 2016), g = clip(rescale_grad * gradient + wd w).

    At update t the momentum is u_t = beta1 (1 - 0.96^(t schedule_decay) / 2) and U_t the product of all so far;
    w <- w - lr ((1 - u_t) / (1 - U_t) g + u_(t+1) / (1 - U_(t+1)) m) / (sqrt(v / (1 - beta2^t)) + epsilon).
    Each parameter has this schedule, whereas MXNet multiplies U once for each parameter of a step.
    """

    DEFAULT_RATE = 0.001

    def __init__(self, learning_rate: float | None = None, beta1: float = 0.9, beta2: float = 0.999,
                 epsilon: float = 1e-8, schedule_decay: float = 0.004, **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay

    def state_names(self) -> tuple[str, ...]:
        """Moving means of the gradient and of its square."""
        return ("mean", "var")

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_nadam_update", {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon,
                                 "schedule_decay": self.schedule_decay}


@register
class Signum(Optimizer):
    """SGD by the sign alone (Bernstein et al. 2018).

    m <- momentum m - (1 - momentum) (g + wd w), w <- (1 - lr wd_lh) w + lr sign(m); without momentum
    w <- (1 - lr wd) w - lr sign(g).
    """

    def __init__(self, learning_rate: float | None = None, momentum: float = 0.9, wd_lh: float = 0.0,
                 **kwargs: Any) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum
        self.wd_lh = wd_lh

    def state_names(self) -> tuple[str, ...]:
        """The momentum, if there is any."""
        return ("mom",) if self.momentum else ()

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        if not self.momentum:
            return "_signsgd_update", {}
        return "_signum_update", {"momentum": self.momentum, "wd_lh": self.wd_lh}


@register
class FTML(NumberedUpdates):
    """Follow the moving leader (Zheng and Kwok 2017), g = clip(rescale_grad * gradient + wd w).

    At update t: v <- beta2 v + (1 - beta2) g^2, D = (1 - beta1^t) / lr (sqrt(v / (1 - beta2^t)) + epsilon),
    z <- beta1 z + (1 - beta1) g - (D - beta1 d) w, d <- D, w <- -z / d.
    """

    def __init__(self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def state_names(self) -> tuple[str, ...]:
        """d, the moving mean of squares, and z."""
        return ("d", "v", "z")

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_ftml_update", {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}

    def _step_sizes(self, rates: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return super()._step_sizes(rates, counts) / (1.0 - self.beta1 ** counts)


@register
class DCASGD(Optimizer):
    """SGD that makes up for late gradients (Zheng et al. 2017), g = clip(rescale_grad * gradient).

    d <- momentum d - lr (g + wd w + lamda g^2 (w - w')), w <- w + d, where w' is the weight before the last update, so
    that w - w' is d. MXNet keeps w' itself, and with momentum fails.
    """

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lamda = lamda

    def state_names(self) -> tuple[str, ...]:
        """The last move of the weight."""
        return ("mom",)

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator and its constants."""
        return "_dcasgd_update", {"momentum": self.momentum, "lamda": self.lamda}


@register
class SGLD(Optimizer):
    """Langevin dynamics (Welling and Teh 2011): w <- w - lr / 2 (clip(rescale_grad * gradient) + wd w) + noise.

    The noise is normal, of variance lr. In a graph it comes from the sequence of random operators; on NDArrays from
    mx.random.
    """

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """The operator, which has no constants."""
        return "_sgld_update", {}

    def add_update(self, b: Builder, index: int, name: str, weight: Entry, gradient: Entry, states: Sequence[Entry],
                   control: Entry, scale: Entry | None, unscale: Entry | None) -> None:
        """As for every optimizer, with noise where others have a state."""
        noise = b.node("_normal_keyed", [control], shape=b.shape(weight), ordinal=NOISE_ORDINAL + index)
        super().add_update(b, index, name, weight, gradient, noise, control, scale, unscale)

    def update(self, index: Key, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a parameter in place from its gradient of the same shape; there is no state."""
        super().update(index, weight, grad, random.normal(shape=weight.shape))

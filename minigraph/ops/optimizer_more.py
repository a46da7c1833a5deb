"""Updates of weights by AdaGrad, RMSProp, AdaDelta, Ftrl, Adamax, Nadam, Signum, FTML, DCASGD and SGLD, by MXNet's
rules.

`step` below is the gradient times rescale_grad. RMSProp, Adamax, Nadam and FTML add the decay inside the clip, the
others outside. Nadam and FTML read the number of the update from a word of the control buffer.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .control import UPDATE_COUNT
from .op import Arrays, Sample, Workspace
from .optimizer import SgdParams, Update, clip_to
from .params import param
from .registry import register

Blocks = list[np.ndarray]


def _add_decay(step: np.ndarray, weight: np.ndarray, decay: Any, spare: np.ndarray) -> None:
    """step += decay * weight."""
    np.multiply(weight, decay, out=spare)
    np.add(step, spare, out=step)


def _decay_towards(old: np.ndarray, target: np.ndarray, share: float, new: np.ndarray) -> None:
    """new = share * old + (1 - share) * target; `target` is lost."""
    np.multiply(target, 1 - share, out=target)
    np.multiply(old, share, out=new)
    np.add(new, target, out=new)


def _divide_by_root(step: np.ndarray, squares: np.ndarray, epsilon: float, spare: np.ndarray) -> None:
    """step /= sqrt(squares + epsilon)."""
    np.add(squares, epsilon, out=spare)
    np.sqrt(spare, out=spare)
    np.divide(step, spare, out=step)


def _descend(old: Blocks, new: Blocks, step: np.ndarray, rate: Any) -> None:
    """weight -= rate * step."""
    np.multiply(step, rate, out=step)
    np.subtract(old[0], step, out=new[0])


@dataclass(frozen=True)
class AdaGradParams(SgdParams):
    """Parameters of an update by AdaGrad."""

    epsilon: float = param(1e-7, "float", "added to the sum of squares")


@register
class AdaGradUpdate(Update):
    """history += g^2 and weight -= lr (g / sqrt(history + epsilon) + wd weight), g = clip(rescale grad)."""

    name = "_adagrad_update"
    Params = AdaGradParams
    states = ("history",)
    scratch_count = 2

    def apply(self, p: AdaGradParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        (spare,) = scratch
        clip_to(step, clip)
        np.square(step, out=spare)
        np.add(old[1], spare, out=new[1])
        _divide_by_root(step, new[1], p.epsilon, spare)
        _add_decay(step, old[0], decay, spare)
        _descend(old, new, step, rate)


@dataclass(frozen=True)
class RmsPropParams(SgdParams):
    """Parameters of an update by RMSProp."""

    gamma1: float = param(0.9, "float", "decay of the mean square, and of the mean")
    gamma2: float = param(0.9, "float", "share of the last update that is kept, when centered")
    epsilon: float = param(1e-8, "float", "added under the root")
    clip_weights: float = param(-1.0, "float", "bound on the weights' size; negative for none")


@register
class RmsPropUpdate(Update):
    """n <- gamma1 n + (1 - gamma1) g^2 and weight -= lr g / sqrt(n + epsilon), g = clip(rescale grad + wd weight)."""

    name = "_rmsprop_update"
    Params = RmsPropParams
    states = ("n",)
    scratch_count = 2

    def apply(self, p: RmsPropParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        (spare,) = scratch
        _add_decay(step, old[0], decay, spare)
        clip_to(step, clip)
        np.square(step, out=spare)
        _decay_towards(old[1], spare, p.gamma1, new[1])
        _divide_by_root(step, new[1], p.epsilon, spare)
        _descend(old, new, step, rate)
        clip_to(new[0], p.clip_weights)


@register
class RmsPropCenteredUpdate(Update):
    """RMSProp by the variance: n and mean decay towards g^2 and g, and the weight moves by delta, where
    delta <- gamma2 delta - lr g / sqrt(n - mean^2 + epsilon) and g = clip(rescale grad + wd weight)."""

    name = "_rmsprop_centered_update"
    Params = RmsPropParams
    states = ("n", "mean", "delta")
    scratch_count = 2

    def apply(self, p: RmsPropParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        (spare,) = scratch
        _add_decay(step, old[0], decay, spare)
        clip_to(step, clip)
        np.square(step, out=spare)
        _decay_towards(old[1], spare, p.gamma1, new[1])
        np.copyto(spare, step)
        _decay_towards(old[2], spare, p.gamma1, new[2])
        np.square(new[2], out=spare)
        np.subtract(new[1], spare, out=spare)
        _divide_by_root(step, spare, p.epsilon, spare)
        np.multiply(step, rate, out=step)
        np.multiply(old[3], p.gamma2, out=new[3])
        np.subtract(new[3], step, out=new[3])
        np.add(old[0], new[3], out=new[0])
        clip_to(new[0], p.clip_weights)

    def samples(self) -> Sequence[Sample]:
        # A mean square is at least the square of the mean.
        return [Sample(s.params, s.shapes, low=0.5, high=0.6, differentiable=False) for s in super().samples()]


@dataclass(frozen=True)
class AdaDeltaParams(SgdParams):
    """Parameters of an update by AdaDelta."""

    rho: float = param(0.9, "float", "decay of both mean squares")
    epsilon: float = param(1e-5, "float", "added under both roots")


@register
class AdaDeltaUpdate(Update):
    """weight -= delta + wd weight, delta = sqrt(acc_delta + epsilon) / sqrt(acc_g + epsilon) g.

    acc_g decays towards g^2 before, acc_delta towards delta^2 after; g = clip(rescale grad). There is no rate.
    """

    name = "_adadelta_update"
    Params = AdaDeltaParams
    states = ("acc_g", "acc_delta")
    scratch_count = 2

    def apply(self, p: AdaDeltaParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        (spare,) = scratch
        clip_to(step, clip)
        np.square(step, out=spare)
        _decay_towards(old[1], spare, p.rho, new[1])
        _divide_by_root(step, new[1], p.epsilon, spare)
        np.add(old[2], p.epsilon, out=spare)
        np.sqrt(spare, out=spare)
        np.multiply(step, spare, out=step)
        np.square(step, out=spare)
        _decay_towards(old[2], spare, p.rho, new[2])
        _add_decay(step, old[0], decay, spare)
        np.subtract(old[0], step, out=new[0])


@dataclass(frozen=True)
class FtrlParams(SgdParams):
    """Parameters of an update by Ftrl."""

    lamda1: float = param(0.01, "float", "bound below which the weight is 0")
    beta: float = param(1.0, "float", "added to the root of the sum of squares")


@register
class FtrlUpdate(Update):
    """Follow the regularised leader (McMahan et al. 2013), with g = clip(rescale grad).

    z += g - (sqrt(n + g^2) - sqrt(n)) weight / lr and n += g^2; then the weight is 0 where |z| <= lamda1, and
    elsewhere (sign(z) lamda1 - z) / ((beta + sqrt(n)) / lr + wd).
    """

    name = "_ftrl_update"
    Params = FtrlParams
    states = ("z", "n")
    scratch_count = 3

    def apply(self, p: FtrlParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        spare, root = scratch
        clip_to(step, clip)
        np.sqrt(old[2], out=spare)
        np.square(step, out=root)
        np.add(old[2], root, out=new[2])
        np.sqrt(new[2], out=root)
        np.subtract(root, spare, out=spare)
        np.multiply(spare, old[0], out=spare)
        np.divide(spare, rate, out=spare)
        np.subtract(step, spare, out=step)
        np.add(old[1], step, out=new[1])
        np.add(root, p.beta, out=root)
        np.divide(root, rate, out=root)
        np.add(root, decay, out=root)
        np.absolute(new[1], out=step)
        np.subtract(step, p.lamda1, out=step)
        np.maximum(step, 0, out=step)
        np.divide(step, root, out=step)
        np.copysign(step, new[1], out=step)
        np.negative(step, out=new[0])


@dataclass(frozen=True)
class AdamaxParams(SgdParams):
    """Parameters of an update by Adamax."""

    beta1: float = param(0.9, "float", "decay of the mean")
    beta2: float = param(0.999, "float", "decay of the bound")


@register
class AdamaxUpdate(Update):
    """mean decays towards g, bound <- max(beta2 bound, |g|) and weight -= lr mean / bound, lr corrected for bias.

    g = clip(rescale grad + wd weight). Where every gradient so far was 0 the weight stays; in MXNet it is NaN.
    """

    name = "_adamax_update"
    Params = AdamaxParams
    states = ("mean", "bound")
    scratch_count = 2

    def apply(self, p: AdamaxParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        (spare,) = scratch
        _add_decay(step, old[0], decay, spare)
        clip_to(step, clip)
        np.copyto(spare, step)
        _decay_towards(old[1], spare, p.beta1, new[1])
        np.absolute(step, out=step)
        np.multiply(old[2], p.beta2, out=new[2])
        np.maximum(new[2], step, out=new[2])
        np.maximum(new[2], np.finfo(step.dtype).tiny, out=spare)
        np.divide(new[1], spare, out=step)
        _descend(old, new, step, rate)


def update_count(control: np.ndarray) -> int:
    """The number of the update that the control buffer has, 1 at the first."""
    return max(1, round(float(control[UPDATE_COUNT])))


@dataclass(frozen=True)
class NadamParams(SgdParams):
    """Parameters of an update by Nadam."""

    beta1: float = param(0.9, "float", "decay of the mean")
    beta2: float = param(0.999, "float", "decay of the mean square")
    epsilon: float = param(1e-8, "float", "added to the root of the mean square")
    schedule_decay: float = param(0.004, "float", "how fast the momentum grows")


@dataclass(frozen=True)
class _NadamStep(NadamParams):
    """Parameters of one update: besides, the factors that its number decides."""

    of_gradient: float = 1.0
    of_mean: float = 1.0
    of_squares: float = 1.0


@lru_cache(maxsize=64)
def nadam_factors(beta1: float, beta2: float, schedule_decay: float, count: int) -> tuple[float, float, float]:
    """Factors of gradient, mean and mean square at update number `count` (Dozat 2016)."""
    def momentum(t: int) -> float:
        return float(beta1 * (1 - 0.5 * 0.96 ** (t * schedule_decay)))
    schedule = 1.0
    for t in range(1, count + 1):
        schedule *= momentum(t)
        if schedule < 1e-18:        # nothing beside 1 from here on
            break
    now, following = momentum(count), momentum(count + 1)
    return (1 - now) / (1 - schedule), following / (1 - schedule * following), 1 / (1 - beta2 ** count)


@register
class NadamUpdate(Update):
    """Adam with Nesterov's momentum: weight -= lr (a g + b mean) / (sqrt(c var) + epsilon), factors by schedule.

    mean and var decay towards g and g^2 before, where g = clip(rescale grad + wd weight). Each parameter has its
    own schedule; in MXNet all parameters multiply one.
    """

    name = "_nadam_update"
    Params = NadamParams
    states = ("mean", "var")
    scratch_count = 2

    def compute(self, p: NadamParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        factors = nadam_factors(p.beta1, p.beta2, p.schedule_decay, update_count(ins[4]))
        super().compute(_NadamStep(**vars(p), of_gradient=factors[0], of_mean=factors[1], of_squares=factors[2]),
                        ins, outs, work)

    def apply(self, p: _NadamStep, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        (spare,) = scratch
        _add_decay(step, old[0], decay, spare)
        clip_to(step, clip)
        np.copyto(spare, step)
        _decay_towards(old[1], spare, p.beta1, new[1])
        np.square(step, out=spare)
        _decay_towards(old[2], spare, p.beta2, new[2])
        np.multiply(step, p.of_gradient, out=step)
        np.multiply(new[1], p.of_mean, out=spare)
        np.add(step, spare, out=step)
        np.multiply(new[2], p.of_squares, out=spare)
        np.sqrt(spare, out=spare)
        np.add(spare, p.epsilon, out=spare)
        np.divide(step, spare, out=step)
        _descend(old, new, step, rate)


@register
class SignSgdUpdate(Update):
    """weight <- (1 - lr wd) weight - lr sign(rescale grad); a sign needs no clip."""

    name = "_signsgd_update"

    def apply(self, p: SgdParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks, new: Blocks,
              scratch: Blocks) -> None:
        np.sign(step, out=step)
        np.multiply(step, rate, out=step)
        np.multiply(old[0], 1 - rate * decay, out=new[0])
        np.subtract(new[0], step, out=new[0])


@dataclass(frozen=True)
class SignumParams(SgdParams):
    """Parameters of an update by Signum."""

    momentum: float = param(0.9, "float", "share of the old momentum that is kept")
    wd_lh: float = param(0.0, "float", "decay of the weight apart from the gradient")


@register
class SignumUpdate(Update):
    """mom <- momentum mom - (1 - momentum) (clip(rescale grad) + wd weight), then
    weight <- (1 - lr wd_lh) weight + lr sign(mom)."""

    name = "_signum_update"
    Params = SignumParams
    states = ("mom",)
    scratch_count = 2

    def apply(self, p: SignumParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks,
              new: Blocks, scratch: Blocks) -> None:
        (spare,) = scratch
        clip_to(step, clip)
        _add_decay(step, old[0], decay, spare)
        np.negative(step, out=step)
        _decay_towards(old[1], step, p.momentum, new[1])
        np.sign(new[1], out=step)
        np.multiply(step, rate, out=step)
        np.multiply(old[0], 1 - rate * p.wd_lh, out=new[0])
        np.add(new[0], step, out=new[0])


@dataclass(frozen=True)
class FtmlParams(SgdParams):
    """Parameters of an update by FTML."""

    beta1: float = param(0.6, "float", "decay of the sum of gradients")
    beta2: float = param(0.999, "float", "decay of the mean square")
    epsilon: float = param(1e-8, "float", "added to the root of the mean square")


@dataclass(frozen=True)
class _FtmlStep(FtmlParams):
    """Parameters of one update: besides, the factor that its number decides."""

    of_squares: float = 1.0


@register
class FtmlUpdate(Update):
    """Follow the moving leader (Zheng and Kwok 2017), with g = clip(rescale grad + wd weight).

    v decays towards g^2; d' = (sqrt(v / (1 - beta2^t)) + epsilon) / lr at update t, lr corrected for bias;
    z <- beta1 z + (1 - beta1) g - (d' - beta1 d) weight, d <- d', weight <- -z / d.
    """

    name = "_ftml_update"
    Params = FtmlParams
    states = ("d", "v", "z")
    scratch_count = 2

    def compute(self, p: FtmlParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        of_squares = 1 / (1 - p.beta2 ** update_count(ins[5]))
        super().compute(_FtmlStep(**vars(p), of_squares=of_squares), ins, outs, work)

    def apply(self, p: _FtmlStep, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks, new: Blocks,
              scratch: Blocks) -> None:
        (spare,) = scratch
        _add_decay(step, old[0], decay, spare)
        clip_to(step, clip)
        np.square(step, out=spare)
        _decay_towards(old[2], spare, p.beta2, new[2])
        _decay_towards(old[3], step, p.beta1, new[3])
        np.multiply(new[2], p.of_squares, out=spare)
        np.sqrt(spare, out=spare)
        np.add(spare, p.epsilon, out=spare)
        np.divide(spare, rate, out=spare)
        np.multiply(old[1], p.beta1, out=step)
        np.subtract(spare, step, out=step)
        np.multiply(step, old[0], out=step)
        np.subtract(new[3], step, out=new[3])
        np.copyto(new[1], spare)
        np.divide(new[3], spare, out=step)
        np.negative(step, out=new[0])


@dataclass(frozen=True)
class DcasgdParams(SgdParams):
    """Parameters of an update by DCASGD."""

    momentum: float = param(0.0, "float", "share of the last move that is kept")
    lamda: float = param(0.04, "float", "share of the compensation for delay")


@register
class DcasgdUpdate(Update):
    """SGD that makes up for the delay of its gradients (Zheng et al. 2017), with g = clip(rescale grad).

    mom <- momentum mom - lr (g + wd weight + lamda g^2 mom), the last one being how far the weight has moved since the
    update before; weight <- weight + mom.
    """

    name = "_dcasgd_update"
    Params = DcasgdParams
    states = ("mom",)
    scratch_count = 2

    def apply(self, p: DcasgdParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks, new: Blocks,
              scratch: Blocks) -> None:
        (spare,) = scratch
        clip_to(step, clip)
        np.square(step, out=spare)
        np.multiply(spare, p.lamda, out=spare)
        np.multiply(spare, old[1], out=spare)
        np.add(step, spare, out=step)
        _add_decay(step, old[0], decay, spare)
        np.multiply(step, rate, out=step)
        np.multiply(old[1], p.momentum, out=new[1])
        np.subtract(new[1], step, out=new[1])
        np.add(old[0], new[1], out=new[0])


@register
class SgldUpdate(Update):
    """Langevin dynamics (Welling and Teh 2011): weight += sqrt(lr) noise - lr / 2 (clip(rescale grad) + wd weight).

    The noise is read where other updates have a state, and is not changed.
    """

    name = "_sgld_update"
    states = ("noise",)
    scratch_count = 2

    def outputs(self, p: SgdParams) -> tuple[str, ...]:
        return ("weight",)

    def mutates(self, p: SgdParams) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def apply(self, p: SgdParams, rate: Any, decay: Any, clip: Any, step: np.ndarray, old: Blocks, new: Blocks,
              scratch: Blocks) -> None:
        (spare,) = scratch
        clip_to(step, clip)
        _add_decay(step, old[0], decay, spare)
        np.multiply(step, rate / 2, out=step)
        np.multiply(old[1], np.sqrt(rate), out=spare)
        np.subtract(spare, step, out=step)
        np.add(old[0], step, out=new[0])

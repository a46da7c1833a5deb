"""Updates of weights whose rates follow the norms of whole tensors: LAMB and LARS, by MXNet's rules.

Two passes in blocks: the first adds the squares, in float64, the second moves the weight. What the first needs of each
element and the second again is made twice, so that no tensor is kept between them.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .control import MOMENTUM
from .op import Arrays, Workspace
from .optimizer import Settings, SgdParams, Update, clip_to
from .optimizer_more import update_count
from .params import param
from .pointwise import block_scratch, blocks
from .registry import register


@dataclass(frozen=True)
class LambParams(SgdParams):
    """Parameters of an update by LAMB."""

    beta1: float = param(0.9, "float", "decay of the mean")
    beta2: float = param(0.999, "float", "decay of the mean square")
    epsilon: float = param(1e-6, "float", "added to the root of the mean square")
    lower_bound: float = param(-1.0, "float", "least norm of the weight that counts; negative for none")
    upper_bound: float = param(-1.0, "float", "largest norm of the weight that counts; negative for none")
    bias_correction: bool = param(True, "bool", "whether to correct the means for their start at 0")


def bias_factors(p: LambParams, control: np.ndarray) -> tuple[float, float]:
    """Factors of mean and mean square at the update whose number the control buffer has."""
    if not p.bias_correction:
        return 1.0, 1.0
    count = update_count(control)
    return 1 / (1 - p.beta1 ** count), 1 / (1 - p.beta2 ** count)


def _sum_of_squares(block: np.ndarray) -> float:
    return float(np.einsum("i,i->", block, block, dtype=np.float64, casting="same_kind"))


@register
class LambUpdate(Update):
    """weight -= lr |weight| / |u| u (You et al. 2020), u = mean' / (sqrt(var') + epsilon) + wd weight.

    mean and var decay towards g and g^2 before, g = clip(rescale grad), and are mean' and var' when corrected for bias.
    |weight| is held within the bounds; where it or |u| is 0 the step is lr u.
    """

    name = "_lamb_update"
    Params = LambParams
    states = ("mean", "var")
    scratch_count = 2

    def compute(self, p: LambParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        given = Settings.of(p, ins, 2)
        if given.skips:
            return
        factors = bias_factors(p, ins[4])
        scratch = [block_scratch(work, ins[0]) for _ in range(2)]
        weights = steps = 0.0
        for weight, grad, *states in blocks(*ins[:4], *outs[1:]):
            step, spare = (s[:grad.size] for s in scratch)
            given.rescaled(grad, step)
            clip_to(step, given.clip)
            _means(p, step, spare, states[:2], states[2:])
            _direction(p, given.decay, factors, weight, states[2:], step, spare)
            weights, steps = weights + _sum_of_squares(weight), steps + _sum_of_squares(step)
        rate = given.rate * ins[0].dtype.type(trust(p, weights ** 0.5, steps ** 0.5))
        for weight, *states, new in blocks(ins[0], *outs[1:], outs[0]):
            step, spare = (s[:weight.size] for s in scratch)
            _direction(p, given.decay, factors, weight, states, step, spare)
            np.multiply(step, rate, out=step)
            np.subtract(weight, step, out=new)


def trust(p: LambParams, weight_norm: float, step_norm: float) -> float:
    """LAMB's factor of the rate."""
    if p.lower_bound >= 0:
        weight_norm = max(weight_norm, p.lower_bound)
    if p.upper_bound >= 0:
        weight_norm = min(weight_norm, p.upper_bound)
    return weight_norm / step_norm if weight_norm != 0 and step_norm != 0 else 1.0


def _means(p: LambParams, step: np.ndarray, spare: np.ndarray, old: list[np.ndarray], new: list[np.ndarray]) -> None:
    """mean and var decay towards step and step^2, which is lost."""
    np.multiply(step, 1 - p.beta1, out=spare)
    np.multiply(old[0], p.beta1, out=new[0])
    np.add(new[0], spare, out=new[0])
    np.square(step, out=step)
    np.multiply(step, 1 - p.beta2, out=step)
    np.multiply(old[1], p.beta2, out=new[1])
    np.add(new[1], step, out=new[1])


def _direction(p: LambParams, decay: Any, factors: tuple[float, float], weight: np.ndarray,
               states: list[np.ndarray], out: np.ndarray, spare: np.ndarray) -> None:
    """out = mean' / (sqrt(var') + epsilon) + decay weight."""
    np.multiply(states[1], factors[1], out=spare)
    np.sqrt(spare, out=spare)
    np.add(spare, p.epsilon, out=spare)
    np.multiply(states[0], factors[0], out=out)
    np.divide(out, spare, out=out)
    np.multiply(weight, decay, out=spare)
    np.add(out, spare, out=out)


@dataclass(frozen=True)
class LarsParams(SgdParams):
    """Parameters of an update by LARS."""

    eta: float = param(0.001, "float", "share of the weight's norm that a step has")
    epsilon: float = param(0.0, "float", "added to the norm of the step")
    adapts: bool = param(True, "bool", "whether the rate follows the norms; else the update is one of SGD")


@register
class LarsUpdate(Update):
    """weight <- weight - r (clip(g) + wd weight), g = rescale grad (You et al. 2017).

    r = lr eta |weight| / (|g| + wd |weight| + epsilon), and lr where one of the norms is 0.
    """

    name = "_lars_update"
    Params = LarsParams
    scratch_count = 2

    def compute(self, p: LarsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        states = len(self.states)
        given = Settings.of(p, ins, states)
        if given.skips:
            return
        scratch = [block_scratch(work, ins[0]) for _ in range(2)]
        rate = given.rate
        if p.adapts:
            weights = gradients = 0.0
            for weight, grad in blocks(ins[0], ins[1]):
                step = scratch[0][:grad.size]
                given.rescaled(grad, step)
                weights, gradients = weights + _sum_of_squares(weight), gradients + _sum_of_squares(step)
            rate *= ins[0].dtype.type(lars_trust(p, float(given.decay), weights ** 0.5, gradients ** 0.5))
        momentum = ins[0].dtype.type(ins[2 + states][MOMENTUM])
        for weight, grad, *rest in blocks(ins[0], ins[1], *ins[2:2 + states], *outs):
            step, spare = (s[:grad.size] for s in scratch)
            given.rescaled(grad, step)
            clip_to(step, given.clip)
            np.multiply(weight, given.decay, out=spare)
            np.add(step, spare, out=step)
            np.multiply(step, rate, out=step)
            self.move(momentum, step, [weight, *rest[:states]], rest[states:])

    def move(self, momentum: Any, step: np.ndarray, old: list[np.ndarray], new: list[np.ndarray]) -> None:
        """Move a block of the weight."""
        np.subtract(old[0], step, out=new[0])


@register
class LarsMomUpdate(LarsUpdate):
    """mom <- momentum mom - r (clip(g) + wd weight), weight <- weight + mom, r as of LARS without momentum.

    The momentum lies in a word of the control buffer, since it follows the rate.
    """

    name = "_lars_mom_update"
    states = ("mom",)

    def move(self, momentum: Any, step: np.ndarray, old: list[np.ndarray], new: list[np.ndarray]) -> None:
        np.multiply(old[1], momentum, out=new[1])
        np.subtract(new[1], step, out=new[1])
        np.add(old[0], new[1], out=new[0])


def lars_trust(p: LarsParams, decay: float, weight_norm: float, gradient_norm: float) -> float:
    """LARS's factor of the rate."""
    if weight_norm == 0 or gradient_norm == 0:
        return 1.0
    return p.eta * weight_norm / (gradient_norm + decay * weight_norm + p.epsilon)

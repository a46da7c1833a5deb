"""Activations that kernels apply in the pass of another op, by their numbers in kernels/cpu/activate.h."""
from __future__ import annotations

FUSED = {None: 0, "relu": 1, "sigmoid": 2, "tanh": 3}
"""Numbers of the activations; None is the identity."""


def keeps_zero(act_type: str | None) -> bool:
    """Whether an activation of zero is zero, so that padding stays zero."""
    return act_type != "sigmoid"

"""Random numbers: one seed for a whole run, and one host generator that is restarted with it.

Initializers and iterators draw from `generator()`; random ops on a device are keyed by `current_seed()`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from .base import dtype_of

if TYPE_CHECKING:
    from .context import Context
    from .ndarray import NDArray

_SEED_BITS = 64


class _State:
    """The seed in force and the host generator started from it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.generator = np.random.default_rng(seed)
        self.evaluations = count()


_state = _State(0)


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Restart every random number from `seed_state`; a run begun after it repeats bit for bit.

    `ctx` is MXNet's; one seed serves all devices, so it must stay "all".
    """
    global _state
    if ctx != "all":
        raise ValueError(f"one seed serves all devices: leave ctx at 'all', got {ctx!r}")
    _state = _State(int(seed_state) % 2**_SEED_BITS)


def current_seed() -> int:
    """The seed last given to `seed`, as 64 unsigned bits; 0 before the first call."""
    return _state.seed


def next_evaluation() -> int:
    """The number of the next run that evaluates, since the seed was given; those of all executors count."""
    return next(_state.evaluations)


def generator() -> np.random.Generator:
    """The host generator; ask for it anew at each use, since `seed` replaces it."""
    return _state.generator


def uniform(low: float = 0.0, high: float = 1.0, shape: int | Sequence[int] = (1,), dtype: object = "float32",
            ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """An NDArray of `shape` drawn evenly from [low, high); with `out`, its shape is used and it is filled."""
    return _deliver(lambda size: _state.generator.uniform(low, high, size), shape, dtype, ctx, out)


def normal(loc: float = 0.0, scale: float = 1.0, shape: int | Sequence[int] = (1,), dtype: object = "float32",
           ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """An NDArray of `shape` from the normal distribution of mean `loc`, deviation `scale`; `out` as above."""
    return _deliver(lambda size: _state.generator.normal(loc, scale, size), shape, dtype, ctx, out)


def _deliver(draw: Callable, shape: int | Sequence[int], dtype: object, ctx: Context | None,
             out: NDArray | None) -> NDArray:
    """The numbers as a new array, or written into `out`."""
    from . import ndarray  # ndarray offers this module as `nd.random`, hence no import at the top

    if out is not None:
        out[:] = draw(out.shape)
        return out
    return ndarray.array(draw(shape), ctx=ctx, dtype=dtype_of(dtype))

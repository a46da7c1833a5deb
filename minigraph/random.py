"""Random numbers: one seed for a whole run, and one host generator that is restarted with it.

Initializers and iterators draw from `generator()`; random ops on a device are keyed by `current_seed()`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from .base import Shape, dtype_of

if TYPE_CHECKING:
    from .context import Context
    from .ndarray import NDArray

Parameter = Union[float, "NDArray"]
Size = int | Sequence[int] | None
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


# -- samples as NDArrays -------------------------------------------------------------------------------------
def uniform(low: Parameter = 0.0, high: Parameter = 1.0, shape: Size = None, dtype: object = None,
            ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """An NDArray drawn evenly from [low, high).

    For this and all distributions: numbers as parameters give an array of `shape`, (1,) unless it is given; NDArrays,
    which must broadcast, give samples of `shape` for each of their elements, () unless it is given. With `out` that is
    filled, and says the shape. float32 unless `dtype` or `out` says otherwise.
    """
    return _sample(lambda g, size, low, high: g.uniform(low, high, size), (low, high), shape, dtype, ctx, out)


def normal(loc: Parameter = 0.0, scale: Parameter = 1.0, shape: Size = None, dtype: object = None,
           ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """From the normal distribution of mean `loc` and deviation `scale`; the rest as for `uniform`."""
    return _sample(lambda g, size, loc, scale: g.normal(loc, scale, size), (loc, scale), shape, dtype, ctx, out)


def randn(*shape: int, loc: Parameter = 0.0, scale: Parameter = 1.0, dtype: object = None,
          ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """As `normal`, with the dimensions of the shape as arguments."""
    return normal(loc, scale, shape or None, dtype, ctx, out)


def exponential(scale: Parameter = 1.0, shape: Size = None, dtype: object = None, ctx: Context | None = None,
                out: NDArray | None = None) -> NDArray:
    """From the exponential distribution of mean `scale`; the rest as for `uniform`."""
    return _sample(lambda g, size, scale: g.exponential(scale, size), (scale,), shape, dtype, ctx, out)


def gamma(alpha: Parameter = 1.0, beta: Parameter = 1.0, shape: Size = None, dtype: object = None,
          ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """From the gamma distribution of shape `alpha` and scale `beta`, of mean alpha beta; the rest as for `uniform`."""
    return _sample(lambda g, size, alpha, beta: g.gamma(alpha, beta, size), (alpha, beta), shape, dtype, ctx, out)


def poisson(lam: Parameter = 1.0, shape: Size = None, dtype: object = None, ctx: Context | None = None,
            out: NDArray | None = None) -> NDArray:
    """From the Poisson distribution of mean `lam`; the rest as for `uniform`."""
    return _sample(lambda g, size, lam: g.poisson(lam, size), (lam,), shape, dtype, ctx, out)


def negative_binomial(k: Parameter = 1, p: Parameter = 1, shape: Size = None, dtype: object = None,
                      ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """Tries of the other kind before the k-th one of probability `p`, of mean k (1 - p) / p; the rest as for `uniform`.
    """
    return _sample(lambda g, size, k, p: g.negative_binomial(k, p, size), (k, p), shape, dtype, ctx, out)


def generalized_negative_binomial(mu: Parameter = 1, alpha: Parameter = 1, shape: Size = None, dtype: object = None,
                                  ctx: Context | None = None, out: NDArray | None = None) -> NDArray:
    """Whole numbers of mean `mu` and variance mu + alpha mu^2, from a Poisson distribution whose mean is drawn from a
    gamma distribution; the rest as for `uniform`."""
    def draw(g: np.random.Generator, size: Shape, mu: Any, alpha: Any) -> np.ndarray:
        spread = np.maximum(alpha, np.finfo(np.float64).tiny)
        means = np.where(np.equal(alpha, 0), mu, g.gamma(np.minimum(1 / spread, 1e300), mu * spread, size))
        return g.poisson(means, size)
    return _sample(draw, (mu, alpha), shape, dtype, ctx, out)


def randint(low: int, high: int, shape: Size = None, dtype: object = None, ctx: Context | None = None,
            out: NDArray | None = None) -> NDArray:
    """Whole numbers drawn evenly from low, ..., high - 1; int32 unless `dtype` or `out` says otherwise."""
    return _sample(lambda g, size, low, high: g.integers(low, high, size), (low, high), shape,
                   dtype or (np.int32 if out is None else None), ctx, out)


def multinomial(data: NDArray, shape: Size = None, get_prob: bool = False, out: NDArray | None = None,
                dtype: object = "int32") -> NDArray | list[NDArray]:
    """Numbers of classes, drawn by the probabilities along the last axis of `data`, which sum to 1.

    `data` (..., classes) gives (..., *shape), one draw each unless `shape` is given; with `get_prob` a list of them and
    of the logarithms of their probabilities. ValueError for what are no probabilities.
    """
    from . import ndarray  # as in _sample

    chances = data.asnumpy().astype(np.float64)
    if (chances < 0).any() or not np.allclose(chances.sum(-1), 1, atol=1e-3):
        raise ValueError(f"multinomial takes probabilities of sum 1 along the last axis, got sums of "
                         f"{chances.sum(-1).min():g} to {chances.sum(-1).max():g}")
    each = _as_size(shape) if shape is not None else ()
    rows = chances.reshape(-1, chances.shape[-1])
    bounds = np.cumsum(rows, -1)
    drawn = np.stack([np.searchsorted(bound / bound[-1], _state.generator.random(prod(each)), side="right")
                      for bound in bounds])
    size = (1,) if chances.ndim == 1 and shape is None else chances.shape[:-1] + each
    logs, picked = np.log(np.take_along_axis(rows, drawn, 1)).reshape(size), drawn.reshape(size)
    result = out if out is not None else ndarray.array(picked, data.context, dtype)
    if out is not None:
        out[:] = picked
    return [result, ndarray.array(logs, data.context, data.dtype)] if get_prob else result


def shuffle(data: NDArray, out: NDArray | None = None) -> NDArray:
    """`data` with its rows, along axis 0, in random order; a new array unless `out` is given, which may be `data`."""
    from . import ndarray  # as in _sample

    values = _state.generator.permutation(data.asnumpy(), 0)
    if out is None:
        return ndarray.array(values, data.context, data.dtype)
    out[:] = values
    return out


def _as_size(shape: int | Sequence[int]) -> Shape:
    return tuple(int(n) for n in shape) if isinstance(shape, (tuple, list)) else (int(shape),)  # type: ignore[arg-type]


def _sample(draw: Callable, parameters: Sequence[Parameter], shape: Size, dtype: object, ctx: Context | None,
            out: NDArray | None) -> NDArray:
    """The numbers as a new array, or written into `out`; `draw` takes the generator, a size and the parameters."""
    from . import ndarray  # ndarray offers this module as `nd.random`, hence no import at the top

    arrays = [p for p in parameters if isinstance(p, ndarray.NDArray)]
    values = [p.asnumpy() if isinstance(p, ndarray.NDArray) else p for p in parameters]
    if arrays:
        each = () if shape is None else _as_size(shape)
        front = np.broadcast_shapes(*(np.shape(v) for v in values))
        values = [np.broadcast_to(v, front).reshape(front + (1,) * len(each)) for v in values]
        size = front + each
    else:
        size = out.shape if out is not None else (1,) if shape is None else _as_size(shape)
    numbers = draw(_state.generator, size, *values)
    if out is not None:
        out[:] = numbers
        return out
    context = arrays[0].context if arrays and ctx is None else ctx
    return ndarray.array(numbers, context, dtype_of(np.float32 if dtype is None else dtype))

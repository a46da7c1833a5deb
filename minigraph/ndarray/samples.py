"""What mx.random draws, by the names and parameters of MXNet's operators: `mx.nd.sample_normal(mu, sigma)`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import random
from .array import NDArray


def _of_rate(lam: Any = 1.0, shape: random.Size = None, dtype: Any = None, ctx: Any = None,
             out: NDArray | None = None) -> NDArray:
    """From the exponential distribution of rate `lam`, of mean 1 / lam; the rest as for `mx.random.uniform`."""
    return random.exponential(1 / lam, shape, dtype, ctx, out)


def _of_mu_and_sigma(mu: Any = 0.0, sigma: Any = 1.0, shape: random.Size = None, dtype: Any = None, ctx: Any = None,
                     out: NDArray | None = None) -> NDArray:
    """From the normal distribution of mean `mu` and deviation `sigma`; the rest as for `mx.random.uniform`."""
    return random.normal(mu, sigma, shape, dtype, ctx, out)


SAMPLES: dict[str, Callable[..., Any]] = {
    "random_exponential": _of_rate, "random_randint": random.randint, "sample_exponential": _of_rate,
    "sample_multinomial": random.multinomial, "sample_normal": _of_mu_and_sigma, "sample_uniform": random.uniform,
    "shuffle": random.shuffle,
    **{f"{how}_{name}": getattr(random, name) for how in ("random", "sample")
       for name in ("gamma", "poisson", "negative_binomial", "generalized_negative_binomial")}}
"""The functions by name, which serve where no operator is named so."""

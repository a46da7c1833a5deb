"""What MXNet's tests take from mx.test_utils: checks of arrays and symbols, random shapes, and small helpers."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn

import numpy as np

from . import ndarray, random
from .array_checks import (
    almost_equal,
    as_numpy,
    assert_allclose,
    assert_almost_equal,
    assert_almost_equal_ignore_nan,
    assert_almost_equal_with_err,
    assign_each,
    assign_each2,
    collapse_sum_like,
    compare_ndarray_tuple,
    default_atols,
    default_rtols,
    effective_dtype,
    get_atol,
    get_etol,
    get_rtol,
    get_tolerance,
    get_tols,
    np_reduce,
    same,
    same_array,
)
from .base import Shape
from .context import Context, current_context, num_gpus, set_default
from .ndarray import NDArray
from .symbol_checks import (
    check_consistency,
    check_numeric_gradient,
    check_symbolic_backward,
    check_symbolic_forward,
    default_numeric_eps,
    numeric_grad,
    simple_forward,
)

__test__ = False
__all__ = ["almost_equal", "assert_allclose", "assert_almost_equal", "assert_almost_equal_ignore_nan",
           "assert_almost_equal_with_err", "assert_exception", "assign_each", "assign_each2", "check_consistency",
           "check_numeric_gradient", "check_symbolic_backward", "check_symbolic_forward", "collapse_sum_like",
           "compare_ndarray_tuple", "compare_optimizer", "create_2d_tensor", "create_vector", "default_atols",
           "default_context", "default_dtype", "default_numeric_eps", "default_rtols", "download", "effective_dtype",
           "environment", "gen_buckets_probs_with_ppf", "get_atol", "get_etol", "get_rtol", "get_tolerance",
           "get_tols", "is_cd_run", "is_op_runnable", "list_gpus", "mean_check", "np_reduce", "numeric_grad",
           "rand_coord_2d", "rand_ndarray", "rand_shape_2d", "rand_shape_3d", "rand_shape_nd", "random_arrays",
           "random_sample", "random_uniform_arrays", "retry", "same", "same_array", "same_symbol_structure",
           "set_default_context", "simple_forward", "var_check"]


def default_context() -> Context:
    """The context that checks run on: the innermost `with`, else what `set_default_context` was given, else cpu()."""
    return current_context()


def set_default_context(ctx: Context) -> None:
    """Make a context that of whatever is made outside of every `with`, in this thread."""
    set_default(ctx)


def default_dtype() -> type:
    """float32."""
    return np.float32


# -- random shapes and values --------------------------------------------------------------------------------
def rand_shape_nd(num_dim: int, dim: int | Sequence[int] = 10, allow_zero_size: bool = False) -> Shape:
    """A shape of `num_dim` dimensions, each from 1, or 0 with `allow_zero_size`, to `dim`."""
    return tuple(int(n) for n in random.generator().integers(0 if allow_zero_size else 1, np.add(dim, 1), num_dim))


def rand_shape_2d(dim0: int = 10, dim1: int = 10, allow_zero_size: bool = False) -> Shape:
    """A shape (1 … dim0, 1 … dim1)."""
    return rand_shape_nd(2, (dim0, dim1), allow_zero_size)


def rand_shape_3d(dim0: int = 10, dim1: int = 10, dim2: int = 10, allow_zero_size: bool = False) -> Shape:
    """A shape (1 … dim0, 1 … dim1, 1 … dim2)."""
    return rand_shape_nd(3, (dim0, dim1, dim2), allow_zero_size)


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[int, int]:
    """Two whole numbers, the first in [x_low, x_high) and the second in [y_low, y_high)."""
    draw = random.generator()
    return int(draw.integers(x_low, x_high)), int(draw.integers(y_low, y_high))


def rand_ndarray(shape: Shape, stype: str = "default", density: float | None = None, dtype: Any = None,
                 modifier_func: Callable | None = None, shuffle_csr_indices: bool = False,
                 distribution: str | None = None, ctx: Context | None = None) -> NDArray:
    """Values drawn evenly from [-1, 1). All that concerns sparse types must stay as it is, `density` means nothing."""
    ndarray.creation.refuse_sparse(stype)
    if modifier_func is not None or shuffle_csr_indices or distribution is not None:
        raise ValueError("modifier_func, shuffle_csr_indices and distribution are for sparse arrays; leave them out")
    return ndarray.array(random.generator().uniform(-1, 1, shape), ctx, dtype).reshape(shape)


def random_arrays(*shapes: Shape) -> Any:
    """NumPy arrays of normal numbers in float32, a number for the shape (): a list, or the one there is."""
    arrays = [np.float32(random.generator().normal()) if not shape
              else random.generator().normal(size=shape).astype(np.float32) for shape in shapes]
    return arrays[0] if len(arrays) == 1 else arrays


def random_uniform_arrays(*shapes: Shape, low: float = 0.0, high: float = 1.0, dtype: Any = "float32",
                          ) -> list[np.ndarray]:
    """NumPy arrays of numbers drawn evenly from [low, high)."""
    return [np.asarray(random.generator().uniform(low, high, shape)).astype(dtype) for shape in shapes]


def random_sample(population: Sequence[Any], k: int) -> list[Any]:
    """`k` different members of a sequence, in random order."""
    return [population[int(n)] for n in random.generator().permutation(len(population))[:k]]


def create_2d_tensor(rows: int, columns: int, dtype: Any = np.int64) -> NDArray:
    """A matrix whose rows hold their number."""
    return ndarray.array(np.repeat(np.arange(rows)[:, None], columns, 1), dtype=dtype)


def create_vector(size: int, dtype: Any = np.int64) -> NDArray:
    """0, ..., size - 1."""
    return ndarray.array(np.arange(size), dtype=dtype)


def mean_check(generator: Callable[[int], Any], mu: float, sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the mean of so many samples lies within three of its standard deviations of `mu`."""
    mean = as_numpy(generator(nsamples)).astype(np.float64).mean()
    return bool(abs(mean - mu) < 3 * sigma / nsamples ** 0.5)


def var_check(generator: Callable[[int], Any], sigma: float, nsamples: int = 1000000) -> bool:
    """Whether the variance of so many normal samples lies within three of its standard deviations of sigma^2."""
    variance = as_numpy(generator(nsamples)).astype(np.float64).var(ddof=1)
    return bool(abs(variance - sigma ** 2) < 3 * (2 * sigma ** 4 / (nsamples - 1)) ** 0.5)


def gen_buckets_probs_with_ppf(ppf: Callable[[float], float], nbuckets: int,
                               ) -> tuple[list[tuple[float, float]], list[float]]:
    """Intervals of equal probability, from a distribution's inverse of the cumulative one, and that probability."""
    if nbuckets < 1:
        raise ValueError(f"a distribution is parted into one interval or more, got {nbuckets}")
    bounds = [ppf(k / nbuckets) for k in range(nbuckets + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True)), [1.0 / nbuckets] * nbuckets


def compare_optimizer(opt1: Any, opt2: Any, shapes: Any, dtype: Any, w_stype: str = "default",
                      g_stype: str = "default", rtol: float = 1e-4, atol: float = 1e-5, compare_states: bool = True,
                      ntensors: int = 1) -> None:
    """Compare the weights and states that two optimizers make of the same random weight and gradient.

    `shapes` is one shape, or a list of `ntensors`; each is updated once, as number 0, 1, ...
    """
    for stype in (w_stype, g_stype):
        ndarray.creation.refuse_sparse(stype)
    for index, shape in enumerate([shapes] if ntensors == 1 and not isinstance(shapes, list) else shapes):
        weight, gradient = (rand_ndarray(shape, dtype=dtype) for _ in range(2))
        weights = weight.copy(), weight.copy()
        states = [opt.create_state_multi_precision(index, w) for opt, w in zip((opt1, opt2), weights, strict=True)]
        if compare_states:
            compare_ndarray_tuple(states[0], states[1])
        for opt, w, state in zip((opt1, opt2), weights, states, strict=True):
            opt.update_multi_precision(index, w, gradient.copy(), state)
        if compare_states:
            compare_ndarray_tuple(states[0], states[1], rtol, atol)
        assert_almost_equal(weights[0], weights[1], rtol, atol, ("the weight of opt1", "of opt2"))


# -- helpers -------------------------------------------------------------------------------------------------
def assert_exception(f: Callable[..., Any], exception_type: type[BaseException], *args: Any, **kwargs: Any) -> None:
    """AssertionError unless the call raises that exception."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} did not raise {exception_type.__name__}")


def retry(n: int) -> Callable[[Callable], Callable]:
    """Decorator: run a test that draws random numbers up to `n` times, until it passes once."""
    if n < 1:
        raise ValueError(f"a test is run at least once, got {n}")

    def decorate(test: Callable) -> Callable:
        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            for left in reversed(range(n)):
                try:
                    test(*args, **kwargs)
                    return
                except AssertionError:
                    if not left:
                        raise
        return run
    return decorate


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Set environment variables inside `with`: a name and a value, or a dict of them; None removes one."""
    wanted = {args[0]: args[1]} if len(args) == 2 else dict(args[0])
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)


def same_symbol_structure(sym1: Any, sym2: Any) -> bool:
    """Whether two symbols have the same operators connected in the same way, whatever their names."""
    def structure(symbol: Any) -> tuple[list, list]:
        number = {node: k for k, node in enumerate(symbol.nodes())}
        return ([(node.op, [(number[child], k) for child, k in node.inputs]) for node in number],
                [(number[node], k) for node, k in symbol.outputs])
    return structure(sym1) == structure(sym2)


def list_gpus() -> list[int]:
    """Numbers of the GPUs that can be used."""
    return list(range(num_gpus()))


def is_cd_run() -> bool:
    """False: no run here is one of MXNet's continuous delivery."""
    return False


def is_op_runnable() -> bool:
    """True: no operator needs a GPU of a certain kind."""
    return True


def download(*args: Any, **kwargs: Any) -> NoReturn:
    """Not there: nothing is fetched from a network; RuntimeError."""
    raise RuntimeError("test_utils.download is not supported: nothing here fetches files; give the path of one")

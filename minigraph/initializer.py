"""Initializers: how a parameter gets its first value, by its attributes and its name; also `mx.init`.

Called as `initializer(InitDesc(name, attrs), arr)`. An attribute `__init__`, such as '["xavier", {}]',
decides alone; otherwise the name's ending does. Random numbers come from `minigraph.random`, so that
`mx.random.seed(n)` repeats a run.
"""
from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod, sqrt
from typing import Any

import numpy as np

from . import ndarray, random
from .base import REAL_KINDS, MXNetError
from .ndarray import NDArray
from .settings import SettingError, checks_numbers

_registry: dict[str, type[Initializer]] = {}


class InitDesc(str):
    """A parameter's name that carries its attributes and the initializer that was asked first."""

    attrs: Mapping[str, str]
    global_init: Initializer | None

    def __new__(cls, name: str, attrs: Mapping[str, str] | None = None,
                global_init: Initializer | None = None) -> InitDesc:
        desc = super().__new__(cls, name)
        desc.attrs = attrs or {}
        desc.global_init = global_init
        return desc


def register(cls: type[Initializer]) -> type[Initializer]:
    """Class decorator: make the initializer known to `create` by its class name in lower case."""
    _registry[cls.__name__.lower()] = cls
    return checks_numbers(cls)


def alias(*names: str) -> Callable:
    """Class decorator: further names for `create`."""
    def add(cls: type[Initializer]) -> type[Initializer]:
        _registry.update({name.lower(): cls for name in names})
        return cls

    return add


def create(init: str | Initializer, **kwargs: Any) -> Any:
    """An initializer from a name in any case with its arguments, from the text that `dumps` gives, or itself.

    MXNetError names the known ones if there is none of that name.
    """
    if not isinstance(init, str):
        return init
    if init.lstrip().startswith("["):
        init, kwargs = _parse(init)
    if init.lower() not in _registry:
        raise MXNetError(f"no initializer is called {init!r}; known are {', '.join(sorted(_registry))}")
    return _registry[init.lower()](**kwargs)


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments from '["name", {arguments}]'."""
    try:
        name, kwargs = json.loads(text)
        return str(name), dict(kwargs)
    except (ValueError, TypeError) as error:
        raise MXNetError(f"{text!r} is no initializer; write '[\"name\", {{arguments}}]'") from error


class Initializer:
    """The base: decides by attribute and name; subclasses say what a weight gets."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[np.ndarray], str] = _root_mean_square

    def set_verbosity(self, verbose: bool = False, print_func: Callable | None = None) -> Initializer:
        """Log each initialization with a statistic of its result (default: norm / sqrt(size))."""
        self._verbose = verbose
        self._print_func = print_func or _root_mean_square
        return self

    def dumps(self) -> str:
        """JSON from which `create` makes an equal initializer, such as '["uniform", {"scale": 0.07}]'."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Initializer):
            return NotImplemented
        return type(self) is type(other) and self._kwargs == other._kwargs

    __hash__ = object.__hash__

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Set `arr`; ValueError if neither attributes nor name say how."""
        if not isinstance(desc, InitDesc):
            self._init_by_old_name(desc, arr)
            return
        if desc.global_init is None:
            desc.global_init = self
        own = desc.attrs.get("__init__", "")
        if own:
            create(own)._init_weight(desc, arr)
            self._log(desc, own, arr)
        else:
            self._init_by_name(desc, arr)

    def _init_by_name(self, desc: str, arr: NDArray) -> None:
        for ending, method in _METHOD_BY_ENDING.items():
            if desc.endswith(ending):
                getattr(self, method)(desc, arr)
                self._log(desc, ending, arr)
                return
        self._init_default(desc, arr)

    def _init_by_old_name(self, name: str, arr: NDArray) -> None:
        """For a plain string, which has no attributes: some auxiliary states are known by name too."""
        if not isinstance(name, str):
            raise TypeError(f"an initializer needs a parameter name, got {type(name).__name__}")
        if name.startswith("upsampling"):
            Bilinear()._init_weight(name, arr)
        elif name.endswith(("moving_mean", "moving_inv_var", "moving_avg")):
            arr[:] = 0
        elif name.endswith("moving_var"):
            arr[:] = 1
        else:
            self._init_by_name(name, arr)

    def _log(self, desc: str, how: str, arr: NDArray) -> None:
        if self._verbose:
            logging.info("Initialized %s as %s: %s", desc, how, self._print_func(arr.asnumpy()))

    def _init_weight(self, name: str, arr: NDArray) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how to initialize {name}")

    def _init_zero(self, name: str, arr: NDArray) -> None:
        arr[:] = 0

    def _init_one(self, name: str, arr: NDArray) -> None:
        arr[:] = 1

    def _init_bias(self, name: str, arr: NDArray) -> None:
        arr[:] = 0

    def _init_default(self, name: str, arr: NDArray) -> None:
        raise ValueError(f"Unknown initialization pattern for {name}: only names that end in "
                         f"{', '.join(_METHOD_BY_ENDING)} have a rule; give the variable an init= of its own")


_METHOD_BY_ENDING = {"weight": "_init_weight", "bias": "_init_bias", "gamma": "_init_one",
                     "beta": "_init_zero", "min": "_init_zero", "max": "_init_one"}


def _root_mean_square(values: np.ndarray) -> str:
    return str(np.linalg.norm(values) / sqrt(values.size))


def _uniform(arr: NDArray, scale: float) -> None:
    arr[:] = random.generator().uniform(-abs(scale), abs(scale), arr.shape)


def _normal(arr: NDArray, sigma: float) -> None:
    arr[:] = random.generator().normal(0, abs(sigma), arr.shape)


@register
@alias("zeros")
class Zero(Initializer):
    """Zeros."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 0


@register
@alias("ones")
class One(Initializer):
    """Ones."""

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = 1


@register
class Constant(Initializer):
    """A number, or an array of the parameter's shape."""

    def __init__(self, value: Any) -> None:
        super().__init__(value=value.tolist() if isinstance(value, np.ndarray) else
                         value.asnumpy().tolist() if isinstance(value, NDArray) else value)
        if np.asarray(self._kwargs["value"]).dtype.kind not in REAL_KINDS:
            raise SettingError(f"Constant: value is {value!r}; it must be a number, or an array of numbers")
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value


@register
class Uniform(Initializer):
    """Even over [-scale, scale)."""

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _uniform(arr, self.scale)


@register
class Normal(Initializer):
    """Normal with mean 0 and deviation sigma."""

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, name: str, arr: NDArray) -> None:
        _normal(arr, self.sigma)


@register
class Orthogonal(Initializer):
    """`scale` times a matrix with orthonormal rows or columns, whichever are fewer (Saxe et al. 2013).

    The matrix is (shape[0], product of the rest), from the singular vectors of a random one.
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        if rand_type not in ("uniform", "normal"):
            raise ValueError(f"rand_type must be 'uniform' or 'normal', got {rand_type!r}")
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, name: str, arr: NDArray) -> None:
        size = (arr.shape[0], prod(arr.shape[1:]))
        draw = random.generator()
        start = draw.uniform(-1, 1, size) if self.rand_type == "uniform" else draw.normal(0, 1, size)
        left, _, right = np.linalg.svd(start, full_matrices=False)
        arr[:] = (self.scale * (left if left.shape == size else right)).reshape(arr.shape)


@register
class Xavier(Initializer):
    """Scale sqrt(magnitude / factor), the factor being a fan: "in", "out", or "avg", their mean (Glorot
    2010).

    For shape (n, c, *kernel): fan in = c * prod(kernel), fan out = n * prod(kernel). `rnd_type` "uniform"
    draws from [-scale, scale), "gaussian" has deviation `scale`.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        if rnd_type not in ("uniform", "gaussian"):
            raise ValueError(f"rnd_type must be 'uniform' or 'gaussian', got {rnd_type!r}")
        if factor_type not in ("avg", "in", "out"):
            raise ValueError(f"factor_type must be 'avg', 'in' or 'out', got {factor_type!r}")
        if magnitude < 0:
            raise SettingError(f"{type(self).__name__}: magnitude is {magnitude!r}; it must be 0 or more")
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) < 2:
            raise ValueError(f"{type(self).__name__} needs 2 or more dimensions, {name} has {arr.shape}")
        kernel = prod(arr.shape[2:])
        fan_in, fan_out = arr.shape[1] * kernel, arr.shape[0] * kernel
        factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = sqrt(self.magnitude / factor)
        (_uniform if self.rnd_type == "uniform" else _normal)(arr, scale)


@register
class MSRAPrelu(Xavier):
    """Gaussian Xavier of magnitude 2 / (1 + slope²), for leaky rectifiers of that slope (He et al. 2015)."""

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Bilinear(Initializer):
    """The kernel (…, h, w) by which a transposed convolution interpolates linearly, alike in all channels."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if len(arr.shape) != 4:
            raise ValueError(f"Bilinear needs a kernel of 4 dimensions, {name} has shape {arr.shape}")
        height, width = arr.shape[2:]
        factor = ceil(width / 2)
        centre = (2 * factor - 1 - factor % 2) / (2 * factor)
        row = 1 - np.abs(np.arange(height) / factor - centre)
        column = 1 - np.abs(np.arange(width) / factor - centre)
        arr[:] = np.broadcast_to(np.outer(row, column), arr.shape)


@register
class LSTMBias(Initializer):
    """Zeros, and `forget_bias` in the second quarter, which is the forget gate's (Jozefowicz et al. 2015)."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        values = np.zeros(arr.shape)
        hidden = arr.shape[0] // 4
        values[hidden:2 * hidden] = self.forget_bias
        arr[:] = values

    _init_bias = _init_weight  # so that it also works without an `__init__` attribute


_FUSED_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def fused_size(features: int, num_hidden: int, num_layers: int, mode: str, bidirectional: bool) -> int:
    """Elements of the parameter vector of the operator RNN for inputs of so many features."""
    rows, directions = _FUSED_GATES[mode] * num_hidden, 2 if bidirectional else 1
    return rows * directions * (features + (num_layers - 1) * num_hidden * directions + num_layers * (num_hidden + 2))


def fused_pieces(vector: np.ndarray, num_hidden: int, num_layers: int, mode: str,
                 bidirectional: bool) -> dict[str, np.ndarray]:
    """Views of the weights and biases in the operator's vector, by names such as `l0_i2h_weight`, `r1_h2h_bias`."""
    rows, sides = _FUSED_GATES[mode] * num_hidden, ("l", "r") if bidirectional else ("l",)
    rest = fused_size(0, num_hidden, num_layers, mode, bidirectional)
    features = (vector.size - rest) // (rows * len(sides))
    shapes: dict[str, tuple[int, ...]] = {
        f"{side}{layer}_{group}_weight": (rows, num_hidden if group == "h2h" else width)
        for layer in range(num_layers) for width in [num_hidden * len(sides) if layer else features]
        for side in sides for group in ("i2h", "h2h")}
    shapes.update({name.replace("weight", "bias"): (rows,) for name in list(shapes)})
    pieces, at = {}, 0
    for name, shape in shapes.items():
        pieces[name] = vector[at:at + prod(shape)].reshape(shape)
        at += prod(shape)
    if at != vector.size:
        raise MXNetError(f"{vector.size} elements fit no {num_layers} layers of {num_hidden} units ({mode})")
    return pieces


@register
class FusedRNN(Initializer):
    """The parameter vector of the operator RNN: `init` (default: the initializer that was asked first) for each
    weight, zeros for the biases, and `forget_bias` for the forget gates of lstm."""

    def __init__(self, init: str | Initializer | None, num_hidden: int, num_layers: int, mode: str,
                 bidirectional: bool = False, forget_bias: float = 1.0) -> None:
        chosen = init.dumps() if isinstance(init, Initializer) else init
        super().__init__(init=chosen, num_hidden=num_hidden, num_layers=num_layers, mode=mode,
                         bidirectional=bidirectional, forget_bias=forget_bias)
        self._init = None if init is None else create(init)
        self._form = num_hidden, num_layers, mode, bidirectional
        self._forget_bias = forget_bias if mode == "lstm" else 0.0

    def _init_weight(self, name: str, arr: NDArray) -> None:
        vector: np.ndarray = np.zeros(arr.shape, arr.dtype)
        num_hidden = self._form[0]
        chosen = self._init or getattr(name, "global_init", None) or Uniform()
        for piece_name, piece in fused_pieces(vector, *self._form).items():
            if piece_name.endswith("weight"):
                value = ndarray.zeros(piece.shape)
                chosen(InitDesc(piece_name), value)
                piece[:] = value.asnumpy()
            elif "i2h" in piece_name:
                piece[num_hidden:2 * num_hidden] = self._forget_bias
        arr[:] = vector


class Load:
    """Values from a .params file or a dict, by name without "arg:" or "aux:"; else `default_init` is asked.

    ValueError for a value of the wrong shape, or a missing one without `default_init`.
    """

    def __init__(self, param: str | os.PathLike | Mapping[str, NDArray],
                 default_init: Callable[[str, NDArray], None] | None = None, verbose: bool = False) -> None:
        loaded = param if isinstance(param, Mapping) else ndarray.load(param)
        if not isinstance(loaded, Mapping):
            raise MXNetError(f"{param} holds a list of unnamed arrays; Load needs named ones")
        self.param = {re.sub("^(arg|aux):", "", name): value for name, value in loaded.items()}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        """Set `arr` to the value of that name."""
        if name in self.param:
            value = self.param[name]
            if tuple(value.shape) != arr.shape:
                raise ValueError(f"{name} has shape {arr.shape}, but the loaded value {tuple(value.shape)}")
            arr[:] = value
        elif self.default_init is None:
            raise ValueError(f"{name} is not among the loaded parameters and there is no default_init")
        else:
            self.default_init(name, arr)
        if self.verbose:
            logging.info("Initialized %s by %s", name, "loading" if name in self.param else "default")


class Mixed:
    """The first initializer whose regular expression matches the beginning of the name."""

    def __init__(self, patterns: Sequence[str],
                 initializers: Sequence[Callable[[str, NDArray], None]]) -> None:
        if len(patterns) != len(initializers):
            raise ValueError(f"{len(patterns)} patterns for {len(initializers)} initializers")
        self.map = [(re.compile(pattern), init) for pattern, init in zip(patterns, initializers, strict=True)]

    def __call__(self, name: str, arr: NDArray) -> None:
        """Set `arr`; ValueError if no pattern matches."""
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        raise ValueError(f"{name} matches no pattern of Mixed; add '.*' with a default at the end")

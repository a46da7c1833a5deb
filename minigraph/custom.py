"""Operators of one's own: `minigraph.register`, and what a class needs to be one.

    import numpy as np
    import minigraph as mx

    @mx.register
    class Cube(mx.Op):
        \"\"\"data ** 3.\"\"\"

        name = "cube"

        def compute(self, p, ins, outs, work):
            np.power(ins[0], 3, out=outs[0])

        def gradient(self, b, p, ins, outs, grads, wanted):
            square = b.node("elemwise_mul", [ins[0], ins[0]])[0]
            slope = b.node("_mul_scalar", [square], scalar=3.0)[0]
            return [b.node("elemwise_mul", [grads[0], slope])[0]]

        def inplace(self, p):
            return ((0, 0),)            # output 0 may overwrite input 0

    y = mx.sym.cube(mx.sym.Variable("x"), name="y")

`Op` tells every member that may be overridden and what it defaults to. Parameters are a frozen dataclass whose fields
are made by `param`; it is the class's `Params`. Backward operators are registered in the same way, under names that
begin with an underscore. NumPy alone is enough to run on the CPU; on a GPU binding refuses an operator that has no
CUDA kernel.
"""
from __future__ import annotations

import dataclasses
from typing import TypeVar

from . import ops  # noqa: F401 - fills the registry, so that taken names are known
from .base import MXNetError
from .ops import registry
from .ops.guard import guard
from .ops.op import RECOMPUTE, Op
from .ops.params import REQUIRED, param

__all__ = ["REQUIRED", "Op", "param", "register"]

T = TypeVar("T", bound=type[Op])


def register(cls: T) -> T:
    """Class decorator: make an operator known to symbols, gradient, planner and the CPU under its `name`.

    Everything about it is in the class, a subclass of `Op`, of which one instance is made. MXNetError when the name is
    no identifier or is taken, when `compute` (or `expand`) is missing, or when `Params` is not what `param` describes.
    What a member raises later, or returns wrongly, reaches the caller as an MXNetError that names node, operator and
    member, with what was raised as its cause.
    """
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise TypeError(f"register takes a class derived from minigraph.Op, got {cls!r}")
    if not isinstance(cls.aliases, tuple):
        raise MXNetError(f"operator class {cls.__name__}: aliases is {cls.aliases!r}; it must be a tuple of names")
    for name in (getattr(cls, "name", None), *cls.aliases):
        if not isinstance(name, str) or not name.isidentifier():
            raise MXNetError(f"operator class {cls.__name__} needs a name that is an identifier, got {name!r}")
    if cls.compute is Op.compute and cls.expand is Op.expand:
        raise MXNetError(f"operator {cls.name} defines no compute(self, p, ins, outs, work), which writes its outputs")
    _check_params(cls)
    _check_declarations(cls)
    registry.register(cls)
    guard(registry.get_op(cls.name))
    return cls


def _check_declarations(cls: type[Op]) -> None:
    """What a class declares without a member function."""
    if cls.recompute not in RECOMPUTE:
        raise MXNetError(f"operator {cls.name}: recompute is {cls.recompute!r}; it must be one of "
                         f"{', '.join(RECOMPUTE)}")
    for name in ("pointwise", "moves", "as_stored", "has_stages"):
        if not isinstance(getattr(cls, name), bool):
            raise MXNetError(f"operator {cls.name}: {name} is {getattr(cls, name)!r}; it must be True or False")
    if not isinstance(cls.looks_up, tuple) or not all(isinstance(k, int) for k in cls.looks_up):
        raise MXNetError(f"operator {cls.name}: looks_up is {cls.looks_up!r}; it must be a tuple of numbers of inputs")
    if cls.transfer is not None:
        raise MXNetError(f"operator {cls.name}: transfer is {cls.transfer!r}; only the framework's own operators move "
                         f"values between memories, so leave it None")


def _check_params(cls: type[Op]) -> None:
    params = cls.Params
    if not dataclasses.is_dataclass(params) or not params.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise MXNetError(f"operator {cls.name}: Params must be a frozen dataclass, which can be hashed")
    for field in dataclasses.fields(params):
        if "kind" not in field.metadata:
            raise MXNetError(f"operator {cls.name}: parameter {field.name!r} must be declared as "
                             f"{field.name}: type = param(default, kind, doc)")

"""Numbers that optimizers, initializers and schedules are made with: what is none is refused when they are made."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

import numpy as np

from .base import MXNetError

T = TypeVar("T", bound=type)
_NUMBERS = {"float": False, "int": False, "float | None": True, "int | None": True}
"""Annotations of parameters that take a number, and whether they take None, too."""


class SettingError(MXNetError, ValueError):
    """Something was made with what it cannot be made with."""


def checks_numbers(cls: T) -> T:
    """Class decorator: arguments that the constructor annotates as numbers are numbers, and no NaN; SettingError with
    the class, the argument and its value for anything else."""
    init = vars(cls).get("__init__")
    if init is None:
        return cls
    numbers = {name: _NUMBERS[parameter.annotation] for name, parameter in signature(init).parameters.items()
               if isinstance(parameter, Parameter) and parameter.annotation in _NUMBERS}
    if numbers:
        cls.__init__ = _checked(init, numbers)  # type: ignore[misc]
    return cls


def _checked(init: Callable[..., None], numbers: dict[str, bool]) -> Callable[..., None]:
    """A constructor that looks at its numbers first; what does not fit the signature is left to it."""
    positions = list(signature(init).parameters)

    @wraps(init)
    def checked(*args: Any, **kwargs: Any) -> None:
        for name, value in (*zip(positions, args, strict=False), *kwargs.items()):
            if name in numbers and not (value is None and numbers[name]) and not is_number(value):
                raise SettingError(f"{type(args[0]).__name__}: {name} is {value!r}; it must be a number"
                                   f"{' or None' if numbers[name] else ''}")
        init(*args, **kwargs)

    return checked


def is_number(value: Any) -> bool:
    """Whether a value is one real number, and not NaN."""
    if isinstance(value, (str, bytes)) or np.ndim(value) or not hasattr(value, "__float__"):
        return False
    try:
        return float(value) == float(value)
    except (TypeError, ValueError, OverflowError):
        return False


def whole_number(owner: str, name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`; SettingError with its owner, name and value for anything else."""
    if isinstance(value, bool) or not is_number(value) or not float(value).is_integer() or value < least:
        raise SettingError(f"{owner}: {name} is {value!r}; it must be a whole number of {least} or more")
    return int(value)

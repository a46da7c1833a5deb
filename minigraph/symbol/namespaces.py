"""MXNet's parts of `mx.sym`: `mx.sym.contrib.ROIAlign` is the function of the operator `_contrib_ROIAlign`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import MXNetError
from ..ops.registry import public_names
from .functions import make_function

REFUSED = {
    "_contrib_boolean_mask": "the shape of its output depends on values, and here every shape is known before a run; "
                             "zero rows with where or SequenceMask, or choose them before they become an input"}
"""Operators of MXNet that cannot be had here, and why."""


class Namespace:
    """Operators whose names begin with a prefix, as attributes without it; their nodes are named by the rest.

    `make` makes the function of an operator's name and the rest of it.
    """

    def __init__(self, name: str, prefix: str, make: Callable[[str, str], Any] = make_function) -> None:
        self._name, self._prefix, self._make = name, prefix, make

    def __getattr__(self, name: str) -> Any:
        spelling = self._prefix + name
        if name.startswith("__"):
            raise AttributeError(name)
        if spelling in REFUSED:
            raise AttributeError(f"{self!r} has no {name!r}: {REFUSED[spelling]}")
        try:
            function = self.__dict__[name] = self._make(spelling, name)
        except MXNetError as error:
            raise AttributeError(f"{self!r} has no {name!r}, and no operator is named {spelling!r}; "
                                 f"dir() of it lists what there is") from error
        return function

    def __dir__(self) -> list[str]:
        names = {name.removeprefix(self._prefix) for name, _ in public_names() if name.startswith(self._prefix)}
        return sorted(names)

    def __repr__(self) -> str:
        return self._name


contrib = Namespace("minigraph.symbol.contrib", "_contrib_")
image = Namespace("minigraph.symbol.image", "_image_")
linalg = Namespace("minigraph.symbol.linalg", "_linalg_")
random = Namespace("minigraph.symbol.random", "_random_")
op = Namespace("minigraph.symbol.op", "")
_internal = Namespace("minigraph.symbol._internal", "")

"""MXNet's parts of `mx.sym`: `mx.sym.contrib.ROIAlign` is the function of the operator `_contrib_ROIAlign`."""
from __future__ import annotations

from ..base import MXNetError
from ..ops.registry import public_names
from .functions import Function, make_function

REFUSED = {
    "_contrib_boolean_mask": "the shape of its output depends on values, and here every shape is known before a run; "
                             "zero rows with where or SequenceMask, or choose them before they become an input"}
"""Operators of MXNet that cannot be had here, and why."""


class Namespace:
    """Operators whose names begin with a prefix, as attributes without it; their nodes are named by the rest."""

    def __init__(self, name: str, prefix: str) -> None:
        self._name, self._prefix = name, prefix

    def __getattr__(self, name: str) -> Function:
        spelling = self._prefix + name
        if name.startswith("__"):
            raise AttributeError(name)
        if spelling in REFUSED:
            raise AttributeError(f"{self!r} has no {name!r}: {REFUSED[spelling]}")
        try:
            function = self.__dict__[name] = make_function(spelling, name)
        except MXNetError as error:
            raise AttributeError(f"{self!r} has no {name!r}, and no operator is named {spelling!r}; "
                                 f"dir() of it lists what there is") from error
        return function

    def __dir__(self) -> list[str]:
        names = {name.removeprefix(self._prefix) for name, _ in public_names() if name.startswith(self._prefix)}
        return sorted(names)

    def __repr__(self) -> str:
        return f"minigraph.symbol.{self._name}"


contrib = Namespace("contrib", "_contrib_")
image = Namespace("image", "_image_")
linalg = Namespace("linalg", "_linalg_")

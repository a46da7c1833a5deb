"""The registry: every operator by its name and aliases."""
from __future__ import annotations

from collections.abc import Iterator

from ..base import MXNetError
from .op import Op

_OPS: dict[str, Op] = {}
_ALIASES: dict[str, str] = {}


def register(cls: type[Op]) -> type[Op]:
    """Class decorator: make one instance of the operator known under its name and aliases."""
    for name in (cls.name, *cls.aliases):
        if name in _OPS or name in _ALIASES:
            raise MXNetError(f"operator name {name!r} of {cls.__name__} is taken; choose another name")
    _OPS[cls.name] = cls()
    _ALIASES.update(dict.fromkeys(cls.aliases, cls.name))
    return cls


def get_op(name: str) -> Op:
    """The operator of a name or alias; MXNetError when there is none."""
    op = _OPS.get(name) or _OPS.get(_ALIASES.get(name, ""))
    if op is None:
        raise MXNetError(f"there is no operator {name!r}; `minigraph.ops.names()` lists those there are")
    return op


def names() -> list[str]:
    """Names of all operators, private backward and update operators included."""
    return sorted(_OPS)


def public_names() -> Iterator[tuple[str, Op]]:
    """(name or alias, operator) of everything that the front end offers."""
    for name, op in _OPS.items():
        for spelling in (name, *op.aliases):
            yield spelling, op

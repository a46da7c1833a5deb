"""Attributes of nodes: the hidden keys, and scopes that give attributes to every node made inside."""
from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType

HIDDEN_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")
"""Attributes that are no operator's parameter: they are kept as `__key__`, and answer to both spellings."""
_HIDDEN_SPELLINGS = {key: f"__{key}__" for key in HIDDEN_KEYS}
_PLAIN_SPELLINGS = {hidden: key for key, hidden in _HIDDEN_SPELLINGS.items()}
_SUFFIXES = tuple("_" + key for key in HIDDEN_KEYS)


def hidden_spelling(key: str) -> str:
    """`__lr_mult__` for `lr_mult`; every other key as it is."""
    return _HIDDEN_SPELLINGS.get(key, key)


def with_plain_spellings(attrs: Mapping[str, str]) -> dict[str, str]:
    """A copy in which every hidden key appears under its plain spelling too, as MXNet lists attributes."""
    both = dict(attrs)
    both.update((_PLAIN_SPELLINGS[key], value) for key, value in attrs.items() if key in _PLAIN_SPELLINGS)
    return both


def split_input_key(key: str) -> tuple[str, str] | None:
    """("weight", "__lr_mult__") for `weight_lr_mult`, a hidden key for one input; None for other keys."""
    if not key.endswith(_SUFFIXES) or key.startswith("__"):
        return None
    suffix = next(suffix for suffix in _SUFFIXES if key.endswith(suffix))
    name = key.removesuffix(suffix)
    return (name, hidden_spelling(suffix[1:])) if name else None


class AttrScope:
    """Gives its attributes to every variable and operator made inside `with AttrScope(...)`.

    Scopes nest, the inner one prevails, and an attribute given at the node itself prevails over both. Values
    are texts (ValueError otherwise). Operators accept hidden keys, `__keys__` of one's own, and parameters.
    """

    def __init__(self, **attributes: str) -> None:
        for key, value in attributes.items():
            if not isinstance(value, str):
                raise ValueError(f"Attributes need to be strings: AttrScope got {key}={value!r}")
        self._own = attributes
        self._inherited: list[Mapping[str, str]] = []

    def get(self, attr: Mapping[str, str] | None = None) -> dict[str, str]:
        """The attributes of this scope (and, once entered, of those around it), overridden by `attr`."""
        outer = self._inherited[-1] if self._inherited else {}
        return {**outer, **self._own, **(attr or {})}

    def __enter__(self) -> AttrScope:
        self._inherited.append(current_scope().get())
        _scopes.stack.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        _scopes.stack.pop()
        self._inherited.pop()


class _Scopes(threading.local):
    """The scopes entered in this thread, innermost last."""

    def __init__(self) -> None:
        self.stack = [AttrScope()]


_scopes = _Scopes()


def current_scope() -> AttrScope:
    """The scope in force in this thread; an empty one outside of every `with`."""
    return _scopes.stack[-1]

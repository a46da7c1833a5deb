"""Names of nodes: given ones are kept, the others are a hint and a number."""
from __future__ import annotations

import threading
from types import TracebackType


class NameManager:
    """Names nodes `<hint><n>`, counting each hint from 0; `with NameManager():` counts afresh inside."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` itself when it is given, else the next name of `hint`."""
        if name:
            return name
        number = self._counts.get(hint, 0)
        self._counts[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> NameManager:
        _managers.stack.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        _managers.stack.pop()


class Prefix(NameManager):
    """Puts `prefix` before every operator's name, given or made; variables keep the names they were given."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)


class _Managers(threading.local):
    """The managers entered in this thread, innermost last."""

    def __init__(self) -> None:
        self.stack = [NameManager()]


_managers = _Managers()


def current_names() -> NameManager:
    """The manager in force in this thread."""
    return _managers.stack[-1]

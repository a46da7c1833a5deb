"""Contexts: where an array or an executor lives, under MXNet's names."""
from __future__ import annotations

import importlib
import threading
from types import TracebackType

from .base import MXNetError

_TYPE_NUMBERS = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}
_TYPE_NAMES = {number: name for name, number in _TYPE_NUMBERS.items()}


class Context:
    """A device: a type (`cpu`, `gpu`, `cpu_pinned`, `cpu_shared`) and a number; a value, equal by both.

    `with mx.gpu(1):` makes it the default of whatever is created inside, in this thread.
    """

    _entered = threading.local()

    def __init__(self, device_type: str | Context, device_id: int = 0) -> None:
        """A context of a type by name, or a copy of another context; MXNetError for an unknown type."""
        if isinstance(device_type, Context):
            device_id = device_type.device_id
            device_type = device_type.device_type
        if device_type not in _TYPE_NUMBERS:
            raise MXNetError(f"unknown device type {device_type!r}; known are {', '.join(_TYPE_NUMBERS)}")
        if device_id < 0:
            raise MXNetError(f"a device number must not be negative, got {device_type}({device_id})")
        self.device_typeid: int = _TYPE_NUMBERS[device_type]
        self.device_id: int = int(device_id)

    @property
    def device_type(self) -> str:
        """The type's name, such as "cpu"."""
        return _TYPE_NAMES[self.device_typeid]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context):
            return NotImplemented
        return (self.device_typeid, self.device_id) == (other.device_typeid, other.device_id)

    def __hash__(self) -> int:
        return hash((self.device_typeid, self.device_id))

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    @classmethod
    def _stack(cls) -> list[Context]:
        """The contexts entered by `with` in this thread, innermost last."""
        if not hasattr(cls._entered, "stack"):
            cls._entered.stack = []
        return cls._entered.stack

    def __enter__(self) -> Context:
        self._stack().append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stack().pop()


def cpu(device_id: int = 0) -> Context:
    """The CPU; every number names the same memory."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """The GPU of that number."""
    return Context("gpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Page-locked host memory."""
    return Context("cpu_pinned", device_id)


def current_context() -> Context:
    """The context of the innermost `with` in this thread, else the default, which is cpu(0) unless it was set."""
    stack = Context._stack()
    return stack[-1] if stack else getattr(Context._entered, "default", None) or Context("cpu", 0)


def set_default(ctx: Context) -> None:
    """Make a context the one outside of every `with`, in this thread."""
    Context._entered.default = ctx


def num_gpus() -> int:
    """How many GPUs can be used: 0 where the CUDA device cannot be imported."""
    try:
        cuda = importlib.import_module("minigraph.device.cuda")
    except ImportError:
        return 0
    device_count = getattr(cuda, "device_count", None)
    return 0 if device_count is None else int(device_count())

"""KVStore, under MXNet's name: values by key for one worker, whose pushes are summed and perhaps applied by an updater.

Training needs none, since parameters and updates live with their executor; Module takes one and leaves it as it is.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .base import MXNetError
from .formats.atomic import write_atomically
from .ndarray import NDArray
from .optimizer import Optimizer, Updater, get_updater

TYPES = ("local", "device", "local_allreduce_cpu", "local_allreduce_device")
"""Types that mean the same here: parameters and updates live with their executor."""

Key = int | str
Update = Callable[[Any, NDArray, NDArray], Any]
"""Called with a key, the sum of what was pushed, and the stored value, which it changes."""


class KVStore:
    """A store of one worker.

    A key is a number or a text. Where a method takes one key it also takes a list of them, with a list of as many
    values.
    """

    def __init__(self, type: str) -> None:
        self.type = type
        self._values: dict[Key, NDArray] = {}
        self._updater: Update | None = None

    @property
    def rank(self) -> int:
        """This worker's number, 0."""
        return 0

    @property
    def num_workers(self) -> int:
        """Number of workers, 1."""
        return 1

    def init(self, key: Any, value: Any) -> None:
        """Store a copy of a value under a new key."""
        for each, values in _pairs(key, value):
            if each in self._values:
                raise MXNetError(f"the kvstore has a value of the key {each!r} already; push changes it")
            self._values[each] = _only(each, values).copy()

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Replace the value of a key by a value, or by the sum of a list of them; with an updater have it change the
        stored value by that."""
        for each, values in _pairs(key, value):
            stored, total = self._stored(each), values[0].copy()
            for other in values[1:]:
                total[:] = total + other
            if total.shape != stored.shape:
                raise MXNetError(f"the value of the key {each!r} has shape {stored.shape}, and {total.shape} is pushed")
            if self._updater is not None:
                self._updater(each, total, stored)
            else:
                stored[:] = total

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy the value of a key into an array, or into each of a list."""
        if out is None:
            raise MXNetError("pull copies into arrays; give out=")
        for each, arrays in _pairs(key, out):
            for array in arrays:
                array[:] = self._stored(each)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, and `pull` into `out`, or into the pushed arrays themselves."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, and `pull` into `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def _stored(self, key: Key) -> NDArray:
        if key not in self._values:
            raise MXNetError(f"the kvstore has no value of the key {key!r}; call init before")
        return self._values[key]

    # -- updates -------------------------------------------------------------------------------------------------
    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Have pushes be gradients, by which the optimizer updates the stored values."""
        self._updater = get_updater(optimizer)

    def set_updater(self, updater: Update) -> None:
        """Have a function change the stored values by what is pushed."""
        self._updater = updater

    _set_updater = set_updater

    def _states_of(self) -> Updater:
        if not isinstance(self._updater, Updater):
            raise MXNetError("the kvstore has no optimizer; call set_optimizer before")
        return self._updater

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the states of `set_optimizer`'s optimizer, in minigraph's own format."""
        write_atomically(fname, self._states_of().get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Go on from a file of `save_optimizer_states`."""
        with open(fname, "rb") as file:
            self._states_of().set_states(file.read())

    # -- what several workers have -----------------------------------------------------------------------------
    def barrier(self) -> None:
        """Wait for all workers: this one."""

    _barrier = barrier

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Refused: nothing is sent."""
        raise MXNetError(f"set_gradient_compression({compression_params!r}): one worker sends no gradients; leave it "
                         f"out")

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Refused: there are no sparse types."""
        raise MXNetError(f"row_sparse_pull of {key!r}: there are no sparse arrays; use pull")


def _pairs(key: Any, value: Any) -> list[tuple[Key, Sequence[NDArray]]]:
    """(key, its arrays) for a key and a value or a list of values, or for lists of both."""
    if not isinstance(key, (list, tuple)):
        return [(_checked(key), list(value) if isinstance(value, (list, tuple)) else [value])]
    if not isinstance(value, (list, tuple)) or len(value) % max(len(key), 1) or not key:
        raise MXNetError(f"{len(key)} keys need a list of as many values, got {type(value).__name__}")
    each = len(value) // len(key)
    flat = [value[k * each:(k + 1) * each] for k in range(len(key))] if each > 1 else [
        list(v) if isinstance(v, (list, tuple)) else [v] for v in value]
    return [(_checked(name), arrays) for name, arrays in zip(key, flat, strict=True)]


def _checked(key: Any) -> Key:
    if not isinstance(key, (int, str)):
        raise MXNetError(f"a key of a kvstore is a number or a text, got {key!r}")
    return key


def _only(key: Key, values: Sequence[NDArray]) -> NDArray:
    if len(values) != 1:
        raise MXNetError(f"init stores one value for the key {key!r}, got {len(values)}")
    return values[0]


def create(name: str = "local") -> KVStore:
    """A store of that type; MXNetError for distributed ones."""
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {type(name).__name__}")
    if name not in TYPES:
        raise MXNetError(f"there is no kvstore {name!r}; training runs in one process on one device, so use "
                         f"one of {', '.join(TYPES)}, or None")
    return KVStore(name)


def check(kvstore: str | KVStore | None) -> None:
    """Accept what means one worker; MXNetError for everything else."""
    if isinstance(kvstore, str):
        create(kvstore)
    elif kvstore is not None and not isinstance(kvstore, KVStore):
        raise MXNetError(f"kvstore must be None, one of {', '.join(TYPES)}, or what kvstore.create returns; "
                         f"got {type(kvstore).__name__}")

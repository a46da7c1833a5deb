"""KVStore, under MXNet's name: one process with one device needs none, so it answers what scripts ask."""
from __future__ import annotations

from .base import MXNetError

TYPES = ("local", "device", "local_allreduce_cpu", "local_allreduce_device")
"""Types that mean the same here: parameters and updates live with their executor."""


class KVStore:
    """A store of one worker."""

    def __init__(self, type: str) -> None:
        self.type = type

    @property
    def rank(self) -> int:
        """This worker's number, 0."""
        return 0

    @property
    def num_workers(self) -> int:
        """Number of workers, 1."""
        return 1


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

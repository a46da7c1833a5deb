"""How much longer operators take whose operands lie in no cache, and how many bytes drive others out of the caches."""
from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from .device.device import Clock, Memory
from .plan.caches import touched
from .plan.plan import Plan

_REUSE_BYTES = tuple(2**power for power in range(18, 27))
"""Numbers of bytes between two uses for which a profile says how long the second takes; few caches hold the last."""
_REUSE_ROUNDS = 5
_LINE_BYTES = 64


class CacheTimes:
    """What an operator takes longer with its operands in no cache, measured at the first place where it occurs.

    `keys` has for each computation what tells its operator from others. `warm` and `cool` are called before an
    instruction (`Program.times`), `note` is given the times of both ways; `reuse` is a profile's.
    """

    def __init__(self, plan: Plan, memory: Memory, keys: Mapping[int, tuple], clock: Clock) -> None:
        self.plan, self.memory = plan, memory
        self._first: dict[tuple, int] = {}
        for i, key in keys.items():
            self._first.setdefault(key, i)
        self._places = frozenset(self._first.values())
        self._warm: dict[int, list[float]] = {i: [] for i in self._places}
        self._cold: dict[int, list[float]] = {i: [] for i in self._places}
        self._block = _block()
        self.reuse = _reuse(clock)

    def warm(self, i: int) -> None:
        """Touch every cache line of an operator's operands."""
        for arena, offset, nbytes in touched(self.plan, i) if i in self._places else ():
            _touch(self.memory.read(self.plan.arenas[arena].name, offset, (nbytes,), self._block.dtype))

    def cool(self, i: int) -> None:
        """Drive what an operator touches out of all caches."""
        if i in self._places:
            _touch(self._block)

    def note(self, warm: Sequence[float], cold: Sequence[float]) -> None:
        """Keep the times of a round."""
        for i in self._places:
            self._warm[i].append(warm[i])
            self._cold[i].append(cold[i])

    def cold_seconds(self, key: tuple, seconds: float, cold: float) -> float:
        """What an operator takes longer out of caches, if in the plan it took so many seconds with the share `cold` of
        its operands in none: no more than explains those, for emptying a cache at once also drives out what else is in
        it, such as page tables."""
        i = self._first[key]
        warm = statistics.median(self._warm[i])
        longer = max(statistics.median(self._cold[i]) - warm, 0.0)
        return min(longer, max(seconds - warm, 0.0) / cold) if cold > 0.0 else longer


def _block() -> np.ndarray:
    """More bytes than caches hold. None are zero: zeros that nobody wrote all lie in one page of the system's."""
    return np.ones(_REUSE_BYTES[-1], np.uint8)


@lru_cache
def _reuse(clock: Clock) -> tuple[tuple[float, float], ...]:
    """Seconds for reading a byte again when so many have been touched since, by numbers of bytes; never falling.

    Measured once in a process: what profiles say of coldness can then be compared.
    """
    block, points, slowest = _block(), [], 0.0
    for nbytes in _REUSE_BYTES:
        part, runs = block[:nbytes], max(1, _REUSE_BYTES[-1] // nbytes // 4)
        _touch(part)
        taken = []
        for _ in range(_REUSE_ROUNDS):
            start = clock()
            for _ in range(runs):
                _touch(part)
            taken.append((clock() - start) / runs / nbytes)
        slowest = max(slowest, min(taken))
        points.append((float(nbytes), slowest))
    return tuple(points)


def _touch(block: np.ndarray) -> None:
    """Bring every cache line of some bytes into the caches, as far as they hold them; they are only read, so that none
    has to be written back when it gives way to others."""
    block[::_LINE_BYTES].max()

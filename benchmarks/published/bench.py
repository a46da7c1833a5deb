"""What the policies of a figure come to: bytes, time and the largest size, and `auto` beside them."""
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from minigraph.memory.policies import Candidate

from .search import Build, Cost, Setting, Step, largest, least_bytes, least_seconds
from .tables import HOST_BYTES, NETWORKS, Figure

AUTO, FULL = "auto", "auto, full"
SLICED_NODES = 600
"""Nodes up to which candidates in slices are always weighed where the plain order does not fit; in larger graphs only
where those of the whole graph do not reach what was published, or a policy is ahead of them."""
FULL_NODES = 2_000
"""Nodes up to which the full search is asked where the default one is behind a policy."""
LARGEST_NODES = 1_000
"""Nodes up to which the largest size of `auto` is looked for."""
RESOLUTION = 0.01
"""Share of the capacity that the largest size of a policy may leave free."""
AUTO_RESOLUTION = 0.04
"""The same for `auto`, of which each size that is tried takes some ten seconds."""
SAME = 1 + 1e-6
"""Ratio of two times up to which they are the same: sums in another order differ in their last digits."""


@dataclass
class Ours:
    """What one policy comes to: the least bytes at the published size, whether that fits, its modelled time over the
    plain order's there, the largest size, and the bytes of the plan at that size."""

    policy: str
    bytes: int = 0
    fits: bool = False
    slower: float | None = None
    largest: int | None = None
    planned_bytes: int | None = None

    def behind(self, other: Ours) -> bool:
        """Whether another policy takes less time where both fit, or fewer bytes at the least."""
        if other.slower is not None and (self.slower is None or self.slower > other.slower * SAME):
            return True
        return self.bytes > other.bytes


@dataclass
class Row:
    """A figure and what the policies come to: its own one, `auto`, and the full search where the default one is behind
    the figure's policy."""

    figure: Figure
    ours: list[Ours] = field(default_factory=list)
    seconds: float = 0.0

    def of(self, policy: str | None) -> Ours | None:
        """What a policy came to, if it was asked."""
        return next((ours for ours in self.ours if ours.policy == policy), None)


class Bench:
    """Remembers steps and what policies came to, while figures share them."""

    def __init__(self) -> None:
        self.builds: dict[str, Build] = {}
        self.step: tuple[tuple[Any, ...], Step] | None = None
        self.costs: dict[tuple[Any, ...], tuple[list[Cost], float]] = {}
        """Costs of a policy's candidates at one size, and the seconds of the plain order."""
        self.sizes: dict[tuple[Any, ...], tuple[int, int | None]] = {}

    # -- at the published size -----------------------------------------------------------------------------------
    def measure(self, figure: Figure) -> Row:
        """The figure's policy and `auto` at its published size."""
        start, row = time.process_time(), Row(figure)
        step = self._step(figure, figure.published)
        own = None
        if figure.policy is not None:
            own = _judged(figure, step, figure.policy, step.candidates(figure.policy))
            row.ours.append(own)
        row.ours.append(self._auto(figure, step, own))
        if own is not None and row.ours[-1].behind(own) and len(step.problem.order) <= FULL_NODES:
            row.ours.append(_judged(figure, step, FULL, _offered(step, FULL)))
        row.seconds = time.process_time() - start
        return row

    def _auto(self, figure: Figure, step: Step, own: Ours | None) -> Ours:
        """What `auto` decides by its default search; slices add candidates, so those of the whole graph alone are never
        taken to do better than they do."""
        found = _judged(figure, step, AUTO, step.whole())
        if found.slower is not None and found.slower <= SAME and (own is None or not found.behind(own)):
            return found  # the plain order fits, or what takes no longer
        needed = not found.fits or (own is not None and found.behind(own))
        if needed or len(step.problem.order) <= SLICED_NODES:
            return _judged(figure, step, AUTO, step.sliced())
        return found

    # -- the largest size ----------------------------------------------------------------------------------------
    def search(self, row: Row) -> None:
        """The largest sizes of a figure's policies, where its size is what was published."""
        start, figure = time.process_time(), row.figure
        for ours in () if figure.published_bytes else row.ours:
            key = (*_key(figure, 0), figure.slowdown, ours.policy)
            if key not in self.sizes and (ours.policy == figure.policy or self._is_small(figure)):
                self.sizes[key] = self._largest(figure, ours.policy, max((o.largest or 0 for o in row.ours), default=0))
            ours.largest, ours.planned_bytes = self.sizes.get(key, (None, None))
        row.seconds += time.process_time() - start

    def _is_small(self, figure: Figure) -> bool:
        return len(self._step(figure, figure.published).problem.order) <= LARGEST_NODES

    def _largest(self, figure: Figure, policy: str, least: int) -> tuple[int, int | None]:
        """The largest size of a policy and the bytes of its plan, smaller by a share until packing fits too; looked for
        from `least` on, which another policy reaches."""
        free = AUTO_RESOLUTION if policy in (AUTO, FULL) else RESOLUTION
        n = largest(lambda k: self._least(figure, policy, k), figure.capacity_bytes, max(figure.published, least), free)
        planned = self._planned_bytes(figure, policy, n) if n else None
        while planned is not None and planned > figure.capacity_bytes:
            n = min(n - 1, int(n * (1 - RESOLUTION)))
            planned = self._planned_bytes(figure, policy, n) if n else None
        return n, planned

    def _least(self, figure: Figure, policy: str, n: int) -> int:
        """The least bytes of a policy at a size, within the time that the figure allows."""
        key = (*_key(figure, n), policy)
        if key not in self.costs:
            step = self._step(figure, n)
            self.costs[key] = [(c.peak_bytes, c.seconds) for c in _offered(step, policy)], step.plain_seconds
        found, plain_seconds = self.costs[key]
        return least_bytes(found, figure.slowdown * plain_seconds)

    def _planned_bytes(self, figure: Figure, policy: str, n: int) -> int:
        """Bytes of the plan of the candidate with the lowest peak within the time that the figure allows."""
        step = self._step(figure, n)
        self.step = None
        within = figure.slowdown * step.plain_seconds
        return step.planned_bytes(min((c for c in _offered(step, policy) if c.seconds <= within),
                                      key=lambda c: c.peak_bytes), figure.capacity_bytes)

    def _step(self, figure: Figure, n: int) -> Step:
        key = _key(figure, n)
        if self.step is None or self.step[0] != key:
            if figure.network not in self.builds:
                self.builds[figure.network] = NETWORKS[figure.network].build()
            self.step = key, Step(self.builds[figure.network], n, setting(figure))
        return self.step[1]


def setting(figure: Figure) -> Setting:
    """What a figure gives beside its network."""
    return Setting(figure.machine, HOST_BYTES if figure.host else 0, figure.momentum, limit_of(figure))


def limit_of(figure: Figure) -> int:
    """The bytes that a step may take: those that were published, or the capacity."""
    return figure.published_bytes or figure.capacity_bytes


def _key(figure: Figure, n: int) -> tuple[Any, ...]:
    return figure.network, n, figure.machine, figure.host, figure.momentum, limit_of(figure)


def _offered(step: Step, policy: str) -> list[Candidate]:
    """What a policy offers; `auto` in slices too. A full search adds whole schedules, and no others in slices."""
    if policy == FULL:
        return [*step.sliced(), *step.whole("full")]
    return step.sliced() if policy == AUTO else step.candidates(policy)


def _judged(figure: Figure, step: Step, policy: str, found: Sequence[Candidate]) -> Ours:
    """Candidates at the published size, within the bytes and the time that the figure allows."""
    costs = [(c.peak_bytes, c.seconds) for c in found]
    nbytes = least_bytes(costs, figure.slowdown * step.plain_seconds)
    seconds = least_seconds(costs, limit_of(figure))
    return Ours(policy, nbytes, nbytes <= limit_of(figure), None if seconds is None else seconds / step.plain_seconds)


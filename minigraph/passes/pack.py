"""pack: lifetimes to offsets in the transient arena, and the figures that the plan is judged by."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap

import numpy as np

from ..base import ALIGNMENT, Algorithm, align
from ..graph.graph import Graph
from ..memory.packing import PagedSolution, Problem, Solution, pack, pack_pages, page_bytes_for, validate
from ..plan.plan import PERSISTENT_CLASSES, Extent
from .compilation import Compilation, PageMapping

Lives = list[tuple[int, int, int]]
"""(born, dies, bytes) of each tensor to place."""


def assign_offsets(state: Compilation, capacity_bytes: int | None = None) -> None:
    """Provide `offsets` (by storage), `workspace_offsets` (by node) and the figures of the transient arena; and
    `mapping`, where tensors lie in the mapped arena.

    With a capacity the first packing within it is taken; where there is none the arena's size says no more than that.
    """
    sharing = state.sharing
    assert sharing is not None
    placed = Placed.of(state)
    state.lower_bound_bytes = placed.problem.lower_bound_bytes
    solution = _offsets(state, placed, capacity_bytes)
    state.mapping = placed.mapping(solution) if isinstance(solution, PagedSolution) else None
    count = len(placed.storages)
    state.offsets = np.zeros(len(sharing.bytes), dtype=np.int64)
    state.offsets[placed.storages] = solution.offset[:count]
    state.workspace_offsets = dict(zip(placed.nodes, solution.offset[count:].tolist(), strict=True))
    state.transient_bytes = align(solution.bytes)
    state.packing = solution.method
    swapped, away = _lives(state, on_host=True)
    if swapped:
        host = _solve(_problem(away))
        state.offsets[swapped] = host.offset
        state.host_bytes = align(host.bytes)
        state.swapped_bytes = 2 * sum(align(nbytes) for *_, nbytes in away)


@dataclass(frozen=True)
class Placed:
    """What is placed in the transient arena: storages, then workspaces of nodes, as one problem in this order."""

    storages: list[int]
    nodes: list[int]
    problem: Problem

    @classmethod
    def of(cls, state: Compilation) -> Placed:
        """That of a compilation in which the passes before packing have run."""
        storages, lives = _lives(state, on_host=False)
        scratch = _workspaces(state)
        return cls(storages, list(scratch), _problem(lives + list(scratch.values())))

    def mapping(self, solution: PagedSolution) -> PageMapping | None:
        """What of a solution lies in the mapped arena; None where nothing does."""
        if not solution.extents:
            return None
        mapped, count = np.flatnonzero(solution.mapped).tolist(), len(self.storages)
        return PageMapping(solution.page_bytes, tuple(starmap(Extent, solution.extents)),
                           frozenset(self.storages[k] for k in mapped if k < count),
                           frozenset(self.nodes[k - count] for k in mapped if k >= count))


def _offsets(state: Compilation, placed: Placed, capacity_bytes: int | None) -> Solution | PagedSolution:
    """Offsets by the memory mode. Under a budget that tensors in one piece do not meet, they may lie in several where
    the device can map pages; where it cannot, the search goes on for longer."""
    request, problem = state.request, placed.problem
    if request.memory in ("naive", "inplace"):
        return _side_by_side(problem, len(placed.storages))
    if request.budget_bytes is None or not request.page_bytes:
        return _solve(problem, capacity_bytes, "default" if request.budget_bytes is None else "budget")
    solution = _solve(problem, capacity_bytes)
    if capacity_bytes is not None and solution.bytes <= capacity_bytes:
        return solution
    page_bytes = page_bytes_for(problem.lower_bound_bytes, request.page_bytes)
    by_pages = pack_pages(problem, page_bytes, capacity_bytes)
    validate(problem, by_pages)
    return by_pages if by_pages.bytes < solution.bytes else solution


def _lives(state: Compilation, on_host: bool) -> tuple[list[int], Lives]:
    """The storages of the transient arena or of host memory, and their lives."""
    sharing, schedule = state.sharing, state.schedule
    assert sharing is not None and schedule is not None
    chosen = [s for s, name in enumerate(sharing.persistent) if name is None and sharing.on_host[s] == on_host]
    end = len(schedule) + 1
    return chosen, [(max(sharing.born[s], 0), min(sharing.dies[s], end), sharing.bytes[s]) for s in chosen]


def _workspaces(state: Compilation) -> dict[int, tuple[int, int, int]]:
    """Life and bytes of each node's workspace."""
    assert state.algorithms is not None and state.schedule is not None and state.sharing is not None
    scratch = {}
    for t, node in enumerate(state.schedule.order):
        algorithm = state.algorithms[node]
        if algorithm is not None and algorithm.workspace_bytes and node not in state.sharing.elided:
            scratch[node] = (t, t + 1, algorithm.workspace_bytes)
    return scratch


def _problem(lives: Lives) -> Problem:
    columns = np.array(lives, dtype=np.int64).reshape(-1, 3)
    return Problem(columns[:, 0], columns[:, 1], columns[:, 2], ALIGNMENT)


def _solve(problem: Problem, capacity_bytes: int | None = None, effort: str = "default") -> Solution:
    solution = pack(problem, capacity_bytes, effort)
    validate(problem, solution)
    return solution


def _side_by_side(problem: Problem, storages: int) -> Solution:
    """Every tensor behind the one before it, and one workspace for all behind them: nothing is reused."""
    ends, workspaces = np.cumsum(problem.aligned_bytes[:storages]), problem.aligned_bytes[storages:]
    total = int(ends[-1]) if storages else 0
    offset = np.concatenate((ends - problem.aligned_bytes[:storages], np.full(len(workspaces), total)))
    return Solution(offset, total + int(workspaces.max(initial=0)), "side by side")


def naive_bytes(graph: Graph, algorithms: Sequence[Algorithm | None]) -> int:
    """Transient bytes if every tensor had bytes of its own: all values but views, changed states and what lies in the
    persistent arena, and the largest workspace once."""
    size_bytes = graph.aligned_bytes()
    total = sum(size_bytes[e] for e in _own_values(graph))
    return total + align(max((a.workspace_bytes for a in algorithms if a is not None), default=0))


def _own_values(graph: Graph) -> list[int]:
    own = []
    for i, op in enumerate(graph.op):
        if op is None:
            if graph.variable_class[i] not in PERSISTENT_CLASSES:
                own.append(graph.first[i])
        elif not op.view(graph.params[i]):
            changed = {out for _, out in op.mutates(graph.params[i])}
            own += [e for k, e in enumerate(graph.entries(i)) if k not in changed]
    return own

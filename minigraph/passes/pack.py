"""pack: lifetimes to offsets in the transient arena, and the figures that the plan is judged by."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base import ALIGNMENT, Algorithm, align
from ..graph.graph import Graph
from ..memory.packing import Problem, Solution, pack, validate
from ..plan.plan import PERSISTENT_CLASSES
from .compilation import Compilation

Lives = list[tuple[int, int, int]]
"""(born, dies, bytes) of each tensor to place."""


def assign_offsets(state: Compilation, capacity_bytes: int | None = None) -> None:
    """Provide `offsets` (by storage), `workspace_offsets` (by node) and the figures of the transient arena.

    With a capacity the first packing within it is taken; where there is none the arena's size says no more than that.
    """
    sharing = state.sharing
    assert sharing is not None
    transient, lives = _lives(state, on_host=False)
    scratch = _workspaces(state)
    state.lower_bound_bytes = _problem(lives + list(scratch.values())).lower_bound_bytes
    if state.request.memory not in ("naive", "inplace"):
        bounded = state.request.budget_bytes is not None
        solution = _solve(lives + list(scratch.values()), capacity_bytes, "budget" if bounded else "default")
        starts = solution.offset[len(transient):]
    else:
        solution = _side_by_side(lives, max((b for *_, b in scratch.values()), default=0))
        starts = np.full(len(scratch), sum(align(b) for *_, b in lives))
    state.offsets = np.zeros(len(sharing.bytes), dtype=np.int64)
    state.offsets[transient] = solution.offset[:len(transient)]
    state.workspace_offsets = dict(zip(scratch, starts.tolist(), strict=True))
    state.transient_bytes = align(solution.bytes)
    state.packing = solution.method
    swapped, away = _lives(state, on_host=True)
    if swapped:
        host = _solve(away)
        state.offsets[swapped] = host.offset
        state.host_bytes = align(host.bytes)
        state.swapped_bytes = 2 * sum(align(nbytes) for *_, nbytes in away)


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


def _solve(lives: Lives, capacity_bytes: int | None = None, effort: str = "default") -> Solution:
    problem = _problem(lives)
    solution = pack(problem, capacity_bytes, effort)
    validate(problem, solution)
    return solution


def _side_by_side(lives: Lives, workspace_bytes: int) -> Solution:
    """Every tensor behind the one before it, and one workspace for all behind them: nothing is reused."""
    sizes = np.array([align(nbytes) for *_, nbytes in lives], dtype=np.int64)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(sizes) else 0
    return Solution(ends - sizes, total + align(workspace_bytes), "side by side")


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

"""Judging the finalists of a policy by the passes that carry a schedule out."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base import MXNetError, OutOfMemoryError, format_bytes
from ..memory.policies import Candidate
from ..memory.schedule import Schedule
from .apply_schedule import apply_schedule
from .compilation import Compilation
from .pack import assign_offsets
from .share import share
from .workspace import choose_workspaces

NEVER = 1 << 62
"""Bytes that no budget reaches."""


def fastest_within(state: Compilation, candidates: Sequence[Candidate], persistent_bytes: int) -> Schedule:
    """The fastest candidate whose packed arenas stay within the budgets; without a budget the lowest peak.

    Raises OutOfMemoryError naming the least budget that would do, to the byte.
    """
    request = state.request
    if not candidates:
        raise MXNetError(f"memory={request.memory!r} swaps values out, and the host budget of "
                         f"{request.host_budget_bytes} bytes has no room for them; give a larger host_budget, or "
                         f"another policy")
    budget = request.budget_bytes
    if budget is None:
        return min(candidates, key=lambda c: (c.peak_bytes, c.seconds)).schedule
    least: int | None = None
    for candidate in sorted(candidates, key=lambda c: (c.seconds, c.peak_bytes)):
        if candidate.peak_bytes <= budget:
            planned = persistent_bytes + packed_bytes(state, candidate.schedule)
            if planned <= budget:
                return candidate.schedule
            least = planned if least is None else min(least, planned)
    for candidate in sorted(candidates, key=lambda c: c.peak_bytes):
        if least is not None and candidate.peak_bytes >= least:
            break
        planned = persistent_bytes + packed_bytes(state, candidate.schedule)
        least = planned if least is None else min(least, planned)
    assert least is not None
    raise OutOfMemoryError(
        f"a budget of {budget} bytes ({format_bytes(budget)}) is too small for `{request.program}` with "
        f"memory={request.memory!r}: the least that it can do with is {least} bytes ({format_bytes(least)}), of "
        f"which {persistent_bytes} are parameters, states and gradients; give that much, a smaller batch or another "
        f"policy", least, budget)


def packed_bytes(state: Compilation, schedule: Schedule) -> int:
    """Bytes of the transient arena that a schedule comes to; more than any budget where the host's does not suffice."""
    trial = replace(state, schedule=schedule, seconds={})
    apply_schedule(trial)
    share(trial)
    choose_workspaces(trial)
    assign_offsets(trial)
    assert trial.transient_bytes is not None
    return trial.transient_bytes if trial.host_bytes <= state.request.host_budget_bytes else NEVER

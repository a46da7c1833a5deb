"""Judging the finalists of a policy by the passes that carry a schedule out."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from ..base import MXNetError, OutOfMemoryError, format_bytes
from ..memory.policies import Candidate
from ..plan.live import device_storages, peak_instant
from ..plan.peak import instruction_name, peak_tensors
from .apply_schedule import apply_schedule, backward_start
from .compilation import Compilation
from .lower import lower
from .pack import assign_offsets
from .share import share
from .workspace import choose_workspaces

NEVER = 1 << 62
"""Bytes that no budget reaches."""
_NAMED = 3
"""Tensors that a refusal names."""


def fastest_within(state: Compilation, candidates: Sequence[Candidate]) -> Candidate:
    """The fastest candidate whose packed arenas stay within the budgets; without a budget the lowest peak.

    Raises OutOfMemoryError naming the least budget that would do, to the byte, or where the request has no
    `names_least`, one that surely would not do, from the candidates' counts. There must be a candidate.
    """
    request = state.request
    budget = request.budget_bytes
    if budget is None:
        for candidate in sorted(candidates, key=lambda c: (c.peak_bytes, c.seconds)):
            if not candidate.host_bytes or needed_bytes(state, candidate) < NEVER:
                return candidate
        raise no_host_room(state, candidates)
    least: tuple[int, Compilation] | None = None
    for candidate in sorted(candidates, key=lambda c: (c.seconds, c.peak_bytes)):
        if candidate.peak_bytes <= budget:
            needed = needed_bytes(state, candidate)
            if needed <= budget:
                return candidate
            least = _smaller(least, needed, state)
    above = sorted((c for c in candidates if c.peak_bytes > budget), key=lambda c: c.peak_bytes)
    if above and not request.names_least:
        bound = above[0].peak_bytes
        raise _short_refusal(state, bound if least is None else min(bound, least[0]))
    for candidate in above:
        if least is not None and candidate.peak_bytes >= least[0]:
            break
        least = _smaller(least, needed_bytes(state, candidate), state)
    assert least is not None
    if least[0] >= NEVER:
        raise no_host_room(state, candidates)
    raise _refusal(state, *least)


def needed_bytes(state: Compilation, candidate: Candidate) -> int:
    """The least budget under which a candidate is taken: what it is packed to, or its quick count where that is more,
    by which it is passed over. So what is named as the least budget is always accepted. What the passes came to is
    kept in `state.tried`, so that they need not run again on the one that is taken, the last one judged."""
    trial = state.tried = _carried_out(state, candidate)
    assert trial.transient_bytes is not None
    if trial.host_bytes + trial.home_bytes > allowed_host_bytes(state):
        return NEVER
    return max(candidate.peak_bytes, trial.persistent_bytes + trial.transient_bytes)


def no_host_room(state: Compilation, candidates: Sequence[Candidate]) -> MXNetError:
    """The error when no candidate has room for what it swaps out; it names the least host budget that would do."""
    request = state.request
    trials = [_carried_out(state, candidate) for candidate in candidates]
    least = min(trial.host_bytes + trial.home_bytes for trial in trials)
    return MXNetError(
        f"memory={request.memory!r} swaps values out, and the host budget of {request.host_budget_bytes} bytes has no "
        f"room for them: the least that it can do with is {least} bytes ({format_bytes(least)}); give a larger "
        f"host_budget, or another policy")


def _smaller(least: tuple[int, Compilation] | None, planned: int, state: Compilation) -> tuple[int, Compilation]:
    """The lesser need of the least so far and of what was just tried, with the compilation that came to it."""
    assert state.tried is not None
    return (planned, state.tried) if least is None or planned < least[0] else least


def _too_small(state: Compilation) -> str:
    request, budget = state.request, state.request.budget_bytes
    assert budget is not None
    return (f"a budget of {budget} bytes ({format_bytes(budget)}) is too small for `{request.program}` with "
            f"memory={request.memory!r}")


def _short_refusal(state: Compilation, counted: int) -> OutOfMemoryError:
    """The error for whoever asks only whether there is a plan: nothing is packed for it."""
    budget = state.request.budget_bytes
    assert budget is not None
    return OutOfMemoryError(f"{_too_small(state)}: its schedules need {counted} bytes ({format_bytes(counted)}) or "
                            f"more", counted, budget)


def _refusal(state: Compilation, least: int, tried: Compilation) -> OutOfMemoryError:
    """The error that names the least budget, what forces it, and what to do."""
    budget, trial = state.request.budget_bytes, replace(tried, layout=copy.deepcopy(state.layout))
    assert budget is not None
    return OutOfMemoryError(
        f"{_too_small(state)}: the least that it can do with is {least} bytes ({format_bytes(least)}), of "
        f"which {trial.persistent_bytes} are parameters, states and gradients; {_what_forces(trial)}; give "
        f"that much, a smaller batch or another policy", least, budget)


def _what_forces(trial: Compilation) -> str:
    """The instruction at the peak of a candidate that was carried out, and the largest tensors that are live there."""
    lower(trial)
    assert trial.plan is not None
    plan, storages = trial.plan, device_storages(trial.plan)
    peak = peak_instant(storages, len(plan))
    named = [f"{t.name} ({format_bytes(t.bytes)}, {t.buffer_class} of {t.layer})"
             for t in peak_tensors(plan, storages, peak, _NAMED)]
    where = f"its peak is at instruction {peak}, {instruction_name(plan, peak)}"
    return f"{where}, where the largest are {', '.join(named)}"


def allowed_host_bytes(state: Compilation) -> int:
    """The host budget; what other programs have taken home there already cannot be refused."""
    return max(state.request.host_budget_bytes, state.home_bytes)


def _carried_out(state: Compilation, candidate: Candidate) -> Compilation:
    """A copy of the compilation in which the passes up to packing have carried a candidate out."""
    trial = replace(state, schedule=candidate.schedule, seconds={}, tried=None)
    if candidate.graph is not None:
        trial.graph, trial.backward_start = candidate.graph, backward_start(candidate.graph)
    apply_schedule(trial)
    share(trial)
    choose_workspaces(trial)
    assign_offsets(trial)
    budget = state.request.budget_bytes
    if not budget or _arena_bytes(trial) <= budget:
        return trial
    return min(trial, _packed_freely(trial), key=_arena_bytes)


def _arena_bytes(trial: Compilation) -> int:
    assert trial.transient_bytes is not None
    return trial.persistent_bytes + trial.transient_bytes


def _packed_freely(trial: Compilation) -> Compilation:
    """The trial with the smallest workspaces, packed as where nothing fits: so the least budget is named there, and at
    that budget it must be found again."""
    free = replace(trial, request=replace(trial.request, budget_bytes=0))
    choose_workspaces(free)
    assign_offsets(free)
    return replace(free, request=trial.request)

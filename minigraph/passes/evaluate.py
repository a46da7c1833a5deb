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


def fastest_within(state: Compilation, candidates: Sequence[Candidate], misfits: Sequence[Candidate] = ()) -> Candidate:
    """The fastest candidate whose packed arenas stay within the budgets; without a budget the lowest peak.

    `misfits` are known not to fit. Raises OutOfMemoryError naming the least budget that would do, to the byte. There
    must be a candidate.
    """
    budget = state.request.budget_bytes
    if budget is None:
        for candidate in sorted(candidates, key=lambda c: (c.peak_bytes, c.seconds)):
            if not candidate.host_bytes or least_bytes(state, candidate) < NEVER:
                return candidate
        raise no_host_room(state, candidates)
    for candidate in sorted(candidates, key=lambda c: (c.seconds, c.peak_bytes)):
        if not any(candidate is misfit for misfit in misfits) and fits(state, candidate):
            return candidate
    least: tuple[int, Compilation] | None = None
    for candidate in sorted(candidates, key=lambda c: c.peak_bytes):
        if least is None or candidate.peak_bytes < least[0]:
            least = _smaller(least, least_bytes(state, candidate), state)
    assert least is not None
    if least[0] >= NEVER:
        raise no_host_room(state, candidates)
    raise _refusal(state, *least)


def fits(state: Compilation, candidate: Candidate) -> bool:
    """Whether a candidate can be carried out within the budgets: whether the budget is no less than its `least_bytes`.

    Where it `packs` with the smallest workspaces, it is packed with those for which there is room, too. What the passes
    came to is kept in `state.tried`, so that they need not run again on the one that is taken, the last one judged.
    """
    if not packs(state, candidate):
        return False
    budget, trial = state.request.budget_bytes, state.tried
    assert budget is not None and trial is not None
    roomy = replace(trial)
    choose_workspaces(roomy)
    if roomy.algorithms != trial.algorithms:
        assign_offsets(roomy, budget - roomy.persistent_bytes)
        if packed_bytes(roomy) <= budget:
            state.tried = roomy
    return True


def packs(state: Compilation, candidate: Candidate) -> bool:
    """Whether a candidate is within the budgets with the smallest workspaces, as for `least_bytes`; what it came to is
    in `state.tried`. Asking again about the last one that did packs nothing."""
    budget = state.request.budget_bytes
    assert budget is not None
    if candidate.peak_bytes > budget:
        return False
    if state.packed is not None and state.packed[0] is candidate:
        state.tried = state.packed[1]
        return True
    trial = state.tried = _carried_out(state, candidate, budget)
    if not _has_host_room(trial) or packed_bytes(trial) > budget:
        return False
    state.packed = candidate, trial
    return True


def least_bytes(state: Compilation, candidate: Candidate) -> int:
    """The least budget under which a candidate is taken: what it is packed to with the smallest workspaces, or its
    quick count where that is more, by which it is passed over; NEVER where the host budget has no room for it."""
    trial = state.tried = _carried_out(state, candidate)
    return max(candidate.peak_bytes, packed_bytes(trial)) if _has_host_room(trial) else NEVER


def _has_host_room(trial: Compilation) -> bool:
    return trial.host_bytes + trial.home_bytes <= allowed_host_bytes(trial)


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


def _refusal(state: Compilation, least: int, tried: Compilation) -> OutOfMemoryError:
    """The error that names the least budget, what forces it, and what to do."""
    request, trial = state.request, replace(tried, layout=copy.deepcopy(state.layout))
    budget = request.budget_bytes
    assert budget is not None
    return OutOfMemoryError(
        f"a budget of {budget} bytes ({format_bytes(budget)}) is too small for `{request.program}` with "
        f"memory={request.memory!r}: the least that it can do with is {least} bytes ({format_bytes(least)}), of "
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


def _carried_out(state: Compilation, candidate: Candidate, budget: int | None = None) -> Compilation:
    """A copy of the compilation in which the passes up to packing have carried a candidate out with the smallest
    workspaces; with a budget only so far that one sees whether it fits."""
    trial = replace(state, schedule=candidate.schedule, seconds={}, tried=None, packed=None)
    if candidate.graph is not None:
        trial.graph, trial.backward_start = candidate.graph, backward_start(candidate.graph)
    apply_schedule(trial)
    share(trial)
    choose_workspaces(trial, smallest=state.request.budget_bytes is not None)
    assign_offsets(trial, None if budget is None else max(budget - trial.persistent_bytes, 0))
    return trial


def packed_bytes(trial: Compilation) -> int:
    """Bytes of both arenas of a compilation that was packed."""
    assert trial.transient_bytes is not None
    return trial.persistent_bytes + trial.transient_bytes

"""What a run that broke off may have left half updated, and what must be set again before another one runs."""
from __future__ import annotations

from .base import MXNetError
from .plan.plan import Plan

PARAMETERS, STATES = "parameters", "optimizer states"
_REMEDIES = {PARAMETERS: "set the parameters again (copy_params_from, set_params or load)",
             STATES: "set the optimizer's states again (Module: load_optimizer_states, or "
                     "init_optimizer(force_init=True); Executor: clear_states)"}
_KINDS = {"parameter": PARAMETERS, "auxiliary": PARAMETERS, "state": STATES}
"""What must be set again by the class of a buffer that was written."""


class Breakage:
    """Why a run broke off, and what waits to be set again; nothing runs until nothing waits."""

    def __init__(self) -> None:
        self.reason = ""
        self.waiting: set[str] = set()

    def note(self, error: BaseException, plan: Plan, part: str, adds: bool) -> None:
        """A part of a plan broke off with an error; `adds` says that gradients are added to those that are there."""
        found = _written(plan, part, adds)
        if found:
            self.reason = f"{type(error).__name__} in `{plan.program}`"
            self.waiting |= found

    def mended(self, what: str) -> None:
        """The parameters, or the optimizer's states, were set."""
        self.waiting.discard(what)

    def check(self) -> None:
        """MXNetError while anything waits, with what to do."""
        if self.waiting:
            todo = " and ".join(_REMEDIES[what] for what in _REMEDIES if what in self.waiting)
            raise MXNetError(f"a run broke off before ({self.reason}), so {' and '.join(sorted(self.waiting))} may be "
                             f"half updated; {todo}, and go on")


def _written(plan: Plan, part: str, adds: bool) -> set[str]:
    """What a part of a plan changes. Where anything has its home outside the device, all of it is under way there."""
    columns, code = plan.buffers, plan.instructions
    if plan.arena_bytes("host") + plan.arena_bytes("file"):
        buffers = {tensor.first for tensor in plan.persistent} | {tensor.last for tensor in plan.persistent}
    else:
        buffers = {b for i in range(*plan.ranges[part]) for b in code.writes[i]}
    classes = {columns.buffer_class[b] for b in buffers}
    found = {_KINDS[kind] for kind in classes if kind in _KINDS}
    return found | {PARAMETERS} if adds and "gradient" in classes else found

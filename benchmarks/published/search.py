"""The least bytes that a policy makes of a network, by the quick count, and the largest network within a capacity."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from minigraph.base import Shape
from minigraph.memory.policies import POLICIES, Candidate
from minigraph.passes.apply_schedule import backward_start
from minigraph.passes.compilation import Compilation
from minigraph.passes.pipeline import PASSES, run_pass
from minigraph.passes.schedule import PLAIN, make_problem
from minigraph.planning import prepare

Build = Callable[[int], "tuple[Any, Mapping[str, Shape]]"]
"""From a batch or a depth to a symbol and the shapes of its inputs."""
Cost = tuple[int, float]
"""Peak bytes and modelled seconds of a step."""
AUTO = POLICIES["auto"]
MOMENTUM = {"momentum": 0.9}
NEVER = 1 << 62
"""Bytes that no capacity reaches."""
_SCHEDULED = 1 + next(k for k, stage in enumerate(PASSES) if stage.name == "schedule")
"""Number of passes up to the schedule."""


@dataclass(frozen=True)
class Setting:
    """What is given beside the network: a machine's name, bytes of host memory, whether SGD has momentum, a budget in
    bytes, with which workspaces count as small as they may be, and whether values that backward only compares are kept
    as bits."""

    machine: str
    host_bytes: int
    momentum: bool = True
    budget_bytes: int | None = None
    encode: bool = True


class Step:
    """A training step, compiled up to its schedule as for a GPU and a policy: with its kernels' fused forms and
    workspaces, plain layouts, and the plain order, as there is no budget yet."""

    def __init__(self, build: Build, n: int, setting: Setting) -> None:
        symbol, shapes = build(n)
        params = MOMENTUM if setting.momentum else {}
        program = prepare(symbol, shapes, "sgd", "step", "auto", optimizer_params=params, machine=setting.machine,
                          host_budget=setting.host_bytes, encode=setting.encode)
        request = replace(program.request, verify=False)
        self.state = Compilation(request, program.graph, program.layout)
        for stage in PASSES[:_SCHEDULED]:
            run_pass(stage, self.state)
        assert self.state.schedule is not None
        self.state.request = replace(request, budget_bytes=setting.budget_bytes)
        self.problem = make_problem(self.state)
        self._whole: dict[str, list[Candidate]] = {}
        self._sliced: dict[str, list[Candidate]] = {}

    @property
    def plain_seconds(self) -> float:
        """Modelled time of the plain order."""
        return sum(self.problem.seconds[node] for node in self.problem.order)

    def candidates(self, policy: str) -> list[Candidate]:
        """What a policy offers; `plain` offers the graph's own order alone."""
        strategy = PLAIN if policy == "plain" else POLICIES[policy]
        return strategy.offer(self.problem, strategy.moves_homes)

    def whole(self, search: str = "default") -> list[Candidate]:
        """What `auto` offers of the whole graph."""
        if search not in self._whole:
            self._whole[search] = AUTO.offer(self.problem, AUTO.moves_homes, search)
        return self._whole[search]

    def sliced(self, search: str = "default") -> list[Candidate]:
        """What `auto` weighs where the plain order does not fit: those of the whole graph, and those in slices."""
        if search not in self._sliced:
            self._sliced[search] = AUTO.further(self.problem, self.whole(search), AUTO.moves_homes)
        return self._sliced[search]

    def planned_bytes(self, candidate: Candidate, capacity_bytes: int | None = None) -> int:
        """Bytes of the packed and verified plan of a candidate, which may be of a graph in slices; with a capacity, of
        the first that packing finds within it, as under a budget: looking on for the least takes a minute of the
        largest steps. The step cannot be asked again."""
        self.state.schedule = candidate.schedule
        if candidate.graph is not None:
            self.state.graph, self.state.backward_start = candidate.graph, backward_start(candidate.graph)
        self.state.request = replace(self.state.request, verify=True, budget_bytes=capacity_bytes)
        for stage in PASSES[_SCHEDULED:]:
            run_pass(stage, self.state)
        assert self.state.plan is not None
        return self.state.plan.planned_bytes


def least_bytes(found: Iterable[Cost], within_seconds: float = float("inf")) -> int:
    """The lowest peak among candidates that take so long at most."""
    return min((nbytes for nbytes, seconds in found if seconds <= within_seconds), default=NEVER)


def least_seconds(found: Iterable[Cost], within_bytes: int) -> float | None:
    """The shortest time among candidates that take so many bytes at most; None when there is none."""
    return min((seconds for nbytes, seconds in found if nbytes <= within_bytes), default=None)


def largest(needed: Callable[[int], int], capacity_bytes: int, start: int, resolution: float) -> int:
    """The largest n whose needed bytes are within the capacity, or one that fills it to a share; 0 for none.

    Bytes grow about linearly: the next n is where a line through the last two that were tried meets the capacity,
    and every third one halves what is left, should they not.
    """
    fits, above, tried = 0, 1 << 40, [(0, 0)]
    n = start
    while above - fits > 1:
        nbytes = needed(n)
        tried.append((n, nbytes))
        if 0 <= capacity_bytes - nbytes < resolution * capacity_bytes:
            return n
        fits, above = (n, above) if nbytes <= capacity_bytes else (fits, n)
        slope = max((nbytes - tried[-2][1]) / (n - tried[-2][0]), nbytes / n / 8)
        n = (fits + above) // 2 if len(tried) % 3 == 0 and above < 1 << 40 else \
            int(n + (capacity_bytes * (1 - resolution / 4) - nbytes) / slope)
        n = min(max(n, fits + 1), above - 1, 8 * max(fits, start))
    return fits



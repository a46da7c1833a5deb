"""`rotor`: Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains: how to
train deep neural networks with limited memory" (2019).

The forward part is a chain of stages between cuts. A stage is run in one of two ways: keeping all that its backward
needs, or keeping only what the next stage reads. The least time to go through stages s to t and back within m bytes,
by schedules that never drop a kept value before its backward has used it (persistent ones), obeys a recurrence:

    best(s, t, m) = the lesser of
        run s and keep all:  forward(s) + best(s+1, t, m - kept(s)),
        keep the input of s, run s to c-1 for their outputs alone, go through c to t and back, and then begin anew at s:
                             forward(s..c-1) + best(c, t, m - input(c)) + best(s, c-1, m)   for the best c.

Bytes are counted in slots, as by the authors, and longer chains are coarsened to LONGEST stages. Each m is a candidate.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ...base import Entry
from ..schedule import Recomputation, Schedule, from_order
from .cuts import Cut, find_cuts
from .problem import Candidate, Problem, judge

LONGEST = 64
"""Stages of a chain; time grows with their third power."""
SLOTS = 200
"""Slots into which the bytes of a chain are divided."""
BUDGETS = 40
"""Numbers of slots for which a schedule is made."""

KEEP_ALL, KEEP_INPUT, KEEP_OUTPUT, BACKWARD = "all", "input", "output", "backward"
WITHIN = -1
Command = tuple[str, int]
"""What to do with a stage: run it and keep all; run it for its output and keep its input, since it is run again from
there; run it for its output and drop its input; or go back through it."""


@dataclass(frozen=True)
class Stage:
    """Part of a chain: forward positions [first, last), what crosses its end, and bytes and seconds for the recurrence.

    `kept_bytes` are those of all that its backward needs, with its output; `output_bytes` those of the output alone;
    `work_bytes` are live besides kept values at the worst step of its backward.
    """

    first: int
    last: int
    output: frozenset[Entry]
    seconds: float
    kept_bytes: int
    output_bytes: int
    work_bytes: int


def rotor(problem: Problem) -> list[Candidate]:
    """Plain, and the best persistent schedule of the chain for each of some memory sizes."""
    return judge(problem, [from_order(problem.order), *schedules(problem)])


def schedules(problem: Problem, budgets: int = BUDGETS) -> Iterator[Schedule]:
    """The best persistent schedule for each of some memory sizes, once each."""
    stages = chain(problem) if budgets else []
    if len(stages) < 2:
        return
    best = BestTimes(stages)
    seen: set[tuple[Command, ...]] = set()
    for slots in best.sizes(budgets):
        commands = tuple(best.commands(slots))
        if commands not in seen:
            seen.add(commands)
            yield Chain(problem, stages, commands).schedule()


# -- the chain -----------------------------------------------------------------------------------------------
def chain(problem: Problem, longest: int = LONGEST) -> list[Stage]:
    """The forward part as a chain of at most so many stages of about equal saved bytes."""
    cuts = _evenly(find_cuts(problem), longest - 1)
    borders = [0, *(cut.position + 1 for cut in cuts), len(problem.forward)]
    outputs = [cut.entries for cut in cuts] + [frozenset[Entry]()]
    stage_of = {node: k for k, (first, last) in enumerate(pairwise(borders)) for node in problem.forward[first:last]}
    work = _work_bytes(problem, stage_of, len(outputs))
    saved = set(problem.saved) & problem.droppable
    stages = []
    for k, (first, last) in enumerate(pairwise(borders)):
        nodes = problem.forward[first:last]
        own = {e for node in nodes for e in problem.graph.entries(node) if e in saved} | outputs[k]
        stages.append(Stage(first, last, outputs[k], sum(problem.seconds[node] for node in nodes),
                            sum(problem.size_bytes[e] for e in own), sum(problem.size_bytes[e] for e in outputs[k]),
                            work[k]))
    return stages


def _evenly(cuts: Sequence[Cut], count: int) -> list[Cut]:
    """At most so many of the cuts, with about as many saved bytes between each and the next."""
    if len(cuts) <= count:
        return list(cuts)
    share = cuts[-1].before_bytes / count
    chosen: list[Cut] = []
    for cut in cuts:
        if len(chosen) < count and cut.before_bytes >= (len(chosen) + 1) * share - share / 2:
            chosen.append(cut)
    return chosen


def _work_bytes(problem: Problem, stage_of: dict[int, int], count: int) -> list[int]:
    """For each stage the most bytes that are live at a step of its backward beyond all that it has saved: of that some
    is gone before the worst step, and what earlier stages have saved does not count."""
    graph, plain = problem.graph, from_order(problem.order)
    saved = set(problem.saved) & problem.droppable
    live = problem.live(plain).tolist()
    last = {e: t for t in range(problem.backward_start, len(problem.order))
            for e in problem.reads[problem.order[t]] if e in saved}
    ending: dict[int, list[Entry]] = {}
    own = [0] * count
    for e, t in last.items():
        ending.setdefault(t, []).append(e)
        own[stage_of[graph.node_of[e]]] += problem.size_bytes[e]
    all_own, held, stage, work = list(own), sum(own), count - 1, [0] * count
    floor = max(live, default=0)
    for t in range(problem.backward_start, len(problem.order)):
        read = [stage_of[graph.node_of[e]] for e in problem.reads[problem.order[t]] if e in saved]
        stage = min(stage, max(read, default=stage))
        floor = min(floor, live[t] - held)
        work[stage] = max(work[stage], live[t] - held + own[stage])
        for e in ending.get(t, ()):
            held -= problem.size_bytes[e]
            own[stage_of[graph.node_of[e]]] -= problem.size_bytes[e]
    return [max(most - floor - kept, 0) for most, kept in zip(work, all_own, strict=True)]


# -- the recurrence ------------------------------------------------------------------------------------------
class BestTimes:
    """The recurrence, solved for all stretches of a chain and all numbers of slots.

    A stage may be a chain itself: `within` has its own solution, in slots of the same size, or None. What is commanded
    is told of the stages of these. The slots hold all bytes of the chain, or `most_bytes`.
    """

    def __init__(self, stages: Sequence[Stage], most_bytes: int | None = None,
                 within: Sequence[BestTimes | None] = ()) -> None:
        self.count = len(stages)
        self.within = within or [None] * self.count
        ends = list(accumulate((1 if inner is None else inner.count for inner in self.within), initial=0))
        self.own = [range(first, last) for first, last in pairwise(ends)]
        """For each stage the numbers of its own stages, or of itself."""
        whole = sum(s.kept_bytes for s in stages) + max(s.work_bytes for s in stages)
        self.slot_bytes = max(whole if most_bytes is None else most_bytes, SLOTS) / SLOTS
        self.kept = [self._slots(s.kept_bytes) for s in stages]
        self.output = [self._slots(s.output_bytes) for s in stages]
        self.work = [self._slots(s.work_bytes) for s in stages]
        self.most = sum(self.kept) + max(self.work) if most_bytes is None else SLOTS
        self.until = np.concatenate(([0.0], np.cumsum([s.seconds for s in stages])))
        shape = (self.count, self.count, self.most + 1)
        self.seconds = np.full(shape, np.inf)
        """The best seconds from each stage to each other and back, by the number of slots."""
        self.behind = np.full(shape, np.inf)
        """For each last stage and each first one the same while the input of the first is kept, too."""
        self.choice: dict[tuple[int, int], NDArray[np.int64]] = {}
        for length in range(1, self.count + 1):
            for first in range(self.count - length + 1):
                self._solve(first, first + length - 1)

    def sizes(self, count: int, most_forward: float = np.inf) -> list[int]:
        """Numbers of slots from the least that is enough to all, in geometric steps; enough to take no longer than
        `most_forward` times through the chain."""
        best = self.seconds[0, self.count - 1]
        enough = np.flatnonzero(np.isfinite(best) & (best <= most_forward * self.until[-1]))
        if not enough.size:
            return []
        least = max(int(enough[0]), 1)
        return sorted({round(least * (self.most / least) ** (k / max(count - 1, 1))) for k in range(count)})

    def commands(self, slots: int) -> Iterator[Command]:
        """The best schedule for so many slots."""
        todo = [(0, self.count - 1, slots)]
        while todo:
            first, last, m = todo.pop()
            if m < 0:
                yield from ((BACKWARD, stage) for stage in reversed(self.own[first]))
                continue
            begin = int(self.choice[first, last][m])
            if begin == WITHIN:
                inner = self.within[first]
                assert inner is not None
                yield from ((kind, self.own[first].start + stage) for kind, stage in inner.commands(m))
                continue
            if begin == first:
                yield from ((KEEP_ALL, stage) for stage in self.own[first])
                todo.append((first, first, -1))
                if first < last:
                    todo.append((first + 1, last, m - self.kept[first]))
                continue
            passed = range(self.own[first].start, self.own[begin].start)
            yield KEEP_INPUT, passed[0]
            yield from ((KEEP_OUTPUT, stage) for stage in passed[1:])
            todo.append((first, begin - 1, m))
            todo.append((begin, last, m - self.output[begin - 1]))

    def _slots(self, nbytes: int) -> int:
        return int(np.ceil(nbytes / self.slot_bytes))

    def _solve(self, first: int, last: int) -> None:
        """Best seconds by the number of slots, and the stage that the rest begins with: `first` for keeping all, and
        WITHIN for going through a stage of its own stages."""
        kept = self.kept[first]
        best = self.until[first + 1] - self.until[first] + (
            np.zeros(self.most + 1) if first == last else _shifted(self.seconds[first + 1, last], kept))
        best[:kept + self.work[first]] = np.inf
        choice = np.full(self.most + 1, first)
        inner = self.within[first]
        if first == last and inner is not None:
            other = inner.seconds[0, inner.count - 1]
            choice = np.where(other < best, WITHIN, choice)
            best = np.minimum(other, best)
        if first < last:
            forward = (self.until[first + 1:last + 1] - self.until[first])[:, None]
            others = forward + self.seconds[first, first:last] + self.behind[last, first + 1:last + 1]
            at = others.argmin(axis=0)
            other = others[at, np.arange(self.most + 1)]
            choice = np.where(other < best, at + first + 1, choice)
            best = np.minimum(other, best)
        self.seconds[first, last], self.choice[first, last] = best, choice
        if first:
            self.behind[last, first] = _shifted(best, self.output[first - 1])


def _shifted(seconds: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """The seconds that are left when so many slots are taken."""
    if slots == 0:
        return seconds.copy()
    return np.concatenate((np.full(min(slots, len(seconds)), np.inf), seconds[:max(len(seconds) - slots, 0)]))


# -- the schedule --------------------------------------------------------------------------------------------
class Chain(Recomputation):
    """Writes the schedule that the commands describe. What a backward node needs from a stage is there once the
    commands before that stage's backward have run; whatever is missing still is made by the standard rule."""

    def __init__(self, problem: Problem, stages: Sequence[Stage], commands: Sequence[Command]) -> None:
        super().__init__(problem.facts, problem.droppable)
        self.stages = stages
        self.stage_of = {node: k for k, stage in enumerate(stages) for node in problem.forward[stage.first:stage.last]}
        self.made = [[e for node in problem.forward[stage.first:stage.last] for e in self.graph.entries(node)
                      if e in self.recompute] for stage in stages]
        self.saved = frozenset(problem.saved)
        self.commands = commands
        self.backward = {stage: k for k, (kind, stage) in enumerate(commands) if kind == BACKWARD}
        self.next = min(self.backward.values())
        self.passing = frozenset(e for kind, stage in commands[:self.next] for e in self._dropped_by(kind, stage))

    def _dropped_by(self, kind: str, stage: int) -> set[Entry]:
        """What a command leaves behind and nobody keeps: what the stage makes but its output, and its input."""
        if kind not in (KEEP_INPUT, KEEP_OUTPUT):
            return set()
        dropped = set(self.made[stage])
        if kind == KEEP_OUTPUT and stage > 0:
            dropped |= self.stages[stage - 1].output
        return dropped - self.stages[stage].output

    def _leaving(self) -> frozenset[Entry]:
        return self.recompute & self.passing

    def _provide(self, wanted: Iterable[Entry]) -> None:
        wanted = list(wanted)
        missing = [self.stage_of[self.graph.node_of[e]] for e in wanted if e in self.dropped]
        if missing:
            self._run_commands(max(missing))
            self._make_again(wanted)

    def _run_commands(self, upto: int) -> None:
        """Run the commands before the backward of a stage, if they have not run yet."""
        ahead = self.backward[upto]
        for k in range(self.next, ahead):
            kind, stage = self.commands[k]
            if kind == KEEP_ALL:
                self._make_again([e for e in self.made[stage] if e in self.saved or e in self.stages[stage].output])
            elif kind in (KEEP_INPUT, KEEP_OUTPUT):
                self._make_again(sorted(self.stages[stage].output))
                for entry in sorted(self._dropped_by(kind, stage) - self.dropped):
                    self._drop(entry)
        self.next = max(ahead, self.next)


"""One step, played with both links for a target size of the device.

Dear values are copied to host memory as they are made, whenever the link is free, and leave the device where room is
needed. The others are let go of and made again when they are read. What leaves is always what costs least to get back
for the time until it is read (Belady's rule with costs). In backward dear values come back just in time; one that
would be late is computed again where that is sooner.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from ...base import Entry
from ..schedule import DROP, IN, OUT, RUN, Schedule
from .due import Due
from .ground import Ground
from .losses import Losses

MARGIN = 0.01
"""Share of the target by which more room is made than needed, so that it is not made for each step anew."""
HIDDEN = 0.5
"""Share of its time that a copy back is taken to cost, as others of its kind go on beside the computation."""
EARLY_SECONDS, EARLY_SHARE = 0.02, 1 / 64
"""Time by which copies back begin before they must, and the share of a long step that is more."""
WINDOW = 256
"""Steps ahead over which room is looked for before a value comes back."""
FIRST_USES = 8
"""Readers of what is made from a value that are foreseen."""
LONGEST_WAY = 128
"""Values that are looked at for the way to one, before copies in host memory are taken where there are some."""
MOST_RUNS = 3
"""Runs of the whole graph, counted in steps, after which a play is given up."""


class Play:
    """One step, played with both links for a target. Dear values of `by_copy` come back only by their copies in host
    memory, as to make them again would take room for what they are made from. `hidden` is the share of its time that
    a copy back is taken to cost."""

    def __init__(self, ground: Ground, target_bytes: int, dear: frozenset[Entry],
                 by_copy: frozenset[Entry] = frozenset(), hidden: float = HIDDEN) -> None:
        self.ground, self.problem, self.target = ground, ground.problem, target_bytes
        self.size, self.seconds, self.reads = self.problem.size_bytes, self.problem.seconds, self.problem.reads
        self.dear, self.by_copy, self.hidden = dear, by_copy | ground.inputs, hidden
        self.early = max(EARLY_SECONDS, EARLY_SHARE * ground.starts[-1])
        uses = self._uses()
        self.losses = Losses(ground, dear, hidden, uses)
        self.gone, self.copied = self.losses.gone, self.losses.copied
        self.only_copied: set[Entry] = set()
        """Values of `by_copy` that have a copy."""
        self.steps: list[tuple[str, int]] = []
        self.clock = self.link_out = self.link_in = 0.0
        self.t = 0
        """The step of plain order that the play has come to."""
        self.crowded: set[Entry] = set()
        """Values that could not be made again within the target."""
        self.arrives: dict[Entry, float] = {}
        self.away = Due(ground.starts, self.problem.copy_in_seconds)
        """Values that are gone and have a copy in host memory, on the clock of plain order."""
        self.absent = 0
        """Bytes that plain order holds at this step and the play does not, less those that the play alone holds."""
        self.waiting: deque[Entry] = deque()
        """Dear values to be copied out when the link is free, in the order in which they were made."""
        self.expiring: dict[int, list[Entry]] = {}
        for entry, steps in uses.items():
            self.expiring.setdefault(max(ground.ends[entry], *steps[-1:], 0), []).append(entry)

    def _uses(self) -> dict[Entry, list[int]]:
        """For each managed value the steps that read it, or that read what is made again from it."""
        graph, managed, start = self.problem.graph, self.ground.managed, self.problem.backward_start
        uses = {e: list(found) for e, found in self.ground.readers.items()}
        for node in reversed(self.problem.forward):
            later = sorted({t for e in graph.entries(node) if e in managed and e not in self.dear
                            for t in uses[e] if t >= start})[:FIRST_USES]
            for source in managed.intersection(self.reads[node]) if later else ():
                uses[source] += later
        return {e: sorted(set(found)) for e, found in uses.items()}

    def _until(self, step: int) -> float:
        """Seconds of computation until a step begins."""
        starts = self.ground.starts
        return starts[min(step, len(starts) - 1)] - starts[self.t]

    def run(self) -> Schedule | None:
        """The schedule; None when more would be run again than is worth it."""
        problem, managed = self.problem, self.ground.managed
        for entry in sorted(self.ground.inputs):
            self.losses.come(entry)
        self.waiting += sorted(self.ground.inputs & self.dear)
        for self.t, node in enumerate(problem.order):
            if len(self.steps) > MOST_RUNS * len(problem.order):
                return None
            needed = [e for e in self.reads[node] if e in managed]
            made = [e for e in problem.graph.entries(node) if e in managed]
            locked = {*needed, *made}
            self._provide([e for e in needed if e in self.gone], locked)
            self._make_room(int(self.ground.live[self.t]), locked)
            self._run(node)
            for entry in made:
                self.losses.come(entry)
            self.waiting += [e for e in made if e in self.dear]
            self._pass(locked)
            self._copy_out()
            self._prefetch()
        return Schedule(tuple(self._needed_steps()))

    def _run(self, node: int) -> None:
        for entry in self.reads[node]:
            self.clock = max(self.clock, self.arrives.pop(entry, 0.0))
        self.steps.append((RUN, node))
        self.clock += self.seconds[node]

    def _pass(self, entries: Collection[Entry]) -> None:
        """Values that plain order lets go of after this step stay for those who read them later, or go too."""
        self.absent -= sum(self.size[e] for e in entries if self.ground.ends[e] == self.t)
        for entry in self.expiring.pop(self.t, ()):
            if self.losses.is_on_device(entry) and self._comes_back(entry):
                self._drop(entry)

    def _comes_back(self, entry: Entry) -> bool:
        """Whether a value that goes can be had again: what reads an input may run again later than was foreseen."""
        return entry in self.copied or entry not in self.ground.inputs

    # -- room ----------------------------------------------------------------------------------------------------
    def _make_room(self, live_bytes: int, locked: Collection[Entry], below: float = float("inf")) -> bool:
        """Let values go until so many bytes of plain order, less what is absent, are within the target; only such as
        lose less than `below`. Whether they are."""
        over = live_bytes - self.absent - self.target
        if over <= 0:
            return True
        wanted = over + MARGIN * self.target
        for loss, entry in self._by_loss(locked):
            if loss >= below or wanted <= 0 or (over <= 0 and self._waits_for(entry)):
                break
            self._let_go(entry)
            over -= self.size[entry]
            wanted -= self.size[entry]
        return over <= 0

    def _by_loss(self, locked: Collection[Entry]) -> Iterator[tuple[float, Entry]]:
        """(loss, value) of those that may leave, those first that cost least to get back."""
        under_way = [entry for entry, there in self.arrives.items() if there > self.clock]
        return self.losses.ranked(self.t, self.clock, self.link_out, chain(locked, under_way))

    def _waits_for(self, entry: Entry) -> bool:
        """Whether the step would wait for the copy of a value that leaves now."""
        return entry in self.dear and self.copied.get(entry, float("inf")) > self.clock

    def _let_go(self, entry: Entry) -> None:
        """Drop a value, when it is dear once its copy is there."""
        if entry in self.dear:
            if entry not in self.copied:
                self._issue_out(entry)
            self.clock = max(self.clock, self.copied[entry])
        self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        self.steps.append((DROP, entry))
        self.losses.leave(entry)
        if entry in self.copied:
            self.away.add(entry, self.losses.next_use(entry, self.t))
        self.absent += self.size[entry]

    def _back(self, entry: Entry) -> None:
        self.losses.come(entry)
        self.away.discard(entry)
        self.absent -= self.size[entry]

    # -- copies --------------------------------------------------------------------------------------------------
    def _copy_out(self) -> None:
        """Begin to copy dear values out while the link is free."""
        while self.waiting and self.link_out <= self.clock:
            entry = self.waiting.popleft()
            if self.losses.is_on_device(entry) and entry not in self.copied:
                self._issue_out(entry)

    def _issue_out(self, entry: Entry) -> None:
        self.steps.append((OUT, entry))
        self.link_out = max(self.link_out, self.clock) + self.problem.copy_out_seconds(entry)
        self.losses.copy(entry, self.link_out)
        if entry in self.by_copy:
            self.only_copied.add(entry)

    def _issue_in(self, entry: Entry) -> None:
        self.steps.append((IN, entry))
        self.link_in = max(self.link_in, self.clock) + self.problem.copy_in_seconds(entry)
        self.arrives[entry] = self.link_in
        self._back(entry)

    def _prefetch(self) -> None:
        """Begin to bring a value back when the link is free and it, or one behind it, would else be late: the one
        needed first of those that come sooner than they are computed again."""
        if not self.away or self.t < self.problem.backward_start or self.link_in > self.clock:
            return
        self.away.pass_to(self.t, lambda entry: self.losses.next_use(entry, self.t))
        if self.away.latest() - self.ground.starts[self.t] > self.early:
            return
        for use, entry in self.away:
            if self.problem.copy_in_seconds(entry) - self._until(use) < self.losses.seconds_again(entry):
                self._bring(entry, use)
                return

    def _bring(self, entry: Entry, use: int) -> None:
        """Copy a value back for a step if there is room until then, or room can be made of values that lose less."""
        ahead = self.ground.live[self.t + 1:min(use, self.t + WINDOW) + 1]
        needed = int(ahead.max(initial=0)) + self.size[entry]
        lost = self.hidden * self.problem.copy_in_seconds(entry) / self.size[entry] / (self._until(use) + 1e-9)
        self._make_room(needed, (), lost)
        if needed - self.absent <= self.target:
            self._issue_in(entry)

    # -- what is missing -----------------------------------------------------------------------------------------
    def _provide(self, missing: Sequence[Entry], locked: set[Entry]) -> None:
        """Get values that are gone, each in the way that is sooner."""
        before = self.ground.live[max(self.t - 1, 0)]
        crossing = int(min(before, self.ground.live[self.t]))  # what crosses into a step is live on both sides
        for entry in missing:
            if entry in self.gone:
                nodes = self._way(entry) if self.t >= self.problem.backward_start else []
                if nodes:
                    if not self._make_again(nodes, locked, crossing):
                        self.crowded.add(entry)
                else:
                    self._make_room(crossing + self.size[entry], locked)
                    self._issue_in(entry)

    def _way(self, wanted: Entry) -> list[int]:
        """The nodes to run for a value that is gone, in order, with those for what they read; none where its copy in
        host memory is sooner."""
        graph, runs, stack = self.problem.graph, self._runs(wanted), [wanted]
        found: set[int] = set()
        while stack:
            entry = stack.pop()
            node = graph.node_of[entry]
            if runs.get(entry, False) and node not in found:
                found.add(node)
                stack += [e for e in self.reads[node] if e in self.gone]
        return sorted(found, key=self.ground.position.__getitem__)

    def _runs(self, wanted: Entry) -> dict[Entry, bool]:
        """For a value that is gone, and what it is made from, whether computing it is sooner than its copy."""
        cost: dict[Entry, float] = {}
        runs: dict[Entry, bool] = {}
        gone, copied, only_copied, node_of = self.gone, self.copied, self.only_copied, self.problem.graph.node_of
        reads, size, back_seconds = self.reads, self.size, self.problem.copy_seconds[1]
        backlog = max(self.link_in - self.clock, 0.0)
        stack = [wanted]
        while stack:
            entry = stack[-1]
            if entry in cost:
                stack.pop()
                continue
            node = node_of[entry]
            sources = [e for e in reads.get(node, ()) if e in gone]
            if entry not in only_copied:
                far = len(cost) >= LONGEST_WAY
                further = [e for e in sources if e not in cost and e not in only_copied and not (far and e in copied)]
                if further:
                    stack += further
                    continue
            stack.pop()
            again = self.seconds[node] + sum([cost[e] if e in cost else backlog + back_seconds[size[e]]
                                              for e in sources])
            by_copy = backlog + back_seconds[size[entry]] if entry in copied else float("inf")
            runs[entry] = again < by_copy and entry not in only_copied
            cost[entry] = again if runs[entry] else by_copy
        return runs

    def _make_again(self, nodes: Sequence[int], locked: set[Entry], crossing: int) -> bool:
        """Run nodes again, each after what it reads has come back; what only they need stays no longer than that.
        Whether all that stayed within the target."""
        last = {e: k for k, node in enumerate(nodes) for e in self.reads[node] if e in self.ground.managed}
        held, fits = {*locked, *last}, True
        for k, node in enumerate(nodes):
            made = [e for e in self.problem.graph.entries(node) if e in self.gone]
            held.update(made)
            for entry in self.reads[node]:
                if entry in self.gone:
                    fits &= self._make_room(crossing + self.size[entry], held)
                    self._issue_in(entry)
            fits &= self._make_room(crossing + sum(self.size[e] for e in made), held)
            self._run(node)
            for entry in made:
                self._back(entry)
            held.difference_update(e for e in (*self.reads[node], *made) if last.get(e, -1) <= k and e not in locked)
        return fits

    def _needed_steps(self) -> Iterator[tuple[str, int]]:
        """The steps without copies that nobody reads, and without drops of what is never there again."""
        steps, gone = [], set[Entry]()
        for kind, operand in self._read_copies():
            if kind == RUN:
                gone.difference_update(self.problem.graph.entries(operand))
            elif kind == IN:
                gone.discard(operand)
            elif kind == DROP and operand in gone:
                continue
            elif kind == DROP:
                gone.add(operand)
            steps.append((kind, operand))
        coming, made, kept = set[Entry](), set[Entry](), []
        for kind, operand in reversed(steps):
            if kind == RUN:
                made.update(self.problem.graph.entries(operand))
            elif kind == IN:
                coming.add(operand)
            if kind in (RUN, IN) or operand in coming or (kind == DROP and operand in made):
                kept.append((kind, operand))
        return reversed(kept)

    def _read_copies(self) -> Iterator[tuple[str, int]]:
        """The steps without copies back that nobody reads before the value leaves again."""
        read, kept = set[Entry](), []
        for kind, operand in reversed(self.steps):
            if kind == IN and operand not in read:
                continue
            if kind == RUN:
                read.difference_update(self.problem.graph.entries(operand))
                read.update(self.reads[operand])
            else:
                read -= {operand} if kind != OUT else set()
            kept.append((kind, operand))
        return reversed(kept)

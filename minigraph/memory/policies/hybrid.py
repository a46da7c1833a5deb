"""Values kept, swapped or computed again, each by what it costs, played for one size of the device.

Values are ranked by the bytes that computing them again saves for each second of it, all their dropped ancestors
counted (the measure of Capuchin, Peng et al. 2020). Those that cost most, as many as the link can copy out during
forward, are *dear*: they are copied to host memory as they are made, whenever the link is free, and leave the device
where room is needed. The others are *cheap*: they are let go of and made again when they are read. What leaves is
always what costs least to get back for the time until it is read (Belady's rule with costs). In backward dear values
come back just in time; one that would be late is computed again where that is sooner. In a graph in slices each slice
of a value leaves and comes back by itself.
"""
from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heapreplace

import numpy as np

from ...base import Entry
from ..schedule import DROP, IN, OUT, RUN, Schedule, from_order, replayed, root_of
from .lineage import Lineages
from .problem import Problem
from .superneurons import memory_centric, speed_centric, tensor_cache
from .swapping import carry

WORK = 24_000
"""Nodes that plays may go through; the number of plays is this over the nodes of a graph, within the next two."""
FEWEST_PLAYS, MOST_PLAYS = 4, 20
LINK_SHARES = (1.0, float("inf"), 0.7)
"""Bytes of dear values over those that the link could copy out during forward; with all that may be, no copy is
passed over for making a value again, and the least memory is reached."""
TARGETS = 6
"""Sizes of the device, in geometric steps from the plain peak to what no choice goes below."""
OF_MEMORY = (0.97, 0.9)
"""Shares of the machine's own memory that are the first targets; the rest is for what packing loses."""
LEAST_SHARE = 1 / 65_536
"""Share of the peak below which a value is too small to be worth a decision."""
MARGIN = 0.01
"""Share of the target by which more room is made than needed, so that it is not made for each step anew."""
HIDDEN = 0.5
"""Share of its time that a copy back is taken to cost, as others of its kind go on beside the computation."""
EARLY_SECONDS = 0.02
"""Time by which copies back begin before they must."""
WINDOW = 256
"""Steps ahead over which room is looked for before a value comes back."""
FIRST_USES = 8
"""Readers of what is made from a value that are foreseen."""
LONGEST_WAY = 128
"""Values that are looked at for the way to one, before copies in host memory are taken where there are some."""
MOST_RUNS = 3
"""Runs of the whole graph, counted in steps, after which a play is given up."""
NEVER = 1 << 60


def played(problem: Problem) -> Iterator[Schedule]:
    """Schedules for a row of targets and shares of dear values, of which those are left out that come to no end."""
    if not problem.backward_start < len(problem.order) <= WORK:
        return
    ground = Ground(postponed(problem))
    shares = LINK_SHARES if problem.host_budget_bytes else (0.0,)
    plays = min(max(WORK // len(problem.order), FEWEST_PLAYS), MOST_PLAYS)
    for target, share in [(target, share) for share in shares for target in ground.targets()][:plays]:
        found = Play(ground, target, ground.dear(share), share == float("inf")).run()
        if found is not None and repeats_alike(problem, found):
            yield found


def postponed(problem: Problem) -> Problem:
    """The problem with each change of a variable behind the last use of what is made from its old value, so that this
    can be made again until then. A change whose result others read stays where it is."""
    graph, order = problem.graph, problem.order
    position = {node: t for t, node in enumerate(order)}
    readers: dict[Entry, list[int]] = {}
    for node in order:
        for entry in problem.reads[node]:
            readers.setdefault(entry, []).append(node)
    needed: dict[int, int] = {}
    for node in reversed(problem.forward):
        uses = [other for e in graph.entries(node) for other in readers.get(e, ())]
        needed[node] = max((max(position[other], needed.get(other, 0)) for other in uses), default=0)
    place = dict(position)
    for node in order[problem.backward_start:]:
        changed = changes(problem, node)
        if changed and not any(e in readers for e in graph.entries(node)):
            place[node] = max([position[node], *(needed.get(r, 0) for e in changed for r in readers.get(e, ()))])
    moved = sorted(order, key=lambda node: (place[node], place[node] > position[node], position[node]))
    return replace(problem, order=moved)


def changes(problem: Problem, node: int) -> set[Entry]:
    """The variables that a node changes."""
    graph, op = problem.graph, problem.graph.op[node]
    assert op is not None
    return {root_of(graph, graph.inputs[node][source]) for source, _ in op.mutates(graph.params[node])}


def repeats_alike(problem: Problem, schedule: Schedule) -> bool:
    """Whether no node runs again after something that it reads was changed."""
    ran, changed = set[int](), set[Entry]()
    for node in schedule.order:
        if node in ran and not changed.isdisjoint(problem.reads[node]):
            return False
        ran.add(node)
        changed |= changes(problem, node)
    return True


def lowest(problem: Problem) -> Iterator[Schedule]:
    """What takes least memory at any price: values away that are not in use, and values made again in segments,
    for each reader or once (SuperNeurons' tensor cache in its smallest size, over its recomputations)."""
    if not problem.backward_start < len(problem.order) <= WORK:
        return
    for base in dict.fromkeys((from_order(problem.order), speed_centric(problem), memory_centric(problem))):
        yield base
        if problem.host_budget_bytes:
            cache = tensor_cache(problem, base)
            yield from (carry(base, cache.play(size)) for size in cache.capacities(1))


class Ground:
    """What all plays of one problem share: live bytes, readers, and the ranking of values.

    `managed` are the values that may leave, and `ends` the last step of plain order that reads each.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.live = problem.live(from_order(problem.order))
        self.peak_bytes = int(self.live.max(initial=0))
        least = max(self.peak_bytes * LEAST_SHARE, 1)
        shown = {root_of(problem.graph, e) for e in (*problem.graph.outputs, *problem.graph.heads)}
        managed = {e for e in problem.droppable - shown if problem.size_bytes[e] >= least}
        self.managed = frozenset(managed - replayed(problem.graph, managed))
        self.position = {node: t for t, node in enumerate(problem.order)}
        self.readers: dict[Entry, list[int]] = {e: [] for e in self.managed}
        for t, node in enumerate(problem.order):
            for entry in self.managed.intersection(problem.reads[node]):
                self.readers[entry].append(t)
        self.ends = {e: max([self.position[problem.graph.node_of[e]], *found]) for e, found in self.readers.items()}
        self.starts = [0.0, *np.cumsum([problem.seconds[node] for node in problem.order]).tolist()]
        self.saved = [e for e in problem.saved if e in self.managed]
        made = Counter(problem.graph.node_of[e] for e in self.managed)
        self.alone = {e for e in self.saved if made[problem.graph.node_of[e]] == 1}
        """Saved values that no other one is made with: only they are copied, as a node may not run again while one that
        it makes is under way."""
        self.again = {e: problem.seconds[problem.graph.node_of[e]] for e in self.managed}
        """Seconds to compute each value again, with what it needs that was ranked before it."""
        self.ranked = self._ranked()

    def _ranked(self) -> list[Entry]:
        """Saved values, those first that save most bytes for a second; later ones count what earlier ones leave to be
        done."""
        size, lineages = self.problem.size_bytes, Lineages(self.problem)
        heap = [(lineages.seconds(e) / size[e], e) for e in self.saved]
        heapify(heap)
        ranked = []
        while heap:
            rate, entry = heap[0]
            seconds = lineages.seconds(entry)
            if seconds / size[entry] > rate:
                heapreplace(heap, (seconds / size[entry], entry))
                continue
            heappop(heap)
            if seconds < float("inf"):
                lineages.choose(entry)
                self.again[entry] = seconds
                ranked.append(entry)
        return ranked

    def dear(self, share: float) -> frozenset[Entry]:
        """The values that cost most to compute again, as many as that share of forward's time can copy out."""
        left = share * self.starts[self.problem.backward_start] * self.problem.machine.copy_out
        found = self.alone.difference(self.ranked) if share else set()
        left -= sum(self.problem.size_bytes[e] for e in found)
        for entry in [e for e in reversed(self.ranked) if e in self.alone]:
            left -= self.problem.size_bytes[entry]
            if left < 0:
                break
            found.add(entry)
        return frozenset(found)

    def targets(self) -> list[int]:
        """Sizes below the plain peak: of the machine's memory first, then steps from the lowest upwards."""
        lowest = self._lowest()
        own = [int(share * self.problem.machine.memory_bytes) for share in OF_MEMORY]
        ratio = lowest / max(self.peak_bytes, 1)
        found = [target for target in own if target > lowest]
        found += [int(self.peak_bytes * ratio ** (k / TARGETS)) for k in range(TARGETS, 0, -1)]
        return list(dict.fromkeys(target for target in found if target < self.peak_bytes))

    def _lowest(self) -> int:
        """The most that lives at a step when every managed value is away that the step does not use."""
        away = np.zeros(len(self.live) + 1, dtype=np.int64)
        size, made = self.problem.size_bytes, self.problem.graph.node_of
        for entry, end in self.ends.items():
            steps = [self.position[made[entry]], *self.readers[entry]]
            away[steps[0]] += size[entry]
            away[end + 1] -= size[entry]
            for t in set(steps):
                away[t] -= size[entry]
                away[t + 1] += size[entry]
        return int((self.live - np.cumsum(away)[:-1]).max(initial=0))


class Play:
    """One step, played with both links for a target. With `by_copy` a value with a copy in host memory always comes
    back by it, as to make it again would take room for what it is made from."""

    def __init__(self, ground: Ground, target_bytes: int, dear: frozenset[Entry], by_copy: bool = False) -> None:
        self.ground, self.problem, self.target = ground, ground.problem, target_bytes
        self.size, self.seconds, self.reads = self.problem.size_bytes, self.problem.seconds, self.problem.reads
        self.dear, self.by_copy = dear, by_copy
        self.uses = self._uses()
        self.steps: list[tuple[str, int]] = []
        self.clock = self.link_out = self.link_in = 0.0
        self.t = 0
        """The step of plain order that the play has come to."""
        self.here: set[Entry] = set()
        self.gone: set[Entry] = set()
        """Managed values that were made, on the device and not."""
        self.copied: dict[Entry, float] = {}
        """When the copy of a value is, or will be, in host memory."""
        self.arrives: dict[Entry, float] = {}
        self.absent = 0
        """Bytes that plain order holds at this step and the play does not, less those that the play alone holds."""
        self.waiting: deque[Entry] = deque()
        """Dear values to be copied out when the link is free, in the order in which they were made."""
        self.expiring: dict[int, list[Entry]] = {}
        for entry, steps in self.uses.items():
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

    def _next(self, entry: Entry) -> int:
        """The step at hand or a later one that reads a value, directly or for others."""
        uses = self.uses[entry]
        k = bisect_right(uses, self.t - 1)
        return uses[k] if k < len(uses) else NEVER

    def _until(self, step: int) -> float:
        """Seconds of computation until a step begins."""
        starts = self.ground.starts
        return starts[min(step, len(starts) - 1)] - starts[self.t]

    def run(self) -> Schedule | None:
        """The schedule; None when more would be run again than is worth it."""
        problem, managed = self.problem, self.ground.managed
        for self.t, node in enumerate(problem.order):
            if len(self.steps) > MOST_RUNS * len(problem.order):
                return None
            needed = [e for e in self.reads[node] if e in managed]
            made = [e for e in problem.graph.entries(node) if e in managed]
            locked = {*needed, *made}
            self._provide([e for e in needed if e in self.gone], locked)
            self._make_room(int(self.ground.live[self.t]), locked)
            self._run(node)
            self.here.update(made)
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
            if entry in self.here:
                self._drop(entry)

    # -- room ----------------------------------------------------------------------------------------------------
    def _make_room(self, live_bytes: int, locked: Collection[Entry], below: float = float("inf")) -> None:
        """Let values go until so many bytes of plain order, less what is absent, are within the target; only such as
        lose less than `below`."""
        over = live_bytes - self.absent - self.target
        if over <= 0:
            return
        wanted = over + MARGIN * self.target
        for loss, entry in self._by_loss(locked):
            if loss >= below or wanted <= 0 or (over <= 0 and entry in self.dear and self._stall(entry) > 0):
                return
            self._let_go(entry)
            over -= self.size[entry]
            wanted -= self.size[entry]

    def _by_loss(self, locked: Collection[Entry]) -> list[tuple[float, Entry]]:
        """Values that may leave, those first that cost least to get back for their bytes and the time until then.
        Nothing is computed again before backward, so what is cheap stays for its readers in forward."""
        return sorted((self._loss(e) / self.size[e] / (self._until(self._next(e)) + 1e-9), e) for e in self.here
                      if e not in locked and self.arrives.get(e, 0.0) <= self.clock
                      and (e in self.dear or self._next(e) >= self.problem.backward_start))

    def _loss(self, entry: Entry) -> float:
        """Seconds to get a value back if it leaves now, and to wait until it has left."""
        again = self._again(entry)
        if entry not in self.dear:
            return again
        return self._stall(entry) + min(HIDDEN * self.problem.copy_in_seconds(entry), again)

    def _stall(self, entry: Entry) -> float:
        """Seconds until a copy of a dear value would be there."""
        if entry in self.copied:
            return max(self.copied[entry] - self.clock, 0.0)
        return max(self.link_out - self.clock, 0.0) + self.problem.copy_out_seconds(entry)

    def _again(self, entry: Entry) -> float:
        """About the seconds to compute a value again: those of its node, and of what that reads and is gone."""
        node = self.problem.graph.node_of[entry]
        seconds = self.seconds[node]
        for source in self.reads[node]:
            if source in self.gone:
                copied = self.problem.copy_in_seconds(source) if source in self.copied else float("inf")
                seconds += min(self.ground.again[source], copied)
        return seconds

    def _let_go(self, entry: Entry) -> None:
        """Drop a value, when it is dear once its copy is there."""
        if entry in self.dear:
            if entry not in self.copied:
                self._issue_out(entry)
            self.clock = max(self.clock, self.copied[entry])
        self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        self.steps.append((DROP, entry))
        self.here.discard(entry)
        self.gone.add(entry)
        self.absent += self.size[entry]

    def _back(self, entry: Entry) -> None:
        self.gone.discard(entry)
        self.here.add(entry)
        self.absent -= self.size[entry]

    # -- copies --------------------------------------------------------------------------------------------------
    def _copy_out(self) -> None:
        """Begin to copy dear values out while the link is free."""
        while self.waiting and self.link_out <= self.clock:
            entry = self.waiting.popleft()
            if entry in self.here and entry not in self.copied:
                self._issue_out(entry)

    def _issue_out(self, entry: Entry) -> None:
        self.steps.append((OUT, entry))
        self.link_out = max(self.link_out, self.clock) + self.problem.copy_out_seconds(entry)
        self.copied[entry] = self.link_out

    def _issue_in(self, entry: Entry) -> None:
        self.steps.append((IN, entry))
        self.link_in = max(self.link_in, self.clock) + self.problem.copy_in_seconds(entry)
        self.arrives[entry] = self.link_in
        self._back(entry)

    def _prefetch(self) -> None:
        """Begin to bring a value back when the link is free and it, or one behind it, would else be late: the one
        needed first of those that come sooner than they are computed again."""
        if self.t < self.problem.backward_start or self.link_in > self.clock:
            return
        away = sorted((self._next(e), e) for e in self.gone if e in self.copied)
        latest = float("inf")
        for use, entry in reversed(away):
            latest = min(latest, self._until(use)) - self.problem.copy_in_seconds(entry)
        if latest > EARLY_SECONDS:
            return
        for use, entry in away:
            if self.problem.copy_in_seconds(entry) - self._until(use) < self._again(entry):
                self._bring(entry, use)
                return

    def _bring(self, entry: Entry, use: int) -> None:
        """Copy a value back for a step if there is room until then, or room can be made of values that lose less."""
        ahead = self.ground.live[self.t + 1:min(use, self.t + WINDOW) + 1]
        needed = int(ahead.max(initial=0)) + self.size[entry]
        lost = HIDDEN * self.problem.copy_in_seconds(entry) / self.size[entry] / (self._until(use) + 1e-9)
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
                    self._make_again(nodes, locked, crossing)
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
        backlog = max(self.link_in - self.clock, 0.0)
        stack = [wanted]
        while stack:
            entry = stack[-1]
            node = self.problem.graph.node_of[entry]
            sources = [e for e in self.reads[node] if e in self.gone]
            far = self.by_copy or len(cost) >= LONGEST_WAY
            further = [e for e in sources if e not in cost and not (far and e in self.copied)]
            if entry not in cost and further and not (self.by_copy and entry in self.copied):
                stack += further
                continue
            stack.pop()
            if entry in cost:
                continue
            again = self.seconds[node] + sum(cost.get(e, backlog + self.problem.copy_in_seconds(e)) for e in sources)
            copied = backlog + self.problem.copy_in_seconds(entry) if entry in self.copied else float("inf")
            runs[entry] = again < copied and not (self.by_copy and entry in self.copied)
            cost[entry] = again if runs[entry] else copied
        return runs

    def _make_again(self, nodes: Sequence[int], locked: set[Entry], crossing: int) -> None:
        """Run nodes again, each after what it reads has come back; what only they need stays no longer than that."""
        last = {e: k for k, node in enumerate(nodes) for e in self.reads[node] if e in self.ground.managed}
        for k, node in enumerate(nodes):
            made = [e for e in self.problem.graph.entries(node) if e in self.gone]
            held = {*locked, *made, *(e for e, end in last.items() if end >= k)}
            for entry in self.reads[node]:
                if entry in self.gone:
                    self._make_room(crossing + self.size[entry], held)
                    self._issue_in(entry)
            self._make_room(crossing + sum(self.size[e] for e in made), held)
            self._run(node)
            for entry in made:
                self._back(entry)

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

"""Which values of a graph in slices are dear, by what each pass over the slices must make again.

All of forward comes first, and backward goes over the batch pass by pass: each slice runs through a few nodes, and what
it has made again for them is gone before the next pass. So a value costs as often as there are passes that need it, or
others made from it, and slices are alike: the first of each stands for all. A value that goes by host memory costs a
share of its time on the way back, and a price on the way out, at which the link is busy for as long as it may be.
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...base import Entry
from ...plan.plan import SLICE
from ..schedule import Schedule
from .ground import Ground
from .hybrid import WORK, postponed
from .play import HIDDEN as MIDDLING
from .play import Play
from .problem import Problem, repeats_alike

WAYS = ((0.05, False), (0.35, False), (0.05, True))
"""Ways to choose dear values: the share of its time that a copy back is taken to cost, as most go on beside the
computation, and whether inputs are dear, which may take a tenth of the memory and wait for the end of the step."""
PLAYED = (0.1, MIDDLING)
"""The same for when one leaves and comes back."""
OF_MEMORY = (0.98, 0.97, 0.96, 0.94, 0.92, 0.9)
"""Shares of the machine's own memory that are aimed at: packing loses more the fewer slices there are."""
PRICES, HIGHEST_PRICE = 8, 2.0
"""Prices that are tried, each halfway to the last one that was too high or too low, for a second on the way out."""
SWEEPS = 6
"""Sweeps over all values for one price; most end sooner, when one changes nothing."""


def exchanged(problem: Problem) -> Iterator[Schedule]:
    """Schedules of a graph in slices for the machine's own memory, with dear values chosen in each way."""
    if not problem.host_budget_bytes or not problem.backward_start < len(problem.order) <= WORK:
        return
    ground = Ground(postponed(problem))
    for dear in dict.fromkeys(choose(ground, *way) for way in WAYS):
        for target, hidden in product(ground.own_targets(OF_MEMORY), PLAYED):
            found = Play(ground, target, dear, hidden=hidden).run()
            if found is not None and repeats_alike(problem, found):
                yield found


def choose(ground: Ground, hidden: float, with_inputs: bool = False) -> frozenset[Entry]:
    """The dear values, inputs among them or not: as many as the link can copy out in the time of forward."""
    problem, passes = ground.problem, Passes(ground, hidden)
    whole = ground.dear(1.0).difference(*passes.kin.values()) | (ground.inputs if with_inputs else frozenset())
    room = ground.starts[problem.backward_start] - sum(map(problem.copy_out_seconds, whole))
    low, high, best = 0.0, HIGHEST_PRICE, frozenset[Entry]()
    for _ in range(PRICES):
        price = (low + high) / 2
        found = passes.best(price, best)
        if sum(problem.copy_out_seconds(e) for first in found for e in passes.kin[first]) > room:
            low = price
        else:
            high, best = price, found
    return whole.union(*(passes.kin[first] for first in best)).intersection(ground.alone | ground.inputs)


class Passes:
    """The passes of backward over first slices. `kin` gives for each managed value of a first slice those of all."""

    def __init__(self, ground: Ground, hidden: float) -> None:
        self.problem, self.hidden = ground.problem, hidden
        problem, graph = self.problem, self.problem.graph
        first = {node for node in problem.order if graph.name[node].endswith(f"{SLICE}0")}
        slices: dict[str, list[int]] = {}
        for node in problem.forward:
            slices.setdefault(graph.name[node].rpartition(SLICE)[0], []).append(node)
        self.kin: dict[Entry, tuple[Entry, ...]] = {}
        for node in problem.forward:
            if node in first:
                alike = slices[graph.name[node].rpartition(SLICE)[0]]
                for k, entry in enumerate(graph.entries(node)):
                    if entry in ground.managed:
                        self.kin[entry] = tuple(graph.first[other] + k for other in alike)
        self.wanted: list[set[Entry]] = []
        """The values that each pass reads."""
        before = False
        for node in problem.order[problem.backward_start:]:
            if node in first:
                if not before:
                    self.wanted.append(set())
                self.wanted[-1] |= self.kin.keys() & problem.reads[node]
            before = node in first
        self.choices = [e for e in self.kin if e in ground.alone]

    def best(self, price: float, start: frozenset[Entry]) -> frozenset[Entry]:
        """The dear values of first slices for which least time is spent, at a price for each second of the way out:
        one after the other becomes dear or cheap as long as that saves time."""
        dear = set(start)
        spent = [self._cost(wanted, dear) for wanted in self.wanted]
        for _ in range(SWEEPS):
            changed = False
            for entry in self.choices:
                out = price * self.problem.copy_out_seconds(entry)
                saved = out if entry in dear else -out
                dear ^= {entry}
                trial = {k: self._cost(self.wanted[k], dear) for k, (_, met) in enumerate(spent) if entry in met}
                saved += sum(spent[k][0] - seconds for k, (seconds, _) in trial.items())
                if saved > 0:
                    changed = True
                    for k, found in trial.items():
                        spent[k] = found
                else:
                    dear ^= {entry}
            if not changed:
                break
        return frozenset(dear)

    def _cost(self, wanted: set[Entry], dear: set[Entry]) -> tuple[float, set[Entry]]:
        """Seconds that a pass spends on values to make again and to copy back, and all values that it meets."""
        problem, made = self.problem, self.problem.graph.node_of
        seconds, met, nodes, stack = 0.0, set(wanted), set[int](), list(wanted)
        while stack:
            entry = stack.pop()
            if entry in dear:
                seconds += self.hidden * problem.copy_in_seconds(entry)
            elif made[entry] not in nodes:
                nodes.add(made[entry])
                seconds += problem.seconds[made[entry]]
                for source in problem.reads[made[entry]]:
                    if source in self.kin and source not in met:
                        met.add(source)
                        stack.append(source)
        return seconds, met

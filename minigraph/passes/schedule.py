"""schedule: the order in which nodes run, and what runs again. Without a policy it is the graph's own order."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Cost, TensorType
from ..graph.graph import FORWARD, Graph
from ..memory.machine import Machine, get_machine
from ..memory.policies import MARKED, POLICIES, Candidate, Evaluation, Problem, Slicing, Strategy, alike, judge
from ..memory.policies.quick import QuickCount, Replayed
from ..memory.profile import Profile
from ..memory.schedule import Schedule, from_order
from ..ops.op import Op
from ..ops.registry import get_op
from ..plan.plan import PERSISTENT_CLASSES
from .apply_schedule import backward_start, running
from .compilation import MIRROR, UNBOUNDED, Compilation
from .evaluate import allowed_host_bytes, fastest_within, fits, no_host_room, packs
from .pack import naive_bytes
from .slice import fastest_of, sliced_graph
from .workspace import Choices


def schedule(state: Compilation) -> None:
    """Provide `schedule` and `backward_start`, the first position of the backward part; `graph` becomes one in slices
    where the best schedule is of such a one."""
    offers = state.offers or Offers(state)
    chosen = offers.choose()
    state.schedule = chosen.schedule
    if chosen.graph is not None:
        state.graph, state.backward_start = chosen.graph, backward_start(chosen.graph)
    assert state.graph is not None
    problem = offers.problem
    state.step_seconds = chosen.seconds + _extra_seconds(state, problem.machine)
    state.plain_step_seconds = sum(problem.seconds[node] for node in problem.order)
    state.recompute_flops = _repeated_flops(state.graph, state.schedule)


class Offers:
    """The candidates of one compilation, of which one is to be chosen; nothing is offered before it is asked for."""

    def __init__(self, state: Compilation) -> None:
        request = state.request
        asked = MARKED if request.memory == MIRROR else POLICIES.get(request.memory, PLAIN)
        self.state, self.strategy = state, asked
        if request.program == "update" or asked.without_budget == "fastest" and request.budget_bytes is None:
            self.strategy = PLAIN
        elif request.program == "eval":
            self.strategy = replace(PLAIN, further=asked.further)
        state.persistent_bytes, state.home_bytes = _bytes_at_home(state)
        self.problem = make_problem(state)
        self.free = asked.moves_homes and request.budget_bytes is not None
        """Whether variables may be sent away."""
        self.looks_further = request.budget_bytes is not None and request.slices == 1
        """Whether more is offered where the fastest one does not fit."""
        self.misfits: list[Candidate] = []
        """Those that were found not to fit."""

    @cached_property
    def own(self) -> list[Candidate]:
        """The candidates of the graph as it is; MXNetError where the host budget has no room for any."""
        found = self.strategy.offer(self.problem, self.free, self.state.request.search)
        if not found:
            unbounded = replace(self.problem, host_budget_bytes=UNBOUNDED)
            raise no_host_room(self.state, self.strategy.candidates(unbounded))
        return found

    @cached_property
    def first(self) -> list[Candidate]:
        """Those of which no other one can be better where they fit, the best first."""
        if not self.looks_further:
            return []
        fastest = min(self.own, key=lambda c: (c.seconds, c.peak_bytes))
        return [*_unmoved(self.strategy, self.problem, fastest), fastest]

    @cached_property
    def others(self) -> list[Candidate]:
        """Those that are looked at where the first do not fit."""
        return [*self.strategy.further(self.problem, self.own, self.free), *self.first[:-1]] \
            if self.looks_further else self.own

    def alike(self, slicing: Slicing | None) -> list[Candidate]:
        """The candidates in as many slices as those of another size of the network; without slices its own."""
        return self.own if slicing is None else alike(self.problem, slicing, self.free)

    def choose(self) -> Candidate:
        """The best candidate within the budget; OutOfMemoryError where none is."""
        for best in self.first:
            if not any(best is misfit for misfit in self.misfits) and fits(self.state, best):
                return best
        return fastest_within(self.state, self.others, [*self.misfits, *self.first])

    def pack_any(self) -> Candidate | None:
        """A candidate within the budget, where there is one, and so where `choose` finds one, too: that which leaves
        most room is tried first."""
        for candidate in sorted([*self.first, *self.others], key=lambda c: c.peak_bytes):
            if not any(candidate is misfit for misfit in self.misfits):
                if packs(self.state, candidate):
                    return candidate
                self.misfits.append(candidate)
        return None


def _unmoved(strategy: Strategy, problem: Problem, fastest: Candidate) -> list[Candidate]:
    """The plain order, where the policy's fastest candidate is no faster: copies that hide behind the computation count
    for nothing in the model, and yet are work that nobody needs where there is room. What is away must come in."""
    if strategy.without_budget != "fastest":
        return []
    return [found for found in PLAIN.offer(problem, free=False)
            if found.seconds <= fastest.seconds and found.peak_bytes > fastest.peak_bytes]


def _extra_seconds(state: Compilation, machine: Machine) -> float:
    """What algorithms cost that were taken for their small workspaces."""
    if state.tried is None or state.tried.algorithms is None:
        return 0.0
    return sum(a.extra_bytes for a in state.tried.algorithms if a is not None) / machine.bandwidth


def plain(problem: Problem) -> list[Candidate]:
    """The graph's own order and nothing else."""
    return judge(problem, [from_order(problem.order)])


PLAIN = Strategy(plain, "fastest")


def make_problem(state: Compilation) -> Problem:
    """What policies are given of a graph; provides its `backward_start`."""
    graph = state.graph
    assert graph is not None
    order = running(graph)
    state.backward_start = backward_start(graph)
    profile = None if state.request.profile is None else Profile.load(state.request.profile)
    size_bytes = graph.aligned_bytes()
    held = list(size_bytes)
    variables = [graph.first[i] for i in graph.variables() if graph.variable_class[i] in PERSISTENT_CLASSES]
    for entry in variables:
        held[entry] = 0
    settled = frozenset(e for e in variables if graph.name[graph.node_of[e]] in state.layout.away)
    choices = Choices(graph, state.request.algorithms)
    seconds = node_seconds(graph, order, choices, get_machine(state.request.machine), profile)
    runs = [op is not None and op.transfer is None and not op.view(graph.params[i]) for i, op in enumerate(graph.op)]
    ways = [choices.of(i) if run else () for i, run in enumerate(runs)]
    state.naive_bytes = naive_bytes(graph, [found[0] if found else None for found in ways])
    bounded = state.request.budget_bytes is not None
    scratch = [min((a.workspace_bytes for a in (found if bounded else found[:1])), default=0) for found in ways]
    machine = get_machine(state.request.machine)
    counter = QuickCount(graph, order, held, size_bytes, scratch, seconds, machine, state.request.swap_space,
                         _replays(graph, order, choices, bounded, machine, profile))

    def quick(schedule: Schedule) -> Evaluation:
        found = counter.evaluate(schedule)
        moved = sum(size_bytes[entry] for entry in schedule.away - settled)
        return Evaluation(state.persistent_bytes - moved + found.peak_bytes, found.seconds,
                          state.home_bytes + moved + found.host_bytes)

    def live(schedule: Schedule) -> NDArray[np.int64]:
        moved = sum(size_bytes[entry] for entry in schedule.away - settled)
        return state.persistent_bytes - moved + counter.live_bytes(schedule)

    def sliced(slicing: Slicing) -> Problem | None:
        if slicing.together and state.request.program == "train":
            return None  # its forward part must be able to run alone
        found = sliced_graph(graph, slicing, fastest_of(choices))
        return None if found is None else make_problem(replace(state, graph=found, seconds={}))
    return Problem(graph, order, state.backward_start, seconds, size_bytes, quick, live, machine,
                   allowed_host_bytes(state), variables, settled, state.request.swap_space, sliced)


def _replays(graph: Graph, order: list[int], choices: Choices, bounded: bool, machine: Machine,
             profile: Profile | None) -> dict[int, Replayed]:
    """How nodes run again from outputs that were kept, for those that can; with a bound in little workspace."""
    found: dict[int, Replayed] = {}
    memo: dict[int, tuple[int, float]] = {}
    for i in order:
        op, params, outs = graph.op[i], graph.params[i], graph.entries(i)
        how = op.replay(params) if op is not None and graph.phase[i] == FORWARD else None
        if how is None:
            continue
        again, kept = get_op(how[0]), tuple(outs[k] for k in how[1])
        kind = choices.kinds[i]
        if kind not in memo:
            operands, made = [graph.type_of(e) for e in (*graph.inputs[i], *kept)], [graph.type_of(outs[0])]
            cost = again.cost(params, operands, made)
            ways = choices.of_op(again, params, operands, made)
            scratch = [a.workspace_bytes for a in ways]
            memo[kind] = (min(scratch) if bounded else scratch[0],
                          _seconds_of(again, params, [*operands, *made], ways[0].name, cost, machine, profile))
        found[i] = Replayed(again, kept, *memo[kind])
    return found


def _seconds_of(op: Op, params: Any, operands: Sequence[TensorType], algorithm: str, cost: Cost, machine: Machine,
                profile: Profile | None) -> float:
    if profile is None:
        return machine.seconds(cost.flops, cost.read_bytes + cost.written_bytes)
    return profile.seconds(op.name, params, operands, algorithm, cost, machine)


def _repeated_flops(graph: Graph, schedule: Schedule) -> float:
    """Floating-point operations of all runs of a node but its first."""
    seen: set[int] = set()
    flops = 0.0
    for node in schedule.order:
        if node in seen:
            flops += _cost(graph, node).flops
        seen.add(node)
    return flops


def _cost(graph: Graph, node: int) -> Cost:
    op = graph.op[node]
    assert op is not None
    return op.cost(graph.params[node], [graph.type_of(e) for e in graph.inputs[node]],
                   [graph.type_of(e) for e in graph.entries(node)])


def node_seconds(graph: Graph, order: list[int], choices: Choices, machine: Machine,
                 profile: Profile | None = None) -> list[float]:
    """Seconds of each node by a profile, for its fastest algorithm, or by the machine's roofline; 0 for those that do
    not run."""
    seconds = [0.0] * len(graph)
    memo: dict[int, float] = {}
    for i in order:
        kind = choices.kinds[i]
        if kind not in memo:
            op = graph.op[i]
            assert op is not None
            operands = [graph.type_of(e) for e in (*graph.inputs[i], *graph.entries(i))]
            memo[kind] = _seconds_of(op, graph.params[i], operands, choices.of(i)[0].name, _cost(graph, i), machine,
                                     profile)
        seconds[i] = memo[kind]
    return seconds


def _bytes_at_home(state: Compilation) -> tuple[int, int]:
    """Bytes of the persistent and of the home arena once this program's tensors are in them."""
    graph, layout = state.graph, state.layout
    assert graph is not None
    return layout.bytes_with((graph.name[i] in layout.away, graph.type_of(graph.first[i]).nbytes)
                             for i in graph.variables()
                             if graph.variable_class[i] in PERSISTENT_CLASSES and graph.name[i] not in layout.places)

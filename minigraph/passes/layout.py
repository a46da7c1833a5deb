"""layout: in which order the elements of each value lie, where the device takes some of its operands otherwise than
row-major. Chosen for whole chains, so that little is converted, and before any policy, blind to budgets.

Variables and outputs are row-major, always, and so is what a view shows.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import PLAIN, Entry, Layouts, MXNetError, TensorType
from ..graph.graph import FORWARD, Graph
from ..memory.machine import Machine, get_machine
from ..ops.choices import LayoutChoices
from ..ops.layout import conversion
from ..ops.op import Op
from ..ops.registry import get_op
from .compilation import Compilation

MOST_SWEEPS = 16
"""Times that all nodes are looked at for a better choice. Two or three are what chains need."""
Place = tuple[Entry, str, bool]
"""A value in a layout in which somebody reads it, in forward or later."""


def layout(state: Compilation) -> None:
    """Give each entry of `graph` a layout, and insert conversions."""
    assert state.graph is not None
    if state.request.layouts is None:
        return
    problem = _Problem(state.graph, state.request.layouts, get_machine(state.request.machine))
    if any(len(found) > 1 for found in problem.offers):
        chosen = min((problem.improved(start) for start in (problem.best_first(), problem.plainest())),
                     key=problem.seconds)
        if any(problem.offer(chosen, i) != problem.plain(i) for i in range(len(state.graph))):
            state.graph = _Writer(state.graph, problem, chosen).write()


@dataclass(frozen=True)
class _Offer:
    """Layouts of a node's inputs (None where only the shape is read) and outputs, and the node's time with them."""

    ins: tuple[str | None, ...]
    outs: tuple[str, ...]
    seconds: float


Choice = list[int]
"""For each node the number of the offer taken."""
Places = frozenset[tuple[str, bool]]
"""Layouts in which a value is read, each in forward or later."""
Beside = tuple["tuple[str, Places] | None", ...]
"""Of a node's inputs and outputs the layouts in which others make and read them."""


class _Problem:
    """What each node may choose from, and what choices cost in modelled seconds: the nodes' own, and conversions, one
    for all forward readers of a value that want it in another layout than its maker's, and one for all later ones."""

    def __init__(self, graph: Graph, layouts: LayoutChoices, machine: Machine) -> None:
        self.graph = graph
        self.machine = machine
        self._memo: dict[tuple, list[_Offer]] = {}
        self.offers = [self._offers(i, layouts) for i in range(len(graph))]
        self.uses: list[list[tuple[int, int, bool]]] = [[] for _ in range(graph.num_entries)]
        """For each entry who reads it: the node, the number of its input, and whether that is after forward."""
        for i in range(len(graph)):
            for k, entry in enumerate(graph.inputs[i]):
                self.uses[entry].append((i, k, graph.phase[i] != FORWARD))
        self.outputs = set(graph.outputs)
        self.open = self._open()
        self._moved: dict[tuple, float] = {}
        self._known: dict[tuple, int] = {}

    def _open(self) -> list[bool]:
        """For each entry whether somebody may make or read it otherwise than row-major: no other one is converted."""
        graph = self.graph
        result = [False] * graph.num_entries
        for i, found in enumerate(self.offers):
            for offer in found:
                if any(offer.ins) or any(offer.outs):
                    named = zip((*graph.inputs[i], *graph.entries(i)), (*offer.ins, *offer.outs), strict=True)
                    for entry, name in named:
                        result[entry] |= bool(name)
        return result

    def _offers(self, i: int, layouts: LayoutChoices) -> list[_Offer]:
        graph, op, params = self.graph, self.graph.op[i], self.graph.params[i]
        inputs, made = graph.inputs[i], graph.entries(i)
        unread = op.unread(params) if op is not None else ()
        if op is None or op.view(params) or op.mutates(params) or op.transfer is not None:
            fixed = tuple(None if k in unread else PLAIN for k in range(len(inputs)))
            return [_Offer(fixed, (PLAIN,) * len(made), 0.0)]
        key = (op.name, params, *[(graph.shape[e], graph.dtype[e]) for e in (*inputs, *made)])
        found = self._memo.get(key)
        if found is None:
            ins, outs = [graph.type_of(e) for e in inputs], [graph.type_of(e) for e in made]
            found = self._memo[key] = [
                _Offer(tuple(None if k in unread else layout for k, layout in enumerate(offer.ins)), offer.outs,
                       self._own_seconds(op, params, ins, outs, offer))
                for offer in layouts(op, params, ins, outs)]
        return found

    def _own_seconds(self, op: Op, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType],
                     offer: Layouts) -> float:
        if len(offer.ins) != len(ins) or len(offer.outs) != len(outs):
            raise MXNetError(f"operator {op.name} has {len(ins)} inputs and {len(outs)} outputs, and the device offers "
                             f"layouts {offer.ins} -> {offer.outs} for them; mend what it offers")
        placed = [[TensorType(t.shape, t.dtype, name) for t, name in zip(types, names, strict=True)]
                  for types, names in ((ins, offer.ins), (outs, offer.outs))]
        cost = op.cost(params, *placed)
        return offer.slowdown * self.machine.seconds(cost.flops, cost.read_bytes + cost.written_bytes)

    def best_first(self) -> Choice:
        """Each node's first offer."""
        return [0] * len(self.graph)

    def plainest(self) -> Choice:
        """Each node's row-major offer, or else its first."""
        return [next((k for k, offer in enumerate(found) if self._is_plain(offer)), 0) for found in self.offers]

    @staticmethod
    def _is_plain(offer: _Offer) -> bool:
        return not any((*offer.ins, *offer.outs))

    def plain(self, i: int) -> _Offer | None:
        """A node's row-major offer, if it has one."""
        return next((offer for offer in self.offers[i] if self._is_plain(offer)), None)

    def offer(self, choice: Choice, i: int) -> _Offer:
        """What a node takes."""
        return self.offers[i][choice[i]]

    def improved(self, choice: Choice) -> Choice:
        """Let one node after the other take what is cheapest beside its neighbours, until none changes."""
        nodes = [i for i, found in enumerate(self.offers) if len(found) > 1]
        open_ = bytearray(len(self.offers))
        for i in nodes:
            open_[i] = 1
        for sweep in range(MOST_SWEEPS):
            for i in nodes if sweep % 2 == 0 else reversed(nodes):
                if open_[i]:
                    open_[i] = 0
                    if self._improve(choice, i):
                        self._reopen(open_, i)
            if not any(open_):
                break
        return choice

    def _reopen(self, open_: bytearray, i: int) -> None:
        """Let the nodes beside one that has changed choose again: only for them has anything changed."""
        for entry in (*self.graph.inputs[i], *self.graph.entries(i)):
            for node in (self.graph.node_of[entry], *(reader for reader, *_ in self.uses[entry])):
                open_[node] |= node != i and len(self.offers[node]) > 1

    def _improve(self, choice: Choice, i: int) -> bool:
        before, choice[i] = choice[i], self._best(i, self._beside(choice, i))
        return choice[i] != before

    def _beside(self, choice: Choice, i: int) -> Beside:
        """What a node's best offer depends on: for each input the layout it is made in, and for each input and output
        those in which others read it; None for what is row-major to everybody, and for an input that came before."""
        inputs, none = self.graph.inputs[i], None
        read = [(self.made_in(choice, e), self._places(choice, e, i)) if self.open[e] and e not in inputs[:k] else none
                for k, e in enumerate(inputs)]
        made = [("", self._places(choice, e, i)) if self.open[e] else none for e in self.graph.entries(i)]
        return (*read, *made)

    def _best(self, i: int, beside: Beside) -> int:
        """The number of the cheapest offer beside neighbours; that of another node in the same situation holds."""
        inputs, later = self.graph.inputs[i], self.graph.phase[i] != FORWARD
        same = tuple([inputs.index(e) for e in inputs])
        key = (id(self.offers[i]), later, same, beside)
        found = self._known.get(key)
        if found is None:
            entries = (*inputs, *self.graph.entries(i))
            costs = []
            for number, offer in enumerate(self.offers[i]):
                seconds, names = offer.seconds, (*offer.ins, *offer.outs)
                for k, neighbours in enumerate(beside):
                    if neighbours is not None:
                        own = {(name, later) for j, name in zip(same, offer.ins, strict=True)
                               if j == k and name is not None}
                        source = neighbours[0] if k < len(inputs) else offer.outs[k - len(inputs)]
                        seconds += self._moves_seconds(entries[k], source, neighbours[1] | own)
                costs.append((seconds, len([name for name in names if name]), number))
            found = self._known[key] = min(costs)[2]
        return found

    def seconds(self, choice: Choice) -> float:
        """Modelled seconds of all nodes and conversions."""
        own = sum(self.offer(choice, i).seconds for i in range(len(self.graph)))
        return own + sum(self._moves_seconds(e, self.made_in(choice, e), self._places(choice, e))
                         for e, converted in enumerate(self.open) if converted)

    def made_in(self, choice: Choice, entry: Entry) -> str:
        """The layout in which its node makes an entry."""
        node = self.graph.node_of[entry]
        return self.offer(choice, node).outs[entry - self.graph.first[node]]

    def read_in(self, choice: Choice, node: int) -> Iterator[Place]:
        """The places that a node reads."""
        later = self.graph.phase[node] != FORWARD
        for entry, wanted in zip(self.graph.inputs[node], self.offer(choice, node).ins, strict=True):
            if wanted is not None:
                yield entry, wanted, later

    def _places(self, choice: Choice, entry: Entry, without: int = -1) -> Places:
        """In which layouts an entry is read, in forward or later, by others than a node."""
        offers = self.offers
        places = {(PLAIN, False)} if entry in self.outputs else set()
        for node, k, later in self.uses[entry]:
            if node != without:
                wanted = offers[node][choice[node]].ins[k]
                if wanted is not None:
                    places.add((wanted, later))
        return frozenset(places)

    def _moves_seconds(self, entry: Entry, made: str, places: Places) -> float:
        """Seconds of the conversions from the layout that an entry is made in to those that it is read in."""
        return sum(self._move_seconds(entry, made, wanted) for wanted, _ in sorted(places) if wanted != made)

    def _move_seconds(self, entry: Entry, source: str, target: str) -> float:
        shape, dtype = self.graph.shape[entry], self.graph.dtype[entry]
        key = (shape, dtype, source, target)
        if key not in self._moved:
            both = [TensorType(shape, dtype, name).nbytes for name in (source, target)]  # type: ignore[arg-type]
            self._moved[key] = self.machine.seconds(0.0, sum(both))
        return self._moved[key]


class _Writer:
    """Writes the graph again with layouts, and with each conversion just before its first reader."""

    def __init__(self, graph: Graph, problem: _Problem, choice: Choice) -> None:
        self.source = graph
        self.problem = problem
        self.choice = choice
        self.result = Graph()
        self.made: dict[Entry, Entry] = {}
        self.converted: dict[Place, Entry] = {}

    def write(self) -> Graph:
        source, result = self.source, self.result
        outputs: dict[int, list[Entry]] = {}
        for entry in dict.fromkeys(source.outputs):
            outputs.setdefault(source.node_of[entry], []).append(entry)
        for i in range(len(source)):
            self._node(i)
            for entry in outputs.get(i, ()):
                self._as((entry, PLAIN, source.phase[i] != FORWARD), source.phase[i])
        result.outputs = [self._as((e, PLAIN, source.phase[source.node_of[e]] != FORWARD), FORWARD)
                          for e in source.outputs]
        result.heads = [self.made[e] for e in source.heads]
        result.output_names = list(source.output_names)
        return result

    def _node(self, i: int) -> None:
        source = self.source
        offer = self.problem.offer(self.choice, i)
        places = iter(self.problem.read_in(self.choice, i))
        inputs = tuple(self.made[e] if wanted is None else self._as(next(places), source.phase[i])
                       for e, wanted in zip(source.inputs[i], offer.ins, strict=True))
        types = [(source.shape[e], source.dtype[e], name)
                 for e, name in zip(source.entries(i), offer.outs, strict=True)]
        made = self.result.append(source.op[i], source.params[i], source.name[i], inputs, types, source.phase[i],
                                  source.mark[i])
        self.made.update(zip(source.entries(i), made, strict=True))
        if i in source.variable_class:
            self.result.variable_class[len(self.result) - 1] = source.variable_class[i]

    def _as(self, place: Place, phase: int) -> Entry:
        """An entry in a layout: as it was made, or converted once in forward and once later."""
        entry, wanted, _ = place
        made = self.made[entry]
        if self.result.layout[made] == wanted:
            return made
        if place not in self.converted:
            source = self.source
            name, params = conversion(wanted, source.shape[entry][1])  # type: ignore[index,arg-type]
            self.converted[place], = self.result.append(
                get_op(name), params, f"{source.entry_name(entry)}/{name.lstrip('_')}", (made,),
                [(source.shape[entry], source.dtype[entry], wanted)], phase, source.mark[source.node_of[entry]])
        return self.converted[place]

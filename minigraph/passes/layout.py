"""layout: in which order the elements of each value lie, where the device takes some of its operands otherwise than
row-major. Chosen for whole chains, so that little is converted, and before any policy, blind to budgets.

Variables and outputs are row-major, always, and so is what a view shows.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
        self.readers = graph.readers()
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
        readings = _Readings(self, choice)
        nodes = [i for i, found in enumerate(self.offers) if len(found) > 1]
        open_ = bytearray(len(self.offers))
        for i in nodes:
            open_[i] = 1
        for sweep in range(MOST_SWEEPS):
            for i in nodes if sweep % 2 == 0 else reversed(nodes):
                if open_[i]:
                    open_[i] = 0
                    self._improve(choice, i, readings, open_)
            if not any(open_):
                break
        return choice

    def _improve(self, choice: Choice, i: int, readings: _Readings, open_: bytearray) -> None:
        """Let a node take what is cheapest, and those choose again for which that has changed anything."""
        before, choice[i] = choice[i], self._best(i, self._beside(choice, i, readings))
        if choice[i] == before:
            return
        old, new = self.offers[i][before], self.offers[i][choice[i]]
        changed = readings.change(i, old, new)
        changed.update(e for e, was, now in zip(self.graph.entries(i), old.outs, new.outs, strict=True) if was != now)
        for entry in changed:
            for node in (self.graph.node_of[entry], *self.readers[entry]):
                open_[node] |= node != i and len(self.offers[node]) > 1

    def _beside(self, choice: Choice, i: int, readings: _Readings) -> Beside:
        """What a node's best offer depends on: for each input the layout it is made in, and for each input and output
        those in which others read it; None for what is row-major to everybody, and for an input that came before."""
        inputs, own = self.graph.inputs[i], self.places(i, self.offer(choice, i))
        read = [(self.made_in(choice, e), readings.but_for(e, own.get(e, ()))) if self.open[e] and first == k else None
                for k, (e, first) in enumerate(zip(inputs, _first_places(inputs), strict=True))]
        made = [("", readings.but_for(e, ())) if self.open[e] else None for e in self.graph.entries(i)]
        return (*read, *made)

    def _best(self, i: int, beside: Beside) -> int:
        """The number of the cheapest offer beside neighbours; that of another node in the same situation holds."""
        inputs, later = self.graph.inputs[i], self.graph.phase[i] != FORWARD
        same = tuple(_first_places(inputs))
        key = (id(self.offers[i]), later, same, beside)
        found = self._known.get(key)
        if found is None:
            entries = (*inputs, *self.graph.entries(i))
            costs = []
            for number, offer in enumerate(self.offers[i]):
                seconds, names, own = offer.seconds, (*offer.ins, *offer.outs), self.places(i, offer)
                for k, neighbours in enumerate(beside):
                    if neighbours is not None:
                        source = neighbours[0] if k < len(inputs) else offer.outs[k - len(inputs)]
                        seconds += self._moves_seconds(entries[k], source, neighbours[1].union(own.get(entries[k], ())))
                costs.append((seconds, len([name for name in names if name]), number))
            found = self._known[key] = min(costs)[2]
        return found

    def seconds(self, choice: Choice) -> float:
        """Modelled seconds of all nodes and conversions."""
        own = sum(self.offer(choice, i).seconds for i in range(len(self.graph)))
        readings = _Readings(self, choice)
        return own + sum(self._moves_seconds(e, self.made_in(choice, e), frozenset(readings.counts[e]))
                         for e, converted in enumerate(self.open) if converted)

    def places(self, i: int, offer: _Offer) -> dict[Entry, set[tuple[str, bool]]]:
        """For each open value that a node reads under an offer in which layouts it does."""
        later = self.graph.phase[i] != FORWARD
        found: dict[Entry, set[tuple[str, bool]]] = {}
        for entry, name in zip(self.graph.inputs[i], offer.ins, strict=True):
            if name is not None and self.open[entry]:
                found.setdefault(entry, set()).add((name, later))
        return found

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


class _Readings:
    """Under a choice, for each open value by how many nodes it is read in each layout, in forward or later; an output
    is read row-major. It follows the choice, so that to look at a value takes no longer for its thousandth reader."""

    def __init__(self, problem: _Problem, choice: Choice) -> None:
        self.problem = problem
        self.counts: dict[Entry, dict[tuple[str, bool], int]] = {e: {} for e, found in enumerate(problem.open) if found}
        for entry in problem.outputs.intersection(self.counts):
            self.counts[entry][PLAIN, False] = 1
        for i in range(len(choice)):
            for entry, places in problem.places(i, problem.offer(choice, i)).items():
                for place in places:
                    self._add(entry, place, 1)

    def but_for(self, entry: Entry, own: Collection[tuple[str, bool]]) -> Places:
        """In which layouts a value is read by others than a node that reads it in its `own`."""
        return frozenset(place for place, count in self.counts[entry].items() if count > (place in own))

    def change(self, i: int, old: _Offer, new: _Offer) -> set[Entry]:
        """Node i takes another offer. The values of which others now see other readers than before: where more than
        two read a value in a layout, each of them sees another one, with one more or less."""
        before, after = self.problem.places(i, old), self.problem.places(i, new)
        changed: set[Entry] = set()
        for entry in before.keys() | after.keys():
            was, now = before.get(entry, set()), after.get(entry, set())
            counts = [self._add(entry, place, -1) + 1 for place in was - now]
            counts += [self._add(entry, place, 1) for place in now - was]
            if min(counts, default=3) <= 2:
                changed.add(entry)
        return changed

    def _add(self, entry: Entry, place: tuple[str, bool], change: int) -> int:
        """Count a reader more or less in a layout; how many there are now."""
        counts = self.counts[entry]
        now = counts.get(place, 0) + change
        if now:
            counts[place] = now
        else:
            del counts[place]
        return now


def _first_places(inputs: Sequence[Entry]) -> list[int]:
    """For each of a node's inputs the number of the first one that is the same value."""
    first: dict[Entry, int] = {}
    return [first.setdefault(e, k) for k, e in enumerate(inputs)]


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

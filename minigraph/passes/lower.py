"""lower: graph, schedule, sharing and offsets become a Plan; nothing is decided here any more."""
from __future__ import annotations

import zlib

import numpy as np

from ..base import Entry
from ..graph.graph import FORWARD, Graph
from ..memory.layout import HOME
from ..plan.plan import (
    IN_STREAM,
    OUT_STREAM,
    PERSISTENT_CLASSES,
    STREAMS,
    TRANSIENT_ARENA,
    Arena,
    BufferColumns,
    Figures,
    InstructionColumns,
    Kind,
    Output,
    Persistent,
    Plan,
)
from ..plan.values import expected_values
from .compilation import Compilation, PageMapping
from .events import without_implied
from .fingerprint import fingerprint

_UINT8 = np.dtype(np.uint8)


def lower(state: Compilation) -> None:
    """Provide `plan`."""
    state.plan = _Lowering(state).plan()


class _Lowering:
    """Writes the plan's columns: first one buffer for each entry, then one instruction for each node that runs."""

    def __init__(self, state: Compilation) -> None:
        assert state.graph is not None and state.schedule is not None and state.sharing is not None
        self.state = state
        self.graph: Graph = state.graph
        self.sharing = state.sharing
        self.running = [node for node in state.schedule.order if node not in self.sharing.elided]
        self.buffers = BufferColumns()
        self.code = InstructionColumns()
        self.scratch: list[tuple[int, int]] = []
        """(instruction, node) of each workspace; its buffer comes behind those of the entries."""
        self.starts: dict[int, int] = {}
        """The first instruction of each node that runs."""
        self.written: dict[Entry, int] = {}
        self.last_read: dict[Entry, int] = {}
        self.events = 0
        self.copied: dict[Entry, int] = {}
        """The event after which the copy that made or left an entry has ended."""

    def plan(self) -> Plan:
        self._declare_persistent()
        for node in self.running:
            self._instruction(node)
        if self.events:
            self._thin_events()
        self._make_buffers()
        state, graph = self.state, self.graph
        assert state.transient_bytes is not None and state.naive_bytes is not None
        assert state.lower_bound_bytes is not None
        persistent_bytes = state.layout.bytes
        figures = Figures(len(graph), persistent_bytes + state.layout.home_bytes + state.naive_bytes,
                          persistent_bytes + state.lower_bound_bytes,
                          state.packing, 0.0, {}, state.step_seconds, state.plain_step_seconds,
                          state.recompute_flops)
        outputs = tuple(map(Output, graph.output_names, graph.outputs))
        return Plan(state.request.program, state.request.memory, tuple(self._arenas()), self.buffers, self.code,
                    self._persistent(), self._inputs(), outputs, self._ranges(),
                    fingerprint(state.symbol_graph, state.request), figures,
                    parameters=state.parameters, without_gradient=state.without_gradient,
                    late_inputs=self._late_inputs(), expected=self._expected())

    def _arenas(self) -> list[Arena]:
        state = self.state
        assert state.transient_bytes is not None
        arenas = [Arena("persistent", "device", state.layout.bytes),
                  Arena("transient", "device", state.transient_bytes)]
        if state.host_bytes:
            arenas.append(Arena("swap", state.request.swap_space, state.host_bytes))
        if state.layout.home_bytes:
            arenas.append(Arena(HOME, state.layout.space, state.layout.home_bytes))
        if state.mapping is not None:
            arenas.append(_mapped_arena(state.mapping))
        return arenas

    def _declare_persistent(self) -> None:
        layout, schedule = self.state.layout, self.state.schedule
        assert schedule is not None
        for i in self.graph.variables():
            kind, held = self.graph.variable_class[i], self.graph.type_of(self.graph.first[i])
            if kind in PERSISTENT_CLASSES:
                layout.declare(self.graph.name[i], held.shape, held.dtype, kind)
        layout.send_away(self.state.away, self.state.request.swap_space)

    def _make_buffers(self) -> None:
        """Buffer k is entry k: what an entry shares with always comes before it."""
        graph, sharing = self.graph, self.sharing
        born, dies = self._lifetimes()
        outputs = set(graph.outputs)
        assert self.state.offsets is not None
        offsets, places = self.state.offsets.tolist(), self.state.layout.places
        arenas, mapping = self._arenas(), self.state.mapping
        number = {arena.name: k for k, arena in enumerate(arenas)}
        mapped = mapping.storages if mapping is not None else frozenset()
        for entry in range(graph.num_entries):
            storage = sharing.storage_of[entry]
            name = sharing.persistent[storage]
            arena, offset = "swap" if sharing.on_host[storage] else "transient", offsets[storage]
            if name is not None:
                arena, offset = places[name].arena, places[name].offset
            elif storage in mapped:
                arena = arenas[-1].name
            offset += sharing.offset[entry]
            kind = graph.type_of(entry)
            self.buffers.add(graph.entry_name(entry), number[arena], offset, kind.nbytes, kind.shape, kind.dtype,
                             layout=kind.layout, born=born[entry], dies=dies[entry], shares=sharing.shares[entry],
                             view=sharing.view[entry], buffer_class=self._class(entry, name, outputs))
        self._make_workspaces(len(arenas) - 1)

    def _make_workspaces(self, mapped_arena: int) -> None:
        state, mapping = self.state, self.state.mapping
        assert state.algorithms is not None and state.workspace_offsets is not None
        for t, node in self.scratch:
            algorithm = state.algorithms[node]
            assert algorithm is not None
            arena = mapped_arena if mapping is not None and node in mapping.workspaces else TRANSIENT_ARENA
            nbytes = algorithm.workspace_bytes
            self.buffers.add(f"{self.graph.name[node]}_workspace", arena, state.workspace_offsets[node], nbytes,
                             (nbytes,), _UINT8, born=t, dies=t + 1, buffer_class="workspace")

    def _lifetimes(self) -> tuple[list[int], list[int]]:
        """For each entry the instruction that makes it, and the first one at which nobody needs it any more."""
        graph, sharing = self.graph, self.sharing
        born, dies = [-1] * graph.num_entries, [0] * graph.num_entries
        for entry, t in self.written.items():
            born[entry], dies[entry] = t, t + 1
        for entry, t in self.last_read.items():
            dies[entry] = max(dies[entry], t + 1)
        for entry in (*graph.outputs, *self._final_values()):
            dies[entry] = len(self.code)
        for entry in range(graph.num_entries):
            if sharing.view[entry]:
                born[entry] = born[sharing.shares[entry]]
                dies[entry] = max(dies[entry], born[entry] + 1)
        for entry in reversed(range(graph.num_entries)):
            if sharing.view[entry]:
                source = sharing.shares[entry]
                dies[source] = max(dies[source], dies[entry])
        return born, dies

    def _final_values(self) -> list[Entry]:
        """The entries that persistent tensors hold at the end, in the order of the variables."""
        final: dict[Entry, Entry] = {self.graph.first[i]: self.graph.first[i] for i in self.graph.variables()
                                     if self.graph.variable_class[i] in PERSISTENT_CLASSES}
        root = {entry: entry for entry in final}
        for i, op in enumerate(self.graph.op):
            for source, out in op.mutates(self.graph.params[i]) if op is not None else ():
                before = self.graph.inputs[i][source]
                if before in root:
                    entry = self.graph.first[i] + out
                    root[entry] = root[before]
                    final[root[before]] = entry
        return list(final.values())

    def _class(self, entry: Entry, persistent: str | None, outputs: set[Entry]) -> str:
        if persistent is not None:
            return self.state.layout.places[persistent].buffer_class
        node = self.graph.node_of[entry]
        if self.graph.op[node] is None:
            return "input"
        if entry in outputs:
            return "output"
        return "activation" if self.graph.phase[node] == FORWARD else "backward"

    def _instruction(self, node: int) -> None:
        graph, state = self.graph, self.state
        op, params = graph.op[node], graph.params[node]
        assert op is not None and state.algorithms is not None
        self.starts[node] = len(self.code)
        if op.transfer is not None:
            self._transfer(node, op.transfer)
            return
        algorithm = state.algorithms[node]
        assert algorithm is not None
        t, workspace, unread = len(self.code), -1, tuple(op.unread(params))
        if algorithm.workspace_bytes:
            workspace = graph.num_entries + len(self.scratch)
            self.scratch.append((t, node))
        self.code.add(Kind.COMPUTE, name=graph.name[node], op=op.name, params=params, algorithm=algorithm.name,
                      reads=graph.inputs[node], writes=tuple(graph.entries(node)), unread=unread, workspace=workspace)
        self.last_read.update((e, t) for k, e in enumerate(graph.inputs[node]) if k not in unread)
        self.written.update((e, t) for e in graph.entries(node))

    def _transfer(self, node: int, what: str) -> None:
        """A copy waits for the compute stream's present, and whoever needs its end waits for its event."""
        graph, name = self.graph, self.graph.name[node]
        inputs, outs = graph.inputs[node], tuple(graph.entries(node))
        if outs:
            stream, kind = (IN_STREAM, Kind.COPY_IN) if what == "in" else (OUT_STREAM, Kind.COPY_OUT)
            source = inputs[-1]
            ready, done = self._event(), self._event()
            self.code.add(Kind.RECORD, name=name, event=ready)
            self.code.add(Kind.WAIT, stream=stream, name=name, event=ready)
            self.written[outs[0]] = self.last_read[source] = self.code.add(
                kind, stream=stream, name=name, reads=(source,), writes=outs)
            self.code.add(Kind.RECORD, stream=stream, name=name, event=done)
            self.copied[outs[0]] = done
        else:
            wait = self.code.add(Kind.WAIT, name=name, event=self.copied[inputs[1]])
            for entry in inputs:
                self.last_read[entry] = max(self.last_read.get(entry, 0), wait)

    def _thin_events(self) -> None:
        """Keep the records and waits that are needed; everything noted of instructions follows."""
        self.code, first, stands = without_implied(self.code, len(STREAMS))
        self.starts = {node: first[t] for node, t in self.starts.items()}
        self.written = {entry: stands[t] for entry, t in self.written.items()}
        self.last_read = {entry: stands[t] for entry, t in self.last_read.items()}
        self.scratch = [(stands[t], node) for t, node in self.scratch]

    def _event(self) -> int:
        self.events += 1
        return self.events - 1

    def _persistent(self) -> tuple[Persistent, ...]:
        graph = self.graph
        variables = [i for i in graph.variables() if graph.variable_class[i] in PERSISTENT_CLASSES]
        pairs = zip(variables, self._final_values(), strict=True)
        return tuple(Persistent(graph.name[i], graph.first[i], last) for i, last in pairs)

    def _inputs(self) -> dict[str, int]:
        graph = self.graph
        return {graph.name[i]: graph.first[i] for i in graph.variables()
                if graph.variable_class[i] not in PERSISTENT_CLASSES}

    def _late_inputs(self) -> tuple[str, ...]:
        """The inputs that backward brings with it where it runs apart: head gradients."""
        graph = self.graph
        if self.state.request.program != "train":
            return ()
        return tuple(name for name, entry in self._inputs().items() if graph.phase[graph.node_of[entry]] != FORWARD)

    def _expected(self) -> tuple[str, ...]:
        """What outputs and persistent tensors are by the graph before it was written again for its schedule."""
        assert self.state.ordered is not None
        return expected_values(self.state.ordered)

    def _ranges(self) -> dict[str, tuple[int, int]]:
        end = len(self.code)
        if self.state.request.program != "train":
            return {self.state.request.program: (0, end)}
        backward = [self.starts[node] for node in self.running if self.graph.phase[node] != FORWARD]
        forward = min(backward, default=end)
        return {"forward": (0, forward), "backward": (forward, end)}


def _mapped_arena(mapping: PageMapping) -> Arena:
    """The arena of further addresses; its name tells those of different programs apart, which share one transient
    arena."""
    text = ",".join(f"{offset}+{nbytes}" for offset, nbytes in mapping.extents)
    return Arena(f"mapped-{zlib.crc32(text.encode()):08x}", "mapped", sum(nbytes for _, nbytes in mapping.extents),
                 mapping.page_bytes, mapping.extents)

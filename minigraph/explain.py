"""One network at each stage of its compilation, as text: what every pass made of what the one before handed it."""
from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from .base import align, format_bytes
from .graph import Graph
from .graph.printer import format_graph
from .passes.compilation import Compilation
from .passes.pipeline import PASSES, run_pass
from .plan.printer import format_plan
from .planning import Program

_MAPPED = ("", "mapped ")
"""What stands before a place of the transient arena, and of the mapped one."""


def explain(program: Program, max_lines: int = 0) -> Iterator[str]:
    """A heading and a listing for the symbol's graph and for each pass of PASSES, in order.

    Listings of more than `max_lines` lines are cut, and say so; 0 means no limit.
    """
    yield _section("symbol", format_graph(program.graph).splitlines(), max_lines)
    state = Compilation(program.request, program.graph, program.layout)
    for stage in PASSES:
        before = None if state.graph is None else format_graph(state.graph)
        run_pass(stage, state)
        if stage.rewrites:
            assert state.graph is not None
            lines = format_graph(state.graph).splitlines()
            if before == "\n".join(lines):
                lines = ["the graph stays as it is"]
        else:
            lines = _LISTINGS[stage.name](state)
        yield _section(f"{stage.name} ({state.seconds[stage.name]:.4f} s)", lines, max_lines)


def _section(title: str, lines: list[str], max_lines: int) -> str:
    shown = lines if max_lines <= 0 else lines[:max_lines]
    more = [f"... {len(lines) - len(shown)} more lines"] if len(shown) < len(lines) else []
    return "\n".join([f"== {title}", *shown, *more, ""])


def _schedule(state: Compilation) -> list[str]:
    """Position, node and op of everything that runs."""
    graph, schedule = _graph(state), state.schedule
    assert schedule is not None
    head = f"{len(schedule)} nodes run, backward starts at {state.backward_start}"
    return [head, *(f"{t} {_node(graph, node)}" for t, node in enumerate(schedule.order))]


def _sharing(state: Compilation) -> list[str]:
    """Storages with their lifetimes, and the values that live in each."""
    graph, sharing = _graph(state), state.sharing
    assert sharing is not None
    holders: list[list[str]] = [[] for _ in sharing.bytes]
    for entry, storage in enumerate(sharing.storage_of):
        kind = "" if sharing.shares[entry] < 0 else " (view)" if sharing.view[entry] else " (in place)"
        holders[storage].append(f"%{entry} {graph.entry_name(entry)}{kind}")
    return [f"storage {s}: {format_bytes(sharing.bytes[s])}, {_life(state, s)}: {', '.join(holders[s])}"
            for s in range(len(holders))]


def _life(state: Compilation, storage: int) -> str:
    sharing, schedule = state.sharing, state.schedule
    assert sharing is not None and schedule is not None
    if sharing.persistent[storage] is not None:
        return "persistent"
    return f"live in [{max(sharing.born[storage], 0)}, {min(sharing.dies[storage], len(schedule))})"


def _algorithms(state: Compilation) -> list[str]:
    """The algorithm of each node that has a choice or a workspace."""
    graph, algorithms = _graph(state), state.algorithms
    assert algorithms is not None
    lines = [f"{_node(graph, i)}: {a.name}, workspace {format_bytes(a.workspace_bytes)}"
             for i, a in enumerate(algorithms) if a is not None and (a.workspace_bytes or a.name != "default")]
    return lines or ["no node has a workspace or a choice of algorithms"]


def _offsets(state: Compilation) -> list[str]:
    """Transient storages by offset, then workspaces."""
    sharing = state.sharing
    assert sharing is not None and state.offsets is not None and state.workspace_offsets is not None
    assert state.transient_bytes is not None and state.lower_bound_bytes is not None and state.naive_bytes is not None
    head = (f"transient arena {format_bytes(state.transient_bytes)} by {state.packing}; lower bound "
            f"{format_bytes(state.lower_bound_bytes)}, naive {format_bytes(state.naive_bytes)}")
    mapping, graph = state.mapping, _graph(state)
    mapped: Container[int] = mapping.storages if mapping is not None else ()
    scratched: Container[int] = mapping.workspaces if mapping is not None else ()
    transient = [s for s, name in enumerate(sharing.persistent) if name is None]
    rows = sorted((s in mapped, int(state.offsets[s]), s) for s in transient)
    lines = [f"{_MAPPED[far]}[{offset}, {offset + align(sharing.bytes[s])}) storage {s}, {_life(state, s)}"
             for far, offset, s in rows]
    scratch = sorted((node in scratched, offset, node) for node, offset in state.workspace_offsets.items())
    lines += [f"{_MAPPED[far]}{offset} workspace of {_node(graph, node)}" for far, offset, node in scratch]
    return [head, *lines]


def _plan(state: Compilation) -> list[str]:
    assert state.plan is not None
    return format_plan(state.plan).splitlines()


def _verified(state: Compilation) -> list[str]:
    return ["the plan holds" if state.request.verify else "the plan was not verified"]


def _graph(state: Compilation) -> Graph:
    assert state.graph is not None
    return state.graph


def _node(graph: Graph, node: int) -> str:
    op = graph.op[node]
    return f"#{node} {op.name if op is not None else 'variable'} {graph.name[node]}"


_LISTINGS: dict[str, Callable[[Compilation], list[str]]] = {
    "schedule": _schedule, "share": _sharing, "workspace": _algorithms, "pack": _offsets, "lower": _plan,
    "verify": _verified}
"""How the result of each pass that leaves the graph alone is listed."""

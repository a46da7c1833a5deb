"""The order of the passes, and the runner that checks what each one requires."""
from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..base import MXNetError
from ..graph import Graph
from ..graph.lint import lint
from ..memory.layout import PersistentLayout
from ..ops.op import OperatorError
from ..plan.plan import Plan
from ..plan.verify import verify
from .apply_schedule import apply_schedule
from .compilation import Compilation, Pass, Request
from .encode import encode
from .expand import expand
from .fold import fold
from .fold_views import fold_views
from .fuse import fuse, fuse_backward
from .gradient import gradient, prune
from .layout import layout as choose_layouts
from .lower import lower
from .pack import assign_offsets
from .schedule import schedule
from .share import share
from .slice import slice_batch
from .unify import unify
from .workspace import choose_workspaces


def _verify(state: Compilation) -> None:
    assert state.plan is not None
    if state.request.verify:
        verify(state.plan, state.request.algorithms)


PASSES = (
    Pass("expand", (), ("graph",), expand, rewrites=True),
    Pass("fold views", ("graph",), (), fold_views, rewrites=True),
    Pass("fold", ("graph",), (), fold, rewrites=True),
    Pass("fuse", ("graph",), (), fuse, rewrites=True),
    Pass("gradient", ("graph",), (), gradient, rewrites=True),
    Pass("prune", ("graph",), (), prune, rewrites=True),
    Pass("unify", ("graph",), (), unify, rewrites=True),
    Pass("fuse backward", ("graph",), (), fuse_backward, rewrites=True),
    Pass("layout", ("graph",), (), choose_layouts, rewrites=True),
    Pass("encode", ("graph",), (), encode, rewrites=True),
    Pass("slice batch", ("graph",), (), slice_batch, rewrites=True),
    Pass("schedule", ("graph",), ("schedule", "backward_start", "naive_bytes"), schedule),
    Pass("apply schedule", ("graph", "schedule"), ("ordered",), apply_schedule, rewrites=True,
         changes=("graph", "ordered", "schedule", "backward_start", "away", "persistent_bytes", "home_bytes")),
    Pass("share", ("graph", "schedule", "backward_start"), ("sharing",), share, changes=("sharing",)),
    Pass("workspace", ("graph", "schedule"), ("algorithms",), choose_workspaces, changes=("algorithms",)),
    Pass("pack", ("graph", "schedule", "sharing", "algorithms"),
         ("offsets", "workspace_offsets", "transient_bytes", "lower_bound_bytes"), assign_offsets,
         changes=("offsets", "workspace_offsets", "mapping", "transient_bytes", "lower_bound_bytes", "host_bytes",
                  "swapped_bytes", "packing")),
    Pass("lower", ("graph", "ordered", "schedule", "sharing", "algorithms", "offsets", "workspace_offsets"),
         ("plan",), lower),
    Pass("verify", ("plan",), (), _verify),
)

_SCHEDULE = next(k for k, stage in enumerate(PASSES) if stage.name == "schedule")


def compile_program(symbol_graph: Graph, request: Request, layout: PersistentLayout) -> Plan:
    """Compile one program of a symbol's graph, whose shapes and dtypes are complete, to a verified plan.

    `layout` gives the places of persistent tensors and grows by those the program adds.
    """
    state = run_passes(symbol_graph, request, layout)
    assert state.plan is not None
    return state.plan


def run_passes(symbol_graph: Graph, request: Request, layout: PersistentLayout) -> Compilation:
    """Run all passes and return everything that they made, for reports and for looking at each stage."""
    state = begin(symbol_graph, request, layout)
    complete(state)
    return state


def begin(symbol_graph: Graph, request: Request, layout: PersistentLayout) -> Compilation:
    """Run the passes before `schedule`, whose outcome no budget changes."""
    state = Compilation(request, symbol_graph, layout)
    with without_collection():
        for stage in PASSES[:_SCHEDULE]:
            run_pass(stage, state)
    return state


def complete(state: Compilation) -> None:
    """Run `schedule` and the passes behind it: provide `plan`."""
    with without_collection():
        for stage in PASSES[_SCHEDULE:]:
            run_pass(stage, state)
    assert state.plan is not None
    seconds = {name: value for name, value in state.seconds.items() if name != "verify"}
    figures = replace(state.plan.figures, compile_seconds=sum(seconds.values()), pass_seconds=dict(state.seconds))
    state.plan = replace(state.plan, figures=figures)


@contextmanager
def without_collection() -> Iterator[None]:
    """Cyclic garbage is not looked for meanwhile: passes make millions of small objects and hardly a cycle, so that a
    fifth of their time would go to looking through what is alive."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_MOST_NAMED = 3
"""Nodes that an error names."""


def _nodes_of(error: OperatorError, graph: Graph) -> str:
    """The nodes that an error may be of: those of its operator and parameters."""
    names = [graph.name[i] for i, op in enumerate(graph.op) if op is error.op and graph.params[i] == error.params]
    return " or ".join(names[:_MOST_NAMED]) + (f" or {len(names) - _MOST_NAMED} others" if names[_MOST_NAMED:] else "")


def run_pass(stage: Pass, state: Compilation) -> None:
    """Run one pass as `_run_pass` does; an operator's error names the nodes too."""
    try:
        _run_pass(stage, state)
    except OperatorError as error:
        graphs = [graph for graph in (state.graph, state.symbol_graph) if graph is not None]
        raise error.at(next(filter(None, (_nodes_of(error, graph) for graph in graphs)), "")) from error.__cause__


def _run_pass(stage: Pass, state: Compilation) -> None:
    """Run one pass; MXNetError names the missing field and the pass that provides it, or the rule the pass broke."""
    for name in stage.requires:
        if getattr(state, name) is None:
            provider = next((p.name for p in PASSES if name in p.provides), "no pass")
            raise MXNetError(f"pass `{stage.name}` requires `{name}`, which {provider} provides; run it before")
    start = time.perf_counter()
    if state.tried is not None and stage.changes:
        for name in stage.changes:
            setattr(state, name, getattr(state.tried, name))
    else:
        stage.run(state)
    state.seconds[stage.name] = state.seconds.get(stage.name, 0.0) + time.perf_counter() - start
    if stage.rewrites and state.request.verify:
        assert state.graph is not None
        lint(state.graph, stage.name)

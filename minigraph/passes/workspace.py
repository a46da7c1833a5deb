"""workspace: which algorithm each node runs, and so how much scratch it needs while it runs."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import Algorithm, TensorType
from ..graph.graph import Graph
from ..ops.op import Op
from .compilation import AlgorithmChoices, Compilation


def choose_workspaces(state: Compilation) -> None:
    """Provide `algorithms`: for each node that runs the fastest algorithm, in its numeric class."""
    graph = state.graph
    assert graph is not None and state.schedule is not None
    memo: dict[tuple, Algorithm] = {}
    choices = state.request.algorithms or _own_algorithms
    algorithms: list[Algorithm | None] = [None] * len(graph)
    for i in state.schedule.order:
        if graph.op[i].transfer is None:  # type: ignore[union-attr]
            algorithms[i] = _fastest(graph, i, memo, choices)
    state.algorithms = algorithms


def _own_algorithms(op: Op, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType],
                    ) -> Sequence[Algorithm]:
    return op.algorithms(params, ins, outs)


def _fastest(graph: Graph, i: int, memo: dict[tuple, Algorithm], choices: AlgorithmChoices) -> Algorithm:
    op, params = graph.op[i], graph.params[i]
    assert op is not None
    ins = [graph.type_of(e) for e in graph.inputs[i]]
    outs = [graph.type_of(e) for e in graph.entries(i)]
    key = (op.name, params, *((t.shape, t.dtype, t.layout) for t in (*ins, *outs)))
    found = memo.get(key)
    if found is None:
        found = memo[key] = choices(op, params, ins, outs)[0]
    return found

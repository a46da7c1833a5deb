"""workspace: which algorithm each node runs, and so how much scratch it needs while it runs.

The numeric class of a node is that of its fastest algorithm, whatever the budget; within the class every node runs the
fastest algorithm whose workspace fits the budget less what is live while it runs.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Algorithm, MXNetError, TensorType, align
from ..graph.graph import Graph
from ..ops.choices import AlgorithmChoices
from ..ops.op import Op, OperatorError
from .compilation import Compilation, Sharing


def choose_workspaces(state: Compilation, smallest: bool = False) -> None:
    """Provide `algorithms`: for each node that runs the fastest one of its class, as far as the budget allows, or that
    with the smallest workspace."""
    graph, schedule, budget = state.graph, state.schedule, state.request.budget_bytes
    assert graph is not None and schedule is not None
    room = [-1] * len(schedule) if smallest else None
    if not smallest and budget is not None and state.sharing is not None:
        room = (budget - state.persistent_bytes - _live_bytes(state.sharing, len(schedule))).tolist()
    algorithms: list[Algorithm | None] = [None] * len(graph)
    choices = Choices(graph, state.request.algorithms)
    for t, node in enumerate(schedule.order):
        if graph.op[node].transfer is None:  # type: ignore[union-attr]
            found = choices.of(node)
            algorithms[node] = found[0] if room is None else _fitting(found, room[t])
    state.algorithms = algorithms


class Choices:
    """The algorithms of nodes, each in the class of its fastest one, fastest first; equal nodes are asked once."""

    def __init__(self, graph: Graph, choices: AlgorithmChoices | None) -> None:
        self.graph = graph
        self.choices = choices or _own_algorithms
        self.kinds = graph.kinds()
        self.known: dict[tuple, tuple[Algorithm, ...]] = {}
        self.of_kind: dict[int, tuple[Algorithm, ...]] = {}

    def of(self, node: int) -> tuple[Algorithm, ...]:
        """The algorithms of one node."""
        kind = self.kinds[node]
        if kind not in self.of_kind:
            graph, op = self.graph, self.graph.op[node]
            assert op is not None
            ins, outs = graph.inputs[node], graph.entries(node)
            try:
                self.of_kind[kind] = self.of_op(op, graph.params[node], [*map(graph.type_of, ins)],
                                                [*map(graph.type_of, outs)])
            except OperatorError as error:
                raise error.at(graph.name[node]) from error.__cause__
            except MXNetError as error:
                raise MXNetError(f"{op.name} {graph.name[node]}: {error}") from error
        return self.of_kind[kind]

    def of_op(self, op: Op, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType],
              ) -> tuple[Algorithm, ...]:
        """The algorithms of an op for these types."""
        key = (op.name, params, *((t.shape, t.dtype, t.layout) for t in (*ins, *outs)))
        found = self.known.get(key)
        if found is None:
            offered = self.choices(op, params, ins, outs)
            found = self.known[key] = tuple(a for a in offered if a.numeric_class == offered[0].numeric_class)
        return found


def _own_algorithms(op: Op, params: Any, ins: Sequence[TensorType], outs: Sequence[TensorType],
                    ) -> Sequence[Algorithm]:
    return op.algorithms(params, ins, outs)


def _fitting(algorithms: Sequence[Algorithm], room_bytes: int) -> Algorithm:
    """The fastest that fits, or the one with the smallest workspace where none does."""
    for algorithm in algorithms:
        if align(algorithm.workspace_bytes) <= room_bytes:
            return algorithm
    return min(algorithms, key=lambda algorithm: algorithm.workspace_bytes)


def _live_bytes(sharing: Sharing, length: int) -> NDArray[np.int64]:
    """Transient bytes that are live at each position of the schedule, without workspaces."""
    change = np.zeros(length + 1, np.int64)
    for born, dies, nbytes, name, on_host in zip(sharing.born, sharing.dies, sharing.bytes, sharing.persistent,
                                                 sharing.on_host, strict=True):
        if name is None and not on_host:
            change[max(born, 0)] += align(nbytes)
            change[min(dies, length)] -= align(nbytes)
    return np.cumsum(change)[:length]

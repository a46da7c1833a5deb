"""schedule: the order in which nodes run. Without a policy it is the graph's own order."""
from __future__ import annotations

from ..graph.graph import FORWARD
from ..memory.schedule import from_order
from .compilation import Compilation


def schedule(state: Compilation) -> None:
    """Provide `schedule` and `backward_start`, the first position of the backward part."""
    graph = state.graph
    assert graph is not None
    order = [i for i, op in enumerate(graph.op) if op is not None and not op.view(graph.params[i])]
    state.schedule = from_order(order)
    state.backward_start = sum(1 for node in order if graph.phase[node] == FORWARD)

"""`vdnn`: Rhu, Gimelshein, Clemons, Zulfiqar and Keckler, "vDNN: Virtualized Deep Neural Networks" (MICRO 2016).

The values that forward layers leave for backward go to host memory as soon as their last forward reader has run, and
the next layer waits for the copy; they come back one layer ahead of their backward reader. What is read again within
two layers, such as the last one's output, would only be under way, and stays. Three forms: what costly layers
(convolutions) read, everything, and the dynamic choice of the fastest one that fits.
"""
from __future__ import annotations

from ...base import Entry
from ..schedule import Schedule, from_order
from .problem import Candidate, Problem, judge
from .swapping import absences, with_swaps

LEADS = (4, 1)
"""Steps before its reader at which a value comes back: about one layer of a convolutional network; or, where there is
no room for that, with the layer itself."""


def vdnn_all(problem: Problem) -> list[Candidate]:
    """Every value that backward reads is offloaded."""
    return judge(problem, _offloaded(problem, set(problem.saved)))


def vdnn_conv(problem: Problem) -> list[Candidate]:
    """The inputs of costly layers are offloaded."""
    return judge(problem, _offloaded(problem, _read_by_costly(problem)))


def vdnn(problem: Problem) -> list[Candidate]:
    """The dynamic form: no offloading, that of costly layers' inputs, or all of it."""
    return judge(problem, [from_order(problem.order), *_offloaded(problem, _read_by_costly(problem)),
                           *_offloaded(problem, set(problem.saved))])


def _offloaded(problem: Problem, entries: set[Entry]) -> list[Schedule]:
    plain = from_order(problem.order)
    away = absences(problem, plain, entries & problem.droppable)
    return [with_swaps(problem, plain, [a for a in away if a.back - a.last > 2 * lead], eager=True, lead=lead)
            for lead in LEADS]


def _read_by_costly(problem: Problem) -> set[Entry]:
    graph = problem.graph
    return {entry for node in problem.forward if graph.op[node].recompute == "costly"  # type: ignore[union-attr]
            for entry in problem.reads[node]}

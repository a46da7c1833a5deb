"""Storages of a plan: the buffers that share bytes, as views or in place, taken together."""
from __future__ import annotations

from ..plan.plan import Arena, Plan


def is_transient(arena: Arena) -> bool:
    """Whether what lies in an arena lives within one run: in the transient one, or where pages of it are mapped."""
    return arena.name == "transient" or arena.space == "mapped"


def storage_roots(plan: Plan) -> list[int]:
    """For each buffer the first of the chain of buffers whose bytes it took over: itself when it shares none."""
    roots = list(range(len(plan.buffers)))
    for b, shared in enumerate(plan.buffers.shares):
        if shared >= 0:
            roots[b] = roots[shared]
    return roots


def storages_by_death(plan: Plan) -> dict[int, list[int]]:
    """Transient storages, each as its root, by the instruction at which the last of its names dies.

    Those of outputs are left out: the outside reads them after the end.
    """
    columns, roots = plan.buffers, storage_roots(plan)
    dies: dict[int, int] = {}
    for b, root in enumerate(roots):
        dies[root] = max(dies.get(root, 0), columns.dies[b])
    outputs = {roots[out.buffer] for out in plan.outputs}
    result: dict[int, list[int]] = {}
    for b, death in dies.items():
        if is_transient(plan.arenas[columns.arena[b]]) and b not in outputs:
            result.setdefault(death, []).append(b)
    return result

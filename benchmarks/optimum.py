"""How far `auto` is from the best recomputation there is: Checkmate's integer program on small graphs.

    python -m benchmarks.optimum [--quick] [--json FILE] [--markdown FILE]

Jain et al., "Checkmate: breaking the memory wall with optimal tensor rematerialization" (MLSys 2020). Every backward
node is a stage, in which any forward values may be made again before it and any may be kept for the next one; the
program minimises the time of what is made again within a budget, and HiGHS solves it (needs scipy). Its schedule is
then counted as any other: `auto` has to do with the same peak, and what is compared are the seconds of both.
"""
from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import minigraph as mx
from minigraph.base import Entry
from minigraph.memory.policies import POLICIES, Problem, Strategy, judge
from minigraph.memory.policies.auto import auto
from minigraph.memory.schedule import DROP, RUN, Schedule, from_order, read_roots
from minigraph.planning import plan

WORST_MEAN = 1.05
"""Seconds of `auto` over those of the optimum, on average."""
GRAPHS, QUICK_GRAPHS = 30, 6
SHARES = (0.2, 0.5, 0.8)
"""Budgets, as shares of the way from what `auto` needs at least to the plain peak."""
SOLVER_SECONDS = 60
"""After which HiGHS gives up; such a budget is left out and counted."""


# -- graphs --------------------------------------------------------------------------------------------------
def network(seed: int) -> tuple[mx.sym.Symbol, dict[str, tuple[int, ...]]]:
    """A chain, a residual network or one with branches, of layers of different widths."""
    r = random.Random(seed)
    kind = ("chain", "residual", "branching")[seed % 3]
    h = mx.sym.Variable("data")
    if kind == "chain":
        for k in range(r.randint(3, 6)):
            h = mx.sym.FullyConnected(h, num_hidden=r.choice((32, 64, 128, 256)), no_bias=True, name=f"fc{k}")
            h = mx.sym.Activation(h, act_type="tanh", name=f"act{k}")
    elif kind == "residual":
        h = mx.sym.FullyConnected(h, num_hidden=128, no_bias=True, name="stem")
        for k in range(r.randint(2, 3)):
            y = mx.sym.FullyConnected(h, num_hidden=r.choice((32, 64, 256)), no_bias=True, name=f"down{k}")
            y = mx.sym.Activation(y, act_type="tanh", name=f"act{k}")
            h = h + mx.sym.FullyConnected(y, num_hidden=128, no_bias=True, name=f"up{k}")
    else:
        for k in range(r.randint(1, 2)):
            parts = [mx.sym.Activation(mx.sym.FullyConnected(h, num_hidden=r.choice((32, 64, 128)), no_bias=True,
                                                             name=f"branch{k}_{b}"), act_type=act)
                     for b, act in enumerate(("tanh", "sigmoid", "tanh")[:r.randint(2, 3)])]
            h = mx.sym.Concat(*parts, name=f"concat{k}")
    return mx.sym.MakeLoss(mx.sym.sum(h * h), name="loss"), {"data": (r.choice((256, 1024)), 64)}


def problem_of(symbol: mx.sym.Symbol, shapes: dict[str, tuple[int, ...]]) -> Problem:
    """What a policy is given for a training step of a symbol."""
    caught: list[Problem] = []

    def catch(problem: Problem) -> list:
        caught.append(problem)
        return judge(problem, [from_order(problem.order)])
    POLICIES["caught"] = Strategy(catch, "lowest")
    try:
        plan(symbol, shapes, "sgd", "step", "caught", verify=False)
    finally:
        del POLICIES["caught"]
    return caught[0]


# -- the program ---------------------------------------------------------------------------------------------
class Program:
    """The integer program of a problem. `forward` are the nodes that may run again and `stages` the backward nodes;
    stage 0 is the first run of forward, and stage t makes ready for backward node t - 1."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        graph = problem.graph
        self.forward = [node for node in problem.forward if set(graph.entries(node)) <= problem.droppable]
        self.stages = list(problem.order[problem.backward_start:])
        number = {node: k for k, node in enumerate(self.forward)}
        self.size = [sum(problem.size_bytes[e] for e in graph.entries(node)) for node in self.forward]

        def sources(node: int) -> list[int]:
            return sorted({number[graph.node_of[e]] for e in read_roots(graph, node) if graph.node_of[e] in number})
        self.reads = [sources(node) for node in self.forward]
        self.needed = [sources(node) for node in self.stages]
        last = {i: t for t, reads in enumerate(self.needed) for i in reads}
        live = problem.live(from_order(problem.order)).tolist()[problem.backward_start:]
        self.rest = [nbytes - sum(self.size[i] for i, end in last.items() if t <= end)
                     for t, nbytes in enumerate(live)]
        self.pairs = self._pairs()

    def solve(self, budget_bytes: int) -> Schedule | None:
        """The schedule with the least time within the budget; None when there is none, or the solver gave up."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_matrix

        count, stages = len(self.forward), len(self.stages) + 1
        rows = _Rows(count, stages, [(i, k) for k, reads in enumerate(self.reads) for i in reads])
        self._dependencies(rows)
        self._memory(rows, budget_bytes)
        seconds = np.zeros(rows.width)
        for t in range(1, stages):
            for k, node in enumerate(self.forward):
                seconds[rows.run(t, k)] = self.problem.seconds[node]
        matrix = csr_matrix((rows.values, (rows.row, rows.column)), shape=(len(rows.upper), rows.width))
        scale = max(seconds.max(), 1e-12)
        found = milp(seconds / scale, constraints=LinearConstraint(matrix, -np.inf, np.array(rows.upper)),
                     bounds=Bounds(np.array(rows.least), np.array(rows.most)), integrality=np.array(rows.integral),
                     options={"time_limit": SOLVER_SECONDS, "mip_rel_gap": 1e-3})
        if found.x is None or found.status != 0:
            return None
        return self._schedule(rows, found.x)

    def _dependencies(self, rows: _Rows) -> None:
        """What runs or is kept has been there before; stage 0 runs everything once."""
        for k in range(len(self.forward)):
            rows.fix(rows.run(0, k), 1.0)
            rows.fix(rows.keep(0, k), 0.0)
        for t in range(rows.stages):
            for k, reads in enumerate(self.reads):
                for i in reads:
                    rows.at_most(0.0, {rows.run(t, k): 1.0, rows.run(t, i): -1.0, rows.keep(t, i): -1.0})
            for k in range(len(self.forward)):
                if t:
                    rows.at_most(0.0, {rows.keep(t, k): 1.0, rows.keep(t - 1, k): -1.0, rows.run(t - 1, k): -1.0})
            for i in self.needed[t - 1] if t else ():
                rows.at_most(-1.0, {rows.run(t, i): -1.0, rows.keep(t, i): -1.0})

    def _memory(self, rows: _Rows, budget_bytes: int) -> None:
        """Live bytes after each node of each stage, and while its backward node runs, within the budget."""
        unit = float(max(self.size))
        users: list[list[int]] = [[] for _ in self.forward]
        for k, reads in enumerate(self.reads):
            for i in reads:
                users[i].append(k)
        for t in range(rows.stages):
            rest = self.rest[t - 1] if t else self.rest[0]
            needed = set(self.needed[t - 1]) if t else set()
            live: dict[int, float] = {rows.keep(t, i): size / unit for i, size in enumerate(self.size)}
            for k, reads in enumerate(self.reads):
                live[rows.run(t, k)] = live.get(rows.run(t, k), 0.0) + self.size[k] / unit
                in_place = [i for i in reads if (i, k) in self.pairs]
                for i in in_place:
                    live[rows.free(t, i, k)] = -self.size[i] / unit
                rows.at_most((budget_bytes - rest) / unit, live)
                for i in reads:
                    live[rows.free(t, i, k)] = -self.size[i] / unit
                    self._free(rows, t, i, k, [j for j in users[i] if j > k], i in needed)
            rows.at_most((budget_bytes - rest) / unit, live)

    def _free(self, rows: _Rows, t: int, i: int, k: int, later: Sequence[int], is_needed: bool) -> None:
        """A value is free after a reader that runs when no later one runs, the stage does not need it, and the next
        one does not keep it."""
        free = rows.free(t, i, k)
        if is_needed:
            rows.fix(free, 0.0)
            return
        rows.at_most(0.0, {free: 1.0, rows.run(t, k): -1.0})
        if t + 1 < rows.stages:
            rows.at_most(1.0, {free: 1.0, rows.keep(t + 1, i): 1.0})
        for j in later:
            rows.at_most(1.0, {free: 1.0, rows.run(t, j): 1.0})

    def _pairs(self) -> frozenset[tuple[int, int]]:
        """(source, node) where a node may write over what it reads."""
        graph, found = self.problem.graph, set()
        number = {node: k for k, node in enumerate(self.forward)}
        for k, node in enumerate(self.forward):
            for source, _ in graph.op[node].inplace(graph.params[node]):  # type: ignore[union-attr]
                maker = number.get(graph.node_of[graph.inputs[node][source]])
                if maker is not None and self.size[maker] == self.size[k]:
                    found.add((maker, k))
        return frozenset(found)

    def _schedule(self, rows: _Rows, x: np.ndarray) -> Schedule:
        steps: list[tuple[str, int]] = [(RUN, node) for node in self.problem.forward]
        there = set(range(len(self.forward)))
        for t, node in enumerate(self.stages, start=1):
            kept = {k for k in there if x[rows.keep(t, k)] > 0.5}
            steps += [(DROP, e) for k in sorted(there - kept) for e in self._entries(k)]
            again = [k for k in range(len(self.forward)) if x[rows.run(t, k)] > 0.5]
            steps += [(RUN, self.forward[k]) for k in again]
            there = kept | set(again)
            steps.append((RUN, node))
        return Schedule(tuple(steps))

    def _entries(self, k: int) -> list[Entry]:
        return list(self.problem.graph.entries(self.forward[k]))


class _Rows:
    """Constraints as they are written, and the numbers of the variables."""

    def __init__(self, count: int, stages: int, edges: Sequence[tuple[int, int]]) -> None:
        self.count, self.stages = count, stages
        self.edge = {edge: k for k, edge in enumerate(edges)}
        self.width = stages * (2 * count + len(edges))
        self.least, self.most = [0.0] * self.width, [1.0] * self.width
        self.integral = [1] * (2 * stages * count) + [0] * (stages * len(edges))
        self.row: list[int] = []
        self.column: list[int] = []
        self.values: list[float] = []
        self.upper: list[float] = []

    def run(self, t: int, k: int) -> int:
        """Whether node k runs in stage t."""
        return t * self.count + k

    def keep(self, t: int, k: int) -> int:
        """Whether the value of node k is kept from the stage before t."""
        return (self.stages + t) * self.count + k

    def free(self, t: int, i: int, k: int) -> int:
        """Whether the value of node i is given up after node k in stage t."""
        return 2 * self.stages * self.count + t * len(self.edge) + self.edge[i, k]

    def fix(self, variable: int, value: float) -> None:
        """Give a variable a value."""
        self.least[variable] = self.most[variable] = value

    def at_most(self, upper: float, terms: dict[int, float]) -> None:
        """A sum of terms is at most `upper`."""
        for column, value in terms.items():
            self.row.append(len(self.upper))
            self.column.append(column)
            self.values.append(value)
        self.upper.append(upper)


# -- the comparison ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Row:
    """One graph and budget: the peak of the optimum's schedule, and the seconds of it and of `auto` within that."""

    seed: int
    nodes: int
    share: float
    peak_bytes: int
    optimum_seconds: float
    auto_seconds: float
    plain_seconds: float

    @property
    def ratio(self) -> float:
        """Seconds of `auto` over those of the optimum."""
        return self.auto_seconds / self.optimum_seconds


def measure(seed: int, shares: Sequence[float] = SHARES) -> list[Row]:
    """Compare at some budgets; those at which the solver gives up are left out."""
    problem = problem_of(*network(seed))
    found = auto(problem)
    plain = problem.quick(from_order(problem.order))
    least = min(candidate.peak_bytes for candidate in found)
    program, rows = Program(problem), []
    for share in shares:
        schedule = program.solve(int(least + share * (plain.peak_bytes - least)))
        if schedule is None:
            continue
        best = problem.quick(schedule)
        within = [candidate.seconds for candidate in found if candidate.peak_bytes <= best.peak_bytes]
        if within:
            rows.append(Row(seed, len(problem.order), share, best.peak_bytes, best.seconds, min(within),
                            plain.seconds))
    return rows


def summary(rows: Sequence[Row], asked: int) -> dict[str, Any]:
    """The figures to watch."""
    ratios = [row.ratio for row in rows]
    return {"graphs": len({row.seed for row in rows}), "budgets": len(rows), "left_out": asked - len(rows),
            "mean_ratio": float(np.mean(ratios)), "worst_ratio": max(ratios),
            "worst_seed": max(rows, key=lambda row: row.ratio).seed,
            "mean_optimum_over_plain": float(np.mean([row.optimum_seconds / row.plain_seconds for row in rows]))}


def markdown(rows: Sequence[Row], figures: dict[str, Any]) -> str:
    """A table of graphs and what the whole comes to."""
    lines = ["# `auto` beside the integer optimum", "",
             "Written by `python -m benchmarks.optimum`. Seconds are modelled.", "",
             f"On average over {figures['budgets']} budgets of {figures['graphs']} graphs `auto` takes "
             f"{figures['mean_ratio']:.4f} of the optimum's seconds, at worst {figures['worst_ratio']:.4f}; the "
             f"optimum takes {figures['mean_optimum_over_plain']:.4f} of plain's. At {figures['left_out']} budgets "
             f"there was none within the solver's time, or none that fits.", "",
             "| graph | nodes | budget | optimum / plain | auto / optimum |", "|---" * 5 + "|"]
    lines += [f"| {row.seed} | {row.nodes} | {row.share} | {row.optimum_seconds / row.plain_seconds:.4f} | "
              f"{row.ratio:.4f} |" for row in rows]
    return "\n".join([*lines, ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 when `auto` is further away than it may be, 2 without scipy."""
    parser = argparse.ArgumentParser(prog="optimum", description="Compare auto with the best recomputation.")
    parser.add_argument("--quick", action="store_true", help="a few graphs")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write the table to a file")
    given = parser.parse_args(argv)
    try:
        import scipy  # noqa: F401
    except ImportError:
        print("the integer program needs scipy: pip install scipy", file=sys.stderr)
        return 2
    count = QUICK_GRAPHS if given.quick else GRAPHS
    rows = [row for seed in range(count) for row in measure(seed)]
    figures = summary(rows, count * len(SHARES))
    text = markdown(rows, figures)
    print(text)
    if given.markdown:
        Path(given.markdown).write_text(text, encoding="utf-8")
    if given.json:
        document = {"summary": figures, "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
        Path(given.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(figures["mean_ratio"] > WORST_MEAN)


if __name__ == "__main__":
    sys.exit(main())

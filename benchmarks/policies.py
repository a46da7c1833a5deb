"""Every policy on networks of the zoo, at budgets between the least that any can do with and what plain takes.

    python -m benchmarks.policies [--quick] [--only NAME] [--json FILE] [--markdown FILE] [--plot FILE]

A policy's candidates are counted as the planner counts them (peak live bytes, and modelled seconds with the stalls for
copies), and at each budget the fastest that fits is taken, within a host budget without bound. Seconds are those of a
V100 model. A ratio is `auto`'s seconds over the least of all other policies: 1 or less where `auto` is not beaten.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.cases import Case, add_choice, choose, write
from minigraph.memory.policies import POLICIES, Candidate, Problem, Strategy, judge
from minigraph.memory.schedule import from_order
from minigraph.planning import plan

BUDGETS = 20
MACHINE = "V100"
HOST_BYTES = 1 << 50
OURS = ("auto", "auto, full")
_MIB = 2**20


CASES = (
    Case("lenet", "zoo.lenet", (128, 1, 28, 28), quick=True),
    Case("alexnet", "zoo.alexnet", (128, 3, 224, 224), quick=True),
    Case("vgg16", "zoo.vgg", (32, 3, 224, 224), {"depth": 16}),
    Case("resnet-20", "zoo.resnet", (128, 3, 32, 32), {"num_classes": 10, "depth": 20}, quick=True),
    Case("resnet50", "zoo.resnet", (32, 3, 224, 224), {"depth": 50}),
    Case("googlenet", "zoo.googlenet", (32, 3, 224, 224)),
    Case("mobilenet v2", "zoo.mobilenet", (64, 3, 224, 224), {"version": 2}),
    Case("squeezenet 1.1", "zoo.squeezenet", (64, 3, 224, 224), {"version": "1.1"}),
    Case("unet", "zoo.unet", (4, 1, 572, 572)),
    Case("lstm medium", "zoo.lstm", (20, 35)),
    Case("bert base", "zoo.bert", (32, 128)),
)


@dataclass(frozen=True)
class Curve:
    """What one policy takes on one network: seconds and peak at each budget (None where it does not fit)."""

    network: str
    policy: str
    budgets: list[int]
    seconds: list[float | None]
    peaks: list[int | None]
    candidates: int
    planning_seconds: float


def problem_of(case: Case) -> Problem:
    """What a policy is given for a training step of a network."""
    caught: list[Problem] = []

    def catch(problem: Problem) -> list[Candidate]:
        caught.append(problem)
        return judge(problem, [from_order(problem.order)])
    POLICIES["caught"] = Strategy(catch, "lowest")
    try:
        plan(case.symbol(), case.shapes, "sgd", "step", "caught", host_budget=HOST_BYTES, machine=MACHINE, verify=False,
             optimizer_params={"momentum": 0.9})
    finally:
        del POLICIES["caught"]
    return caught[0]


def measure(case: Case) -> list[Curve]:
    """The curves of all policies on one network."""
    problem = problem_of(case)
    found: dict[str, tuple[list[Candidate], float]] = {}
    for policy, strategy in POLICIES.items():
        start = time.perf_counter()
        found[policy] = strategy.offer(problem, policy == "auto"), time.perf_counter() - start
    start = time.perf_counter()
    found[OURS[1]] = POLICIES["auto"].offer(problem, True, "full"), time.perf_counter() - start
    least = min(c.peak_bytes for candidates, _ in found.values() for c in candidates)
    most = problem.quick(from_order(problem.order)).peak_bytes
    budgets = np.linspace(least, most, BUDGETS).astype(np.int64).tolist()
    return [_curve(case.name, policy, budgets, *given) for policy, given in found.items()]


def _curve(network: str, policy: str, budgets: list[int], candidates: list[Candidate], seconds: float) -> Curve:
    taken = []
    for budget in budgets:
        within = [c for c in candidates if c.peak_bytes <= budget]
        taken.append(min(within, key=lambda c: (c.seconds, c.peak_bytes)) if within else None)
    return Curve(network, policy, budgets, [None if c is None else c.seconds for c in taken],
                 [None if c is None else c.peak_bytes for c in taken], len(candidates), seconds)


def ratios(curves: Sequence[Curve], ours: str) -> list[float]:
    """`ours` over the best of the published policies, at each budget at which one of them fits; infinite where `ours`
    does not."""
    mine = next(curve for curve in curves if curve.policy == ours)
    others = [curve for curve in curves if curve.policy not in OURS]
    result = []
    for k, seconds in enumerate(mine.seconds):
        best = min((s for c in others if (s := c.seconds[k]) is not None), default=None)
        if best is not None:
            result.append(float("inf") if seconds is None else seconds / best)
    return result


def markdown(by_network: dict[str, list[Curve]]) -> str:
    """Two tables: `auto` beside the best of the others, and how often each policy is the best of those."""
    lines = ["# Policies", "", "Written by `python -m benchmarks.policies`: modelled seconds of a step at "
             f"{BUDGETS} budgets between the least that any policy can do with and what plain takes, on a {MACHINE}.",
             "A ratio is over the best of all other policies, at budgets at which one of them fits; `misses` counts "
             "those at which `auto` does not.", "",
             "| network | plain MiB | least MiB | auto mean | worst | misses | full mean | worst | misses | "
             "auto planned in s | full in s |", "|---" * 11 + "|"]
    for name, curves in by_network.items():
        mine = {curve.policy: curve for curve in curves}
        cells = []
        for ours in OURS:
            found = ratios(curves, ours)
            fitting = [ratio for ratio in found if np.isfinite(ratio)]
            cells += [f"{np.mean(fitting):.4f}", f"{max(fitting):.4f}", str(len(found) - len(fitting))]
        budgets = curves[0].budgets
        lines.append(f"| {name} | {budgets[-1] / _MIB:.1f} | {budgets[0] / _MIB:.1f} | {' | '.join(cells)} | "
                     f"{mine[OURS[0]].planning_seconds:.1f} | {mine[OURS[1]].planning_seconds:.1f} |")
    policies = [curve.policy for curve in next(iter(by_network.values()))]
    lines += ["", "Seconds over plain's at budgets a quarter, half and three quarters of the way up (- does not fit).",
              "", f"| network | {' | '.join(policies)} |", "|---" * (len(policies) + 1) + "|"]
    for name, curves in by_network.items():
        plain = min(s for curve in curves for s in curve.seconds[-1:] if s is not None)
        cells = ["/".join(_over(curve.seconds[k], plain) for k in (BUDGETS // 4, BUDGETS // 2, 3 * BUDGETS // 4))
                 for curve in curves]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _over(seconds: float | None, plain: float) -> str:
    return "-" if seconds is None else f"{seconds / plain:.2f}"


def plot(by_network: dict[str, list[Curve]], path: str) -> None:
    """One panel a network, seconds over the budget; needs matplotlib."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(len(by_network), 3)
    rows = -(-len(by_network) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5 * columns, 3.5 * rows), squeeze=False)
    for axis, (name, curves) in zip(axes.flat, by_network.items(), strict=False):
        for curve in curves:
            points = [(b / _MIB, s * 1e3) for b, s in zip(curve.budgets, curve.seconds, strict=True) if s is not None]
            if points:
                axis.plot(*zip(*points, strict=True), label=curve.policy, linewidth=2 if curve.policy in OURS else 1)
        axis.set(title=name, xlabel="budget, MiB", ylabel="modelled ms")
    axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; the exit code is 1 when a policy is faster than the full search anywhere."""
    parser = argparse.ArgumentParser(prog="policies", description="Compare all policies at many budgets.")
    add_choice(parser, "a few small networks")
    parser.add_argument("--json", metavar="FILE", help="write the curves to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to a file")
    parser.add_argument("--plot", metavar="FILE", help="draw the curves (needs matplotlib)")
    given = parser.parse_args(argv)
    by_network: dict[str, list[Curve]] = {}
    for case in choose(CASES, given, parser):
        by_network[case.name] = measure(case)
        found = ratios(by_network[case.name], OURS[0])
        print(f"{case.name}: auto over the best of the others at worst {max(found):.4f}", flush=True)
    text = markdown(by_network)
    print(text)
    write(given.markdown, text)
    if given.json:
        document = [asdict(curve) for curves in by_network.values() for curve in curves]
        write(given.json, json.dumps(document) + "\n")
    if given.plot:
        plot(by_network, given.plot)
    return int(max(max(ratios(curves, OURS[1])) for curves in by_network.values()) > 1.0)


if __name__ == "__main__":
    sys.exit(main())

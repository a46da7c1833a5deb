"""Every policy on networks of the zoo, at budgets between the least that any can do with and what plain takes.

    python -m benchmarks.policies [--quick] [--only NAME] [--json FILE] [--markdown FILE] [--plot FILE]

A policy's candidates are counted as the planner counts them (peak live bytes, and modelled seconds with the stalls for
copies), and at each budget the fastest that fits is taken, within a host budget without bound. Seconds are those of a
V100 model. A ratio is `auto`'s seconds over the least of all other policies: 1 or less where `auto` is not beaten. It
is taken at 20 budgets, and at the peak of each candidate of each other policy below plain: budgets between two of these
are no harder.
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
    Case("resnet-110", "zoo.resnet", (64, 3, 32, 32), {"num_classes": 10, "depth": 110}),
    Case("resnet18", "zoo.resnet", (64, 3, 224, 224), {"depth": 18}),
    Case("resnet50", "zoo.resnet", (32, 3, 224, 224), {"depth": 50}),
    Case("googlenet", "zoo.googlenet", (32, 3, 224, 224)),
    Case("inception bn", "zoo.inception_bn", (32, 3, 224, 224)),
    Case("inception v3", "zoo.inception_v3", (32, 3, 299, 299)),
    Case("inception v4", "zoo.inception_v4", (32, 3, 299, 299)),
    Case("inception resnet v2", "zoo.inception_resnet_v2", (32, 3, 299, 299)),
    Case("densenet121", "zoo.densenet", (32, 3, 224, 224)),
    Case("mobilenet", "zoo.mobilenet", (64, 3, 224, 224), {"version": 1}),
    Case("mobilenet v2", "zoo.mobilenet", (64, 3, 224, 224), {"version": 2}),
    Case("squeezenet 1.1", "zoo.squeezenet", (64, 3, 224, 224), {"version": "1.1"}),
    Case("unet", "zoo.unet", (4, 1, 572, 572)),
    Case("unet 3-D", "zoo.unet", (2, 3, 132, 132, 116), {"dims": 3}),
    Case("lstm medium", "zoo.lstm", (20, 35)),
    Case("bert base", "zoo.bert", (32, 128)),
    Case("gpt", "zoo.gpt", (4, 1024)),
)


@dataclass(frozen=True)
class Curve:
    """What one policy can do on one network: peak bytes and seconds of those candidates that no other one of its own is
    better than in both, by rising bytes."""

    network: str
    policy: str
    front: list[tuple[int, float]]
    candidates: int
    planning_seconds: float

    def within(self, budget_bytes: int) -> float | None:
        """Seconds of the fastest candidate within a budget, or None."""
        return min((seconds for peak, seconds in self.front if peak <= budget_bytes), default=None)


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
    return [Curve(case.name, policy, front(candidates), len(candidates), seconds)
            for policy, (candidates, seconds) in found.items()]


def front(candidates: Sequence[Candidate]) -> list[tuple[int, float]]:
    """Peak bytes and seconds of the candidates that are not beaten in both."""
    result: list[tuple[int, float]] = []
    for peak, seconds in sorted((c.peak_bytes, c.seconds) for c in candidates):
        if not result or seconds < result[-1][1]:
            result.append((peak, seconds))
    return result


def plain_bytes(curves: Sequence[Curve]) -> int:
    """What the plain order takes, which every policy offers too."""
    return max(curve.front[-1][0] for curve in curves)


def even_budgets(curves: Sequence[Curve]) -> list[int]:
    """Even steps from the least that any policy can do with to what plain takes."""
    least = min(curve.front[0][0] for curve in curves)
    return list(map(int, np.linspace(least, plain_bytes(curves), BUDGETS).astype(np.int64)))


def hard_budgets(curves: Sequence[Curve]) -> list[int]:
    """The peaks below plain of the candidates of all other policies."""
    return sorted({peak for c in curves if c.policy not in OURS for peak, _ in c.front if peak < plain_bytes(curves)})


def ratios(curves: Sequence[Curve], ours: str, budgets: Sequence[int]) -> list[float]:
    """`ours` over the best of the published policies, at each budget at which one of them fits; infinite where `ours`
    does not."""
    mine = next(curve for curve in curves if curve.policy == ours)
    others = [curve for curve in curves if curve.policy not in OURS]
    result = []
    for budget in budgets:
        best = min((s for c in others if (s := c.within(budget)) is not None), default=None)
        seconds = mine.within(budget)
        if best is not None:
            result.append(float("inf") if seconds is None else seconds / best)
    return result


def worst(curves: Sequence[Curve], ours: str) -> float:
    """The worst ratio at any budget."""
    return max(ratios(curves, ours, [*even_budgets(curves), *hard_budgets(curves)]))


def markdown(by_network: dict[str, list[Curve]]) -> str:
    """Two tables: `auto` beside the best of the others, and seconds of each policy at three budgets."""
    lines = ["# Policies", "", "Written by `python -m benchmarks.policies`: modelled seconds of a step at "
             f"{BUDGETS} budgets between the least that any policy can do with and what plain takes, on a {MACHINE}.",
             "A ratio is over the best of all other policies, at budgets at which one of them fits; `misses` counts "
             "those at which `auto` does not. `hardest` is the worst ratio at the peaks of all candidates of all other "
             "policies, which are as many as it says: no budget between two of them is harder.", "",
             "| network | plain MiB | least MiB | auto mean | worst | misses | hardest | of | full mean | worst "
             "| misses | hardest | of | auto planned in s | full in s |", "|---" * 15 + "|"]
    for name, curves in by_network.items():
        budgets, mine = even_budgets(curves), {curve.policy: curve for curve in curves}
        cells = " | ".join(_compared(curves, ours) for ours in OURS)
        lines.append(f"| {name} | {budgets[-1] / _MIB:.1f} | {budgets[0] / _MIB:.1f} | {cells} | "
                     f"{mine[OURS[0]].planning_seconds:.1f} | {mine[OURS[1]].planning_seconds:.1f} |")
    policies = [curve.policy for curve in next(iter(by_network.values()))]
    lines += ["", "Seconds over plain's at budgets a quarter, half and three quarters of the way up (- does not fit).",
              "", f"| network | {' | '.join(policies)} |", "|---" * (len(policies) + 1) + "|"]
    for name, curves in by_network.items():
        budgets = even_budgets(curves)
        plain = min(curve.front[-1][1] for curve in curves)
        cells = " | ".join("/".join(_over(curve.within(budgets[k]), plain)
                                    for k in (BUDGETS // 4, BUDGETS // 2, 3 * BUDGETS // 4)) for curve in curves)
        lines.append(f"| {name} | {cells} |")
    return "\n".join([*lines, ""])


def _compared(curves: Sequence[Curve], ours: str) -> str:
    """The cells of `ours` in the first table; a dash where no other policy takes less than plain."""
    found, hard = (ratios(curves, ours, budgets) for budgets in (even_budgets(curves), hard_budgets(curves)))
    fitting = [ratio for ratio in found if np.isfinite(ratio)]
    hardest = f"{max(hard):.4f}" if hard else "-"
    return (f"{np.mean(fitting):.4f} | {max(fitting):.4f} | {len(found) - len(fitting)} | {hardest} | {len(hard)}")


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
            points = [(b / _MIB, s * 1e3) for b in even_budgets(curves) if (s := curve.within(b)) is not None]
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
        print(f"{case.name}: auto over the best of the others at worst {worst(by_network[case.name], OURS[0]):.4f}",
              flush=True)
    text = markdown(by_network)
    print(text)
    write(given.markdown, text)
    if given.json:
        document = [asdict(curve) for curves in by_network.values() for curve in curves]
        write(given.json, json.dumps(document) + "\n")
    if given.plot:
        plot(by_network, given.plot)
    return int(max(worst(curves, OURS[1]) for curves in by_network.values()) > 1.0)


if __name__ == "__main__":
    sys.exit(main())

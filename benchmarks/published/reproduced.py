"""Figures that follow from the papers' own layer rules, exactly or nearly: no machine and no policy of ours is in them
but graph, liveness, and the code that recomputes and offloads."""
from __future__ import annotations

from minigraph.memory.machine import MACHINES
from minigraph.memory.policies import Problem
from minigraph.memory.policies.superneurons import cost_aware, memory_centric, offloaded, speed_centric
from minigraph.memory.schedule import from_order

from .kept import ROW, kept_bytes, plain_bytes
from .layers import Stack, alexnet, resnet
from .rules import SUPERNEURONS, curve, own_bytes, problem_of, training_graph

MIB, GIB = 2**20, 2**30
CURVE = {"baseline": 2189.437, "liveness": 1489.355, "offloading": 1132.155, "speed-centric": 993.018,
         "cost-aware": 886.23}
"""MiB of AlexNet at batch 200: SuperNeurons, Fig. 10 and Table 1."""
COUNTS = {"AlexNet": (14, 23, 17), "ResNet-50": (84, 118, 85), "ResNet-101": (169, 237, 170)}
"""Layers run again, speed-centric, memory-centric and cost-aware: SuperNeurons, Table 1."""


def lines() -> list[str]:
    """A markdown table of each."""
    return [*_curve_lines(), "", *_count_lines(), "", *_tensorflow_lines()]


def superneurons_problem(stack: Stack) -> Problem:
    """Layers by SuperNeurons' rules, as policies are given them."""
    return problem_of(training_graph(stack.layers, SUPERNEURONS, stack.data), MACHINES["K40c"])


def _curve_lines() -> list[str]:
    net = superneurons_problem(alexnet(200))
    plain = from_order(net.order)
    peaks = {"baseline": own_bytes(net, plain)[1]}
    for name, schedule in (("liveness", plain), ("offloading", offloaded(net, plain)),
                           ("speed-centric", offloaded(net, speed_centric(net))),
                           ("cost-aware", offloaded(net, cost_aware(net)))):
        peaks[name] = max(moment.live_bytes for moment in curve(net, schedule))
    return ["| AlexNet, batch 200 | published MiB | by its rules |", "| --- | --- | --- |",
            *(f"| {name} | {CURVE[name]} | {nbytes / MIB:.3f} |" for name, nbytes in peaks.items())]


def _count_lines() -> list[str]:
    rows = []
    for name, stack in (("AlexNet", alexnet(200)), ("ResNet-50", resnet((3, 4, 6, 3), 32)),
                        ("ResNet-101", resnet((3, 4, 23, 3), 32))):
        net = superneurons_problem(stack)
        found = [len(way(net).order) - len(net.order) for way in (speed_centric, memory_centric, cost_aware)]
        rows.append(f"| {name} | {' / '.join(map(str, COUNTS[name]))} | {' / '.join(map(str, found))} |")
    return ["| layers run again | published: speed / memory / cost-aware | by its rules |", "| --- | --- | --- |",
            *rows]


def _tensorflow_lines() -> list[str]:
    rows = [f"| {name} | {case.batch} | {kept_bytes(case) / GIB:.2f} | {plain_bytes(case) / GIB:.2f} |"
            for name, case in ROW.items()]
    return ["| TensorFlow's largest batch on Capuchin's P100 | batch | GiB kept by its rules | GiB of our plain plan |",
            "| --- | --- | --- | --- |", *rows]

"""The least budget that a refusal names is the least that is accepted, whatever the policy."""
from __future__ import annotations

import copy
import importlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.executor import Executor
from minigraph.memory.policies import POLICIES
from minigraph.optimizer import SGD
from minigraph.passes.pipeline import compile_program
from minigraph.planning import Program, prepare
from tests.memory.test_policies import convolutional

NETWORKS = {"mlp": ({"hidden": 8}, {"data": (4, 16)}), "lenet": ({}, {"data": (4, 1, 28, 28)}),
            "resnet": ({"depth": 8, "image_shape": (3, 32, 32)}, {"data": (8, 3, 32, 32)})}


def program(network: str, memory: str, host: bool) -> Program:
    settings, shapes = NETWORKS[network]
    symbol = importlib.import_module(f"zoo.{network}").get_symbol(num_classes=10, **settings)
    return prepare(symbol, shapes, "sgd", memory=memory, budget=1, host_budget="1GiB" if host else None, verify=False)


def least_of(made: Program, budget: int) -> int | None:
    """What a refusal of a budget names as the least one; None where the budget is accepted."""
    try:
        found = compile_program(made.graph, replace(made.request, budget_bytes=budget), copy.deepcopy(made.layout))
    except OutOfMemoryError as refused:
        return refused.asked_bytes
    assert found.planned_bytes <= budget
    return None


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("network, memory", [*itertools.product(("lenet", "mlp"), sorted(POLICIES)),
                                             ("resnet", "superneurons")])
def test_the_least_budget_that_is_named_is_accepted_and_less_is_refused_naming_the_same(network: str, memory: str,
                                                                                        host: bool) -> None:
    made = program(network, memory, host)
    try:
        least = least_of(made, 1)
    except MXNetError:
        assert not host  # a policy that swaps, without host memory
        return
    assert least is not None and least_of(made, least) is None
    for less in (1, least // 50):
        assert least_of(made, least - less) == least


@pytest.mark.parametrize("memory, host", [("auto", False), ("auto", True), ("sublinear", False),
                                          ("superneurons", True)])
def test_training_with_an_update_of_its_own_names_one_least_budget_for_both_and_keeps_to_it(memory: str,
                                                                                            host: bool) -> None:
    def train(budget: int) -> Executor:
        symbol, inputs = convolutional(2), ("data", "softmax_label")
        requests = {name: "null" if name in inputs else "write" for name in symbol.list_arguments()}
        exe = Executor(symbol, mx.cpu(), {"data": (8, 3, 8, 8)}, inputs=inputs, grad_req=requests, memory=memory,
                       budget=budget, host_budget="1GiB" if host else None, verify=False)
        rule = SGD(learning_rate=0.1, momentum=0.9)
        exe.set_updater(rule)
        exe.forward(is_train=True, data=np.ones((8, 3, 8, 8), np.float32), softmax_label=np.zeros(8, np.float32))
        exe.backward()
        exe.update(rule.control)
        return exe

    asked = [1]
    for _ in range(2):  # what training takes alone, then what it takes with the update
        with pytest.raises(OutOfMemoryError) as refused:
            train(asked[-1])
        asked.append(refused.value.asked_bytes)
    exe = train(asked[-1])
    assert exe.group.layout.bytes + exe.group.transient_bytes <= asked[-1]
    with pytest.raises(OutOfMemoryError) as refused:
        train(asked[-1] - 1)
    assert refused.value.asked_bytes == asked[-1]

"""Training steps and predictions of the zoo's networks, at their usual batch, run by the CPU's kernels alone.

A few networks are planned always, all of them with MINIGRAPH_TEST_FULL=1.
"""
from __future__ import annotations

import os
from collections import Counter

import pytest

from benchmarks import zoo_plans
from benchmarks.cases import SGD, Case
from minigraph.device.cpu.native.bind import is_native
from minigraph.plan.plan import Kind, Plan
from minigraph.planning import plan
from tests.device.cpu.native.harness import the_library

FULL = os.environ.get("MINIGRAPH_TEST_FULL") == "1"
PLANNED = [case for case in zoo_plans.CASES if case.quick or FULL]
VOLUMES = Case("unet 3-D (small, padded)", "zoo.unet", (2, 3, 40, 40, 40),
                    {"dims": 3, "padded": True, "levels": 2, "filters": 16, "image_shape": (3, 40, 40, 40)})


def in_numpy(made: Plan) -> Counter[str]:
    """The operators that NumPy computes, and how often."""
    code = made.instructions
    return Counter(code.op[i] for i in range(len(made)) if code.kind[i] == Kind.COMPUTE and not is_native(made, i))


@pytest.mark.parametrize("case", [*PLANNED, VOLUMES], ids=lambda case: case.name.replace(" ", "-"))
def test_no_operator_of_a_network_is_left_to_numpy(case: Case) -> None:
    the_library()
    assert not in_numpy(plan(case.symbol(), case.shapes, verify=False, **SGD))
    assert not in_numpy(plan(case.symbol(), case.shapes, verify=False, program="eval"))


def test_few_channels_in_blocks_of_many_are_left_to_numpy_where_that_takes_less() -> None:
    the_library()
    narrow = Case("", "zoo.vgg", (2, 3, 32, 35), {"depth": 16, "filters": (2, 3, 4, 4, 4), "hidden": 6})
    assert set(in_numpy(plan(narrow.symbol(), narrow.shapes, verify=False, **SGD))) <= {
        "_convolution_activated", "_convolution_backward_data", "_convolution_backward_weight"}

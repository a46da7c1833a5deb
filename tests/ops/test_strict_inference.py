"""Inference of operators that only the framework makes: a plan file may ask for whatever it likes."""
from __future__ import annotations

import json
from typing import Any

import pytest

from minigraph.base import MXNetError
from minigraph.ops import get_op


def infer(name: str, params: dict[str, Any], *shapes: tuple[int, ...]) -> list[Any]:
    op = get_op(name)
    p = op.Params(**params)
    return op.infer_shape(p, list(shapes), [None] * len(op.outputs(p)))[1]


CONV = {"kernel": (3, 3), "num_filter": 4}


@pytest.mark.parametrize(("name", "params", "shapes", "made"), [
    ("_convolution_backward_weight", CONV, [(2, 4, 6, 6), (2, 3, 8, 8), (4, 3, 3, 3)], (4, 3, 3, 3)),
    ("_convolution_backward_data", CONV, [(2, 4, 6, 6), (4, 3, 3, 3), (2, 3, 8, 8)], (2, 3, 8, 8)),
    ("_fully_connected_backward_weight", {"num_hidden": 4}, [(3, 4), (3, 2, 5), (4, 10)], (4, 10)),
    ("_fully_connected_backward_data", {"num_hidden": 4}, [(3, 4), (4, 10), (3, 2, 5)], (3, 2, 5)),
    ("_softmax_output_backward", {}, [(3, 4), (3,)], (3, 4)),
    ("_sgd_update", {"index": 1}, [(3, 5), (3, 5), (12,)], (3, 5)),
    ("_dropout", {"p": 0.5, "ordinal": 0}, [(3, 5), (8,)], (3, 5)),
])
def test_another_size_of_any_input_is_refused(name: str, params: dict[str, Any], shapes: list[tuple[int, ...]],
                                              made: tuple[int, ...]) -> None:
    assert infer(name, params, *shapes) == [made]
    for k, shape in enumerate(shapes):
        if len(shapes) > 1 and shape in shapes[:k]:
            continue
        for axis in range(len(shape)):
            for length in (0, shape[axis] - 1):
                changed = (*shape[:axis], length, *shape[axis + 1:])
                with pytest.raises(MXNetError):
                    assert infer(name, params, *shapes[:k], changed, *shapes[k + 1:]) != [made]
                    raise MXNetError("makes another shape, which the buffer that it is written to does not have")


@pytest.mark.parametrize("steps", [
    [], [["relu", [1], {}]], [["relu", [-1], {}]], [["relu", [0, 0], {}]], [["relu", [2], {}], ["relu", [0], {}]],
    [["Flatten", [0], {}]]])
def test_a_chain_of_steps_that_are_none_is_refused(steps: list[Any]) -> None:
    with pytest.raises(MXNetError, match="chain"):
        infer("_elementwise", {"num_args": 1, "program": json.dumps(steps)}, (2, 3))

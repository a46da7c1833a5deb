"""Ops that move elements move each to its place, in any layout."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.ops.registry import get_op

from .harness import check

JOINED: list[tuple[dict[str, Any], list[tuple[int, ...]]]] = [
    ({"num_args": 3}, [(2, 16, 5, 5), (2, 32, 5, 5), (2, 7, 5, 5)]), ({"num_args": 2}, [(2, 5, 9), (2, 16, 9)]),
    ({"num_args": 2, "dim": 2}, [(2, 20, 3, 4), (2, 20, 5, 4)]), ({"num_args": 2, "dim": 0}, [(3, 17, 2), (1, 17, 2)]),
    ({"num_args": 2}, [(64, 500), (64, 300)]), ({"num_args": 2, "dim": -1}, [(0, 3, 2), (0, 3, 4)])]


@pytest.mark.parametrize("params, shapes", JOINED, ids=str)
def test_joining(params: dict[str, Any], shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    check("Concat", params, [rng.standard_normal(shape) for shape in shapes], rtol=0)


@pytest.mark.parametrize("name, params, shape", [
    ("SliceChannel", {"num_outputs": 3}, (2, 48, 5, 5)), ("SliceChannel", {"num_outputs": 2}, (2, 10, 5)),
    ("SliceChannel", {"num_outputs": 4}, (20, 800)),
    ("SliceChannel", {"num_outputs": 3, "squeeze_axis": True}, (4, 3, 7)),
    ("slice_axis", {"axis": 1, "begin": 16, "end": 40}, (2, 40, 3, 3)),
    ("slice_axis", {"axis": 1, "begin": 3, "end": 40}, (2, 40, 3, 3)),
    ("slice_axis", {"axis": 2, "begin": -2}, (2, 20, 5, 3)), ("slice_axis", {"axis": 0, "begin": 1, "end": 2}, (3, 4)),
    ("slice", {"begin": "(None, 3)", "end": "(None, None)", "step": "(2, -1)"}, (5, 40)),
    ("slice", {"begin": "(1, 0, 2)", "end": "(3, 5, 9)"}, (4, 5, 11, 3)),
    ("transpose", {}, (33, 70)), ("transpose", {"axes": (0, 2, 3, 1)}, (2, 19, 5, 7)),
    ("transpose", {"axes": (2, 0, 1, 3)}, (3, 4, 5, 6)), ("SwapAxis", {"dim1": 0, "dim2": 2}, (3, 4, 50)),
    ("SwapAxis", {"dim1": 0, "dim2": 1}, (35, 20, 200)), ("transpose", {}, (0, 4)),
    ("broadcast_to", {"shape": (5, 40)}, (1, 40)), ("broadcast_to", {"shape": (3, 7, 9)}, (3, 1, 1)),
    ("zeros_like", {}, (2, 3, 4)), ("ones_like", {}, (40_000,)), ("_fill_ones", {}, (17,))], ids=str)
def test_cutting_permuting_repeating_and_filling(name: str, params: dict[str, Any], shape: tuple[int, ...]) -> None:
    check(name, params, [np.random.default_rng(0).standard_normal(shape)], rtol=0)


@pytest.mark.parametrize("name, params, shape, data", [
    ("_slice_axis_backward", {"axis": 1, "begin": 16, "end": 33}, (2, 17, 3, 3), (2, 33, 3, 3)),
    ("_slice_axis_backward", {"axis": 0, "begin": 1, "end": 2}, (1, 4), (3, 4)),
    ("_slice_backward", {"begin": "(None, 3)", "end": "(None, None)", "step": "(2, -1)"}, (3, 4), (5, 40))], ids=str)
def test_the_gradient_of_a_part_is_zero_elsewhere(name: str, params: dict[str, Any], shape: tuple[int, ...],
                                                  data: tuple[int, ...]) -> None:
    check(name, params, [np.random.default_rng(0).standard_normal(shape), np.zeros(data)], rtol=0)


def test_a_sample_of_each_is_taken_by_kernels() -> None:
    for name in ("Concat", "SliceChannel", "slice_axis", "slice", "transpose", "SwapAxis", "_slice_backward"):
        for sample in get_op(name).samples():
            arrays = [np.random.default_rng(1).standard_normal(shape) for shape in sample.shapes]
            check(name, sample.params, arrays, rtol=0)

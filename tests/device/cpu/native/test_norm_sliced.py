"""Batch normalisation's kernels in stages, and stages in slices of the batch, give the bits of those in one piece."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu.native.call import algorithms, native_op
from minigraph.device.cpu.native.layout import BLOCKED, Layouts
from minigraph.ops.registry import get_op
from tests.ops.harness import EagerBuilder, infer, parsed
from tests.ops.test_slices import run_slices

from .harness import run, threads
from .test_norm import FOLLOWED, backward_arrays

SHAPES = [((140, 5, 8, 9), 1, 128), ((40, 32, 17, 16), 1, 16), ((300, 19), 1, 128), ((17, 3, 80, 81), 1, 8),
          ((130, 7, 5, 9), -1, 128)]
"""Shapes, channel axes, and rows of chunks."""
Run = Callable[[str, Any, list[np.ndarray], bool], list[np.ndarray]]
"""From an op, typed parameters, inputs, and whether its tensors should be blocked, to outputs."""


def types_of(op: Any, p: Any, arrays: list[np.ndarray]) -> tuple[list[TensorType], list[TensorType]]:
    return [TensorType(a.shape, a.dtype) for a in arrays], infer(op, p, arrays)


def offers(name: str, p: Any, arrays: list[np.ndarray]) -> dict[bool, Layouts]:
    """The layouts that kernels take, by whether they are blocked."""
    native = native_op(name)
    assert native is not None
    return {BLOCKED in each.ins: each for each in native.layouts(p, *types_of(get_op(name), p, arrays))}


def layouts_for(name: str, p: Any, arrays: list[np.ndarray], blocked: bool) -> Layouts:
    found = offers(name, p, arrays)
    return found[blocked and BLOCKED in found.get(True, found[False]).ins]


def as_it_is(name: str, p: Any, arrays: list[np.ndarray], blocked: bool) -> list[np.ndarray]:
    """By the kernels, whole."""
    return run(name, vars(p), arrays, layouts_for(name, p, arrays, blocked))


def by_slices(length: int, in_place: bool) -> Run:
    """By the kernels, in slices where the op may be cut."""
    def one(name: str, p: Any, arrays: list[np.ndarray], blocked: bool) -> list[np.ndarray]:
        op = get_op(name)
        form = op.sliced(p, *types_of(op, p, arrays))

        def execute(each: Any, own: Any, ins: list[np.ndarray]) -> list[np.ndarray]:
            share = [pair for pair in each.inplace(own) if in_place and each.name.endswith("resume")]
            return run(each.name, vars(own), ins, layouts_for(each.name, own, ins, blocked), share)
        if form is None or not any(form.ins):
            return as_it_is(name, p, arrays, blocked)
        return run_slices(name, p, arrays, form, length, execute)
    return one


class StagesBuilder(EagerBuilder):
    """Runs the nodes it is given."""

    def __init__(self, run_node: Run, blocked: bool) -> None:
        super().__init__()
        self._run, self._blocked = run_node, blocked

    def node(self, op: str, inputs: Any, /, **params: Any) -> tuple[int, ...]:
        arrays = [self.values[e] for e in inputs]
        return tuple(self.add(a) for a in self._run(op, parsed(get_op(op), params), arrays, self._blocked))


def stages(name: str, params: dict[str, Any], arrays: list[np.ndarray], run_node: Run, blocked: bool,
           ) -> list[np.ndarray]:
    op, b = get_op(name), StagesBuilder(run_node, blocked)
    return [b.values[e] for e in op.stages(b, parsed(op, params), [b.add(a) for a in arrays])]


@pytest.mark.parametrize("followed", FOLLOWED, ids=str)
@pytest.mark.parametrize(("shape", "axis", "length"), SHAPES, ids=str)
def test_stages_in_slices_have_the_bits_of_the_whole(shape: tuple[int, ...], axis: int, length: int,
                                                     followed: dict[str, Any]) -> None:
    params = {"axis": axis, "fix_gamma": False, **followed}
    backward = backward_arrays(params, shape, axis)
    rng = np.random.default_rng(5)
    beta, gamma = rng.uniform(0.5, 1, (2, shape[axis])).astype(np.float32)
    addend = [rng.standard_normal(shape).astype(np.float32)] * bool(followed.get("addend"))
    for name, arrays in (("_batchnorm_train", [backward[1], gamma, beta, *addend]), ("_batchnorm_backward", backward)):
        p = parsed(get_op(name), params)
        assert algorithms(get_op(name), p, *types_of(get_op(name), p, arrays))[0].chunk_rows == length < shape[0]
        for blocked in offers(name, p, arrays):
            with threads(1):
                whole = as_it_is(name, p, arrays, blocked)
            with threads(2):
                for run_node in (as_it_is, by_slices(length, in_place=False), by_slices(2 * length, in_place=True)):
                    for k, (out, wanted) in enumerate(zip(stages(name, params, arrays, run_node, blocked), whole,
                                                          strict=True)):
                        assert out.tobytes() == wanted.tobytes(), (name, blocked, k)


def test_an_empty_batch_in_stages_has_no_mean_and_no_variance() -> None:
    vector = np.ones(3, np.float32)
    found = stages("_batchnorm_train", {}, [np.empty((0, 3, 2, 2), np.float32), vector, vector], as_it_is, False)
    assert not found[1].any() and not found[2].any()


def test_a_slice_that_ends_inside_a_chunk_is_seen_in_the_sums() -> None:
    """Were chunks no part of the definition, the bits above could not differ."""
    data = (1 + np.random.default_rng(0).standard_normal(SHAPES[1][0])).astype(np.float32)
    p = parsed(get_op("_batchnorm_moments"), {})
    whole, = as_it_is("_batchnorm_moments", p, [data], False)
    found = {length: by_slices(length, in_place=True)("_batchnorm_moments", p, [data], False)[0]
             for length in (SHAPES[1][2], SHAPES[1][2] - 3)}
    np.testing.assert_allclose(found[SHAPES[1][2] - 3], whole, rtol=1e-6)
    assert [np.array_equal(each, whole) for each in found.values()] == [True, False]


def test_running_moments_are_weighted_by_the_rows_they_are_of() -> None:
    data = np.random.default_rng(0).standard_normal(SHAPES[1][0]).astype(np.float32)
    op = get_op("_batchnorm_moments_resume")
    before, = as_it_is("_batchnorm_moments", parsed(get_op("_batchnorm_moments"), {}), [data[:32]], False)
    right, wrong = (run(op.name, {"rows_before": rows}, [data[32:], before])[0] for rows in (32, 16))
    exact = data.astype(np.float64)
    np.testing.assert_allclose(right[0], exact.mean(axis=(0, 2, 3)), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(right[1], exact.var(axis=(0, 2, 3)) * exact[:, 0].size, rtol=1e-6)
    assert not np.allclose(wrong[0], right[0], rtol=1e-5)

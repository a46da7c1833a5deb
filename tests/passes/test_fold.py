"""Folding: normalisations go into the weights before them in evaluation, when asked for."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.planning import plan

SHAPES = {"data": (2, 3, 7, 6)}


def network(no_bias: bool = False, fix_gamma: bool = False) -> mx.sym.Symbol:
    body = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, no_bias=no_bias, name="conv")
    body = mx.sym.Activation(mx.sym.BatchNorm(body, fix_gamma=fix_gamma, name="bn"), act_type="relu", name="relu")
    body = mx.sym.FullyConnected(body, num_hidden=5, no_bias=no_bias, name="fc")
    return mx.sym.BatchNorm(body, fix_gamma=fix_gamma, name="bn2")


def bound(symbol: mx.sym.Symbol, **options: Any) -> Any:
    executor = symbol.simple_bind(mx.cpu(), poison=True, **options, **SHAPES)
    rng = np.random.default_rng(7)
    for array in (*executor.arg_arrays, *executor.aux_arrays):
        array[:] = rng.uniform(0.5, 1.5, array.shape)
    return executor


@pytest.mark.parametrize("no_bias", [False, True])
@pytest.mark.parametrize("fix_gamma", [False, True])
def test_folded_evaluation_differs_by_rounding_alone(no_bias, fix_gamma):
    apart, folded = (bound(network(no_bias, fix_gamma), fold=fold) for fold in (False, True))
    expected = apart.forward()[0].asnumpy()
    np.testing.assert_allclose(folded.forward()[0].asnumpy(), expected, 2e-5, 1e-5)
    ops = folded.plan.instructions.op
    assert ops.count("_batchnorm_fold") == 2 and "_batchnorm_inference" not in ops


def test_parameters_that_change_between_runs_are_folded_anew():
    executor = bound(network(), fold=True)
    before = executor.forward()[0].asnumpy()
    executor.aux_dict["bn_moving_mean"][:] = 9.0
    assert not np.allclose(executor.forward()[0].asnumpy(), before)


def test_nothing_is_folded_unasked_or_in_training():
    assert "_batchnorm_fold" not in plan(network(), SHAPES, program="eval").instructions.op
    assert "_batchnorm_fold" not in plan(network(), SHAPES, program="train", fold=True).instructions.op


def test_a_value_that_others_read_keeps_its_layer():
    conv = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    both = mx.sym.Group([mx.sym.BatchNorm(conv, name="bn"), mx.sym.tanh(conv)])
    assert "_batchnorm_fold" not in plan(both, SHAPES, program="eval", fold=True).instructions.op
    last = mx.sym.BatchNorm(conv, axis=2, name="bn")
    assert "_batchnorm_fold" not in plan(last, SHAPES, program="eval", fold=True).instructions.op

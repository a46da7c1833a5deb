"""Good plans with one type, operand, parameter or place changed at random: what the verifier lets pass runs, on real
kernels, and gives the same bits unless the change is one that another network could have asked for."""
from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.binding import device_of
from minigraph.inspection import Rehearsal
from minigraph.plan.plan import Plan
from minigraph.plan.verify import VerificationError, verify
from minigraph.planning import plan

from .build import corrupt
from .mapping import mapped, remapping

DTYPES = ("int32", "float64", "uint8", "int8", "float16", "bool")
CHANGES = 60
"""Of each network."""


@cache
def networks() -> tuple[Plan, ...]:
    """Steps of small networks: convolutions in blocks with an encoding and fused chains, and dense layers."""
    body = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=20, name="conv")
    body = mx.sym.Activation(mx.sym.BatchNorm(body, name="bn"), act_type="relu")
    body = mx.sym.Dropout(mx.sym.Pooling(body, kernel=(2, 2), stride=(2, 2), pool_type="max"), p=0.3)
    images = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, num_hidden=5, name="fc"), name="softmax")
    rows = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="a")
    rows = mx.sym.tanh(rows) * mx.sym.sigmoid(mx.sym.FullyConnected(rows, num_hidden=8, name="b"))
    rows = mx.sym.LinearRegressionOutput(mx.sym.LayerNorm(mx.sym.Concat(rows, rows, dim=1), name="ln"), name="loss")
    return (plan(images, {"data": (4, 3, 8, 8)}, "sgd", optimizer_params={"momentum": 0.9}),
            plan(rows, {"data": (6, 5)}, "adam"))


class Group:
    """What a rehearsal asks of a group: a device, and parameters, which are random."""

    def __init__(self) -> None:
        self.device = device_of(mx.cpu())
        self.layout = mx.memory.layout.PersistentLayout()


def outputs(made: Plan) -> dict[str, np.ndarray]:
    """What a step of a plan gives, from parameters and inputs that depend on their sizes alone."""
    chance = np.random.default_rng(0)

    def value(b: int) -> np.ndarray:
        return chance.uniform(0.1, 1.0, made.buffers.shape[b]).astype(made.buffers.dtype[b])

    run = Rehearsal(Group(), made, whole=True)  # type: ignore[arg-type]
    try:
        for tensor in made.persistent:
            run.set(tensor.first, value(tensor.first))
        run.feed({name: np.zeros(made.buffers.shape[b]) if name == mx.passes.compilation.CONTROL else value(b)
                  for name, b in made.inputs.items()})
        for part in made.ranges:
            run.program.run(part)
        return {name: np.array(run.value(b)) for name, b in made.outputs}
    finally:
        run.close()


@cache
def paged() -> tuple[Plan, ...]:
    """The step of convolutions over transient pages in other orders, with mapped arenas."""
    return tuple(mapped(networks()[0], seed, device_of(mx.cpu()).page_bytes) for seed in (1, 2))


def changed_type(made: Plan, chance: random.Random) -> Plan:
    """A buffer of another shape, dtype or layout."""
    b = chance.randrange(len(made.buffers))
    shape = list(made.buffers.shape[b])
    axis = chance.randrange(len(shape))
    what = chance.randrange(4)
    if what == 0:
        return corrupt(made, b_dtype=(b, np.dtype(chance.choice(DTYPES))))
    if what == 1:
        return corrupt(made, b_layout=(b, chance.choice(("", "nChw16c", "transposed"))))
    shape[axis] = chance.choice((0, 1, shape[axis] - 1, shape[axis] + 1, 2 * shape[axis]))
    return corrupt(made, b_shape=(b, tuple(shape if what == 2 else made.buffers.shape[b][::-1])))


def changed_operands(made: Plan, chance: random.Random) -> Plan:
    """An instruction that reads something else, in another order, with other scratch, or by another algorithm."""
    code = made.instructions
    i = chance.randrange(len(made))
    reads = list(code.reads[i])
    what = chance.randrange(4)
    if what == 0:
        return corrupt(made, i_workspace=(i, chance.choice((-1, chance.randrange(len(made.buffers))))))
    if what == 1:
        return corrupt(made, i_algorithm=(i, chance.choice(code.algorithm)))
    if what == 2:
        chance.shuffle(reads)
    else:
        reads[chance.randrange(len(reads))] = chance.randrange(len(made.buffers))
    return corrupt(made, i_reads=(i, tuple(reads)))


def changed_params(made: Plan, chance: random.Random) -> Plan:
    """An instruction with one parameter changed."""
    i = chance.choice([i for i, params in enumerate(made.instructions.params) if fields(params)])
    params = made.instructions.params[i]
    field = chance.choice(fields(params))
    return corrupt(made, i_params=(i, replace(params, **{field.name: other(getattr(params, field.name), chance)})))


def other(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((0, -1, value + 1, 2 * value, 10**6, 2**62))
    if isinstance(value, float):
        return chance.choice((0.0, -1.0, 2 * value))
    if isinstance(value, tuple) and value:
        return (*value[:-1], chance.choice((0, -1, 2, 7, 10**6)))
    return value


def remapped(made: Plan, chance: random.Random) -> Plan:
    """A plan with mapped arenas in which one of them, or a buffer's place, is another."""
    return remapping(made, chance.randrange(2**32))


def accepted(change: Any, seed: int, plans: Sequence[Plan] = ()) -> Iterator[tuple[Plan, Plan]]:
    """Changed plans that the verifier lets pass, each with the good one."""
    device = device_of(mx.cpu())
    for number, made in enumerate(plans or networks()):
        chance = random.Random(f"{seed} {number}")
        for _ in range(CHANGES):
            plan_ = change(made, chance)
            try:
                verify(plan_, device.algorithms)
            except VerificationError:
                continue
            yield made, plan_


def test_plans_with_a_changed_type_are_refused_or_give_the_same_bits() -> None:
    seen = 0
    for made, plan_ in accepted(changed_type, 1):
        if plan_ != made and not is_end(made, plan_):
            seen += 1
            for name, value in outputs(plan_).items():
                np.testing.assert_array_equal(value, outputs(made)[name])
    assert seen < CHANGES / 10


def is_end(made: Plan, changed: Plan) -> bool:
    """Whether what is changed is given or taken by the outside, which may do so in any type that fits."""
    ends = {*made.inputs.values(), *(out.buffer for out in made.outputs), *(t.first for t in made.persistent)}
    return any(made.buffer(b) != changed.buffer(b) for b in ends)


@pytest.mark.parametrize("change", [changed_operands, changed_params])
def test_plans_with_changed_operands_or_params_are_refused_or_run(change: Any) -> None:
    good = [outputs(made) for made in networks()]
    ran = 0
    for made, plan_ in accepted(change, 2):
        try:
            got = outputs(plan_)
        except mx.base.MXNetError as error:
            assert "outside" in str(error) or "must" in str(error), str(error)
            continue
        ran += 1
        expected = good[networks().index(made)]
        assert {name: value.shape for name, value in got.items()} == {n: v.shape for n, v in expected.items()}
    assert ran > CHANGES / 20


@pytest.mark.skipif(not device_of(mx.cpu()).page_bytes, reason="this system maps no pages twice")
def test_plans_with_changed_extents_pages_or_places_are_refused_or_give_the_same_bits() -> None:
    good, ran = outputs(networks()[0]), 0
    for made, plan_ in accepted(remapped, 3, paged()):
        assert made.planned_bytes >= networks()[0].planned_bytes
        try:
            got = outputs(plan_)
        except mx.base.MXNetError as error:
            assert "page" in str(error), str(error)
            continue
        ran += plan_ != made
        for name, value in got.items():
            np.testing.assert_array_equal(value, good[name])
    assert CHANGES / 10 < ran < CHANGES

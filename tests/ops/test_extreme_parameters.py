"""Parameters far outside of what makes sense, for every operator that scripts can name."""
from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.ops import get_op, names

from .harness import parsed
from .test_registry import bound

EXTREME = {"int": (-1, 0, -10**6, 2**31, 2**63), "float": (float("nan"), float("inf"), -1.0, 1e30),
           "shape": ((), (0,), (-1, -1), (1,) * 7, (3, 3, 3), (2**62, 2))}
"""Values by a parameter's kind."""
COUNTS = {("RNN", "num_layers"), ("SliceChannel", "num_outputs"), ("Deconvolution", "stride")}
"""Parameters of which a large value is right and only takes time and memory: so many tensors, or elements."""
READ_AT_RUN = ("outside [0, ", "the host has no ")
"""What only a run can tell: indices out of range, and memory that is not there."""
SPACES = ("_contrib_", "_image_", "_linalg_")
"""What begins the names of operators that scripts name as mx.sym.contrib.NAME and so on."""
NAMED = [name for name in names() if (not name.startswith("_") or name.startswith(SPACES)) and get_op(name).samples()]


@pytest.mark.parametrize("name", NAMED)
def test_an_extreme_parameter_gives_a_value_or_is_refused_before_anything_runs(name: str) -> None:
    sample = get_op(name).samples()[0]
    for field in dataclasses.fields(type(parsed(get_op(name), sample.params))):
        if field.name == get_op(name).count_param():
            continue
        for value in EXTREME.get(field.metadata["kind"], ()):
            if (name, field.name) in COUNTS and np.any(np.greater(value, 0)):
                continue
            try:
                executor, _, _ = bound(name, dataclasses.replace(sample, params={**sample.params, field.name: value}),
                                       np.float32, "write")
            except MXNetError:
                continue
            try:
                with np.errstate(all="ignore"):
                    executor.forward(is_train=True)
            except MXNetError as error:
                assert any(text in str(error) for text in READ_AT_RUN), (field.name, value)


# -- planned, or refused, without counting it out ----------------------------------------------------------------
PATIENCE = 20
"""Seconds of processor time after which a plan counts as never ending; none takes more than about one."""


def absurd(kind: str, given: Any) -> list[Any]:
    """Legal values of a parameter of a kind that are absurd in size."""
    if kind == "int":
        return [10**6, 2**31, 2**62]
    if kind != "shape":
        return []
    axes = len(given or ()) or 2
    rest = tuple(given or ())[1:] or (1,) * (axes - 1)
    return [(10**6,) * axes, (10**6, *rest), (*rest, 10**6), (2**31, *rest), (2**62,) * axes]


@contextlib.contextmanager
def patience() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise AssertionError(f"still planning after {PATIENCE} seconds of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def planned(name: str, params: dict[str, Any], shapes: Any) -> None:
    data = {f"i{k}": shape for k, shape in enumerate(shapes)}
    made = getattr(mx.sym, name)(*map(mx.sym.Variable, data), name="n", **params)
    loss = mx.sym.MakeLoss(mx.sym.sum(made[0]))
    mx.plan(loss, data, program="train" if data else "eval", grad_req="null")


@pytest.mark.parametrize("name", NAMED)
def test_an_absurd_size_is_planned_or_refused_in_little_time(name: str) -> None:
    sample = get_op(name).samples()[0]
    known = parsed(get_op(name), sample.params)
    for field in dataclasses.fields(known):
        for value in absurd(field.metadata["kind"], getattr(known, field.name)):
            with patience(), contextlib.suppress(MXNetError):
                planned(name, {**sample.params, field.name: value}, sample.shapes)


@pytest.mark.parametrize(("name", "params", "told"), [
    ("Convolution", {"pad": (10**6, 10**6)}, r"Convolution n: a convolution over an image of \(2000\d+, .* smaller"),
    ("RNN", {"num_layers": 2**31}, "num_layers 2147483648 is more than 4096"),
    ("Concat", {"num_args": 2**31}, "2147483648 tensors arg0, arg1, ... of one operator; 262144 are the most"),
    ("SliceChannel", {"num_outputs": 2**62}, "tensors output0, output1, ... of one operator")])
def test_what_would_be_counted_out_is_refused_with_what_is_the_most(name: str, params: dict[str, Any],
                                                                               told: str) -> None:
    sample = get_op(name).samples()[0]
    with patience(), pytest.raises(MXNetError, match=told):
        planned(name, {**sample.params, **params}, sample.shapes)

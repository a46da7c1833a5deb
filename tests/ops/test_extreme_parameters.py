"""Parameters far outside of what makes sense, for every operator that scripts can name."""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest

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
NAMED = [name for name in names() if not name.startswith("_") and get_op(name).samples()]


@pytest.mark.parametrize("name", NAMED)
def test_an_extreme_parameter_gives_a_value_or_is_refused_before_anything_runs(name: str) -> None:
    sample = get_op(name).samples()[0]
    for field in dataclasses.fields(type(parsed(get_op(name), sample.params))):
        for value in EXTREME.get(field.metadata["kind"], ()):
            if field.name == "num_args" or ((name, field.name) in COUNTS and np.any(np.greater(value, 0))):
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

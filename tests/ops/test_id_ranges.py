"""What operators say of the ids they take is what `compute` takes and refuses, word for word."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError, TensorType
from minigraph.ops.indexing import IdRange
from minigraph.ops.op import Op, Sample
from minigraph.ops.registry import get_op, names

from .harness import execute, infer, parsed, sample_dtypes


def arrays_of(op: Op, p: Any, sample: Sample) -> list[np.ndarray]:
    """Inputs of a sample."""
    draw = np.random.default_rng(1)
    kinds = sample_dtypes(op, p, np.float32)
    return [draw.integers(0, sample.integer[name], shape).astype(kind) if name in sample.integer
            else draw.uniform(sample.low, sample.high, shape).astype(kind)
            for name, shape, kind in zip(op.inputs(p), sample.shapes, kinds, strict=True)]


def ranges(op: Op, p: Any, arrays: list[np.ndarray]) -> list[IdRange]:
    return list(op.id_ranges(p, [TensorType(a.shape, a.dtype) for a in arrays], infer(op, p, arrays)))


def with_ids() -> list[Any]:
    """(op, sample, number of a range) of every range of every sample."""
    found = []
    for name in names():
        op = get_op(name)
        for i, sample in enumerate(op.samples()):
            if type(op).id_ranges is not Op.id_ranges:
                p = parsed(op, sample.params)
                count = len(ranges(op, p, arrays_of(op, p, sample)))
                found += [pytest.param(op, sample, k, id=f"{name}-{i}-{k}") for k in range(count)]
    return found


@pytest.mark.parametrize(("op", "sample", "k"), with_ids())
@pytest.mark.parametrize("bad", [-1, "bound", 2147483648, np.nan, -0.5])
def test_an_id_outside_the_declared_range_raises_the_declared_error(op: Op, sample: Sample, k: int, bad: Any) -> None:
    p = parsed(op, sample.params)
    arrays = arrays_of(op, p, sample)
    wanted = ranges(op, p, arrays)[k]
    at = int(np.prod(wanted.shape)) - 1
    ids = arrays[wanted.operand].reshape(-1)
    value = np.float32(wanted.bound if bad == "bound" else bad)
    if value == wanted.ignored:
        pytest.skip("an ignored id is in range")
    ids[wanted.start:wanted.start + at + 1] = wanted.least
    execute(op, p, arrays)
    ids[wanted.start + at] = wanted.bound - 0.5
    execute(op, p, arrays)
    ids[wanted.start + at] = value
    with pytest.raises(MXNetError) as raised:
        execute(op, p, arrays)
    assert str(raised.value) == str(wanted.error(value, at))


def test_every_operator_that_refuses_an_id_declares_its_range() -> None:
    declared, refusing = set(), set()
    for name in names():
        op = get_op(name)
        for sample in op.samples() if type(op).expand is Op.expand else ():
            p = parsed(op, sample.params)
            for operand, what in enumerate(op.inputs(p) if sample.integer else ()):
                arrays = arrays_of(op, p, sample)
                if what in sample.integer and arrays[operand].size and arrays[operand].dtype.kind == "f":
                    arrays[operand].reshape(-1)[-1] = np.nan
                    declared |= {name} if ranges(op, p, arrays) else set()
                    try:
                        with np.errstate(all="ignore"):
                            execute(op, p, arrays)
                    except MXNetError as error:
                        refusing |= {name} if "is outside [" in str(error) else set()
    assert refusing == declared and len(declared) >= 12, refusing ^ declared


def test_an_ignored_label_is_in_range_and_a_slice_tells_the_row_of_the_whole() -> None:
    op = get_op("_softmax_output_backward")
    p = op.slice_params(parsed(op, {"use_ignore": True, "ignore_label": -1.0}), 6, 9, [])
    arrays = [np.full((3, 4), 0.25, np.float32), np.array([1, -1, 3], np.float32)]
    wanted, = ranges(op, p, arrays)
    execute(op, p, arrays)
    arrays[1][2] = 4
    with pytest.raises(MXNetError, match=r"4.0 at position \(8,\) is outside \[0, 4\) and is not the ignored -1$") as e:
        execute(op, p, arrays)
    assert str(e.value) == str(wanted.error(np.float32(4), 2))
    assert ranges(op, p, [arrays[0], arrays[0]]) == []

"""Operators on slices of the batch: cut at multiples of their chunks, they have the bits of the whole."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.ops import get_op, names
from minigraph.ops.batch_rows import row_ranges, shape_of_rows
from minigraph.ops.control import control_size, set_key
from minigraph.ops.op import Sliced

from .harness import EagerBuilder, execute, infer, parsed
from .test_extended_memory import CASES as WIDER
from .test_extended_memory import Case, inputs

Execute = Callable[..., list[np.ndarray]]
"""From an op, typed parameters and inputs to outputs."""
N = 300
"""A batch of several chunks of any length."""
IMAGES, MANY, SMALL = (20, 6, 24, 24), (150, 6, 24, 24), (N, 4, 5, 5)
CONV: dict[str, Any] = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 7}
WEIGHT = (7, 6, 3, 3)
VECTOR = (6,)
BACKWARD: list[tuple[dict[str, Any], list[Any]]] = [
    ({}, []), ({"act_type": "relu"}, [VECTOR, VECTOR]), ({"act_type": "tanh"}, [MANY]),
    ({"act_type": "tanh", "addend": True}, [MANY])]
"""What follows a normalisation, and what its gradient's stages read for it."""
CASES: list[Case] = [case for case in WIDER if case[2]] + [
    ("Convolution", CONV, [IMAGES, WEIGHT, (7,)]), ("Convolution", CONV, [SMALL, (7, 4, 3, 3), (7,)]),
    ("Convolution", {**CONV, "stride": (2, 2), "num_filter": 6, "num_group": 6}, [IMAGES, (6, 1, 3, 3), (6,)]),
    ("_convolution_backward_data", CONV, [(20, 7, 24, 24), WEIGHT, IMAGES]),
    ("_convolution_backward_data", {**CONV, "stride": (2, 2)}, [(20, 7, 12, 12), WEIGHT, IMAGES]),
    ("_convolution_backward_weight", CONV, [(20, 7, 24, 24), IMAGES, WEIGHT]),
    ("_convolution_backward_weight", CONV, [(N, 7, 5, 5), SMALL, (7, 4, 3, 3)]),
    ("_convolution_backward_weight", {**CONV, "kernel": (1, 1), "pad": ()}, [(N, 7, 5, 5), SMALL, (7, 4, 1, 1)]),
    ("_convolution_backward_bias", {}, [MANY]), ("_convolution_backward_bias", {}, [SMALL]),
    ("FullyConnected", {"num_hidden": 9}, [SMALL, (9, 100), (9,)]),
    ("_fully_connected_backward_data", {"num_hidden": 9}, [(N, 9), (9, 100), SMALL]),
    ("_fully_connected_backward_weight", {"num_hidden": 9}, [(N, 9), SMALL, (9, 100)]),
    ("_fully_connected_backward_bias", {}, [(N, 9)]),
    *[("Pooling", {"kernel": (3, 3), "stride": (2, 2), "pool_type": t}, [IMAGES]) for t in ("max", "avg")],
    ("Pooling", {"global_pool": True, "pool_type": "avg"}, [SMALL]),
    ("_pooling_backward", {"global_pool": True, "pool_type": "avg"}, [(N, 4, 1, 1), SMALL]),
    ("Activation", {"act_type": "softrelu"}, [IMAGES]), ("_activation_backward", {"act_type": "tanh"}, [IMAGES] * 2),
    ("add_n", {"num_args": 3}, [IMAGES] * 3), ("_mul_scalar", {"scalar": 1.5}, [IMAGES]),
    ("_dropout", {"p": 0.4, "ordinal": 3}, [(N, 7), (control_size(0),)]),
    ("_dropout_backward", {"p": 0.4, "ordinal": 3}, [IMAGES, (control_size(0),)]),
    ("softmax", {}, [(N, 10)]), ("_softmax_backward", {}, [(N, 10)] * 2), ("SoftmaxOutput", {}, [(N, 10), ((N,), 10)]),
    *[("_softmax_output_backward", {"normalization": n}, [(N, 10), ((N,), 10)]) for n in ("null", "batch")],
    ("_softmax_output_backward", {"normalization": "batch", "multi_output": True}, [(N, 10, 6), ((N, 6), 10)]),
    ("LinearRegressionOutput", {}, [(N, 10)] * 2), ("_regression_backward", {"kind": "difference"}, [(N, 10)] * 2),
    ("Concat", {"num_args": 2}, [IMAGES, (20, 3, 24, 24)]), ("slice_axis", {"axis": 1, "begin": 1, "end": 4}, [IMAGES]),
    ("_slice_axis_backward", {"axis": 1, "begin": 1, "end": 4}, [(20, 3, 24, 24), IMAGES]),
    ("SliceChannel", {"num_outputs": 3}, [IMAGES]), ("Flatten", {}, [IMAGES]),
    ("Reshape", {"shape": (20, 3, -1)}, [IMAGES]), ("_reshape_like", {}, [(20, 3456), IMAGES]),
    ("LayerNorm", {}, [(N, 40), (40,), (40,)]),
    ("_batchnorm_inference", {}, [IMAGES, VECTOR, VECTOR, VECTOR, VECTOR]),
    ("_batchnorm_moments", {}, [MANY]), ("_batchnorm_moments", {}, [(N, 6)]),
    ("_batchnorm_apply", {"act_type": "relu", "addend": True}, [IMAGES, VECTOR, VECTOR, IMAGES, *[VECTOR] * 3]),
    *[("_batchnorm_backward_sums", {"count": 11520, **p}, [MANY, MANY, VECTOR, VECTOR, VECTOR, *saved])
      for p, saved in BACKWARD],
    *[("_batchnorm_backward_data", {"count": 11520, **p}, [MANY, MANY, VECTOR, VECTOR, VECTOR, *saved, (2, 6)])
      for p, saved in BACKWARD if not p.get("addend")],
    ("_batchnorm_backward_sums", {}, [(N, 6), (N, 6), VECTOR, VECTOR, VECTOR]),
]


def given(case: Case) -> tuple[Any, list[np.ndarray]]:
    """Typed parameters, and inputs of the dtypes that the op takes."""
    op = get_op(case[0])
    p, arrays = parsed(op, case[1]), inputs(case)
    for k, name in enumerate(op.inputs(p)):
        if name == "key":
            set_key(arrays[k], 7, 1)
    dtypes, _ = op.infer_dtype(p, [np.dtype(np.float32) if k == 0 else None for k in range(len(arrays))],
                               [None] * len(op.outputs(p)))
    return p, [a.astype(t) for a, t in zip(arrays, dtypes, strict=True)]


def types(arrays: list[np.ndarray]) -> list[TensorType]:
    return [TensorType(a.shape, a.dtype) for a in arrays]


def form_of(case: Case) -> Sliced | None:
    op, (p, arrays) = get_op(case[0]), given(case)
    return op.sliced(p, types(arrays), infer(op, p, arrays))


def in_slices(case: Case, form: Sliced, length: int, execute: Execute = execute) -> list[np.ndarray]:
    """The outputs put together from slices, as the pass `slice batch` has them run."""
    return run_slices(case[0], *given(case), form, length, execute)


def run_slices(name: str, p: Any, arrays: list[np.ndarray], form: Sliced, length: int,
               execute: Execute = execute) -> list[np.ndarray]:
    """The same with typed parameters and inputs that are given."""
    batch = arrays[form.ins.index(True)].shape[0]
    parts: list[list[np.ndarray]] = [[] for _ in form.outs]
    for first, rows in row_ranges(batch, length):
        op = get_op(form.resume if first and form.resume else name)
        ins = [a[first:first + rows] if cut else a for a, cut in zip(arrays, form.ins, strict=True)]
        outs = [TensorType(shape_of_rows(t.shape, rows) if cut else t.shape, t.dtype)
                for t, cut in zip(infer(get_op(name), p, arrays), form.outs, strict=True)]
        if first and form.resume:
            ins += [part[-1] for part, cut in zip(parts, form.outs, strict=True) if not cut]
        own = get_op(name).slice_params(p, first, batch, outs)
        for part, out in zip(parts, execute(op, own, ins), strict=True):
            part.append(out)
    return [np.concatenate(part) if cut else part[-1] for part, cut in zip(parts, form.outs, strict=True)]


SLICED = [pytest.param(case, id=f"{case[0]}-{i}") for i, case in enumerate(CASES) if form_of(case) is not None]


@pytest.mark.parametrize("case", SLICED)
def test_slices_of_the_batch_have_the_bits_of_the_whole(case: Case) -> None:
    op, form = get_op(case[0]), form_of(case)
    p, arrays = given(case)
    assert form is not None
    whole = execute(op, p, arrays)
    chunk = op.algorithms(p, types(arrays), types(whole))[0].chunk_rows
    batch = arrays[form.ins.index(True)].shape[0]
    assert chunk < batch, "the case is too small to be cut"
    for length in {chunk, chunk * max(1, batch // 2 // chunk)}:
        for out, wanted in zip(in_slices(case, form, length), whole, strict=True):
            assert out.tobytes() == wanted.tobytes()


def test_every_operator_that_sums_over_slices_is_tried_here() -> None:
    tried = {case.values[0][0] for case in SLICED}
    resumed = {name for name in names() if name.endswith("_resume")}
    assert {form.resume for case in CASES if (form := form_of(case)) and form.resume} == resumed
    assert {"Convolution", "FullyConnected", "Pooling", "Concat", "_dropout", "LRN"} <= tried


STAGED: list[tuple[dict[str, Any], bool]] = [
    ({}, False), ({"act_type": "relu"}, False), ({"act_type": "relu", "addend": True}, True)]
"""What follows a normalisation, and whether its gradient reads the output."""


@pytest.mark.parametrize(("follows", "reads_output"), STAGED)
def test_stages_of_batch_normalisation_have_its_bits(follows: dict[str, Any], reads_output: bool) -> None:
    rng = np.random.default_rng(2)
    images, grad, more = rng.uniform(-1, 1, (3, 40, 6, 24, 24)).astype(np.float32)
    gamma, beta = rng.uniform(0.5, 1, (2, 6)).astype(np.float32)

    def both(name: str, values: list[np.ndarray]) -> list[np.ndarray]:
        b, op = EagerBuilder(), get_op(name)
        p = parsed(op, {"fix_gamma": False, **follows} if name != "_batchnorm_update_moving" else {})
        whole = execute(op, p, values)
        for entry, wanted in zip(op.stages(b, p, [b.add(v.copy()) for v in values]), whole, strict=True):
            assert b.values[entry].tobytes() == wanted.tobytes(), name
        return whole
    out, mean, var, rest = both("_batchnorm_train", [images, gamma, beta, *[more] * bool(follows.get("addend"))])
    saved = [] if not follows else [out] if reads_output else [beta, rest]
    both("_batchnorm_backward", [grad, images, gamma, mean, var, *saved])
    both("_batchnorm_update_moving", [gamma, beta, mean, var, images])

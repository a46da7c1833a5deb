"""The wider operator set on tensors of megabytes: temporaries stay small."""
from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType, align
from minigraph.ops import get_op
from minigraph.ops.op import Workspace

from .harness import infer, parsed, poisoned

Case = tuple[str, dict[str, Any], list[Any]]
"""(operator, parameters, inputs: a shape, or (shape, bound) of integers)."""
IMAGES, ROWS = (40, 8, 32, 32), (3000, 100)
CASES: list[Case] = [
    ("erf", {}, [ROWS]), ("round", {}, [ROWS]), ("rint", {}, [ROWS]), ("clip", {"a_min": 0.1, "a_max": 0.5}, [ROWS]),
    ("_clip_backward", {"a_min": 0.1, "a_max": 0.5}, [ROWS, ROWS]), ("smooth_l1", {}, [ROWS]), ("sin", {}, [ROWS]),
    ("_function_backward", {"function": "arcsinh"}, [ROWS, ROWS]), ("_mod", {}, [ROWS, ROWS]),
    ("broadcast_mod", {}, [ROWS, (1, 100)]), ("broadcast_greater", {}, [ROWS, (1, 100)]),
    ("broadcast_like", {}, [(3000, 1), ROWS]), ("tile", {"reps": (2, 3)}, [(500, 100)]),
    ("_tile_backward", {"reps": (2, 3)}, [(1000, 300), (500, 100)]),
    ("_repeat_backward", {"repeats": 3, "axis": 0}, [(3000, 100), (1000, 100)]),
    ("reverse", {"axis": (0, 1)}, [ROWS]), ("stack", {"num_args": 2, "axis": 1}, [ROWS, ROWS]),
    ("space_to_depth", {"block_size": 2}, [IMAGES]), ("where", {}, [(ROWS, 2), ROWS, ROWS]),
    ("where", {}, [((3000,), 2), ROWS, ROWS]), ("_where_backward", {"hold": True}, [ROWS, (ROWS, 2)]),
    ("argmax", {"axis": 1}, [ROWS]), ("argmin", {"axis": 0}, [ROWS]), ("argmax", {}, [ROWS]),
    ("gather_nd", {}, [ROWS, ((1, 2000), 3000)]), ("_gather_nd_backward", {}, [(2000, 100), ((1, 2000), 3000), ROWS]),
    ("prod", {"axis": 1}, [ROWS]), ("_prod_backward", {"axis": 1}, [(3000,), ROWS, (3000,)]),
    ("dot", {"transpose_a": True}, [(300, 500), (300, 400)]), ("dot", {}, [(300, 20, 25), (25, 20, 15)]),
    ("_dot_backward_lhs", {"transpose_a": True}, [(500, 400), (300, 400), (300, 500)]),
    ("_dot_backward_rhs", {"transpose_b": True}, [(300, 400), (300, 500), (400, 500)]),
    ("batch_dot", {"transpose_a": True, "transpose_b": True}, [(10, 200, 100), (10, 150, 200)]),
    ("Deconvolution", {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1), "num_filter": 6, "no_bias": False},
     [(20, 8, 16, 16), (8, 6, 4, 4), (6,)]),
    ("LRN", {"nsize": 5}, [IMAGES]), ("_lrn_backward", {"nsize": 5}, [IMAGES] * 3),
    ("InstanceNorm", {}, [IMAGES, (8,), (8,)]),
    ("_instance_norm_backward", {}, [IMAGES, IMAGES, (8,), (40, 8), (40, 8)]),
    ("L2Normalization", {}, [IMAGES]), ("L2Normalization", {"mode": "channel"}, [IMAGES]),
    ("_l2_normalization_backward", {"mode": "channel"}, [IMAGES, IMAGES, (40, 32, 32)]),
    ("Pad", {"mode": "reflect", "pad_width": (0, 0, 0, 0, 3, 3, 3, 3)}, [IMAGES]),
    ("_pad_backward", {"mode": "edge", "pad_width": (0, 0, 0, 0, 3, 3, 3, 3)}, [(40, 8, 38, 38), IMAGES]),
    ("_pad_backward", {"mode": "reflect", "pad_width": (0, 0, 0, 0, 3, 3, 3, 3)}, [(40, 8, 38, 38), IMAGES]),
    ("_upsample", {"scale": 2}, [IMAGES]), ("_upsample_backward", {"scale": 2}, [IMAGES]),
    ("_svm_backward", {}, [ROWS, ((3000,), 100)]),
    ("SequenceMask", {"use_sequence_length": True}, [(50, 64, 100), ((64,), 50)]),
    ("SequenceReverse", {"use_sequence_length": True}, [(50, 64, 100), ((64,), 50)]),
    ("topk", {"k": 5, "ret_typ": "both"}, [ROWS]), ("topk", {"k": 0, "axis": 0, "ret_typ": "value"}, [(9000, 30)]),
    ("topk", {"k": 500, "axis": 0, "ret_typ": "mask"}, [ROWS]),
    ("_topk_backward", {}, [(3000, 5), ((3000, 5), 100), ROWS]),
    ("BilinearSampler", {}, [(6, 8, 64, 64), (6, 2, 60, 60)]),
    ("_bilinear_sampler_backward", {}, [(6, 8, 60, 60), (6, 8, 64, 64), (6, 2, 60, 60)]),
    ("_arange", {"start": 300000}, []), ("_ftrl_update", {"index": 0}, [ROWS] * 4 + [(10,)]),
    ("_rmsprop_centered_update", {"index": 0}, [ROWS] * 5 + [(10,)]),
    ("_nadam_update", {"index": 0}, [ROWS] * 4 + [(10,)]),
    ("gamma", {}, [ROWS]), ("gammaln", {}, [ROWS]), ("_digamma", {}, [ROWS]), ("_fill_nan", {"value": 1.0}, [ROWS]),
    ("_fill_nan_backward", {}, [ROWS, ROWS]), ("_logical_xor", {}, [ROWS, ROWS]), ("logical_not", {}, [ROWS]),
    ("broadcast_logical_or", {}, [ROWS, (1, 100)]), ("_logical_and_scalar", {"scalar": 1.0}, [ROWS]),
    ("diag", {"axis1": 0, "axis2": 2}, [(300, 20, 300)]), ("diag", {}, [(1000,)]),
    ("_diag_backward", {"axis1": 0, "axis2": 2}, [(20, 300), (300, 20, 300)]),
    ("ROIPooling", {"pooled_size": (3, 3), "spatial_scale": 1.0}, [IMAGES, ((20, 5), 32)]),
    ("_contrib_ROIAlign", {"pooled_size": (3, 3), "spatial_scale": 1.0}, [IMAGES, ((20, 5), 32)]),
    ("_roi_align_backward", {"pooled_size": (3, 3), "spatial_scale": 1.0}, [(20, 8, 3, 3), ((20, 5), 32), IMAGES]),
    ("_contrib_ROIAlign", {"pooled_size": (2, 2), "spatial_scale": 1.0, "position_sensitive": True},
     [IMAGES, ((20, 5), 32)]),
    ("im2col", {"kernel": (3, 3), "pad": (1, 1)}, [IMAGES]),
    ("col2im", {"kernel": (3, 3), "pad": (1, 1), "output_size": (32, 32)}, [(4, 72, 1024)]),
    ("Correlation", {"pad_size": 1}, [IMAGES, IMAGES]),
    ("_correlation_backward", {"pad_size": 1, "is_multiply": False}, [(40, 9, 32, 32), IMAGES, IMAGES]),
    ("_solve_triangular", {}, [(200, 200), (200, 300)]), ("_linalg_potrf", {}, [(200, 200)]),
    ("_eliminate", {}, [(2, 100, 100)]), ("_triangle", {}, [(300, 300)]),
    ("erfinv", {}, [ROWS]), ("_np_cumsum", {"axis": 0}, [ROWS]), ("_np_cumsum", {"axis": 1}, [ROWS]),
    ("_np_cumsum", {}, [ROWS]), ("_ctc_loss", {}, [(60, 200, 30), ((200, 20), 30)]),
    ("_ctc_loss_backward", {}, [(200,), (200,), (60, 200, 41), (60, 200, 30), ((200, 20), 30)]),
    ("scatter_nd", {"shape": ROWS}, [(2000, 100), ((1, 2000), 3000)]), ("shape_array", {}, [ROWS]),
]
NAMED = [pytest.param(case, id=f"{case[0]}-{i}") for i, case in enumerate(CASES)]


def inputs(case: Case) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    arrays = []
    for given in case[2]:
        bounded = len(given) == 2 and isinstance(given[0], tuple)
        array = rng.integers(0, given[1], given[0]) if bounded else rng.uniform(0.2, 0.9, given)
        arrays.append(array.astype(np.float32))
    return arrays


@pytest.mark.parametrize("case", NAMED)
def test_temporaries_stay_within_32_kib(case: Case) -> None:
    op = get_op(case[0])
    p, ins = parsed(op, case[1]), inputs(case)
    types = infer(op, p, ins)
    nbytes = op.algorithms(p, [TensorType(a.shape, a.dtype) for a in ins], types)[0].workspace_bytes
    changed = {j: ins[i] for i, j in op.mutates(p)}
    outs = [changed[j] if j in changed else poisoned(t.shape, t.dtype) for j, t in enumerate(types)]
    work = Workspace(poisoned((align(nbytes),), np.uint8))
    with np.errstate(all="ignore"):
        np.setbufsize(2048)     # NumPy's own buffers: that many elements of a strided operand
        op.compute(p, [a.copy() for a in ins], outs, work.reset())
        tracemalloc.start()
        op.compute(p, ins, outs, work.reset())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 32 * 1024

"""The kernels of every instruction-set level that the CPU has give NumPy's results, tails and padding among them."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.device.cpu.native.library import Library, find_library

from .harness import check, the_library

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")
IMAGE, VECTOR = (2, 19, 5, 7), (19,)
CONVOLUTION = {"kernel": (3, 3), "num_filter": 48, "pad": (1, 1)}
MAPS, FILTERS, SUMS = (3, 32, 9, 7), (48, 32, 3, 3), (3, 48, 9, 7)
CASES: list[tuple[str, dict[str, Any], list[tuple[int, ...]]]] = [
    *((name, {}, [(1003,)]) for name in ("exp", "tanh", "sigmoid", "log1p", "sqrt", "_gelu", "softsign")),
    ("elemwise_add", {}, [IMAGE, IMAGE]),
    ("_batchnorm_train", {"fix_gamma": False, "act_type": "relu", "addend": True}, [IMAGE, VECTOR, VECTOR, IMAGE]),
    ("_batchnorm_train", {"fix_gamma": False, "act_type": "tanh"}, [(40, 21), (21,), (21,)]),
    ("_batchnorm_backward", {"fix_gamma": False}, [IMAGE, IMAGE, VECTOR, VECTOR, VECTOR]),
    ("Pooling", {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}, [IMAGE]),
    ("softmax", {}, [(7, 37)]), ("log_softmax", {"axis": 1}, [(2, 5, 21)]),
    ("LayerNorm", {}, [(6, 37), (37,), (37,)]), ("sum", {"axis": 0}, [(300, 70)]),
    ("Convolution", CONVOLUTION, [MAPS, FILTERS, (48,)]), ("Convolution", {**CONVOLUTION, "stride": (2, 1)}, [
        MAPS, FILTERS, (48,)]),
    ("_convolution_backward_data", CONVOLUTION, [SUMS, FILTERS, MAPS]),
    ("_convolution_backward_weight", CONVOLUTION, [SUMS, MAPS, FILTERS]),
    *(("_convolution_backward_weight", {**CONVOLUTION, "num_filter": 32, "num_group": 32, "kernel": kernel}, [
        (3, 32, *out), MAPS, (32, 1, *kernel)]) for kernel, out in (((3, 3), (9, 7)), ((5, 2), (7, 8)))),
    ("broadcast_mul", {}, [(3, 37), (3, 1)]), ("_to_blocked", {}, [IMAGE]), ("transpose", {}, [(33, 21)]),
    ("LRN", {"nsize": 5, "alpha": 0.5}, [IMAGE]), ("_lrn_backward", {"nsize": 5, "alpha": 0.5}, [IMAGE, IMAGE, IMAGE]),
    ("_prelu", {}, [IMAGE, VECTOR]), ("_prelu_backward_gamma", {}, [IMAGE, IMAGE, VECTOR]),
    ("_prelu_backward_data", {}, [(40, 21), (40, 21), (21,)]), ("InstanceNorm", {}, [IMAGE, VECTOR, VECTOR]),
    ("_instance_norm_backward", {}, [IMAGE, IMAGE, VECTOR, IMAGE[:2], IMAGE[:2]]),
    *(("L2Normalization", {"mode": mode}, [IMAGE]) for mode in ("instance", "channel", "spatial")),
    ("_upsample_backward", {"scale": 2}, [(2, 19, 6, 8)]),
    *((name, {}, [(1003,)]) for name in ("floor", "round", "rint")),
    ("Pad", {"mode": "reflect", "pad_width": (0, 0, 0, 0, 2, 1, 0, 3)}, [IMAGE]),
    ("scaled_dot_product_attention", {"use_mask": True}, [(2, 5, 8), (2, 37, 8), (2, 37, 8), (2, 1, 5, 37)])]


@pytest.fixture(scope="module", params=LEVELS)
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    the_library()
    try:
        found = find_library(request.param)
    except MXNetError as error:
        pytest.skip(str(error))
    assert found is not None and found.level == request.param
    yield found


@pytest.mark.parametrize("name, params, shapes", CASES, ids=str)
def test_kernels_agree_with_numpy_at_every_level(library: Library, name: str, params: dict[str, Any],
                                                 shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.5, 2, shape) for shape in shapes]
    check(name, params, arrays, rtol=1e-5, library=library, rests=[3] if name == "_batchnorm_train" else [])

"""Kernels of products over axes agree with NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel, random_arrays

KERNELS = ("reduce_more", "reduce")


def test_every_op_but_the_expanded_ones_has_a_kernel():
    assert ops_without_kernel("reduce_more") == {"norm", "nansum", "nanprod"}


@pytest.mark.parametrize(("op_name", "sample"), every_sample("reduce_more"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize(("shape", "axis"), [((7, 5), (1,)), ((4, 300), (1,)), ((2, 20_000), (1,)), ((300, 4), (0,)),
                                             ((3, 4, 5), (0, 2)), ((3, 4, 5), None), ((0, 4), (0,)), ((3, 0), (0,))])
def test_products_over_any_axes_and_their_gradients_agree_with_numpy(kernels, shape, axis):
    spread = 0.5 / max(1, np.sqrt(np.prod(shape)))
    data, = random_arrays(shape, low=1 - spread, high=1 + spread)
    params = {} if axis is None else {"axis": axis}
    out, = kernels.check("prod", params, [data])
    grad, = random_arrays(out.shape)
    kernels.check("_prod_backward", params, [grad, data, out])


def test_a_factor_of_0_makes_its_gradient_nan_as_on_the_cpu(kernels):
    data = np.array([[2, 0, 3]], np.float32)
    found, = kernels.check("_prod_backward", {"axis": (1,)}, [np.ones(1, np.float32), data, np.zeros(1, np.float32)])
    assert np.isnan(found[0, 1]) and (found[0, [0, 2]] == 0).all()


@pytest.mark.parametrize("size", [1, 4, 4099])
def test_nan_is_replaced_and_gets_no_gradient(kernels, size):
    grad, data = random_arrays((size,), (size,))
    data[::3] = np.nan
    kernels.check("_fill_nan", {"value": 1.5}, [data], 0, 0)
    kernels.check("_fill_nan_backward", {}, [grad, data], 0, 0)

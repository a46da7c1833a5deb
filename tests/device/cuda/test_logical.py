"""Logical kernels agree with NumPy, for special values and repeated operands too."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import every_sample, ops_without_kernel

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40], np.float32)
KERNELS = ("logical",)


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("logical") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("logical"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("op_name", ["and", "or", "xor"])
def test_whatever_is_not_0_holds(kernels, op_name):
    lhs, rhs = (a.ravel().copy() for a in np.meshgrid(SPECIAL, SPECIAL))
    kernels.check(f"_logical_{op_name}", {}, [lhs, rhs], 0, 0)
    kernels.check(f"broadcast_logical_{op_name}", {}, [SPECIAL[:, None], SPECIAL], 0, 0)
    for scalar in (0.0, -2.0):
        kernels.check(f"_logical_{op_name}_scalar", {"scalar": scalar}, [SPECIAL], 0, 0)


def test_not_holds_for_both_zeros_alone(kernels):
    found, = kernels.check("logical_not", {}, [SPECIAL], 0, 0)
    assert found.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]

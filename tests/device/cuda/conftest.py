"""Fixtures of the kernel tests."""
from __future__ import annotations

from typing import Any

import pytest

from .harness import Kernels


@pytest.fixture(scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """The kernels of the .cu files that the test module names in KERNELS; without it, of its own stem:
    test_pool.py tests pool.cu."""
    own: Any = request.module.__name__.rpartition("test_")[2]
    return Kernels(getattr(request.module, "KERNELS", (own,)))

"""The small operators of these tests are known while these tests run, and at no other time."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from .build import registered


@pytest.fixture(autouse=True, scope="package")
def _small_operators() -> Iterator[None]:
    with registered():
        yield

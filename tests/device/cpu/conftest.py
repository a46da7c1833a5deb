"""The operators of hand-made plans compute something while these tests run."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.plan.build import registered

from .plans import COMPUTE


@pytest.fixture(autouse=True)
def _computing_operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for op, compute in COMPUTE.items():
        monkeypatch.setattr(op, "compute", compute)
    with registered():
        yield

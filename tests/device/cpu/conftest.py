"""The operators of hand-made plans compute something while these tests run."""
from __future__ import annotations

import faulthandler
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


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A test in which streams block each other for good ends the run and tells where every thread stands."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()

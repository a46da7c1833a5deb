"""Fixtures of the memory tests."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from minigraph.memory.policies import POLICIES

from .schedules import Make, strategy


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Callable[[Make], None]:
    """Makes a schedule the one that memory="forced" takes."""
    return lambda make: monkeypatch.setitem(POLICIES, "forced", strategy(make))

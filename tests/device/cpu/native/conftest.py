"""These tests ask for kernels wherever there are some, whatever the environment says of them."""
from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _kernels_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINIGRAPH_CPU_KERNELS", raising=False)

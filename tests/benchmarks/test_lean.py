"""Training in a part of the plain plan's bytes: the same bits, in less memory."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import lean


def test_a_deep_network_trains_to_the_same_bits_in_half_of_its_plain_bytes(tmp_path: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIGRAPH_CPU_THREADS", "1")
    plain = lean.train("plain", 29, 4, 2, tmp_path)
    half = lean.train("auto", 29, 4, 2, tmp_path, plain.planned_bytes // 2)
    assert half.planned_bytes <= plain.planned_bytes // 2 and half.modelled_slowdown > 1
    assert lean.agree(plain, half) and len(half.losses) == len(half.seconds) == 2
    assert not lean.agree(plain, replace(half, digest="another"))
    assert "agree to the bit" in lean.markdown(plain, half, 29, 4)


def test_a_budget_that_is_too_small_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="cannot keep to 100000 bytes: the least is"):
        lean.train("auto", 29, 4, 1, tmp_path, 100_000)

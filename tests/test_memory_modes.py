"""A memory mode changes no bit: outputs, gradients, auxiliary states and parameters, on random graphs."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx

from .random_graphs import Case, random_case, results, seeds

MODES: dict[str, dict[str, Any]] = {
    "naive": {}, "inplace": {}, "plain": {}, "sublinear": {}, "auto": {},
    "vdnn": {"host_budget": "1GiB"}, "vdnn_all": {"host_budget": "1GiB"}, "vdnn_conv": {"host_budget": "1GiB"},
    "superneurons": {"host_budget": "1GiB"}, "capuchin": {"host_budget": "1GiB"},
    "lms": {"host_budget": "1GiB"}, "openai": {}, "rotor": {}}
"""Memory modes and policies, and what each needs to be bound."""


def run(case: Case, seed: int, memory: str, poison: bool) -> dict[str, bytes]:
    """Every result of the case under a memory mode by name, as bytes."""
    executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, memory=memory, poison=poison, **MODES[memory],
                                       **case.shapes)
    return results(case, executor, seed)


@pytest.mark.parametrize("seed", seeds())
def test_every_memory_mode_gives_the_same_bits_and_poison_shows_nowhere(seed: int) -> None:
    case = random_case(seed)
    reference = run(case, seed, "naive", poison=False)
    for memory in MODES:
        result = run(case, seed, memory, poison=True)
        different = [name for name in reference if result[name] != reference[name]]
        assert not different, f"{memory} differs from naive in {different}"
    finite = [name for name, data in reference.items() if not np.isfinite(np.frombuffer(data, np.float32)).all()]
    assert not finite, f"the case itself is not finite in {finite}; poison could hide there"


@pytest.mark.parametrize("seed", seeds()[:10])
def test_plain_never_takes_more_bytes_than_naive_nor_fewer_than_the_lower_bound(seed: int) -> None:
    case = random_case(seed)
    plans = {memory: case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, memory=memory, **case.shapes).plan
             for memory in ("naive", "inplace", "plain")}
    assert plans["plain"].planned_bytes <= plans["inplace"].planned_bytes <= plans["naive"].planned_bytes
    assert plans["plain"].planned_bytes >= plans["plain"].figures.lower_bound_bytes

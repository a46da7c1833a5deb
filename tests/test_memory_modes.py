"""A memory mode changes no bit: outputs, gradients, auxiliary states and parameters, on random graphs."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minigraph as mx

from .random_graphs import Case, random_case, seeds

MODES: dict[str, dict[str, Any]] = {
    "naive": {}, "inplace": {}, "plain": {}, "sublinear": {}, "auto": {},
    "vdnn": {"host_budget": "1GiB"}, "vdnn_all": {"host_budget": "1GiB"}, "vdnn_conv": {"host_budget": "1GiB"}}
"""Memory modes and policies, and what each needs to be bound."""


def run(case: Case, seed: int, memory: str, poison: bool) -> dict[str, bytes]:
    """Two rounds of forward, backward and evaluation; every result by name, as bytes."""
    mx.random.seed(seed)
    executor = case.symbol.simple_bind(mx.cpu(), grad_req=case.requests, memory=memory, poison=poison, **MODES[memory],
                                       **case.shapes)
    rng = np.random.default_rng(seed)
    for name, array in sorted({**executor.arg_dict, **executor.aux_dict}.items()):
        array[:] = rng.uniform(-1, 1, array.shape) if "label" not in name else rng.integers(0, 8, array.shape)
    for array in executor.aux_dict.values():
        array[:] = np.abs(array.asnumpy()) + 0.5
    for gradient in executor.grad_dict.values():
        if gradient is not None:
            gradient[:] = 0.25
    results: dict[str, bytes] = {}
    for round_number in range(2):
        outputs = executor.forward(is_train=True)
        heads = {n: rng.uniform(-1, 1, o.shape) for n, o in executor.output_dict.items() if n in case.heads}
        before = [o.asnumpy().tobytes() for o in outputs]
        executor.backward(heads)
        after = [o.asnumpy().tobytes() for o in outputs]
        assert before == after, "an output changed during backward"
        named = {**{f"out {n}": o for n, o in executor.output_dict.items()},
                 **{f"grad {n}": g for n, g in executor.grad_dict.items() if g is not None},
                 **{f"aux {n}": a for n, a in executor.aux_dict.items()}}
        results |= {f"{round_number} {n}": a.asnumpy().tobytes() for n, a in named.items()}
        evaluated = executor.forward(is_train=False)
        results |= {f"{round_number} eval {k}": o.asnumpy().tobytes() for k, o in enumerate(evaluated)}
    return results


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

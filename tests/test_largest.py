"""The largest n that fits a budget: exact, found without running anything."""
from __future__ import annotations

from types import SimpleNamespace

import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.memory.machine import get_machine
from minigraph.planning import Largest, Trial, _Search, largest, plan


def chain(depth: int) -> mx.sym.Symbol:
    h = mx.sym.Variable("data")
    for k in range(depth):
        h = mx.sym.FullyConnected(h, num_hidden=32, name=f"fc{k}")
        h = mx.sym.Activation(h, act_type="tanh", name=f"tanh{k}")
    return mx.sym.SoftmaxOutput(h, name="softmax")


def over_batch(n: int):
    return chain(6), {"data": (n, 32)}


def over_depth(n: int):
    return chain(n), {"data": (16, 32)}


@pytest.mark.parametrize("build", [over_batch, over_depth])
@pytest.mark.parametrize("memory", ["plain", "auto"])
def test_the_largest_fits_and_the_next_does_not(build, memory) -> None:
    found = largest(build, budget=100_000, memory=memory)
    assert isinstance(found, Largest) and found.n > 1
    assert found.plan.planned_bytes <= found.budget_bytes == 100_000
    symbol, shapes = build(found.n)
    assert found.plan.fingerprint == plan(symbol, shapes, "sgd", memory=memory, budget=100_000).fingerprint
    symbol, shapes = build(found.n + 1)
    with pytest.raises(OutOfMemoryError):
        plan(symbol, shapes, "sgd", memory=memory, budget=100_000)


def test_a_budget_alone_means_auto_and_auto_goes_further_than_plain() -> None:
    found = largest(over_depth, budget=100_000)
    assert found.plan.memory == "auto"
    assert found.n > largest(over_depth, budget=100_000, memory="plain").n


def test_doubling_and_bisection_try_few_and_tell_which() -> None:
    found = largest(over_batch, budget=100_000, memory="plain")
    assert [t.n for t in found.tried[:4]] == [1, 2, 4, 8]
    assert len(found.tried) <= 2 * found.n.bit_length() + 1
    assert {t.n for t in found.tried if t.fits and t.n >= found.n} == {found.n}
    assert all((t.bytes <= 100_000) == t.fits for t in found.tried)
    assert found.n + 1 in {t.n for t in found.tried if not t.fits}


@pytest.mark.parametrize("bytes_of", [lambda n: 200 + 8 * n, lambda n: n * n, lambda n: 1000 * (n // 37),
                                      lambda n: 1000 + int(300 * n**0.5), lambda n: 4000 + n // 50])
@pytest.mark.parametrize("high", [None, 10**6])
def test_few_trials_find_the_largest_however_bytes_grow(bytes_of, high) -> None:
    class Counted(_Search):
        def _fits(self, n: int) -> bool:
            self.tried.append(Trial(n, bytes_of(n) <= self.budget_bytes, bytes_of(n)))
            return self.tried[-1].fits

        def _planned(self, n: int, options: dict, names_least: bool = False):
            return None

    for budget in (4_295, 10_000):
        search = Counted(over_batch, budget, {"memory": "sublinear"})
        n, _ = search.run(1, high)
        assert bytes_of(n) <= budget < bytes_of(n + 1)
        assert len(search.tried) <= 2 * n.bit_length() + 2


@pytest.mark.parametrize("counted", [lambda n: 100 + 8 * n, lambda n: 10 + n * n // 300, lambda n: 50])
@pytest.mark.parametrize("lost", [0.0, 0.02, 0.4])
@pytest.mark.parametrize("high", [None, 300, 10**6])
def test_counts_lead_to_the_largest_where_plain_does_not_fit_and_few_plans_are_tried(counted, lost, high) -> None:
    def packed(n: int) -> int:
        return int(counted(n) * (1 + lost)) + n // 100

    class Counted(_Search):
        def _planned(self, n: int, options: dict, names_least: bool = False):
            planned, bound = packed(n), options["budget"]
            if options["memory"] == "plain":
                planned = 70 * n
            elif counted(n) > bound:
                planned = counted(n)
            if planned > bound:
                raise OutOfMemoryError("", planned, bound)
            return SimpleNamespace(planned_bytes=planned)

    search = Counted(over_batch, 4_295, {"memory": "auto"})
    n, _ = search.run(1, high)
    assert packed(n) <= 4_295 and (n == high or packed(n + 1) > 4_295)
    assert [t.n for t in search.tried[:6]] == [1, 2, 4, 8, 16, 32]
    assert len(search.tried) <= 2 * n.bit_length() + 4


@pytest.mark.parametrize("low, high", [(1, 5), (3, 3), (2, 7), (5, 1 << 20)])
def test_n_stays_between_low_and_high(low, high) -> None:
    free = largest(over_batch, budget=100_000, memory="plain").n
    found = largest(over_batch, budget=100_000, memory="plain", low=low, high=high)
    assert found.n == min(high, free)
    assert all(low <= t.n <= high for t in found.tried)


def test_nothing_fits_when_low_does_not() -> None:
    with pytest.raises(OutOfMemoryError, match="not even n=4 fits: .*least that it can do with") as refused:
        largest(over_batch, budget=100, low=4)
    assert refused.value.asked_bytes > refused.value.free_bytes == 100


def test_a_machine_without_a_budget_gives_its_memory() -> None:
    found = largest(over_batch, machine="K40c", memory="plain", high=4)
    assert found.budget_bytes == get_machine("K40c").memory_bytes and found.n == 4


def test_options_reach_the_plan() -> None:
    found = largest(over_batch, budget="1MB", memory="plain", high=8, optimizer="sgd",
                    optimizer_params={"momentum": 0.9})
    assert "fc0_weight_mom" in {tensor.name for tensor in found.plan.persistent}
    assert largest(over_batch, budget="1MB", program="eval", high=8).plan.program == "eval"


@pytest.mark.parametrize("options, reason", [
    ({}, "needs a budget"), ({"budget": "much"}, "no byte count"), ({"budget": 1, "low": 0}, "low=0"),
    ({"budget": 1, "low": 3, "high": 2}, "high=2"), ({"machine": "abacus"}, "no machine 'abacus'"),
    ({"budget": "1MB", "memory": "tight"}, "n=1: unknown memory mode")])
def test_what_makes_no_sense_is_refused(options, reason) -> None:
    with pytest.raises(MXNetError, match=reason):
        largest(over_batch, **options)


def test_a_network_that_does_not_depend_on_n_is_told_apart_from_one_that_fits() -> None:
    with pytest.raises(MXNetError, match="does not seem to grow with n"):
        largest(lambda n: (chain(1), {"data": (1, 32)}), budget="1MB", memory="plain")


def test_the_package_exports_it() -> None:
    assert mx.largest is largest and "largest" in mx.__all__

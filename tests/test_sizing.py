"""The largest n that fits a budget: exact, found without running anything, with few plans packed."""
from __future__ import annotations

import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.memory.machine import get_machine
from minigraph.memory.policies import POLICIES, Slicing
from minigraph.passes import evaluate
from minigraph.passes.prospect import Count
from minigraph.planning import plan
from minigraph.sizing import Largest, Look, _Search, largest


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


class Fake:
    """A program of which only bytes are known: what its policy counts, and what the least plan takes."""

    def __init__(self, asked: list, n: int, budget: int, counted: int, packed: int, slicing: Slicing | None) -> None:
        self.asked, self.n, self.budget = asked, n, budget
        self.counted, self.least, self.slicing = counted, packed, slicing

    def count(self) -> Count:
        self.asked.append(("count", self.n))
        return Count(self.counted, self.slicing)

    def count_alike(self, slicing: Slicing | None) -> int:
        assert slicing == self.slicing
        self.asked.append(("alike", self.n))
        return self.counted

    def packed(self) -> int | None:
        if self.counted > self.budget:
            return None
        self.asked.append(("pack", self.n))
        return self.least if self.least <= self.budget else None

    def plan(self) -> int:
        assert self.packed() is not None
        return self.n


def search(memory: str, budget: int, counted, packed, plain, high: int | None = None,
           slicing: Slicing | None = None) -> tuple[int, list, _Search]:
    """What is found, what was asked for, and the search."""
    class Faked(_Search):
        def _prospect(self, n: int, memory: str | None = None):
            if memory is not None:
                return Fake([], n, budget, plain(n), plain(n), None)
            return Fake(asked, n, budget, counted(n), packed(n), slicing)

    asked: list = []
    made = Faked(over_batch, budget, {"memory": memory})
    n, planned = made.run(1, high)
    assert planned == n
    return n, asked, made


@pytest.mark.parametrize("bytes_of", [lambda n: 200 + 8 * n, lambda n: n * n, lambda n: 1000 * (n // 37),
                                      lambda n: 1000 + int(300 * n**0.5), lambda n: 4000 + n // 50])
@pytest.mark.parametrize("high", [None, 10**6])
@pytest.mark.parametrize("memory", ["sublinear", "auto"])
def test_two_plans_prove_the_largest_however_bytes_grow_where_packing_loses_nothing(memory, bytes_of, high) -> None:
    for budget in (4_295, 10_000):
        n, asked, made = search(memory, budget, bytes_of, bytes_of, lambda n: max(70 * n, bytes_of(n)), high)
        assert bytes_of(n) <= budget < bytes_of(n + 1)
        assert {t.n for t in made.tried if t.n >= n} == {n, n + 1}
        assert len({at for what, at in asked if what == "pack"}) <= 2  # n, and what the search began with
        assert len({at for _, at in asked}) <= 2 * n.bit_length() + 6


@pytest.mark.parametrize("counted", [lambda n: 100 + 8 * n, lambda n: 10 + n * n // 300, lambda n: 50])
@pytest.mark.parametrize("lost", [0.0, 0.002, 0.01, 0.02, 0.4])
@pytest.mark.parametrize("high", [None, 300, 10**6])
@pytest.mark.parametrize("slicing", [None, Slicing(4)])
def test_the_largest_is_found_with_few_plans_whatever_packing_loses(counted, lost, high, slicing) -> None:
    def packed(n: int) -> int:
        return int(counted(n) * (1 + lost)) + n // 100

    n, asked, made = search("auto", 4_295, counted, packed, lambda n: 70 * n, high, slicing)
    assert packed(n) <= 4_295 and (n == high or packed(n + 1) > 4_295)
    assert [t.n for t in made.tried[:6]] == [1, 2, 4, 8, 16, 32]
    assert len({at for what, at in asked if what == "pack"}) <= 2 * n.bit_length() + 4
    assert len({at for _, at in asked}) <= 4 * n.bit_length() + 8


def test_counts_of_near_sizes_are_of_as_many_slices_only() -> None:
    n, asked, made = search("auto", 4_295, lambda n: 100 + 8 * n, lambda n: 101 + 8 * n, lambda n: 70 * n,
                            slicing=Slicing(4))
    tried = {t.n for t in made.tried}
    assert n == 524
    assert [at for what, at in asked if what == "count" and at not in tried] == [4 * 64, 506]
    assert [at for what, at in asked if what == "alike"]


def test_where_a_larger_one_fits_behind_one_that_does_not_it_may_be_found_and_the_next_one_does_not_fit() -> None:
    def uneven(n: int) -> int:
        return 8 * n + (2000 if n % 7 == 3 else 0)

    fitting = [n for n in range(1, 1000) if uneven(n) <= 4_295]
    assert 290 not in fitting and max(fitting) == 536  # 290, 297, ... do not fit, and others above them do
    for memory in ("auto", "sublinear"):
        n, _, _ = search(memory, 4_295, uneven, uneven, lambda n: 70 * n)
        assert n in fitting and n + 1 not in fitting


@pytest.mark.parametrize("low, high", [(1, 5), (3, 3), (2, 7), (5, 1 << 20)])
def test_n_stays_between_low_and_high(low, high) -> None:
    free = largest(over_batch, budget=100_000, memory="plain").n
    found = largest(over_batch, budget=100_000, memory="plain", low=low, high=high)
    assert found.n == min(high, free)
    assert all(low <= t.n <= high for t in found.tried)


# -- beside trying every n -----------------------------------------------------------------------------------
HOST, SLICES = {"host_budget": "1MiB"}, {"slices": 4}


@pytest.mark.parametrize("memory, options", [
    *((memory, HOST) for memory in POLICIES), *((memory, {}) for memory in ("auto", "sublinear", "rotor", "plain")),
    ("auto", SLICES), ("plain", SLICES), ("inplace", {}), ("naive", {}), ("auto", {"program": "eval"})])
def test_what_is_found_is_what_trying_every_n_finds(memory, options) -> None:
    budget, trains = 30_000 if memory in POLICIES else 45_000, options.get("program") != "eval"
    kept = {"optimizer": "sgd" if trains else None, "memory": memory, "budget": budget, "verify": False, **options}

    def fits(n: int) -> bool:
        symbol, shapes = deep(n)
        try:
            return plan(symbol, shapes, **kept).planned_bytes <= budget
        except OutOfMemoryError:
            return False

    found = largest(deep, budget=budget, memory=memory, **options)
    symbol, shapes = deep(found.n)
    assert found.plan.fingerprint == plan(symbol, shapes, **kept).fingerprint
    assert [fits(n) for n in range(1, found.n + 2)] == [True] * found.n + [False]


def deep(n: int):
    return chain(3), {"data": (8 * n, 32)}


def test_the_same_is_found_again_by_the_same_trials() -> None:
    first, again = (largest(deep, budget=30_000) for _ in range(2))
    assert (first.n, first.tried, first.plan.fingerprint) == (again.n, again.tried, again.plan.fingerprint)


def test_few_schedules_are_packed(monkeypatch) -> None:
    packed: list[int] = []
    carried_out = evaluate._carried_out
    monkeypatch.setattr(evaluate, "_carried_out",
                        lambda state, c, *rest: packed.append(len(state.graph)) or carried_out(state, c, *rest))
    found = largest(deep, budget=30_000)
    by_plain = [t for t in found.tried if t.n < found.n]
    assert len(packed) <= len(by_plain) + 4


def test_each_n_is_told_of() -> None:
    told: list[Look] = []
    found = largest(deep, budget=30_000, progress=told.append)
    assert [(look.n, look.fits, look.bytes) for look in told if look.fits is not None] == \
        [(t.n, t.fits, t.bytes) for t in found.tried]
    assert all(look.seconds > 0 for look in told) and any(look.fits is None for look in told)
    assert str(Look(3, 2**30, 1.25, True)) == "n=3 takes 1.00 GiB (1.2 s)"
    assert str(Look(3, 2**30, 1.25, False)) == "n=3 needs at least 1.00 GiB (1.2 s)"
    assert str(Look(3, 2**30, 1.25)) == "n=3 is counted to need 1.00 GiB (1.2 s)"


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
    assert "fc0_weight/mom" in {tensor.name for tensor in found.plan.persistent}
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

"""The largest network that fits: the n for which a program has a plan within a budget, found without running anything.

To pack a plan takes several times as long as to count its schedules, and to count those of all kinds several times as
long as those of one. So counts tell about where the largest n is, and what is packed is hardly more than the proof:
that n fits, and that n + 1 does not.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any

from .base import MXNetError, OutOfMemoryError, Shape, format_bytes, parse_bytes
from .memory.machine import get_machine
from .memory.policies import POLICIES, Slicing
from .optimizer import Optimizer
from .passes.compilation import MEMORY_MODES
from .passes.pipeline import compile_program
from .passes.prospect import Count, Prospect
from .plan.plan import Plan
from .plan.verify import verify as verify_plan
from .planning import Program, prepare

Build = Callable[[int], "tuple[Any, Mapping[str, Shape]]"]
"""From n to a symbol and the shapes of its inputs: n may be the batch, a depth, or whatever makes it larger."""
MOST_N = 2**40
"""The n from which on a network that still fits is taken not to depend on n."""
REACH = 16
"""How many times as large an n may be as the largest that was counted."""
FURTHER = 4
"""How many times as large as the first n that does not fit plain the n is for which the policy is asked first."""
NEAR = 1.25
"""How many times as large an n may be as one of which all schedules were counted, for the least to be in as many slices
still."""
PACKING_LOSS = 1 / 100
"""About what packing takes above the counts of graphs in slices, as a share of them: ResNet-50 in 32 slices 0.8 to
1.2 %. Whole graphs pack to their counts, or nearly."""
KEPT = 2
"""Programs that are kept for further questions."""
STEPS_WITHIN_LOSS = 8
"""Steps in which the n are gone through that lie within the packing loss."""


@dataclass(frozen=True)
class Trial:
    """One n: whether it has a plan within the budget, and the bytes of such a one, or so many that it needs them at
    least."""

    n: int
    fits: bool
    bytes: int


@dataclass(frozen=True)
class Look:
    """One n that was looked at: for a trial, or only for the least count of the schedules that were `counted`."""

    n: int
    bytes: int
    seconds: float
    fits: bool | None = None
    """None where nothing but counts was asked for."""

    def __str__(self) -> str:
        what = {True: "takes", False: "needs at least", None: "is counted to need"}[self.fits]
        return f"n={self.n} {what} {format_bytes(self.bytes)} ({self.seconds:.1f} s)"


@dataclass(frozen=True)
class Largest:
    """The largest n that fits, its verified plan, and every n tried, in order."""

    n: int
    plan: Plan
    budget_bytes: int
    tried: tuple[Trial, ...]


def largest(build: Build, budget: int | str | None = None, machine: str | None = None, memory: str | None = None,
            low: int = 1, high: int | None = None, optimizer: str | Optimizer | None = "sgd",
            program: str | None = None, progress: Callable[[Look], None] | None = None, **options: Any) -> Largest:
    """The largest n of [low, high] for which `build(n)` has a plan within `budget`; nothing is allocated or run.

    `build(n)` gives a symbol and the shapes of its inputs. What is promised is that n has a plan, which is that of
    `plan`, and that n + 1 has none: the search takes it that above an n that does not fit none does, and where one does
    all the same, it may or may not be found. Without a budget it is the memory of `machine`. `memory` (`auto` by
    default), `program` and further options are those of `plan`; `optimizer` is that of the program `step`, the default
    one. `progress` is called with every n that was looked at. OutOfMemoryError when `low` does not fit; MXNetError when
    neither budget nor machine is given, or for whatever `plan` refuses.
    """
    if low < 1 or (high is not None and high < low):
        raise MXNetError(f"largest looks for n from low to high, with 1 <= low <= high; got low={low}, high={high}")
    budget_bytes = _budget_or_memory(budget, machine)
    used = optimizer if program in (None, "step") else None
    search = _Search(build, budget_bytes, {"optimizer": used, "program": program, "memory": memory,
                                           "machine": machine or "cpu", **options}, progress)
    n, found = search.run(low, high)
    if options.get("verify", True):
        verify_plan(found)
    return Largest(n, found, budget_bytes, tuple(search.tried))


def _budget_or_memory(budget: int | str | None, machine: str | None) -> int:
    if budget is None and machine is None:
        raise MXNetError("largest needs a budget in bytes, such as budget='4GiB', or a machine whose memory is the "
                         "budget, such as machine='V100'")
    if budget is None:
        assert machine is not None
        return get_machine(machine).memory_bytes
    try:
        return parse_bytes(budget)
    except ValueError as error:
        raise MXNetError(f"budget: {error}") from error


class _Search:
    """Doubling while the plain plan fits, where it is one of the policy's and so tells enough in a part of the time;
    then trials of the policy, from where its counts meet the budget less what packing loses."""

    def __init__(self, build: Build, budget_bytes: int, options: dict[str, Any],
                 progress: Callable[[Look], None] | None = None) -> None:
        self.build = build
        self.budget_bytes = budget_bytes
        self.options = {**options, "verify": False, "budget": budget_bytes}
        self.progress = progress or (lambda look: None)
        self.plain = _plain_mode(options["memory"] or "auto", options.get("slices", 1))
        """The memory mode whose plans for growing n are looked at first, if any."""
        self.counts = Counts(self._counted)
        self.tried: list[Trial] = []
        self.loss = 0.0
        """The share of the budget that packing was taken to lose in the last guess."""
        self.step = 1
        """How far above an n that fits the next one is tried."""
        self.slicing: tuple[int, Slicing | None] | None = None
        """The slices of the least count, and for which n that is."""
        self.latest: dict[int, Prospect] = {}
        """Those that were looked at last, by n."""
        self.fitting: tuple[int, Prospect] | None = None
        """The last n that fits by the policy."""

    def run(self, low: int, high: int | None) -> tuple[int, Plan]:
        """The largest n that fits, and its plan."""
        below, above = self._while_plain(low, high)
        if below < low:
            if above == low or not self._fits(low):
                raise self._refusal(low)
            below = low
        known, refused = below, above is not None and above != (high or 0) + 1
        while above is None or above - below > 1:
            _check(below, self.budget_bytes)
            if below == known:
                n = self._guess(below, above, refused)
            else:
                n = _middle(below, above) if refused and above is not None else self._behind(below, above)
            if self._fits(n):
                below = n
            else:
                above, refused = n, True
        fitting = self.fitting if self.fitting is not None and self.fitting[0] == below else None
        with _naming(below):
            return below, (fitting[1] if fitting else self._prospect(below)).plan()

    def _while_plain(self, low: int, high: int | None) -> tuple[int, int | None]:
        """The largest n that is known to fit as the plain plan does, or one less than `low`; and one that is not tried
        any more."""
        below, above = low - 1, None if high is None else high + 1
        n = low
        while self.plain is not None and (above is None or above - below > 1):
            _check(below, self.budget_bytes)
            if not self._fits(n, self.plain):
                self.counts.first = min(FURTHER * n, (above or FURTHER * n + 1) - 1)
                return below, n if self._is_own(self.plain) else above
            below, n = n, 2 * n if above is None else min(2 * n, above - 1)
        return below, above

    def _guess(self, below: int, above: int | None, refused: bool) -> int:
        """Where counts meet the budget less what packing loses, which is more after each guess that did not fit."""
        if refused:
            self.loss = 2 * self.loss or PACKING_LOSS
        elif not self.counts.known and (above is None or self.counts.first < above):
            self.counts.of(max(self.counts.first, below + 1))
        found = None
        while found is None or not self.loss and self._is_in_slices():
            self.loss = self.loss or PACKING_LOSS * self._is_in_slices()
            found = self.counts.met(int(self.budget_bytes * (1 - self.loss)), below, above)
        n = max(found, below + 1)
        return max(n, _middle(below, above)) if refused and above is not None else n

    def _is_in_slices(self) -> bool:
        return self.slicing is not None and self.slicing[1] is not None

    def _behind(self, below: int, above: int | None) -> int:
        """The next n behind one that was guessed and fits: one more, and then in growing steps."""
        n = below + self.step
        self.step = max(2 * self.step, int(below * PACKING_LOSS / STEPS_WITHIN_LOSS))
        return n if above is None else min(n, above - 1)

    # -- what is asked of one n ----------------------------------------------------------------------------------
    def _fits(self, n: int, memory: str | None = None) -> bool:
        """Whether there is a plan for one n within the budget, by the policy or by a memory mode."""
        start = time.perf_counter()
        own = memory is None or self._is_own(memory)
        with _naming(n):
            prospect = self._prospect(n, memory)
            counted, packed = prospect.count(), prospect.packed()
        found = Trial(n, packed is not None, max(counted.bytes, self.budget_bytes + 1) if packed is None else packed)
        if own:
            self._note(n, counted)
        if own and found.fits:
            self.fitting = n, prospect
        if own or found.fits:
            self.tried.append(found)
            self.progress(Look(n, found.bytes, time.perf_counter() - start, found.fits))
        return found.fits

    def _counted(self, n: int) -> int:
        """The least bytes that the policy's schedules need for one n by their counts; of those in as many slices as
        the least of an n that is near."""
        start = time.perf_counter()
        with _naming(n):
            prospect, least = self._prospect(n), None
            if self.slicing is not None and 1 / NEAR <= n / self.slicing[0] <= NEAR:
                least = prospect.count_alike(self.slicing[1])
            if least is None:
                counted = prospect.count()
                self._note(n, counted)
                least = counted.bytes
        self.progress(Look(n, least, time.perf_counter() - start))
        return least

    def _note(self, n: int, counted: Count) -> None:
        self.counts.known[n] = counted.bytes
        self.slicing = n, counted.slicing

    def _prospect(self, n: int, memory: str | None = None) -> Prospect:
        """The program for one n; the last two are kept, as counts end at an n and the next one, which are tried."""
        own = memory is None or self._is_own(memory)
        made = self.latest.pop(n, None) if own else None
        if made is None:
            program = self._prepared(n, memory)
            made = Prospect(program.graph, program.request, program.layout)
        if own:
            self.latest = dict([*self.latest.items(), (n, made)][-KEPT:])
        return made

    def _prepared(self, n: int, memory: str | None = None) -> Program:
        symbol, shapes = self.build(n)
        return prepare(symbol, shapes, **(self.options if memory is None else {**self.options, "memory": memory}))

    def _is_own(self, memory: str) -> bool:
        """Whether a memory mode is the one that was asked for, so that what it refuses is refused."""
        return memory == self.options["memory"]

    def _refusal(self, n: int) -> OutOfMemoryError:
        """The error for an n that does not fit; it names the least budget that would do."""
        try:
            with _naming(n):
                program = self._prepared(n)
                compile_program(program.graph, program.request, program.layout)
        except OutOfMemoryError as refused:
            return OutOfMemoryError(f"not even n={n} fits: {refused}", refused.asked_bytes, refused.free_bytes)
        raise AssertionError("unreachable")


def _plain_mode(memory: str, slices: int) -> str | None:
    """The memory mode that tells whether n fits in a part of the time: itself, or plain, where the policy weighs the
    plain plan, too. That of a graph in slices is another one."""
    if memory in MEMORY_MODES:
        return memory
    policy = POLICIES.get(memory)
    return "plain" if policy is not None and policy.without_budget == "fastest" and slices == 1 else None


@contextmanager
def _naming(n: int) -> Iterator[None]:
    """Errors say which n they are about."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except MXNetError as error:
        raise MXNetError(f"n={n}: {error}") from error


def _check(n: int, limit_bytes: int) -> None:
    if n >= MOST_N:
        raise MXNetError(f"n={n} still fits {format_bytes(limit_bytes)}: the network does not seem to grow with n; let "
                         f"build use n, or give high")


class Counts:
    """Counts of bytes, each made once, which are about even in n; and where they meet a limit."""

    def __init__(self, count: Callable[[int], int], first: int = 1) -> None:
        self.count, self.first = count, first
        """`first` is the n that is counted first."""
        self.known: dict[int, int] = {}

    def of(self, n: int) -> int:
        """The count of one n."""
        if n not in self.known:
            self.known[n] = self.count(n)
        return self.known[n]

    def met(self, limit_bytes: int, below: int, above: int | None) -> int:
        """The largest n of [below, above) whose count is within a limit, if counts rise with n; that of `below` is
        taken to be."""
        high = min([n for n, count in self.known.items() if n > below and count > limit_bytes],
                   default=MOST_N + 1 if above is None else above)
        low = max((n for n, count in self.known.items() if count <= limit_bytes and below < n < high), default=below)
        evenly = True
        while high - low > 1:
            n, width = self._guess(limit_bytes, low, high) if evenly else _middle(low, high), high - low
            low, high = (n, high) if self.of(n) <= limit_bytes else (low, n)
            evenly = 2 * (high - low) <= width or high not in self.known
        return low

    def _guess(self, limit_bytes: int, low: int, high: int) -> int:
        """Between both ends, where a line through counts meets the limit."""
        under, over = (sorted(n for n in self.known if is_under == (n <= low)) for is_under in (True, False))
        points = [*under[-1:], *over[:1]] if under and over else (under[-2:] or over[:2])
        if high not in self.known:
            high = min(high, REACH * max(low, self.first) + 1)
        if not points:
            return min(max(self.first, low + 1), high - 1)
        n, count = points[0], self.known[points[0]]
        slope = count / n if len(points) == 1 else (self.known[points[1]] - count) / (points[1] - n)
        met = high if slope <= 0 else min(n + (limit_bytes - count) / slope, high)
        return min(max(int(met), low + 1), high - 1)


def _middle(low: int, high: int) -> int:
    """Between both ends, far from both in proportion, too."""
    return min(max(isqrt(max(low, 1) * high), low + 1), high - 1)

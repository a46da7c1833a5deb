"""Plans without executors: what a program of a symbol would take, on any machine, with nothing allocated."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .base import MXNetError, OutOfMemoryError, Shape, format_bytes, parse_bytes
from .binding import bind_graph, device_of, normalise_requests
from .context import cpu
from .device.cpu import CpuDevice
from .device.device import Device
from .device.null import NullDevice
from .graph import Graph
from .memory.layout import PersistentLayout
from .memory.machine import get_machine
from .memory.policies import POLICIES
from .optimizer import Optimizer, create
from .passes.compilation import MemoryChoice, Request
from .passes.pipeline import compile_program
from .plan.plan import Plan
from .plan.verify import verify as verify_plan

PROGRAMS = ("step", "train", "eval")
"""Programs that can be planned alone; `update` follows `train`."""


@dataclass(frozen=True)
class Program:
    """Everything that compiling one program takes: the bound graph, the request, and a layout of its own."""

    graph: Graph
    request: Request
    layout: PersistentLayout


def plan(symbol: Any, shapes: Mapping[str, Shape], optimizer: str | Optimizer | None = None,
         program: str | None = None, memory: str | None = None, *, grad_req: Any = "write",
         dtypes: Mapping[str, Any] | None = None, inputs: Iterable[str] | None = None,
         optimizer_params: Mapping[str, Any] | None = None, verify: bool = True, budget: int | str | None = None,
         host_budget: int | str | None = None, disk: str | None = None, machine: str = "cpu",
         profile: str | None = None, search: str = "default", fuse: bool = True, encode: bool = True,
         fold: bool = False, slices: int = 1) -> Plan:
    """The verified plan of one program of `symbol` for inputs of these shapes; nothing is allocated.

    `program` is `step` (needs an optimizer), `train` or `eval`; by default `step` with an optimizer and else `train`.
    `optimizer` is an optimizer or its name, with `optimizer_params`. `inputs` are the arguments that are fed for every
    run, which have no gradient; by default those with a shape given, and labels. A policy in `memory` keeps within
    `budget` (bytes, or a text such as "4GiB") by the times of `machine`, a name or a machine file, or of `profile`, a
    file of measured times (`minigraph.measure`). With search="full" `auto` weighs the schedules of every policy, and is
    slower than none at any budget. `fuse`, `encode`, `fold` and `slices` are those of Executor. The plan is the one
    that an executor, or a Module, bound in the same way has. MXNetError says what is unknown or does not fit.
    """
    prepared = prepare(symbol, shapes, optimizer, program, memory, grad_req=grad_req, dtypes=dtypes, inputs=inputs,
                       optimizer_params=optimizer_params, verify=verify, budget=budget, host_budget=host_budget,
                       disk=disk, machine=machine, profile=profile, search=search, fuse=fuse, encode=encode, fold=fold,
                       slices=slices)
    return compile_program(prepared.graph, prepared.request, prepared.layout)


def prepare(symbol: Any, shapes: Mapping[str, Shape], optimizer: str | Optimizer | None = None,
            program: str | None = None, memory: str | None = None, *, grad_req: Any = "write",
            dtypes: Mapping[str, Any] | None = None, inputs: Iterable[str] | None = None,
            optimizer_params: Mapping[str, Any] | None = None, verify: bool = True, budget: int | str | None = None,
            host_budget: int | str | None = None, disk: str | None = None, machine: str = "cpu",
            profile: str | None = None, search: str = "default", fuse: bool = True, encode: bool = True,
            fold: bool = False, slices: int = 1) -> Program:
    """What `plan` compiles, for whoever wants to look at each pass; the arguments are those of `plan`."""
    name = program or ("train" if optimizer is None else "step")
    if name not in PROGRAMS:
        raise MXNetError(f"there is no program {name!r} to plan; choose from {', '.join(PROGRAMS)}")
    if name != "step" and optimizer is not None:
        raise MXNetError(f"the program `{name}` updates nothing, so it takes no optimizer; plan `step`, or leave it "
                         f"out")
    updater = _updater(optimizer, optimizer_params) if name == "step" else None
    graph = bind_graph(symbol, shapes, dtypes or {})
    arguments = symbol.list_arguments()
    fed = _inputs(arguments, shapes, inputs)
    requests = {argument: "null" if argument in fed else request
                for argument, request in normalise_requests(grad_req, arguments).items()}
    choice = MemoryChoice.parse(memory, budget, host_budget, disk, search, slices)
    device = _device_of(machine)
    request = Request(name, requests, fed, updater=updater, verify=verify, machine=machine, profile=profile,
                      algorithms=device.algorithms, fuse=fuse, encode=encode, fold=fold, fuses=device.fuses,
                      layouts=device.layouts, **vars(choice))
    return Program(graph, request, _layout(graph, fed))


def _device_of(machine: str) -> Device:
    """The device whose kernels a plan for a machine is made of: this one, or a GPU that need not be there."""
    model = get_machine(machine)
    return NullDevice(model) if model.device == "gpu" else device_of(cpu())


def unplanned_bytes(plan: Plan, machine: str = "cpu") -> int | None:
    """Bytes that running a plan takes here beside its arenas, at most; None for the machine of a GPU: not known."""
    return None if get_machine(machine).device == "gpu" else CpuDevice().unplanned_bytes(plan)


def least_budget(program: Program) -> int:
    """The least budget in bytes that a program's memory mode or policy can keep to."""
    request = replace(program.request, budget_bytes=0, verify=False)
    try:
        compile_program(program.graph, request, copy.deepcopy(program.layout))
    except OutOfMemoryError as refused:
        return refused.asked_bytes
    return 0  # there is nothing to place


# -- the largest network that fits ---------------------------------------------------------------------------
Build = Callable[[int], "tuple[Any, Mapping[str, Shape]]"]
"""From n to a symbol and the shapes of its inputs: n may be the batch, a depth, or whatever makes it larger."""
_MOST_N = 2**40
"""The n above which a network that still fits is taken not to depend on n."""
_REACH, _PACKING_LOSS = 16, 1 / 64
"""How many times the first n that does not fit plain is looked at, at most, before anything has been packed; and about
half of what packing takes above the counts of large plans, as a share of them."""


@dataclass(frozen=True)
class Trial:
    """One n: whether it has a plan within the budget, and that plan's bytes, or so many that it needs them at least."""

    n: int
    fits: bool
    bytes: int


@dataclass(frozen=True)
class Largest:
    """The largest n that fits, its verified plan, and every n tried, in order."""

    n: int
    plan: Plan
    budget_bytes: int
    tried: tuple[Trial, ...]


def largest(build: Build, budget: int | str | None = None, machine: str | None = None, memory: str | None = None,
            low: int = 1, high: int | None = None, optimizer: str | Optimizer | None = "sgd",
            program: str | None = None, **options: Any) -> Largest:
    """The largest n of [low, high] for which `build(n)` has a plan within `budget`; nothing is allocated or run.

    `build(n)` gives a symbol and the shapes of its inputs. The search doubles n and then narrows down, so it takes it
    that above an n that does not fit none does. Without a budget it is the memory of `machine`. `memory` (`auto` by
    default), `program` and further options are those of `plan`; `optimizer` is that of the program `step`, the default
    one. OutOfMemoryError when `low` does not fit; MXNetError when neither budget nor machine is given, or for whatever
    `plan` refuses.
    """
    if low < 1 or (high is not None and high < low):
        raise MXNetError(f"largest looks for n from low to high, with 1 <= low <= high; got low={low}, high={high}")
    budget_bytes = _budget_or_memory(budget, machine)
    used = optimizer if program in (None, "step") else None
    search = _Search(build, budget_bytes, {"optimizer": used, "program": program, "memory": memory,
                                           "machine": machine or "cpu", **options})
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
    """Doubling, and then a search between what fits and what does not, over planned plans.

    What a policy needs at least grows about evenly with n. So behind an n that does not fit, the next one is where
    bytes in proportion meet the budget, and twice as far below as that is from the one before, but not below the
    middle; behind one that fits it is the middle. Where the policy weighs the plain plan too, that is tried first, for
    it takes a part of the time. The first n that does not fit plain is not doubled further: counts of the policy, for
    which nothing is packed, tell where they meet the budget, and plans are looked for a little below. What does not fit
    is told by counts, too, where these are above the budget.
    """

    def __init__(self, build: Build, budget_bytes: int, options: dict[str, Any]) -> None:
        self.build = build
        self.budget_bytes = budget_bytes
        self.options = {**options, "verify": False, "budget": budget_bytes}
        policy = POLICIES.get(options["memory"] or "auto")
        self.weighs_plain = policy is not None and policy.without_budget == "fastest"
        self.step: int | None = None
        """How far above the n that fits the next one is tried, once counts have told about where the largest is."""
        self.tried: list[Trial] = []
        self.plans: dict[int, Plan] = {}
        """The policy's own plan for the last n that fits."""

    def run(self, low: int, high: int | None) -> tuple[int, Plan]:
        """The largest n that fits, and its plan."""
        if not self._fits_plain(low) and not self._fits(low):
            raise self._refusal(low)
        below, above = low, None if high is None else high + 1
        while above is None or above - below > 1:
            if below > _MOST_N:
                raise MXNetError(f"n={below} still fits {format_bytes(self.budget_bytes)}: the network does not seem "
                                 f"to grow with n; let build use n, or give high")
            n, plain = self._next(below, above), self.weighs_plain
            if self._fits_plain(n):
                below = n
                continue
            if plain:
                n = self._aimed(n, above)
            below, above = (n, above) if self._fits(n) else (below, n)
        return below, self.plans[below] if below in self.plans else self._planned(below, self.options)

    def _next(self, below: int, above: int | None) -> int:
        refused = sorted((trial.n, trial.bytes) for trial in self.tried if not trial.fits)[:2]
        further = below + (self.step or below)
        if above is None or (not refused and further < above):
            self.step = None if self.step is None else 2 * self.step
            return further
        middle = (below + above) // 2
        if self.tried[-1].fits:
            return middle
        (n, least), further = refused[0], refused[-1][0]
        expected = n * self.budget_bytes // least
        return max(min(expected, n - 2 * (further - n), n - 1), middle)

    def _aimed(self, n: int, above: int | None) -> int:
        """Not below n, a little below where the line through the policy's counts for n and for another meets the
        budget."""
        most = _REACH * n if above is None else min(_REACH * n, above - 1)
        count = self._counted(n)
        other = min(n * self.budget_bytes // count, most)
        if other <= n:
            return n
        slope = (self._counted(other) - count) / (other - n)
        met = most if slope <= 0 else min(n + (self.budget_bytes - count) / slope, most)
        self.step = max(int(met * _PACKING_LOSS), 1)
        return max(int(met) - self.step, n)

    def _counted(self, n: int) -> int:
        """The least bytes that the policy's schedules need for one n, by their counts."""
        try:
            return self._planned(n, {**self.options, "budget": 1}).planned_bytes
        except OutOfMemoryError as refused:
            return refused.asked_bytes

    def _refusal(self, n: int) -> OutOfMemoryError:
        """The error for an n that does not fit; it names the least budget that would do."""
        try:
            self._planned(n, self.options, names_least=True)
        except OutOfMemoryError as refused:
            return OutOfMemoryError(f"not even n={n} fits: {refused}", refused.asked_bytes, refused.free_bytes)
        raise AssertionError("unreachable")

    def _fits_plain(self, n: int) -> bool:
        """Whether the plain plan for one n fits, as long as the policy weighs it and it has fitted."""
        if self.weighs_plain:
            try:
                made = self._planned(n, {**self.options, "memory": "plain"})
            except OutOfMemoryError:
                self.weighs_plain = False  # what is larger does not fit either
            else:
                self.tried.append(Trial(n, True, made.planned_bytes))
        return self.weighs_plain

    def _fits(self, n: int) -> bool:
        """Whether the policy has a plan for one n within the budget."""
        try:
            made = self._planned(n, self.options)
        except OutOfMemoryError as refused:
            self.tried.append(Trial(n, False, refused.asked_bytes))
            return False
        self.plans = {n: made}
        self.tried.append(Trial(n, True, made.planned_bytes))
        return True

    def _planned(self, n: int, options: dict[str, Any], names_least: bool = False) -> Plan:
        symbol, shapes = self.build(n)
        try:
            program = prepare(symbol, shapes, **options)
            request = replace(program.request, names_least=names_least)
            return compile_program(program.graph, request, program.layout)
        except OutOfMemoryError:
            raise
        except MXNetError as error:
            raise MXNetError(f"n={n}: {error}") from error


# -- what a program is bound with ----------------------------------------------------------------------------
def _updater(optimizer: str | Optimizer | None, params: Mapping[str, Any] | None) -> Any:
    if optimizer is None:
        raise MXNetError("the program `step` holds the optimizer's update; give optimizer='sgd' or another, or plan "
                         "the program `train`")
    try:
        made = create(optimizer, **dict(params or {}))
    except (TypeError, ValueError) as error:
        raise MXNetError(f"optimizer {optimizer!r} with {dict(params or {})}: {error}") from error
    if not made.has_graph_form:
        raise MXNetError(f"optimizer {type(made).__name__} has no graph form, so it cannot be part of a program; plan "
                         f"the program `train`")
    return made


def _inputs(arguments: list[str], shapes: Mapping[str, Shape], inputs: Iterable[str] | None) -> frozenset[str]:
    if inputs is None:
        return frozenset(name for name in arguments if name in shapes or name.endswith("label"))
    if isinstance(inputs, str):
        raise MXNetError(f"inputs={inputs!r} must be a list of names of arguments, such as [{inputs!r}]")
    fed = frozenset(inputs)
    unknown = sorted(fed - set(arguments))
    if unknown:
        raise MXNetError(f"inputs names {unknown[0]!r}, which is no argument; they are {', '.join(arguments)}")
    return fed


def _layout(graph: Graph, inputs: frozenset[str]) -> PersistentLayout:
    """Places of all parameters and auxiliary states, as an executor has them whether a program needs them or not."""
    layout = PersistentLayout()
    for i in graph.variables():
        name, held = graph.name[i], graph.type_of(graph.first[i])
        auxiliary = graph.variable_class[i] == "auxiliary"
        if auxiliary or name not in inputs:
            layout.declare(name, held.shape, held.dtype, "auxiliary" if auxiliary else "parameter")
    return layout

"""The programs of one bound symbol: compiled when they are first needed, and again when tensors got other homes or
the optimizer another rule.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .base import MXNetError, OutOfMemoryError, Shape
from .binding import CrowdedError, Group, check_budgets, moved_up, persistent_places, unread_inputs
from .bound import Bound
from .inspection import with_internals
from .memory.layout import HOME
from .ndarray import NDArray
from .passes.compilation import MemoryChoice, Request, Updater
from .passes.fingerprint import fingerprint
from .passes.pipeline import compile_program
from .plan.plan import TRANSIENT_ARENA, Arena, Plan
from .plan.verify import verify

MonitorCallback = Callable[[str, NDArray], Any]


@dataclass(frozen=True)
class Options:
    """How programs are compiled and run; see Executor."""

    memory: MemoryChoice
    machine: str
    profile: str | None
    verify: bool
    fuse: bool
    encode: bool
    fold: bool
    poison: bool
    graph: bool


class Programs(Bound):
    """A bound symbol with its programs.

    `train` and `update` are made for each other: the outputs of the one are still read when the other runs, so it lies
    behind it in the transient arena, and a budget must hold both.
    """

    def __init__(self, symbol: Any, group: Group, shapes: Mapping[str, Shape], dtypes: Mapping[str, Any],
                 grad_req: str | Sequence[str] | Mapping[str, str], inputs: Sequence[str],
                 own: Collection[str] | None, options: Options) -> None:
        super().__init__(symbol, group, shapes, dtypes, grad_req, inputs, own)
        self.options = options
        self._programs: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._forms: dict[str, Any] = {}
        self._optional: dict[str, frozenset[str]] = {}
        self._parameters: dict[str, tuple[str, ...]] = {}
        self._updater: Updater | None = None
        self._monitor: tuple[MonitorCallback, bool] | None = None
        group.users.add(self)
        self._kept_bytes = 0
        """Bytes of the budget that `train` leaves to `update`."""

    def program(self, name: str) -> Any:
        """The loaded program of that name, compiled on first use, and again when it is not ready any more."""
        if self._is_ready(name):
            return self._programs[name]
        if name != "update":
            self.group.tidy()
        try:
            return self._make(name)
        except OutOfMemoryError as refused:
            if not self.group.layout.gaps and not isinstance(refused, CrowdedError):
                raise
            self.group.shrink()
            return self._make(name)

    def drop_programs(self) -> None:
        """Compile again what runs next, since what was compiled lies over arenas that are gone."""
        self._programs.clear()

    def _make(self, name: str) -> Any:
        if name == "update":
            return self._load_update()
        return self._load(self._compile_train() if name == "train" else self._compile(name))

    def _is_ready(self, name: str) -> bool:
        """Whether the program was compiled for the present homes, and for what the optimizer's rule is now."""
        return (name in self._programs and self._versions[name] == self.group.layout.version
                and self._forms[name] == self._form_of(name))

    def _form_of(self, name: str) -> Any:
        return self._updater.form if self._updater is not None and name in ("step", "update") else None

    def _compile_train(self) -> Plan:
        """`train`; where there is an optimizer and a budget, such that `update` has room behind it: a transient arena
        that was made for a larger one would not shrink any more."""
        if self._updater is None or self.options.memory.budget_bytes is None:
            return self._compile("train")
        while True:
            train = self._compile("train")
            if self._compile_update(train) is not None:
                return train

    def _compile_update(self, train: Plan) -> Plan | None:
        """`update` behind a plan of `train`; None where that has to be compiled again: it leaves too little of the
        budget and has to leave more, or what it reads has got another home."""
        version = self.group.layout.version
        try:
            update = self._compile("update", train)
        except OutOfMemoryError as refused:
            if self.options.memory.budget_bytes is None:
                raise
            short = refused.asked_bytes - refused.free_bytes
            self._kept_bytes = max(self._kept_bytes + short, refused.asked_bytes - self.group.layout.bytes)
            return None
        if version == self.group.layout.version:
            return update
        self._kept_bytes = update.arenas[TRANSIENT_ARENA].bytes
        return None

    def _load_update(self) -> Any:
        """Compile `update` behind `train`, and `train` again when that leaves too little room for it."""
        while True:
            train = self.program("train").plan
            update = self._compile_update(train)
            if update is not None:
                return self._load(moved_up(update, train.arenas[TRANSIENT_ARENA].bytes))
            self._programs.pop("train", None)

    def use_plan(self, name: str, plan: Plan) -> None:
        """Run the program `step`, `train` or `eval` by a ready plan, such as one that `plan.serialize.load` read.

        The plan may be of any memory mode. MXNetError when it was made for something else (another program, graph,
        shapes, dtypes, requests, optimizer or device), or does not fit beside what is bound here, in the budgets or on
        the device; nothing has changed then.
        """
        if name not in ("step", "train", "eval"):
            raise MXNetError(f"there is no program {name!r} to use a plan for; choose from step, train, eval")
        if plan.program != name:
            raise MXNetError(f"this plan is one of the program `{plan.program}`, and `{name}` is to use it")
        if self._monitor is not None:
            raise MXNetError("a monitor sees values that a ready plan does not keep; take it away, or compile here")
        expected = fingerprint(self.graph, self._request(name))
        if plan.fingerprint != expected:
            raise MXNetError(f"the plan of `{name}` has the fingerprint {plan.fingerprint}, and here the program has "
                             f"{expected}: graph, shapes, dtypes, requests, optimizer or device differ; compile it "
                             f"here")
        check_budgets(plan, self.options.memory.budget_bytes, self.options.memory.host_budget_bytes)
        self._check_ends(plan)
        if self.options.verify:
            verify(plan, self.group.device.algorithms)
        home = next((arena for arena in plan.arenas if arena.name == HOME), Arena(HOME, "host", 0))
        layout = self.group.layout
        before = dict(vars(layout))
        layout.adopt(persistent_places(plan), plan.arenas[0].bytes, home.bytes, home.space)
        try:
            self._load(plan)
        except MXNetError:
            vars(layout).update(before)
            raise

    def _check_ends(self, plan: Plan) -> None:
        """A ready plan's inputs and outputs are of the types of the graph's; inputs that it adds are its own affair."""
        graph, columns = self.graph, plan.buffers
        variables = {graph.name[i]: graph.first[i] for i in graph.variables()}
        if [out.name for out in plan.outputs] != graph.output_names:
            raise MXNetError(f"the plan of `{plan.program}` has the outputs {[out.name for out in plan.outputs]}, and "
                             f"here they are {graph.output_names}; compile it here")
        ends = [("input", name, b, variables[name]) for name, b in plan.inputs.items() if name in variables]
        ends += [("output", name, b, entry) for (name, b), entry in zip(plan.outputs, graph.outputs, strict=True)]
        for what, name, b, entry in ends:
            wanted = graph.type_of(entry)
            if 0 <= b < len(columns) and (columns.shape[b], columns.dtype[b]) != (wanted.shape, wanted.dtype):
                raise MXNetError(f"the plan of `{plan.program}` has the {what} {name!r} as {columns.dtype[b]} "
                                 f"{columns.shape[b]}, and here it is {wanted.dtype} {wanted.shape}; compile it here")

    def _load(self, plan: Plan) -> Any:
        """Make room for a plan's program and load it."""
        name = plan.program
        self.group.reserve(plan, self.options.memory.budget_bytes)
        self._versions[name] = self.group.layout.version
        self._forms[name] = self._form_of(name)
        self._optional[name] = unread_inputs(plan)
        name_of = {place: argument for argument, place in self._place.items()}
        self._parameters[name] = tuple(name_of[place] for place in plan.parameters)
        program = self._programs[name] = self.group.device.load(
            plan, self.group.memory, poison=self.options.poison, graph=self.options.graph)
        self._bound = None
        return program

    def _compile(self, name: str, train: Plan | None = None) -> Plan:
        """One program; `update` behind the plan of `train`."""
        graph = self.graph
        if self._monitor is not None and name in ("train", "eval"):
            graph, self._sights = with_internals(graph, self._monitor[1])
        request = self._request(name, train)
        try:
            return compile_program(graph, request, self.group.layout)
        except OutOfMemoryError as refused:
            if name != "train" or not self._kept_bytes:
                raise
            asked, budget = refused.asked_bytes + self._kept_bytes, self.options.memory.budget_bytes
            raise OutOfMemoryError(f"training needs {asked} bytes, {self._kept_bytes} of them for the update, and the "
                                   f"budget is {budget}: {refused}", asked, budget or 0) from refused

    def _request(self, name: str, train: Plan | None = None) -> Request:
        options = self.options
        requests = {self._place[arg]: "null" if name in ("step", "update") and arg in self.inputs else request
                    for arg, request in self.requests.items()}
        skip = frozenset(train.without_gradient) if train is not None else frozenset()
        inputs, device = frozenset(self._place[name] for name in self.inputs), self.group.device
        taken = train.arenas[TRANSIENT_ARENA].bytes if train is not None else self._kept_bytes if name == "train" else 0
        memory = vars(options.memory)
        if options.memory.budget_bytes is not None:
            memory = {**memory, "budget_bytes": max(options.memory.budget_bytes - taken, 0)}
        return Request(name, requests, inputs, updater=self._updater, skip=skip, verify=options.verify,
                       algorithms=device.algorithms, fuse=options.fuse, encode=options.encode, fold=options.fold,
                       fuses=device.fuses, layouts=device.layouts, machine=options.machine, profile=options.profile,
                       page_bytes=0 if name == "update" else device.page_bytes, **memory)

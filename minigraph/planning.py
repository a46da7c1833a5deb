"""Plans without executors: what a program of a symbol would take, on any machine, with nothing allocated."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .base import MXNetError, Shape
from .binding import bind_graph, normalise_requests
from .graph import Graph
from .memory.layout import PersistentLayout
from .optimizer import Optimizer, create
from .passes.compilation import MemoryChoice, Request
from .passes.pipeline import compile_program
from .plan.plan import Plan

PROGRAMS = ("step", "train", "eval")
"""Programs that can be planned alone; `update` follows `train`."""
_MOST_BYTES = 2**56
"""Bytes of a symbol's values above which shapes are taken for a slip; sums over a whole step stay within 64 bits."""


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
         host_budget: int | str | None = None, disk: str | None = None, machine: str = "cpu") -> Plan:
    """The verified plan of one program of `symbol` for inputs of these shapes; nothing is allocated.

    `program` is `step` (needs an optimizer), `train` or `eval`; by default `step` with an optimizer and else
    `train`. `optimizer` is an optimizer or its name, with `optimizer_params`. `inputs` are the arguments that are fed
    for every run, which have no gradient; by default those with a shape given, and labels. A policy in `memory` keeps
    within `budget` (bytes, or a text such as "4GiB") by the times of `machine`. The plan is the one that an executor,
    or a Module, bound in the same way has. MXNetError says what is unknown or does not fit.
    """
    prepared = prepare(symbol, shapes, optimizer, program, memory, grad_req=grad_req, dtypes=dtypes, inputs=inputs,
                       optimizer_params=optimizer_params, verify=verify, budget=budget, host_budget=host_budget,
                       disk=disk, machine=machine)
    return compile_program(prepared.graph, prepared.request, prepared.layout)


def prepare(symbol: Any, shapes: Mapping[str, Shape], optimizer: str | Optimizer | None = None,
            program: str | None = None, memory: str | None = None, *, grad_req: Any = "write",
            dtypes: Mapping[str, Any] | None = None, inputs: Iterable[str] | None = None,
            optimizer_params: Mapping[str, Any] | None = None, verify: bool = True, budget: int | str | None = None,
            host_budget: int | str | None = None, disk: str | None = None, machine: str = "cpu") -> Program:
    """What `plan` compiles, for whoever wants to look at each pass; the arguments are those of `plan`."""
    name = program or ("train" if optimizer is None else "step")
    if name not in PROGRAMS:
        raise MXNetError(f"there is no program {name!r} to plan; choose from {', '.join(PROGRAMS)}")
    if name != "step" and optimizer is not None:
        raise MXNetError(f"the program `{name}` updates nothing, so it takes no optimizer; plan `step`, or leave it "
                         f"out")
    updater = _updater(optimizer, optimizer_params) if name == "step" else None
    graph = bind_graph(symbol, shapes, dtypes or {})
    _check_size(graph, shapes)
    arguments = symbol.list_arguments()
    fed = _inputs(arguments, shapes, inputs)
    requests = {argument: "null" if argument in fed else request
                for argument, request in normalise_requests(grad_req, arguments).items()}
    try:
        choice = MemoryChoice.parse(memory, budget, host_budget, disk)
    except ValueError as error:
        raise MXNetError(f"budget or host_budget: {error}") from error
    request = Request(name, requests, fed, updater=updater, verify=verify, machine=machine, **vars(choice))
    return Program(graph, request, _layout(graph, fed))


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


def _check_size(graph: Graph, shapes: Mapping[str, Shape]) -> None:
    total = sum(graph.type_of(entry).nbytes for entry in range(graph.num_entries))
    if total > _MOST_BYTES:
        raise MXNetError(f"with the shapes {dict(shapes)} the symbol's values take {total} bytes, more than the "
                         f"{_MOST_BYTES} that can be planned")


def _inputs(arguments: list[str], shapes: Mapping[str, Shape], inputs: Iterable[str] | None) -> frozenset[str]:
    if inputs is None:
        return frozenset(name for name in arguments if name in shapes or name.endswith("label"))
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

"""Plans without executors: what a program of a symbol would take, on any machine, with nothing allocated."""
from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .base import MXNetError, OutOfMemoryError, Shape
from .binding import bind_graph, device_of, normalise_requests
from .context import cpu
from .device.cpu import CpuDevice
from .device.device import Device
from .device.null import NullDevice
from .graph import Graph
from .memory.layout import PersistentLayout
from .memory.machine import get_machine
from .optimizer import Optimizer, create
from .passes.compilation import MemoryChoice, Request
from .passes.pipeline import compile_program
from .plan.plan import Plan
from .symbol.marks import is_marked

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
    choice = MemoryChoice.parse(memory, budget, host_budget, disk, search, slices, is_marked(symbol))
    device = _device_of(machine)
    request = Request(name, requests, fed, updater=updater, verify=verify, machine=machine, profile=profile,
                      algorithms=device.algorithms, fuse=fuse, encode=encode, fold=fold, fuses=device.fuses,
                      layouts=device.layouts, page_bytes=device.page_bytes, **vars(choice))
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

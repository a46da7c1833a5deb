"""What binding makes: a graph with all shapes known, and what the executors of one model share, which is the arenas,
the persistent layout, the random key, and who ran last.

Handles are the storages behind an executor's NDArrays: they look their bytes up at every access, so they stay right
when an arena grows, and refuse to show bytes that another program has taken.
"""
from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from . import random
from .base import MXNetError, OutOfMemoryError, Shape, TensorType, align, dtype_of, format_bytes
from .breakage import Breakage
from .context import Context
from .device.device import Device, Memory
from .graph import Graph
from .graph.infer import infer_dtypes, infer_shapes
from .memory.layout import GRADIENT, HOME, PERSISTENT, PersistentLayout, Place
from .ndarray import NDArray, register_waiter
from .ops.control import LAST_STEP
from .ops.op import format_shape, is_complete
from .symbol.to_graph import symbol_graph

if TYPE_CHECKING:
    from .plan.plan import Arena, Plan

REQUESTS = ("write", "add", "null")
_MOST_BYTES = 2**56
"""Bytes of a symbol's values above which shapes are taken for a slip; sums over a whole step stay within 64 bits."""


def device_of(context: Context, disk: str | os.PathLike[str] | None = None) -> Device:
    """The device of a context; MXNetError with the reason when it cannot be used. `disk` is a folder for swap files."""
    if context.device_type in ("cpu", "cpu_pinned", "cpu_shared"):
        from .device.cpu import CpuDevice
        return CpuDevice(disk)
    from .device.cuda import cuda_device
    device = cuda_device(context.device_id)
    register_waiter(device)
    return device


class CrowdedError(OutOfMemoryError):
    """There is no room beside a transient arena that is larger than the program needs it."""


class Hold:
    """What keeps the name and the bytes of a persistent tensor: they may become another's once nobody has this.

    `kind` is the type that an executor has bound under the name; a fed input has no bytes, but gradients may have.
    """

    __slots__ = ("kind", "__weakref__")

    def __init__(self) -> None:
        self.kind: TensorType | None = None


class User(Protocol):
    """Who has programs over a group's arenas."""

    def drop_programs(self) -> None:
        """Compile again what runs next."""
        ...


class Group:
    """One persistent and one transient arena, and the programs over them.

    A persistent tensor has bytes for as long as an executor or a handle holds its name (`hold`).
    `turn` names the program and range that ran last, so that results which others have overwritten are refused.
    `disk` is the folder in which the CPU makes swap files. With `waits` persistent values wait in host memory until
    the first program is loaded: only then is it known which of them are at home on the device. `running` is held while
    one of the programs runs, so that no other thread starts one over the same bytes.
    """

    def __init__(self, context: Context, disk: str | os.PathLike[str] | None = None, waits: bool = False) -> None:
        if not isinstance(context, Context):
            raise MXNetError(f"ctx={context!r} is no context; give mx.cpu() or mx.gpu(0)")
        self.context = context
        self.device = device_of(context, disk)
        self.memory: Memory = self.device.memory()
        self.layout = PersistentLayout()
        self.transient_bytes = 0
        self._page_bytes = 0
        self._waiting: dict[str, np.ndarray] | None = {} if waits else None
        self._placed: dict[str, Place] = {}
        self._holds: weakref.WeakValueDictionary[str, Hold] = weakref.WeakValueDictionary()
        self._version = 0
        self._reached = {PERSISTENT: 0, HOME: 0}
        """Bytes of both arenas that tensors have had."""
        self.users: weakref.WeakSet[User] = weakref.WeakSet()
        self.turn: tuple[object, str] | None = None
        self.breakage = Breakage()
        self.unsettled: Callable[[], None] | None = None
        """What the last update still has to be asked, before another one runs."""
        self.running = threading.Lock()
        self.python_objects: dict[tuple, Any] = {}
        """What computes in operators of Python, kept from run to run."""
        self._step = 0
        self._generator: object = None

    def reserve(self, plan: Plan, budget_bytes: int | None = None) -> None:
        """Make room for a program. Outputs do not outlive a transient arena that grows, or tries to.

        OutOfMemoryError before anything is allocated when both arenas would pass the budget.
        """
        transient_bytes = max(plan.arenas[1].bytes, self.transient_bytes)
        needed = self.layout.bytes + transient_bytes
        if budget_bytes is not None and needed > budget_bytes:
            raise (CrowdedError if self.transient_bytes > plan.arenas[1].bytes else OutOfMemoryError)(
                f"with `{plan.program}`, the programs bound here need {needed} bytes ({format_bytes(needed)}), "
                f"{self.layout.bytes} of them for parameters, states and gradients; the budget is {budget_bytes} "
                f"bytes ({format_bytes(budget_bytes)})", needed, budget_bytes)
        page_bytes = max(plan.page_bytes, self._page_bytes)
        if (transient_bytes, page_bytes) != (self.transient_bytes, self._page_bytes) \
                or self._version != self.layout.version:
            self.turn = None
        self._settle(transient_bytes, page_bytes)
        self.transient_bytes, self._page_bytes = transient_bytes, page_bytes

    def hold(self, name: str) -> Hold:
        """What to keep for as long as the name and the bytes of a persistent tensor are needed, or will be."""
        return self._holds.get(name) or self._holds.setdefault(name, Hold())

    def types_under(self, name: str) -> list[tuple[Shape, np.dtype]]:
        """Shapes and dtypes of what is bound under an argument's name, or lies there, or is its gradient."""
        places = [self.layout.places[each] for each in (name, f"{name}{GRADIENT}") if each in self.layout.places]
        hold = self._holds.get(name)
        bound = [(hold.kind.shape, hold.kind.dtype)] if hold is not None and hold.kind is not None else []
        return [*bound, *((place.shape, place.dtype) for place in places)]

    def hold_at(self, arena: str, offset: int) -> Hold | None:
        """As `hold`, for the tensor that lies at a byte of an arena; None where no persistent one does."""
        if arena not in (PERSISTENT, HOME):
            return None
        return next((self.hold(name) for name, place in self.layout.places.items()
                     if place.arena == arena and place.offset <= offset < place.offset + max(place.nbytes, 1)), None)

    def release_unheld(self) -> None:
        """Let go of the bytes of all tensors that nobody holds."""
        for name in self.layout.remove_unheld(self._holds):
            self._placed.pop(name, None)
            if self._waiting is not None:
                self._waiting.pop(name, None)

    def tidy(self) -> None:
        """Let go of what nobody holds, and close the gaps where arenas would grow although a third of them are gaps.

        An arena that does not grow keeps its gaps: what lay there may well come again, as with batches of many sizes.
        """
        self.release_unheld()
        layout = self.layout
        grows = layout.bytes > self._reached[PERSISTENT] or layout.home_bytes > self._reached[HOME]
        if grows and layout.is_sparse:
            self.shrink()

    def shrink(self) -> None:
        """Move persistent tensors together where others lay before, and give the transient arena back.

        All programs must be compiled again, those of other executors too when they run next, and the outputs of the
        last run are gone.
        """
        self.layout.place_again()
        self.transient_bytes = self._page_bytes = 0
        self.turn = None
        for user in list(self.users):
            user.drop_programs()

    def settle(self) -> None:
        """Let whoever made the last update take note of its outcome."""
        unsettled, self.unsettled = self.unsettled, None
        if unsettled is not None:
            unsettled()

    def read(self, name: str) -> np.ndarray:
        """The present value of a persistent tensor, perhaps a live view."""
        place = self.layout.places[name]
        if self._waiting is None:
            self._settle(self.transient_bytes, self._page_bytes)
            return self.memory.read(place.arena, place.offset, place.shape, place.dtype)
        if name not in self._waiting:
            self._waiting[name] = np.zeros(place.shape, place.dtype)
        return self._waiting[name]

    def write(self, name: str, value: np.ndarray) -> None:
        """Replace the value of a persistent tensor."""
        place = self.layout.places[name]
        if self._waiting is None:
            self._settle(self.transient_bytes, self._page_bytes)
            self.memory.write(place.arena, place.offset, np.ascontiguousarray(value, place.dtype))
        else:
            self._waiting[name] = np.array(value, place.dtype)

    def _settle(self, transient_bytes: int, page_bytes: int) -> None:
        """Make room for all persistent tensors and so many transient bytes, in pages that can be mapped where programs
        ask for it, and move what has got another home.

        Values wait in host memory until there is room, also after an error that says that there is none.
        """
        layout = self.layout
        if self._version != layout.version:
            values = {name: np.array(self.memory.read(place.arena, place.offset, place.shape, place.dtype))
                      for name, place in self._placed.items()}
            self._waiting = {**values, **(self._waiting or {})}
            self._version, self._placed = layout.version, {}
            self._reached = {PERSISTENT: 0, HOME: 0}
            self.memory.forget()
        if layout.home_bytes:
            self.memory.reserve_space(HOME, layout.space, layout.home_bytes)
        self.memory.reserve(layout.bytes, transient_bytes, page_bytes)
        if len(self._placed) != len(layout.places):
            for place in (place for name, place in layout.places.items() if name not in self._placed):
                if place.offset < self._reached[place.arena]:
                    self.memory.clear(place.arena, place.offset, align(place.nbytes))
            self._placed = dict(layout.places)
        self._reached = {PERSISTENT: layout.bytes, HOME: layout.home_bytes}
        waiting, self._waiting = self._waiting, None
        for name, value in (waiting or {}).items():
            self.write(name, value)

    @property
    def random_step(self) -> int:
        """The number that the next training step has for random operators."""
        return self._step if self._generator is random.generator() else 0

    def resume_at(self, random_step: int) -> None:
        """Number the training steps that follow from `random_step`, as if the ones before had run here."""
        self._generator, self._step = random.generator(), random_step

    def next_key(self, is_train: bool = True) -> tuple[int, int]:
        """(seed, step) of the next training step; seeding anew starts the steps again.

        Evaluations have steps of their own, counted down from the last one, so that they change no training step.
        """
        if not is_train:
            return random.current_seed(), LAST_STEP - random.next_evaluation()
        if self._generator is not random.generator():
            self._generator, self._step = random.generator(), 0
        self._step += 1
        return random.current_seed(), self._step - 1


class PersistentStorage:
    """A parameter, state or gradient in its place of the persistent arena."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name
        self._hold = group.hold(name)

    @property
    def shape(self) -> Shape:
        """Logical shape."""
        return self.group.layout.places[self.name].shape

    @property
    def dtype(self) -> np.dtype:
        """Element type."""
        return self.group.layout.places[self.name].dtype

    @property
    def context(self) -> Context:
        """Where it lives."""
        return self.group.context

    def read(self) -> np.ndarray:
        """The present value, perhaps a live view."""
        return self.group.read(self.name)

    def write(self, value: np.ndarray) -> None:
        """Replace the value. Parameters set anew make a group usable again after a step that broke off."""
        self.group.write(self.name, value)


class OutputStorage:
    """Output number `position` in the transient arena or a mapped one, readable until another program runs."""

    def __init__(self, group: Group, owner: object, plan: Plan, position: int) -> None:
        self.group, self.owner, self.plan = group, owner, plan
        self.name, buffer = plan.outputs[position]
        columns = plan.buffers
        self.shape: Shape = columns.shape[buffer]
        self.dtype = columns.dtype[buffer]
        self.context = group.context
        self._arena, self._offset = plan.arenas[columns.arena[buffer]].name, columns.offset[buffer]
        self._hold = group.hold_at(self._arena, self._offset)

    def read(self) -> np.ndarray:
        """The value; MXNetError when another program has run since."""
        turn = self.group.turn
        if turn is None or turn[0] is not self.owner:
            raise MXNetError(f"output {self.name} of the program `{self.plan.program}` is gone: another program has "
                             f"run or was prepared since; take asnumpy() or copy() of an output before that")
        return self.group.memory.read(self._arena, self._offset, self.shape, self.dtype)

    def write(self, value: np.ndarray) -> None:
        """Replace the value that the outside sees; the program does not look at it again."""
        self.read()
        self.group.memory.write(self._arena, self._offset, np.ascontiguousarray(value, self.dtype))


class AwaitedOutput:
    """An output before the first run: its shape and type are known, and it is read as soon as there is one.

    `present` gives the outputs of the last run, or raises MXNetError while there was none.
    """

    def __init__(self, kind: TensorType, context: Context, present: Callable[[], NDArray]) -> None:
        self.shape, self.dtype, self.context = kind.shape, kind.dtype, context
        self._present = present

    def read(self) -> np.ndarray:
        """The value of the last run; MXNetError while there was none."""
        return self._present().storage.read()

    def write(self, value: np.ndarray) -> None:
        """Replace the value of the last run."""
        self._present().storage.write(value)


def bind_graph(symbol: Any, shapes: Mapping[str, Shape], dtypes: Mapping[str, Any]) -> Graph:
    """The symbol's graph with every shape and dtype known; MXNetError names what is unknown or not an argument."""
    graph = symbol_graph(symbol)
    variables = {graph.name[i]: graph.first[i] for i in graph.variables()}
    for name in (*shapes, *dtypes):
        if name not in variables:
            raise MXNetError(f"{name!r} is no argument of the symbol; its arguments are {', '.join(variables)}")
    for name, shape in shapes.items():
        graph.shape[variables[name]] = _as_shape(name, shape)
    for name, dtype in dtypes.items():
        graph.dtype[variables[name]] = dtype_of(dtype)
    infer_shapes(graph)
    infer_dtypes(graph, np.dtype(np.float32))
    unknown = [f"{name} {format_shape(graph.shape[e])}" for name, e in variables.items()
               if not is_complete(graph.shape[e])]
    if unknown:
        raise MXNetError(f"cannot bind: the shapes given ({dict(shapes)}) leave these unknown: {', '.join(unknown)}; "
                         f"give the shapes of the inputs")
    open_ = [f"{graph.entry_name(e)} {format_shape(graph.shape[e])}" for e in range(graph.num_entries)
             if not is_complete(graph.shape[e])]
    if open_:
        raise MXNetError(f"cannot bind: no input decides these shapes: {', '.join(open_[:4])}; give their operators "
                         f"whole shapes, without 0, or combine them with what has the shape")
    sizes = [graph.type_of(entry).nbytes for entry in range(graph.num_entries)]
    if sum(sizes) > _MOST_BYTES:
        largest = sizes.index(max(sizes))
        raise MXNetError(f"with the shapes {dict(shapes)} the symbol's values take {sum(sizes)} bytes, more than the "
                         f"{_MOST_BYTES} that can be planned; {graph.entry_name(largest)} of shape "
                         f"{format_shape(graph.shape[largest])} takes most")
    return graph


def normalise_requests(grad_req: str | Sequence[str] | Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """A request for every argument from one word, a list in order, or a dict (missing names get null)."""
    if isinstance(grad_req, str):
        requests = dict.fromkeys(names, grad_req)
    elif isinstance(grad_req, Mapping):
        unknown = [name for name in grad_req if name not in names]
        if unknown:
            raise MXNetError(f"grad_req names {unknown[0]!r}, which is no argument; they are {', '.join(names)}")
        requests = {name: grad_req.get(name, "null") for name in names}
    else:
        if not isinstance(grad_req, (list, tuple)):
            raise MXNetError(f"grad_req={grad_req!r} must be write, add or null, a list of these, or a dict by "
                             f"argument")
        if len(grad_req) != len(names):
            raise MXNetError(f"grad_req has {len(grad_req)} words for {len(names)} arguments; give one for each")
        requests = dict(zip(names, grad_req, strict=True))
    for name, request in requests.items():
        if request not in REQUESTS:
            raise MXNetError(f"grad_req of {name} is {request!r}; it must be write, add or null")
    return requests


def _as_shape(name: str, value: Any) -> Shape:
    dimensions = value if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(d, (int, np.integer)) and d >= 0 for d in dimensions):
        raise MXNetError(f"the shape of {name} is {value!r}; its dimensions must be whole numbers of 0 or more")
    return tuple(int(d) for d in dimensions)


def unread_inputs(plan: Plan) -> frozenset[str]:
    """Inputs of which the program reads the shape at most, such as labels in evaluation."""
    code = plan.instructions
    read = {buffer for reads, unread in zip(code.reads, code.unread, strict=True)
            for k, buffer in enumerate(reads) if k not in unread}
    return frozenset(name for name, buffer in plan.inputs.items() if buffer not in read)


def moved_up(plan: Plan, nbytes: int) -> Plan:
    """The plan with its transient buffers `nbytes` (a multiple of the alignment) higher in the arena.

    Where it maps pages, all moves up by whole pages: `nbytes` or the next multiple of theirs.
    """
    nbytes = -(-nbytes // max(plan.page_bytes, 1)) * max(plan.page_bytes, 1)
    transient = next(k for k, arena in enumerate(plan.arenas) if arena.name == "transient")
    columns = plan.buffers
    offsets = [offset + nbytes * (arena == transient)
               for offset, arena in zip(columns.offset, columns.arena, strict=True)]
    arenas = [replace(arena, bytes=arena.bytes + nbytes * (k == transient)) for k, arena in enumerate(plan.arenas)]
    return replace(plan, arenas=tuple(_shown_higher(arena, nbytes) if arena.space == "mapped" else arena
                                      for arena in arenas), buffers=replace(columns, offset=offsets))


def _shown_higher(arena: Arena, nbytes: int) -> Arena:
    """A mapped arena that shows pages `nbytes` higher in the transient one, by the name that belongs to those."""
    return replace(arena, name=f"{arena.name}+{nbytes}",
                   extents=tuple(extent._replace(offset=extent.offset + nbytes) for extent in arena.extents))


def persistent_places(plan: Plan) -> dict[str, Place]:
    """Where a plan has its persistent tensors, in the plan's order."""
    columns = plan.buffers
    return {tensor.name: Place(columns.offset[b], columns.shape[b], columns.dtype[b], columns.buffer_class[b],
                               plan.arenas[columns.arena[b]].name)
            for tensor in plan.persistent for b in (tensor.first,)}


def check_budgets(plan: Plan, budget_bytes: int | None, host_budget_bytes: int) -> None:
    """OutOfMemoryError when a ready plan takes more than the budgets of the executor that is to use it."""
    swapped = plan.arena_bytes("host") + plan.arena_bytes("file")
    for needed, allowed, what in ((plan.planned_bytes, budget_bytes, "budget"),
                                  (swapped, host_budget_bytes, "host_budget")):
        if allowed is not None and needed > allowed:
            raise OutOfMemoryError(f"the plan of `{plan.program}` takes {needed} bytes ({format_bytes(needed)}) of the "
                                   f"{what}, which is {allowed} bytes here; give more, or a plan that takes less",
                                   needed, allowed)

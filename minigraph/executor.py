"""The executor: a symbol bound to shapes and a device, with its programs compiled when they are first needed.

Three programs serve one bound symbol, over the same persistent arena: `step` (forward, backward and update as one),
`train` (forward | backward, with visible gradients) and `eval`; `update` applies an optimizer to visible gradients.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .base import MXNetError, Shape, TensorType
from .binding import (
    Group,
    OutputStorage,
    PersistentStorage,
    bind_graph,
    moved_up,
    normalise_requests,
    unread_inputs,
)
from .context import Context, current_context
from .ndarray import NDArray
from .ops.control import set_key
from .passes.compilation import CONTROL, Request, Updater, gradient_name, head_gradient_name, state_name
from .passes.pipeline import compile_program
from .plan.plan import Plan


class Executor:
    """See MXNet's Executor; `inputs` are arguments that are fed anew for every run and not kept.

    `memory` is a memory mode, `verify=False` skips the plan's proof, `poison=True` runs with NaN in all bytes that
    nobody may read. `shared` is an executor whose arenas and parameters are used as well; arguments in `own` (by
    default those whose shapes are given) may differ from its arguments in shape, and then get bytes of their own.
    """

    def __init__(self, symbol: Any, context: Context | None, shapes: Mapping[str, Shape], *,
                 grad_req: str | Sequence[str] | Mapping[str, str] = "write",
                 dtypes: Mapping[str, Any] | None = None, inputs: Sequence[str] = (), memory: str = "plain",
                 shared: Executor | None = None, own: Collection[str] | None = None, verify: bool = True,
                 poison: bool = False) -> None:
        self._symbol = symbol
        self._dtypes = dict(dtypes or {})
        self.graph = bind_graph(symbol, shapes, self._dtypes)
        self.arg_names: list[str] = symbol.list_arguments()
        self.aux_names: list[str] = symbol.list_auxiliary_states()
        self.output_names: list[str] = symbol.list_outputs()
        self.requests = normalise_requests(grad_req, self.arg_names)
        self.inputs = frozenset(inputs)
        self.memory = memory
        self.group: Group = shared.group if shared is not None else Group(context or current_context())
        self.context = self.group.context
        self._verify, self._poison = verify, poison
        self._programs: dict[str, Any] = {}
        self._optional: dict[str, frozenset[str]] = {}
        self._parameters: dict[str, tuple[str, ...]] = {}
        self._updater: Updater | None = None
        self._feeds: dict[str, np.ndarray] = {}
        self._current: str | None = None
        self._key = (0, 0)
        self._types = {self.graph.name[i]: self.graph.type_of(self.graph.first[i]) for i in self.graph.variables()}
        self._place = self._place_names(set(shapes if own is None else own))
        self._declare()

    # -- arrays --------------------------------------------------------------------------------------------------
    @property
    def arg_dict(self) -> dict[str, NDArray]:
        """Arguments by name; those fed for every run are not kept and not listed."""
        return {name: self._handle(self._place[name]) for name in self.arg_names if name not in self.inputs}

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        """Auxiliary states by name."""
        return {name: self._handle(self._place[name]) for name in self.aux_names}

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        """Visible gradients by argument; None where none is asked for."""
        return {name: self._handle(gradient_name(self._place[name])) if self.requests[name] != "null" else None
                for name in self.arg_names if name not in self.inputs or self.requests[name] != "null"}

    @property
    def arg_arrays(self) -> list[NDArray]:
        """Arguments in order."""
        return list(self.arg_dict.values())

    @property
    def grad_arrays(self) -> list[NDArray | None]:
        """Gradients in the order of the arguments."""
        return list(self.grad_dict.values())

    @property
    def aux_arrays(self) -> list[NDArray]:
        """Auxiliary states in order."""
        return list(self.aux_dict.values())

    @property
    def states(self) -> dict[str, tuple[NDArray, ...]]:
        """The optimizer's states by parameter, in the order of its `state_names`; none without an optimizer."""
        suffixes = self._updater.state_names() if self._updater is not None else ()
        if not suffixes:
            return {}
        adds = "add" in self.requests.values()
        plan = self.program("update" if adds or "update" in self._programs else "step").plan
        updated = set(plan.parameters).difference(plan.without_gradient)
        return {name: tuple(self._handle(state_name(place, suffix)) for suffix in suffixes)
                for name, place in self._place.items() if place in updated}

    @property
    def output_types(self) -> dict[str, TensorType]:
        """Shapes and dtypes of the outputs by name."""
        graph = self.graph
        return dict(zip(graph.output_names, map(graph.type_of, graph.outputs), strict=True))

    @property
    def outputs(self) -> list[NDArray]:
        """Outputs of the last run, valid until another program runs."""
        if self._current is None:
            raise MXNetError("there are no outputs yet; call forward first")
        program = self._programs[self._current]
        return [NDArray(OutputStorage(self.group, program, program.plan, name)) for name in self.output_names]

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs of the last run by name."""
        return dict(zip(self.output_names, self.outputs, strict=True))

    @property
    def plan(self) -> Plan:
        """The plan of the program that ran last, or else of the one that training would use."""
        return self.program(self._current or ("step" if self._updater is not None else "train")).plan

    # -- running -------------------------------------------------------------------------------------------------
    def forward(self, is_train: bool = False, **feeds: Any) -> list[NDArray]:
        """Run forward and return the outputs. Keywords set arguments before: (NDArray or array of the bound shape)."""
        name = "train" if is_train else "eval"
        self._feed(feeds)
        if is_train:
            self._key = self.group.next_key()
            if self._updater is not None:
                self.program("update")  # room for it now, so that outputs do not move when it comes
        self._run(name, "forward" if is_train else "eval", np.empty(0, np.float32))
        return self.outputs

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Run backward; `out_grads` (an array, a list, or a dict by output name) for outputs that are no losses."""
        if not is_train:
            raise MXNetError("backward(is_train=False) is not supported; backward follows forward(is_train=True)")
        program = self._programs.get("train")
        if program is None or self.group.turn != (program, "forward"):
            raise MXNetError("backward needs the values of the forward(is_train=True) just before it; nothing else, no "
                             "evaluation and no other executor of the group, may run in between")
        self._write_head_gradients(program, out_grads)
        self._run("train", "backward", None)

    def step(self, control: Callable[[Sequence[str]], np.ndarray], **feeds: Any) -> list[NDArray]:
        """Forward, backward and update in one run. `control(parameters)` gives the control buffer's values."""
        plan = self.program("step").plan
        headless = [name for name in self.output_names if head_gradient_name(name) in plan.inputs]
        if headless:
            raise MXNetError(f"output {headless[0]} is no loss, so a whole step has no head gradient for it; wrap "
                             f"it in MakeLoss or BlockGrad, or use forward, backward(out_grads) and update")
        self._feed(feeds)
        self._key = self.group.next_key()
        self._run("step", "step", control(self._parameters["step"]))
        return self.outputs

    def update(self, control: Callable[[Sequence[str]], np.ndarray]) -> None:
        """Apply the optimizer to the visible gradients; outputs of the training run before stay readable."""
        self.program("update")
        self._run("update", "update", control(self._parameters["update"]))

    def set_updater(self, updater: Updater | None) -> None:
        """Choose the optimizer of `step` and `update`."""
        self._updater = updater
        for name in ("step", "update"):
            self._programs.pop(name, None)

    def clear_states(self) -> None:
        """Make the optimizer's states zero, as far as there are any yet."""
        suffixes = self._updater.state_names() if self._updater is not None else ()
        for name in (state_name(self._place[arg], suffix) for arg in self.arg_names for suffix in suffixes):
            if name in self.group.layout.places:
                self._handle(name)[:] = 0

    def program(self, name: str) -> Any:
        """The loaded program of that name, compiled on first use."""
        program = self._programs.get(name)
        if program is None:
            plan = self._compile(name)
            self.group.reserve(plan)
            self._optional[name] = unread_inputs(plan)
            name_of = {place: argument for argument, place in self._place.items()}
            self._parameters[name] = tuple(name_of[place] for place in plan.parameters)
            program = self._programs[name] = self.group.device.load(plan, self.group.memory, poison=self._poison)
        return program

    def _compile(self, name: str) -> Plan:
        """The plan of a program. That of `update` lies above the bytes of `train`, whose outputs are still read."""
        train = self.program("train").plan if name == "update" else None
        requests = {self._place[arg]: "null" if name in ("step", "update") and arg in self.inputs else request
                    for arg, request in self.requests.items()}
        skip = frozenset(train.without_gradient) if train is not None else frozenset()
        inputs = frozenset(self._place[name] for name in self.inputs)
        request = Request(name, requests, inputs, self.memory, self._updater, skip, self._verify)
        plan = compile_program(self.graph, request, self.group.layout)
        return plan if train is None else moved_up(plan, train.arenas[1].bytes)

    def copy_params_from(self, arg_params: Mapping[str, Any], aux_params: Mapping[str, Any] | None = None,
                         allow_extra_params: bool = False) -> None:
        """Set arguments and auxiliary states by name; unknown names raise unless allowed."""
        for given, known, what in ((arg_params, self.arg_dict, "arguments"),
                                   (aux_params or {}, self.aux_dict, "states")):
            for name, value in given.items():
                if name in known:
                    known[name][:] = value
                elif not allow_extra_params:
                    raise ValueError(f"{name!r} is none of the {what}: {', '.join(known)}")
        self.group.broken = None

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **shapes: Shape) -> Executor:
        """An executor for other input shapes over the same parameters and arenas.

        Arguments whose shapes are not given must keep them, unless `partial_shaping`.
        """
        executor = Executor(self._symbol, None, shapes, grad_req=self.requests, dtypes=self._dtypes,
                            inputs=tuple(self.inputs), memory=self.memory, shared=self, verify=self._verify,
                            own=self.arg_names if partial_shaping else None, poison=self._poison)
        executor.set_updater(self._updater)
        return executor

    # -- inside --------------------------------------------------------------------------------------------------
    def _place_names(self, own: set[str]) -> dict[str, str]:
        """The name of each variable in the layout: its own, unless the group holds something else under it."""
        taken, graph = self.group.layout.places, self.graph
        result = {}
        for i in graph.variables():
            name = result[graph.name[i]] = graph.name[i]
            kind = self._types[name]
            held = [taken[each] for each in (name, gradient_name(name)) if each in taken]
            if name in own and any((place.shape, place.dtype) != (kind.shape, kind.dtype) for place in held):
                result[name] = graph.name[i] = f"{name}{kind.shape}{kind.dtype}"
        return result

    def _declare(self) -> None:
        """Give every kept argument, auxiliary state and visible gradient its place and its handle."""
        auxiliary = set(self.aux_names)
        for name, place in self._place.items():
            kind = self._types[name]
            if gradient_name(name) in self._place:
                raise MXNetError(f"{gradient_name(name)} is an argument, and also the name of the gradient of {name}; "
                                 f"rename one of the two variables")
            if name in auxiliary:
                self.group.layout.declare(place, kind.shape, kind.dtype, "auxiliary")
            elif name not in self.inputs:
                self.group.layout.declare(place, kind.shape, kind.dtype, "parameter")

    def _handle(self, name: str) -> NDArray:
        if name not in self.group.layout.places:
            self.program("train")
        if name not in self.group.layout.places:
            raise MXNetError(f"{name} has no bytes: no output of this symbol depends on it")
        return NDArray(PersistentStorage(self.group, name))

    def _feed(self, feeds: Mapping[str, Any]) -> None:
        for name, value in feeds.items():
            expected = self._types.get(name)
            if expected is None or name in self.aux_names:
                raise TypeError(f"Unknown argument {name}")
            array = value.storage.read() if isinstance(value, NDArray) else np.asarray(value)
            if array.shape != expected.shape:
                raise ValueError(f"Shape not match! Argument {name}, need: {expected.shape}, received: {array.shape}")
            if name in self.inputs:
                self._feeds[self._place[name]] = array
            else:
                self._handle(self._place[name]).storage.write(np.asarray(array, expected.dtype))

    def _run(self, name: str, part: str, control: np.ndarray | None) -> None:
        group = self.group
        if group.broken is not None:
            raise MXNetError(f"a run broke off before ({group.broken}), so states may be half updated; set the "
                             f"parameters again (copy_params_from, set_params or load) and go on")
        program = self.program(name)
        if control is not None:
            self._write_inputs(program, control)
        if name != "update":
            group.turn, self._current = (program, part), name
        elif group.turn is not None:
            keeps_outputs = group.turn[0] is self._programs["train"]
            group.turn = (group.turn[0] if keeps_outputs else program, part)
        try:
            program.run(part)
        except BaseException as error:
            group.broken = f"{type(error).__name__} in `{name}`"
            group.turn = None
            raise

    def _write_inputs(self, program: Any, control: np.ndarray) -> None:
        for name, buffer in program.plan.inputs.items():
            if name == CONTROL:
                words = np.zeros(program.plan.buffers.shape[buffer], np.float32)
                words[:control.size] = control
                set_key(words, *self._key)
                self._write(program.plan, buffer, words)
            elif name in self._feeds:
                self._write(program.plan, buffer, self._feeds[name])
            elif name in map(self._place.get, self.inputs) and name not in self._optional[program.plan.program]:
                raise MXNetError(f"input {name} was not given; pass {name}= to forward or step")
        self._feeds.clear()

    def _write_head_gradients(self, program: Any, out_grads: Any) -> None:
        given = self._head_gradients(out_grads)
        for name in self.output_names:
            buffer = program.plan.inputs.get(head_gradient_name(name))
            if buffer is None:
                continue
            if given.get(name) is None:
                raise MXNetError(f"output {name} is no loss, so backward needs its head gradient: pass "
                                 f"out_grads with an array of shape {program.plan.buffers.shape[buffer]} for it, or "
                                 f"wrap the output in MakeLoss or BlockGrad")
            value = given[name]
            array = value.storage.read() if isinstance(value, NDArray) else np.asarray(value)
            if array.shape != program.plan.buffers.shape[buffer]:
                raise ValueError(f"the head gradient of {name} has shape {array.shape}, the output has "
                                 f"{program.plan.buffers.shape[buffer]}")
            self._write(program.plan, buffer, array)

    def _head_gradients(self, out_grads: Any) -> dict[str, Any]:
        if out_grads is None:
            return {}
        if isinstance(out_grads, Mapping):
            unknown = [name for name in out_grads if name not in self.output_names]
            if unknown:
                raise MXNetError(f"out_grads names {unknown[0]!r}, the outputs are {', '.join(self.output_names)}")
            return dict(out_grads)
        values = list(out_grads) if isinstance(out_grads, (list, tuple)) else [out_grads]
        if len(values) != len(self.output_names):
            raise MXNetError(f"out_grads has {len(values)} arrays for {len(self.output_names)} outputs "
                             f"({', '.join(self.output_names)}); give one for each, None for losses")
        return dict(zip(self.output_names, values, strict=True))

    def _write(self, plan: Plan, buffer: int, value: np.ndarray) -> None:
        columns = plan.buffers
        self.group.memory.write("transient", columns.offset[buffer],
                                np.ascontiguousarray(value, columns.dtype[buffer]))


def simple_bind(symbol: Any, ctx: Context | None, grad_req: Any, type_dict: Mapping[str, Any] | None,
                shapes: Mapping[str, Shape], shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with arrays of the executor's own, all zero; unknown shapes are inferred from `shapes`."""
    return Executor(symbol, ctx, shapes, grad_req=grad_req, dtypes=type_dict, shared=shared_exec, **options)


def bind(symbol: Any, ctx: Context | None, args: Any, args_grad: Any, grad_req: Any, aux_states: Any,
         shared_exec: Executor | None = None, **options: Any) -> Executor:
    """Bind with the user's arrays: NDArrays become handles to the executor's memory with their contents kept."""
    names, auxiliary = symbol.list_arguments(), symbol.list_auxiliary_states()
    arguments = _by_name(args, names, "args", required=True)
    gradients = _by_name(args_grad, names, "args_grad", required=False)
    states = _by_name(aux_states, auxiliary, "aux_states", required=True)
    requests = {name: request if gradients.get(name) is not None else "null"
                for name, request in normalise_requests(grad_req, names).items()}
    given = {**arguments, **states}
    executor = Executor(symbol, ctx, {name: np.shape(value) for name, value in given.items()}, grad_req=requests,
                        dtypes={name: value.dtype for name, value in given.items()}, shared=shared_exec, **options)
    for name, value in {**executor.arg_dict, **executor.aux_dict}.items():
        _adopt(given[name], value, name)
    for name, handle in executor.grad_dict.items():
        if handle is not None:
            _adopt(gradients[name], handle, f"the gradient of {name}")
    return executor


def _by_name(values: Any, names: Sequence[str], what: str, required: bool) -> dict[str, Any]:
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        if len(values) != len(names):
            raise MXNetError(f"{what} has {len(values)} arrays for {len(names)} names ({', '.join(names)})")
        values = dict(zip(names, values, strict=True))
    unknown = [name for name in values if name not in names]
    missing = [name for name in names if required and values.get(name) is None]
    if unknown or missing:
        raise MXNetError(f"{what}: " + (f"{', '.join(unknown)} unknown; " if unknown else "")
                         + (f"{', '.join(missing)} missing; " if missing else "") + f"expected {', '.join(names)}")
    return dict(values)


def _adopt(value: Any, handle: NDArray, name: str) -> None:
    """Copy a user's array into the arena and, when it is an NDArray, make it a handle to that place."""
    if np.shape(value) != handle.shape:
        raise MXNetError(f"{name} has shape {np.shape(value)}, the symbol needs {handle.shape}")
    handle[:] = value
    if isinstance(value, NDArray):
        value.storage = handle.storage

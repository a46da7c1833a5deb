"""The executor: a symbol bound to shapes and a device, with its programs compiled when they are first needed.

Three programs serve one bound symbol, over the same persistent arena: `step` (forward, backward and update as one),
`train` (forward | backward, with visible gradients) and `eval`; `update` applies an optimizer to visible gradients.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .base import MXNetError, Shape
from .binding import (
    AwaitedOutput,
    Group,
    OutputStorage,
)
from .bound import distinct, repeated_name
from .breakage import STATES
from .comparison import Comparison, Trial, check_modes
from .context import Context, current_context
from .inspection import NonFinite, find_nonfinite, gradient_sights, tell
from .ndarray import HostStorage, NDArray
from .ops.control import scale_words, set_key
from .ops.python_op import kept_in
from .passes.compilation import (
    CONTROL,
    UNSCALE,
    MemoryChoice,
    Updater,
    head_gradient_name,
    state_name,
)
from .plan.plan import Plan
from .profiling import Trace, profile, recorder
from .programs import MonitorCallback, Options, Programs
from .symbol.marks import is_marked

Control = Callable[[], np.ndarray]
"""Gives the scalars of the run that is about to begin."""


def _no_words() -> np.ndarray:
    """The scalars of a program that reads none but the random key."""
    return np.empty(0, np.float32)


class Executor(Programs):
    """See MXNet's Executor; `inputs` are arguments that are fed anew for every run and not kept.

    `memory` is a memory mode or a policy: `plain` without a budget, `auto` with one, and for a symbol that is marked
    with `force_mirroring` `mirror`, which runs again in backward what the marks say. `budget`, in bytes or as "2GiB",
    bounds the persistent and the transient arena together: a program that cannot keep it is refused before anything
    runs, with an OutOfMemoryError that names the least it needs. Policies that swap may use `host_budget` bytes of
    host memory (none by default), or of a file in the folder `disk` (as much as they like by default). `machine`
    is the model whose times a policy weighs, a name or a machine file; `profile` is a file of measured times that
    replace its own (`minigraph.measure`). `search="full"` lets `auto` weigh the schedules of every policy. `slices`
    cuts the batch into about so many slices, each of which runs through chains of operators alone; `auto` does so by
    itself where a budget asks for it.
    `verify=False` skips the plan's proof, `fuse=False` lets every operator run by itself, `encode=False` keeps whole
    values where backward needs only a sign, or where a maximum was, `fold=True` puts normalisations into the weights
    before them in evaluation (which rounds otherwise), `poison=True` runs with NaN in all bytes that nobody may read
    and has a GPU raise for an id or label out of range, as the CPU always does, and wait for the end of each run,
    `graph=True` replays each program as one CUDA graph (on a GPU only). `shared` is an executor whose arenas and
    parameters are used as well; arguments in `own` (by default those whose shapes are given) may differ from its
    arguments in shape, and then get bytes of their own.
    """

    def __init__(self, symbol: Any, context: Context | None, shapes: Mapping[str, Shape], *,
                 grad_req: str | Sequence[str] | Mapping[str, str] = "write",
                 dtypes: Mapping[str, Any] | None = None, inputs: Sequence[str] = (), memory: str | None = None,
                 budget: int | str | None = None, host_budget: int | str | None = None,
                 disk: str | None = None, machine: str = "cpu", profile: str | None = None,
                 search: str = "default", slices: int = 1, shared: Executor | None = None,
                 own: Collection[str] | None = None, verify: bool = True, fuse: bool = True, encode: bool = True,
                 fold: bool = False, poison: bool = False, graph: bool = False) -> None:
        choice = MemoryChoice.parse(memory, budget, host_budget, disk, search, slices, is_marked(symbol))
        group = shared.group if shared is not None else \
            Group(context or current_context(), disk, choice.may_move_homes)
        super().__init__(symbol, group, shapes, dtypes or {}, grad_req, inputs, own,
                         Options(choice, machine, profile, verify, fuse, encode, fold, poison, graph))
        self.disk = disk
        self._feeds: dict[str, np.ndarray] = {}
        self._given: dict[str, np.ndarray] = {}
        self._last: tuple[str, str] | None = None
        self._current: str | None = None
        self._key = (0, 0)

    # -- results ------------------------------------------------------------------------------------------------
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
    def input_dict(self) -> dict[str, NDArray]:
        """Copies of the arguments that were fed for the last run."""
        return {name: NDArray(HostStorage(self._given[self._place[name]].copy(), self.context))
                for name in self.arg_names if name in self.inputs and self._place[name] in self._given}

    @property
    def outputs(self) -> list[NDArray]:
        """Outputs of the last run, valid until another program runs; before the first run arrays of their shapes and
        types, which have values once there was one."""
        if self._current is None:
            return [NDArray(AwaitedOutput(kind, self.context, partial(self._output, k)))
                    for k, kind in enumerate(self.output_types)]
        program = self._programs.get(self._current)
        if program is None:
            raise MXNetError(f"the outputs of `{self._current}` are gone, for it was compiled again since; take "
                             f"asnumpy() or copy() of outputs before that, or run it again")
        return [NDArray(OutputStorage(self.group, program, program.plan, k))
                for k in range(len(self.output_names))]

    def _output(self, k: int) -> NDArray:
        if self._current is None:
            raise MXNetError("there are no outputs yet; call forward first")
        return self.outputs[k]

    @property
    def output_dict(self) -> dict[str, NDArray]:
        """Outputs of the last run by name; ValueError, as in MXNet, where two outputs have one name."""
        repeated = repeated_name(self.output_names)
        if repeated is not None:
            raise ValueError(f"Duplicate names detected, {self.output_names}: several outputs are called {repeated}; "
                             f"take them by number from `outputs`")
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
            self.program("train" if self._updater is None else "update")  # room for both, so that no outputs move later
        self._key = self.group.next_key(is_train)
        self._run(name, "forward" if is_train else "eval", self._scale_words if is_train else _no_words)
        self._tell_monitor(name)
        return self.outputs

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Run backward; `out_grads` (an array, a list with one for each output, or a dict by output name) for
        outputs that are no losses. An output that is there twice has two head gradients, which add up."""
        if not is_train:
            raise MXNetError("backward(is_train=False) is not supported; backward follows forward(is_train=True)")
        program = self._programs.get("train")
        if program is None or self.group.turn != (program, "forward"):
            raise MXNetError("backward needs the values of the forward(is_train=True) just before it; nothing else, no "
                             "evaluation and no other executor of the group, may run in between")
        self._write_head_gradients(program, out_grads)
        self._run("train", "backward", None)
        self._tell_gradients()

    def step(self, control: Callable[[Sequence[str]], np.ndarray], **feeds: Any) -> list[NDArray]:
        """Forward, backward and update in one run. `control(parameters)` gives the control buffer's values."""
        plan = self.program("step").plan
        headless = [name for k, name in enumerate(distinct(self.output_names)) if head_gradient_name(k) in plan.inputs]
        if headless:
            raise MXNetError(f"output {headless[0]} is no loss, so a whole step has no head gradient for it; wrap "
                             f"it in MakeLoss or BlockGrad, or use forward, backward(out_grads) and update")
        self._feed(feeds)
        self._key = self.group.next_key()
        self._run("step", "step", self._scalars("step", control))
        self._await_check("step")
        return self.outputs

    def update(self, control: Callable[[Sequence[str]], np.ndarray]) -> None:
        """Apply the optimizer to the visible gradients; outputs of the training run before stay readable."""
        self.program("update")
        self._run("update", "update", self._scalars("update", control))
        self._await_check("update")

    def set_updater(self, updater: Updater | None) -> None:
        """Choose the optimizer of `step` and `update`; whether it scales the loss decides about `train`, too."""
        scaled = [each is not None and each.scales_loss for each in (self._updater, updater)]
        self._updater = updater
        for name in ("step", "update", *(("train",) if scaled[0] != scaled[1] else ())):
            self._programs.pop(name, None)

    def __reduce__(self) -> tuple:
        raise TypeError("an executor holds memory of its device, so it cannot be copied or pickled; bind its symbol "
                        "again, and copy_params_from(executor.arg_dict, executor.aux_dict)")

    # -- looking inside ------------------------------------------------------------------------------------------
    def set_monitor_callback(self, callback: MonitorCallback | None, monitor_all: bool = False) -> None:
        """Have `callback(name, value)` called after each forward for every operator's visible outputs, in order, and
        after each backward for the visible gradients, as `<node>_backward_<input>` (see `gradient_sights`).

        With `monitor_all` each operator's inputs come before, as `<node>_<input>`; variables among them are shown as
        they are after the run. The values are copies. Forward then keeps them all until its end, so it takes more
        memory; its results are the same. None ends it. `step` tells nothing: use forward, backward and update.
        """
        self._monitor = None if callback is None else (callback, monitor_all)
        for name in ("train", "eval", "update"):
            self._programs.pop(name, None)
        self._current = self._last = self.group.turn = None

    def debug_str(self) -> str:
        """The symbol's nodes, then in MXNet's words the MiB of the transient arena of the present plan."""
        nbytes = next(arena.bytes for arena in self.plan.arenas if arena.name == "transient")
        return (f"{self._symbol.debug_str().rstrip()}\nTotal {nbytes >> 20} MB allocated\n"
                f"Total 11 TempSpace resource requested\n")

    def find_nonfinite(self) -> NonFinite | None:
        """The first instruction whose output holds NaN or infinity, or None.

        The last run is repeated one instruction at a time, with its inputs and random numbers, over a copy of the
        parameters and states as they are now (after a step, those that it left); nothing changes. It takes as much
        memory once more.
        """
        if self._last is None:
            raise MXNetError("there was no run to repeat; call forward, backward or step before find_nonfinite")
        name, part = self._last
        plan = self.program(name).plan
        return find_nonfinite(self.group, plan, self._given, plan.ranges[part][1])

    def check_modes(self, other: str = "naive", **feeds: Any) -> Comparison:
        """Run a training step under this executor's memory mode and under `other`, and compare every bit.

        Forward and backward run as `train`, and with an optimizer the whole step as `step` where that can be; each
        over a copy of the present state, with the same random numbers, so nothing changes. Keywords are inputs and
        arguments as in `forward`, those of the last run otherwise; head gradients are the last ones, or random.
        Compared are outputs, gradients, parameters, auxiliary and optimizer states. MXNetError names the first
        difference with both values. A program that the budget refuses is left out. It takes as much memory once more.
        """
        trial, self._bound = self._trial(feeds), None
        return check_modes(trial, other)

    def profile(self, n: int = 10, program: str | None = None, fname: str | os.PathLike | None = None) -> Trace:
        """Time every instruction of a program, by default the one of `plan`, in n runs, one waiting for the other.

        They run over a copy of the state with the inputs of the last run (zeros if it was another program's), so
        nothing changes. `fname` is written as a Chrome trace.
        """
        plan = self.plan if program is None else self.program(program).plan
        last = self._last is not None and self._last[0] == plan.program
        trace = profile(self.group, plan, self._given if last else {}, n)
        if fname is not None:
            trace.save(fname)
        return trace

    def clear_states(self) -> None:
        """Make the optimizer's states zero, as far as there are any yet."""
        suffixes = self._updater.state_names() if self._updater is not None else ()
        for name in (state_name(self._place[arg], suffix) for arg in self.arg_names for suffix in suffixes):
            if name in self.group.layout.places:
                self._handle(name)[:] = 0
        self.group.breakage.mended(STATES)

    def reshape(self, partial_shaping: bool = False, allow_up_sizing: bool = False, **shapes: Shape) -> Executor:
        """An executor for other input shapes over the same parameters and arenas.

        Arguments whose shapes are not given must keep them, unless `partial_shaping`, and none may have more elements
        than here, unless `allow_up_sizing`: MXNetError.
        """
        options = self.options
        executor = Executor(self._symbol, None, shapes, grad_req=self.requests, dtypes=self._dtypes,
                            inputs=tuple(self.inputs), memory=options.memory.memory,
                            budget=options.memory.budget_bytes, host_budget=options.memory.host_budget_bytes,
                            disk=self.disk, machine=options.machine, profile=options.profile,
                            search=options.memory.search, slices=options.memory.slices, shared=self,
                            own=self.arg_names if partial_shaping else None, verify=options.verify,
                            fuse=options.fuse, encode=options.encode, fold=options.fold, poison=options.poison,
                            graph=options.graph)
        larger = [name for name, kind in executor._types.items() if prod(kind.shape) > prod(self._types[name].shape)]
        if larger and not allow_up_sizing:
            name = larger[0]
            raise MXNetError(f"reshape: {name} of shape {executor._types[name].shape} is larger than it is here, "
                             f"{self._types[name].shape}; give allow_up_sizing=True to make room for it, or bind the "
                             f"largest shapes first")
        executor.set_updater(self._updater)
        executor._monitor = self._monitor
        return executor

    # -- inside --------------------------------------------------------------------------------------------------
    def _feed(self, feeds: Mapping[str, Any]) -> None:
        for name, array in list(self._checked(feeds)):  # all are right before the first is set
            if name in self.inputs:
                self._feeds[self._place[name]] = array
            else:
                self._handle(self._place[name]).storage.write(np.asarray(array, self._types[name].dtype))

    def _trial(self, feeds: Mapping[str, Any]) -> Trial:
        """What a comparison of memory modes takes of this executor."""
        names = ["train"]
        if self._updater is not None and "add" not in self.requests.values():
            names.append("step")
        values = {self._place[name]: (name in self.inputs, array) for name, array in self._checked(feeds)}
        fed = {place: array for place, (is_input, array) in values.items() if is_input}
        kept = {place: array for place, (is_input, array) in values.items() if not is_input}
        return Trial(self.group, self.graph, {name: self._request(name) for name in names},
                     {name: self._programs[name].plan for name in names if name in self._programs},
                     {**self._given, **fed}, kept, frozenset(self._place[name] for name in self.inputs),
                     self.options.poison)

    def _scalars(self, name: str, control: Callable[[Sequence[str]], np.ndarray]) -> Control:
        """The scalars of a program with updates, once the outcome of the updates before is known."""
        def words() -> np.ndarray:
            self.group.settle()
            return control(self._parameters[name])
        return words

    def _scale_words(self) -> np.ndarray:
        """The scalars of training without updates: the loss scale, where there is one."""
        updater = self._updater
        return scale_words(updater.loss_scale) if updater is not None and updater.scales_loss else _no_words()

    def _await_check(self, name: str) -> None:
        """Let the optimizer know where a program says whether it changed anything, if it checks its gradients."""
        group, updater = self.group, self._updater
        if updater is None or all(tensor.name != UNSCALE for tensor in self._programs[name].plan.persistent):
            return
        updater.await_check(lambda: float(group.read(UNSCALE)[0]) == 0)
        group.unsettled = updater.settle

    def _run(self, name: str, part: str, control: Control | None) -> None:
        if not self.group.running.acquire(blocking=False):
            raise MXNetError(f"`{name}` cannot run: another thread runs a program over the same memory; bind an "
                             f"executor for each thread, or hold a lock from each call until its outputs are copied")
        try:
            self._run_alone(name, part, control)
        finally:
            self.group.running.release()

    def _run_alone(self, name: str, part: str, control: Control | None) -> None:
        group = self.group
        group.breakage.check()
        program = self.program(name)
        if control is not None:
            self._write_inputs(program, control)
        self._last = name, part
        if name != "update":
            group.turn, self._current = (program, part), name
        elif group.turn is not None:
            keeps_outputs = group.turn[0] is self._programs["train"]
            group.turn = (group.turn[0] if keeps_outputs else program, part)
        try:
            with kept_in(group.python_objects):
                recorder.runner(group, program).run(part)
        except BaseException as error:
            group.breakage.note(error, program.plan, part, "add" in self.requests.values())
            group.turn = None
            raise

    def _tell_monitor(self, name: str) -> None:
        if self._monitor is not None:
            program, told = self._programs[name], {**self.arg_dict, **self.input_dict, **self.aux_dict}
            tell(self._monitor[0], self._sights, self._by_place(told) if self._monitor[1] else {},
                 lambda output: NDArray(OutputStorage(self.group, program, program.plan, output)))

    def _tell_gradients(self) -> None:
        if self._monitor is not None:
            tell(self._monitor[0], gradient_sights(self.graph), self._by_place(self.grad_dict))

    def _by_place(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self._place[name]: value for name, value in values.items()}

    def _give(self, program: Any, name: str, value: np.ndarray) -> None:
        """Feed one input of the plan, and keep it for whoever wants to repeat the run."""
        self._given[name] = value
        recorder.runner(self.group, program).feed(name, value)

    def _write_inputs(self, program: Any, control: Control) -> None:
        """Feed a run; the scalars last, for they may wait for the run before."""
        self._given = {}
        for name in program.plan.inputs:
            if name == CONTROL:
                continue
            if name in self._feeds:
                self._give(program, name, self._feeds[name])
            elif name in map(self._place.get, self.inputs) and name not in self._optional[program.plan.program]:
                raise MXNetError(f"input {name} was not given; pass {name}= to forward or step")
        self._feeds.clear()
        given = control()
        if CONTROL in program.plan.inputs:
            words = np.zeros(program.plan.buffers.shape[program.plan.inputs[CONTROL]], np.float32)
            words[:given.size] = given
            set_key(words, *self._key)
            self._give(program, CONTROL, words)

    def _write_head_gradients(self, program: Any, out_grads: Any) -> None:
        given = self._head_gradients(out_grads)
        for k, (name, value) in enumerate(zip(distinct(self.output_names), given, strict=True)):
            buffer = program.plan.inputs.get(head_gradient_name(k))
            if buffer is None:
                continue
            if value is None:
                raise MXNetError(f"output {name} is no loss, so backward needs its head gradient: pass "
                                 f"out_grads with an array of shape {program.plan.buffers.shape[buffer]} for it, or "
                                 f"wrap the output in MakeLoss or BlockGrad")
            array = value.storage.read() if isinstance(value, NDArray) else np.asarray(value)
            if array.shape != program.plan.buffers.shape[buffer]:
                raise ValueError(f"the head gradient of {name} has shape {array.shape}, the output has "
                                 f"{program.plan.buffers.shape[buffer]}")
            wanted = program.plan.buffers.dtype[buffer]
            if not np.can_cast(array.dtype, wanted, "same_kind"):
                raise MXNetError(f"the head gradient of {name} is of {array.dtype}, and the output of {wanted}, which "
                                 f"cannot hold it; give out_grads in {wanted}")
            self._give(program, head_gradient_name(k), array)

    def _head_gradients(self, out_grads: Any) -> Sequence[Any]:
        """What was given for each output, in order; None for nothing."""
        if out_grads is None:
            return [None] * len(self.output_names)
        if isinstance(out_grads, Mapping):
            unknown = [name for name in out_grads if name not in self.output_names]
            if unknown:
                raise MXNetError(f"out_grads names {unknown[0]!r}, the outputs are {', '.join(self.output_names)}")
            repeated = repeated_name([name for name in self.output_names if name in out_grads])
            if repeated is not None:
                raise MXNetError(f"out_grads names {repeated!r}, and several outputs are called so: give a list with "
                                 f"an array for each of the outputs {', '.join(self.output_names)}")
            return [out_grads.get(name) for name in self.output_names]
        values = list(out_grads) if isinstance(out_grads, (list, tuple)) else [out_grads]
        if len(values) != len(self.output_names):
            raise MXNetError(f"out_grads has {len(values)} arrays for {len(self.output_names)} outputs "
                             f"({', '.join(self.output_names)}); give one for each, None for losses")
        return values

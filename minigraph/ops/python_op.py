"""Operators whose computation is Python of a script's own, by MXNet's custom interface: Custom, forward and backward.

`mx.operator` makes a PythonOperator of each class that a script registers; here it becomes nodes of the graph. The
object that computes is made once for a node and the memory that its program runs in, and may keep what it likes from
forward to backward. So a node runs once a step, unless its class says that it may run again.
"""
from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import Builder, Entry, PartialShape, dtype_of
from .op import Arrays, Op, OperatorError, Sample, ShapeError, Workspace, is_complete, merge_shapes
from .params import REQUIRED, param
from .registry import register

Shapes = list[PartialShape]
Dtypes = list[np.dtype | None]


class PythonOperator:
    """What a class that a script registers must answer; one object for each set of arguments."""

    recompute = "never"
    """Whether a node may run again in backward, to save memory: "never", "costly" or "cheap", as of Op."""

    def arguments(self) -> Sequence[str]:
        """Names of the inputs without auxiliary states."""
        return ("data",)

    def outputs(self) -> Sequence[str]:
        """Names of the outputs."""
        return ("output",)

    def states(self) -> Sequence[str]:
        """Names of the auxiliary states, which forward may change."""
        return ()

    def infer_shape(self, ins: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        """Shapes of inputs, outputs and states from those of the inputs, as far as they are known."""
        raise NotImplementedError

    def infer_dtype(self, ins: Sequence[np.dtype]) -> tuple[list[np.dtype], list[np.dtype], list[np.dtype]]:
        """Dtypes of inputs, outputs and states from those of the inputs."""
        raise NotImplementedError

    def needs(self) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
        """Numbers of the head gradients, inputs and outputs that backward reads; a loss reads no head gradients."""
        raise NotImplementedError

    def create(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype]) -> Any:
        """The object that computes for inputs of these shapes and dtypes."""
        raise NotImplementedError

    def forward(self, made: Any, is_train: bool, ins: Arrays, outs: Arrays, states: Arrays) -> None:
        """Have it write its outputs, and perhaps change its states."""
        raise NotImplementedError

    def backward(self, made: Any, wanted: Sequence[bool], heads: Sequence[np.ndarray | None],
                 ins: Sequence[np.ndarray | None], outs: Sequence[np.ndarray | None], gradients: Arrays,
                 states: Arrays) -> None:
        """Have it write the gradients that are wanted; what it does not need is None."""
        raise NotImplementedError


class _Product(PythonOperator):
    """lhs * rhs, and the sum of all of it added to a state: the case of the operators' generated tests."""

    recompute = "costly"

    def arguments(self) -> Sequence[str]:
        return "lhs", "rhs"

    def states(self) -> Sequence[str]:
        return ("moving_sum",)

    def infer_shape(self, ins: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        shape = merge_shapes(*ins)
        return [shape, shape], [shape], [(1,)]

    def infer_dtype(self, ins: Sequence[np.dtype]) -> tuple[list[np.dtype], list[np.dtype], list[np.dtype]]:
        return list(ins), [ins[0]], [ins[0]]

    def needs(self) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
        return frozenset({0}), frozenset({0, 1}), frozenset()

    def create(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype]) -> Any:
        return None

    def forward(self, made: Any, is_train: bool, ins: Arrays, outs: Arrays, states: Arrays) -> None:
        np.multiply(ins[0], ins[1], out=outs[0])
        states[0] += outs[0].sum()

    def backward(self, made: Any, wanted: Sequence[bool], heads: Sequence[np.ndarray | None],
                 ins: Sequence[np.ndarray | None], outs: Sequence[np.ndarray | None], gradients: Arrays,
                 states: Arrays) -> None:
        head, lhs, rhs = heads[0], *ins
        assert head is not None and lhs is not None and rhs is not None
        np.multiply(head, rhs, out=gradients[0])
        np.multiply(head, lhs, out=gradients[1])


_SAMPLE = "_product"
_makers: dict[str, Callable[[Mapping[str, str]], PythonOperator]] = {_SAMPLE: lambda arguments: _Product()}
_versions: dict[str, int] = {}
_made: dict[tuple[str, str, int], PythonOperator] = {}


def define(op_type: str, maker: Callable[[Mapping[str, str]], PythonOperator]) -> None:
    """Make a type of operator known, or put another in the place of one of that name for the nodes made from now on."""
    _versions[op_type] = _versions.get(op_type, -1) + 1
    _makers[op_type] = maker


@dataclass(frozen=True)
class CustomParams:
    """Parameters of an operator in Python; others are arguments of its class, as texts."""

    op_type: str = param(REQUIRED, "str", "the name that it was registered under")
    arguments: str = param("{}", "str", "JSON of the arguments of its class")
    version: int = param(0, "int", "how often another class has taken its name before")


@dataclass(frozen=True)
class CustomNodeParams(CustomParams):
    """Parameters of a node in the graph."""

    ordinal: int = param(0, "int", "number of this operator in Python in forward order")
    is_train: bool = param(True, "bool", "whether it runs in training")


@dataclass(frozen=True)
class CustomBackwardParams(CustomNodeParams):
    """Parameters of a backward node."""

    types: str = param("[]", "str", "JSON of shape and dtype of each input of forward")
    wanted: tuple[int, ...] = param((), "shape", "1 for each input of forward whose gradient is asked for, else 0")


_fresh: OrderedDict[tuple, Any] = OrderedDict()
"""Objects of runs outside of an executor, of which the last ones are kept."""
_FRESH = 256
_kept: ContextVar[MutableMapping[tuple, Any] | None] = ContextVar("kept", default=None)


@contextmanager
def kept_in(objects: MutableMapping[tuple, Any]) -> Iterator[None]:
    """Have the objects that compute be kept in a mapping, while something runs."""
    token = _kept.set(objects)
    try:
        yield
    finally:
        _kept.reset(token)


class PythonNode(Op):
    """Base of the operators that ask a PythonOperator."""

    def asked(self, p: Any) -> PythonOperator:
        """The PythonOperator of these parameters; OperatorError when there is none, or its class does not take them."""
        key = p.op_type, p.arguments, p.version
        found = _made.get(key)
        if found is None:
            maker = _makers.get(p.op_type)
            if maker is None:
                known = ", ".join(sorted(name for name in _makers if not name.startswith("_"))) or "none yet"
                raise OperatorError(self, f"op_type={p.op_type!r}", p, f"is not registered: known are {known}; put "
                                    f"mx.operator.register({p.op_type!r}) before its CustomOpProp")
            try:
                arguments = json.loads(p.arguments)
            except ValueError as error:
                raise OperatorError(self, f"arguments={p.arguments!r}", p, "is no JSON text of what the class takes") \
                    from error
            found = _made[key] = self.told(p, "__init__", maker, arguments)
        return found

    def told(self, p: Any, member: str, function: Callable[..., Any], *given: Any) -> Any:
        """What a function of the script's gives; OperatorError names its member when it raises."""
        try:
            return function(*given)
        except (OperatorError, ShapeError):
            raise
        except Exception as error:
            what = f"raised {type(error).__name__}: {error}"
            raise OperatorError(self, f"{member} of {p.op_type!r}", p, what) from error

    def made(self, p: Any, operator: PythonOperator, shapes: tuple[tuple[int, ...], ...],
             dtypes: tuple[np.dtype, ...]) -> Any:
        """The object that computes this node, forward and backward."""
        kept = _kept.get()
        objects = _fresh if kept is None else kept
        key = p.op_type, p.arguments, p.version, p.ordinal, shapes, dtypes
        if key not in objects:
            objects[key] = self.told(p, "create_operator", operator.create, shapes, dtypes)
            if kept is None and len(_fresh) > _FRESH:
                _fresh.popitem(last=False)
        return objects[key]


class ForwardOp(PythonNode):
    """Base of the operators that a PythonOperator describes; its auxiliary states are the last inputs."""

    Params = CustomParams

    def inputs(self, p: Any) -> tuple[str, ...]:
        if p.op_type is None:
            return ("data",)
        return (*self.told(p, "list_arguments", self.asked(p).arguments), *self.aux(p))

    def aux(self, p: Any) -> tuple[str, ...]:
        return () if p.op_type is None else tuple(self.told(p, "list_auxiliary_states", self.asked(p).states))

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("output",) if p.op_type is None else tuple(self.told(p, "list_outputs", self.asked(p).outputs))

    def is_loss(self, p: Any) -> bool:
        return not self.told(p, "declare_backward_dependency", self.asked(p).needs)[0]

    def infer_shape(self, p: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
        operator, count = self.asked(p), len(ins) - len(self.aux(p))
        try:
            given, made, states = self.told(p, "infer_shape", operator.infer_shape, ins[:count])
        except OperatorError:
            if all(map(is_complete, ins[:count])):
                raise
            return ins, outs        # it wants to know more, which other operators may tell
        return ([merge_shapes(*pair) for pair in zip(ins, (*given, *states), strict=True)],
                [merge_shapes(*pair) for pair in zip(outs, made, strict=True)])

    def infer_dtype(self, p: Any, ins: Dtypes, outs: Dtypes) -> tuple[Dtypes, Dtypes]:
        operator, count = self.asked(p), len(ins) - len(self.aux(p))
        known = next((dtype for dtype in (*ins[:count], *outs) if dtype is not None), None)
        if known is None:
            return ins, outs
        given, made, states = self.told(p, "infer_type", operator.infer_dtype, [t or known for t in ins[:count]])
        return [a or b for a, b in zip(ins, (*given, *states), strict=True)], list(made)


@register
class Custom(ForwardOp):
    """An operator of Python: `op_type` is the name that mx.operator.register gave a CustomOpProp, and parameters that
    are not known here are handed to that class as texts."""

    name = "Custom"

    def attributes(self, attrs: Mapping[str, str]) -> Mapping[str, str]:
        own = {key: text for key, text in attrs.items() if key == "op_type" or key.startswith("__")}
        others = {key: text for key, text in attrs.items() if key not in own}
        version = _versions.get(own.get("op_type", ""), 0)
        return {**own, "arguments": json.dumps(others, sort_keys=True), "version": str(version)}

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        name = "_custom" if self.asked(p).recompute == "never" else "_custom_again"
        outs = b.node(name, ins, **vars(p), ordinal=b.next_python_ordinal(), is_train=train)
        return outs[:len(self.outputs(p))]

    def samples(self) -> Sequence[Sample]:
        return [Sample({"op_type": _SAMPLE}, ((3, 5), (3, 5), (1,)))]


@register
class CustomForward(ForwardOp):
    """A node of an operator in Python; the auxiliary states are further outputs, in their own bytes."""

    name = "_custom"
    Params = CustomNodeParams
    recompute = "never"

    def outputs(self, p: Any) -> tuple[str, ...]:
        return (*super().outputs(p), *self.aux(p))

    def visible_outputs(self, p: Any) -> int:
        return len(super().outputs(p))

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        states, ins, outs = len(self.aux(p)), len(self.inputs(p)), len(self.outputs(p))
        return tuple((ins - states + k, outs - states + k) for k in range(states))

    def infer_shape(self, p: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
        states = len(self.aux(p))
        ins, made = super().infer_shape(p, ins, outs[:len(outs) - states])
        return ins, [*made, *ins[len(ins) - states:]]

    def infer_dtype(self, p: Any, ins: Dtypes, outs: Dtypes) -> tuple[Dtypes, Dtypes]:
        states = len(self.aux(p))
        ins, made = super().infer_dtype(p, ins, outs[:len(outs) - states])
        return ins, [*made, *ins[len(ins) - states:]]

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        operator, states = self.asked(p), len(self.aux(p))
        arguments, count = ins[:len(ins) - states], len(outs) - states
        heads, read, made = self.told(p, "declare_backward_dependency", operator.needs)
        if heads and all(grad is None for grad in grads[:count]):
            return [None] * len(ins)
        given: list[Entry] = []
        for k in sorted(heads):
            grad = grads[k]
            given.append(b.node("zeros_like", [outs[k]])[0] if grad is None else grad)
        given += [*(arguments[k] for k in sorted(read)), *(outs[k] for k in sorted(made)), *outs[count:]]
        types = json.dumps([(b.shape(e), b.dtype(e).name) for e in arguments])
        found = b.node("_custom_backward", given, **vars(p), types=types,
                       wanted=tuple(map(int, wanted[:len(arguments)])))
        return [*(entry if asked else None for entry, asked in zip(found, wanted, strict=False)), *[None] * states]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        operator, states = self.asked(p), len(self.aux(p))
        arguments, count = ins[:len(ins) - states], len(outs) - states
        made = self.made(p, operator, *_types_of(arguments))
        self.told(p, "forward", operator.forward, made, p.is_train, [_locked(a) for a in arguments], outs[:count],
                  outs[count:])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"op_type": _SAMPLE}, ((3, 5), (3, 5), (1,)), differentiable=False)]


@register
class CustomForwardAgain(CustomForward):
    """A node of an operator in Python whose class says that it may run again: it must then write the same."""

    name = "_custom_again"
    recompute = "costly"


@register
class CustomBackward(PythonNode):
    """The gradients of an operator in Python, from the head gradients, inputs and outputs that it needs, and its
    states.

    Inputs whose gradient nobody asks for have one too, for scripts that write into all.
    """

    name = "_custom_backward"
    Params = CustomBackwardParams
    recompute = "never"

    def _names(self, p: Any) -> tuple[list[str], list[str], list[str], list[str]]:
        operator = self.asked(p)
        heads, ins, outs = operator.needs()
        return ([f"out_grad{k}" for k in sorted(heads)], [f"in_data{k}" for k in sorted(ins)],
                [f"out_data{k}" for k in sorted(outs)], [f"aux_{name}" for name in operator.states()])

    def inputs(self, p: Any) -> tuple[str, ...]:
        return tuple(name for names in self._names(p) for name in names)

    def outputs(self, p: Any) -> tuple[str, ...]:
        return tuple(f"in_grad{k}" for k in range(len(p.wanted)))

    def infer_shape(self, p: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
        return ins, [tuple(shape) for shape, _ in json.loads(p.types)]

    def infer_dtype(self, p: Any, ins: Dtypes, outs: Dtypes) -> tuple[Dtypes, Dtypes]:
        return ins, [dtype_of(name) for _, name in json.loads(p.types)]

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        operator = self.asked(p)
        needs, names = operator.needs(), self._names(p)
        made = self.made(p, operator, *_types_of(outs))
        given = iter(_locked(array) for array in ins)
        counts = len(operator.outputs()), len(operator.arguments()), len(operator.outputs())
        heads, arguments, results = ([next(given) if k in needed else None for k in range(count)]
                                     for count, needed in zip(counts, needs, strict=True))
        states = [next(given) for _ in names[3]]
        self.told(p, "backward", operator.backward, made, [bool(each) for each in p.wanted], heads, arguments, results,
                  outs, states)


def _types_of(arrays: Arrays) -> tuple[tuple[tuple[int, ...], ...], tuple[np.dtype, ...]]:
    return tuple(array.shape for array in arrays), tuple(array.dtype for array in arrays)


def _locked(array: np.ndarray) -> np.ndarray:
    """A view that nobody can write to."""
    view = array.view()
    view.flags.writeable = False
    return view

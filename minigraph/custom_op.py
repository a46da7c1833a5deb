"""Operators of a script's own by MXNet's interface: CustomOp, CustomOpProp, `register`; and the NumpyOp before it.

    @mx.operator.register("softmax_loss")
    class SoftmaxLossProp(mx.operator.CustomOpProp):
        def __init__(self):
            super().__init__(need_top_grad=False)

        def list_arguments(self):
            return ["data", "label"]

        def infer_shape(self, in_shape):
            return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

        def create_operator(self, ctx, shapes, dtypes):
            return SoftmaxLoss()            # a CustomOp, with forward and backward

    net = mx.sym.Custom(data, label, op_type="softmax_loss", name="softmax")

They run in NumPy on the CPU, in every memory mode. `mx.register` takes operators that say more about themselves, and
so leave more to the planner.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import numpy as np

from . import symbol
from .base import MXNetError, PartialShape
from .context import cpu
from .ndarray import NDArray
from .ops.python_op import PythonOperator, Shapes, define
from .storage import HostStorage

T = TypeVar("T", bound=type)
RECOMPUTE = ("never", "costly", "cheap")


class CustomOp:
    """What computes: one object for each node of a bound symbol, which may keep what it likes from forward to backward.

    Arrays are lent for the call: they lie in the plan's memory, which is used anew afterwards.
    """

    def forward(self, is_train: bool, req: Sequence[str], in_data: Sequence[NDArray], out_data: Sequence[NDArray],
                aux: Sequence[NDArray]) -> None:
        """Write `out_data`, and perhaps change `aux`; `req` has a word for each output, for `assign`."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def backward(self, req: Sequence[str], out_grad: Sequence[Any], in_data: Sequence[Any], out_data: Sequence[Any],
                 in_grad: Sequence[NDArray], aux: Sequence[NDArray]) -> None:
        """Write `in_grad`; `req` has "write" for each input whose gradient is asked for, and else "null"."""
        raise NotImplementedError(f"{type(self).__name__} must define backward")

    def assign(self, dst: NDArray, req: str, src: Any) -> None:
        """Write src into dst, add it with "add", or leave dst with "null"."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] = dst + src
        elif req != "null":
            raise MXNetError(f"req={req!r}; it must be one of null, write, inplace, add")


class CustomOpProp:
    """What an operator looks like from outside; its arguments come from `mx.sym.Custom` as texts.

    need_top_grad: whether backward reads the gradient of the outputs; a loss does not. `recompute`: "never", or
    "costly" or "cheap" for an operator that writes the same whenever it runs, so that it may run again in backward.
    """

    recompute = "never"

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the auxiliary states."""
        return []

    def infer_shape(self, in_shape: list[Any]) -> Any:
        """(shapes of inputs, of outputs, and perhaps of states) from those of the inputs; [] is one not known yet, and
        0 a dimension."""
        return in_shape, (in_shape[0],) * len(self.list_outputs()), ()

    def infer_type(self, in_type: list[Any]) -> Any:
        """(types of inputs, of outputs, and perhaps of states) from those of the inputs."""
        return (in_type, [in_type[0]] * len(self.list_outputs()), [in_type[0]] * len(self.list_auxiliary_states()))

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        """The numbers of what backward reads, out of those given for each array."""
        return [*(out_grad if self.need_top_grad_ else ()), *in_data, *out_data]

    def create_operator(self, ctx: Any, in_shapes: list[Any], in_dtypes: list[Any]) -> CustomOp:
        """The CustomOp for inputs of these shapes and types."""
        raise NotImplementedError(f"{type(self).__name__} must define create_operator")


def register(reg_name: str) -> Callable[[T], T]:
    """Class decorator: make a CustomOpProp known as `op_type=reg_name`; one registered later takes its place."""
    if not isinstance(reg_name, str) or not reg_name or reg_name.startswith("_"):
        raise MXNetError(f"an operator is registered by a name that does not begin with _, got {reg_name!r}")

    def decorate(cls: T) -> T:
        if not (isinstance(cls, type) and issubclass(cls, CustomOpProp)):
            raise TypeError(f"mx.operator.register takes a class derived from mx.operator.CustomOpProp, got {cls!r}")
        if cls.recompute not in RECOMPUTE:
            raise MXNetError(f"{cls.__name__}: recompute is {cls.recompute!r}; it must be one of "
                             f"{', '.join(RECOMPUTE)}")
        make: Callable[..., CustomOpProp] = cls
        define(reg_name, lambda arguments: _FromProp(make(**arguments)))
        return cls

    return decorate


class _Lending:
    """NDArrays over arrays of the plan, until the call ends."""

    def __init__(self) -> None:
        self.is_over = False

    def __enter__(self) -> _Lending:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.is_over = True

    def lend(self, arrays: Sequence[np.ndarray | None]) -> list[Any]:
        """An NDArray for each array, and None for None."""
        return [None if array is None else NDArray(_LentStorage(array, self)) for array in arrays]


class _LentStorage(HostStorage):
    """An array of the plan, for the time of one call."""

    def __init__(self, values: np.ndarray, lending: _Lending) -> None:
        self._values, self._lending = values, lending
        super().__init__(values, cpu())

    @property
    def array(self) -> np.ndarray:
        """The array, as long as it is lent."""
        if self._lending.is_over:
            raise MXNetError("an array of a CustomOp is lent for one call of forward or backward, and its memory is "
                             "used anew afterwards; keep a copy() of it")
        return self._values

    @array.setter
    def array(self, values: np.ndarray) -> None:
        self._values = values

    def write(self, value: np.ndarray) -> None:
        """Copy `value` into the array; MXNetError for one that is only to be read."""
        if not self.array.flags.writeable:
            raise MXNetError("this array of a CustomOp is only to be read: forward writes out_data and aux, backward "
                             "in_grad")
        super().write(value)


class _FromProp(PythonOperator):
    """A CustomOpProp as the operators ask it."""

    def __init__(self, prop: CustomOpProp) -> None:
        self._prop = prop
        self.recompute = prop.recompute

    def arguments(self) -> Sequence[str]:
        return _names(self._prop.list_arguments())

    def outputs(self) -> Sequence[str]:
        return _names(self._prop.list_outputs())

    def states(self) -> Sequence[str]:
        return _names(self._prop.list_auxiliary_states())

    def infer_shape(self, ins: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        given = [[] if shape is None else [size or 0 for size in shape] for shape in ins]
        shapes, outs, states = self._three("infer_shape", self._prop.infer_shape(given))
        return _shapes(shapes), _shapes(outs), _shapes(states)

    def infer_dtype(self, ins: Sequence[np.dtype]) -> tuple[list[np.dtype], list[np.dtype], list[np.dtype]]:
        found = self._three("infer_type", self._prop.infer_type([dtype.type for dtype in ins]))
        given, outs, states = ([np.dtype(each) for each in part] for part in found)
        return given, outs, states

    def _three(self, member: str, found: Any) -> list[Any]:
        """What a member returned for inputs, outputs and states; ValueError where it does not fit their names."""
        parts = list(found) if isinstance(found, (tuple, list)) else []
        parts += [[]] * (len(parts) == 2)
        names = self.arguments(), self.outputs(), self.states()
        if len(parts) != 3 or any(not isinstance(part, (tuple, list)) or len(part) != len(wanted)
                                  for part, wanted in zip(parts, names, strict=True)):
            counts = ", ".join(str(len(each)) for each in names)
            raise ValueError(f"{member} returned {found!r}; it must return lists for the inputs, the outputs and the "
                             f"auxiliary states, of {counts}")
        return parts

    def needs(self) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
        outs, ins = len(self.outputs()), len(self.arguments())
        numbers = iter(range(2 * outs + ins))
        parts = [[next(numbers) for _ in range(size)] for size in (outs, ins, outs)]
        needed = {int(k) for k in self._prop.declare_backward_dependency(*map(list, parts))}
        heads, given, made = (frozenset(k for k, number in enumerate(part) if number in needed) for part in parts)
        return heads, given, made

    def create(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype]) -> Any:
        return self._prop.create_operator(cpu(), [list(shape) for shape in shapes], [dtype.type for dtype in dtypes])

    def forward(self, made: Any, is_train: bool, ins: Sequence[np.ndarray], outs: Sequence[np.ndarray],
                states: Sequence[np.ndarray]) -> None:
        with _Lending() as lending:
            made.forward(is_train=is_train, req=["write"] * len(outs), in_data=lending.lend(ins),
                         out_data=lending.lend(outs), aux=lending.lend(states))

    def backward(self, made: Any, wanted: Sequence[bool], heads: Sequence[np.ndarray | None],
                 ins: Sequence[np.ndarray | None], outs: Sequence[np.ndarray | None], gradients: Sequence[np.ndarray],
                 states: Sequence[np.ndarray]) -> None:
        with _Lending() as lending:
            made.backward(req=["write" if asked else "null" for asked in wanted], out_grad=lending.lend(heads),
                          in_data=lending.lend(ins), out_data=lending.lend(outs), in_grad=lending.lend(gradients),
                          aux=lending.lend(states))


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"names are a list of texts, got {names!r}")
    return tuple(names)


def _shapes(shapes: Sequence[Any]) -> list[PartialShape]:
    """Shapes of MXNet: () is one not known, 0 a dimension not known."""
    return [tuple(int(size) or None for size in shape) or None for shape in shapes]


# -- the interface before CustomOp ---------------------------------------------------------------------------
class PythonOp:
    """Base of operators that are their own description: an object of it, called with symbols, is a node."""

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad
        warnings.warn("PythonOp has been deprecated. Please use CustomOp", stacklevel=2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The symbol of a node."""
        return self.get_symbol(*args, **kwargs)

    def get_symbol(self, *args: Any, **kwargs: Any) -> Any:
        """The symbol of a node of these inputs; a file of it can be loaded only where this object is."""
        op_type = f"{type(self).__name__.lower()}{next(_objects)}"
        define(op_type, lambda arguments: _FromObject(self))
        return symbol.Custom(*args, op_type=op_type, **kwargs)

    def list_arguments(self) -> list[str]:
        """Names of the inputs."""
        return ["data"]

    def list_outputs(self) -> list[str]:
        """Names of the outputs."""
        return ["output"]

    def infer_shape(self, in_shape: list[Any]) -> Any:
        """(shapes of the inputs, shapes of the outputs) from those of the inputs."""
        return in_shape, [in_shape[0]]

    def need_top_grad(self) -> bool:
        """Whether backward reads the gradient of the outputs."""
        return self.need_top_grad_

    def forward(self, in_data: Sequence[Any], out_data: Sequence[Any]) -> None:
        """Write the outputs; unless a subclass says more, the first input."""
        out_data[0][:] = in_data[0]

    def backward(self, out_grad: Sequence[Any], in_data: Sequence[Any], out_data: Sequence[Any],
                 in_grad: Sequence[Any]) -> None:
        """Write the gradients; unless a subclass says more, ones."""
        in_grad[0][:] = 1.0


class NumpyOp(PythonOp):
    """An operator whose forward and backward get NumPy arrays, lent for the call."""


class NDArrayOp(PythonOp):
    """An operator whose forward and backward get NDArrays, lent for the call."""

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        """The numbers of what backward reads, out of those given for each array."""
        return [*(out_grad if self.need_top_grad() else ()), *in_data, *out_data]


_objects = count()


class _ObjectProp(CustomOpProp):
    """What a PythonOp says of itself."""

    def __init__(self, op: PythonOp) -> None:
        super().__init__(op.need_top_grad())
        self._op = op

    def list_arguments(self) -> list[str]:
        return self._op.list_arguments()

    def list_outputs(self) -> list[str]:
        return self._op.list_outputs()

    def infer_shape(self, in_shape: list[Any]) -> Any:
        return self._op.infer_shape(in_shape)

    def declare_backward_dependency(self, out_grad: list[int], in_data: list[int], out_data: list[int]) -> list[int]:
        declared = getattr(self._op, "declare_backward_dependency", super().declare_backward_dependency)
        return declared(out_grad, in_data, out_data)


class _FromObject(_FromProp):
    """A PythonOp as the operators ask it."""

    def __init__(self, op: PythonOp) -> None:
        super().__init__(_ObjectProp(op))
        self._op = op

    def create(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype]) -> Any:
        return self._op

    def forward(self, made: Any, is_train: bool, ins: Sequence[np.ndarray], outs: Sequence[np.ndarray],
                states: Sequence[np.ndarray]) -> None:
        with _Lending() as lending:
            lend = self._lender(lending)
            made.forward(in_data=lend(ins), out_data=lend(outs))

    def backward(self, made: Any, wanted: Sequence[bool], heads: Sequence[np.ndarray | None],
                 ins: Sequence[np.ndarray | None], outs: Sequence[np.ndarray | None], gradients: Sequence[np.ndarray],
                 states: Sequence[np.ndarray]) -> None:
        with _Lending() as lending:
            lend = self._lender(lending)
            made.backward(out_grad=lend(heads), in_data=lend(ins), out_data=lend(outs), in_grad=lend(gradients))

    def _lender(self, lending: _Lending) -> Callable[[Sequence[Any]], list[Any]]:
        return lending.lend if isinstance(self._op, NDArrayOp) else list

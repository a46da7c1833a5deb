"""How an operator becomes calls of C++ kernels: which kernel runs on what, packed once when a plan is loaded.

An implementation is a subclass of `NativeOp` registered for ops' names. When a program is planned it is asked which
types it takes, in which layouts, and for its algorithms; when the plan is loaded, for its calls. Nothing of it runs
during a step. What it does not take, NumPy computes.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base import Algorithm, MXNetError, Shape, TensorType
from ....ops.op import Op
from .layout import Layouts, padded_size
from .library import Library
from .refusal import Refusal

NUMPY_SLOWDOWN = 4.0
"""How many times the modelled time NumPy takes, about: convolutions in two threads (measured: 2.6 to 3.1), more for
elementwise ops."""
PREFIX = "native."
"""Begins the name of every algorithm that is computed by calls; all others are the op's own, in NumPy."""
Types = Sequence[TensorType]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in an arena; `address` is 0 for an input of which only the shape may be used."""

    address: int
    shape: Shape
    dtype: np.dtype
    layout: str = ""

    @property
    def size(self) -> int:
        """Number of elements that the layout stores, padding included."""
        return padded_size(self.shape, self.layout)


@dataclass(frozen=True, slots=True)
class KernelAddress:
    """An argument: the function of a kernel that the called one calls in its turn."""

    kernel: str


@dataclass(frozen=True, slots=True)
class NativeCall:
    """One call: `args` are (struct format, value or tuple of values) in the order of the kernel's struct; `refusal` is
    what the kernel may refuse."""

    kernel: str
    args: tuple[tuple[str, Any], ...]
    refusal: Refusal | None = None

    def pack(self, library: Library) -> tuple[int, bytes, Refusal | None]:
        """The function's address, its packed arguments, and what it may refuse; MXNetError when the kernel takes
        other arguments."""
        address, nbytes = library.kernel(self.kernel)
        values = [library.kernel(v.kernel)[0] if isinstance(v, KernelAddress) else v
                  for _, value in self.args for v in (value if isinstance(value, tuple) else (value,))]
        packed = struct.pack("@" + "".join(form for form, _ in self.args) + "0P", *values)
        if len(packed) != nbytes:
            raise MXNetError(f"kernel {self.kernel} of {library.path} takes {nbytes} bytes of arguments, got "
                             f"{len(packed)}; the library is of another version: install minigraph again")
        return address, packed, self.refusal


class NativeOp:
    """The C++ form of one op."""

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        """The layouts of inputs and outputs in which kernels take these tensors, best first; none for NumPy alone."""
        raise NotImplementedError

    def takes(self, p: Any, ins: Types, outs: Types) -> bool:
        """Whether kernels take tensors of these dtypes."""
        return is_float32(*ins, *outs)

    def fuses(self, p: Any) -> bool:
        """Whether kernels take the form of the op that does what two did."""
        return True

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        """The ways in which calls compute the op, fastest first; names begin with PREFIX. Only for types and layouts
        of `layouts`."""
        return (Algorithm(f"{PREFIX}direct", numeric_class="native"),)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        """The calls, in order; `work` is the address of the workspace of the chosen algorithm."""
        raise NotImplementedError


_NATIVE_OPS: dict[str, NativeOp] = {}


def native_for(*names: str) -> Callable[[type[NativeOp]], type[NativeOp]]:
    """Class decorator: the C++ form of the ops of these names."""
    def register(cls: type[NativeOp]) -> type[NativeOp]:
        for name in names:
            define(name, cls())
        return cls
    return register


def define(name: str, native: NativeOp) -> None:
    """Register the C++ form of an op; MXNetError when it has one already."""
    if name in _NATIVE_OPS:
        raise MXNetError(f"operator {name} has two C++ forms")
    _NATIVE_OPS[name] = native


def native_op(name: str) -> NativeOp | None:
    """The C++ form of an op, if there is one."""
    return _NATIVE_OPS.get(name)


def implemented() -> frozenset[str]:
    """Names of the ops with a C++ form."""
    return frozenset(_NATIVE_OPS)


def layouts(op: Op, params: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
    """Accepted combinations of operand layouts, best first; plain ones always, for NumPy computes those."""
    plain = Layouts.plain(len(ins), len(outs), NUMPY_SLOWDOWN)
    native = native_op(op.name)
    own = tuple(native.layouts(params, ins, outs)) if native is not None and native.takes(params, ins, outs) else ()
    return own if any(offer.ins == plain.ins and offer.outs == plain.outs for offer in own) else (*own, plain)


def algorithms(op: Op, params: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
    """The ways to compute an op in the layouts that its types have, fastest first."""
    native = native_op(op.name)
    own: Sequence[Algorithm] = ()
    if native is not None and native.takes(params, ins, outs):
        unread = op.unread(params)
        if any(_matches(offer, ins, outs, unread) for offer in native.layouts(params, ins, outs)):
            own = native.algorithms(params, ins, outs)
    return own or op.algorithms(params, ins, outs)


def _matches(offer: Layouts, ins: Types, outs: Types, unread: Sequence[int]) -> bool:
    """Whether types have the layouts of an offer, but for inputs of which only the shape is read."""
    return (all(k in unread or t.layout == layout for k, (t, layout) in enumerate(zip(ins, offer.ins, strict=True)))
            and tuple(t.layout for t in outs) == offer.outs)


def fuses(before: str, name: str, params: Any) -> bool:
    """Whether an op that does what `before` and its reader did has kernels, or `before` has none either."""
    native = native_op(name)
    return native_op(before) is None if native is None else native.fuses(params)


def is_float32(*types: TensorType) -> bool:
    """Whether all tensors are float32."""
    return all(t.dtype == np.float32 for t in types)


# -- arguments -----------------------------------------------------------------------------------------------
def pointer(operand: Operand) -> tuple[str, Any]:
    """A kernel argument: the tensor's address."""
    return "P", operand.address


def address(value: int) -> tuple[str, Any]:
    """A kernel argument: an address, for pieces of the workspace."""
    return "P", value


def int64(*values: int) -> tuple[str, Any]:
    """Kernel arguments: 64-bit sizes, counts and switches."""
    return f"{len(values)}q", tuple(int(v) for v in values)


def float32(value: float) -> tuple[str, Any]:
    """A kernel argument: a float."""
    return "f", float(value)


def float64(value: float) -> tuple[str, Any]:
    """A kernel argument: a double."""
    return "d", float(value)

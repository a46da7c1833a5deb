"""The operator: one class that declares everything any stage may ask about it, each member with a default.

Inference, gradient, planner, devices and tests read these members and nothing else: no pass knows an
operator by name. `ins` and `outs` are lists in the order of `inputs(p)` and `outputs(p)` throughout.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, MXNetError, PartialShape, Shape, TensorType, align
from .params import NoParams

if TYPE_CHECKING:
    from .indexing import IdRange

Arrays = Sequence[np.ndarray]


class ShapeError(MXNetError):
    """Two shapes that do not go together; inference adds the op, the node and its inputs to the message."""


class OperatorError(MXNetError):
    """A member of an operator that failed, or returned what it must not: the text names operator, node and member.

    `op` and `params` are those that it was asked with, for whoever knows which node that is; then `at` gives the error
    with the node's name. What the member raised is the cause.
    """

    def __init__(self, op: Op, member: str, params: Any, what: str, node: str = "") -> None:
        super().__init__(f"operator {op.name}{f', node {node}' if node else ''}: {member} {what}")
        self.op, self.member, self.params, self.what, self.node = op, member, params, what, node

    def at(self, node: str) -> OperatorError:
        """The same error of a node; one that has a node already stays as it is."""
        if self.node:
            return self
        named = OperatorError(self.op, self.member, self.params, self.what, node)
        named.__cause__ = self.__cause__
        return named


class Workspace:
    """The planned scratch bytes of one instruction, handed out piece by piece in a fixed order."""

    def __init__(self, memory: np.ndarray) -> None:
        self._memory = memory
        self._used = 0

    def array(self, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
        """An uninitialised array in the workspace, aligned like a buffer; raises when the plan granted too little."""
        dtype = np.dtype(dtype)
        nbytes = prod(shape) * dtype.itemsize
        start, end = self._used, self._used + nbytes
        if end > self._memory.size:
            raise MXNetError(f"a kernel asked for {end} workspace bytes, the plan granted {self._memory.size}; "
                             f"the op's `algorithms` must declare what its `compute` takes")
        self._used = align(end)
        return self._memory[start:end].view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the plan granted: by them an op with several algorithms knows which one was chosen."""
        return self._memory.size

    def reset(self) -> Workspace:
        """Take all pieces back, as at the start of an instruction."""
        self._used = 0
        return self

    @staticmethod
    def bytes_for(*arrays: tuple[Sequence[int], Any]) -> int:
        """Bytes needed to hand out arrays of these (shape, dtype) in turn."""
        return sum(align(prod(shape) * np.dtype(dtype).itemsize) for shape, dtype in arrays)


@dataclass(frozen=True)
class Sample:
    """One case of the generated operator tests.

    `shapes` are those of the inputs in order; `rtol`, `atol` bound the float32 error against the reference.
    `low`, `high` bound random inputs; `integer` names inputs drawn as integers in [0, bound).
    `differentiable` is False where central differences mean nothing (kinks, losses whose gradient is by definition).
    """

    params: dict[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    rtol: float = 1e-4
    atol: float = 1e-5
    low: float = -1.0
    high: float = 1.0
    integer: dict[str, int] = field(default_factory=dict)
    differentiable: bool = True


@dataclass(frozen=True)
class Sliced:
    """How an op runs on slices of a batch, which is axis 0 of each tensor that is cut.

    `ins` and `outs` say of each input and output whether it is cut; an input that is not is read whole by every
    slice. An output that is not is a sum over the batch, as of gradients of a weight: the first slice gives its own
    sum, and each later one runs as the op `resume`, which takes the running sums as further inputs, in the order of the
    outputs, and adds to them in ascending order, chunk by chunk, so that the last one's bits are those of the whole.
    """

    ins: tuple[bool, ...]
    outs: tuple[bool, ...]
    resume: str = ""

    @staticmethod
    def every(ins: Sequence[TensorType], outs: Sequence[TensorType], whole: Sequence[int] = ()) -> Sliced:
        """All outputs cut, and all inputs but those listed in `whole`."""
        return Sliced(tuple(k not in whole for k in range(len(ins))), (True,) * len(outs))

    @staticmethod
    def sums(ins: Sequence[TensorType], outs: Sequence[TensorType], resume: str, whole: Sequence[int] = ()) -> Sliced:
        """All outputs sums, and all inputs cut but those listed in `whole`."""
        return Sliced(tuple(k not in whole for k in range(len(ins))), (False,) * len(outs), resume)


@dataclass(frozen=True)
class Encoding:
    """How an op does with less than the whole of some of its inputs.

    `of` are those inputs. The op `encoder` makes of them, in their order, one tensor of the type `kind`; the op
    `reader` makes what this one does, bit for bit, of its other inputs in their order and then of that tensor.
    """

    of: tuple[int, ...]
    encoder: str
    encoder_params: Any
    kind: TensorType
    reader: str
    reader_params: Any


RECOMPUTE = ("cheap", "costly", "never")
"""How dear a second execution of an op may be."""


class Op:
    """Base of all operators; a subclass overrides what differs from the defaults."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    Params: ClassVar[type] = NoParams
    recompute: ClassVar[str] = "costly"
    """How dear a second execution is to a policy: "cheap", "costly", or "never" (it must not run twice)."""
    pointwise: ClassVar[bool] = False
    """Whether each element of the one output is made of the elements at its place of inputs of its shape and dtype, by
    a `compute` that takes any block of them, and in place over any input: such ops may be joined to a chain."""
    moves: ClassVar[bool] = False
    """Whether the output has the values of the one input in another order, and no others."""
    looks_up: ClassVar[tuple[int, ...]] = ()
    """Inputs of which only what goes into the outputs is read, as of a table whose rows are looked up."""
    as_stored: ClassVar[bool] = False
    """Whether its shapes are those in which tensors lie in memory, in whatever layout: all others see logical ones."""
    idempotent: ClassVar[bool] = False
    """Whether it makes of its own output that output again, so that a second one behind it has nothing to do."""
    transfer: ClassVar[str | None] = None
    """For framework ops that move a value instead of computing: "out", "home", "release", "in" or "arrive"."""
    has_stages: ClassVar[bool] = False
    """Whether `stages` parts the op into some that run on slices of the batch."""

    # -- front end ---------------------------------------------------------------------------------------------
    def inputs(self, p: Any) -> tuple[str, ...]:
        """Names of the inputs, auxiliary states last."""
        return ("data",)

    def aux(self, p: Any) -> tuple[str, ...]:
        """Those of the inputs that are auxiliary states, which training updates and no gradient reaches."""
        return ()

    def outputs(self, p: Any) -> tuple[str, ...]:
        """Names of the outputs, hidden ones last."""
        return ("output",)

    def visible_outputs(self, p: Any) -> int:
        """How many of the outputs a composed symbol shows."""
        return len(self.outputs(p))

    def variable_attrs(self, p: Any) -> dict[str, dict[str, str]]:
        """Attributes for automatically created input variables: {input: {key: value}}."""
        return {}

    def attributes(self, attrs: Mapping[str, str]) -> Mapping[str, str]:
        """A node's attributes as the parameters read them: those of MXNet's earlier versions in today's words."""
        return attrs

    def count_param(self) -> str | None:
        """The parameter that holds the number of inputs of an op with any number of them (Concat: num_args)."""
        return None

    def is_loss(self, p: Any) -> bool:
        """Whether backward needs no head gradient for this op's outputs."""
        return False

    def averages(self, p: Any, ins: Sequence[Shape]) -> bool:
        """Whether a loss over inputs of these shapes divides its gradient by the number of samples."""
        return False

    # -- inference ---------------------------------------------------------------------------------------------
    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        """Complete unknown shapes and dimensions both ways; raise ShapeError on a contradiction."""
        shape = merge_shapes(*ins, *outs)
        return [shape] * len(ins), [shape] * len(outs)

    def infer_dtype(self, p: Any, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        """Complete unknown dtypes both ways; the default gives every tensor the first known dtype."""
        known = next((t for t in (*ins, *outs) if t is not None), None)
        return [t or known for t in ins], [t or known for t in outs]

    # -- graph -------------------------------------------------------------------------------------------------
    def completed(self, p: Any, outs: Sequence[tuple[int, ...]]) -> Any:
        """The parameters once all shapes are known: dimensions that they leave to inference are those of `outs`."""
        return p

    def expand(self, b: Builder, p: Any, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        """The op as graph nodes in training or evaluation: one entry an output. The default is one node of itself.

        Here BatchNorm parts into a pure normalisation and an update of its moving statistics, and Dropout
        disappears in evaluation. Only this form is differentiated, planned and run.
        """
        return b.node(self.name, ins, **vars(p))

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Sequence[Entry | None], wanted: Sequence[bool]) -> Sequence[Entry | None]:
        """Add the backward nodes: the gradient of each input, None for none.

        `grads` has one entry an output, None where no gradient arrives. `wanted[i]` tells whether anybody asks
        for input i's gradient; an unwanted one may be None. What is read here is what forward must keep.
        """
        raise MXNetError(f"operator {self.name} has no gradient; block it with BlockGrad or ask for no gradient "
                         f"of what lies before it")

    def absorb(self, p: Any, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        """Name and params of the op that also does what `consumer`, with params q, makes of output 0 at its input
        `position`; None when there is none.

        That op's inputs are this one's and then the consumer's others in order; its output 0 is the consumer's only
        one, and its others are this op's. In NumPy it gives the same bits as both.
        """
        return None

    def fold(self, b: Builder, p: Any, ins: Sequence[Entry], producer: Op, q: Any,
             sources: Sequence[Entry]) -> Sequence[Entry] | None:
        """In evaluation: add nodes that do what this op and the one that makes its input 0 do, by changing weights
        beforehand, which rounds otherwise; the output, or None when it cannot be. `sources` are the producer's inputs.
        """
        return None

    def weight_rows(self, p: Any) -> int | None:
        """The axis of the output whose elements are made of one row of the weight, input 1, and one element of the
        bias, input 2 unless `no_bias`; None for an op that is not of that kind."""
        return None

    # -- execution ---------------------------------------------------------------------------------------------
    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        """The NumPy definition, the truth for every device: write every element of `outs`.

        `outs` hold garbage on entry. Whatever scratch grows with the tensors comes from `work`, so that planned
        bytes are all there is; NumPy temporaries may take 32 KiB. Ops that may be sliced compute each canonical
        chunk of the batch alone (see chunks.py) and combine reductions over chunks in ascending order.
        """
        raise NotImplementedError(self.name)

    def algorithms(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> tuple[Algorithm, ...]:
        """Ways to compute the op, fastest first, with their workspace bytes."""
        return (Algorithm(),)

    def id_ranges(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sequence[IdRange]:
        """The ids that the op reads, for which `compute` raises outside a range."""
        return ()

    def cost(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Cost:
        """FLOPs and traffic of one execution; the default is one operation an output element."""
        unread, written = self.unread(p), sum(t.nbytes for t in outs)
        read = sum(min(t.nbytes, written) if i in self.looks_up else t.nbytes
                   for i, t in enumerate(ins) if i not in unread)
        return Cost(float(sum(t.size for t in outs)), read, written)

    # -- memory ------------------------------------------------------------------------------------------------
    def inplace(self, p: Any) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs of equal size where the output may overwrite the input's bytes.

        Declares that every element of the output is written only after all elements that it needs from that
        input were read. With several pairs of one output, any of those inputs may even be the same tensor.
        """
        return ()

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        """(input, output) pairs where the output *is* the input's bytes with new contents: state updates."""
        return ()

    def view(self, p: Any) -> bool:
        """Whether output 0 is input 0 under another shape, or a part of it: the same bytes, nothing to compute."""
        return False

    def view_offset(self, p: Any, source: TensorType) -> int:
        """The byte of the source at which a view begins; an aligned one."""
        return 0

    def unread(self, p: Any) -> tuple[int, ...]:
        """Inputs of which only the shape is read; their bytes may be gone."""
        return ()

    def replay(self, p: Any) -> tuple[str, tuple[int, ...]] | None:
        """The op that makes output 0 again from outputs that were kept, and those outputs; None when there is none.

        It has the same params, and its inputs are this op's and then the kept outputs.
        """
        return None

    def encoding(self, p: Any, ins: Sequence[TensorType]) -> Encoding | None:
        """How the op, in backward, does with an encoding of values of forward; None, the default, where it does not.

        `ins` have the layouts in which the op reads them.
        """
        return None

    def encoded(self, p: Any, encoder: str, q: Any, of: Sequence[int]) -> tuple[str, Any] | None:
        """Name and params of the op that makes, as its last output, also what the op `encoder` with params q makes of
        the values `of`: numbers among this op's inputs and then its outputs. None, the default, when there is none.

        That op has this one's inputs, and its outputs before the last are this one's, with the same bits.
        """
        return None

    # -- slices of the batch -----------------------------------------------------------------------------------
    def sliced(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        """How the op runs on slices of the batch; None, the default, where it runs only on the whole.

        Slices begin at multiples of the algorithm's `chunk_rows`, and then give the bits of the whole.
        """
        return None

    def slice_params(self, p: Any, first: int, batch: int, outs: Sequence[TensorType]) -> Any:
        """The params for the slice that begins at row `first` of a batch, and makes `outs`; the same by default."""
        return p

    def stages(self, b: Builder, p: Any, ins: Sequence[Entry]) -> Sequence[Entry]:
        """For an op that runs on the whole only and says that it `has_stages`: the same as several nodes of which each
        runs on slices or reads nothing of the batch, with the bits of the op; one entry an output."""
        raise NotImplementedError(self.name)

    # -- tests -------------------------------------------------------------------------------------------------
    def samples(self) -> Sequence[Sample]:
        """Cases for the generated tests: parameters, shapes, tolerances."""
        return ()


MOST_OPERANDS = 1 << 18
"""The most inputs or outputs of an op that has as many as a parameter says: more than the parameters of any network."""


@lru_cache(maxsize=64)
def numbered(stem: str, count: int) -> tuple[str, ...]:
    """Names of so many inputs or outputs; ShapeError above MOST_OPERANDS."""
    if count > MOST_OPERANDS:
        raise ShapeError(f"{count} tensors {stem}0, {stem}1, ... of one operator; {MOST_OPERANDS} are the most")
    return tuple(f"{stem}{i}" for i in range(count))


def only_moves(op: Op, p: Any) -> bool:
    """Whether an op does nothing but move its second input into a state, its first input, which it does not read."""
    return op.mutates(p) == ((0, 0),) and 0 in op.unread(p) and (1, 0) in op.inplace(p)


def merge_shapes(*shapes: PartialShape) -> PartialShape:
    """The shape that all partial shapes agree on; ShapeError when two of them cannot be the same."""
    merged: PartialShape = None
    for shape in shapes:
        if shape is None:
            continue
        if merged is None:
            merged = tuple(shape)
        elif len(merged) != len(shape) or any(
                a is not None and b is not None and a != b for a, b in zip(merged, shape, strict=True)):
            raise ShapeError(f"shapes {format_shape(merged)} and {format_shape(shape)} differ")
        else:
            merged = tuple(b if a is None else a for a, b in zip(merged, shape, strict=True))
    return merged


def is_complete(shape: PartialShape) -> bool:
    """Whether every dimension is known."""
    return shape is not None and None not in shape


def format_shape(shape: PartialShape) -> str:
    """A partial shape for people: (32, ?, 28, 28), or "unknown"."""
    if shape is None:
        return "unknown"
    inner = ", ".join("?" if d is None else str(d) for d in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"

"""Part of the verifier: the operands of each instruction are such as its operator takes and makes.

Shapes and dtypes of what is read must lead, by the operator's own inference, to those of what is written; scratch must
be as large as the algorithm declares; copies and views keep types. An operator is asked once for each combination of
parameters, types, algorithm and scratch, of which deep networks have few.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..base import BLOCKED, PLAIN, Algorithm, Shape, TensorType, stored_shape
from ..ops.choices import AlgorithmChoices
from ..ops.op import format_shape
from ..ops.registry import get_op
from .places import Places
from .plan import Kind
from .wellformed import COPIES


class Operands:
    """Checks the types of operands; `algorithms` are the ways of the device that is to run the plan, where they are
    known."""

    def __init__(self, places: Places, algorithms: AlgorithmChoices | None = None) -> None:
        self.places, self.plan = places, places.plan
        self.algorithms = algorithms
        self.kinds, self.kind_of = places.types
        self.seen: set[tuple[Any, ...]] = set()
        """Combinations that were looked at, the params of each as an object: the plan keeps those."""
        self.fitting: set[tuple[Any, ...]] = set()
        """Combinations that fit, with params by value."""

    def check(self) -> int:
        """Check the whole plan; the number of checks made."""
        code, kind_of, seen = self.plan.instructions, self.kind_of, self.seen
        scratch = [*self.plan.buffers.bytes, 0]    # the last one is that of no workspace, -1
        self._check_views()
        rows = zip(code.kind, code.op, code.params, code.algorithm, code.reads, code.writes, code.workspace,
                   strict=True)
        for i, (kind, op, params, algorithm, reads, writes, workspace) in enumerate(rows):
            if kind == Kind.COMPUTE:
                key = op, id(params), algorithm, scratch[workspace], *[kind_of[b] for b in (*reads, *writes)]
                if key not in seen:
                    self._check_once(i, key)
                    seen.add(key)
            elif kind in COPIES and kind_of[reads[0]] != kind_of[writes[0]]:
                self.fail(i, f"copies {self.operand(reads[0])} into {self.operand(writes[0])}; shape, dtype and "
                              f"layout must be the same")
        self._check_ends()
        return len(code) + len(kind_of)

    def _check_once(self, i: int, key: tuple[Any, ...]) -> None:
        """Ask the op of instruction `i`, unless an equal one was asked."""
        equal = key[0], self.plan.instructions.params[i], *key[2:]
        if equal not in self.fitting:
            _Instruction(self, i, key[3]).check()
            self.fitting.add(equal)

    def _check_views(self) -> None:
        """A view is of the dtype and layout of what it shows, and in layouts other than row-major shows whole rows."""
        kinds, kind_of = self.kinds, self.kind_of
        for b in self.places.view.nonzero()[0].tolist():
            source = int(self.places.shares[b])
            own, other = kinds[kind_of[b]], kinds[kind_of[source]]
            if (own.dtype, own.layout) != (other.dtype, other.layout) or (
                    own.layout != PLAIN and own.shape[1:] != other.shape[1:]):
                self.places.fail(f"{self.operand(b)} is a view of {self.operand(source)}; dtype and layout must be "
                                 f"the same, and rows in a layout that is not row-major", int(self.places.born[b]))

    def _check_ends(self) -> None:
        """What the outside sees is row-major, and a persistent tensor keeps its type."""
        persistent = self.plan.persistent
        outputs = (out.buffer for out in self.plan.outputs)
        for b in (*self.plan.inputs.values(), *outputs, *(t.first for t in persistent)):
            if self.kinds[self.kind_of[b]].layout != PLAIN:
                self.places.fail(f"{self.operand(b)} is an input, an output or persistent; it must be row-major")
        for tensor in persistent:
            if self.kind_of[tensor.first] != self.kind_of[tensor.last]:
                self.places.fail(f"persistent tensor {tensor.name!r} begins as {self.operand(tensor.first)} and ends "
                                 f"as {self.operand(tensor.last)}; shape, dtype and layout must be the same",
                                 -1, int(self.places.born[tensor.last]))

    def operand(self, b: int) -> str:
        """A buffer for people, with its type."""
        return f"{self.places.buffer(b)} of {_text(self.kinds[self.kind_of[b]])}"

    def fail(self, i: int, what: str) -> NoReturn:
        """Refuse instruction `i`."""
        self.places.fail(f"{self.places.instruction(i)} {what}", i)


class _Instruction:
    """One computation beside what its op says of these operands."""

    def __init__(self, operands: Operands, i: int, scratch_bytes: int) -> None:
        code = operands.plan.instructions
        self.operands, self.i, self.scratch_bytes = operands, i, scratch_bytes
        self.op, self.params, self.algorithm = get_op(code.op[i]), code.params[i], code.algorithm[i]
        self.reads, self.writes = code.reads[i], code.writes[i]
        self.read = [p for p in range(len(self.reads)) if p not in code.unread[i]]
        self.ins, self.outs = ([operands.kinds[operands.kind_of[b]] for b in buffers]
                               for buffers in (self.reads, self.writes))

    def check(self) -> None:
        """Fail, naming the operand, where the op says something else."""
        self._check_inferred("shape", self.op.infer_shape, self._shape)
        self._check_inferred("dtype", self.op.infer_dtype, lambda kind: kind.dtype)
        self._check_algorithm()
        if self.op.as_stored:
            self._check_logical()

    def _check_algorithm(self) -> None:
        """The algorithm is one of the device's, where that is known, and has its scratch; the op's own take and make
        row-major tensors."""
        choices = self.operands.algorithms
        offered = self._offers(self.op.algorithms) if choices is None else self._offers(choices, self.op)
        found = offered.get(self.algorithm)
        if found is None and choices is not None:
            self._fail(f"is computed by {self.algorithm!r}, and for these operands the device has "
                       f"{', '.join(map(repr, offered))}")
        if found is not None and self.scratch_bytes < found.workspace_bytes:
            self._fail(f"has {self.scratch_bytes} bytes of workspace; {self.algorithm!r} takes "
                       f"{found.workspace_bytes} for these operands")
        if not self.op.as_stored and any(kind.layout != PLAIN for kind in (*self.ins, *self.outs)) \
                and self.algorithm in self._offers(self.op.algorithms):
            self._check_row_major()

    def _offers(self, algorithms: Callable[..., Sequence[Algorithm]], *before: Any) -> dict[str, Algorithm]:
        return {a.name: a for a in self._asked(algorithms, *before, self.params, self.ins, self.outs)}

    def _check_row_major(self) -> None:
        named = [*(("input", p, self.reads[p]) for p in self.read),
                 *(("output", o, b) for o, b in enumerate(self.writes))]
        for role, position, b in named:
            layout = self.operands.plan.buffers.layout[b]
            if layout != PLAIN:
                self._fail(f"has {role} {position} in the layout {layout!r}, {self.operands.operand(b)}; "
                           f"{self.algorithm!r} takes row-major tensors")

    def _check_logical(self) -> None:
        """Where shapes are those in memory, two numbers of channels may take the same blocks: they must be equal, and
        so must be the logical shapes where a tensor goes from one layout to another."""
        named = list(zip((*self.reads, *self.writes), (*self.ins, *self.outs), strict=True))
        like = [(b, kind.shape[1:2]) for b, kind in named if kind.layout == BLOCKED]
        if self.op.moves and self.ins[0].layout != self.outs[0].layout:
            like = [(b, kind.shape) for b, kind in named]
        for b, wanted in like:
            if wanted != like[0][1]:
                self._fail(f"has {self.operands.operand(like[0][0])} and {self.operands.operand(b)}; they must be of "
                           f"one logical shape, or as many channels")

    def _shape(self, kind: TensorType) -> Shape:
        return stored_shape(kind.shape, kind.layout) if self.op.as_stored else kind.shape

    def _check_inferred(self, what: str, infer: Callable[..., Any], of: Callable[[TensorType], Any]) -> None:
        """What inference makes of the inputs alone fits, and of all operands where that leaves something open."""
        ins, outs = list(map(of, self.ins)), list(map(of, self.outs))
        found_ins, found_outs = self._asked(infer, self.params, list(ins), [None] * len(outs))
        if found_ins == ins and found_outs == outs:    # as nearly always, at a fraction of the time
            return
        if len(found_ins) != len(ins) or len(found_outs) != len(outs):
            self._fail(f"cannot be checked: its op infers {len(found_ins)} inputs and {len(found_outs)} outputs")
        self._check_fit(what, "input", self.reads, ins, found_ins)
        self._check_fit(what, "output", self.writes, outs, found_outs)
        if not all(_is_known(value) for value in found_outs):
            found_ins, found_outs = self._asked(infer, self.params, list(ins), list(outs))
            self._check_fit(what, "input", self.reads, ins, found_ins)
            self._check_fit(what, "output", self.writes, outs, found_outs)

    def _check_fit(self, what: str, role: str, buffers: Sequence[int], given: Sequence[Any],
                   found: Sequence[Any]) -> None:
        for position, (b, own, wanted) in enumerate(zip(buffers, given, found, strict=True)):
            if not _fits(own, wanted):
                told = format_shape(wanted) if what == "shape" else wanted
                self._fail(f"has {role} {position}, {self.operands.operand(b)}; its op, with these parameters and "
                           f"other operands, has the {what} {told} there")

    def _asked(self, member: Callable[..., Any], *given: Any) -> Any:
        """What the op says; whatever goes wrong there, the plan is refused: its operands are not the op's."""
        try:
            return member(*given)
        except Exception as error:
            told = ", ".join(self.operands.operand(b) for b in self.reads)
            kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
            self._fail(f"does not take its operands ({told}): {kind}{error}")

    def _fail(self, what: str) -> NoReturn:
        self.operands.fail(self.i, what)


def _is_known(value: Any) -> bool:
    """Whether a shape or a dtype is known in full."""
    return value is not None and not (isinstance(value, (tuple, list)) and None in value)


def _fits(given: Any, wanted: Any) -> bool:
    """Whether a shape or a dtype is what is wanted, as far as that is known."""
    if wanted is None:
        return True
    if isinstance(wanted, (tuple, list)):
        return len(given) == len(wanted) and all(w is None or g == w for g, w in zip(given, wanted, strict=True))
    return bool(given == wanted)


def _text(kind: TensorType) -> str:
    layout = f" in the layout {kind.layout!r}" if kind.layout != PLAIN else ""
    return f"{kind.dtype} {format_shape(kind.shape)}{layout}"

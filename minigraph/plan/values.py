"""Part of the verifier: what each value is computed from, as a digest; so outputs and persistent tensors are shown to
be what the graph says, whatever runs twice, is copied, or lies over what.

The digest of a value is that of its operator, the parameters and the digests of the inputs; of inputs that are read for
their shape only it is the shape that counts (value numbering; Click, "Global code motion, global value numbering",
1995). A view has the digest of what it shows, with offset and shape. A plan carries the digests that the ordered graph
gave, and the verifier finds them again from the instructions alone: two outputs that are exchanged, a copy of another
value, a read of an older version, a repetition that is not one, and a tensor that is never written all differ.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import Any

from ..base import TensorType
from ..graph.graph import Graph
from ..ops.op import Op, only_moves
from ..ops.registry import get_op
from .places import Places
from .plan import PERSISTENT_CLASSES, Kind
from .serialize import compact
from .wellformed import COPIES

Digest = bytes
_BYTES = 12
"""Of a digest: among a million values two are alike with a chance of 1 in 10^17."""


class Numbering:
    """Digests of values; equal computations get equal ones."""

    def __init__(self) -> None:
        self._text: dict[tuple[str, int], bytes] = {}
        self._kept: list[Any] = []
        self._again: dict[Digest, Digest] = {}

    def given(self, name: str) -> Digest:
        """An input or a persistent tensor as it is before the program."""
        return _digest(b"given", name.encode())

    def filled(self, value: float) -> Digest:
        """A tensor of one number."""
        return _digest(b"filled", repr(value).encode())

    def view(self, source: Digest, offset: int, kind: TensorType, whole: TensorType) -> Digest:
        """A part of a value, or the value in another shape; the value's own where it is neither."""
        if not offset and (kind.shape, kind.dtype) == (whole.shape, whole.dtype):
            return source
        return _digest(b"view", source, _type_text(kind, offset))

    def made(self, op: Op, params: Any, inputs: Sequence[Digest], ins: Sequence[TensorType],
             outs: Sequence[TensorType]) -> list[Digest]:
        """The outputs of an operator; `inputs` are the digests of what it reads, `ins` and `outs` the types."""
        if only_moves(op, params):
            return [inputs[1]]
        found = self._outputs(op, params, inputs, ins, len(outs))
        if found:
            found[0] = self._again.get(found[0], found[0])
        replay = op.replay(params)
        if replay is not None:
            name, kept = replay
            again = self._outputs(get_op(name), params, [*inputs, *(found[k] for k in kept)],
                                  [*ins, *(outs[k] for k in kept)], 1)
            self._again[again[0]] = found[0]
        return found

    def _outputs(self, op: Op, params: Any, inputs: Sequence[Digest], ins: Sequence[TensorType],
                 count: int) -> list[Digest]:
        unread = op.unread(params)
        read = [_type_text(kind, 0) if k in unread else value
                for k, (value, kind) in enumerate(zip(inputs, ins, strict=True))]
        whole = _digest(op.name.encode(), self._params(op, params), *read)
        return [_digest(whole, k.to_bytes(4, "little")) for k in range(count)]

    def _params(self, op: Op, params: Any) -> bytes:
        key = op.name, id(params)
        text = self._text.get(key)
        if text is None:
            try:
                text = compact({each.name: getattr(params, each.name) for each in fields(params)}).encode()
            except TypeError:  # what no file can hold is known by itself
                text = repr(params).encode()
            self._text[key] = text
            self._kept.append(params)  # as long as its id serves
        return text


def _digest(*parts: bytes) -> Digest:
    whole = blake2b(digest_size=_BYTES)
    for part in parts:
        whole.update(len(part).to_bytes(4, "little"))
        whole.update(part)
    return whole.digest()


def _type_text(kind: TensorType, offset: int) -> bytes:
    return f"{kind.shape} {kind.dtype} {offset}".encode()


def expected_values(graph: Graph) -> tuple[str, ...]:
    """The digests of a graph's outputs, in order, and then of its persistent variables as they are left."""
    numbering, found = Numbering(), [b""] * graph.num_entries
    begin, root, last = [0] * graph.num_entries, list(range(graph.num_entries)), dict[int, int]()
    version_of: dict[int, int] = {}
    for i, op in enumerate(graph.op):
        params, inputs, entries = graph.params[i], graph.inputs[i], graph.entries(i)
        if op is None:
            found[entries[0]] = numbering.given(graph.name[i])
            if graph.variable_class[i] in PERSISTENT_CLASSES:
                last[entries[0]] = version_of[entries[0]] = entries[0]
        elif op.view(params):
            entry, source = entries[0], inputs[0]
            root[entry] = root[source]
            begin[entry] = begin[source] + op.view_offset(params, graph.type_of(source))
            found[entry] = numbering.view(found[root[entry]], begin[entry], graph.type_of(entry),
                                          graph.type_of(root[entry]))
        else:
            made = numbering.made(op, params, [found[e] for e in inputs], list(map(graph.type_of, inputs)),
                                  list(map(graph.type_of, entries)))
            found[entries.start:entries.stop] = made
            for source, out in op.mutates(params):
                variable = version_of.get(inputs[source])
                if variable is not None:
                    last[variable] = entries[out]
                    version_of[entries[out]] = variable
    return tuple(found[e].hex() for e in (*graph.outputs, *last.values()))


class Values:
    """Finds the digests of a plan's outputs and persistent tensors from its instructions."""

    def __init__(self, places: Places) -> None:
        self.places, self.plan = places, places.plan
        self.numbering = Numbering()
        self.found: dict[int, Digest] = {}

    def check(self) -> int:
        """VerificationError for the first output or persistent tensor that is another value than the graph's; the
        number of those that were compared."""
        plan, places = self.plan, self.places
        if not plan.expected:
            return 0
        held = [(f"output {name!r}", b) for name, b in plan.outputs]
        held += [(f"persistent tensor {tensor.name!r}", tensor.last) for tensor in plan.persistent]
        if len(held) != len(plan.expected):
            places.fail(f"the plan tells what {len(plan.expected)} values are, and has {len(held)} outputs and "
                        f"persistent tensors")
        self._follow()
        for (what, b), expected in zip(held, plan.expected, strict=True):
            if places.bytes[b] and self._value(b).hex() != expected:
                born = int(places.born[b])
                places.fail(f"{what} is {places.buffer(b)} of {places.instruction(born)}, which is not computed as the "
                            f"graph says: it is another value, or one of its inputs is", born,
                            at=(int(places.start[b]), int(places.end[b])))
        return len(held)

    def _follow(self) -> None:
        plan, code, found = self.plan, self.plan.instructions, self.found
        for name, b in (*plan.inputs.items(), *((tensor.name, tensor.first) for tensor in plan.persistent)):
            found[b] = self.numbering.given(name)
        kinds, kind_of = self.places.types
        for i, kind in enumerate(code.kind):
            reads, writes = code.reads[i], code.writes[i]
            if kind in COPIES:
                found[writes[0]] = self._value(reads[0])
            elif kind == Kind.FILL:
                found[writes[0]] = self.numbering.filled(code.value[i])
            elif kind == Kind.COMPUTE:
                unread = code.unread[i]
                inputs = [b"" if k in unread else self._value(b) for k, b in enumerate(reads)]
                made = self.numbering.made(get_op(code.op[i]), code.params[i], inputs,
                                           [kinds[kind_of[b]] for b in reads], [kinds[kind_of[b]] for b in writes])
                found.update(zip(writes, made, strict=True))

    def _value(self, b: int) -> Digest:
        value = self.found.get(b)
        if value is None:
            root = int(self.places.value[b])
            kinds, kind_of = self.places.types
            begin = int(self.places.offset[b] - self.places.offset[root])
            value = self.found[b] = self.numbering.view(self.found.get(root, b""), begin, kinds[kind_of[b]],
                                                        kinds[kind_of[root]])
        return value

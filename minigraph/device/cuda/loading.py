"""From a plan to calls: every launch, copy, fill, record and wait of a range, made ready once.

`PoisonedLoading` puts fills with NaN and checks of ids between them, and everything on one stream in the order of the
list.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base import MXNetError, TensorType
from ...plan.plan import COMPUTE_STREAM, STREAMS, Kind, Plan
from ..storages import is_transient, storages_by_death
from .checking import IdChecks
from .launch import Launch, Operand, kernel_op
from .memory import Binding, CudaMemory, Span
from .modules import Call
from .resources import Holdings

if TYPE_CHECKING:
    from .device import CudaDevice


class Loading:
    """Makes the calls of one plan over one binding; `events` are the plan's, and are made as they are met."""

    def __init__(self, plan: Plan, memory: CudaMemory, binding: Binding, holdings: Holdings,
                 events: dict[Any, Any]) -> None:
        self.plan, self.memory, self.binding = plan, memory, binding
        self.device: CudaDevice = memory.device
        self.cuda = self.device.driver.cuda
        self._holdings, self._events = holdings, events
        self._ended: frozenset[int] = frozenset()
        """Events that an earlier range has recorded: a range begins when all streams of the ones before have ended, and
        a captured graph cannot wait for what another one has recorded."""

    def calls(self, first: int, last: int) -> list[Call]:
        """The calls of a range. The compute stream comes before all others at its beginning, and after them at its
        end, so that a run follows the one before as a whole."""
        code = self.plan.instructions
        self._ended = frozenset(code.event[i] for i in range(first) if code.kind[i] == Kind.RECORD)
        others = sorted({self.stream_of(i) for i in range(first, last)} - {COMPUTE_STREAM})
        calls: list[Call] = []
        for stream in others:
            calls += self._order(("begin", stream), before=COMPUTE_STREAM, after=stream)
        for i in range(first, last):
            calls += self.instruction(i, Kind(code.kind[i]))
        for stream in others:
            calls += self._order(("end", stream), before=stream, after=COMPUTE_STREAM)
        return calls

    def stream_of(self, i: int) -> int:
        """The stream that an instruction is put on."""
        return self.plan.instructions.stream[i]

    def instruction(self, i: int, kind: Kind) -> list[Call]:
        """The calls of one instruction."""
        code, stream = self.plan.instructions, self._stream(self.stream_of(i))
        if kind == Kind.COMPUTE:
            return self._compute(i, stream)
        if kind == Kind.RECORD:
            return [(self._event(code.event[i]).record, (stream,))]
        if kind == Kind.WAIT:
            return [] if code.event[i] in self._ended else [(stream.wait_for_event, (self._event(code.event[i]),))]
        if kind == Kind.FILL:
            return self._fill(code.writes[i][0], code.value[i], stream)
        return self._copy(code.reads[i][0], code.writes[i][0], kind, stream)

    # -- kernels -----------------------------------------------------------------------------------------------
    def _compute(self, i: int, stream: Any) -> list[Call]:
        code = self.plan.instructions
        form, params, work = kernel_op(code.op[i]), code.params[i], code.workspace[i]
        ins = [self._operand(b, k in code.unread[i]) for k, b in enumerate(code.reads[i])]
        outs = [self._operand(b) for b in code.writes[i]]
        self._check_workspace(i, ins, outs)
        launches = form.launches(params, ins, outs, self.binding.addresses[work] if work >= 0 else 0)
        family = type(form).__module__.rpartition(".")[2]
        regions = self._regions(i) if launches else []
        return regions + [self._launch(launch, stream, family) for launch in launches]

    def _launch(self, launch: Launch, stream: Any, family: str) -> Call:
        return self.device.kernels.call(launch, stream, family)

    def _operand(self, b: int, shape_only: bool = False) -> Operand:
        columns = self.plan.buffers
        return Operand(0 if shape_only else self.binding.addresses[b], columns.shape[b], columns.dtype[b])

    def _check_workspace(self, i: int, ins: Sequence[Operand], outs: Sequence[Operand]) -> None:
        """Plans of another device grant the workspaces of its algorithms, not of these."""
        code = self.plan.instructions
        granted = self.plan.buffers.bytes[code.workspace[i]] if code.workspace[i] >= 0 else 0
        types = [[TensorType(operand.shape, operand.dtype) for operand in side] for side in (ins, outs)]
        needed = kernel_op(code.op[i]).algorithm(code.params[i], *types).workspace_bytes
        if granted < needed:
            raise MXNetError(f"instruction {code.name[i]} ({code.op[i]}) takes {needed} bytes of workspace on the GPU, "
                             f"the plan grants {granted}; compile the plan for this device (Request.algorithms)")

    def _regions(self, i: int) -> list[Call]:
        """For the race detector: the bytes of the instruction's buffers, the largest last, for the latest counts."""
        region, code = self.device.driver.region, self.plan.instructions
        if region is None:
            return []
        read = [b for k, b in enumerate(code.reads[i]) if k not in code.unread[i]]
        used = {*read, *code.writes[i], *([code.workspace[i]] if code.workspace[i] >= 0 else [])}
        spans = sorted({(self.plan.buffers.bytes[b], self.binding.addresses[b]) for b in used})
        return [(region, (address, nbytes)) for nbytes, address in spans if nbytes]

    # -- fills, copies, events ---------------------------------------------------------------------------------
    def _fill(self, b: int, value: float, stream: Any) -> list[Call]:
        columns = self.plan.buffers
        dtype, count = columns.dtype[b], columns.bytes[b] // columns.dtype[b].itemsize
        bits = np.array(value).astype(dtype).tobytes()
        size = next((size for size in (1, 2, 4) if bits == bits[:size] * (len(bits) // size)), None)
        if size is None:
            raise MXNetError(f"the GPU cannot fill {columns.name[b]} ({dtype}) with {value}; it fills with patterns of "
                             f"at most 4 bytes")
        size = max(size, min(dtype.itemsize, 4))
        fill = {1: self.cuda.memset_d8_async, 2: self.cuda.memset_d16_async, 4: self.cuda.memset_d32_async}[size]
        pattern = int.from_bytes(bits[:size], "little")
        return [(fill, (self.binding.addresses[b], pattern, count * dtype.itemsize // size, stream))] if count else []

    def _copy(self, source: int, target: int, kind: Kind, stream: Any) -> list[Call]:
        if not self.plan.buffers.bytes[source]:
            return []
        if kind == Kind.COPY_OUT:
            return [(self.cuda.memcpy_dtoh_async, (self._on_host(target), self.binding.addresses[source], stream))]
        return [(self.cuda.memcpy_htod_async, (self.binding.addresses[target], self._on_host(source), stream))]

    def _on_host(self, b: int) -> np.ndarray:
        columns = self.plan.buffers
        return self.binding.host[columns.arena[b]][columns.offset[b]:columns.offset[b] + columns.bytes[b]]

    def _order(self, event: Any, before: int, after: int) -> list[Call]:
        handle = self._event(event)
        return [(handle.record, (self._stream(before),)), (self._stream(after).wait_for_event, (handle,))]

    def _event(self, key: Any) -> Any:
        found = self._events.get(key)
        if found is None:
            found = self._events[key] = self._holdings.event()
        return found

    def _stream(self, number: int) -> Any:
        if number >= len(STREAMS):
            raise MXNetError(f"the plan of `{self.plan.program}` uses stream {number}; the GPU runs the streams "
                             f"{', '.join(STREAMS)}")
        return self.memory.streams[number]


class PoisonedLoading(Loading):
    """All bytes that nobody may read hold NaN: transient ones before the program begins, except for the inputs;
    outputs and scratch before each instruction; and every storage after its last reader. What reads ids is preceded by
    a check of them."""

    def __init__(self, plan: Plan, memory: CudaMemory, binding: Binding, holdings: Holdings, events: dict[Any, Any],
                 checks: IdChecks) -> None:
        super().__init__(plan, memory, binding, holdings, events)
        self._checks = checks

    def calls(self, first: int, last: int) -> list[Call]:
        """The calls of a range; one that begins the program begins with a fill of all that holds no input."""
        self._dying = storages_by_death(self.plan)
        return ([*self._checks.clear(), *self._before_program()] if first == 0 else []) + super().calls(first, last)

    def stream_of(self, i: int) -> int:
        """One stream: a fill must come after whatever used the bytes, on any stream."""
        return COMPUTE_STREAM

    def instruction(self, i: int, kind: Kind) -> list[Call]:
        """The instruction between fills."""
        code, columns = self.plan.instructions, self.plan.buffers
        if kind in (Kind.RECORD, Kind.WAIT):
            return [call for b in self._dying.get(i + 1, ()) for call in self._poison(self._span(b))]
        fresh = [b for b in code.writes[i] if columns.shares[b] < 0]
        before = [*fresh, *([code.workspace[i]] if code.workspace[i] >= 0 else [])]
        fills = [call for b in before for call in self._poison(self._span(b))]
        after = [call for b in self._dying.get(i + 1, ()) for call in self._poison(self._span(b))]
        return fills + self._check(i) + super().instruction(i, kind) + after

    def _check(self, i: int) -> list[Call]:
        ins = [self._operand(b) for b in self.plan.instructions.reads[i]]
        launches = self._checks.launches(i, ins)
        regions = self._regions(i) if launches else []
        return regions + [self._launch(launch, self.memory.streams[0], "indexing") for launch in launches]

    def _before_program(self) -> list[Call]:
        """Bytes of other programs of the group are left alone, for their outputs may still be read."""
        columns, arenas = self.plan.buffers, self.plan.arenas
        transient = [b for b in range(len(columns)) if is_transient(arenas[columns.arena[b]])]
        spans = subtract(self._places(transient), self._places(self.plan.inputs.values()))
        return [call for span in spans for call in self._poison(span)]

    def _places(self, buffers: Iterable[int]) -> list[Span]:
        return merged([span for b in buffers for span in self.memory.spans(self.plan, b, self.binding)])

    def _span(self, b: int) -> Span:
        address = self.binding.addresses[b]
        return address, address + (self.plan.buffers.bytes[b] if address else 0)

    def _poison(self, span: Span) -> list[Call]:
        begin, end = span
        return [(self.cuda.memset_d8_async, (begin, 0xFF, end - begin, self.memory.streams[0]))] if end > begin else []


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same bytes in spans that neither touch nor overlap, ascending."""
    result: list[Span] = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1] = result[-1][0], max(result[-1][1], end)
        elif end > begin:
            result.append((begin, end))
    return result


def subtract(spans: Sequence[Span], holes: Sequence[Span]) -> list[Span]:
    """The bytes of `spans` that are in none of `holes`; both as `merged` gives them."""
    result: list[Span] = []
    for begin, end in spans:
        for first, last in holes:
            if first < end and last > begin:
                if begin < first:
                    result.append((begin, first))
                begin = last
        if begin < end:
            result.append((begin, end))
    return result

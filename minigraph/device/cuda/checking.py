"""Ids out of range in runs with poison: the GPU then raises as the CPU does, where else each operator follows a rule.

Before an instruction that reads ids a kernel looks for the first one out of range, and notes its place and value in a
word of its own; afterwards the ids may be gone. When a run has come to its end all words are read, and the first one
that tells of an id raises. Programs have words of their own, so none raises for another's ids. Nothing of this exists
without poison.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import MXNetError, TensorType
from ...ops.indexing import IdRange
from ...ops.registry import get_op
from ...plan.plan import Kind, Plan
from .launch import BLOCK, Launch, Operand, address, int32, int64
from .memory import CudaMemory
from .modules import Call
from .operands import single
from .resources import Holdings
from .rows import ids_arguments

WORD = np.dtype([("number", np.uint64), ("value", np.uint64)])
"""What the kernel ids_check writes: 0 or 1 + the place of the first id out of range, and that id's bits."""


def ids_check(op_name: str, wanted: IdRange, ids: Operand, word: int) -> Launch:
    """The launch that looks at one range of ids and writes the word at an address."""
    count = int(np.prod(wanted.shape, dtype=np.int64))
    (_, at), kind = ids_arguments(op_name, ids)
    ignored = (int32(wanted.ignored is not None), single(wanted.ignored or 0.0))
    args = (address(at + wanted.start * ids.dtype.itemsize), kind, int64(count), int64(wanted.least),
            int64(wanted.bound), *ignored, address(word))
    return Launch("ids_check", (1, 1, 1), (BLOCK, 1, 1), args)


class IdChecks:
    """The checks of one program, with their words, which take device memory beyond the plan; needs the device's
    context."""

    def __init__(self, plan: Plan, memory: CudaMemory, holdings: Holdings) -> None:
        self._plan, self._memory = plan, memory
        self._cuda: Any = memory.device.driver.cuda
        self._ranges: list[tuple[int, IdRange]] = []
        """The instruction and what it wants, in the order of the words."""
        self._numbers: dict[int, range] = {}
        """The words of each instruction that has any."""
        for i, kind in enumerate(plan.instructions.kind):
            found = _ranges(plan, i) if kind == Kind.COMPUTE else []
            if found:
                self._numbers[i] = range(len(self._ranges), len(self._ranges) + len(found))
                self._ranges += [(i, wanted) for wanted in found]
        self._words = holdings.memory(len(self._ranges) * WORD.itemsize).address if self._ranges else 0
        for function, arguments in self.clear():
            function(*arguments)

    def clear(self) -> list[Call]:
        """The calls that forget what was noted."""
        nbytes, stream = len(self._ranges) * WORD.itemsize, self._memory.streams[0]
        return [(self._cuda.memset_d8_async, (self._words, 0, nbytes, stream))] if nbytes else []

    def launches(self, i: int, ins: Sequence[Operand]) -> list[Launch]:
        """What is to run before instruction `i`, whose inputs are `ins`."""
        name, found = self._plan.instructions.op[i], []
        for number in self._numbers.get(i, ()):
            _, wanted = self._ranges[number]
            found.append(ids_check(name, wanted, ins[wanted.operand], self._words + number * WORD.itemsize))
        return found

    def check(self) -> None:
        """Wait for what was queued, and raise MXNetError about the first instruction that read an id out of range."""
        if not self._ranges:
            return
        words, stream = np.zeros(len(self._ranges), WORD), self._memory.streams[0]
        self._cuda.memcpy_dtoh_async(words, self._words, stream)
        stream.synchronize()
        if words["number"].any():
            at = int(np.argmax(words["number"] != 0))
            raise self._error(*self._ranges[at], int(words["number"][at]) - 1, words["value"][at:at + 1])

    def _error(self, i: int, wanted: IdRange, at: int, bits: np.ndarray) -> MXNetError:
        code = self._plan.instructions
        value = bits.view(self._plan.buffers.dtype[code.reads[i][wanted.operand]])[0]
        operand = get_op(code.op[i]).inputs(code.params[i])[wanted.operand]
        return MXNetError(f"{code.name[i]}: {wanted.error(value, at)} (element {wanted.start + at} of the input "
                          f"{operand} of {code.op[i]}, in `{self._plan.program}` on gpu({self._memory.device.index})); "
                          f"correct or clip it before this operator reads it: without poison=True the GPU does not "
                          f"raise, and goes on without it")


def _ranges(plan: Plan, i: int) -> list[IdRange]:
    """The ids that an instruction reads, if any."""
    code, columns = plan.instructions, plan.buffers
    ins, outs = ([TensorType(columns.shape[b], columns.dtype[b]) for b in side[i]]
                 for side in (code.reads, code.writes))
    return [wanted for wanted in get_op(code.op[i]).id_ranges(code.params[i], ins, outs) if 0 not in wanted.shape]

"""CUDA forms of the parting of an RNN's parameters, and of its gradient; kernels/slicing.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .launch import KernelOp, Launch, Operand, kernels_for
from .operands import require_float32
from .slicing import move


def _flat(operand: Operand) -> Operand:
    return Operand(operand.address, (operand.size,), operand.dtype)


@kernels_for("_rnn_parameters")
class RnnParameters(KernelOp):
    """The vector's parts: one launch for each."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_rnn_parameters", [*ins, *outs])
        launches: list[Launch] = []
        start = 0
        for out in outs:
            launches += move(ins[0], _flat(out), 0, start, 0, out.size)
            start += out.size
        return launches


@kernels_for("_rnn_parameters_backward")
class RnnParametersBackward(KernelOp):
    """The parts in one vector: one launch for each."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        require_float32("_rnn_parameters_backward", [*ins, *outs])
        launches: list[Launch] = []
        start = 0
        for part in ins:
            launches += move(_flat(part), outs[0], 0, 0, start, part.size)
            start += part.size
        return launches

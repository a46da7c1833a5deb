"""CUDA forms of what CTCLoss expands to, and of its gradient; kernels/ctc.cu.

Where the CPU raises for a label or a length out of range, the label counts as padding here and the length as 0; with
poison the program raises (checking.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import Algorithm, TensorType
from .basic import fill
from .launch import BLOCK, MAX_BLOCKS, KernelOp, Launch, Operand, address, kernels_for, pointer
from .operands import require_float32
from .rows import ids_arguments

STATE_BYTES = 20
"""Workspace of a state in backward: three floats and two ints."""


def _arguments(p: Any, data: Operand, ids: Sequence[Operand]) -> tuple[str, Any]:
    """The kernel argument `Ctc`."""
    label, given = ids[0], iter(ids[1:])
    found = [ids_arguments("CTCLoss", label),
             *(ids_arguments("CTCLoss", next(given)) if use else (address(0), ("i", 0))
               for use in (p.use_data_lengths, p.use_label_lengths))]
    return "3P4q4i", (*(place[1] for place, _ in found), *data.shape, label.shape[1], *(kind[1] for _, kind in found),
                      int(p.blank_label == "last"))


def _grid(batch: int) -> tuple[int, int, int]:
    return min(batch, MAX_BLOCKS), 1, 1


@kernels_for("_ctc_loss")
class CtcLoss(KernelOp):
    """A block for each sequence."""

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, loss = ins[0], outs[0]
        require_float32("_ctc_loss", [data, *outs])
        if not loss.size:
            return ()
        args = (*map(pointer, (data, *outs)), _arguments(p, data, ins[1:]))
        return (Launch("ctc_loss_forward_float32", _grid(loss.size), (BLOCK, 1, 1), args),)


@kernels_for("_ctc_loss_backward")
class CtcLossBackward(KernelOp):
    """A block for each sequence, which writes to the classes of its label; the others' gradients are 0."""

    def algorithm(self, p: Any, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Algorithm:
        _, batch, states = ins[2].shape
        return Algorithm("states", STATE_BYTES * batch * states)

    def launches(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand],
                 work: int) -> Sequence[Launch]:
        data, (out,) = ins[3], outs
        require_float32("_ctc_loss_backward", [*ins[:4], out])
        if not out.size:
            return ()
        args = (*map(pointer, (*ins[:4], out)), address(work), _arguments(p, data, ins[4:]))
        return (*fill(out, 0), Launch("ctc_loss_backward_float32", _grid(data.shape[1]), (BLOCK, 1, 1), args))

"""Chains of elementwise ops by the kernels of their steps, block by block (kernels/cpu/chain.cpp)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....ops.chain import ChainParams, slots_of, steps_of
from ....ops.pointwise import CHAIN
from .call import KernelAddress, NativeCall, NativeOp, Operand, Types, float32, int64, native_for, native_op, pointer
from .elemwise import AddN, Elementwise, OfActivation
from .layout import Layouts, alike

MAX_INPUTS, MAX_CALLS, MAX_READS = 8, 24, 2
"""As in chain.cpp."""
_OUTPUT = MAX_INPUTS


@native_for(CHAIN)
class Chain(NativeOp):
    """The calls of its steps, on registers in place of tensors."""

    def fuses(self, p: ChainParams) -> bool:
        return (p.num_args <= MAX_INPUTS and sum(len(step.inputs) for step in steps_of(p.program)) <= MAX_CALLS
                and all(isinstance(native_op(step.op.name), (AddN, Elementwise, OfActivation))
                        for step in steps_of(p.program)))

    def layouts(self, p: ChainParams, ins: Types, outs: Types) -> Sequence[Layouts]:
        if not self.fuses(p):
            return []
        return [Layouts((layout,) * len(ins), (layout,)) for layout in alike(*ins, *outs)
                if all(self._takes(step.op.name, step.params, len(step.inputs), outs, layout)
                       for step in steps_of(p.program))]

    @staticmethod
    def _takes(name: str, params: Any, inputs: int, outs: Types, layout: str) -> bool:
        native = native_op(name)
        assert native is not None
        return Layouts((layout,) * inputs, (layout,)) in native.layouts(params, [*outs] * inputs, outs)

    def calls(self, p: ChainParams, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        (out,) = outs
        tensors = [*ins, *[out] * (MAX_INPUTS + 1 - len(ins))]
        steps = list(_packed(p, out))
        nothing = (("P", 0), int64(0, *[0] * MAX_READS, 0), float32(0), float32(0))
        return [NativeCall("chain_forward", (
            *map(pointer, tensors), int64(out.size, len(steps)),
            *(arg for step in (*steps, *[nothing] * (MAX_CALLS - len(steps))) for arg in step)))]


def _packed(p: ChainParams, out: Operand) -> Iterator[tuple[tuple[str, Any], ...]]:
    """The arguments for each call of a program, in the order of `ChainCall`."""
    steps, slots = steps_of(p.program), slots_of(p)
    place = [*range(p.num_args), *(_OUTPUT + 1 + slot for slot in slots), _OUTPUT]
    for k, step in enumerate(steps):
        native = native_op(step.op.name)
        assert native is not None
        operands = [Operand(place[r], out.shape, out.dtype, out.layout) for r in (*step.inputs, p.num_args + k)]
        for call in native.calls(step.params, operands[:-1], operands[-1:], 0, ""):
            *reads, write = (value for form, value in call.args if form == "P")
            constants = [value for form, value in call.args if form == "f"] + [0.0, 0.0]
            yield (("P", KernelAddress(call.kernel)),
                   int64(len(reads), *reads, *[0] * (MAX_READS - len(reads)), write), *map(float32, constants[:2]))

"""Chains of elementwise ops by the kernels of their steps, block by block (kernels/cpu/chain.cpp)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....base import TensorType
from ....ops.bits import UINT8, bits_shape
from ....ops.chain import ChainParams, Step, bits_of, slots_of, steps_of
from ....ops.pointwise import CHAIN, MAX_INPUTS
from .bits import ByBits
from .call import (
    KernelAddress,
    NativeCall,
    NativeOp,
    Operand,
    Types,
    float32,
    int64,
    is_float32,
    native_for,
    native_op,
    pointer,
)
from .elemwise import AddN, Elementwise, OfActivation
from .layout import PLAIN, Layouts, alike

MAX_CALLS, MAX_READS = 24, 2
"""As in chain.cpp, like MAX_INPUTS."""
_OUTPUT = MAX_INPUTS


@native_for(CHAIN)
class Chain(NativeOp):
    """The calls of its steps, on registers in place of tensors."""

    def fuses(self, p: ChainParams) -> bool:
        return (p.num_args <= MAX_INPUTS and sum(len(step.inputs) for step in steps_of(p.program)) <= MAX_CALLS
                and all(isinstance(native_op(step.op.name), (AddN, Elementwise, OfActivation, ByBits))
                        for step in steps_of(p.program)))

    def takes(self, p: ChainParams, ins: Types, outs: Types) -> bool:
        bits = bits_of(p)
        return is_float32(*(t for k, t in enumerate(ins) if k not in bits), *outs) \
            and all(ins[k].dtype == np.uint8 for k in bits)

    def layouts(self, p: ChainParams, ins: Types, outs: Types) -> Sequence[Layouts]:
        if not self.fuses(p):
            return []
        bits = bits_of(p)
        tensors = [t for k, t in enumerate(ins) if k not in bits]
        return [Layouts(tuple(PLAIN if k in bits else layout for k in range(len(ins))), (layout,))
                for layout in alike(*tensors, *outs)
                if all(ins[k].shape == bits_shape(outs[0].shape, layout) for k in bits)
                and all(self._takes(step, bits, outs[0], layout) for step in steps_of(p.program))]

    @staticmethod
    def _takes(step: Step, bits: frozenset[int], out: TensorType, layout: str) -> bool:
        native = native_op(step.op.name)
        assert native is not None
        ins = [TensorType(bits_shape(out.shape, layout), UINT8) if r in bits else out for r in step.inputs]
        wanted = Layouts(tuple(PLAIN if r in bits else layout for r in step.inputs), (layout,))
        return wanted in native.layouts(step.params, ins, [out])

    def calls(self, p: ChainParams, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        (out,) = outs
        tensors = [*ins, *[out] * (MAX_INPUTS + 1 - len(ins))]
        steps = list(_packed(p, out))
        nothing = (("P", 0), int64(0, *[0] * MAX_READS, 0), float32(0), float32(0))
        bits = sum(1 << k for k in bits_of(p))
        return [NativeCall("chain_forward", (
            *map(pointer, tensors), int64(out.size, bits, len(steps)),
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

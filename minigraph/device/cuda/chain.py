"""CUDA form of chains of elementwise ops; kernels/chain.cu."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ops.activation import FORWARD
from ...ops.chain import ChainParams, Step, bits_of, steps_of
from ...ops.pointwise import CHAIN, MAX_INPUTS, MAX_STEPS
from .bits import require_bytes
from .launch import BLOCK, KernelOp, Launch, Operand, flat_grid, int64, kernels_for, pointer
from .operands import require_float32, single

_OPERATIONS = (
    "elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", "_maximum", "_minimum", "_plus_scalar",
    "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar", "_rdiv_scalar", "_maximum_scalar",
    "_minimum_scalar", *FORWARD, *(f"{kind} backward" for kind in FORWARD), "exp", "log", "sqrt", "square", "abs",
    "negative", "reciprocal", "sign", "_sqrt_backward", "_square_backward", "_abs_backward", "_reciprocal_backward")
"""The operations, in the order of their numbers in chain.cu."""
_NUMBERS = {name: k for k, name in enumerate(_OPERATIONS)}
_NUMBERS |= {"_accumulate": 0, "_relu_backward_bits": _NUMBERS["relu backward"]}   # a bit is 0 or 1


def operation_of(step: Step) -> int | None:
    """The number of a step's operation; None when there is none."""
    kind = getattr(step.params, "act_type", None)
    if kind is None:
        return _NUMBERS.get(step.op.name)
    return _NUMBERS.get({"Activation": kind, "_activation_backward": f"{kind} backward"}.get(step.op.name, ""))


@kernels_for(CHAIN)
class ChainKernels(KernelOp):
    """One launch, whatever the program."""

    def takes(self, p: ChainParams) -> bool:
        return all(operation_of(step) is not None for step in steps_of(p.program))

    def launches(self, p: ChainParams, ins: Sequence[Operand], outs: Sequence[Operand], work: int) -> Sequence[Launch]:
        bits = bits_of(p)
        require_float32(CHAIN, (*(operand for k, operand in enumerate(ins) if k not in bits), *outs))
        for k in bits:
            require_bytes(CHAIN, ins[k])
        if not outs[0].size:
            return ()
        args = (_argument(p, ins), pointer(outs[0]), int64(outs[0].size))
        return (Launch("elementwise_chain", flat_grid(outs[0].size), (BLOCK, 1, 1), args),)


def _argument(p: ChainParams, ins: Sequence[Operand]) -> tuple[str, Any]:
    """The kernel argument `Chain`: tables of a fixed size."""
    steps = steps_of(p.program)
    numbers: list[Any] = [operation_of(step) for step in steps]
    scalars = [single(getattr(step.params, "scalar", 0.0))[1] for step in steps]
    firsts, seconds = [step.inputs[0] for step in steps], [step.inputs[-1] for step in steps]

    def padded(values: Sequence[Any], length: int) -> list[Any]:
        return [*values, *[0] * (length - len(values))]
    values = (*padded([operand.address for operand in ins], MAX_INPUTS), *padded(scalars, MAX_STEPS),
              *padded(numbers, MAX_STEPS), *padded(firsts, MAX_STEPS), *padded(seconds, MAX_STEPS), len(ins),
              len(steps), sum(1 << k for k in bits_of(p)))
    return f"{MAX_INPUTS}P{MAX_STEPS}f{3 * MAX_STEPS + 3}i", values

"""Chains of elementwise ops as one op: a small program over blocks that stay in the cache.

The program is a text: a list of steps [op, registers that it reads, params]. The registers are first the inputs, then
the result of each step; the last result is the output. Inputs of steps by bits (bits.py) are bits.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..base import Algorithm, Cost, PartialShape, TensorType, align
from .bits import BITS, UINT8, ByBits, bits_shape, fitting_bits, has_rows
from .op import Arrays, Encoding, Op, Sample, ShapeError, Sliced, Workspace, merge_shapes, numbered
from .params import REQUIRED, param, parse_params
from .pointwise import CHAIN, flat, joined
from .registry import get_op, register

BLOCK = 1 << 13
"""Elements of a block: 32 KiB of float32 a register, so that all of a program stay in a core's own cache."""


@dataclass(frozen=True)
class Step:
    """One operation: what it computes from the registers `inputs`."""

    op: Op
    params: Any
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class ChainParams:
    """Parameters of a chain."""

    num_args: int = param(REQUIRED, "int", "number of inputs")
    program: str = param(REQUIRED, "str", "the steps, as JSON")


@lru_cache(maxsize=4096)
def steps_of(program: str) -> tuple[Step, ...]:
    """The steps of a program."""
    found = []
    for name, inputs, values in json.loads(program):
        op = get_op(name)
        found.append(Step(op, parse_params(op.Params, values, name), tuple(inputs)))
    return tuple(found)


@lru_cache(maxsize=4096)
def bits_of(p: ChainParams) -> frozenset[int]:
    """The inputs that are bits."""
    return frozenset(step.inputs[1] for step in steps_of(p.program) if isinstance(step.op, ByBits))


@lru_cache(maxsize=4096)
def check_program(p: ChainParams) -> None:
    """ShapeError unless each step is an op of a chain, and reads registers that are there."""
    steps = steps_of(p.program)
    for k, step in enumerate(steps):
        if not (step.op.pointwise or isinstance(step.op, ByBits)) \
                or len(step.inputs) != len(step.op.inputs(step.params)) \
                or not all(0 <= register < p.num_args + k for register in step.inputs):
            raise ShapeError(f"step {k} of a chain of {p.num_args} inputs is {step.op.name} of {step.inputs}; it must "
                             f"be an elementwise operator of registers below {p.num_args + k}")
    if not steps:
        raise ShapeError("a chain needs a step")


@lru_cache(maxsize=4096)
def slots_of(p: ChainParams) -> tuple[int, ...]:
    """The block of scratch that each step but the last writes; a block is used again after its last reader."""
    steps = steps_of(p.program)
    last = {register: k for k, step in enumerate(steps) for register in step.inputs}
    free: list[int] = []
    slots: list[int] = []
    for k in range(len(steps) - 1):
        slots.append(free.pop() if free else max(slots, default=-1) + 1)
        free += [slots[r - p.num_args] for r in set(steps[k].inputs) if r >= p.num_args and last[r] == k]
    return tuple(slots)


@register
class _Elementwise(Op):
    """What a program of elementwise ops makes of inputs of one shape, block by block."""

    name = CHAIN
    Params = ChainParams
    recompute = "cheap"
    as_stored = True

    def inputs(self, p: ChainParams) -> tuple[str, ...]:
        return numbered("arg", p.num_args)

    def count_param(self) -> str | None:
        return "num_args"

    def infer_shape(self, p: ChainParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        check_program(p)
        bits = bits_of(p)
        shape = merge_shapes(*(t for k, t in enumerate(ins) if k not in bits), *outs)
        return [fitting_bits(shape, t) if k in bits else shape for k, t in enumerate(ins)], [shape]

    def infer_dtype(self, p: ChainParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        bits = bits_of(p)
        known = next((t for k, t in enumerate((*ins, *outs)) if k not in bits and t is not None), None)
        return [UINT8 if k in bits else t or known for k, t in enumerate(ins)], [known]

    def inplace(self, p: ChainParams) -> tuple[tuple[int, int], ...]:
        return tuple((i, 0) for i in range(p.num_args) if i not in bits_of(p))

    def sliced(self, p: ChainParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs) if all(has_rows(outs[0], ins[k]) for k in bits_of(p)) else None

    def encoding(self, p: ChainParams, ins: Sequence[TensorType]) -> Encoding | None:
        """That of the first input that all steps which read it can read encoded in one way."""
        for k in range(p.num_args):
            forms = {_encoded(step, k, ins[k]) for step in steps_of(p.program) if k in step.inputs}
            if len(forms) == 1 and (form := forms.pop()) is not None:
                return replace(form, of=(k,), reader=self.name, reader_params=_reading(p, k, form))
        return None

    def algorithms(self, p: ChainParams, ins: Sequence[TensorType], outs: Sequence[TensorType],
                   ) -> tuple[Algorithm, ...]:
        block = TensorType((min(outs[0].size, BLOCK),), outs[0].dtype)
        registers = (max(slots_of(p), default=-1) + 1) * align(block.nbytes)
        return (Algorithm("blocks", registers + align(_scratch_bytes(p, block))),)

    def cost(self, p: ChainParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Cost:
        out = outs[0]
        flops = sum(step.op.cost(step.params, [out] * len(step.inputs), [out]).flops for step in steps_of(p.program))
        return Cost(flops, sum(t.nbytes for t in ins), out.nbytes)

    def compute(self, p: ChainParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        steps, out = steps_of(p.program), flat(outs[0])
        block = TensorType((min(out.size, BLOCK),), out.dtype)
        scratch = [work.array(block.shape, out.dtype) for _ in range(max(slots_of(p), default=-1) + 1)]
        inner = Workspace(work.array((_scratch_bytes(p, block),), np.uint8))
        rows = [(flat(a), BITS if k in bits_of(p) else 1) for k, a in enumerate(ins)]
        for start in range(0, out.size, BLOCK):
            part = slice(start, min(start + BLOCK, out.size))
            registers = [row[part.start // width:-(-part.stop // width)] for row, width in rows]
            for k, step in enumerate(steps):
                target = out[part] if k == len(steps) - 1 else scratch[slots_of(p)[k]][:part.stop - start]
                step.op.compute(step.params, [registers[r] for r in step.inputs], [target], inner.reset())
                registers.append(target)

    def absorb(self, p: ChainParams, consumer: Op, q: Any, position: int) -> tuple[str, Any] | None:
        return joined(self, p, consumer, q, position)

    def samples(self) -> Sequence[Sample]:
        def sample(count: int, *steps: list[Any], shape: tuple[int, ...] = (2, 3)) -> Sample:
            return Sample({"num_args": count, "program": json.dumps(steps)}, (shape,) * count, low=0.1, high=1.0,
                          differentiable=False)
        return (sample(2, ["elemwise_add", [0, 1], {}], ["relu", [2], {}]),
                sample(3, ["elemwise_mul", [0, 1], {}], ["_mul_scalar", [2], {"scalar": 0.5}],
                       ["elemwise_sub", [4, 3], {}], ["sqrt", [3], {}], ["elemwise_div", [5, 6], {}], shape=(7,)),
                sample(2, ["Activation", [0], {"act_type": "softrelu"}],
                       ["_activation_backward", [1, 2], {"act_type": "tanh"}], ["_accumulate", [3, 3], {}],
                       shape=(3, 41, 83)),
                Sample({"num_args": 3, "program": json.dumps([["_accumulate", [0, 1], {}],
                                                              ["_relu_backward_bits", [3, 2], {}]])},
                       ((4, 5001), (4, 5001), bits_shape((4, 5001))), integer={"arg2": 256}, differentiable=False))


def _encoded(step: Step, register: int, tensor: TensorType) -> Encoding | None:
    """How a step reads an encoding of a register, which it reads in no other place."""
    form = step.op.encoding(step.params, [tensor] * len(step.inputs))
    return form if form is not None and [step.inputs[k] for k in form.of] == [register] \
        and step.inputs.count(register) == 1 and issubclass(type(get_op(form.reader)), ByBits) else None


def _reading(p: ChainParams, k: int, form: Encoding) -> ChainParams:
    """The program in which input `k` comes last and is an encoding."""
    last = p.num_args - 1
    place = [*range(k), last, *range(k, last)]
    steps = []
    for step, (name, reads, values) in zip(steps_of(p.program), json.loads(p.program), strict=True):
        reads = [place[r] if r < p.num_args else r for r in reads]
        steps.append([form.reader, reads, vars(form.reader_params)] if k in step.inputs else [name, reads, values])
    return replace(p, program=json.dumps(steps))


def _scratch_bytes(p: ChainParams, block: TensorType) -> int:
    """Workspace bytes of the step that needs most."""
    return max(step.op.algorithms(step.params, [block] * len(step.inputs), [block])[0].workspace_bytes
               for step in steps_of(p.program))

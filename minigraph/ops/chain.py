"""Chains of elementwise ops as one op: a small program over blocks that stay in the cache.

The program is a text: a list of steps [op, registers that it reads, params]. The registers are first the inputs, then
the result of each step; the last result is the output.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..base import Algorithm, Cost, TensorType, align
from .op import Arrays, Op, Sample, Sliced, Workspace
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

    def inputs(self, p: ChainParams) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(p.num_args))

    def count_param(self) -> str | None:
        return "num_args"

    def inplace(self, p: ChainParams) -> tuple[tuple[int, int], ...]:
        return tuple((i, 0) for i in range(p.num_args))

    def sliced(self, p: ChainParams, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Sliced | None:
        return Sliced.every(ins, outs)

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
        rows = [flat(a) for a in ins]
        for start in range(0, out.size, BLOCK):
            part = slice(start, min(start + BLOCK, out.size))
            registers = [row[part] for row in rows]
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
                       shape=(3, 41, 83)))


def _scratch_bytes(p: ChainParams, block: TensorType) -> int:
    """Workspace bytes of the step that needs most."""
    return max(step.op.algorithms(step.params, [block] * len(step.inputs), [block])[0].workspace_bytes
               for step in steps_of(p.program))

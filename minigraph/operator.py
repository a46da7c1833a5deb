"""What operators there are, and operators of one's own in Python, under MXNet's names."""
from __future__ import annotations

import dataclasses
from collections import namedtuple

from .custom_op import CustomOp, CustomOpProp, NDArrayOp, NumpyOp, PythonOp, register
from .ops.op import Op
from .ops.registry import get_op, public_names
from .symbol.compose import ANY_INPUTS, known_inputs

__all__ = ["CustomOp", "CustomOpProp", "NDArrayOp", "NumpyOp", "OperatorArguments", "PythonOp",
           "get_all_registered_operators", "get_operator_arguments", "register"]

OperatorArguments = namedtuple("OperatorArguments", ["narg", "names", "types"])
"""How many inputs and parameters an operator has, their names, and in words what each may be."""


def get_all_registered_operators() -> list[str]:
    """The names and aliases of all operators that a symbol may have."""
    return sorted(name for name, _ in public_names())


def get_operator_arguments(op_name: str) -> OperatorArguments:
    """Inputs and then parameters of an operator; MXNetError when there is none of that name."""
    op = get_op(op_name)
    fields = dataclasses.fields(op.Params)
    names = [*_inputs(op), *(field.name for field in fields)]
    types = [*(["NDArray-or-Symbol[]"] if known_inputs(op) == ANY_INPUTS else ["NDArray-or-Symbol"] * len(_inputs(op))),
             *map(_type, fields)]
    return OperatorArguments(len(names), names, types)


def _inputs(op: Op) -> tuple[str, ...]:
    return ("data",) if known_inputs(op) == ANY_INPUTS else known_inputs(op)


def _type(field: dataclasses.Field) -> str:
    """`{'max', 'sum'}, required` or `int, optional, default=1`."""
    meta = field.metadata
    kind = "{" + ", ".join(map(repr, sorted(meta["choices"]))) + "}" if meta["choices"] else meta["kind"]
    return f"{kind}, required" if meta["required"] else f"{kind}, optional, default={field.default!r}"

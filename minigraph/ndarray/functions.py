"""Operators on NDArrays, made from the registry: `Convolution(data, weight, bias, kernel=(3, 3), num_filter=8)`.

They are for metrics, monitors and data: each runs at once in NumPy, as it evaluates; networks are symbols.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from ..base import MXNetError
from ..context import Context
from ..ops.op import Op
from ..ops.registry import get_op
from ..storage import HostStorage
from ..symbol.compose import count_inputs, match_inputs, parse_attributes, where
from ..symbol.functions import describe_op, input_names, parameter_text, refuse_twice, signature, split_positional
from ..symbol.node import SymbolNode
from .array import NDArray
from .execute import execute

Function = Callable[..., Any]
Out = NDArray | Sequence[NDArray] | None
_functions: dict[str, Function] = {}
_FURTHER = {"out": "an NDArray, or one for each output, that takes the result; a new one when not given",
            "name": "what errors call this execution"}


def op_function(spelling: str) -> Function:
    """The function of an operator's name or alias."""
    function = _functions.get(spelling)
    if function is None:
        function = _functions[spelling] = make_function(spelling, spelling)
    return function


def make_function(spelling: str, label: str) -> Function:
    """A function of an operator's name or alias, under a name of its own."""
    op = get_op(spelling)

    def function(*args: Any, **kwargs: Any) -> Any:
        return apply_function(spelling, args, kwargs)

    function.__name__ = function.__qualname__ = label
    function.__doc__ = describe_op(op, "NDArrays", _FURTHER)
    function.__signature__ = signature(op, tuple(_FURTHER))  # type: ignore[attr-defined]
    return function


def apply_function(spelling: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What an operator function does: sort arguments into inputs and parameters, run, and deliver.

    One visible output is an NDArray, several are a list. States that the operator changes are changed in place.
    """
    op = get_op(spelling)
    kwargs = dict(kwargs)
    name, out, ctx = kwargs.pop("name", None), kwargs.pop("out", None), kwargs.pop("ctx", None)
    inputs, values = split_positional(op, spelling, args, NDArray, "an NDArray")
    named: dict[str, NDArray] = {}
    node = SymbolNode(op, name or spelling, {}, [])
    for key, value in {**values, **kwargs}.items():
        if isinstance(value, NDArray):
            named[key] = value
        elif value is not None or key not in input_names(op):
            node.attrs[key] = parameter_text(op, spelling, key, value, "an NDArray")
        refuse_twice(spelling, key, values, kwargs)
    if isinstance(out, NDArray) and not inputs and not named and "dtype" in {f.name for f in fields(op.Params)}:
        node.attrs.setdefault("dtype", np.dtype(out.dtype).name)
    count_inputs(node, len(inputs) + len(named))
    parse_attributes(node)
    names = op.inputs(node.params)
    given = match_inputs(node, names, inputs, named)
    missing = [name for name in names if name not in given]
    if missing:
        raise MXNetError(f"{where(node)}: input {missing[0]!r} is not given; it takes the NDArrays {', '.join(names)}")
    return run(op, node.params, node.name, [given[name] for name in names], out, ctx)


def run(op: Op, params: Any, name: str, inputs: Sequence[NDArray], out: Out = None, ctx: Any = None) -> Any:
    """Run an operator with ready parameters; the result as `apply_function` gives it."""
    targets = _targets(op, params, name, out)
    outs, changed = execute(op, params, name, [each.storage.read() for each in inputs],
                            [target.shape for target in targets])
    for k, value in changed.items():
        inputs[k].storage.write(value)
    outs = outs[:op.visible_outputs(params)]
    if not targets:
        context = inputs[0].context if inputs else _context(ctx)
        results = [NDArray(HostStorage(value, context)) for value in outs]
        return results[0] if len(results) == 1 else results
    for target, value in zip(targets, outs, strict=True):
        deliver(target, value, f"{op.name} {name}")
    return out


def _context(ctx: Any) -> Context | None:
    """A context, also from its text, such as "gpu(1)"; None for the current one."""
    if ctx is None or isinstance(ctx, Context):
        return ctx
    match = re.fullmatch(r"(\w+)(?:\((\d+)\))?", str(ctx))
    if match is None:
        raise MXNetError(f"{ctx!r} is no context; give mx.cpu() or its like")
    return Context(match[1], int(match[2] or 0))


def _targets(op: Op, params: Any, name: str, out: Out) -> list[NDArray]:
    targets = [] if out is None else [out] if isinstance(out, NDArray) else list(out)
    count = op.visible_outputs(params)
    if targets and (len(targets) != count or not all(isinstance(each, NDArray) for each in targets)):
        raise MXNetError(f"{op.name} {name}: out must be {count} NDArray{'s' * (count > 1)}, got "
                         f"{', '.join(type(each).__name__ for each in targets)}")
    return targets


def deliver(target: NDArray, value: np.ndarray, what: str) -> None:
    """Write a result into the array that was given for it; MXNetError where shape or dtype differ."""
    if (target.shape, target.dtype) != (value.shape, value.dtype.type):
        raise MXNetError(f"{what}: out is of shape {target.shape} and {np.dtype(target.dtype)}, and the result of "
                         f"{value.shape} and {value.dtype}; give an array like it")
    target.storage.write(value)

"""Operator functions, made from the registry: `Convolution(data, kernel=(3, 3), num_filter=8, name="c")`."""
from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..base import MXNetError
from ..ops.op import Op
from ..ops.params import format_param
from ..ops.registry import get_op, public_names
from .compose import ANY_INPUTS, apply_op, known_inputs
from .node import NodeEntry
from .symbol import Symbol, single_entry

Function = Callable[..., Symbol]
_functions: dict[str, Function] = {}
_FURTHER = {"name": "the node's name; made from the operator's when not given",
            "attr": "a dictionary of further attributes"}
T = TypeVar("T")


def op_function(spelling: str) -> Function:
    """The function of an operator's name or alias, which also is the hint that its nodes are named by."""
    function = _functions.get(spelling)
    if function is None:
        function = _functions[spelling] = make_function(spelling, spelling)
    return function


def function_names() -> list[str]:
    """Names and aliases that the front end shows: those that do not begin with an underscore."""
    return sorted(name for name, _ in public_names() if not name.startswith("_"))


def apply_function(spelling: str, hint: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Symbol:
    """What an operator function does: sort arguments into inputs, parameters and attributes, and compose."""
    op = get_op(spelling)
    kwargs = dict(kwargs)
    name, attr = kwargs.pop("name", None), kwargs.pop("attr", None)
    given, values = split_positional(op, spelling, args, Symbol, "a Symbol")
    inputs = [arg if arg is None else single_entry(arg, f"Argument {i} of {spelling}") for i, arg in enumerate(given)]
    named: dict[str, NodeEntry] = {}
    attrs: dict[str, str] = {}
    for key, value in {**values, **kwargs}.items():
        if isinstance(value, Symbol):
            named[key] = single_entry(value, f"keyword argument {key!r} of {spelling}")
        elif value is not None or key not in input_names(op):
            attrs[key] = parameter_text(op, spelling, key, value, "a Symbol")
        refuse_twice(spelling, key, values, kwargs)
    attrs.update((key, format_param(value)) for key, value in (attr or {}).items())
    node = apply_op(op, hint, inputs, named, attrs, name)
    return Symbol([(node, i) for i in range(op.visible_outputs(node.params))])


def make_function(spelling: str, hint: str) -> Function:
    """A function of an operator's name or alias, whose nodes are named by a hint."""
    op = get_op(spelling)

    def function(*args: Any, **kwargs: Any) -> Symbol:
        return apply_function(spelling, hint, args, kwargs)

    function.__name__ = function.__qualname__ = hint
    function.__doc__ = describe_op(op, "a new variable each, when not given", _FURTHER)
    function.__signature__ = signature(op, tuple(_FURTHER))  # type: ignore[attr-defined]
    return function


def input_names(op: Op) -> tuple[str, ...]:
    return () if known_inputs(op) == ANY_INPUTS else known_inputs(op)


def split_positional(op: Op, spelling: str, args: Sequence[Any], kind: type[T], what: str,
                     ) -> tuple[list[T | None], dict[str, Any]]:
    """(inputs, parameters): leading values of the kind (None skips an input), then parameters in declared order."""
    count = next((i for i, arg in enumerate(args) if not (arg is None or isinstance(arg, kind))), len(args))
    if known_inputs(op) == ANY_INPUTS:
        if count < len(args):
            raise MXNetError(f"{spelling}: positional arguments must each be {what}, got "
                             f"{type(args[count]).__name__}; give parameters by name")
    elif count < len(args) and count < len(known_inputs(op)):
        raise MXNetError(f"{spelling}: input {known_inputs(op)[count]!r} must be {what}, got "
                         f"{type(args[count]).__name__}; give parameters by name")
    fields = [field.name for field in dataclasses.fields(op.Params)]
    if len(args) - count > len(fields):
        raise MXNetError(f"{spelling} takes {len(fields)} parameters by position, got {len(args) - count}")
    return list(args[:count]), dict(zip(fields, args[count:], strict=False))


def parameter_text(op: Op, spelling: str, key: str, value: Any, what: str) -> str:
    """A parameter as text; MXNetError for a value where an input, `what`, belongs."""
    if key in input_names(op):
        raise MXNetError(f"{spelling}: input {key!r} must be {what}, got {type(value).__name__}")
    return format_param(value)


def refuse_twice(spelling: str, key: str, values: Mapping[str, Any], named: Mapping[str, Any]) -> None:
    """MXNetError where a parameter is given both by position and by name."""
    if key in values and key in named:
        raise MXNetError(f"{spelling}: parameter {key!r} is given by position and by name; give it once")


def signature(op: Op, further: Sequence[str]) -> inspect.Signature:
    """Inputs, then parameters, then what is given by name only, then further attributes."""
    make = inspect.Parameter
    if known_inputs(op) == ANY_INPUTS:
        inputs = [make("args", make.VAR_POSITIONAL)]
    else:
        inputs = [make(name, make.POSITIONAL_OR_KEYWORD, default=None) for name in known_inputs(op)]
    kind = make.KEYWORD_ONLY if known_inputs(op) == ANY_INPUTS else make.POSITIONAL_OR_KEYWORD
    fields = [make(field.name, kind, default=field.default) for field in dataclasses.fields(op.Params)]
    last = [make(name, make.KEYWORD_ONLY, default=None) for name in further]
    return inspect.Signature([*inputs, *fields, *last, make("kwargs", make.VAR_KEYWORD)])


def describe_op(op: Op, inputs: str, further: Mapping[str, str]) -> str:
    """The docstring of an operator's function: what it does, its inputs, its parameters with their docs."""
    lines = [inspect.getdoc(type(op)) or op.name, "", f"Inputs ({inputs}):",
             f"    {', '.join(known_inputs(op))}", "", "Parameters:"]
    for field in dataclasses.fields(op.Params):
        meta = field.metadata
        default = "required" if meta.get("required") else f"default {field.default!r}"
        choices = f"; one of {', '.join(map(str, meta['choices']))}" if meta.get("choices") else ""
        kind = meta.get("kind", "value")
        lines.append(f"    {field.name} ({kind}, {default}{choices}): {meta.get('doc', '')}")
    lines += [f"    {name}: {text}" for name, text in further.items()]
    return "\n".join(lines)

"""Applying an operator to values: MXNet's composing rules, in work proportional to the operator's inputs."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ..base import MXNetError
from ..ops.op import Op, OperatorError
from ..ops.params import is_ignored, parse_params
from .attribute import current_scope, hidden_spelling, split_input_key
from .naming import current_names
from .node import NodeEntry, SymbolNode

T = TypeVar("T")


def apply_op(op: Op, hint: str, inputs: Sequence[NodeEntry | None], named: Mapping[str, NodeEntry],
             attrs: Mapping[str, str], name: str | None = None) -> SymbolNode:
    """A new node of `op`: inputs by position (None skips one), then by name; the rest become new variables.

    `attrs` are parameters and attributes as texts. A new variable is named `<node>_<input>` and copies the
    node's attributes. MXNetError names the operator, the node and what does not fit.
    """
    node = SymbolNode(op, current_names().get(name, hint.lower()), {}, [])
    for_inputs = _take_attributes(node, current_scope().get(attrs))
    count_inputs(node, len(inputs) + len(named))
    parse_attributes(node)
    try:
        names, for_variables = op.inputs(node.params), op.variable_attrs(node.params)
        op.outputs(node.params), op.visible_outputs(node.params), op.aux(node.params)
    except OperatorError as error:
        raise error.at(node.name) from error.__cause__
    given = match_inputs(node, names, inputs, named)
    for input_name in names:
        entry = given.get(input_name) or new_input(node, input_name)
        if entry[0].op is None:
            for key, text in for_variables.get(input_name, {}).items():
                entry[0].attrs.setdefault(key, text)
        node.inputs.append(entry)
    _give_attributes(node, names, given, for_inputs)
    return node


def new_input(node: SymbolNode, input_name: str) -> NodeEntry:
    """A new variable for one input of a node, with a copy of the node's attributes."""
    return SymbolNode(None, f"{node.name}_{input_name}", dict(node.attrs), []), 0


def parse_attributes(node: SymbolNode) -> None:
    """Read an operator node's params from its attributes; MXNetError lists what it takes on an unknown one.
    """
    op = node.op
    assert op is not None
    fields = [f.name for f in dataclasses.fields(op.Params)]
    try:
        attrs = op.attributes(node.attrs)
    except OperatorError as error:
        raise error.at(node.name) from error.__cause__
    for key in attrs:
        if key not in fields and not is_ignored(key):
            raise MXNetError(f"{where(node)}: there is no parameter or input {key!r}; candidates are the "
                             f"parameters {', '.join(fields) or '(none)'} and the inputs "
                             f"{', '.join(known_inputs(op))}; write __{key.strip('_')}__ for an attribute of "
                             f"your own")
    node.params = parse_params(op.Params, attrs, where(node))


ANY_INPUTS = ("arg0", "arg1", "...")
"""How errors and help name the inputs of an operator that has any number of them, or as many as its parameters say."""


def known_inputs(op: Op) -> tuple[str, ...]:
    """Names of the inputs that `op` has with default parameters, or ANY_INPUTS where those decide nothing."""
    if op.count_param():
        return ANY_INPUTS
    try:
        return op.inputs(op.Params())
    except OperatorError:
        return ANY_INPUTS


def where(node: SymbolNode) -> str:
    """`Convolution conv0`: the node as errors name it."""
    assert node.op is not None
    return f"{node.op.name} {node.name}"


def _take_attributes(node: SymbolNode, attrs: Mapping[str, str]) -> dict[str, str]:
    """Move attributes into the node, hidden keys respelled; return those meant for one input."""
    for_inputs = {}
    for key, text in attrs.items():
        if split_input_key(key) is None:
            node.attrs[hidden_spelling(key)] = text
        else:
            for_inputs[key] = text
    return for_inputs


def count_inputs(node: SymbolNode, count: int) -> None:
    """Fill in the number of inputs of an operator that takes any number of them."""
    assert node.op is not None
    key = node.op.count_param()
    if key is not None:
        node.attrs.setdefault(key, str(count))
        if node.attrs[key] == "0":
            raise MXNetError(f"{where(node)} takes one input or more, got none")


def match_inputs(node: SymbolNode, names: Sequence[str], inputs: Sequence[T | None],
                 named: Mapping[str, T]) -> dict[str, T]:
    """What was given for each input, by position (None skips one) and by name; MXNetError where that does not fit."""
    if len(inputs) > len(names) and any(entry is not None for entry in inputs[len(names):]):
        raise MXNetError(f"{where(node)}: Incorrect number of arguments, requires {len(names)} "
                         f"({', '.join(names)}), provided {len(inputs)}")
    given = {name: entry for name, entry in zip(names, inputs, strict=False) if entry is not None}
    for name, entry in named.items():
        if name not in names:
            listed = "".join(f"\n\t[{i}]{n}" for i, n in enumerate(names))
            raise MXNetError(f"{where(node)}: Keyword argument name {name} not found.\n"
                             f"Candidate arguments:{listed}")
        if name in given:
            raise MXNetError(f"{where(node)}: input {name!r} is given by position and by name; give it once")
        given[name] = entry
    return given


def _give_attributes(node: SymbolNode, names: Sequence[str], given: Mapping[str, NodeEntry],
                     for_inputs: Mapping[str, str]) -> None:
    """Set `weight_lr_mult` and its like on the variables that were made for this node."""
    for key, text in for_inputs.items():
        split = split_input_key(key)
        assert split is not None
        name, hidden = split
        if name not in names:
            raise MXNetError(f"{where(node)}: {key!r} is for an input {name!r}; the inputs are "
                             f"{', '.join(names)}")
        if name in given:
            raise MXNetError(f"{where(node)}: {key!r} is for a variable made here, and {name!r} was given; "
                             f"set {hidden.strip('_')} where that variable is made")
        node.inputs[list(names).index(name)][0].attrs[hidden] = text

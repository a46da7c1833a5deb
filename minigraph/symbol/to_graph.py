"""From a symbol to the graph of its nodes as written, and inference of shapes and types on it."""
from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import MXNetError, PartialShape, dtype_of
from ..graph import FORWARD, Graph
from ..graph.infer import infer_dtypes, infer_shapes
from ..ops.op import is_complete
from .marks import mark_of
from .node import SymbolNode, classify_variables

if TYPE_CHECKING:
    from .symbol import Symbol

ARGUMENT, AUXILIARY = "argument", "auxiliary"
"""The variable classes of a symbol's graph."""
_SHOWN = 10
"""Unknown arguments that a warning lists."""


def symbol_graph(symbol: Symbol) -> Graph:
    """The unexpanded graph: one graph node a symbol node, in the order of `symbol.nodes()`.

    Variables have the class ARGUMENT or AUXILIARY, and the shape and dtype that their `__shape__` and
    `__dtype__` declare; all else is unknown until inference.
    """
    nodes = symbol.nodes()
    states = set(classify_variables(nodes)[1])
    graph = Graph()
    first: dict[SymbolNode, int] = {}
    for node in nodes:
        if node.op is None:
            types = [(declared_shape(node), declared_dtype(node))]
            graph.variable_class[len(graph)] = AUXILIARY if node in states else ARGUMENT
        else:
            types = [(None, None)] * len(node.op.outputs(node.params))
        inputs = tuple(first[child] + index for child, index in node.inputs)
        first[node] = graph.num_entries
        graph.append(node.op, node.params, node.name, inputs, types, FORWARD,
                     mark_of(node))
    graph.outputs = [first[node] + index for node, index in symbol.outputs]
    graph.output_names = symbol.list_outputs()
    return graph


def declared_shape(node: SymbolNode) -> PartialShape:
    """The shape of a variable's `__shape__`, as partial as it is; None when nothing is declared."""
    text = node.attrs.get("__shape__")
    if text is None or text in ("None", "()"):
        return None
    try:
        shape = ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text))
        return partial_shape(shape, f"variable {node.name!r}: __shape__")
    except (ValueError, SyntaxError, TypeError) as error:
        raise MXNetError(f"variable {node.name!r}: __shape__={text!r} is no shape; write for example "
                         f"(32, 0, 28, 28)") from error


def declared_dtype(node: SymbolNode) -> np.dtype | None:
    """The dtype of a variable's `__dtype__`, a name or MXNet's type number; None when nothing is declared."""
    text = node.attrs.get("__dtype__")
    if text is None or text in ("None", "-1"):
        return None
    try:
        return dtype_of(text)
    except MXNetError as error:
        raise MXNetError(f"variable {node.name!r}: __dtype__={text!r}: {error}") from error


def partial_shape(shape: Any, what: str) -> PartialShape:
    """A user's shape as a shape under inference: 0 (or -1) is an unknown dimension, None or () an unknown shape."""
    if shape is None or isinstance(shape, (tuple, list)) and not shape:
        return None
    if isinstance(shape, (int, np.integer)) and not isinstance(shape, bool):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)) or not all(isinstance(d, (int, np.integer)) for d in shape):
        raise TypeError(f"{what} must be a shape, a tuple of int, got {shape!r}")
    if any(d < -1 for d in shape):
        raise MXNetError(f"{what} has a negative dimension: {tuple(shape)}")
    return tuple(None if d in (0, -1) else int(d) for d in shape)


def infer_shape(symbol: Symbol, args: Sequence[Any], kwargs: Mapping[str, Any], partial: bool,
                ) -> tuple[Any, Any, Any]:
    """(argument, output, auxiliary) shapes; see Symbol.infer_shape and Symbol.infer_shape_partial."""
    graph = symbol_graph(symbol)
    for entry, shape in _given(graph, args, kwargs, "shape").items():
        if shape is not None:
            graph.shape[entry] = partial_shape(shape, f"the shape of {graph.entry_name(entry)!r}")
    complete = infer_shapes(graph)
    shapes = [() if shape is None else tuple(d or 0 for d in shape) for shape in graph.shape]
    if not complete and not partial:
        unknown = [f"{name}: {shapes[entry]}" for name, entry in _variables(graph, ARGUMENT).items()
                   if not is_complete(graph.shape[entry])]
        _warn_unknown("shape", " (0s in shape means unknown dimensions)", unknown)
        return None, None, None
    return _by_role(graph, shapes)


def infer_type(symbol: Symbol, args: Sequence[Any], kwargs: Mapping[str, Any], partial: bool,
               ) -> tuple[Any, Any, Any]:
    """(argument, output, auxiliary) NumPy types of `symbol`; see Symbol.infer_type and Symbol.infer_type_partial."""
    graph = symbol_graph(symbol)
    for entry, dtype in _given(graph, args, kwargs, "type").items():
        if dtype is not None:
            graph.dtype[entry] = dtype_of(dtype)
    if not infer_dtypes(graph) and not partial:
        unknown = [name for name, entry in _variables(graph, ARGUMENT).items() if graph.dtype[entry] is None]
        _warn_unknown("type", "", unknown)
        return None, None, None
    return _by_role(graph, [None if dtype is None else dtype.type for dtype in graph.dtype])


def _given(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> dict[int, Any]:
    """What the caller knows, by entry; MXNetError lists the arguments on an unknown name."""
    if args and kwargs:
        raise ValueError(f"Can only specify known argument {what}s either by positional or kwargs way.")
    if args:
        arguments = _variables(graph, ARGUMENT)
        if len(args) > len(arguments):
            raise MXNetError(f"{len(args)} {what}s were given, the symbol has {len(arguments)} arguments: "
                             f"{', '.join(arguments)}")
        return dict(zip(arguments.values(), args, strict=False))
    known = {**_variables(graph, ARGUMENT), **_variables(graph, AUXILIARY)}
    for name in kwargs:
        if name not in known:
            listed = "".join(f"\n\t[{i}]{n}" for i, n in enumerate(known))
            raise MXNetError(f"Infer{what.title()}: Keyword argument name {name} not found.\n"
                             f"Candidate arguments:{listed}")
    return {known[name]: value for name, value in kwargs.items()}


def _variables(graph: Graph, variable_class: str) -> dict[str, int]:
    """Entries of the variables of one class, by name, in order."""
    return {graph.name[i]: graph.first[i] for i, c in graph.variable_class.items() if c == variable_class}


def _by_role(graph: Graph, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    arguments, states = _variables(graph, ARGUMENT), _variables(graph, AUXILIARY)
    return ([values[e] for e in arguments.values()], [values[e] for e in graph.outputs],
            [values[e] for e in states.values()])


def _warn_unknown(what: str, note: str, unknown: Sequence[str]) -> None:
    listed = [*unknown[:_SHOWN], *["..."] * (len(unknown) > _SHOWN)]
    warnings.warn(f"Cannot decide {what} for the following arguments{note}. Consider providing them as "
                  "input:\n\t" + "\n\t".join(listed), stacklevel=4)

"""mx.viz: what a network is made of, as a table."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from .base import MXNetError, Shape
from .symbol.node import SymbolNode, auxiliary_positions
from .symbol.symbol import Symbol

_HEADINGS = ("Layer (type)", "Output Shape", "Param #", "Previous Layer")


def print_summary(symbol: Symbol, shape: Mapping[str, Shape] | None = None, line_length: int = 120,
                  positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0)) -> None:
    """Print a table of the layers with output shapes and numbers of parameters; see `summary`."""
    print(summary(symbol, shape, line_length, positions))


def summary(symbol: Symbol, shape: Mapping[str, Shape] | None = None, line_length: int = 120,
            positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0)) -> str:
    """The table: one row for each operator and each data input, then the number of parameters.

    `shape` gives the shapes of inputs by name; without it output shapes and parameters stay empty. A parameter is a
    variable that is no data, no label and no auxiliary state, and counts once, at the first operator that reads it.
    `positions` are the ends of the columns as parts of `line_length` characters.
    """
    ends = [int(line_length * part) if part <= 1 else int(part) for part in positions]
    nodes = symbol.nodes()
    shapes = _shapes(symbol, shape) if shape is not None else {}
    inputs = {node for node in nodes if node.op is None and (node.name in (shape or {}) or _is_input(node))}
    lines = ["_" * line_length, _row(_HEADINGS, ends), "=" * line_length]
    total, counted = 0, set(inputs)
    for node in nodes:
        if node.op is None and (node not in inputs or node.name.endswith("label")):
            continue
        weights = _new_parameters(node, counted)
        count = sum(prod(shapes.get(weight, (0,))) for weight in weights)
        total += count
        lines += _rows(node, inputs, shapes, count, ends)
        lines.append("_" * line_length)
    return "\n".join([*lines, f"Total params: {total}", "_" * line_length])


def _shapes(symbol: Symbol, shape: Mapping[str, Shape]) -> dict[SymbolNode, Shape]:
    """Shapes of variables and of nodes' first outputs."""
    arguments, outputs, states = symbol.get_internals().infer_shape(**shape)
    if outputs is None:
        raise MXNetError(f"the shapes given, {dict(shape)}, leave some unknown; give those of all inputs")
    internals = symbol.get_internals()
    found: dict[SymbolNode, Shape] = {}
    for (node, _), each in zip(internals.outputs, outputs, strict=True):
        found.setdefault(node, each)
    return found


def _is_input(node: SymbolNode) -> bool:
    return node.name == "data" or node.name.endswith(("_data", "label"))


def _new_parameters(node: SymbolNode, counted: set[SymbolNode]) -> list[SymbolNode]:
    """Variables that a node is the first to read as parameters; they are marked as counted."""
    states = auxiliary_positions(node)
    found = []
    for i, (child, _) in enumerate(node.inputs):
        if child.op is None and i not in states and child not in counted:
            counted.add(child)
            found.append(child)
    return found


def _rows(node: SymbolNode, inputs: set[SymbolNode], shapes: Mapping[SymbolNode, Shape], count: int,
          ends: Sequence[int]) -> list[str]:
    """A layer's lines: the first with all columns, one more for each further previous layer."""
    kind = "null" if node.op is None else node.op.name
    shape = shapes.get(node)
    before = list(dict.fromkeys(child.name for child, _ in node.inputs
                                if child.op is not None or child in inputs and not child.name.endswith("label")))
    first: list[Any] = [f"{node.name} ({kind})", "" if shape is None else "x".join(map(str, shape[1:])), str(count)]
    rows = [_row([*first, before[0] if before else ""], ends)]
    return rows + [_row(["", "", "", name], ends) for name in before[1:]]


def _row(fields: Sequence[str], ends: Sequence[int]) -> str:
    line = ""
    for field, end in zip(fields, ends, strict=True):
        line = (line + field)[:end].ljust(end)
    return line

"""A symbol as text."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .node import SymbolNode, auxiliary_positions

if TYPE_CHECKING:
    from .symbol import Symbol


def format_symbol(symbol: Symbol) -> str:
    """MXNet's listing: the outputs, then each node with its inputs and attributes."""
    lines = ["Symbol Outputs:"]
    lines += [f"\toutput[{i}]={node.name}({index})" for i, (node, index) in enumerate(symbol.outputs)]
    for node in symbol.nodes():
        lines += _node_lines(node)
    return "\n".join(lines) + "\n"


def _node_lines(node: SymbolNode) -> Iterator[str]:
    if node.op is None:
        yield f"Variable:{node.name}"
        return
    yield "-" * 20
    yield f"Op:{node.op.name}, Name={node.name}"
    yield "Inputs:"
    states = auxiliary_positions(node)
    for i, (child, index) in enumerate(node.inputs):
        version = f" version={int(i in states)}" if child.op is None else ""
        yield f"\targ[{i}]={child.name}({index}){version}"
    if node.attrs:
        yield "Attrs:"
        yield from (f"\t{key}={text}" for key, text in sorted(node.attrs.items()))

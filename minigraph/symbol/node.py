"""Symbol nodes and the walks over them. No walk is recursive: a chain may be as deep as memory allows."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..base import MXNetError
from ..ops.op import Op

NodeEntry = tuple["SymbolNode", int]
"""A value of a symbol: a node and the number of one of its outputs."""


class SymbolNode:
    """A variable or an operator's application.

    `attrs` are texts, exactly what was set, in MXNet's spellings, with hidden keys as `__key__`. `op` and
    `params` are None for a variable. `inputs` are (node, output number), auxiliary states last.
    """

    __slots__ = ("attrs", "inputs", "name", "op", "params")

    def __init__(self, op: Op | None, name: str, attrs: dict[str, str], inputs: list[NodeEntry],
                 params: Any = None) -> None:
        self.op = op
        self.name = name
        self.attrs = attrs
        self.inputs = inputs
        self.params = params

    @property
    def num_outputs(self) -> int:
        """Number of outputs, hidden ones included."""
        return 1 if self.op is None else len(self.op.outputs(self.params))

    def output_name(self, index: int) -> str:
        """`<node>_<output>`, or a variable's own name."""
        if self.op is None:
            return self.name
        return f"{self.name}_{self.op.outputs(self.params)[index]}"

    def __repr__(self) -> str:
        return f"<{'Variable' if self.op is None else self.op.name} {self.name}>"


def topological_nodes(outputs: Iterable[NodeEntry]) -> list[SymbolNode]:
    """Every node that `outputs` need, in depth-first post-order of first visit: inputs before readers."""
    order: list[SymbolNode] = []
    seen: set[SymbolNode] = set()
    for head, _ in outputs:
        if head in seen:
            continue
        seen.add(head)
        stack = [(head, iter(head.inputs))]
        while stack:
            node, children = stack[-1]
            for child, _ in children:
                if child not in seen:
                    seen.add(child)
                    stack.append((child, iter(child.inputs)))
                    break
            else:
                stack.pop()
                order.append(node)
    return order


def copy_nodes(outputs: Sequence[NodeEntry], replace: dict[SymbolNode, NodeEntry]) -> list[NodeEntry]:
    """`outputs` over new nodes, in which readers of a variable in `replace` read its replacement instead."""
    copies: dict[SymbolNode, SymbolNode] = {}

    def renewed(entry: NodeEntry) -> NodeEntry:
        node, index = entry
        return replace[node] if node in replace else (copies[node], index)

    for node in topological_nodes(outputs):
        if node not in replace:
            inputs = [renewed(entry) for entry in node.inputs]
            copies[node] = SymbolNode(node.op, node.name, dict(node.attrs), inputs, node.params)
    return [renewed(entry) for entry in outputs]


def auxiliary_positions(node: SymbolNode) -> tuple[int, ...]:
    """Which inputs of a node are auxiliary states."""
    if node.op is None:
        return ()
    aux = node.op.aux(node.params)
    if not aux:
        return ()
    return tuple(i for i, name in enumerate(node.op.inputs(node.params)) if name in aux)


def classify_variables(nodes: Iterable[SymbolNode]) -> tuple[list[SymbolNode], list[SymbolNode]]:
    """(arguments, auxiliary states) among topologically ordered `nodes`, in their order.

    A variable is auxiliary when an op reads it as an auxiliary state. MXNetError when two variables share a
    name, when an auxiliary state is no variable, or when one variable is read both ways.
    """
    variables: dict[str, SymbolNode] = {}
    changed_by: dict[SymbolNode, SymbolNode] = {}
    read_by: dict[SymbolNode, SymbolNode] = {}
    for node in nodes:
        if node.op is None:
            if variables.setdefault(node.name, node) is not node:
                raise MXNetError(f"two different variables of this symbol are named {node.name!r}; rename "
                                 f"one, or use one Variable in both places")
            continue
        positions = auxiliary_positions(node)
        for i, (child, _) in enumerate(node.inputs):
            if i in positions:
                _check_state(node, i, child)
                changed_by[child] = node
            elif child.op is None:
                read_by[child] = node
    for state, changer in changed_by.items():
        if state in read_by:
            raise MXNetError(f"variable {state.name!r} is an auxiliary state of {changer.name!r} and an "
                             f"ordinary input of {read_by[state].name!r}; use two variables")
    ordered = variables.values()
    return [v for v in ordered if v not in changed_by], [v for v in ordered if v in changed_by]


def _check_state(node: SymbolNode, position: int, child: SymbolNode) -> None:
    assert node.op is not None
    if child.op is not None:
        name = node.op.inputs(node.params)[position]
        raise MXNetError(f"{node.op.name} {node.name}: {name!r} is an auxiliary state and must be a "
                         f"variable, got the output of {child.name!r}")

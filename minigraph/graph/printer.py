"""A graph as text, one node a line."""
from __future__ import annotations

from ..ops.op import format_shape
from .graph import PHASES, Graph


def format_graph(graph: Graph) -> str:
    """Variables first with what they hold, then nodes: entries, op, params that differ from their defaults, inputs."""
    return "\n".join([*(_line(graph, i) for i in range(len(graph))), _outputs(graph)])


def format_params(params: object) -> str:
    """`kernel=(3, 3), num_filter=16`: the params that differ from their defaults."""
    fields = getattr(params, "__dataclass_fields__", {})
    return ", ".join(f"{name}={getattr(params, name)!r}" for name, field in fields.items()
                     if getattr(params, name) != field.default)


def _line(graph: Graph, i: int) -> str:
    entries = ", ".join(_entry(graph, e) for e in graph.entries(i))
    op = graph.op[i]
    if op is None:
        return f"{entries} = {graph.variable_class.get(i, 'variable')} {graph.name[i]}"
    inputs = ", ".join(f"%{e}" for e in graph.inputs[i])
    params = format_params(graph.params[i])
    note = f" {{{params}}}" if params else ""
    return f"{entries} = {op.name}({inputs}){note}  # {graph.name[i]}, {PHASES[graph.phase[i]]}{_MARKS[graph.mark[i]]}"


_MARKS = {None: "", True: ", marked to run again", False: ", marked to be kept"}


def _entry(graph: Graph, e: int) -> str:
    return f"%{e} {format_shape(graph.shape[e])}" + (f" {graph.layout[e]}" if graph.layout[e] else "")


def _outputs(graph: Graph) -> str:
    pairs = zip(graph.output_names, graph.outputs, strict=True)
    return "outputs: " + ", ".join(f"{name} = %{entry}" for name, entry in pairs)

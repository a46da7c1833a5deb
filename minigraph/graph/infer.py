"""Shape and dtype inference over a graph whose variables may be unknown: sweeps forwards and backwards until nothing
changes. Repeated nodes cost one inference: results are remembered by (op, params, shapes)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import MXNetError
from ..ops.op import Op, OperatorError, ShapeError, format_shape, is_complete, merge_shapes
from .builder import describe
from .graph import Graph

Rule = Callable[[Op, Any, list, list], tuple[list, list]]
MAX_SWEEPS = 100
"""Sweeps until a graph is declared contradictory; each but the last completes something; real graphs need 2 or 3."""


def infer_shapes(graph: Graph) -> bool:
    """Complete `graph.shape` both ways as far as possible; return whether every shape is known.

    Raises ShapeError naming op, node and both shapes on a contradiction.
    """
    _sweep(graph, graph.shape, lambda op, p, ins, outs: op.infer_shape(p, ins, outs), _merge_shape,
           lambda shape: is_complete(shape))
    return all(is_complete(shape) for shape in graph.shape)


def infer_dtypes(graph: Graph, default: Any = None) -> bool:
    """Complete `graph.dtype` both ways; dtypes that nothing decides become `default` when it is given."""
    def rule(op: Op, p: Any, ins: list, outs: list) -> tuple[list, list]:
        return op.infer_dtype(p, ins, outs)
    _sweep(graph, graph.dtype, rule, _merge_dtype, lambda dtype: dtype is not None)
    if default is not None and not _all_known(graph.dtype):
        for i in graph.variables():
            for entry in graph.entries(i):
                graph.dtype[entry] = graph.dtype[entry] or default
        _sweep(graph, graph.dtype, rule, _merge_dtype, lambda dtype: dtype is not None)
    return _all_known(graph.dtype)


def _all_known(dtypes: list) -> bool:
    """Whether no dtype is None; `in` will not do, since NumPy holds None equal to float64."""
    return all(dtype is not None for dtype in dtypes)


def _sweep(graph: Graph, values: list, rule: Rule, merge: Callable[[Any, Any], Any],
           known: Callable[[Any], bool]) -> None:
    memo: dict[tuple, tuple[list, list]] = {}
    nodes = [i for i, op in enumerate(graph.op) if op is not None]
    for sweep in range(MAX_SWEEPS):
        changed, settled = False, True
        for i in nodes if sweep % 2 == 0 else reversed(nodes):
            changed |= _visit(graph, i, values, rule, merge, memo)
            settled = settled and all(known(values[e]) for e in (*graph.inputs[i], *graph.entries(i)))
        # A node that was visited before all was known about it has yet to agree with what others said of it since.
        if not changed or settled:
            return
    raise MXNetError("inference does not settle: some operator keeps changing its answer")


def _visit(graph: Graph, i: int, values: list, rule: Rule, merge: Callable[[Any, Any], Any], memo: dict) -> bool:
    op, params, inputs, outputs = graph.op[i], graph.params[i], graph.inputs[i], graph.entries(i)
    assert op is not None
    ins, outs = [values[e] for e in inputs], [values[e] for e in outputs]
    key = (op.name, params, tuple(ins), tuple(outs))
    found = memo.get(key)
    try:
        if found is None:
            found = memo[key] = rule(op, params, ins, outs)
        changed = False
        for entry, value in (*zip(inputs, found[0], strict=True), *zip(outputs, found[1], strict=True)):
            merged = merge(values[entry], value)
            if (merged is None) != (values[entry] is None) or merged != values[entry]:
                values[entry] = merged
                changed = True
        return changed
    except OperatorError as error:
        raise error.at(graph.name[i]) from error.__cause__
    except ShapeError as error:
        types = [(graph.shape[e], graph.dtype[e]) for e in inputs]
        where = describe(op, graph.name[i], types, [graph.entry_name(e) for e in inputs])
        if any(is_complete(shape) for shape in outs):
            where += " -> " + ", ".join(format_shape(graph.shape[e]) for e in outputs)
        raise ShapeError(f"{where}: {error}") from None


def _merge_shape(old: Any, new: Any) -> Any:
    merged = merge_shapes(old, new)
    if merged != old and merged is not None and any(d is not None and d < 0 for d in merged):
        raise ShapeError(f"parameters and shapes ask for a tensor of shape {format_shape(merged)}; no dimension may be "
                         f"below 0")
    return merged


def _merge_dtype(old: Any, new: Any) -> Any:
    return old if old is not None else new

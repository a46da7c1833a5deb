"""MXNet's `-symbol.json`: every generation is read, and what was read is written back as it was.

A file is an object of `nodes` (in topological order), `arg_nodes`, `heads` and, since 0.9, `node_row_ptr` and
`attrs`. Attributes of a node are texts under `param` and `attr` (to 0.8), `attr` (0.9 to 0.12) or `attrs`
(1.0 on); entries are [node, output] and since 0.9 [node, output, version], where the version counts how often
a variable has been updated. Older files are upgraded in the steps of `_upgrade`.
"""
from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ..base import MXNetError
from ..ops.registry import get_op
from ..symbol.attribute import HIDDEN_KEYS, hidden_spelling, split_input_key
from ..symbol.compose import new_input, parse_attributes
from ..symbol.node import NodeEntry, SymbolNode, auxiliary_positions
from ..symbol.symbol import Symbol
from .dmlc_json import array, block, line, quote, text_map

WRITTEN_VERSION = 10901
"""The MXNet version that composed symbols are written as, major * 10000 + minor * 100 + patch."""
_UNVERSIONED = 800
_FIRST_WITH_AUX, _FIRST_WITH_VARIABLE_ATTRS, _FIRST_WITH_INT_AXIS = 900, 904, 905
_AXIS_OPS = ("argmax", "argmin")
_ATTRIBUTE_KEYS = ("attr", "attrs", "param")


@dataclass(frozen=True)
class Source:
    """How a file spelled what a symbol holds, by position in `Symbol.nodes()`; see `_still_holds`."""

    version: int
    key: str
    graph_attrs: dict[str, Any]
    nodes: list[tuple[str, dict[str, str]]]
    op_names: list[str]
    output_counts: list[int]
    input_versions: list[list[int]]
    head_versions: list[int]


# -- writing -------------------------------------------------------------------------------------------------
def dumps(symbol: Symbol) -> str:
    """The JSON of a symbol, byte for byte as MXNet writes it.

    A symbol that was read and not changed keeps its writer's version, attribute key, entry versions and
    spelling of operators; every other is written as version 1.9.1.
    """
    nodes = symbol.nodes()
    source = symbol.source
    if source is None or not _still_holds(source, nodes):
        source = _fresh_source(symbol, nodes)
    number = {node: i for i, node in enumerate(nodes)}
    written = [_node_text(node, source, number) for node in nodes]
    rows = [0]
    for count in source.output_counts:
        rows.append(rows[-1] + count)
    graph_attrs = {"mxnet_version": line("[]", ['"int"', str(source.version)]),
                   **{key: json.dumps(value) for key, value in source.graph_attrs.items()}}
    arg_nodes = [str(i) for i, node in enumerate(nodes) if node.op is None]
    heads = _entries(symbol.outputs, source.head_versions, number)
    return block("{}", [f'"nodes": {block("[]", written, 1)}', f'"arg_nodes": {array(arg_nodes, 1)}',
                        f'"node_row_ptr": {array(map(str, rows), 1)}', f'"heads": {array(heads, 1)}',
                        f'"attrs": {text_map(graph_attrs, 1)}'], 0)


def _node_text(node: SymbolNode, source: Source, number: Mapping[SymbolNode, int]) -> str:
    i = number[node]
    members = [f'"op": {quote(source.op_names[i])}', f'"name": {quote(node.name)}']
    if node.attrs:
        texts = {key: quote(node.attrs[key]) for key in sorted(node.attrs)}
        members.append(f'"{source.key}": {text_map(texts, 3)}')
    members.append(f'"inputs": {array(_entries(node.inputs, source.input_versions[i], number), 3)}')
    return block("{}", members, 2)


def _entries(entries: Sequence[NodeEntry], versions: Sequence[int], number: Mapping[SymbolNode, int],
             ) -> list[str]:
    return [f"[{number[node]}, {index}, {version}]"
            for (node, index), version in zip(entries, versions, strict=True)]


def _still_holds(source: Source, nodes: Sequence[SymbolNode]) -> bool:
    """Whether nodes have the names and attributes that were read (composing never changes inputs)."""
    return [(node.name, node.attrs) for node in nodes] == source.nodes


def _fresh_source(symbol: Symbol, nodes: Sequence[SymbolNode]) -> Source:
    """The spelling of MXNet 1.9.1: an entry's version is the number of updates its variable had by then."""
    updates: dict[SymbolNode, int] = {}
    versions = []
    for node in nodes:
        states = auxiliary_positions(node)
        for i in states:
            updates[node.inputs[i][0]] = updates.get(node.inputs[i][0], 0) + 1
        versions.append([updates.get(child, 0) for child, _ in node.inputs])
    names = ["null" if node.op is None else node.op.name for node in nodes]
    heads = [updates.get(node, 0) for node, _ in symbol.outputs]
    counts = [node.num_outputs for node in nodes]
    return Source(WRITTEN_VERSION, "attrs", {}, [], names, counts, versions, heads)


# -- reading -------------------------------------------------------------------------------------------------
def loads(text: str) -> Symbol:
    """The symbol of a JSON text of any MXNet version.

    One MXNetError says what is wrong and where: not JSON, truncated, a key missing or of a wrong kind, a node
    that reads itself or a later one, an output that does not exist, an unknown operator or parameter.
    """
    document = _parse(text)
    graph_attrs = _graph_attrs(document)
    version = _version(graph_attrs)
    records = document["nodes"]
    nodes: list[SymbolNode] = []
    counts: list[int] = []
    for i, record in enumerate(records):
        node = _read_node(i, record, nodes, counts)
        _upgrade(node, version, f"node {i} ({node.name!r})")
        nodes.append(node)
        counts.append(node.num_outputs)
    for i in _list(document.get("arg_nodes", []), "arg_nodes"):
        _check_argument(i, nodes)
    heads = [_entry(head, nodes, counts, f"heads[{i}]") for i, head in enumerate(document["heads"])]
    symbol = Symbol(heads)
    symbol.source = _source(document, version, graph_attrs, symbol, nodes)
    return symbol


def _parse(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        raise MXNetError(f"symbol JSON, line {error.lineno} column {error.colno}: {error.msg}; the text is "
                         f"truncated or no JSON") from error
    except RecursionError as error:
        raise MXNetError("symbol JSON: it nests far deeper than a symbol does") from error
    except ValueError as error:
        raise MXNetError(f"symbol JSON: {error}") from error
    if not isinstance(document, dict):
        raise MXNetError(f"symbol JSON: it must be an object with nodes and heads, got {_kind(document)}")
    for key in ("nodes", "heads"):
        if key not in document:
            raise MXNetError(f"symbol JSON: {key!r} is missing; it has {', '.join(document) or 'no keys'}")
        _list(document[key], key)
    if not document["heads"]:
        raise MXNetError("symbol JSON: heads is empty; a symbol has one output or more")
    return document


def _graph_attrs(document: Mapping[str, Any]) -> dict[str, Any]:
    attrs = document.get("attrs", {})
    if not isinstance(attrs, dict):
        raise MXNetError(f"symbol JSON, attrs: it must be an object, got {_kind(attrs)}")
    return attrs


def _version(graph_attrs: Mapping[str, Any]) -> int:
    value = graph_attrs.get("mxnet_version", ["int", _UNVERSIONED])
    if not (isinstance(value, list) and len(value) == 2 and _is_index(value[1])):
        raise MXNetError(f'symbol JSON, attrs: mxnet_version must be like ["int", 10901], got {value!r}')
    if value[1] > WRITTEN_VERSION:
        release = f"{value[1] // 10000}.{value[1] // 100 % 100}.{value[1] % 100}"
        warnings.warn(f"the symbol was written by MXNet {release}, newer than the 1.9.1 that is known here",
                      stacklevel=4)
    return value[1]


def _read_node(i: int, record: Any, nodes: Sequence[SymbolNode], counts: Sequence[int]) -> SymbolNode:
    """One node as the file has it, its parameters not yet read."""
    if not isinstance(record, dict):
        raise MXNetError(f"symbol JSON, node {i}: it must be an object, got {_kind(record)}")
    for key in ("op", "name"):
        if not isinstance(record.get(key), str):
            raise MXNetError(f"symbol JSON, node {i}: {key!r} must be a text, got {_kind(record.get(key))}")
    place = f"node {i} ({record['name']!r})"
    for key in ("control_deps", "subgraphs"):
        if record.get(key):
            raise MXNetError(f"symbol JSON, {place}: {key} are not supported")
    inputs = [_entry(entry, nodes, counts, f"{place} inputs[{k}]")
              for k, entry in enumerate(_list(record.get("inputs", []), f"{place} inputs"))]
    attrs: dict[str, str] = {}
    for key in _ATTRIBUTE_KEYS:
        attrs.update(_texts(record.get(key), f"{place} {key}"))
    if record["op"] == "null":
        if inputs:
            raise MXNetError(f"symbol JSON, {place}: a variable (op \"null\") has no inputs, this one has "
                             f"{len(inputs)}")
        return SymbolNode(None, record["name"], attrs, [])
    try:
        op = get_op(record["op"])
    except MXNetError as error:
        raise MXNetError(f"symbol JSON, {place}: {error}") from error
    return SymbolNode(op, record["name"], attrs, inputs)


def _entry(value: Any, nodes: Sequence[SymbolNode], counts: Sequence[int], place: str) -> NodeEntry:
    if not (isinstance(value, list) and len(value) in (2, 3) and all(map(_is_index, value))):
        raise MXNetError(f"symbol JSON, {place}: it must be [node, output] or [node, output, version], got "
                         f"{value!r:.60}")
    node, index = value[:2]
    if node >= len(nodes):
        raise MXNetError(f"symbol JSON, {place}: it reads node {node}, and only the {len(nodes)} nodes "
                         f"before it may be read; the nodes are cyclic, out of order, or incomplete")
    if index >= counts[node]:
        raise MXNetError(f"symbol JSON, {place}: it reads output {index} of node {node} "
                         f"({nodes[node].name!r}), which has {counts[node]}")
    return nodes[node], index


def _texts(value: Any, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise MXNetError(f"symbol JSON, {place}: it must be an object of texts, got {value!r:.60}")
    return value


def _check_argument(i: Any, nodes: Sequence[SymbolNode]) -> None:
    if not _is_index(i) or i >= len(nodes) or nodes[i].op is not None:
        raise MXNetError(f"symbol JSON, arg_nodes: {i!r} is not the number of a variable")


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise MXNetError(f"symbol JSON, {place}: it must be an array, got {_kind(value)}")
    return value


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _kind(value: Any) -> str:
    """What JSON calls a value's kind."""
    kinds = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", type(None): "nothing"}
    return kinds.get(type(value), "a number")


# -- upgrading -----------------------------------------------------------------------------------------------
def _upgrade(node: SymbolNode, version: int, place: str) -> None:
    """Bring one node to today's form: hidden keys, parameters, then what its version lacked."""
    hidden = {key: node.attrs.pop(key) for key in list(node.attrs) if _is_hidden(key)}
    if node.op is not None:
        if version < _FIRST_WITH_INT_AXIS and node.op.name in _AXIS_OPS and node.attrs.get("axis") == "-1":
            del node.attrs["axis"]  # it then meant all axes
        try:
            parse_attributes(node)
        except MXNetError as error:
            raise MXNetError(f"symbol JSON, {place}: {error}") from error
    _restore_hidden(node, hidden)
    if node.op is not None:
        if version < _FIRST_WITH_AUX:
            _add_missing_inputs(node)
        names = node.op.inputs(node.params)
        if len(node.inputs) != len(names):
            raise MXNetError(f"symbol JSON, {place}: {node.op.name} takes {len(names)} inputs "
                             f"({', '.join(names)}), the node has {len(node.inputs)}")
        if version < _FIRST_WITH_VARIABLE_ATTRS:
            _set_variable_attrs(node)


def _is_hidden(key: str) -> bool:
    return key in HIDDEN_KEYS or split_input_key(key) is not None


def _restore_hidden(node: SymbolNode, hidden: Mapping[str, str]) -> None:
    """`lr_mult` becomes `__lr_mult__` here; `weight_lr_mult` that of the weight if it is a variable."""
    for key, text in hidden.items():
        split = split_input_key(key)
        if split is None:
            node.attrs[hidden_spelling(key)] = text
            continue
        names = [] if node.op is None else list(node.op.inputs(node.params))
        position = names.index(split[0]) if split[0] in names else len(node.inputs)
        if position < len(node.inputs) and node.inputs[position][0].op is None:
            node.inputs[position][0].attrs[split[1]] = text
        else:
            node.attrs[key] = text


def _add_missing_inputs(node: SymbolNode) -> None:
    """Auxiliary states, which files before 0.9 did not list."""
    assert node.op is not None
    for name in node.op.inputs(node.params)[len(node.inputs):]:
        node.inputs.append(new_input(node, name))


def _set_variable_attrs(node: SymbolNode) -> None:
    """What the operator now sets on its variables, such as the initial value of moving statistics."""
    assert node.op is not None
    for_variables = node.op.variable_attrs(node.params)
    for name, (child, _) in zip(node.op.inputs(node.params), node.inputs, strict=True):
        if child.op is None:
            for key, text in for_variables.get(name, {}).items():
                child.attrs.setdefault(key, text)


def _source(document: Mapping[str, Any], version: int, graph_attrs: Mapping[str, Any], symbol: Symbol,
            read: Sequence[SymbolNode]) -> Source | None:
    """What to keep for writing the symbol again; None for files whose form is no longer written."""
    records = document["nodes"]
    keys = {key for record in records for key in _ATTRIBUTE_KEYS if key in record}
    if version < _FIRST_WITH_AUX or len(keys) > 1 or "param" in keys:
        return None
    number = {node: i for i, node in enumerate(read)}
    ordered = [records[number[node]] for node in symbol.nodes()]
    key = keys.pop() if keys else ("attr" if version < 10000 else "attrs")
    others = {name: value for name, value in graph_attrs.items() if name != "mxnet_version"}
    counts = _output_counts(document, read)
    return Source(version, key, others, [(record["name"], record.get(key) or {}) for record in ordered],
                  [record["op"] for record in ordered], [counts[number[node]] for node in symbol.nodes()],
                  [_versions(record.get("inputs", [])) for record in ordered], _versions(document["heads"]))


def _output_counts(document: Mapping[str, Any], read: Sequence[SymbolNode]) -> list[int]:
    """Outputs of each node as the writer counted them: builds of MXNet differ in the hidden ones."""
    rows = _list(document.get("node_row_ptr", []), "node_row_ptr")
    if not rows:
        return [node.num_outputs for node in read]
    if len(rows) != len(read) + 1 or not all(map(_is_index, rows)) or sorted(rows) != rows or rows[0]:
        raise MXNetError(f"symbol JSON, node_row_ptr: it must be {len(read) + 1} ascending numbers from 0, "
                         f"one more than there are nodes")
    return [end - start for start, end in pairwise(rows)]


def _versions(entries: Sequence[Sequence[int]]) -> list[int]:
    return [entry[2] if len(entry) == 3 else 0 for entry in entries]

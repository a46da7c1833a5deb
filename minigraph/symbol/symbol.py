"""Symbol: a view of some outputs of a graph that is still free of shapes, types and memory."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import MXNetError
from .arithmetic import Arithmetic
from .attribute import HIDDEN_KEYS, hidden_spelling, with_plain_spellings
from .compose import new_input, parse_attributes, where
from .node import NodeEntry, SymbolNode, classify_variables, copy_nodes, topological_nodes
from .printer import format_symbol
from .to_graph import infer_shape, infer_type

Shapes = list[tuple[int, ...]] | None
Types = list[type] | None


class Symbol(Arithmetic):
    """One or more outputs, as (node, output number); composing makes new nodes and never changes old ones.

    Nodes are shared between symbols. `source` is what the reader of a file wants back when the unchanged
    symbol is written again; it is None for a symbol that was composed.
    """

    __slots__ = ("__weakref__", "outputs", "source")

    def __init__(self, outputs: Iterable[NodeEntry], source: Any = None) -> None:
        self.outputs: list[NodeEntry] = list(outputs)
        self.source = source

    # -- names and structure ---------------------------------------------------------------------------------
    def nodes(self) -> list[SymbolNode]:
        """All nodes, inputs before their readers, in depth-first post-order of first visit."""
        return topological_nodes(self.outputs)

    @property
    def name(self) -> str | None:
        """The node's name; None for outputs of several nodes."""
        node = self._node()
        return None if node is None else node.name

    def list_arguments(self) -> list[str]:
        """Names of the variables that are no auxiliary states, in the order in which they are needed."""
        return [node.name for node in classify_variables(self.nodes())[0]]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the variables that an operator updates in training."""
        return [node.name for node in classify_variables(self.nodes())[1]]

    def list_inputs(self) -> list[str]:
        """Names of all variables, auxiliary states among them."""
        nodes = self.nodes()
        classify_variables(nodes)
        return [node.name for node in nodes if node.op is None]

    def list_outputs(self) -> list[str]:
        """Names of the outputs: `<node>_<output>`, or a variable's own name."""
        return [node.output_name(index) for node, index in self.outputs]

    def get_internals(self) -> Symbol:
        """A symbol of every visible output of every node, to pick from by name."""
        return Symbol((node, i) for node in self.nodes() for i in range(_visible(node)))

    def get_children(self) -> Symbol | None:
        """A symbol of the inputs of this symbol's nodes; None for variables, which have none."""
        nodes = dict.fromkeys(node for node, _ in self.outputs)
        inputs = [entry for node in nodes for entry in node.inputs]
        return Symbol(inputs) if inputs else None

    def _gen_atomic_symbol(self) -> Symbol:
        """The operator of this symbol's one node with its attributes, composed anew with variables as inputs."""
        node = self._node()
        if node is None or node.op is None:
            raise MXNetError(f"{self!r} is no application of one operator")
        copied = SymbolNode(node.op, node.name, dict(node.attrs), [], node.params)
        copied.inputs = [new_input(copied, name) for name in node.op.inputs(node.params)]
        return Symbol((copied, i) for i in range(_visible(copied)))

    def __len__(self) -> int:
        return len(self.outputs)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([entry]) for entry in self.outputs)

    def __getitem__(self, index: int | str | slice) -> Symbol:
        """One output by number or by name, or several by a slice."""
        if isinstance(index, slice):
            return Symbol(self.outputs[index])
        if isinstance(index, str):
            index = self._index_of(index)
        if not isinstance(index, (int, np.integer)):
            raise TypeError(f"an output is picked by number, name or slice, got {type(index).__name__}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"output {index} of {self!r} is out of range: it has {len(self)}")
        return Symbol([self.outputs[index]])

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<Symbol {self.name}>"
        shown = [node.name for node, _ in self.outputs[:10]] + ["..."] * (len(self) > 10)
        return f"<Symbol group [{', '.join(shown)}]>"

    # -- attributes ------------------------------------------------------------------------------------------
    def attr(self, key: str) -> str | None:
        """The text of one attribute, under either spelling of a hidden key; None when it is not set."""
        node = self._node()
        if node is None:
            return None
        return node.attrs.get(key, node.attrs.get(hidden_spelling(key)))

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """All attributes of the node, hidden keys under both spellings; `attr_dict` gives all nodes'."""
        if recursive:
            raise MXNetError("list_attr(recursive=True) is gone from MXNet too; use attr_dict()")
        node = self._node()
        return {} if node is None else with_plain_spellings(node.attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """{node: {key: text}} of every node that has attributes, hidden keys under both spellings."""
        return {node.name: with_plain_spellings(node.attrs) for node in self.nodes() if node.attrs}

    def _set_attr(self, **attributes: Any) -> None:
        """Set attributes of this symbol's one node, which every symbol that shares the node sees.

        Hidden keys are stored as `__key__`. A parameter may change while inputs and outputs stay.
        """
        node = self._node()
        if node is None:
            raise MXNetError(f"attributes are set on one node, {self!r} is a group; pick one by [index]")
        texts = {hidden_spelling(key): str(value) for key, value in attributes.items()}
        for key in texts:
            _refuse_suffix(key)
        node.name = texts.pop("name", node.name)
        if node.op is None:
            node.attrs.update(texts)
        else:
            _change_parameters(node, texts)

    def _node(self) -> SymbolNode | None:
        """The node that all outputs belong to, or None."""
        if not self.outputs:
            return None
        first = self.outputs[0][0]
        return first if all(node is first for node, _ in self.outputs) else None

    def _index_of(self, name: str) -> int:
        found = [i for i, output in enumerate(self.list_outputs()) if output == name]
        if not found:
            raise ValueError(f"Cannot find output that matches name \"{name}\"; the first outputs are "
                             f"{', '.join(self.list_outputs()[:10])}")
        if len(found) > 1:
            raise ValueError(f"There are multiple outputs with name \"{name}\": numbers "
                             f"{', '.join(map(str, found[:10]))}; pick one by number")
        return found[0]

    # -- composing and copying -------------------------------------------------------------------------------
    def __call__(self, *args: Symbol, **kwargs: Any) -> Symbol:
        """A copy in which variables are replaced: by position in the order of `list_inputs`, or by name.

        `name` renames the copy's first node. MXNetError lists the candidates on an unknown name.
        """
        name = kwargs.pop("name", None)
        if args and kwargs:
            raise TypeError("compose only accepts input Symbols either as positional or keyword arguments, "
                            "not both")
        variables = {node.name: node for node in self.nodes() if node.op is None}
        if len(args) > len(variables):
            raise MXNetError(f"Symbol.Compose: {self!r} has {len(variables)} variables, got {len(args)}")
        named = kwargs or dict(zip(variables, args, strict=False))
        replace = {}
        for key, symbol in named.items():
            if key not in variables:
                listed = "".join(f"\n\t[{i}]{n}" for i, n in enumerate(variables))
                raise MXNetError(f"Symbol.Compose: Keyword argument name {key} not found.\n"
                                 f"Candidate arguments:{listed}")
            if not isinstance(symbol, Symbol):
                raise TypeError(f"Symbol.Compose: {key!r} must be a Symbol, got {type(symbol).__name__}")
            replace[variables[key]] = single_entry(symbol, f"Keyword argument {key}")
        result = Symbol(copy_nodes(self.outputs, replace))
        if name is not None:
            result.outputs[0][0].name = name
        return result

    def __copy__(self) -> Symbol:
        return Symbol(copy_nodes(self.outputs, {}), self.source)

    def __deepcopy__(self, memo: Any) -> Symbol:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        from ..formats.symbol_json import loads

        return loads, (self.tojson(),)

    # -- inference -------------------------------------------------------------------------------------------
    def infer_shape(self, *args: Any, **kwargs: Any) -> tuple[Shapes, Shapes, Shapes]:
        """(argument, output, auxiliary) shapes from known ones, by position (None skips) or by name.

        A 0 in a shape is an unknown dimension, and () an unknown shape. When something stays unknown the answer is
        (None, None, None) and a warning names the arguments. A contradiction raises MXNetError naming operator, node
        and shapes.
        """
        return infer_shape(self, args, kwargs, partial=False)

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> tuple[Shapes, Shapes, Shapes]:
        """As `infer_shape`, but gives what is known: 0 for an unknown dimension, () for an unknown shape."""
        return infer_shape(self, args, kwargs, partial=True)

    def infer_type(self, *args: Any, **kwargs: Any) -> tuple[Types, Types, Types]:
        """(argument, output, auxiliary) NumPy types from known ones, by position or by name.

        When some stay unknown the answer is (None, None, None) and a warning names the arguments.
        """
        return infer_type(self, args, kwargs, partial=False)

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> tuple[Types, Types, Types]:
        """As `infer_type`, but gives what is known, and None for an unknown type."""
        return infer_type(self, args, kwargs, partial=True)

    # -- execution -------------------------------------------------------------------------------------------
    def simple_bind(self, ctx: Any, grad_req: Any = "write", type_dict: Mapping[str, Any] | None = None,
                    stype_dict: Any = None, group2ctx: Any = None, shared_arg_names: Any = None,
                    shared_exec: Any = None, shared_buffer: Any = None, **kwargs: Any) -> Any:
        """Compile for given shapes and return the Executor.

        Keywords that name a variable or whose value is a tuple or list are shapes, labels included; all
        others (memory, budget, host_budget, disk, machine ...) are options of the executor. With
        `shared_exec` the two executors share their memory.
        """
        from .. import bind as binders

        _refuse("one symbol runs on one device", group2ctx=group2ctx)
        _refuse("arrays are dense", stype_dict=stype_dict)
        _refuse("share memory by shared_exec", shared_arg_names=shared_arg_names, shared_buffer=shared_buffer)
        variables = set(self.list_inputs())
        shapes, options = {}, {"shared_exec": shared_exec}
        for key, value in kwargs.items():
            if isinstance(value, (tuple, list)):
                shapes[key] = tuple(value)
            elif key in variables:
                shapes[key] = (value,)
            else:
                options[key] = value
        return binders.simple_bind(self, ctx, grad_req, type_dict, shapes, **options)

    def bind(self, ctx: Any, args: Any, args_grad: Any = None, grad_req: Any = "write",
             aux_states: Any = None, group2ctx: Any = None, shared_exec: Any = None, **options: Any) -> Any:
        """Compile for given arrays, lists in order or dictionaries, and return the Executor.

        `options` are those of `simple_bind`.
        """
        from .. import bind as binders

        _refuse("one symbol runs on one device", group2ctx=group2ctx)
        return binders.bind(self, ctx, args, args_grad, grad_req, aux_states, shared_exec=shared_exec,
                            **options)

    def eval(self, ctx: Any = None, **kwargs: Any) -> list[Any]:
        """The outputs, as NDArrays, for arguments given as NDArrays by name."""
        from ..context import current_context

        return self.bind(current_context() if ctx is None else ctx, kwargs, grad_req="null").forward()

    def gradient(self, wrt: Sequence[str]) -> Symbol:
        """Not there, as in MXNet: bind the symbol and call backward."""
        raise MXNetError("Symbol.gradient is not implemented; bind the symbol and call backward")

    # -- files -----------------------------------------------------------------------------------------------
    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The symbol as MXNet's JSON. `remove_amp_cast` is MXNet's; no symbol has such casts here."""
        from ..formats.symbol_json import dumps

        return dumps(self)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Write MXNet's JSON to a file, which holds either its old content or all of the new."""
        from ..formats.atomic import write_atomically

        write_atomically(fname, self.tojson(remove_amp_cast).encode())

    def debug_str(self) -> str:
        """Outputs and nodes with inputs and attributes, in MXNet's layout."""
        return format_symbol(self)


def single_entry(symbol: Symbol, what: str) -> NodeEntry:
    """The one output of a symbol that is to be an input; MXNetError when it has several."""
    if len(symbol.outputs) != 1:
        raise MXNetError(f"{what} is a tuple, single value is required: {symbol!r} has the outputs "
                         f"{', '.join(symbol.list_outputs()[:5])}; pick one by [index]")
    return symbol.outputs[0]


def _visible(node: SymbolNode) -> int:
    return 1 if node.op is None else node.op.visible_outputs(node.params)


def _refuse(reason: str, **given: Any) -> None:
    for key, value in given.items():
        if value:
            raise MXNetError(f"{key} is not supported: {reason}; leave it out")


def _refuse_suffix(key: str) -> None:
    for hidden in HIDDEN_KEYS:
        if key.endswith("_" + hidden):
            name = key.removesuffix("_" + hidden)
            raise MXNetError(f"setting {key!r} on a node that has its inputs comes too late; write "
                             f"w = Variable(..., {hidden}=...) and give w as the input {name!r}")


def _change_parameters(node: SymbolNode, texts: Mapping[str, str]) -> None:
    """Set attributes of an operator node, or leave it as it was and raise."""
    assert node.op is not None
    before, params = node.attrs, node.params
    node.attrs = {**before, **texts}
    try:
        parse_attributes(node)
        if (node.op.inputs(node.params), node.op.outputs(node.params)) != (
                node.op.inputs(params), node.op.outputs(params)):
            raise MXNetError(f"{where(node)}: setting {dict(texts)} would change its inputs or outputs; "
                             f"compose it anew")
    except MXNetError:
        node.attrs, node.params = before, params
        raise

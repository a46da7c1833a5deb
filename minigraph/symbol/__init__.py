"""Symbols: variables, groups, and one function for every operator of the registry.

`minigraph.symbol.Convolution` and every other operator's name or alias is an attribute of this package; those
that begin with an underscore are there too, and not listed.
"""
from __future__ import annotations

from ..base import MXNetError, NotImplementedForSymbol
from ..ops.registry import get_op
from .arithmetic import hypot, maximum, minimum, pow
from .attribute import AttrScope
from .creation import Group, Variable, arange, eye, full, linspace, load, load_json, ones, var, zeros
from .functions import Function, function_names, op_function
from .methods import add_methods
from .namespaces import _internal, contrib, image, linalg, op, random
from .naming import NameManager, Prefix
from .node import SymbolNode
from .splitting import split_v2
from .symbol import Symbol
from .to_graph import symbol_graph

power = pow
add_methods()

__all__ = ["AttrScope", "Group", "NameManager", "NotImplementedForSymbol", "Prefix", "Symbol", "SymbolNode",
           "Variable", "_internal", "arange", "contrib", "eye", "full", "hypot", "image", "linalg", "linspace", "load",
           "load_json", "maximum", "minimum", "ones", "op", "pow", "power", "random", "split_v2", "symbol_graph", "var",
           "zeros"]


def __getattr__(name: str) -> Function:
    """The function of an operator."""
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        get_op(name)
    except MXNetError as error:
        raise AttributeError(f"minigraph.symbol has no {name!r}, and no operator is named so; minigraph.register adds "
                             f"operators of one's own") from error
    return op_function(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *function_names()})

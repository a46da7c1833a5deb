"""What a symbol's author says of running nodes again in backward: MXNet's attribute `force_mirroring`, and the variable
MXNET_BACKWARD_DO_MIRROR of the environment, which says so of all cheap operators that have no attribute.

`mirror_stage` marks by themselves ask for nothing: scripts such as memonger read them to decide which nodes to mark.
"""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..base import MXNetError
from .node import SymbolNode

if TYPE_CHECKING:
    from .symbol import Symbol

ENVIRONMENT = "MXNET_BACKWARD_DO_MIRROR"
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def mark_of(node: SymbolNode) -> bool | None:
    """Whether a node is to run again in backward, or its values are to be kept; None where nothing is said.

    MXNetError for a text that is no truth.
    """
    if node.op is None:
        return None
    text = node.attrs.get("__force_mirroring__")
    if text is None:
        return True if _is_asked() and node.op.recompute == "cheap" else None
    if text.strip().lower() not in _TRUTHS:
        raise MXNetError(f"{node.op.name} {node.name}: force_mirroring={text!r} must be True or False")
    return _TRUTHS[text.strip().lower()]


def is_marked(symbol: Symbol) -> bool:
    """Whether any node of a symbol is to run again."""
    return any(mark_of(node) for node in symbol.nodes())


def _is_asked() -> bool:
    text = os.environ.get(ENVIRONMENT, "0").strip().lower()
    if text not in ("", *_TRUTHS):
        raise MXNetError(f"the environment has {ENVIRONMENT}={text!r}; it must be 1 or 0")
    return _TRUTHS.get(text, False)

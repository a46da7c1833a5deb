"""What a device says of operators: in which ways it computes them, in which layouts, and which it takes together."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base import Algorithm, Layouts, TensorType
from .op import Op

Types = Sequence[TensorType]
AlgorithmChoices = Callable[[Op, Any, Types, Types], Sequence[Algorithm]]
"""A device's ways to compute an op, fastest first, from op, params, and the types of inputs and outputs."""
LayoutChoices = Callable[[Op, Any, Types, Types], Sequence[Layouts]]
"""Combinations of operand layouts that a device takes for an op, best first, from op, params, and plain types; all of
them plain is always one."""
FusionChoices = Callable[[str, str, Any], bool]
"""Whether a device takes an op in the place of others: from the name of the op that takes over another, or does with an
encoding, and name and params of the one that does what these did."""

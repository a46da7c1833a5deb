"""The plan as data: its types, printer, verifier, simulator, report and files.

The package can be called: `minigraph.plan(symbol, shapes, ...)` is `minigraph.planning.plan`.
"""
from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _PlanPackage(ModuleType):
    """The class of this package, so that one name serves the data and the function that makes it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `minigraph.planning.plan`."""
        from ..planning import plan  # what makes plans stands above them

        return plan(*args, **kwargs)


sys.modules[__name__].__class__ = _PlanPackage

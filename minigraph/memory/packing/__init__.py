"""Lifetimes to offsets: a problem, its solver, and a validator that shares no code with the solver."""

from __future__ import annotations

from .problem import Problem, Solution
from .solve import pack
from .validate import PackingError, validate

__all__ = ["PackingError", "Problem", "Solution", "pack", "validate"]

"""Lifetimes to offsets: a problem, its solver, and a validator that shares no code with the solver."""

from __future__ import annotations

from .pages import pack_pages, page_bytes_for
from .problem import PagedSolution, Problem, Solution
from .solve import pack
from .validate import PackingError, validate

__all__ = ["PackingError", "PagedSolution", "Problem", "Solution", "pack", "pack_pages", "page_bytes_for", "validate"]

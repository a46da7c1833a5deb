"""Passes, one a file; `pipeline.PASSES` gives their order."""
from .compilation import Request
from .pipeline import compile_program

__all__ = ["Request", "compile_program"]

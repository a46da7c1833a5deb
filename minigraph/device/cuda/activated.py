"""Layers of weights with an activation on a GPU: the forms are those of the layers without, in conv.py and dense.py."""
from . import conv, dense

__all__ = ["conv", "dense"]

"""NDArrays: the values at the edges of a graph, and what makes, keeps and waits for them."""
from __future__ import annotations

from .. import random
from ..storage import HostStorage, Storage
from .array import NDArray
from .creation import arange, array, concatenate, empty, full, ones, zeros
from .files import load, load_frombuffer, save
from .waiting import register_waiter, waitall

__all__ = ["HostStorage", "NDArray", "Storage", "arange", "array", "concatenate", "empty", "full", "load",
           "load_frombuffer", "ones", "random", "register_waiter", "save", "waitall", "zeros"]

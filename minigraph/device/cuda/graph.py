"""CUDA graphs through ctypes, for PyCUDA has none: record a step's calls once, then replay them with one call."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from .driver import Driver
from .library import LibraryFunctions
from .modules import Call

THREAD_LOCAL = 1
"""Capture mode: calls of other threads do not disturb the capture."""
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuStreamBeginCapture_v2": (ctypes.c_void_p, ctypes.c_int),
    "cuStreamEndCapture": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)),
    "cuGraphInstantiateWithFlags": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_ulonglong),
    "cuGraphLaunch": (ctypes.c_void_p, ctypes.c_void_p),
    "cuGraphDestroy": (ctypes.c_void_p,),
    "cuGraphExecDestroy": (ctypes.c_void_p,),
}


class Graphs:
    """The driver's graph functions. MXNetError where it lacks them, or refuses a capture."""

    def __init__(self, driver: Driver) -> None:
        self._library = LibraryFunctions(driver, _FUNCTIONS, "replay this program as a graph", "run without graph=True")

    def capture(self, calls: Sequence[Call], stream: Any) -> int:
        """The handle of an executable graph of what the calls put on `stream` and on streams forked from it."""
        self._library.call("cuStreamBeginCapture_v2", stream.handle, THREAD_LOCAL)
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            for function, arguments in calls:
                function(*arguments)
        except BaseException:
            self._library.result("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
            raise
        self._library.call("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
        try:
            self._library.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        finally:
            self._library.call("cuGraphDestroy", graph)
        assert executable.value is not None
        return executable.value

    def replay(self, executable: int, stream: Any) -> Call:
        """The call that launches an executable graph."""
        return self._library.call, ("cuGraphLaunch", executable, stream.handle)

    def destroy(self, executable: int) -> None:
        """Free an executable graph."""
        self._library.call("cuGraphExecDestroy", executable)

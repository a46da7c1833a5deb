"""CUDA graphs through ctypes, for PyCUDA has none: record a step's calls once, then replay them with one call."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ...base import MXNetError
from .driver import Driver
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
        self._driver = driver
        self._functions: dict[str, Any] = {}

    def capture(self, calls: Sequence[Call], stream: Any) -> int:
        """The handle of an executable graph of what the calls put on `stream` and on streams forked from it."""
        self._ask("cuStreamBeginCapture_v2", stream.handle, THREAD_LOCAL)
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            for function, arguments in calls:
                function(*arguments)
        except BaseException:
            self._function("cuStreamEndCapture")(stream.handle, ctypes.byref(graph))
            raise
        self._ask("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
        try:
            self._ask("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        finally:
            self._ask("cuGraphDestroy", graph)
        assert executable.value is not None
        return executable.value

    def replay(self, executable: int, stream: Any) -> Call:
        """The call that launches an executable graph."""
        return self._ask, ("cuGraphLaunch", executable, stream.handle)

    def destroy(self, executable: int) -> None:
        """Free an executable graph."""
        self._ask("cuGraphExecDestroy", executable)

    def _ask(self, name: str, *arguments: Any) -> None:
        result = self._function(name)(*arguments)
        if result:
            text = ctypes.c_char_p()
            self._driver.library.cuGetErrorString(result, ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            raise MXNetError(f"the CUDA driver cannot replay this program as a graph: {name} failed with {result} "
                             f"({reason}); run without graph=True")

    def _function(self, name: str) -> Any:
        found = self._functions.get(name)
        if found is None:
            try:
                found = getattr(self._driver.library, name)
            except AttributeError as error:
                raise MXNetError(f"this CUDA driver has no {name}, so it cannot replay graphs; update it, or run "
                                 f"without graph=True") from error
            found.argtypes, found.restype = _FUNCTIONS[name], ctypes.c_int
            self._functions[name] = found
        return found

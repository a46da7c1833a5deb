"""Functions of the CUDA driver that PyCUDA has no wrappers of, called through ctypes on the same library."""
from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from ...base import MXNetError
from .driver import Driver


class LibraryFunctions:
    """Functions of the driver's library by name, each looked up when it is first called.

    `types` gives the ctypes types of the arguments; each returns a CUresult. `purpose` says in errors what cannot be
    done without them, and `instead` what to do then.
    """

    def __init__(self, driver: Driver, types: Mapping[str, tuple[Any, ...]], purpose: str, instead: str) -> None:
        self._library = driver.library
        self._types, self._purpose, self._instead = types, purpose, instead
        self._found: dict[str, Any] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; MXNetError when the driver lacks it or it fails."""
        result = self.result(name, *arguments)
        if result:
            raise self.failure(name, result)

    def result(self, name: str, *arguments: Any) -> int:
        """Call a function; its CUresult, 0 for success. MXNetError when the driver lacks it."""
        function = self._found.get(name) or self._find(name)
        return int(function(*arguments))

    def failure(self, name: str, result: int) -> MXNetError:
        """The error that tells of a result."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(result, ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        return MXNetError(f"the CUDA driver cannot {self._purpose}: {name} failed with {result} ({reason}); "
                          f"{self._instead}")

    def _find(self, name: str) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise MXNetError(f"the CUDA driver cannot {self._purpose}, for it has no {name}; update it, or "
                             f"{self._instead}") from error
        function.argtypes, function.restype = self._types[name], ctypes.c_int
        self._found[name] = function
        return function

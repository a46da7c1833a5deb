"""The primary context of a device, current inside `with`, on any thread."""
from __future__ import annotations

from types import TracebackType
from typing import Any

from ...base import MXNetError
from .driver import Driver


class PrimaryContext:
    """Retained once a process; pushed for the length of a call, so that nothing is left on any thread's stack.

    A context that is on a thread's stack when the thread ends makes PyCUDA abort the process.
    """

    def __init__(self, driver: Driver, index: int) -> None:
        self._driver = driver
        self._error: type[BaseException] = driver.cuda.Error
        device = driver.cuda.Device(index)
        self.device_name: str = device.name()
        self.compute_capability: tuple[int, int] = device.compute_capability()
        self.total_bytes: int = device.total_memory()
        self._context: Any = driver.keep(device.retain_primary_context())

    def __enter__(self) -> PrimaryContext:
        """MXNetError in a child of a fork and while the interpreter ends."""
        self._driver.check()
        self._context.push()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._driver.cuda.Context.pop()
        if isinstance(error, self._error):
            raise MXNetError(f"{self.device_name} failed: {error}; after a fault inside a kernel the process must be "
                             f"started anew") from error

    def synchronize(self) -> None:
        """Return when everything that was started on the device, from any thread, has ended."""
        with self:
            self._driver.cuda.Context.synchronize()

    def detach(self) -> None:
        """Release the context; what PyCUDA's objects still hold of it ends with it, in silence."""
        self._context.push()
        self._context.detach()
        self._driver.drop(self._context)

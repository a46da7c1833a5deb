"""Waiting for devices that work asynchronously."""
from __future__ import annotations

import weakref
from typing import Any

_waiters: weakref.WeakSet = weakref.WeakSet()


def register_waiter(device: Any) -> None:
    """Have `waitall` call `device.synchronize()`; the device is held weakly."""
    _waiters.add(device)


def waitall() -> None:
    """Return when every registered device has finished its work."""
    for device in list(_waiters):
        device.synchronize()

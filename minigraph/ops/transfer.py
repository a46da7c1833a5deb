"""Framework ops that move a value to host memory and back; schedules put them in, and lowering turns them into copies
on the copy streams and waits on the compute stream. They compute nothing."""
from __future__ import annotations

from typing import Any

from ..base import Cost
from .op import Op
from .registry import register


class Transfer(Op):
    """Base: shapes pass through; no device computes it."""

    recompute = "never"

    def cost(self, p: Any, ins: Any, outs: Any) -> Cost:
        return Cost(0.0, 0, 0)


@register
class SwapOut(Transfer):
    """Begins to copy data to host memory: the output is the value there. The source lives until `_swap_release`."""

    name, transfer = "_swap_out", "out"

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("host",)


@register
class SwapHome(Transfer):
    """Begins to copy data to its home outside the device: the output is the home's new value.

    What lay there before is not read. The source lives until `_swap_release`.
    """

    name, transfer = "_swap_home", "home"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("home", "data")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("home",)

    def mutates(self, p: Any) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)

    def unread(self, p: Any) -> tuple[int, ...]:
        return (0,)


@register
class SwapRelease(Transfer):
    """Waits until the copy of `data` has left, so that its bytes may be used again."""

    name, transfer = "_swap_release", "release"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", "host")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ()


@register
class SwapIn(Transfer):
    """Begins to copy a value back from host memory; it may be read after `_swap_arrive`."""

    name, transfer = "_swap_in", "in"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("host",)


@register
class SwapArrive(Transfer):
    """Waits until the copy back is there; the host's bytes are free from then on."""

    name, transfer = "_swap_arrive", "arrive"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("host", "data")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ()

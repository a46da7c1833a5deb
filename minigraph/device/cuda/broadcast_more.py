"""CUDA forms of powers, extrema, remainders and comparisons with broadcasting; kernels/broadcast_more.cu."""
from __future__ import annotations

from .broadcast import Broadcast
from .launch import kernels_for


def define_broadcast(name: str) -> None:
    """Make broadcast_<name> a Broadcast; operands of one shape take the kernel `<name>_forward_float32`."""
    @kernels_for(f"broadcast_{name}")
    class Defined(Broadcast):
        op, elementwise = name, name


for _name in ("power", "maximum", "minimum", "hypot", "mod", "equal", "not_equal", "greater", "greater_equal", "lesser",
              "lesser_equal"):
    define_broadcast(_name)

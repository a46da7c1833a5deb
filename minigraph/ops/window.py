"""Sliding windows over spatial axes, as convolution and pooling share them."""
from __future__ import annotations

from ..base import PartialShape, Shape
from .op import ShapeError, format_shape

LAYOUTS = ("NCW", "NCHW", "NCDHW")
"""The data layouts of window ops: batch, channels, then one to three spatial axes."""
ALL = slice(None)


def per_axis(values: Shape, kernel: Shape, default: int, name: str) -> Shape:
    """A parameter given per spatial axis, or `default` for each axis when it was not given.

    Raises ShapeError when it has another number of axes than the kernel, or a value below its least one or of more than
    32 bits.
    """
    values = values or (default,) * len(kernel)
    if len(values) != len(kernel):
        raise ShapeError(f"{name} {values} has {len(values)} axes and kernel {kernel} has {len(kernel)}; "
                         f"give one value for each spatial axis")
    if min(values, default=default) < default:
        raise ShapeError(f"{name} {values} has a value below {default}; each must be at least {default}")
    if max((*values, *kernel), default=0) >= 2**31:
        raise ShapeError(f"{name} {values} or kernel {kernel} has a value of more than 32 bits")
    return values


def check_rank(data: PartialShape, axes: int, layout: str | None) -> None:
    """Raise ShapeError unless `data` can be batch, channels and `axes` spatial axes, in the layout named."""
    if not 1 <= axes <= 3:
        raise ShapeError(f"a window over {axes} spatial axes; kernels of one to three axes are supported")
    if data is not None and len(data) != axes + 2:
        raise ShapeError(f"data has shape {format_shape(data)}, of {len(data)} axes; a kernel of {axes} axes "
                         f"needs batch, channels and {axes} spatial axes")
    if layout is not None and layout != LAYOUTS[axes - 1]:
        raise ShapeError(f"layout {layout} does not fit a kernel of {axes} axes; "
                         f"it must be {LAYOUTS[axes - 1]}")


def clip(outputs: int, inputs: int, stride: int, offset: int) -> tuple[slice, slice] | None:
    """The output positions o in [0, outputs) that read an input o * stride + offset inside [0, inputs).

    Returned as (slice of outputs, slice of the inputs they read), or None when no position does. Clipping
    each tap of a window takes the place of padding, so no padded copy of the input is ever made.
    """
    first = max(0, -(offset // stride))
    last = min(outputs, -((offset - inputs) // stride))
    if first >= last:
        return None
    start = first * stride + offset
    return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)

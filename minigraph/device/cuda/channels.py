"""The host's side of kernels/channels.h: how the sums a channel of a tensor are cut into parts."""
from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

from ...base import MXNetError, Shape
from ...ops.channels import channel_layout
from ...ops.chunks import MAX_CHUNK
from .launch import MAX_BLOCKS

THREADS = 256
"""Threads of a block that sums a part (channels.h: kChannelThreads)."""
PART = 8192
"""Elements of a part, about: 32 a thread. With trees above, a float32 sum of that many errs by a few last digits."""
SPAN = 1024
"""Elements that a block of an elementwise loop takes at a time (channels.h: kSpan)."""
MAX_AXIS = 2**31 - 2 * SPAN
"""Sizes that divisions by multiplication take (divider.h)."""


@dataclass(frozen=True)
class Channels:
    """Sizes of a tensor (batch, before, channels, after) and the parts in which its channels are summed.

    The partition depends on the sizes of one image only, so a slice of the batch is cut like the whole.
    """

    batch: int
    before: int
    channels: int
    after: int
    images: int             # images of a part
    runs: int               # runs of a part
    length: int             # elements of a run in a part
    run_pieces: int         # pieces that an image is cut into by runs
    length_pieces: int      # pieces that a run is cut into
    parts: int
    lanes: int              # neighbouring threads along a run, or along channels where runs have one element

    @property
    def blocks(self) -> int:
        """Blocks of a launch that sums all parts."""
        groups = self.channels if self.after > 1 else -(-self.channels // self.lanes)
        return min(max(1, groups * self.parts), 2**31 - 1)

    @property
    def count(self) -> int:
        """Elements a channel."""
        return self.batch * self.before * self.after

    def partial_bytes(self, terms: int) -> int:
        """Workspace bytes of the parts' sums of `terms` float32 terms."""
        return 4 * terms * self.parts * self.channels

    def argument(self) -> tuple[str, Any]:
        """The kernel argument `Channels`."""
        values = astuple(self)
        return f"{len(values)}q", values


def partition(axis: int, shape: Shape) -> Channels:
    """The partition of a tensor of `shape` with its channels on `axis`."""
    return partition_layout(*channel_layout(axis, shape))


def partition_layout(batch: int, before: int, channels: int, after: int) -> Channels:
    """The partition of a tensor (batch, before, channels, after)."""
    if max(channels, after) > MAX_AXIS:
        raise MXNetError(f"a tensor of {channels} channels with {after} elements after the channel axis; the CUDA "
                         f"kernels of statistics a channel take at most {MAX_AXIS} of either")
    size = max(1, before * after)
    images = min(MAX_CHUNK, _power_below(max(1, PART // size)))
    runs = images * before if size <= PART else max(1, PART // after)
    length = min(after, PART)
    run_pieces = 1 if size <= PART else -(-before // runs)
    length_pieces = max(1, -(-after // PART))
    parts = -(-batch // images) * run_pieces * length_pieces if before * after else 0
    return Channels(batch, before, channels, after, images, runs, length, run_pieces, length_pieces, parts,
                    _lanes(channels, after, runs, length))


def _power_below(value: int) -> int:
    """The largest power of two up to `value`."""
    return 1 << (value.bit_length() - 1)


def _power_above(value: int) -> int:
    """The smallest power of two from `value` on."""
    return 1 << max(0, value - 1).bit_length()


def _lanes(channels: int, after: int, runs: int, length: int) -> int:
    """At least a warp along a run, and all of a block where a part has one run only."""
    if after <= 1:
        return min(32, _power_above(channels))
    abreast = min(THREADS // 32, _power_below(max(1, runs)))
    return min(THREADS // abreast, _power_above(length))


def span_grid(elements: int) -> tuple[int, int, int]:
    """The grid of an elementwise loop that knows channels."""
    return max(1, min(-(-elements // SPAN), MAX_BLOCKS)), 1, 1



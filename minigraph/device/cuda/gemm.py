"""The host's side of kernels/gemm.h: how a matrix product is spread over blocks."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...base import MXNetError
from .launch import BLOCK, Launch, address, flat_grid, int32, int64

TILE = 64
"""Rows and columns of an output tile (gemm.h: kTile)."""
THREADS = 256
"""Threads of a block (gemm.h: kTileThreads)."""
TARGET_BLOCKS = 512
"""Blocks from which a large GPU is full; fewer tiles are spread over blocks by segments. No bit depends on it."""
SEGMENT = 1024
"""Least k of a segment, where k is no batch: adding a part costs little beside so many products."""
MAX_SEGMENTS = 8
"""Segments where k is no batch: parts of the output that may lie in workspace."""
Arg = tuple[str, Any]


def segment_length(depth: int) -> int:
    """k of a segment of a sum over `depth` features, which is the same for every batch."""
    return max(SEGMENT, -(-depth // MAX_SEGMENTS))


@dataclass(frozen=True)
class Gemm:
    """A product of rows x depth times depth x columns, `problems` of them, cut along depth into segments.

    `elements` are those of the whole output. Where tiles are few, `wave` segments run abreast, each to a part
    in workspace, and a second kernel adds the parts in ascending order; so for all waves in turn.
    """

    rows: int
    columns: int
    depth: int
    segment: int
    elements: int
    problems: int = 1

    @property
    def segments(self) -> int:
        """Number of segments; one empty one where depth is 0, which writes zeros."""
        return max(1, -(-self.depth // self.segment))

    @property
    def tiles(self) -> int:
        """Output tiles of all problems."""
        return -(-self.rows // TILE) * -(-self.columns // TILE) * self.problems

    @property
    def wave(self) -> int:
        """Segments that run abreast; 1 where each block sums all segments of its tile."""
        return min(self.segments, max(1, TARGET_BLOCKS // max(1, self.tiles)))

    @property
    def waves(self) -> int:
        """How many times the abreast segments run."""
        return -(-self.segments // self.wave)

    @property
    def workspace_bytes(self) -> int:
        """Workspace bytes of the parts."""
        return 4 * self.elements * self.wave if self.wave > 1 else 0

    @property
    def addend_workspace_bytes(self) -> int:
        """Workspace bytes where a tensor is added on which the output may lie: sums between waves lie in workspace."""
        return self.workspace_bytes + 4 * self.elements * (self.waves > 1)

    def launches(self, kernel: str, combine_kernel: str, operands: Sequence[Arg], out: int, work: int,
                 rest: Sequence[Arg] = (), bias: int | None = None,
                 bias_axis: tuple[int, int] = (1, 1), act: int = 0, resume: bool = False) -> list[Launch]:
        """The launches of kernel(*operands, [bias,] out, work, *rest), which with `resume` add to what `out` holds;
        `act` numbers the output's activation.

        `bias` is an address, 0 for none, or None where the kernel takes none; it is of channel
        (i / inner) % channels for output element i, with bias_axis = (inner, channels).
        """
        if not self.elements:
            return []
        self._check()
        if self.wave == 1:
            return [self._product(kernel, operands, out, bias, rest, 0, self.segments, False, act, resume)]
        launches = []
        none = None if bias is None else 0
        for first in range(0, self.segments, self.wave):
            count = min(self.wave, self.segments - first)
            launches.append(self._product(kernel, operands, work, none, rest, first, count, True, 0, False))
            last = first + count == self.segments
            launches.append(combine(combine_kernel, work, count, self.elements, out, resume or first > 0,
                                    bias or 0 if last else 0, bias_axis, act if last else 0))
        return launches

    def launches_added(self, kernel: str, combine_kernel: str, operands: Sequence[Arg], out: int, work: int,
                       rest: Sequence[Arg], addend: int) -> list[Launch]:
        """The launches of kernel(*operands, addend, out, work, *rest), which adds a tensor on which `out` may lie."""
        if self.waves == 1 or not addend:
            return self.launches(kernel, combine_kernel, operands, out, work, rest, addend, (1, self.elements))
        self._check()
        launches, parts = [], work + 4 * self.elements
        for first in range(0, self.segments, self.wave):
            count = min(self.wave, self.segments - first)
            launches.append(self._product(kernel, operands, parts, 0, rest, first, count, True, 0, False))
            last = first + count == self.segments
            launches.append(combine(combine_kernel, work if first else parts, count + (first > 0), self.elements,
                                    out if last else work, False, addend if last else 0, (1, self.elements)))
        return launches

    def _check(self) -> None:
        if self.segment >= 2**31:
            raise MXNetError(f"a sum over {self.segment} elements of one image; the CUDA kernels of matrix products "
                             f"take fewer than 2^31 at a time")

    def _product(self, kernel: str, operands: Sequence[Arg], out: int, bias: int | None, rest: Sequence[Arg],
                 first: int, count: int, split: bool, act: int, resume: bool) -> Launch:
        part = self.elements if split else 0
        work = ("9q", (self.rows, self.columns, self.problems, self.segment, first, count, part, act, int(resume)))
        biases = () if bias is None else (address(bias),)
        blocks = min(self.tiles * (count if split else 1), 2**31 - 1)
        return Launch(kernel, (blocks, 1, 1), (THREADS, 1, 1), (*operands, *biases, address(out), work, *rest))


def combine(kernel: str, parts: int, count: int, elements: int, out: int, resume: bool = False, bias: int = 0,
            bias_axis: tuple[int, int] = (1, 1), act: int = 0) -> Launch:
    """The launch that adds `count` parts of `elements` in ascending order, after what `out` holds if `resume`."""
    args = (address(parts), int64(count), int64(elements), address(out), int32(resume), address(bias),
            int64(bias_axis[0]), int64(bias_axis[1]), int32(act))
    return Launch(kernel, flat_grid(elements), (BLOCK, 1, 1), args)

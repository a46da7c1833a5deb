"""Convolutions of 3x3 taps by Winograd's minimal filtering, the kernel of kernels/cpu/winograd.cpp.

It multiplies a quarter as often as the direct form and rounds otherwise: a numeric class of its own, chosen by the
sizes of an image and of the weight alone. Within the class one algorithm transforms nothing twice; the lean one takes
a slice of output channels at a time and few tiles, and transforms what does not fit anew, to the same bits.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ....base import Algorithm, Shape, align
from .call import PREFIX, NativeCall, Operand, address, int64, pointer
from .layout import LANES

NAME, LEAN = f"{PREFIX}winograd", f"{PREFIX}winograd-lean"
OUT, PATCH = 4, 6
"""Outputs of a tile along an axis, and inputs that they are made of."""
POSITIONS = PATCH * PATCH
BAND_FLOATS = 96 << 10
"""Of a band's transformed inputs and sums, about: half of what a second-level cache holds."""
LEAST_BAND = 28
"""Tiles for which it pays to fetch the transformed weight."""
BAND_STEP = 14
"""Bands are of so many tiles, or multiples: what the widest register tile takes."""
SLICE = 2
"""Output blocks of a slice, where the weight is cut: those of a register tile."""
LEAST_PIXELS = 8
"""Outputs of an image for each of its tiles, from which fewer multiplications make up for the transforms (measured)."""
Cut = tuple[int, int]
"""Tiles of a band, and output blocks of a slice."""


def is_winograd(algorithm: str) -> bool:
    """Whether an algorithm is one of this class."""
    return algorithm in (NAME, LEAN)


@dataclass(frozen=True)
class _Tiled:
    """What the forms share: blocks of input and output channels, and how tiles and output blocks are cut.

    `spatial` are the sizes of the tensor that patches are taken from, `out` those of the other one, `chunk` the images
    whose tiles are computed before any others.
    """

    images: int
    chunk: int
    in_blocks: int
    out_blocks: int
    spatial: Shape
    out: Shape
    pad: Shape

    @property
    def image_tiles(self) -> int:
        """Tiles of an image."""
        rows, columns = (-(-n // OUT) for n in self.out)
        return rows * columns

    @property
    def pays(self) -> bool:
        """Whether it is faster than the direct form."""
        return prod(self.out) >= LEAST_PIXELS * self.image_tiles

    def algorithms(self) -> Sequence[Algorithm]:
        """Both, the faster one first."""
        fast, lean = self.cut(NAME), self.cut(LEAN)
        found = [Algorithm(NAME, align(4 * self._floats(*fast)), "winograd", chunk_rows=self.chunk_rows)]
        if self._floats(*lean) < self._floats(*fast):
            found.append(Algorithm(LEAN, align(4 * self._floats(*lean)), "winograd", 4 * self._moved_again(*lean),
                                   self.chunk_rows))
        return found

    @property
    def chunk_rows(self) -> int:
        """Images of a canonical chunk of the batch: each is alone, unless they are summed."""
        return 1

    def cut(self, algorithm: str) -> Cut:
        """The lean cut has both small. Others transform no patch twice: they have all tiles in a band, or all output
        blocks in a slice, whichever takes less."""
        few = min(SLICE, self.out_blocks)
        if algorithm == LEAN:
            return self._band(few), few
        whole = (self._tiles, few), (self._band(self.out_blocks), self.out_blocks)
        return min(whole, key=lambda cut: self._floats(*cut))

    @property
    def _tiles(self) -> int:
        """Tiles of a chunk."""
        return max(1, min(self.images, self.chunk) * self.image_tiles)

    def _band(self, blocks: int) -> int:
        """Tiles of a band that stays in the cache beside so many output blocks."""
        fitting = BAND_FLOATS // (POSITIONS * LANES * (self.in_blocks + blocks))
        band = -(-self._tiles // -(-self._tiles // max(LEAST_BAND, fitting)))
        return min(self._tiles, -(-band // BAND_STEP) * BAND_STEP)

    def _floats(self, band: int, blocks: int) -> int:
        """Floats of the workspace: a slice of the weight, the band of both tensors, and a vector between positions."""
        weight, inputs, sums = blocks * self.in_blocks * LANES, self.in_blocks * band, blocks * band
        return POSITIONS * LANES * (weight + inputs + sums + 3)

    def _moved_again(self, band: int, blocks: int) -> int:
        """Floats of transformed patches that are written for each slice but the first."""
        again = -(-self.out_blocks // blocks) - 1 if self._tiles > band else 0
        return again * self.images * self.image_tiles * POSITIONS * self.in_blocks * LANES


@dataclass(frozen=True)
class Winograd(_Tiled):
    """A convolution from blocks of input channels over `spatial` to blocks of output channels over `out`.

    `turned`: whether the weight maps outputs to inputs, with its taps in reverse order, as in a data gradient.
    """

    turned: bool

    def call(self, x: Operand, weight: Operand, y: Operand, work: int, algorithm: str, bias: int = 0, addend: int = 0,
             relu: bool = False) -> NativeCall:
        """The kernel's call; `bias` and `addend` are addresses, 0 for none."""
        return NativeCall("convolution_winograd", (
            pointer(x), pointer(weight), address(bias), address(addend), pointer(y), address(work), int64(
                self.images, self.in_blocks, self.out_blocks, *self.spatial, *self.out, *self.pad, self.turned,
                *self.cut(algorithm), relu)))


@dataclass(frozen=True)
class WinogradWeight(_Tiled):
    """The weight gradient of such a convolution, summed chunk by chunk of the batch."""

    @property
    def chunk_rows(self) -> int:
        return self.chunk

    def call(self, x: Operand, grad: Operand, out: Operand, work: int, algorithm: str, running: int = 0) -> NativeCall:
        """The kernel's call; `running` is the address of sums to go on from, 0 for none."""
        return NativeCall("convolution_winograd_weight", (
            pointer(x), pointer(grad), pointer(out), address(running), address(work), int64(
                self.images, self.chunk, self.in_blocks, self.out_blocks, *self.spatial, *self.out, *self.pad,
                *self.cut(algorithm))))

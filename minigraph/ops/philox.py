"""Random numbers from a counter: Philox-4x32-10 in tiles of NumPy.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Block n of a random op is the cipher of
the counter (n low, n high, step, ordinal) under the key (seed low, seed high); element i of a tensor is word
i % 4 of block i // 4. So a number depends on the seed, the op's place in forward order, the step and the
element alone: a second execution, a backward op or another device draws it again, and no mask is ever stored.
"""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .control import get_key
from .op import Workspace

TILE_BLOCKS = 4096
TILE = 4 * TILE_BLOCKS
"""Elements drawn at a time: enough to hide NumPy's call cost, few enough that the scratch stays in cache."""

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_OFFSETS = np.arange(TILE_BLOCKS, dtype=np.uint64)
UNIFORM_SCALE = 2.0 ** -24
"""A uniform number is the upper 24 bits of a word times this: in [0, 1), and exact in float32."""


def tile_blocks(size: int) -> int:
    """Blocks of the largest tile of a tensor of `size` elements."""
    return min(-(-size // 4), TILE_BLOCKS)


def philox(seed: int, ordinal: int, step: int, first_block: int, scratch: np.ndarray) -> list[np.ndarray]:
    """Four arrays of words in [0, 2**32): array w holds word w of the blocks from first_block on.

    `scratch` is a (6, count) uint64 array with count at most TILE_BLOCKS; the result lies in it.
    """
    c0, c1, c2, c3, low, high = scratch
    np.add(_OFFSETS[:c0.size], np.uint64(first_block), out=c1)
    np.bitwise_and(c1, _LOW, out=c0)
    np.right_shift(c1, _HALF, out=c1)
    c2.fill(step)
    c3.fill(ordinal)
    for turn in range(10):
        keys = [np.uint64((word + turn * increment) & 0xFFFFFFFF) for word, increment in
                zip((seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF), _KEY_STEPS, strict=True)]
        np.multiply(c0, _MULTIPLIERS[0], out=low)
        np.multiply(c2, _MULTIPLIERS[1], out=high)
        _mix(high, c1, keys[0], c0)
        _mix(low, c3, keys[1], c2)
        np.bitwise_and(high, _LOW, out=c1)
        np.bitwise_and(low, _LOW, out=c3)
    return [c0, c1, c2, c3]


def _mix(product: np.ndarray, word: np.ndarray, key: np.uint64, out: np.ndarray) -> None:
    np.right_shift(product, _HALF, out=out)
    np.bitwise_xor(out, word, out=out)
    np.bitwise_xor(out, key, out=out)


def word_tiles(control: np.ndarray, ordinal: int, size: int, work: Workspace,
               first_block: int = 0) -> Iterator[tuple[slice, list[np.ndarray]]]:
    """(slice of the flat tensor, its four word arrays) tile by tile, for a tensor of `size` elements whose first ones
    are drawn by block `first_block`."""
    seed, step = get_key(control)
    scratch = work.array((6, tile_blocks(size)), np.uint64)
    for start in range(0, size, TILE):
        stop = min(start + TILE, size)
        part = scratch[:, :tile_blocks(stop - start)]
        yield slice(start, stop), philox(seed, ordinal, step, first_block + start // 4, part)


def uniform(word: np.ndarray, out: np.ndarray) -> None:
    """Write the uniform numbers in [0, 1) of words to `out`, of any float dtype; `word` is overwritten."""
    np.right_shift(word, np.uint64(8), out=word)
    np.copyto(out, word, casting="unsafe")
    np.multiply(out, UNIFORM_SCALE, out=out)


def uniform_tiles(control: np.ndarray, ordinal: int, size: int, dtype: np.dtype,
                  work: Workspace) -> Iterator[tuple[slice, np.ndarray]]:
    """(slice of the flat tensor, uniform numbers in [0, 1) as (blocks, 4)) tile by tile."""
    scratch = work.array((tile_blocks(size), 4), dtype)
    for s, words in word_tiles(control, ordinal, size, work):
        numbers = scratch[:words[0].size]
        for w, word in enumerate(words):
            uniform(word, numbers[:, w])
        yield s, numbers


def tile_bytes(size: int, dtype: np.dtype) -> int:
    """Workspace bytes of `mask_tiles` or `uniform_tiles`."""
    n = tile_blocks(size)
    return Workspace.bytes_for(((n, 4), dtype), ((6, n), np.uint64))

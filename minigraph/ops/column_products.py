"""Products with column matrices: a convolution, and its adjoint, tile by tile."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .activation import FORWARD
from .columns import Columns, Filler, interleave
from .tiles import Tile, parts


class TapWeights:
    """The matrices of the first axis' taps of a view (first taps, groups, m, k, other taps), each copied when it is
    asked for: to scratch as large as one of them."""

    def __init__(self, view: np.ndarray, scratch: np.ndarray, swapped: bool = False) -> None:
        self._view, self._scratch, self._swapped = view, scratch, swapped
        self._held = -1

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, tap: int) -> np.ndarray:
        view = self._view[tap]
        matrices = self._scratch[:view.size].reshape(view.shape)
        if self._held != tap:
            np.copyto(matrices, view)
            self._held = tap
        matrices = matrices.reshape(*view.shape[:2], prod(view.shape[2:]))
        return matrices.swapaxes(1, 2) if self._swapped else matrices


Weights = np.ndarray | TapWeights
"""Matrices (taps of the first axis, groups, m, k)."""


def convolve(tiles: Sequence[Tile], images: np.ndarray, weights: Weights, bias: np.ndarray | None, out: np.ndarray,
             scratch: Sequence[np.ndarray], addend: np.ndarray | None = None, act_type: str | None = None) -> None:
    """Write `out` = images convolved with weights (taps of the first axis, groups, filters, depth) + bias + addend.

    `out` may lie on the addend. An activation of FOLLOWING comes last.
    """
    fill, (sums, term) = Filler(*scratch[:2]), scratch[2:4]
    for s, tile in parts(tiles, len(images)):
        c, into = tile.columns, out[s][tile.outputs]
        n = len(into)
        shape = (c.groups, out.shape[1] // c.groups, c.pixels * n)
        matrix = fill(c, images[s][tile.inputs])
        direct = n == 1 and addend is None
        total = into.reshape(shape) if direct else sums[:prod(shape)].reshape(shape)
        np.matmul(weights[0], c.block(matrix, 0), out=total)
        for tap in range(1, len(weights)):
            one = term[:prod(shape)].reshape(shape)
            np.matmul(weights[tap], c.block(matrix, tap), out=one)
            np.add(total, one, out=total)
        if bias is not None:
            np.add(total, bias.reshape(c.groups, -1, 1), out=total)
        if not direct:
            _part(total, into, None if addend is None else addend[s][tile.outputs])
        if act_type is not None:
            FORWARD[act_type](into, into, into)


def _part(total: np.ndarray, out: np.ndarray, addend: np.ndarray | None) -> None:
    """Write interleaved images (groups, channels, pixels * n), plus an addend, to `out` (n, channels, *spatial)."""
    groups, channels, n = *total.shape[:2], len(out)
    view = np.moveaxis(total.reshape(groups, channels, total.shape[2] // n, n), -1, 0)
    _store(view, out.reshape(view.shape), None if addend is None else addend.reshape(view.shape))


def _store(values: np.ndarray, out: np.ndarray, addend: np.ndarray | None) -> None:
    if addend is None:
        np.copyto(out, values)
    else:
        np.add(values, addend, out=out)


def scatter(tiles: Sequence[Tile], grad: np.ndarray, weights: Weights, out: np.ndarray,
            scratch: Sequence[np.ndarray], addend: np.ndarray | None = None) -> None:
    """Write `out` = the adjoint of filling, of weights (first taps, groups, depth, filters) times grad, + addend.

    Every element of that product is added to the pixel from which filling copies the same element. `out` may lie on
    the addend.
    """
    images, matrices, grads, term = scratch[:4]
    for s, tile in parts(tiles, len(grad)):
        c = tile.columns
        target = c.interleaved(out[s][tile.inputs])
        n = target.shape[-1]
        direct = n == 1 and addend is None
        pixels = target if direct else images[:target.size].reshape(target.shape)
        memory = pixels if c.whole else matrices[:c.groups * c.depth * c.width * n]
        matrix = memory.reshape(c.groups, c.depth, c.width * n)
        _multiply(c, weights, grad_matrix(c, grad[s][tile.outputs], grads), matrix, term)
        if not c.whole:
            pixels.fill(0)
            filled = matrix.reshape(c.shape(n))
            for into, out_of in c.copies:
                np.add(pixels[out_of], filled[into], out=pixels[out_of])
        if not direct:
            _store(pixels, target, None if addend is None else c.interleaved(addend[s][tile.inputs]))


def _multiply(c: Columns, weights: Weights, grad: np.ndarray, matrix: np.ndarray,
              term: np.ndarray) -> None:
    """Write matrix = for each tap of the first axis, its weights times grad, added to the tap's block."""
    if not c.disjoint:
        matrix.fill(0)
    for tap in range(len(weights)):
        block = c.block(matrix, tap)
        if c.disjoint:
            np.matmul(weights[tap], grad, out=block)
        else:
            one = term[:block.size].reshape(block.shape)
            np.matmul(weights[tap], grad, out=one)
            np.add(block, one, out=block)


def grad_matrix(c: Columns, grad: np.ndarray, scratch: np.ndarray) -> np.ndarray:
    """The output gradient of n images as (groups, filters, pixels * n), the image running fastest."""
    view = np.moveaxis(grad.reshape(len(grad), c.groups, grad.shape[1] // c.groups, c.pixels), 0, -1)
    return interleave(view, scratch).reshape(c.groups, view.shape[1], c.pixels * len(grad))

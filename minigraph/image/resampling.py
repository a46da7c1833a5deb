"""Images in another size: OpenCV's methods of interpolation, by their numbers."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .. import augment_pixels as pixels
from .. import random
from ..base import MXNetError

NEAREST, BILINEAR, CUBIC, AREA, LANCZOS, FITTING, ANY = 0, 1, 2, 3, 4, 9, 10
"""Numbers of the methods: the last two mean the one that fits the change of size, and any of the others."""
_CUBIC_SHARPNESS = -0.75
_LANCZOS_REACH = 4

Taps = tuple[np.ndarray, np.ndarray]
"""For each pixel of the result the places that it is made of and their shares, (pixels, taps) both."""


def method_for(interp: int, old: tuple[int, int], new: tuple[int, int]) -> int:
    """The method that a number asks for, where (height, width) changes so; MXNetError for a number that is none."""
    if interp == FITTING:
        larger = [after > before for before, after in zip(old, new, strict=True)]
        smaller = [after < before for before, after in zip(old, new, strict=True)]
        return CUBIC if all(larger) else AREA if all(smaller) else BILINEAR
    if interp == ANY:
        return int(random.generator().integers(0, LANCZOS + 1))
    if interp not in range(LANCZOS + 1):
        raise MXNetError(f"interp={interp!r} is no method of interpolation: 0 nearest, 1 bilinear, 2 cubic, 3 area, "
                         f"4 Lanczos, 9 what fits the sizes, 10 any of them")
    return interp


def resampled(image: np.ndarray, height: int, width: int, method: int) -> np.ndarray:
    """An image (H, W, C) in another size, of its dtype."""
    if height < 1 or width < 1:
        raise MXNetError(f"an image cannot have {height} x {width} pixels; give both at least 1")
    if image.shape[:2] == (height, width):
        return image
    if method in (NEAREST, BILINEAR):
        return pixels.resized(image, height, width, method == NEAREST)
    taps = _TAPS[method]
    if method == AREA and not (height <= image.shape[0] and width <= image.shape[1]):
        taps = _enlarging
    values = _along(image.astype(np.float32), 0, taps(image.shape[0], height))
    return pixels.like(image, _along(values, 1, taps(image.shape[1], width)))


def _along(values: np.ndarray, axis: int, taps: Taps) -> np.ndarray:
    """The weighted sums along an axis."""
    places, shares = taps
    shape = [1, 1, 1]
    shape[axis] = len(places)
    return sum(np.take(values, places[:, k], axis) * shares[:, k].astype(np.float32).reshape(shape)
               for k in range(places.shape[1]))  # type: ignore[return-value]


def _around(old: int, new: int, first: int, count: int, kernel: Callable[[np.ndarray], np.ndarray]) -> Taps:
    """Taps of a kernel of the distance; beyond the border lie its pixels."""
    centres = (np.arange(new) + 0.5) * (old / new) - 0.5
    places = np.floor(centres)[:, None] + np.arange(first, first + count)
    shares = kernel(centres[:, None] - places)
    return places.clip(0, old - 1).astype(np.intp), shares / shares.sum(1, keepdims=True)


def _cubic(old: int, new: int) -> Taps:
    def kernel(distance: np.ndarray) -> np.ndarray:
        a, x = _CUBIC_SHARPNESS, np.abs(distance)
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, far)
    return _around(old, new, -1, 4, kernel)


def _lanczos(old: int, new: int) -> Taps:
    def kernel(distance: np.ndarray) -> np.ndarray:
        return np.sinc(distance) * np.sinc(distance / _LANCZOS_REACH)
    return _around(old, new, 1 - _LANCZOS_REACH, 2 * _LANCZOS_REACH, kernel)


def _area(old: int, new: int) -> Taps:
    """The part of each old pixel that lies under a new one."""
    edges = np.arange(new + 1) * (old / new)
    places = np.floor(edges[:-1])[:, None] + np.arange(int(np.ceil(old / new)) + 1)
    covered = np.minimum(places + 1, edges[1:, None]) - np.maximum(places, edges[:-1, None])
    covered = covered.clip(0, None) * (places < old)
    return places.clip(0, old - 1).astype(np.intp), covered / covered.sum(1, keepdims=True)


def _enlarging(old: int, new: int) -> Taps:
    """Old pixels as areas, which are mixed only where an edge of theirs falls into a new one."""
    first = np.floor(np.arange(new) * (old / new))
    share = (np.arange(new) + 1) - (first + 1) * (new / old)
    share = np.where(share <= 0, 0, share - np.floor(share))
    places = np.stack([first, first + 1], 1).clip(0, old - 1).astype(np.intp)
    return places, np.stack([1 - share, share], 1)


_TAPS: dict[int, Callable[[int, int], Taps]] = {CUBIC: _cubic, AREA: _area, LANCZOS: _lanczos}

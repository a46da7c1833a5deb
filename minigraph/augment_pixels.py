"""What augmentation does to one image: arrays (H, W, C), red first, in and out.

Results are of the image's dtype: of uint8 images rounded and kept within 0 to 255, of float32 ones neither. Geometry
is OpenCV's: `resized` aligns the corners of pixels, `warped` their centres, both between the four nearest
pixels.
"""
from __future__ import annotations

from typing import Any

import numpy as np

HUE_RANGE, LIGHTNESS_RANGE, SATURATION_RANGE = 180, 255, 255
"""OpenCV's units for 8-bit images: hue in half degrees, lightness and saturation in 255ths."""

GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""Shares of red, green and blue in lightness (ITU-R BT.601)."""

LUMA = np.array([0.21, 0.72, 0.07], np.float32)
"""Shares of red, green and blue in lightness (ITU-R BT.709, rounded as in MXNet)."""

TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
"""From red, green, blue to YIQ and back, rounded as in MXNet."""

DIRECTIONS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
DEVIATIONS = np.array([55.46, 4.794, 1.148])
"""Principal components of ImageNet's pixels, a column each, and the deviation along each (Krizhevsky et al. 2012)."""
PRINCIPAL = DIRECTIONS.astype(np.float32) * DEVIATIONS.astype(np.float32)


def resized(image: np.ndarray, height: int, width: int, nearest: bool = False) -> np.ndarray:
    """The image in another size."""
    if image.shape[:2] == (height, width):
        return image
    if nearest:
        rows, columns = (np.minimum((np.arange(new) * (old / new)).astype(np.intp), old - 1)
                         for old, new in zip(image.shape, (height, width), strict=False))
        return image[rows[:, None], columns]
    rows = (np.arange(height) + 0.5) * (image.shape[0] / height)
    columns = (np.arange(width) + 0.5) * (image.shape[1] / width)
    low, high, share = _neighbours(rows - 0.5, image.shape[0])
    mixed = image[low] + (image[high] - image[low].astype(np.float32)) * share[:, None, None]
    low, high, share = _neighbours(columns - 0.5, image.shape[1])
    return like(image, mixed[:, low] + (mixed[:, high] - mixed[:, low]) * share[:, None])


def _neighbours(places: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pixels before and after each place, and the second one's share; the border's pixels go on beyond it."""
    places = places.clip(0, count - 1).astype(np.float32)
    low = places.astype(np.intp)
    return low, np.minimum(low + 1, count - 1), places - low


def resized_shorter(image: np.ndarray, shorter: int, nearest: bool = False) -> np.ndarray:
    """The image with its shorter edge at that length, the longer one in proportion."""
    height, width = image.shape[:2]
    if height > width:
        return resized(image, shorter * height // width, shorter, nearest)
    return resized(image, shorter, shorter * width // height, nearest)


def warped(image: np.ndarray, matrix: np.ndarray, height: int, width: int, fill: int,
           nearest: bool = False) -> np.ndarray:
    """The image under x' = matrix (x, y, 1), shape (2, 3), on a canvas of that size; `fill` lies outside it."""
    inverse = np.linalg.inv(matrix[:, :2])
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    places = np.stack([x, y], axis=-1) - matrix[:, 2]
    x, y = np.moveaxis(places @ inverse.T, -1, 0)
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), constant_values=fill)
    x, y = (each.clip(-1, size) + 1 for each, size in ((x, image.shape[1]), (y, image.shape[0])))
    if nearest:
        return padded[np.rint(y).astype(np.intp), np.rint(x).astype(np.intp)]
    left, right, across = _neighbours(x, padded.shape[1])
    upper, lower, down = _neighbours(y, padded.shape[0])
    across, down = across[..., None], down[..., None]
    above = padded[upper, left] * (1 - across) + padded[upper, right] * across
    below = padded[lower, left] * (1 - across) + padded[lower, right] * across
    return like(image, above * (1 - down) + below * down)


def rotation(angle: float, shear: float, scale: float, ratio: float, height: int, width: int, new_height: int,
             new_width: int) -> np.ndarray:
    """The matrix (2, 3) that turns by `angle` degrees, shears, and scales with width : height growing by `ratio`.

    The centre of (height, width) comes to the centre of (new_height, new_width).
    """
    cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    high = 2 * scale / (1 + ratio)
    wide = ratio * high
    matrix = np.array([[high * cosine - shear * sine * wide, high * sine + shear * cosine * wide, 0],
                       [-sine * wide, cosine * wide, 0]])
    matrix[:, 2] = (np.array([new_width, new_height]) - matrix[:, :2] @ [width, height]) / 2
    return matrix


def padded(image: np.ndarray, pad: int, fill: int) -> np.ndarray:
    """The image with `pad` pixels of the value `fill` on each side."""
    return np.pad(image, ((pad, pad), (pad, pad), (0, 0)), constant_values=fill)


# -- colours ---------------------------------------------------------------------------------------------------
def brightened(image: np.ndarray, factor: float) -> np.ndarray:
    """Every value times `factor`."""
    return like(image, image * np.float32(factor))


def contrasted(image: np.ndarray, factor: float) -> np.ndarray:
    """Every value's distance from the image's mean lightness times `factor`."""
    mean = grey(image).mean()
    return like(image, image * np.float32(factor) + np.float32(1 - factor) * mean)


def saturated(image: np.ndarray, factor: float) -> np.ndarray:
    """Every value's distance from its pixel's lightness times `factor`."""
    return like(image, image * np.float32(factor) + np.float32(1 - factor) * grey(image)[..., None])


def tinted(image: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """The image with ImageNet's principal colours added in these three amounts."""
    return lit(image, PRINCIPAL @ amounts.astype(np.float32))


def lit(image: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """The image with a colour added to each pixel."""
    return like(image, image + colour.astype(np.float32))


def turned(image: np.ndarray, turn: float) -> np.ndarray:
    """The image with its hues turned by a part of half a circle, in the plane of YIQ's two colours."""
    cosine, sine = np.cos(turn * np.pi), np.sin(turn * np.pi)
    rotation = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
    return like(image, image.astype(np.float32) @ (FROM_YIQ @ rotation @ TO_YIQ).T.astype(np.float32))


def greyed(image: np.ndarray) -> np.ndarray:
    """The image without colours, each pixel's lightness (shares of ITU-R BT.709) in three channels."""
    return like(image, np.repeat((image.astype(np.float32) @ LUMA)[..., None], 3, axis=2))


def grey(image: np.ndarray) -> np.ndarray:
    """Lightness (H, W) of a colour image in float32."""
    return image.astype(np.float32) @ GREY


def shifted_hls(image: np.ndarray, hue: float, lightness: float, saturation: float) -> np.ndarray:
    """Hue, lightness and saturation moved by these amounts in OpenCV's units, each kept within its range."""
    ranges = HUE_RANGE, LIGHTNESS_RANGE, SATURATION_RANGE
    moves = hue, lightness, saturation
    return from_hls(*((values + np.float32(move)).clip(0, most)
                      for values, move, most in zip(to_hls(image), moves, ranges, strict=True)))


def to_hls(image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hue, lightness and saturation (H, W) in float32 and OpenCV's units."""
    red, green, blue = np.moveaxis(image.astype(np.float32) / 255, -1, 0)
    top, bottom = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    total, spread = top + bottom, top - bottom
    divisor = np.where(spread > 0, spread, 1)
    sextant = np.where(top == red, (green - blue) / divisor % 6,
                       np.where(top == green, (blue - red) / divisor + 2, (red - green) / divisor + 4))
    reach = np.where(total < 1, total, 2 - total)
    saturation = np.where(spread > 0, spread / np.where(reach > 0, reach, 1), 0)
    return (sextant * (spread > 0) * (HUE_RANGE / 6), total * (LIGHTNESS_RANGE / 2), saturation * SATURATION_RANGE)


def from_hls(hue: np.ndarray, lightness: np.ndarray, saturation: np.ndarray) -> np.ndarray:
    """The image (H, W, 3) of hue, lightness and saturation."""
    light, share = lightness / LIGHTNESS_RANGE, saturation / SATURATION_RANGE
    reach = share * np.minimum(light, 1 - light)
    sextant = hue * (12 / HUE_RANGE)  # twelfths of a turn, which the three channels' curves are shifted by
    curves = [(start + sextant) % 12 for start in (0, 8, 4)]
    values = [light - reach * np.minimum(k - 3, 9 - k).clip(-1, 1) for k in curves]
    return to_bytes(np.stack(values, axis=-1) * np.float32(255))


def like(image: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values as those of an image of the given one's kind: bytes of bytes, and else float32."""
    return to_bytes(values) if image.dtype == np.uint8 else values.astype(np.float32, copy=False)


def to_bytes(values: Any) -> np.ndarray:
    """Values rounded to whole numbers and kept within 0 to 255, as uint8."""
    return np.rint(values).clip(0, 255).astype(np.uint8)

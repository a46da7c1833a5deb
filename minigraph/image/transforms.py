"""Functions of one image: reading, resizing, cropping, turning.

Images are NDArrays (height, width, channels), red first. Sizes are (width, height), as in MXNet.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from math import exp, log, sqrt
from numbers import Number
from typing import Any

import numpy as np

from .. import ndarray, random
from ..base import MXNetError
from ..context import cpu
from ..ndarray import NDArray
from ..recordio import decode_image
from ..storage import HostStorage
from .resampling import BILINEAR, CUBIC, method_for, resampled

Size = tuple[int, int]
Place = tuple[int, int, int, int]
"""The left and upper edge of a part of an image, its width and its height."""
_CROP_TRIES = 10


def imread(filename: str | os.PathLike, flag: int = 1, to_rgb: bool = True) -> NDArray:
    """The image in a file; as `imdecode`."""
    with open(filename, "rb") as file:
        data = file.read()
    try:
        return imdecode(data, flag, to_rgb)
    except MXNetError as error:
        raise MXNetError(f"{os.fspath(filename)}: {error}") from error


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True) -> NDArray:
    """The image of a file's bytes, uint8 (H, W, 3), or with flag 0 grey (H, W, 1); blue first unless `to_rgb`.

    MXNetError for bytes that are no sound image; Pillow reads all but `.npy`.
    """
    if isinstance(buf, str):
        raise ValueError("buf must be of type bytes, bytearray or numpy.ndarray,if you would like to input type str, "
                         "please convert to bytes")
    data = bytes(buf) if isinstance(buf, (bytes, bytearray, memoryview)) else pixels_of(buf).astype(np.uint8).tobytes()
    image = decode_image(data, "RGB" if flag else "L")
    image = image.reshape(*image.shape[:2], 3 if flag else 1)
    return image_of(image if to_rgb or not flag else image[..., ::-1])


def imresize(src: Any, w: int, h: int, interp: int = BILINEAR) -> NDArray:
    """The image in another size, by a method of OpenCV's: 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 what
    fits the sizes, 10 any of them."""
    image = pixels_of(src)
    if image.ndim != 3:
        raise MXNetError(f"an image has the shape (height, width, channels), got {image.shape}")
    return image_of(resampled(image, int(h), int(w), method_for(interp, image.shape[:2], (int(h), int(w)))))


def copyMakeBorder(src: Any, top: int, bot: int, left: int, right: int, type: int = 0, value: float = 0.0,
                   values: Sequence[float] = ()) -> NDArray:
    """The image with so many pixels more on each side: of one value, or one for each channel (`type` 0), or of the
    image's border (`type` 1)."""
    image, sides = pixels_of(src), ((top, bot), (left, right))
    if type not in (0, 1):
        raise MXNetError(f"copyMakeBorder: type={type!r}; it must be 0, one value, or 1, the image's border")
    if type == 1:
        return image_of(np.pad(image, (*sides, (0, 0)), mode="edge"))
    fills = list(values) or [value] * image.shape[2]
    if len(fills) != image.shape[2]:
        raise MXNetError(f"copyMakeBorder: {len(fills)} values for {image.shape[2]} channels; give one for each")
    return image_of(np.stack([np.pad(image[..., k], sides, constant_values=fill) for k, fill in enumerate(fills)], 2))


def scale_down(src_size: Size, size: Size) -> Size:
    """A size of the same proportions as `size`, as large as it may be within `src_size`."""
    width, height = size
    most_wide, most_high = src_size
    if most_high < height:
        width, height = float(width * most_high) / height, most_high  # type: ignore[assignment]
    if most_wide < width:
        width, height = most_wide, float(height * most_wide) / width  # type: ignore[assignment]
    return int(width), int(height)


def resize_short(src: Any, size: int, interp: int = CUBIC) -> NDArray:
    """The image with its shorter edge at that length, the longer one in proportion."""
    height, width = np.shape(src)[:2]
    if height > width:
        return imresize(src, size, size * height // width, interp)
    return imresize(src, size * width // height, size, interp)


def fixed_crop(src: Any, x0: int, y0: int, w: int, h: int, size: Size | None = None, interp: int = CUBIC) -> NDArray:
    """The part of an image at that place, resized to `size` if it is given."""
    image = pixels_of(src)
    if not (0 <= x0 and 0 <= y0 and 0 < w <= image.shape[1] - x0 and 0 < h <= image.shape[0] - y0):
        raise MXNetError(f"the image of {image.shape[1]} x {image.shape[0]} pixels has no part of {w} x {h} at "
                         f"({x0}, {y0})")
    part = image[y0:y0 + h, x0:x0 + w]
    if size is not None and (w, h) != tuple(size):
        return imresize(part, *size, interp)
    return image_of(part)


def random_crop(src: Any, size: Size, interp: int = CUBIC) -> tuple[NDArray, Place]:
    """(a part of an image of that size anywhere, its place); of a smaller image what `scale_down` gives, resized."""
    height, width = np.shape(src)[:2]
    w, h = scale_down((width, height), size)
    draw = random.generator()
    x0, y0 = int(draw.integers(0, width - w + 1)), int(draw.integers(0, height - h + 1))
    return fixed_crop(src, x0, y0, w, h, size, interp), (x0, y0, w, h)


def center_crop(src: Any, size: Size, interp: int = CUBIC) -> tuple[NDArray, Place]:
    """(the part of an image of that size in its centre, its place); of a smaller image as `random_crop`."""
    height, width = np.shape(src)[:2]
    w, h = scale_down((width, height), size)
    x0, y0 = (width - w) // 2, (height - h) // 2
    return fixed_crop(src, x0, y0, w, h, size, interp), (x0, y0, w, h)


def random_size_crop(src: Any, size: Size, area: float | tuple[float, float], ratio: tuple[float, float],
                     interp: int = CUBIC) -> tuple[NDArray, Place]:
    """(a part of an image, resized to `size`; its place): its share of the image's area lies within `area` (from it to
    1 for a number), and its width over its height within `ratio`. Where none of ten draws fits, the centre."""
    height, width = np.shape(src)[:2]
    least, most = (area, 1.0) if isinstance(area, (int, float)) else area
    draw = random.generator()
    for _ in range(_CROP_TRIES):
        share, shape = draw.uniform(least, most) * height * width, exp(draw.uniform(log(ratio[0]), log(ratio[1])))
        w, h = round(sqrt(share * shape)), round(sqrt(share / shape))
        if 0 < w <= width and 0 < h <= height:
            x0, y0 = int(draw.integers(0, width - w + 1)), int(draw.integers(0, height - h + 1))
            return fixed_crop(src, x0, y0, w, h, size, interp), (x0, y0, w, h)
    return center_crop(src, size, interp)


def color_normalize(src: Any, mean: Any, std: Any = None) -> NDArray:
    """(src - mean) / std in float32, each left out where it is None."""
    image = pixels_of(src).astype(np.float32)
    if mean is not None:
        image -= np.asarray(mean, np.float32)
    if std is not None:
        image /= np.asarray(std, np.float32)
    return image_of(image)


def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Images (channels, height, width), or a batch of them, in float32, turned about their centres.

    Outside lie zeros. `zoom_in` enlarges each so that none is seen, `zoom_out` reduces it so that nothing is lost.
    """
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")
    if src.dtype != np.float32:
        raise TypeError("Only `float32` images are supported by this function")
    if src.ndim not in (3, 4):
        raise ValueError("Only 3D and 4D are supported by this function")
    if src.ndim == 3 and not isinstance(rotation_degrees, Number):
        raise TypeError("When a single image is passed the rotation angle is required to be a scalar.")
    images = src.reshape((1, *src.shape)) if src.ndim == 3 else src
    angles: np.ndarray = np.deg2rad(np.asarray(rotation_degrees, np.float64))
    if isinstance(rotation_degrees, Number):
        angles = np.full(len(images), angles)
    if angles.shape != (len(images),):
        raise ValueError("The number of images must be equal to the number of rotation angles")
    height, width = src.shape[-2:]
    grid = np.stack([_turned_grid(float(angle), height, width, zoom_in, zoom_out) for angle in angles])
    found = ndarray.BilinearSampler(images, ndarray.array(grid))
    return found[0] if src.ndim == 3 else found


def _turned_grid(angle: float, height: int, width: int, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """Where each pixel of a turned image comes from, (2, height, width), in parts of half the image's size."""
    half = np.array([width - 1, height - 1]) / 2
    x, y = np.meshgrid(np.arange(width) - half[0], np.arange(height) - half[1])
    grid = np.stack([(x * np.cos(angle) - y * np.sin(angle)) / half[0],
                     (x * np.sin(angle) + y * np.cos(angle)) / half[1]])
    if zoom_in or zoom_out:
        size, reach, corner = np.array([width, height]), np.hypot(height, width), np.arctan(height / width)
        turns = corner + np.array([1, -1]) * abs(angle)
        most = np.array([np.abs(reach * np.cos(turns)).max(), np.abs(reach * np.sin(turns)).max()])
        grid *= (most / size).max() if zoom_out else (size / most).min()
    return grid


def random_rotate(src: NDArray, angle_limits: tuple[float, float], zoom_in: bool = False,
                  zoom_out: bool = False) -> NDArray:
    """As `imrotate`, each image by an angle drawn from within the limits, in degrees."""
    draw = random.generator()
    angles: Any = draw.uniform(*angle_limits) if src.ndim == 3 else draw.uniform(*angle_limits, size=len(src))
    return imrotate(src, angles, zoom_in, zoom_out)


def pixels_of(src: Any) -> np.ndarray:
    """The array of an image."""
    return src.asnumpy() if isinstance(src, NDArray) else np.asarray(src)


def image_of(values: np.ndarray) -> NDArray:
    """An NDArray in host memory of an image."""
    return NDArray(HostStorage(np.ascontiguousarray(values), cpu()))

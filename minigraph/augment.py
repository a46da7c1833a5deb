"""Augmentation of training images, and their normalisation, by MXNet's names and in MXNet's order."""
from __future__ import annotations

from dataclasses import dataclass, fields
from math import sqrt
from typing import Any

import numpy as np

from . import augment_pixels as pixels
from .base import MXNetError, is_number_or_none

NEAREST, BILINEAR = 0, 1
"""Values of `inter_method`."""

_CROP_TRIES = 10
"""Random areas that are tried before the centre is taken, as in MXNet."""


def _check_numbers(settings: Any) -> None:
    """MXNetError for a field of a dataclass that holds no number; None stands for one that was not given."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if not is_number_or_none(value):
            raise MXNetError(f"{field.name}={value!r} must be a number")


@dataclass(frozen=True)
class Augmentation:
    """Resizing, warping, padding, cropping and colour changes of one image, in this order.

    `resize` gives the shorter edge that length. The image is warped if any of these is set: `max_rotate_angle` (a
    random whole angle in degrees up to it, either way) or `rotate` (a fixed one), `max_shear_ratio`, scale between
    `min_random_scale` and `max_random_scale`, and the ratio of width to height between 1 - `max_aspect_ratio` and 1 +
    it, or between `min_aspect_ratio` and `max_aspect_ratio` where the former is given; edges then stay within
    `min_img_size` and `max_img_size`. `pad` adds pixels of `fill_value` on each side. Then the data shape is cut out,
    at a random place if `rand_crop`, else at the centre; a square of random size if `min_crop_size` or `max_crop_size`
    is set, or with `random_resized_crop` a part of random area (`min_random_area` to `max_random_area`) and ratio,
    either resized to the data shape. `brightness`, `contrast` and `saturation` change each by a factor of up to 1 +-
    that, in random order; `random_h`, `random_s` and `random_l` move hue (of 180), saturation and lightness (of 255) by
    up to that; `pca_noise` adds ImageNet's principal colours with that deviation. Colours of images that have not three
    channels stay. `rand_mirror` flips every second image, `mirror` all.
    """

    resize: int = -1
    rand_crop: bool = False
    random_resized_crop: bool = False
    max_rotate_angle: int = 0
    max_aspect_ratio: float = 0.0
    min_aspect_ratio: float | None = None
    max_shear_ratio: float = 0.0
    max_crop_size: int = -1
    min_crop_size: int = -1
    max_random_scale: float = 1.0
    min_random_scale: float = 1.0
    max_random_area: float = 1.0
    min_random_area: float = 1.0
    max_img_size: float = 1e10
    min_img_size: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    pca_noise: float = 0.0
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
    rotate: int = -1
    fill_value: int = 255
    inter_method: int = BILINEAR
    pad: int = 0
    mirror: bool = False
    rand_mirror: bool = False

    def __post_init__(self) -> None:
        _check_numbers(self)
        for name in ("max_rotate_angle", "max_aspect_ratio", "max_shear_ratio", "min_random_scale", "min_random_area",
                     "brightness", "contrast", "saturation", "pca_noise", "random_h", "random_s", "random_l", "pad",
                     "fill_value"):
            if getattr(self, name) < 0:
                raise MXNetError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("random_scale", "random_area", "crop_size", "img_size"):
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if low > high:
                raise MXNetError(f"min_{name}={low} is above max_{name}={high}")
        lowest = 1 - self.max_aspect_ratio if self.min_aspect_ratio is None else self.min_aspect_ratio
        if not 0 < lowest <= (1 if self.min_aspect_ratio is None else self.max_aspect_ratio):
            raise MXNetError(f"max_aspect_ratio={self.max_aspect_ratio} with min_aspect_ratio={self.min_aspect_ratio}: "
                             f"ratios of width to height must be positive, and the least not above the largest")
        if self._squares and self.min_crop_size < 1:
            raise MXNetError(f"max_crop_size={self.max_crop_size} needs a min_crop_size of 1 or more as well")
        if self.inter_method not in (NEAREST, BILINEAR):
            raise MXNetError(f"inter_method={self.inter_method}: only 0 (nearest) and 1 (bilinear) are there")
        if self.random_resized_crop and (self.rand_crop or self._squares or self._scales):
            raise MXNetError("random_resized_crop excludes rand_crop, min_random_scale, max_random_scale, "
                             "min_crop_size and max_crop_size")

    @property
    def _squares(self) -> bool:
        return self.min_crop_size != -1 or self.max_crop_size != -1

    @property
    def _scales(self) -> bool:
        return self.min_random_scale != 1 or self.max_random_scale != 1

    @property
    def _warps(self) -> bool:
        return bool(self.max_rotate_angle or self.max_shear_ratio or self.rotate > 0 or self._scales
                    or (self._stretches and not self.random_resized_crop)
                    or self.max_img_size != 1e10 or self.min_img_size)

    @property
    def _stretches(self) -> bool:
        return bool(self.max_aspect_ratio) or self.min_aspect_ratio is not None

    def __call__(self, image: np.ndarray, height: int, width: int, draw: np.random.Generator) -> np.ndarray:
        """An image (H, W, C) as one of (height, width, C), with random numbers from `draw`.

        MXNetError if it is smaller than what is to be cut out of it.
        """
        nearest = self.inter_method == NEAREST
        if self.resize != -1:
            image = pixels.resized_shorter(image, self.resize, nearest)
        if self._warps:
            image = self._warped(image, draw)
        if self.pad:
            image = pixels.padded(image, self.pad, self.fill_value)
        image = self._cropped(image, height, width, draw)
        if image.shape[2] == 3:
            image = self._coloured(image, draw)
        if self.mirror or self.rand_mirror and draw.random() < 0.5:
            image = image[:, ::-1]
        return image

    def _warped(self, image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        height, width = image.shape[:2]
        shear = _either_way(draw, self.max_shear_ratio)
        angle = self._angle(draw)
        scale = draw.uniform(self.min_random_scale, self.max_random_scale)
        ratio = 1.0 if self.random_resized_crop else self._ratio(draw)
        new_height, new_width = (int(max(self.min_img_size, min(self.max_img_size, scale * each))) or 1
                                 for each in (height, width))
        matrix = pixels.rotation(angle, shear, scale, ratio, height, width, new_height, new_width)
        return pixels.warped(image, matrix, new_height, new_width, self.fill_value, self.inter_method == NEAREST)

    def _angle(self, draw: np.random.Generator) -> int:
        if self.rotate > 0:
            return self.rotate
        return int(draw.integers(-self.max_rotate_angle, self.max_rotate_angle + 1))

    def _ratio(self, draw: np.random.Generator) -> float:
        if self.min_aspect_ratio is not None:
            return draw.uniform(self.min_aspect_ratio, self.max_aspect_ratio)
        return 1 + _either_way(draw, self.max_aspect_ratio)

    # -- cropping ----------------------------------------------------------------------------------------------
    def _cropped(self, image: np.ndarray, height: int, width: int, draw: np.random.Generator) -> np.ndarray:
        nearest = self.inter_method == NEAREST
        if self.random_resized_crop:
            return pixels.resized(self._random_area(image, draw), height, width, nearest)
        if self._squares:
            edge = int(draw.integers(self.min_crop_size, self.max_crop_size + 1))
            return pixels.resized(self._window(image, edge, edge, draw), height, width, nearest)
        return self._window(image, height, width, draw)

    def _window(self, image: np.ndarray, height: int, width: int, draw: np.random.Generator) -> np.ndarray:
        """A part of that size: anywhere if `rand_crop`, else at the centre."""
        down, right = image.shape[0] - height, image.shape[1] - width
        if down < 0 or right < 0 or height < 1 or width < 1:
            raise MXNetError(f"an image of {image.shape[0]} x {image.shape[1]} pixels is too small to cut out "
                             f"{height} x {width}; give resize or pad, or a smaller data_shape")
        top, left = draw.integers(0, (down + 1, right + 1)) if self.rand_crop else (down // 2, right // 2)
        return image[top:top + height, left:left + width]

    def _random_area(self, image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        height, width = image.shape[:2]
        for _ in range(_CROP_TRIES):
            area = draw.uniform(self.min_random_area, self.max_random_area) * height * width
            ratio = self._ratio(draw)
            part = round(sqrt(area / ratio)), round(sqrt(area * ratio))
            if 0 < part[0] <= height and 0 < part[1] <= width:
                top, left = draw.integers(0, (height - part[0] + 1, width - part[1] + 1))
                return image[top:top + part[0], left:left + part[1]]
        return self._window(image, min(height, width), min(height, width), draw)

    # -- colours -----------------------------------------------------------------------------------------------
    def _coloured(self, image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        if self.brightness or self.contrast or self.saturation:
            changes = [(pixels.brightened, self.brightness), (pixels.contrasted, self.contrast),
                       (pixels.saturated, self.saturation)]
            for place in draw.permutation(len(changes)):
                change, most = changes[place]
                image = change(image, 1 + _either_way(draw, most))
        if self.random_h or self.random_s or self.random_l:
            hue, saturation, lightness = (_either_way(draw, most)
                                          for most in (self.random_h, self.random_s, self.random_l))
            image = pixels.shifted_hls(image, hue, lightness, saturation)
        if self.pca_noise:
            image = pixels.tinted(image, draw.normal(0, self.pca_noise, 3))
        return image


AUGMENTATION_NAMES = tuple(field.name for field in fields(Augmentation))
"""Every parameter of Augmentation."""


def _either_way(draw: np.random.Generator, most: float) -> float:
    """A number from -most to most."""
    return draw.uniform(-most, most)


@dataclass(frozen=True)
class Normalization:
    """((value - mean) * contrast + illumination) * scale / std, channel by channel.

    contrast is 1 +- up to `max_random_contrast`, illumination 0 +- up to `max_random_illumination`, drawn an image;
    MXNet leaves both out where no mean is above 0.
    """

    mean_r: float = 0.0
    mean_g: float = 0.0
    mean_b: float = 0.0
    mean_a: float = 0.0
    std_r: float = 1.0
    std_g: float = 1.0
    std_b: float = 1.0
    std_a: float = 1.0
    scale: float = 1.0
    max_random_contrast: float = 0.0
    max_random_illumination: float = 0.0

    def __post_init__(self) -> None:
        _check_numbers(self)
        for name in ("std_r", "std_g", "std_b", "std_a"):
            if not getattr(self, name) > 0:
                raise MXNetError(f"{name} must be positive, got {getattr(self, name)}")

    def __call__(self, image: np.ndarray, out: np.ndarray, draw: np.random.Generator) -> None:
        """Write an image (H, W, C) into `out`, float32 (C, H, W)."""
        channels = len(out)
        mean = np.array([self.mean_r, self.mean_g, self.mean_b, self.mean_a][:channels], np.float32)
        deviation = np.array([self.std_r, self.std_g, self.std_b, self.std_a][:channels], np.float32)
        contrast = 1 + (_either_way(draw, self.max_random_contrast) if self.max_random_contrast else 0.0)
        light = _either_way(draw, self.max_random_illumination) if self.max_random_illumination else 0.0
        factor = np.float32(contrast * self.scale) / deviation
        out[...] = image.transpose(2, 0, 1)
        out -= mean[:, None, None]
        out *= factor[:, None, None]
        if light:
            out += (np.float32(light * self.scale) / deviation)[:, None, None]


NORMALIZATION_NAMES = tuple(field.name for field in fields(Normalization))
"""Every parameter of Normalization."""


class Draws:
    """A generator of random numbers for each image, by (seed, epoch, row): the same whoever asks, and when."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, epoch: int, row: int) -> np.random.Generator:
        """The generator of an epoch's row."""
        return np.random.Generator(np.random.Philox(key=[self._seed % 2 ** 64, epoch], counter=[0, 0, 0, row]))


def split_settings(given: dict[str, Any]) -> tuple[Augmentation, Normalization, dict[str, Any]]:
    """The augmentation and normalisation that keywords ask for, and the keywords that are left."""
    augmentation = Augmentation(**{name: given[name] for name in AUGMENTATION_NAMES if name in given})
    normalization = Normalization(**{name: given[name] for name in NORMALIZATION_NAMES if name in given})
    rest = {name: value for name, value in given.items() if name not in (*AUGMENTATION_NAMES, *NORMALIZATION_NAMES)}
    return augmentation, normalization, rest

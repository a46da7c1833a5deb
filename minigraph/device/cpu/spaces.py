"""Where swapped bytes lie outside the device arenas: host memory, or a file whose size is fixed before anything runs.

A copy moves its bytes in pieces, so that it can be broken off between two of them; it needs no memory of its own.
"""
from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...base import MXNetError, OutOfMemoryError, format_bytes

OUTSIDE = ("host", "file")
"""The spaces to which plans swap."""
CHUNK_BYTES = 1 << 20
"""Bytes that a copy moves at a time."""
_FULL = frozenset((errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)))
"""Errors of a disk, a file size limit and a quota that are used up."""
_CANNOT_RESERVE = frozenset((errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENOSYS))
"""Errors of file systems that cannot set bytes aside."""

Move = Callable[[int, int], None]
"""Moves the bytes from `first` up to `last` of a copy."""


class SwapFile:
    """A file in a folder, by default that for temporary files; its bytes are set aside on the disk as it grows.

    It loses its name as soon as it is open, so that not even a crash leaves it behind; where a system does not allow
    this it is removed on close and at exit. `path` is the name that it had, for messages. A process that was forked
    from the one that made it is refused: both would write to the same bytes.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = os.fspath(folder) if folder is not None else tempfile.gettempdir()
        self.nbytes = 0
        self._owner = os.getpid()
        try:
            self._file, self.path = tempfile.mkstemp(prefix="minigraph-swap-", dir=self.folder)
        except OSError as error:
            raise MXNetError(f"cannot make a swap file in {self.folder!r}: {error.strerror}; name a folder on a disk "
                             f"with room that may be written to") from error
        named = True
        with contextlib.suppress(OSError):
            os.unlink(self.path)
            named = False
        self._end = weakref.finalize(self, _remove, self._file, self.path if named else None)

    def grow(self, nbytes: int) -> None:
        """Make the file exactly this long, unless it is longer; its contents are kept, and new bytes are zero.

        OutOfMemoryError when the disk has no room; the file is then as before.
        """
        if nbytes <= self.nbytes:
            return
        try:
            _set_aside(self._file, nbytes)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.nbytes)
            raise self._error(error, "grow to", nbytes, nbytes - self.nbytes) from error
        self.nbytes = nbytes

    def write(self, offset: int, data: memoryview) -> None:
        """Write all of `data` at a place; OutOfMemoryError when the disk is full."""
        self._check_owner()
        done = 0
        while done < len(data):
            try:
                done += os.pwrite(self._file, data[done:], offset + done)
            except OSError as error:
                raise self._error(error, "take", len(data) - done, len(data) - done) from error

    def read(self, offset: int, data: memoryview) -> None:
        """Fill all of `data` from a place."""
        self._check_owner()
        done = 0
        while done < len(data):
            try:
                count = os.preadv(self._file, [data[done:]], offset + done)
            except OSError as error:
                raise MXNetError(f"the swap file {self.path} cannot be read at byte {offset + done}: "
                                 f"{error.strerror}; name a folder on a sound disk") from error
            if count == 0:
                raise MXNetError(f"the swap file {self.path} ends at byte {offset + done} of its {self.nbytes}: "
                                 f"another program has cut it off")
            done += count

    def close(self) -> None:
        """Give the file and its bytes on the disk back."""
        self._end()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise MXNetError(f"the swap file {self.path} belongs to the process {self._owner}, from which this one was "
                             f"forked; bind again here, or start this process with multiprocessing's \"spawn\" method")

    def _error(self, error: OSError, what: str, nbytes: int, missing: int) -> MXNetError:
        if error.errno not in _FULL:
            return MXNetError(f"the swap file {self.path} cannot {what} {nbytes} bytes: {error.strerror}; name a "
                              f"folder on a sound disk")
        free = _free_bytes(self._file)
        return OutOfMemoryError(f"the swap file {self.path} cannot {what} {nbytes} bytes ({format_bytes(nbytes)}): "
                                f"{error.strerror}, {format_bytes(free)} are free; name a folder on a disk with more "
                                f"room or plan with a larger memory budget", missing, free)


def _set_aside(file: int, nbytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, nbytes)
            return
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise
    os.ftruncate(file, nbytes)


def _free_bytes(file: int) -> int:
    try:
        status = os.fstatvfs(file)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _remove(file: int, path: str | None) -> None:
    os.close(file)
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


@dataclass(frozen=True)
class FilePlace:
    """Bytes of a swap file from `offset` on."""

    file: SwapFile
    offset: int
    nbytes: int


Place = np.ndarray | FilePlace
"""Where a buffer's bytes lie: one-dimensional uint8 in memory, or in a file."""


def mover(source: Place, target: Place) -> Move:
    """What moves pieces of a buffer between two places, at least one of which is in memory."""
    if isinstance(source, FilePlace):
        assert isinstance(target, np.ndarray)
        file, offset, into = source.file, source.offset, target.data
        return lambda first, last: file.read(offset + first, into[first:last])
    if isinstance(target, FilePlace):
        to, at, data = target.file, target.offset, source.data
        return lambda first, last: to.write(at + first, data[first:last])
    come, go = source, target
    return lambda first, last: np.copyto(go[first:last], come[first:last])


def fill_place(place: Place, byte: int) -> None:
    """Fill a place with one byte value."""
    if isinstance(place, np.ndarray):
        place.fill(byte)
        return
    piece = memoryview(bytes([byte]) * min(place.nbytes, CHUNK_BYTES))
    for first in range(0, place.nbytes, CHUNK_BYTES):
        place.file.write(place.offset + first, piece[:place.nbytes - first])

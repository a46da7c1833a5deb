"""RecordIO, the container of MXNet's `.rec` files: byte strings one after another, each findable by its offset.

A record is the magic number, a word with 3 bits of kind and 29 bits of length, the bytes, and zeros up to a multiple of
four. Where a record's own bytes hold the magic number at a multiple of four, it is written in parts (first, middle,
last) that leave these four bytes out, so that a reader can find the next record from anywhere. An `.idx` file beside
it has a line `key<TAB>offset` a record.
"""
from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

from ..base import MXNetError

MAGIC = struct.pack("<I", 0xCED7230A)
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_LENGTH_BITS = 29
_HEADER = struct.Struct("<4sI")


def write_record(file: BinaryIO, data: bytes) -> None:
    """Append a record. MXNetError for 2 ** 29 bytes or more, which the format cannot hold."""
    if len(data) >= 1 << _LENGTH_BITS:
        raise MXNetError(f"a record of {len(data)} bytes is too long; RecordIO holds less than {1 << _LENGTH_BITS}")
    start = 0
    for end in _magic_places(data):
        _write_part(file, _MIDDLE if start else _FIRST, data[start:end])
        start = end + len(MAGIC)
    _write_part(file, _LAST if start else _WHOLE, data[start:])


def _magic_places(data: bytes) -> Iterator[int]:
    """Offsets of the magic number that are multiples of four."""
    place = data.find(MAGIC)
    while place >= 0:
        if place % 4 == 0:
            yield place
        place = data.find(MAGIC, place + 4 if place % 4 == 0 else place + 1)


def _write_part(file: BinaryIO, kind: int, data: bytes) -> None:
    file.write(_HEADER.pack(MAGIC, kind << _LENGTH_BITS | len(data)) + data + bytes(-len(data) % 4))


class RecordFile:
    """A file of records, read from any offset by any number of threads and forked processes at once: the file's own
    position, which they would share, is not used."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = os.fspath(path)
        self._file = open(path, "rb", buffering=0)

    def read(self, offset: int) -> tuple[bytes | None, int]:
        """The record at an offset, None at the file's end, and the offset behind it; errors as of `read_record`."""
        place = _Place(self._file.fileno(), offset)
        return read_record(place, self.path), place.tell()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        self._file.close()


class _Place:
    """A position of its own in a file."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor, self._offset = descriptor, offset

    def tell(self) -> int:
        return self._offset

    def read(self, nbytes: int) -> bytes:
        found = b""
        while len(found) < nbytes and (more := os.pread(self._descriptor, nbytes - len(found), self._offset)):
            found = found + more if found else more
            self._offset += len(more)
        return found


class Readable(Protocol):
    """What records are read from."""

    def tell(self) -> int:
        """The offset of the next byte."""

    def read(self, nbytes: int, /) -> bytes:
        """The next bytes, fewer at the end."""


def read_record(file: Readable, where: str) -> bytes | None:
    """The record at the file's position, None at its end; MXNetError names `where` and the offset of damage."""
    offset = file.tell()
    part = _read_header(file, where)
    if part is None:
        return None
    kind, length = part
    if kind not in (_WHOLE, _FIRST):
        raise _damaged(where, offset, "a record's inner part stands where one must begin")
    parts = [_read_bytes(file, length, where)]
    while kind not in (_WHOLE, _LAST):
        part = _read_header(file, where)
        if part is None or part[0] not in (_MIDDLE, _LAST):
            raise _damaged(where, offset, "the record's last part is missing")
        kind, length = part
        parts.append(_read_bytes(file, length, where))
    return MAGIC.join(parts)


def _read_header(file: Readable, where: str) -> tuple[int, int] | None:
    """(kind, length) of the part at the file's position."""
    offset = file.tell()
    header = file.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise _damaged(where, offset, f"the file ends after {len(header)} of a header's {_HEADER.size} bytes")
    magic, word = _HEADER.unpack(header)
    if magic != MAGIC:
        raise _damaged(where, offset, f"no record begins here (found {magic!r}, expected {MAGIC!r})")
    if word >> _LENGTH_BITS > _LAST:
        raise _damaged(where, offset, f"{word >> _LENGTH_BITS} is no kind of record")
    return word >> _LENGTH_BITS, word & ((1 << _LENGTH_BITS) - 1)


def _read_bytes(file: Readable, length: int, where: str) -> bytes:
    offset = file.tell()
    data = file.read(length + -length % 4)
    if len(data) < length + -length % 4:
        raise _damaged(where, offset, f"the file ends after {len(data)} of a record's {length} bytes")
    return data[:length]


def _damaged(where: str, offset: int, what: str) -> MXNetError:
    return MXNetError(f"{where}: no sound RecordIO file at byte {offset}: {what}; get or make the file again")


def record_offsets(path: str | os.PathLike) -> list[int]:
    """Where each record of a file begins. Reads the headers alone; MXNetError if one is not sound."""
    where, offsets = os.fspath(path), []
    total = os.path.getsize(path)
    with open(path, "rb") as file:
        while (offset := file.tell()) < total:
            part = _read_header(file, where)
            assert part is not None
            kind, length = part
            if file.tell() + length > total:
                raise _damaged(where, offset, f"the record's {length} bytes go beyond the file's {total}")
            if kind in (_WHOLE, _FIRST):
                offsets.append(offset)
            file.seek(length + -length % 4, os.SEEK_CUR)
    return offsets


def read_index(path: str | os.PathLike, key_type: Callable[[str], Any] = int) -> dict[Any, int]:
    """{key: offset} of an `.idx` file, in its order; MXNetError names a line that is not `key<TAB>offset`."""
    found: dict[Any, int] = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                key, offset = line.rstrip("\n").split("\t")
                found[key_type(key)] = int(offset)
                if int(offset) < 0:
                    raise ValueError
            except ValueError as error:
                raise MXNetError(f"{os.fspath(path)}: line {number} is {line.strip()[:40]!r}; an index has a key, a "
                                 f"tab and an offset a line") from error
    return found

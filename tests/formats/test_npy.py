""".npy files: what NumPy writes is read as it was, on many threads at once, and damage is told."""
from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minigraph.formats import npy


def dumps(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("array", [
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.arange(6, dtype=">i4").reshape(2, 3), np.float32(3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 3), np.int16), np.ones(5, bool)],
    ids=lambda array: f"{array.dtype}{array.shape}")
def test_what_numpy_writes_is_read_as_it_was(array: np.ndarray, version: tuple[int, int]) -> None:
    found = npy.loads(dumps(np.asarray(array), version))
    assert found.dtype == array.dtype and found.shape == array.shape and np.array_equal(found, array)


def test_many_threads_read_at_once() -> None:
    data = dumps(np.arange(12, dtype=np.uint8).reshape(3, 4))
    with ThreadPoolExecutor(8) as pool:
        assert all(found.sum() == 66 for found in pool.map(npy.loads, [data] * 4000))


@pytest.mark.parametrize("data, reason", [
    (b"", "do not begin"), (npy.MAGIC + b"\x01\x00", "do not begin"),
    (dumps(np.ones(3))[:30], "lacks"), (dumps(np.ones(3))[:-1], r"needs 24 bytes .* there are 23"),
    (dumps(np.ones(3)).replace(b"<f8", b"<q9"), "no type '<q9'"), (dumps(np.ones(3)).replace(b"<f8", b"|O8"), "plain"),
    (dumps(np.ones(3)).replace(b"'shape'", b"'sharp'"), "lacks shape")])
def test_damage_is_told(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        npy.loads(data)


def test_a_flipped_byte_of_the_header_gives_an_array_or_a_value_error() -> None:
    data = dumps(np.ones((2, 3), np.float32))
    for at in range(data.index(b"}") + 1):
        for value in (0, 39, 49, 76, 255):
            try:
                npy.loads(data[:at] + bytes([value]) + data[at + 1:])
            except ValueError:
                continue

"""Arenas outside the device: host memory and swap files."""
from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.binding import Group
from minigraph.context import cpu
from minigraph.device.cpu import CpuDevice
from minigraph.device.cpu.memory import CpuMemory
from minigraph.device.cpu.spaces import CHUNK_BYTES, SwapFile, mover

from .plans import chain, expected, feeds, in_file, load, run, same_bits

BYTES = np.dtype(np.uint8)


def size(file: SwapFile) -> int:
    return os.fstat(file._file).st_size


def test_a_swap_file_has_the_planned_size_and_no_name(tmp_path: Path) -> None:
    plan = in_file(chain(8, 1, 1000))
    program = load(plan, CpuDevice(disk=tmp_path))
    file = program.memory.files["file"]
    assert size(file) == plan.arena_bytes("file") == 8 * 4032
    assert os.path.dirname(file.path) == str(tmp_path)
    assert list(tmp_path.iterdir()) == []
    run(program, feeds(plan))
    assert size(file) == plan.arena_bytes("file")


def test_a_file_that_may_not_lose_its_name_while_open_is_removed_on_close(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "in use")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        first, second = SwapFile(tmp_path), SwapFile(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    first.close()
    first.close()
    del second
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("space", ["host", "file"])
def test_an_arena_that_grows_keeps_its_contents_and_begins_with_zeros(space: str) -> None:
    memory = CpuMemory()
    memory.reserve_space("swap", space, 128)
    value = np.arange(32, dtype=np.float32)
    memory.write("swap", 0, value)
    memory.reserve_space("swap", space, 3 * CHUNK_BYTES)
    memory.reserve_space("swap", space, 64)
    assert np.array_equal(memory.read("swap", 0, (32,), value.dtype), value)
    assert not memory.read("swap", 128, (3 * CHUNK_BYTES - 128,), BYTES).any()
    memory.close()


def test_no_room_on_the_disk_is_told_when_loading_and_a_smaller_plan_fits_afterwards(
        monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.posix_fallocate, 64 * 8

    def allocate(file: int, offset: int, nbytes: int) -> None:
        if nbytes > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file, offset, nbytes)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    memory = CpuMemory()
    small, large = in_file(chain(8, 1)), in_file(chain(8, 1, 1000))
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match="cannot grow to 32256 bytes .*No space left") as caught:
            load(large, memory=memory)
        assert caught.value.asked_bytes == 32256 - memory.files["file"].nbytes
        assert memory.files["file"].path in str(caught.value)
        program = load(small, memory=memory)
        assert size(memory.files["file"]) == room
        assert same_bits(run(program, feeds(small)), expected(small, feeds(small)))


def test_a_file_system_that_sets_no_bytes_aside_gets_a_file_of_the_same_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = SwapFile()
    file.grow(12345)
    assert size(file) == 12345


def test_writes_and_reads_that_stop_half_way_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, real_read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real_write(file, data[:1000], at))
    monkeypatch.setattr(os, "preadv", lambda file, parts, at: real_read(file, [parts[0][:999]], at))
    plan = in_file(chain(4, 1, 5000))
    assert same_bits(run(load(plan), feeds(plan)), expected(plan, feeds(plan)))


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(MXNetError, match="cannot make a swap file in .*missing.*No such file"):
        load(in_file(chain(4, 1)), CpuDevice(disk=missing))


def test_a_file_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    file = SwapFile(tmp_path)
    file.grow(100)
    os.ftruncate(file._file, 50)
    with pytest.raises(MXNetError, match="ends at byte 50 of its 100"):
        file.read(0, np.empty(100, np.uint8).data)


def test_arenas_of_one_name_lie_in_one_space() -> None:
    memory = CpuMemory()
    memory.reserve_space("swap", "host", 64)
    for name in ("swap", "transient"):
        with pytest.raises(MXNetError, match=f"arena '{name}' of this group lies elsewhere than in 'file'"):
            memory.reserve_space(name, "file", 64)


def test_copies_move_any_piece_between_any_two_places() -> None:
    memory = CpuMemory()
    memory.reserve_space("host", "host", 1024)
    memory.reserve_space("file", "file", 1024)
    source: Any = np.arange(200, dtype=np.uint8)
    for arena in ("host", "file"):
        there, back = memory.place(arena, 64, 200), np.zeros(200, np.uint8)
        mover(source, there)(0, 200)
        mover(there, back)(50, 150)
        assert np.array_equal(back[50:150], source[50:150])
        assert not back[:50].any() and not back[150:].any()


def test_a_group_makes_its_swap_files_in_the_folder_that_it_is_given(tmp_path: Path) -> None:
    memory: Any = Group(cpu(), disk=tmp_path).memory
    assert memory.disk == tmp_path

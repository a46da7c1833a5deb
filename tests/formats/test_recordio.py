"""RecordIO files: bytes known from the format's definition, round trips, and damage, which is one clear error."""
from __future__ import annotations

import io
import multiprocessing
import os
import random
import struct
import sys
import threading

import numpy as np
import pytest

from minigraph import recordio
from minigraph.base import MXNetError
from minigraph.formats.recordio import (
    MAGIC,
    RecordFile,
    read_index,
    read_record,
    record_offsets,
    write_record,
)


def written(*records):
    file = io.BytesIO()
    for each in records:
        write_record(file, each)
    return file.getvalue()


def test_a_record_is_magic_length_bytes_and_zeros_up_to_four():
    assert written(b"abcde") == bytes.fromhex("0a23d7ce 05000000") + b"abcde\0\0\0"
    assert written(b"") == bytes.fromhex("0a23d7ce 00000000")


def test_the_magic_number_at_a_multiple_of_four_parts_a_record():
    parts = [(1, b"1234"), (2, b""), (3, b"xy")]
    expected = b"".join(MAGIC + struct.pack("<I", kind << 29 | len(data)) + data + bytes(-len(data) % 4)
                        for kind, data in parts)
    assert written(b"1234" + MAGIC + MAGIC + b"xy") == expected


@pytest.mark.parametrize("seed", range(5))
def test_records_come_back_as_they_were_written(seed, tmp_path):
    draw = random.Random(seed)
    records = [b"".join(draw.choice([MAGIC, b"\x0a", b"\x0a\x23", b"z", bytes(3)]) for _ in range(draw.randrange(20)))
               for _ in range(40)]
    path = tmp_path / "x.rec"
    with recordio.MXRecordIO(path, "w") as file:
        for each in records:
            file.write(each)
    with recordio.MXRecordIO(path, "r") as file:
        assert [file.read() for _ in records] == records and file.read() is None
        offsets = record_offsets(path)
    found = RecordFile(path)
    for place in draw.sample(range(39), 10):
        assert found.read(offsets[place]) == (records[place], offsets[place + 1])
    found.close()


def test_a_record_too_long_for_its_length_field_is_refused():
    class Long(bytes):
        def __len__(self):
            return 1 << 29

    with pytest.raises(MXNetError, match="536870912 bytes is too long"):
        write_record(io.BytesIO(), Long())


def test_every_truncation_is_one_clear_error_or_an_earlier_end(tmp_path):
    whole = written(b"first one", b"abcd" + MAGIC + b"efgh", b"last")
    ends = {0, 20, 20 + 12 + 12, len(whole)}
    path = tmp_path / "x.rec"
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found = []
        try:
            with open(path, "rb") as file:
                while (record := read_record(file, "x.rec")) is not None:
                    found.append(record)
        except MXNetError as error:
            assert "x.rec: no sound RecordIO file at byte" in str(error) and length not in ends - {44}
        else:
            assert length in ends
        assert found == [b"first one", b"abcd" + MAGIC + b"efgh", b"last"][:len(found)]
        try:
            assert len(record_offsets(path)) >= len(found)
        except MXNetError as error:
            assert "no sound RecordIO file" in str(error)


@pytest.mark.parametrize("seed", range(200))
def test_damaged_bytes_give_records_or_a_clear_error(seed, tmp_path):
    draw = random.Random(seed)
    data = bytearray(written(b"first one", b"abcd" + MAGIC + b"efgh", b"last"))
    for _ in range(draw.randrange(1, 4)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path = tmp_path / "x.rec"
    path.write_bytes(data)
    try:
        record_offsets(path)
        with open(path, "rb") as file:
            while read_record(file, "x.rec") is not None:
                pass
    except MXNetError as error:
        assert "no sound RecordIO file" in str(error)


def test_an_index_is_read_in_its_order_and_a_bad_line_is_named(tmp_path):
    path = tmp_path / "x.idx"
    path.write_text("7\t0\n3\t40\n")
    assert list(read_index(path).items()) == [(7, 0), (3, 40)]
    path.write_text("7\t0\n3 40\n")
    with pytest.raises(MXNetError, match="x.idx: line 2 is '3 40'"):
        read_index(path)


def test_indexed_records_are_found_by_key(tmp_path):
    paths = tmp_path / "x.idx", tmp_path / "x.rec"
    file = recordio.MXIndexedRecordIO(*paths, "w")
    for key in (4, 2, 9):
        file.write_idx(key, f"record {key}".encode())
    file.close()
    file = recordio.MXIndexedRecordIO(*paths, "r")
    assert file.keys == [4, 2, 9]
    assert [file.read_idx(key) for key in (9, 4, 2)] == [b"record 9", b"record 4", b"record 2"]
    with pytest.raises(MXNetError, match="x.idx has no key 5 among its 3"):
        file.read_idx(5)
    assert read_index(paths[0]) == dict(zip((4, 2, 9), record_offsets(paths[1]), strict=True))


def test_a_reader_is_pickled_and_a_writer_is_not(tmp_path):
    import pickle

    paths = tmp_path / "x.idx", tmp_path / "x.rec"
    file = recordio.MXIndexedRecordIO(*paths, "w")
    with pytest.raises(MXNetError, match="cannot be pickled"):
        pickle.dumps(file)
    file.write_idx(0, b"one")
    file.close()
    reader = recordio.MXIndexedRecordIO(*paths, "r")
    assert pickle.loads(pickle.dumps(reader)).read_idx(0) == b"one"


COUNT = 60


def numbered(tmp_path):
    """Paths of a file of records 0 to COUNT - 1, of many lengths, each of its own byte."""
    paths = tmp_path / "n.idx", tmp_path / "n.rec"
    with recordio.MXIndexedRecordIO(*paths, "w") as file:
        for key in range(COUNT):
            file.write_idx(key, record(key))
    return paths


def record(key):
    return bytes([key]) * (key * 97 % 500)


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count, work):
    """What each of so many threads returns; `work` takes the thread's number."""
    found = {}
    threads = [threading.Thread(target=lambda k=k: found.update({k: work(k)})) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == count, "a thread raised"
    return [found[k] for k in range(count)]


def test_threads_read_the_records_of_their_own_keys(tmp_path, quick_switches):
    file = recordio.MXIndexedRecordIO(*numbered(tmp_path), "r")

    def work(thread):
        keys = random.Random(thread).choices(range(COUNT), k=500)
        return [key for key in keys if file.read_idx(key) != record(key)]

    assert in_threads(4, work) == [[]] * 4


def test_threads_that_read_on_get_each_record_once(tmp_path, quick_switches):
    file = recordio.MXRecordIO(numbered(tmp_path)[1], "r")

    def work(thread):
        return list(iter(file.read, None))

    assert sorted(each for found in in_threads(4, work) for each in found) == sorted(map(record, range(COUNT)))


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def forked(work):
    """What `work` returns or raises in a forked child, which ends as an interpreter does."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def child():
        try:
            there.send(work())
        except MXNetError as error:
            there.send(str(error))

    process = context.Process(target=child)
    process.start()
    result = here.recv()
    process.join()
    return result


@needs_fork
def test_a_forked_process_reads_on_by_itself(tmp_path):
    paths = numbered(tmp_path)
    file, keyed = recordio.MXRecordIO(paths[1], "r"), recordio.MXIndexedRecordIO(*paths, "r")
    assert [file.read() for _ in range(3)] == [record(k) for k in range(3)]
    expected = [record(k) for k in range(3, COUNT)]
    assert forked(lambda: list(iter(file.read, None))) == expected
    assert forked(lambda: [keyed.read_idx(k) for k in (7, 50)]) == [record(7), record(50)]
    assert list(iter(file.read, None)) == expected


@needs_fork
def test_a_process_forked_while_a_thread_reads_is_not_held_up(tmp_path):
    file = recordio.MXRecordIO(numbered(tmp_path)[1], "r")
    with file._lock:
        assert forked(file.read) == record(0)


@needs_fork
def test_a_forked_process_writes_nothing_into_the_file_of_its_parent(tmp_path):
    paths = tmp_path / "w.idx", tmp_path / "w.rec"
    file = recordio.MXIndexedRecordIO(*paths, "w")
    file.write_idx(0, b"zero")
    assert "is being written by another process" in forked(lambda: file.write_idx(1, b"other"))
    forked(file.close)
    assert not paths[0].exists(), "the index is the parent's to write"
    file.write_idx(1, b"one")
    file.close()
    with recordio.MXIndexedRecordIO(*paths, "r") as file:
        assert [file.read() for _ in range(3)] == [b"zero", b"one", None]
        assert [file.read_idx(k) for k in (1, 0)] == [b"one", b"zero"] and file.read() == b"one"
        file.seek(1)
        assert (file.read(), file.read()) == (b"one", None)


def test_wrong_use_of_a_file_is_named(tmp_path):
    path = tmp_path / "x.rec"
    file = recordio.MXRecordIO(path, "w")
    with pytest.raises(MXNetError, match="reading needs 'r'"):
        file.read()
    file.close()
    with pytest.raises(MXNetError, match="is closed"):
        file.write(b"")
    file = recordio.MXRecordIO(path, "r")
    with pytest.raises(MXNetError, match="writing needs 'w'"):
        file.write(b"")
    with pytest.raises(ValueError, match="flag must be"):
        recordio.MXRecordIO(path, "a")


# -- images --------------------------------------------------------------------------------------------------
def test_a_header_with_one_label_takes_24_bytes_and_more_labels_follow_it():
    one = recordio.pack(recordio.IRHeader(5, 3.0, 7, 1), b"data")
    assert one == struct.pack("<IfQQ", 0, 3.0, 7, 1) + b"data"
    assert recordio.unpack(one) == (recordio.IRHeader(0, 3.0, 7, 1), b"data")
    header, rest = recordio.unpack(recordio.pack(recordio.IRHeader(0, [1, 2.5], 7, 0), b"data"))
    assert header.flag == 2 and header.label.tolist() == [1, 2.5] and header.id == 7 and rest == b"data"


@pytest.mark.parametrize("length", [0, 10, 23, 24, 28, 31])
def test_a_header_cut_short_is_an_error(length):
    whole = recordio.pack(recordio.IRHeader(0, [1, 2], 7, 0), b"")
    with pytest.raises(MXNetError, match="header"):
        recordio.unpack(whole[:length])


PIXELS = np.random.RandomState(0).randint(0, 256, (5, 7, 3)).astype(np.uint8)


@pytest.mark.parametrize("form", [".npy", ".png"])
@pytest.mark.parametrize("pixels", [PIXELS, PIXELS[..., 0]], ids=["colour", "grey"])
def test_images_without_loss_come_back_as_they_were_packed(form, pixels):
    if form == ".png":
        pytest.importorskip("PIL")
    header, found = recordio.unpack_img(recordio.pack_img(recordio.IRHeader(0, 2, 1, 0), pixels, 3, form))
    assert header.label == 2 and np.array_equal(found, pixels)


def test_packed_images_are_blue_first_and_files_red_first():
    pil = pytest.importorskip("PIL.Image")
    blue = np.zeros((8, 8, 3), np.uint8)
    blue[..., 0] = 250
    for form in (".png", ".jpg", ".npy"):
        packed = recordio.pack_img(recordio.IRHeader(0, 2, 1, 0), blue, 3 if form == ".png" else 95, form)
        data = recordio.unpack(packed)[1]
        pixel = np.load(io.BytesIO(data))[0, 0] if form == ".npy" else pil.open(io.BytesIO(data)).getpixel((0, 0))
        assert pixel[2] > 240 and pixel[0] < 10
        found = recordio.unpack_img(packed, 1)[1]
        assert found[0, 0, 0] > 240 and found[0, 0, 2] < 10
        assert abs(int(recordio.unpack_img(packed, 0)[1][0, 0]) - 0.114 * 250) < 3


def test_grey_and_colour_are_converted_as_pillow_does():
    pytest.importorskip("PIL")
    for pixels in (PIXELS, PIXELS[..., 0]):
        png, npy = (recordio.pack_img(recordio.IRHeader(0, 0, 0, 0), pixels, 3, form) for form in (".png", ".npy"))
        for colour in (0, 1):
            found = [np.squeeze(recordio.unpack_img(each, colour)[1]) for each in (png, npy)]
            assert np.array_equal(*found)


@pytest.mark.parametrize("form", [".npy", ".png", ".jpg"])
def test_damaged_images_are_one_clear_error_or_an_image(form):
    if form != ".npy":
        pytest.importorskip("PIL")
    packed = recordio.pack_img(recordio.IRHeader(0, 2, 1, 0), PIXELS, 3, form)
    data = recordio.unpack(packed)[1]
    draw = random.Random(1)
    for length in sorted(draw.sample(range(len(data)), min(len(data) - 1, 60))):
        try:
            found = recordio.decode_image(data[:length])
        except MXNetError as error:
            assert "no sound" in str(error)
        else:  # only a checksum and the end mark were missing
            assert length >= len(data) - 16 and np.array_equal(found, recordio.decode_image(data))
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(3):
            broken[draw.randrange(len(data))] = draw.randrange(256)
        try:
            recordio.decode_image(bytes(broken), "RGB")
        except MXNetError as error:
            assert "record's" in str(error) or "cannot be given" in str(error)


def test_without_pillow_one_error_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MXNetError, match=r"need Pillow.*pip install 'minigraph\[image\]'"):
        recordio.decode_image(b"\xff\xd8\xff")
    packed = recordio.pack_img(recordio.IRHeader(0, 2, 1, 0), PIXELS, img_fmt=".npy")
    assert np.array_equal(recordio.unpack_img(packed)[1], PIXELS)


@pytest.mark.parametrize("given,said", [
    ({"img": PIXELS.astype(np.float32)}, "float32"), ({"img": PIXELS[0, 0]}, "\\(3,\\)"),
    ({"img": PIXELS, "img_fmt": ".gif"}, "img_fmt must be")])
def test_what_is_no_image_is_not_packed(given, said):
    with pytest.raises((MXNetError, ValueError), match=said):
        recordio.pack_img(recordio.IRHeader(0, 0, 0, 0), **given)

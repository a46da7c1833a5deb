"""The .params reader takes every generation of the format, and damage gives MXNetError only."""
from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigraph.base import TYPE_FLAGS, MXNetError
from minigraph.formats import atomic, params

REAL_FILES = Path(__file__).resolve().parents[2].parent / "shared" / "compat"


def real(name):
    path = REAL_FILES / name
    if not path.exists():
        pytest.skip(f"the real MXNet file {name} is not beside this repository")
    return path.read_bytes()


def file_of(*records, names=()):
    """A .params file around array records."""
    encoded = [name.encode() for name in names]
    return (struct.pack("<QQQ", 0x112, 0, len(records)) + b"".join(records) + struct.pack("<Q", len(names))
            + b"".join(struct.pack("<Q", len(name)) + name for name in encoded))


def v2(shape, data, flag=0, storage=0, magic=0xF993FAC9):
    return (struct.pack(f"<Iii{len(shape)}qii", magic, storage, len(shape), *shape, 1, 0)
            + struct.pack("<i", flag) + data)


ONES = np.ones(2, np.float32).tobytes()
SMALL = file_of(v2((2,), ONES), v2((1, 2), ONES), names=("arg:a", "aux:b"))


# -- files that MXNet wrote ----------------------------------------------------------------------------


def test_a_file_of_mxnet_1_0_is_reproduced_byte_for_byte():
    data = real("test_mnist_model-0010.params")
    arrays = params.loads(data)
    assert arrays["arg:fullyconnected0_weight"].shape == (128, 784)
    assert params.dumps(arrays) == data


def test_the_oldest_generation_without_names_is_read():
    arrays = params.loads(real("legacy_ndarray.v0"))
    assert isinstance(arrays, list) and len(arrays) == 6
    for array in arrays:
        np.testing.assert_array_equal(array, np.arange(128, dtype=np.float32))


def test_the_oldest_generation_with_names_is_read():
    assert all(name.startswith(("arg:", "aux:")) for name in params.loads(real("go.params")))
    assert len(params.loads(real("testnetv1-0000.params"))) > 4


def test_the_0_11_generation_is_read():
    weights = [each for name, each in params.loads(real("sm.params")).items() if name.endswith("weight")]
    assert weights[0].shape == (1, 2) and weights[0].ravel()[0] == 1.0


@pytest.mark.parametrize("name", ["cifar_resnet20_v1-0000.params", "cifar_resnet20_v2-0000.params"])
def test_a_gluon_export_survives_writing_and_reading(name):
    arrays = params.loads(real(name))
    again = params.loads(params.dumps(arrays))
    assert list(again) == list(arrays) and len(arrays) > 50
    for key, array in arrays.items():
        np.testing.assert_array_equal(again[key], array)


# -- records of each generation ------------------------------------------------------------------------


@pytest.mark.parametrize("head", [
    pytest.param(struct.pack("<III", 2, 1, 2), id="V0"),
    pytest.param(struct.pack("<IIqq", 0xF993FAC8, 2, 1, 2), id="V1"),
    pytest.param(struct.pack("<Iiiqq", 0xF993FAC9, 0, 2, 1, 2), id="V2"),
    pytest.param(struct.pack("<Iiiqq", 0xF993FACA, 0, 2, 1, 2), id="V3"),
])
def test_every_generation_holds_the_same_array(head):
    record = head + struct.pack("<iii", 2, 3, 4) + np.array([[5, 6]], "<i4").tobytes()  # on gpu(3), int32
    (array,) = params.loads(file_of(record))
    assert array.dtype == np.int32 and array.tolist() == [[5, 6]]


@pytest.mark.parametrize("record", [
    struct.pack("<I", 0), struct.pack("<II", 0xF993FAC8, 0), struct.pack("<Iii", 0xF993FAC9, -1, 0),
    struct.pack("<Iii", 0xF993FACA, 0, -1)], ids=["V0", "V1", "V2", "V3"])
def test_an_array_without_a_value_is_empty_and_the_next_one_is_found(record):
    nothing, after = params.loads(file_of(record, v2((2,), ONES)))
    assert nothing.shape == (0,) and after.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", TYPE_FLAGS)
def test_every_dtype_survives(dtype):
    value = np.array([[0, 1], [1, 0]]).astype(dtype)
    again = params.loads(params.dumps({"x": value}))["x"]
    assert again.dtype == value.dtype and again.flags.owndata and again.flags.writeable
    np.testing.assert_array_equal(again, value)


@pytest.mark.parametrize("value", [np.float32(3).reshape(()), np.zeros((0, 3), np.int8), np.ones((2, 1, 3))],
                         ids=["scalar", "zero size", "ordinary"])
def test_every_shape_survives_and_only_special_ones_need_the_newest_generation(value):
    data = params.dumps([value])
    assert struct.unpack_from("<I", data, 24)[0] == (0xF993FAC9 if value.shape == (2, 1, 3) else 0xF993FACA)
    (again,) = params.loads(data)
    assert again.shape == value.shape and again.dtype == value.dtype


def test_strides_and_byte_order_of_the_source_do_not_matter():
    value = np.arange(6, dtype=">f4").reshape(2, 3).T
    assert params.dumps([value]) == params.dumps([np.ascontiguousarray(value, "<f4")])


def test_bfloat16_is_widened_exactly():
    record = v2((2,), struct.pack("<HH", 0x3F80, 0xC049), flag=12)
    assert params.loads(file_of(record))[0].tolist() == [1.0, -3.140625]


def test_an_empty_list_and_unicode_names_survive():
    assert params.loads(params.dumps([])) == []
    assert list(params.loads(params.dumps({"gewicht_ß": np.ones(1)}))) == ["gewicht_ß"]


def test_what_cannot_be_written_is_refused_by_name():
    with pytest.raises(MXNetError, match="'arg:z' has dtype complex128"):
        params.dumps({"arg:z": np.ones(1, complex)})
    with pytest.raises(ValueError, match="ndarray"):
        params.dumps(np.ones(2))


# -- damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage,name", [(1, "row_sparse"), (2, "csr")])
def test_sparse_arrays_are_refused_by_name(storage, name):
    with pytest.raises(MXNetError, match=f"array 0 .*{name}"):
        params.loads(file_of(v2((2,), ONES, storage=storage)))


@pytest.mark.parametrize("data,message", [
    (b"", "magic"),
    (b"PK\x03\x04 and so on", "magic"),
    (struct.pack("<QQQ", 0x112, 0, 2**60), "claims 1152921504606846976 arrays"),
    (file_of(v2((2**40,), ONES)), "truncated.*needs 4398046511104 bytes"),
    (file_of(v2((2**31, 2**31, 2**31), ONES)), "truncated"),
    (file_of(v2((-2,), ONES)), r"shape \(-2,\)"),
    (file_of(v2((0, 2**62, 2**62), b"")), "shape"),
    (file_of(v2((2,), ONES, flag=99)), "type number 99"),
    (file_of(v2((2,), ONES, flag=-1)), "type number -1"),
    (file_of(v2((2,), ONES, storage=7)), "storage type 7"),
    (file_of(struct.pack("<Iii", 0xF993FAC9, 0, 2**31 - 1)), "rank 2147483647"),
    (file_of(struct.pack("<Iii", 0xF993FAC9, 0, -5)), "rank -5"),
    (file_of(struct.pack("<I", 2**32 - 1)), "rank 4294967295"),
    (file_of(v2((2,), ONES), names=("a", "b")), "2 names for 1 arrays"),
    (file_of(v2((2,), ONES), v2((2,), ONES), names=("a", "a")), "same name"),
    (SMALL + b"\0", "1 bytes after its end"),
    (SMALL[:-5] + b"\xff" * 5, "not UTF-8"),
])
def test_a_damaged_file_gives_one_clear_error(data, message):
    with pytest.raises(MXNetError, match=message):
        params.loads(data)


def test_a_file_cut_anywhere_is_refused():
    assert len(params.loads(SMALL)) == 2
    for length in range(len(SMALL)):
        with pytest.raises(MXNetError):
            params.loads(SMALL[:length])


@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_any_changed_byte_is_read_or_refused_and_nothing_else(value):
    for position in range(len(SMALL)):
        damaged = bytearray(SMALL)
        damaged[position] = value
        try:
            arrays = params.loads(bytes(damaged))
        except MXNetError:
            continue
        assert len(arrays) == 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=8),
       st.binary(max_size=24))
def test_random_damage_is_read_or_refused_and_nothing_else(changes, tail):
    damaged = bytearray(SMALL)
    for position, value in changes:
        damaged[position] = value
    try:
        params.loads(bytes(damaged) + tail)
    except MXNetError:
        pass


# -- writing files -------------------------------------------------------------------------------------


def test_a_written_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "a.params"
    atomic.write_atomically(path, b"old")
    atomic.write_atomically(str(path), b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["a.params"]


def test_a_failed_write_keeps_the_old_file_and_removes_its_own(tmp_path, monkeypatch):
    path = tmp_path / "a.params"
    path.write_bytes(b"old")

    def full_disk(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        atomic.write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.params"]


@pytest.mark.skipif(os.name != "posix", reason="permissions and links are POSIX's")
def test_a_written_file_has_ordinary_permissions_and_links_are_followed(tmp_path):
    plain, target, link = tmp_path / "plain", tmp_path / "target", tmp_path / "link"
    plain.write_bytes(b"")
    link.symlink_to(target)
    atomic.write_atomically(link, b"data")
    assert link.is_symlink() and target.read_bytes() == b"data"
    assert target.stat().st_mode == plain.stat().st_mode


def test_a_missing_folder_is_reported_as_such(tmp_path):
    with pytest.raises(FileNotFoundError):
        atomic.write_atomically(tmp_path / "none" / "a", b"")

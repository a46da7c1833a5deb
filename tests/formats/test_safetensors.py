"""safetensors: what is written is what the format says, and a damaged file gives one clear error."""
from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.formats.safetensors import dumps, loads


def packed(header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_a_file_made_by_hand_is_read():
    body = struct.pack("<2f", 1.5, -2) + struct.pack("<3h", 1, 2, 3)
    header = {"__metadata__": {"format": "pt"}, "w": entry(), "n": entry("I16", (3, 1), (8, 14))}
    arrays, metadata = loads(packed(header, body))
    assert metadata == {"format": "pt"} and list(arrays) == ["w", "n"]
    assert arrays["w"].tolist() == [1.5, -2] and arrays["w"].dtype == np.float32
    assert arrays["n"].tolist() == [[1], [2], [3]] and arrays["n"].dtype == np.int16
    arrays["w"][0] = 7


def test_a_written_file_is_what_the_format_says():
    data = dumps({"b": np.array([1], np.uint8), "a": np.array([[1.0]]), "c": np.array(True)}, {"by": "hand"})
    length, = struct.unpack("<Q", data[:8])
    assert length % 8 == 0
    header = json.loads(data[8:8 + length])
    assert header == {"__metadata__": {"by": "hand"}, "a": entry("F64", (1, 1), (0, 8)), "b": entry("U8", (1,), (8, 9)),
                      "c": entry("BOOL", (), (9, 10))}
    assert data[8 + length:] == struct.pack("<d", 1.0) + b"\x01\x01"


DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
          "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 1)])
def test_every_dtype_and_shape_survives(dtype, shape):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = loads(dumps({"x": value, "y": value[..., ::-1] if shape else value}))[0]["x"]
    assert found.dtype == value.dtype and found.shape == shape and np.array_equal(found, value)


def test_bfloat16_is_widened_exactly():
    arrays, _ = loads(packed({"x": entry("BF16", (2,), (0, 4))}, struct.pack("<2H", 0x3F80, 0xC049)))
    assert arrays["x"].tolist() == [1.0, -3.140625] and arrays["x"].dtype == np.float32


BODY = bytes(8)
DAMAGED = {
    "empty": (b"", "it has 0 bytes"),
    "header beyond the end": (struct.pack("<Q", 9) + b"{}", "header is to take 9 bytes"),
    "huge header": (struct.pack("<Q", 2**62) + b"{}", "header is to take"),
    "no object": (packed(b"[]"), "does not begin with"),
    "no JSON": (packed(b"{]"), "no JSON"),
    "not UTF-8": (packed(b'{"\xff": 1}'), "no JSON"),
    "infinity": (packed(b'{"x": Infinity}'), "no JSON"),
    "name twice": (packed(b'{"x": {}, "x": {}}'), "a key occurs twice"),
    "metadata": (packed({"__metadata__": {"a": 1}}), "__metadata__ must map"),
    "entry": (packed({"x": 3}, BODY), "must have data_offsets, dtype, shape"),
    "further key": (packed({"x": {**entry(), "more": 1}}, BODY), "must have"),
    "dtype": (packed({"x": entry("F8_E4M3", (8,))}, BODY), "dtype 'F8_E4M3'"),
    "shape": (packed({"x": entry(shape=(-2,))}, BODY), r"shape \[-2\]"),
    "shape of booleans": (packed({"x": entry(shape=(True, 2))}, BODY), "shape"),
    "rank": (packed({"x": entry("U8", (1,) * 33, (0, 1))}, b"1"), "shape"),
    "offsets": (packed({"x": entry(offsets=(8, 0))}, BODY), "data_offsets"),
    "size": (packed({"x": entry(shape=(3,))}, BODY), "needs 12 bytes, its data_offsets give 8"),
    "overflow": (packed({"x": entry(shape=(2**62, 2**62))}, BODY), "needs"),
    "hole": (packed({"x": entry(offsets=(4, 12))}, bytes(12)), "begins at byte 4, the one before it ends at 0"),
    "overlap": (packed({"x": entry(), "y": entry(offsets=(4, 12))}, bytes(12)), "begins at byte 4"),
    "truncated": (packed({"x": entry()}, bytes(7)), "take 8 bytes, 7 follow"),
    "tail": (packed({"x": entry()}, bytes(9)), "take 8 bytes, 9 follow"),
    "boolean": (packed({"x": entry("BOOL", (1,), (0, 1))}, b"\x02"), "neither 0 nor 1"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_gives_one_clear_error(case):
    data, message = DAMAGED[case]
    with pytest.raises(MXNetError, match=message):
        loads(data)


WHOLE = dumps({"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.arange(3), "flag": np.array([True])},
              {"k": "v"})


def test_a_file_cut_anywhere_is_refused():
    for end in range(len(WHOLE)):
        with pytest.raises(MXNetError):
            loads(WHOLE[:end])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_random_damage_is_read_or_refused_and_nothing_else(changes):
    data = bytearray(WHOLE)
    for place, byte in changes:
        data[place] = byte
    try:
        arrays, metadata = loads(bytes(data))
    except MXNetError:
        return
    assert loads(dumps(arrays, metadata))[0].keys() == arrays.keys()


def test_what_cannot_be_written_is_refused_by_name():
    with pytest.raises(MXNetError, match="'x' has dtype complex64"):
        dumps({"x": np.zeros(1, np.complex64)})
    with pytest.raises(MXNetError, match="'__metadata__'"):
        dumps({"__metadata__": np.zeros(1)})
    with pytest.raises(ValueError, match="dictionary"):
        dumps([np.zeros(1)])


def test_arrays_and_modules_are_saved_and_loaded_by_the_files_ending(tmp_path):
    name = str(tmp_path / "m.safetensors")
    mx.nd.save(name, {"a": mx.nd.array([1, 2]), "b": mx.nd.zeros((0, 2))})
    found = mx.nd.load(name)
    assert found["a"].asnumpy().tolist() == [1, 2] and found["b"].shape == (0, 2)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    first, second = (mx.mod.Module(net, label_names=None) for _ in range(2))
    for mod in (first, second):
        mod.bind([("data", (1, 3))], for_training=False)
        mod.init_params(mx.init.Normal())
    first.save_params(name)
    second.load_params(name)
    assert mx.test_utils.same(first.get_params()[0]["fc_weight"], second.get_params()[0]["fc_weight"])
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    with pytest.raises(MXNetError, match="bad.safetensors: no safetensors file"):
        mx.nd.load(tmp_path / "bad.safetensors")
    with pytest.raises(ValueError, match="dictionary"):
        mx.nd.save(name, [mx.nd.zeros((1,))])

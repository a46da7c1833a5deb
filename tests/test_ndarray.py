"""NDArray is a handle to a storage: nothing is cached, slices write through, shapes are kept strictly."""
from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from minigraph import ndarray as nd
from minigraph import random
from minigraph.base import MXNetError
from minigraph.context import cpu, gpu
from minigraph.ndarray import HostStorage, NDArray


class CopyingStorage:
    """A storage as a device has it: reading gives a copy, writing takes the whole value."""

    def __init__(self, values):
        self.values = np.array(values)
        self.shape, self.dtype, self.context = self.values.shape, self.values.dtype, gpu(1)
        self.written = []

    def read(self):
        return self.values.copy()

    def write(self, value):
        assert value.shape == self.shape and value.dtype == self.dtype
        self.written.append(value.shape)
        self.values = np.array(value)


def same(array, expected):
    np.testing.assert_array_equal(array.asnumpy(), expected)


def test_array_gives_float32_unless_the_source_is_an_ndarray_or_a_dtype_is_given():
    for source in ([1, 2], np.arange(2), np.arange(2, dtype=np.float64), np.arange(2, dtype=np.uint8)):
        assert nd.array(source).dtype == np.float32
    assert nd.array(nd.array([1], dtype="int32")).dtype == np.int32
    assert nd.array([1], dtype=np.float64).dtype == np.float64


def test_array_copies_its_source_and_keeps_its_shape_also_a_scalars():
    source = np.zeros(3, np.float32)
    array = nd.array(source)
    source[:] = 1
    same(array, [0, 0, 0])
    assert nd.array(5).shape == () and nd.array(5).asscalar() == 5 and nd.array([5]).shape == (1,)


@pytest.mark.parametrize("make,expected", [
    (lambda: nd.zeros((2, 2)), [[0, 0], [0, 0]]),
    (lambda: nd.ones(3), [1, 1, 1]),
    (lambda: nd.full((2,), 7), [7, 7]),
    (lambda: nd.arange(3), [0, 1, 2]),
    (lambda: nd.arange(1, 3, 0.5), [1, 1.5, 2, 2.5]),
    (lambda: nd.arange(0, 2, repeat=2), [0, 0, 1, 1]),
    (lambda: nd.concatenate([nd.ones((1, 2)), nd.zeros((2, 2))]), [[1, 1], [0, 0], [0, 0]]),
    (lambda: nd.concatenate([nd.ones((1, 1)), nd.zeros((1, 1))], axis=1), [[1, 0]]),
])
def test_makers_give_these_values_in_float32(make, expected):
    same(make(), expected)
    assert make().dtype == np.float32


def test_makers_take_dtype_and_context():
    array = nd.zeros((2, 3), ctx=gpu(1), dtype="int64")
    assert (array.dtype, array.context, array.ctx) == (np.int64, gpu(1), gpu(1))
    assert nd.empty((2, 3), dtype=np.float16).shape == (2, 3)
    with gpu(2):
        assert nd.ones(1).context == gpu(2)


def test_attributes_are_those_of_the_storage():
    array = nd.zeros((2, 3, 4))
    assert (array.shape, array.size, array.ndim, len(array), array.context) == ((2, 3, 4), 24, 3, 2, cpu(0))
    assert array.T.shape == (4, 3, 2)


def test_repr_ends_in_shape_and_context():
    assert repr(nd.zeros((2, 3))).endswith("\n<NDArray 2x3 @cpu(0)>")
    assert repr(nd.ones(1)) == "\n[1.]\n<NDArray 1 @cpu(0)>"


def test_a_handle_shows_what_the_storage_holds_now():
    storage = HostStorage(np.zeros(2, np.float32))
    array = NDArray(storage)
    before = array.asnumpy()
    storage.array[0] = 9
    same(array, [9, 0])
    assert before[0] == 0, "asnumpy must copy"


def test_numpy_gets_a_copy():
    array = nd.zeros(2)
    np.asarray(array)[0] = 1
    assert np.asarray(array).tolist() == [0, 0]
    assert np.asarray(array, dtype=np.int32).dtype == np.int32


@pytest.mark.parametrize("storage", [lambda v: HostStorage(np.array(v)), CopyingStorage])
def test_slices_on_axis_0_write_through_to_the_parent(storage):
    array = NDArray(storage(np.zeros((3, 2), np.float32)))
    array[1][:] = [1, 2]
    array[2:3] = [[3, 4]]
    row = array[0]
    row += 5
    same(array, [[5, 5], [1, 2], [3, 4]])
    array[0] = 0
    same(row, [0, 0])


@pytest.mark.parametrize("storage", [lambda v: HostStorage(np.array(v)), CopyingStorage])
def test_a_reshaped_array_writes_through_to_its_parent(storage):
    array = NDArray(storage(np.zeros((2, 3), np.float32)))
    array.reshape((3, 2))[:] = np.arange(6).reshape(3, 2)
    array[1].reshape(3, 1)[2] = 9
    same(array, [[0, 1, 2], [3, 4, 9]])


def test_reshape_knows_the_codes_of_mxnet():
    array = nd.zeros((2, 3, 4))
    assert array.reshape((-3, 0)).shape == (6, 4)
    assert array.reshape((-4, 1, -1, -2)).shape == (1, 2, 3, 4)
    assert array.reshape((-1, 0), reverse=True).shape == (6, 4)
    assert array.reshape(4, -1).shape == (4, 6)
    assert array.reshape((0, -1)).shape == (2, 12)
    assert array.reshape(-1).shape == (24,)
    assert array.reshape(shape=(4, 6)).shape == (4, 6)
    for wrong in ((5, 5), (5, -1), (-1, -1), (-3, 5)):
        with pytest.raises(MXNetError, match=re.escape(f"(2, 3, 4) into {wrong}")):
            array.reshape(wrong)


def test_an_integer_on_a_vector_gives_one_element_and_is_checked():
    array = nd.arange(3)
    assert array[-1].shape == (1,) and array[-1].asscalar() == 2
    array[1] = 7
    array[-1] = 8
    same(array, [0, 7, 8])
    assert nd.zeros((2, 2))[1, 1].shape == (1,)
    with pytest.raises(IndexError):
        array[3]


def test_arrays_of_indices_read_a_copy_and_write_in_place():
    array = nd.arange(4)
    picked = array[nd.array([3, 0])]
    picked[:] = 9
    array[[1, 2]] = [5, 6]
    same(array, [0, 5, 6, 3])


def test_iteration_gives_the_rows_and_ends():
    assert [row.asscalar() for row in nd.arange(3)] == [0, 1, 2]


def test_writing_another_shape_is_refused_naming_both_and_changes_nothing():
    array = nd.zeros((2, 3))
    for value in (np.ones(2), np.ones((3, 2)), np.ones((2, 2, 3)), nd.ones((2, 3, 1))):
        with pytest.raises(ValueError, match=r"\(.*\).*\(2, 3\)"):
            array[:] = value
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        array[0] = [1, 2]
    same(array, np.zeros((2, 3)))


@pytest.mark.parametrize("value", [[1, 2, 3], [[1, 2, 3]], [[[1, 2, 3], [1, 2, 3]]]])
def test_writing_broadcasts_the_value(value):
    array = nd.zeros((2, 3))
    array[:] = np.array(value)
    same(array, [[1, 2, 3], [1, 2, 3]])
    array[:, 1] = nd.array([9])
    same(array, [[1, 9, 3], [1, 9, 3]])


def test_none_in_a_key_makes_an_axis_and_writes_through():
    array = nd.arange(6).reshape((2, 3))
    assert array[None].shape == (1, 2, 3) and array[:, None, 1:].shape == (2, 1, 2)
    array[0, None][:] = 7
    same(array, [[7, 7, 7], [3, 4, 5]])


def test_writing_casts_to_the_dtype_and_spreads_a_scalar():
    storage = CopyingStorage(np.zeros((2, 2), np.int32))
    array = NDArray(storage)
    array[:] = 3.7
    same(array, [[3, 3], [3, 3]])
    array[...] = np.arange(4.0).reshape(2, 2)
    same(array, [[0, 1], [2, 3]])


def test_an_overlapping_write_sees_the_old_values():
    array = nd.arange(4)
    array[1:] = array[:3]
    same(array, [0, 0, 1, 2])


def test_arithmetic_has_numpys_values_on_both_sides():
    a, b = nd.array([1, 2, 4]), nd.array([3, 2, 1])
    same(a + b, [4, 4, 5])
    same(a - 1, [0, 1, 3])
    same(8 / a, [8, 4, 2])
    same(2 - a, [1, 0, -2])
    same(a * b, [3, 4, 4])
    same(2**a, [2, 4, 16])
    same(a**2, [1, 4, 16])
    same(-a, [-1, -2, -4])
    same(a % 3, [1, 2, 1])
    same(np.array([1.0, 1.0, 1.0], np.float32) + a, [2, 3, 5])
    assert isinstance(np.ones(3) * a, NDArray)
    same(nd.ones((2, 3)) + nd.array([1, 2, 3]), [[2, 3, 4], [2, 3, 4]])


def test_a_scalar_never_changes_the_dtype():
    assert (nd.ones(2) * np.float64(3)).dtype == np.float32
    assert (nd.ones(2, dtype="float16") + 1e-3).dtype == np.float16
    same(nd.array([3, 4], dtype="int32") / 2, [1, 2])


def test_comparisons_are_0_and_1_in_the_arrays_dtype():
    a = nd.array([1, 2, 3])
    for result, expected in ((a == 2, [0, 1, 0]), (a != 2, [1, 0, 1]), (a > 2, [0, 0, 1]),
                             (a >= 2, [0, 1, 1]), (a < nd.array([2, 2, 2]), [1, 0, 0]), (2 >= a, [1, 1, 0])):
        same(result, expected)
        assert result.dtype == np.float32
    assert (a == None) is False  # noqa: E711 - what scripts write
    assert a in {a: 1}


def test_in_place_arithmetic_writes_the_same_storage():
    storage = CopyingStorage(np.array([1, 2], np.float32))
    array = handle = NDArray(storage)
    array += 1
    array *= nd.array([2, 3])
    array -= 1
    array /= 3
    array **= 2
    assert array is handle and storage.values.tolist() == [1.0, pytest.approx((8 / 3) ** 2)]
    with pytest.raises(ValueError, match=r"\(3, 2\).*\(2,\)"):
        array += nd.ones((3, 2))


def test_only_one_element_has_a_truth_and_a_scalar():
    assert nd.ones(1) and not nd.zeros((1, 1))
    assert float(nd.full(1, 2.5)) == 2.5 and int(nd.full(1, 2)) == 2
    with pytest.raises(ValueError, match="ambiguous"):
        bool(nd.ones(2))
    with pytest.raises(ValueError, match=r"\(2,\)"):
        nd.ones(2).asscalar()


def test_copies_are_independent_and_copyto_returns_its_target():
    a, b = nd.ones(2), nd.zeros(2)
    c = a.copy()
    assert a.copyto(b) is b
    a[:] = 5
    same(b, [1, 1])
    same(c, [1, 1])
    assert a.as_in_context(cpu()) is a and a.as_in_context(gpu()).context == gpu(0)
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        a.copyto(nd.zeros(3))


def test_astype_converts_and_may_return_itself():
    a = nd.array([1.5])
    assert a.astype("int32").asscalar() == 1
    assert a.astype("float32", copy=False) is a and a.astype("float32") is not a


def test_pickling_keeps_values_dtype_and_context():
    again = pickle.loads(pickle.dumps(nd.array([1, 2], ctx=gpu(1), dtype="int8")))
    assert (again.asnumpy().tolist(), again.dtype, again.context) == ([1, 2], np.int8, gpu(1))


def test_waiting_asks_the_storage_and_the_registered_devices():
    class Device:
        calls = 0

        def synchronize(self):
            self.calls += 1

    device, storage = Device(), CopyingStorage([1.0])
    storage.wait = device.synchronize
    NDArray(storage).wait_to_read()
    nd.ones(1).wait_to_read()
    nd.register_waiter(device)
    nd.waitall()
    assert device.calls == 2


def test_save_and_load_give_back_lists_and_dicts(tmp_path):
    path = tmp_path / "x.params"
    nd.save(path, {"arg:w": nd.array([[1, 2]], dtype="int32"), "aux:m": nd.ones(3)})
    loaded = nd.load(path)
    assert list(loaded) == ["arg:w", "aux:m"] and loaded["arg:w"].dtype == np.int32
    same(loaded["arg:w"], [[1, 2]])
    nd.save(str(path), [nd.ones(1), nd.zeros(2)])
    assert [each.shape for each in nd.load(path)] == [(1,), (2,)]
    nd.save(path, nd.ones(4))
    (only,) = nd.load_frombuffer(path.read_bytes())
    same(only, [1, 1, 1, 1])
    only[0] = 2  # loaded arrays can be written to


@pytest.mark.parametrize("given, reason", [({"a": 3}, "'a': int"), ([nd.ones(1), "x"], "1: str"),
                                           ({3: nd.ones(1)}, "3: NDArray"), ({"a": np.ones(1)}, "'a': ndarray")])
def test_what_a_file_cannot_hold_is_named_and_no_file_is_made(tmp_path, given, reason):
    with pytest.raises(TypeError, match=reason):
        nd.save(tmp_path / "m.params", given)
    assert not list(tmp_path.iterdir())


def test_loading_a_damaged_file_names_it(tmp_path):
    path = tmp_path / "bad.params"
    path.write_bytes(b"not a params file")
    with pytest.raises(MXNetError, match="bad.params.*not an MXNet .params file"):
        nd.load(path)


def test_a_seed_repeats_the_numbers_and_is_what_devices_are_told():
    random.seed(7)
    first = nd.random.uniform(0, 1, shape=(2, 3)).asnumpy(), nd.random.normal(shape=4).asnumpy()
    before = random.generator()
    random.seed(7)
    again = random.uniform(0, 1, shape=(2, 3)).asnumpy(), random.normal(shape=4).asnumpy()
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert random.current_seed() == 7 and random.generator() is not before
    random.seed(8)
    assert (random.uniform(shape=(2, 3)).asnumpy() != first[0]).any()


def test_random_arrays_have_the_asked_range_shape_and_dtype():
    values = random.uniform(-2, 3, shape=(2000,)).asnumpy()
    assert values.dtype == np.float32 and -2 <= values.min() < -1.9 and 2.9 < values.max() <= 3
    values = random.normal(5, 2, shape=(4000,), dtype="float64").asnumpy()
    assert values.dtype == np.float64 and abs(values.mean() - 5) < 0.2 and abs(values.std() - 2) < 0.2
    out = nd.zeros((2, 2))
    assert random.uniform(1, 2, out=out) is out and (out.asnumpy() >= 1).all()
    assert random.uniform().shape == (1,)


def test_a_seed_for_one_device_only_is_refused():
    with pytest.raises(ValueError, match="all devices"):
        random.seed(1, ctx=gpu(0))

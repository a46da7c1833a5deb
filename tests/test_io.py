"""Iterators: which rows a batch holds, how many are padding, and when memory is shared."""
from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

import minigraph as mx
from minigraph import io, random
from minigraph import ndarray as nd
from minigraph.base import MXNetError
from minigraph.formats.idx import read_idx
from tests.training import in_a_forked_child

REAL_FILES = Path(__file__).resolve().parents[1].parent / "shared" / "compat"


def rows_of(iterator, reset=False):
    """[(first column of the data as ints, pad)] of one epoch."""
    if reset:
        iterator.reset()
    return [(batch.data[0].asnumpy().reshape(iterator.batch_size, -1)[:, 0].astype(int).tolist(), batch.pad)
            for batch in iterator]


def ten(**kwargs):
    return io.NDArrayIter(np.arange(10, dtype=np.float32), np.arange(10) * 10, batch_size=4, **kwargs)


# -- descriptions and batches --------------------------------------------------------------------------


def test_a_description_is_a_pair_with_type_and_layout():
    desc = io.DataDesc("data", [2, 3], np.float16, "NT")
    assert desc == ("data", (2, 3)) and (desc.dtype, desc.layout) == (np.float16, "NT")
    name, shape = io.DataDesc("x", (1,))
    assert (name, shape) == ("x", (1,))
    assert [io.DataDesc.get_batch_axis(layout) for layout in ("NCHW", "TNC", "C", None)] == [0, 1, -1, 0]


def test_a_batch_takes_lists_only_and_prints_its_shapes():
    batch = io.DataBatch([nd.ones((2, 3))], [nd.ones(2)], pad=1)
    assert str(batch) == "DataBatch: data shapes: [(2, 3)] label shapes: [(2,)]" and batch.pad == 1
    assert str(io.DataBatch([nd.ones(1)])).endswith("label shapes: None")
    with pytest.raises(TypeError, match="data must be a list"):
        io.DataBatch(nd.ones(2))


# -- NDArrayIter ---------------------------------------------------------------------------------------


def test_pad_wraps_from_the_start_and_reports_two_rows_of_ten_at_batch_four():
    iterator = ten()
    expected = [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9, 0, 1], 2)]
    assert rows_of(iterator) == expected
    assert rows_of(iterator) == [], "an epoch ends until reset"
    assert rows_of(iterator, reset=True) == expected


def test_labels_and_row_numbers_belong_to_the_rows():
    for batch in ten(shuffle=True):
        np.testing.assert_array_equal(batch.label[0].asnumpy(), batch.data[0].asnumpy() * 10)
        np.testing.assert_array_equal(batch.index, batch.data[0].asnumpy())


def test_pad_fills_a_batch_larger_than_the_data_by_going_round():
    assert rows_of(io.NDArrayIter(np.arange(4), batch_size=9)) == [([0, 1, 2, 3, 0, 1, 2, 3, 0], 5)]


def test_discard_drops_the_rest():
    iterator = ten(last_batch_handle="discard")
    for _ in range(2):
        assert rows_of(iterator, reset=True) == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)]


def test_roll_over_begins_the_next_epoch_with_the_rest():
    iterator = ten(last_batch_handle="roll_over")
    assert rows_of(iterator) == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)]
    assert rows_of(iterator, reset=True) == [([8, 9, 0, 1], 0), ([2, 3, 4, 5], 0), ([6, 7, 8, 9], 0)]
    assert rows_of(iterator, reset=True)[0] == ([0, 1, 2, 3], 0)
    iterator.hard_reset()
    assert rows_of(iterator) == [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0)]


def test_a_reset_in_the_middle_begins_anew_and_carries_nothing():
    iterator = ten(last_batch_handle="roll_over")
    iterator.next()
    iterator.reset()
    assert iterator.next().data[0].asnumpy().tolist() == [0, 1, 2, 3]


def test_every_reset_shuffles_anew_and_a_seed_repeats_it():
    def epochs():
        random.seed(3)
        iterator = ten(shuffle=True, last_batch_handle="discard")
        return [rows_of(iterator), rows_of(iterator, reset=True)]

    first = epochs()
    assert first[0] != first[1] and first == epochs()
    iterator = io.NDArrayIter(np.arange(12), batch_size=4, shuffle=True)
    assert sorted(sum((rows for rows, _ in rows_of(iterator)), [])) == list(range(12))


def test_padding_of_a_shuffled_epoch_repeats_its_own_first_rows():
    rows = rows_of(ten(shuffle=True))
    assert rows[-1][0][2:] == rows[0][0][:2] and rows[-1][1] == 2


def test_rolled_over_rows_of_a_shuffled_epoch_are_those_that_were_left():
    iterator = ten(shuffle=True, last_batch_handle="roll_over")
    seen = sum((rows for rows, _ in rows_of(iterator)), [])
    left = set(range(10)) - set(seen)
    assert set(rows_of(iterator, reset=True)[0][0][:2]) == left


def test_names_come_from_arguments_lists_and_dicts():
    def names(data, **kwargs):
        return [desc.name for desc in io.NDArrayIter(data, batch_size=1, **kwargs).provide_data]

    one = np.ones((2, 3))
    assert names(one) == ["data"] and names(one, data_name="x") == ["x"] and names([one]) == ["data"]
    assert names([one, one]) == ["_0_data", "_1_data"]
    assert names({"b": one, "a": one}) == ["a", "b"]
    assert names([[1, 2], [3, 4]]) == ["data"]


def test_descriptions_have_the_batch_shape_and_numpy_becomes_float32():
    iterator = io.NDArrayIter({"x": np.ones((5, 3, 2), np.uint8)}, {"y": nd.zeros(5, dtype="int32")},
                              batch_size=2, layout="NTC")
    (data,), (label,) = iterator.provide_data, iterator.provide_label
    assert (data.name, data.shape, data.dtype, data.layout) == ("x", (2, 3, 2), np.float32, "NTC")
    assert (label.name, label.shape, label.dtype) == ("y", (2,), np.int32)
    batch = iterator.next()
    assert batch.data[0].dtype == np.float32 and batch.label[0].dtype == np.int32
    assert io.NDArrayIter(np.ones(2)).provide_label == []


def test_an_ndarray_source_is_read_at_each_batch():
    source = nd.zeros((4, 1))
    iterator = io.NDArrayIter(source, batch_size=2)
    iterator.next()
    source[:] = 7
    assert iterator.next().data[0].asnumpy().tolist() == [[7], [7]]


@pytest.mark.parametrize("make,message", [
    (lambda: io.NDArrayIter(np.ones(3), np.ones(4)), "equally many rows.*'data': 3.*'softmax_label': 4"),
    (lambda: io.NDArrayIter(None), "needs data"),
    (lambda: io.NDArrayIter(np.ones((0, 2))), "at least one row"),
    (lambda: io.NDArrayIter(np.ones(3), batch_size=0), "batch_size is 0; it must be a whole number of 1 or more"),
    (lambda: io.NDArrayIter(np.ones(3), last_batch_handle="drop"), "'drop'"),
    (lambda: io.NDArrayIter(np.ones(3), batch_size=4, last_batch_handle="discard"), "4 is above the 3 rows"),
])
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_iterator_over_texts_is_refused():
    with pytest.raises(TypeError, match="softmax_label takes real numbers"):
        io.NDArrayIter(np.ones(2), np.array(["cat", "dog"]))


def test_a_scaled_iterator_divides_bytes_batch_by_batch():
    iterator = io.ScaledIter(np.array([0, 51, 255], np.uint8), np.array([0, 1, 2]), batch_size=3)
    batch = iterator.next()
    expected = np.array([0, 51, 255], np.float32) / np.float32(255)
    np.testing.assert_array_equal(batch.data[0].asnumpy(), expected)
    assert batch.data[0].dtype == np.float32 and batch.label[0].asnumpy().tolist() == [0, 1, 2]


# -- iterators around iterators ------------------------------------------------------------------------


def test_resize_lengthens_across_the_end_and_shortens():
    assert [rows for rows, _ in rows_of(io.ResizeIter(ten(last_batch_handle="discard"), 3))] == [
        [0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    short = io.ResizeIter(ten(), 1)
    assert rows_of(short) == rows_of(short, reset=True) == [([0, 1, 2, 3], 0)]
    assert short.provide_data == ten().provide_data and short.provide_label == ten().provide_label


def test_resize_goes_on_where_it_stopped_when_told_so():
    iterator = io.ResizeIter(ten(), 2, reset_internal=False)
    rows_of(iterator)
    assert rows_of(iterator, reset=True) == [([8, 9, 0, 1], 2), ([0, 1, 2, 3], 0)]


def test_prefetching_gives_the_same_batches_in_every_epoch():
    iterator = io.PrefetchingIter(ten())
    assert rows_of(iterator) == rows_of(ten()) and list(iterator) == []
    assert rows_of(iterator, reset=True) == rows_of(ten())
    iterator.reset()
    iterator.next()
    assert rows_of(iterator, reset=True) == rows_of(ten()), "a reset in the middle begins anew"
    iterator.close()


def test_prefetching_joins_iterators_and_renames():
    iterator = io.PrefetchingIter([ten(), ten()], [{"data": "a"}, {"data": "b"}],
                                  [{"softmax_label": "la"}, {"softmax_label": "lb"}])
    assert [desc.name for desc in iterator.provide_data + iterator.provide_label] == ["a", "b", "la", "lb"]
    batch = iterator.next()
    assert len(batch.data) == len(batch.label) == 2 and batch.provide_data[1] == ("b", (4,))
    iterator.close()


def test_prefetching_refuses_iterators_of_different_lengths():
    iterator = io.PrefetchingIter([ten(), ten(last_batch_handle="discard")])
    iterator.next()
    iterator.next()
    with pytest.raises(MXNetError, match="different numbers of batches"):
        iterator.next()
    iterator.close()


def test_an_error_in_the_prefetching_thread_is_raised_by_next():
    class Broken(io.DataIter):
        def next(self):
            raise OSError("disk gone")

    iterator = io.PrefetchingIter(Broken(1))
    with pytest.raises(OSError, match="disk gone"):
        iterator.next()
    iterator.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_told_that_the_threads_of_its_parents_iterator_are_not_there():
    iterator = io.PrefetchingIter(ten())
    iterator.next()
    for call in (iterator.next, iterator.reset):
        assert "forked without its threads; make the iterator in the process that uses it" in in_a_forked_child(call)
    iterator.close()


def test_an_iterator_of_ones_own_needs_only_its_parts():
    class Three(io.DataIter):
        left = 3

        def iter_next(self):
            self.left -= 1
            return self.left >= 0

        def getdata(self):
            return [nd.full(1, self.left)]

        def getlabel(self):
            return []

    assert [batch.data[0].asscalar() for batch in Three(1)] == [2, 1, 0]
    with pytest.raises(NotImplementedError, match="Three must define provide_data"):
        _ = Three(1).provide_data


def test_an_iterator_of_ones_own_may_describe_itself_by_attributes_and_have_no_labels():
    class Noise(io.DataIter):
        def __init__(self):
            self.batch_size = 2
            self.provide_data = [("noise", (2, 3))]
            self.provide_label = []

        def iter_next(self):
            return True

        def getdata(self):
            return [nd.ones((2, 3))]

    noise = Noise()
    module = mx.mod.Module(mx.sym.Variable("noise") * 2, data_names=("noise",), label_names=None)
    module.bind(noise.provide_data, noise.provide_label)
    module.init_params()
    batch = noise.next()
    module.forward(batch)
    assert module.get_outputs()[0].asnumpy().tolist() == [[2, 2, 2]] * 2 and batch.label is None
    assert module.predict(io.ResizeIter(noise, 3)).shape == (6, 3)


# -- files ---------------------------------------------------------------------------------------------


def write_idx(path, array, zipped=False):
    data = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


@pytest.fixture
def mnist(tmp_path):
    """Ten images whose pixels are their number, labels likewise; the labels are gzipped."""
    images = np.repeat(np.arange(10, dtype=np.uint8), 28 * 28).reshape(10, 28, 28)
    labels = images[:, 0, 0]
    return write_idx(tmp_path / "images", images), write_idx(tmp_path / "labels", labels, zipped=True)


def test_mnist_values_are_divided_by_256_and_the_rest_is_dropped(mnist):
    iterator = io.MNISTIter(*mnist, batch_size=4, shuffle=False, silent=True)
    batches = list(iterator)
    assert len(batches) == 2 and batches[1].data[0].shape == (4, 1, 28, 28)
    assert batches[1].data[0].asnumpy()[:, 0, 5, 5].tolist() == [4 / 256, 5 / 256, 6 / 256, 7 / 256]
    assert batches[1].label[0].asnumpy().tolist() == [4, 5, 6, 7]
    assert iterator.provide_label == [("softmax_label", (4,))]


def test_mnist_flat_shuffled_by_seed_and_in_parts(mnist):
    def labels(**kwargs):
        return [int(label) for batch in io.MNISTIter(*mnist, batch_size=5, flat=True, silent=True, **kwargs)
                for label in batch.label[0].asnumpy()]

    assert labels(seed=1) == labels(seed=1) != labels(seed=2)
    assert sorted(labels()) == list(range(10)) != labels()
    assert labels(shuffle=False, num_parts=2, part_index=1) == [5, 6, 7, 8, 9]
    iterator = io.MNISTIter(*mnist, batch_size=5, flat=True, silent=True, data_shape=(784,), label_name="y")
    assert iterator.provide_data == [("data", (5, 784))] and iterator.provide_label == [("y", (5,))]
    for batch in iterator:
        np.testing.assert_array_equal(batch.data[0].asnumpy()[:, 0] * 256, batch.label[0].asnumpy())


def test_mnist_refuses_what_does_not_fit(mnist, tmp_path):
    images, labels = mnist
    with pytest.raises(ValueError, match=r"\(784,\).*flat=False.*\(1, 28, 28\)"):
        io.MNISTIter(images, labels, data_shape=(784,))
    few = write_idx(tmp_path / "few", np.zeros(3, np.uint8))
    with pytest.raises(MXNetError, match="10 images, but .*few has 3 labels"):
        io.MNISTIter(images, few)
    with pytest.raises(ValueError, match="part_index"):
        io.MNISTIter(images, labels, num_parts=2, part_index=2)


def test_a_damaged_idx_file_is_named(tmp_path):
    good = write_idx(tmp_path / "good", np.zeros((2, 3, 3), np.uint8))
    data = good.read_bytes()
    zipped = gzip.compress(data)
    for broken, message in ((data[:-1], r"shape \(2, 3, 3\), 18 bytes, but 17 follow"),
                            (data[:7], "not an IDX file"), (b"\x1f\x8bxx", "damaged gzip"),
                            (zipped[:-9], "damaged gzip"),
                            (zipped[:12] + b"\xff\xff" + zipped[14:], "damaged gzip")):
        good.write_bytes(broken)
        with pytest.raises(MXNetError, match=f"good: .*{message}|good: {message}"):
            read_idx(good, 3)
    good.write_bytes(data)
    with pytest.raises(MXNetError, match="in 1 dimensions"):
        read_idx(good, 1)


def test_the_real_mnist_test_images_are_read():
    images, labels = REAL_FILES / "mnist-test-images.gz", REAL_FILES / "mnist-test-labels.gz"
    if not images.exists():
        pytest.skip("the MNIST test images are not beside this repository")
    batch = io.MNISTIter(images, labels, batch_size=10000, shuffle=False, silent=True).next()
    assert batch.data[0].shape == (10000, 1, 28, 28)
    assert batch.label[0].asnumpy()[:5].tolist() == [7, 2, 1, 0, 4]
    assert 0.12 < batch.data[0].asnumpy().mean() < 0.14


@pytest.fixture
def csv(tmp_path):
    """Six rows of three numbers, and a label for each."""
    data, labels = tmp_path / "data.csv", tmp_path / "labels.csv"
    data.write_text("".join(f"{row},{row}.5,{row + 1}\n" for row in range(6)))
    labels.write_text("".join(f"{row * 2}\n" for row in range(6)))
    return data, labels


def test_csv_rows_are_reshaped_and_labelled(csv):
    iterator = io.CSVIter(csv[0], (1, 3), csv[1], batch_size=2)
    batch = iterator.next()
    assert batch.data[0].asnumpy().tolist() == [[[0, 0.5, 1]], [[1, 1.5, 2]]]
    assert batch.label[0].asnumpy().tolist() == [0, 2]
    assert io.CSVIter(csv[0], (3,), batch_size=3).next().label[0].asnumpy().tolist() == [0, 0, 0]


def test_csv_with_round_batch_goes_on_after_the_rows_that_completed_the_last_batch(csv):
    iterator = io.CSVIter(csv[0], (3,), batch_size=4)
    assert rows_of(iterator) == [([0, 1, 2, 3], 0), ([4, 5, 0, 1], 2)]
    assert rows_of(iterator, reset=True) == [([2, 3, 4, 5], 0)]
    assert rows_of(iterator, reset=True) == [([0, 1, 2, 3], 0), ([4, 5, 0, 1], 2)]
    iterator = io.CSVIter(csv[0], (3,), batch_size=4, round_batch=False)
    for _ in range(2):
        assert rows_of(iterator, reset=True) == [([0, 1, 2, 3], 0), ([4, 5, 0, 1], 2)]


def test_csv_files_that_do_not_fit_are_named(csv, tmp_path):
    with pytest.raises(MXNetError, match=r"data.csv: has 6 lines of 3 .*shape \(2, 2\) needs 4 a line"):
        io.CSVIter(csv[0], (2, 2))
    words = tmp_path / "words.csv"
    words.write_text("my header, foo\n1,2\n")
    with pytest.raises(MXNetError, match="words.csv: not lines of numbers"):
        io.CSVIter(words, (2,))
    words.write_text("1\n2\n")
    with pytest.raises(ValueError, match="equally many rows"):
        io.CSVIter(csv[0], (3,), words)


def test_an_iterator_gives_the_whole_arrays_by_name():
    iterator = io.NDArrayIter({"b": np.ones((4, 3)), "a": nd.zeros((4, 2), dtype="int8")}, np.arange(4), batch_size=2)
    (first, a), (second, b) = iterator.data
    assert (first, second) == ("a", "b") and a.dtype == np.int8 and b.dtype == np.float32 and b.shape == (4, 3)
    assert iterator.label[0][0] == "softmax_label" and iterator.label[0][1].asnumpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("label", [None, [], {}, ()])
def test_without_labels_batches_have_none(label):
    iterator = io.NDArrayIter(np.ones((4, 3)), label, batch_size=2)
    assert iterator.provide_label == [] and iterator.label == [] and next(iterator).label == []


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
def test_numbers_of_a_text_file_are_read_in_the_dtype_asked_for(tmp_path, dtype):
    data, labels = tmp_path / "data.csv", tmp_path / "label.csv"
    data.write_text("1,16777217\n3,4\n")
    labels.write_text("0\n16777217\n")
    iterator = io.CSVIter(data, (2,), labels, batch_size=2, dtype=dtype)
    batch = next(iterator)
    for array, expected in ((batch.data[0], [[1, 16777217], [3, 4]]), (batch.label[0], [0, 16777217])):
        assert array.dtype == np.dtype(dtype) and array.asnumpy().tolist() == expected
    assert iterator.provide_data[0].dtype == np.dtype(dtype)

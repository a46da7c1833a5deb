"""Data are the caller's, an iterator's and a batch's own: writing into one of them changes none of the others."""
from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph import io, nd, recordio

DTYPES = [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, bool]


def rows(dtype: Any = np.float32) -> np.ndarray:
    return np.array([[0, 1], [1, 0], [1, 1], [0, 0]], dtype)


def epoch(iterator: Any) -> tuple[list[Any], list[Any]]:
    """Data and labels of all batches."""
    iterator.reset()
    found: tuple[list[Any], list[Any]] = ([], [])
    for batch in iterator:
        for part, arrays in zip(found, (batch.data, batch.label or ()), strict=True):
            part += [array.asnumpy().tolist() for array in arrays]
    return found


def spoil(iterator: Any) -> None:
    """Write over every array of every batch, as an augmentation in place does."""
    iterator.reset()
    for batch in iterator:
        for array in (*batch.data, *(batch.label or ())):
            array[:] = 77


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_buffer_that_is_filled_again_changes_no_iterator(dtype: Any, shuffle: bool) -> None:
    buffer, labels = rows(dtype), np.arange(4).astype(dtype)
    iterator = io.NDArrayIter(buffer, labels, batch_size=2, shuffle=shuffle)
    right = sorted(zip(rows().tolist(), np.arange(4).astype(dtype).tolist(), strict=True))
    buffer[:], labels[:] = 1, 0
    data, label = epoch(iterator)
    assert sorted(zip(sum(data, []), sum(label, []), strict=True)) == right


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_batch_that_is_written_into_changes_no_data_set(dtype: Any) -> None:
    buffer, labels = rows(dtype), np.arange(4).astype(dtype)
    before = buffer.copy(), labels.copy()
    iterator = io.NDArrayIter(buffer, labels, batch_size=2)
    right = epoch(iterator)
    spoil(iterator)
    assert epoch(iterator) == right
    np.testing.assert_array_equal(buffer, before[0])
    np.testing.assert_array_equal(labels, before[1])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint8"])
def test_batches_of_an_ndarray_are_copies_and_show_it_as_it_is_then(dtype: str) -> None:
    source = nd.array(rows(), dtype=dtype)
    iterator = io.NDArrayIter(source, batch_size=2)
    batch = iterator.next()
    assert batch.data[0].dtype is np.dtype(dtype).type
    batch.data[0][:] = 9
    np.testing.assert_array_equal(source.asnumpy(), rows())
    source[:] = 5
    assert (batch.data[0].asnumpy() == 9).all() and (iterator.next().data[0].asnumpy() == 5).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_whole_array_is_the_one_that_batches_are_taken_from(dtype: Any) -> None:
    buffer = rows(dtype)
    iterator = io.NDArrayIter(buffer, buffer, batch_size=4)
    iterator.data[0][1][1] = 6
    assert (iterator.label[0][1].asnumpy() == rows()).all(), "data and labels of one array are two copies"
    assert iterator.next().data[0].asnumpy().tolist() == [[0, 1], [6, 6], [1, 1], [0, 0]]
    np.testing.assert_array_equal(buffer, rows(dtype))


def test_a_memory_mapped_array_is_read_batch_by_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", rows())
    for mode in ("r", "r+", "c"):
        mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
        iterator = io.NDArrayIter(mapped, batch_size=2)
        assert iterator._data[0].values is mapped, "copying would read all of it"
        spoil(iterator)
        assert sum(epoch(iterator)[0], []) == rows().tolist()
        iterator.data[0][1][:] = 4
        assert (np.load(tmp_path / "x.npy") == rows()).all()


def csv(folder: Path) -> Any:
    (folder / "x.csv").write_text("0,1\n1,0\n1,1\n0,0\n")
    (folder / "y.csv").write_text("0\n1\n2\n3\n")
    return io.CSVIter(str(folder / "x.csv"), (2,), str(folder / "y.csv"), batch_size=2)


def mnist(folder: Path) -> Any:
    for name, header, size in (("x", (0x803, 4, 28, 28), 4 * 784), ("y", (0x801, 4), 4)):
        with gzip.open(folder / f"{name}.gz", "wb") as file:
            file.write(struct.pack(f">{len(header)}I", *header) + bytes(k % 251 for k in range(size)))
    return io.MNISTIter(str(folder / "x.gz"), str(folder / "y.gz"), batch_size=2, shuffle=False, silent=True)


def images(folder: Path) -> Any:
    with recordio.MXIndexedRecordIO(folder / "x.idx", folder / "x.rec", "w") as file:
        for k in range(4):
            image = np.full((3, 3, 3), 10 * k, np.uint8)
            file.write_idx(k, recordio.pack_img(recordio.IRHeader(0, k, k, 0), image, img_fmt=".npy"))
    return io.ImageRecordIter(folder / "x.rec", (3, 3, 3), 2, verbose=False)


def sentences(layout: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        return mx.rnn.BucketSentenceIter([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]], 2, buckets=[3], layout=layout)
    return make


def arrays(folder: Path) -> Any:
    return io.NDArrayIter(rows(np.float64), np.arange(4), batch_size=2)


class Reusing(io.DataIter):
    """A user's iterator that fills one batch again and again."""

    def __init__(self) -> None:
        super().__init__(2)
        self.array, self.number = nd.zeros((2,)), 0
        self.batch = io.DataBatch([self.array], [self.array])
        self.provide_data, self.provide_label = [("data", (2,))], [("label", (2,))]

    def reset(self) -> None:
        self.number = 0

    def next(self) -> io.DataBatch:
        if self.number == 5:
            raise StopIteration
        self.number += 1
        self.array[:] = self.number
        return self.batch


MAKERS: dict[str, Callable[[Path], Any]] = {
    "NDArrayIter": arrays, "CSVIter": csv, "MNISTIter": mnist, "ImageRecordIter": images,
    "BucketSentenceIter NT": sentences("NT"), "BucketSentenceIter TN": sentences("TN"),
    "ResizeIter": lambda folder: io.ResizeIter(arrays(folder), 2),
    "PrefetchingIter": lambda folder: io.PrefetchingIter(arrays(folder)),
    "PrefetchingIter of two": lambda folder: io.PrefetchingIter([arrays(folder), csv(folder)]),
    "PrefetchingIter of a user's": lambda folder: io.PrefetchingIter(Reusing()),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_no_iterator_gives_later_what_was_written_into_a_batch(kind: str, tmp_path: Path) -> None:
    iterator = MAKERS[kind](tmp_path)
    right = [sorted(map(repr, part)) for part in epoch(iterator)]
    rows_of = [sorted(repr(row) for each in part for row in (np.array(each).T if "TN" in kind else each))
               for part in epoch(iterator)]
    spoil(iterator)
    found = epoch(iterator)
    assert [sorted(repr(row) for each in part for row in (np.array(each).T if "TN" in kind else each))
            for part in found] == rows_of
    if "Sentence" not in kind:  # those come in another order
        assert [sorted(map(repr, part)) for part in found] == right


@pytest.mark.parametrize("kind", MAKERS)
def test_a_batch_stays_as_it_is_while_others_come(kind: str, tmp_path: Path) -> None:
    iterator = MAKERS[kind](tmp_path)
    iterator.reset()
    held, seen = [], []
    for batch in iterator:
        held.append([*batch.data, *batch.label])
        seen.append([array.asnumpy() for array in held[-1]])
    for arrays_of, values in zip(held, seen, strict=True):
        for array, value in zip(arrays_of, values, strict=True):
            np.testing.assert_array_equal(array.asnumpy(), value)


def test_batches_of_a_users_iterator_come_in_order_through_threads() -> None:
    iterator = io.PrefetchingIter(Reusing())
    assert epoch(iterator)[0] == [[k, k] for k in range(1, 6)]
    iterator.close()


# -- parameters ----------------------------------------------------------------------------------------------
def module() -> mx.mod.Module:
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    return mx.mod.Module(mx.sym.LinearRegressionOutput(net, name="loss"), label_names=["loss_label"])


def given() -> dict[str, Any]:
    return {"fc_weight": nd.ones((2, 2)), "fc_bias": nd.zeros((2,))}


def bound() -> mx.mod.Module:
    made = module()
    made.bind([("data", (4, 2))], [("loss_label", (4, 2))])
    return made


def weight(of: Any) -> float:
    return float(of.get_params()[0]["fc_weight"].asnumpy()[0, 0])


@pytest.mark.parametrize("way", ["init_params", "set_params", "copy_params_from"])
def test_parameters_that_were_given_are_copied(way: str) -> None:
    made, params = bound(), given()
    if way == "init_params":
        made.init_params(arg_params=params, aux_params={})
    else:
        made.init_params()
        {"set_params": lambda: made.set_params(params, {}),
         "copy_params_from": lambda: made._executor.copy_params_from(params)}[way]()
    params["fc_weight"][:] = 9
    assert weight(made) == 1


def test_parameters_that_were_asked_for_are_copies(tmp_path: Path) -> None:
    made = bound()
    made.set_params(given(), {})
    made.get_params()[0]["fc_weight"][:] = 9
    assert weight(made) == 1
    made.save_checkpoint(str(tmp_path / "m"), 1)
    loaded = mx.mod.Module.load(str(tmp_path / "m"), 1, label_names=["loss_label"])
    loaded.get_params()[0]["fc_weight"][:] = 9
    loaded.bind([("data", (4, 2))], [("loss_label", (4, 2))])
    assert weight(loaded) == 1


def test_parameters_of_buckets_that_were_given_are_copied() -> None:
    params = given()
    buckets = mx.mod.BucketingModule.load_dict({1: module().symbol}, lambda key: (
        module().symbol, ["data"], ["loss_label"]), 1, params, {})
    params["fc_weight"][:] = 9
    buckets.bind([("data", (4, 2))], [("loss_label", (4, 2))])
    assert weight(buckets) == 1


def test_arrays_that_were_fed_are_not_shown_themselves() -> None:
    made = bound()
    made.init_params()
    source = np.ones((4, 2), np.float32)
    batch = io.DataBatch([nd.from_numpy(source)], [nd.zeros((4, 2))])
    made.forward(batch, is_train=True)
    made._executor.input_dict["data"][:] = 5
    assert (source == 1).all()


def test_an_array_is_made_of_a_copy() -> None:
    source = rows()
    for made in (nd.array(source), nd.array(nd.array(source)), nd.array(source, dtype="float64")):
        made[:] = 4
    np.testing.assert_array_equal(source, rows())
    made = nd.array(source)
    source[:] = 8
    np.testing.assert_array_equal(made.asnumpy(), rows())

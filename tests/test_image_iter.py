"""ImageRecordIter: what its batches hold, in which order, from which random numbers, and what it refuses."""
from __future__ import annotations

import os
import random
import struct

import numpy as np
import pytest

from minigraph import io, recordio
from minigraph.base import MXNetError
from tests.training import in_a_forked_child


def image(number, height=6, width=5, channels=3):
    """An image whose pixels tell its number, (H, W, C), red first."""
    pixels = np.full((height, width, channels), number, np.uint8)
    pixels[..., 0] = 100 + number
    return pixels


def write(folder, images, labels=None, form=".npy", name="data"):
    """(rec, idx) of images, red first; ids are ten times the numbers."""
    paths = folder / f"{name}.rec", folder / f"{name}.idx"
    file = recordio.MXIndexedRecordIO(paths[1], paths[0], "w")
    for number, pixels in enumerate(images):
        header = recordio.IRHeader(0, number if labels is None else labels[number], 10 * number, 0)
        blue_first = pixels[..., ::-1] if pixels.shape[-1] == 3 else pixels
        file.write_idx(number, recordio.pack_img(header, blue_first, 3 if form == ".png" else 95, form))
    file.close()
    return paths


@pytest.fixture
def ten(tmp_path):
    return write(tmp_path, [image(k) for k in range(10)])


def make(paths, batch_size=4, data_shape=(3, 6, 5), **settings):
    return io.ImageRecordIter(path_imgrec=paths[0], data_shape=data_shape, batch_size=batch_size, verbose=False,
                              **settings)


def epoch(iterator):
    """[(data, labels, pad, index)] of an epoch."""
    return [(batch.data[0].asnumpy(), batch.label[0].asnumpy(), batch.pad, batch.index.tolist()) for batch in iterator]


def test_batches_are_red_first_float32_and_carry_labels_and_ids(ten):
    iterator = make(ten, 5)
    assert [tuple(each) for each in (*iterator.provide_data, *iterator.provide_label)] == [
        ("data", (5, 3, 6, 5)), ("softmax_label", (5,))]
    first, second = epoch(iterator)
    assert first[0].dtype == np.float32 and first[2] == 0 and first[3] == [0, 10, 20, 30, 40]
    assert np.array_equal(second[0], np.stack([image(k).transpose(2, 0, 1) for k in range(5, 10)]))
    assert second[1].tolist() == [5, 6, 7, 8, 9] and second[3] == [50, 60, 70, 80, 90]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_is_told_that_the_threads_of_its_parents_iterator_are_not_there(ten):
    iterator = make(ten)
    assert "this ImageRecordIter was made by the process" in in_a_forked_child(iterator.next)
    assert len(epoch(iterator)) > 1
    iterator.close()


def test_names_are_those_asked_for(ten):
    iterator = make(ten, data_name="image", label_name="class")
    assert (iterator.provide_data[0].name, iterator.provide_label[0].name) == ("image", "class")


def test_pixels_are_normalised_and_augmented_by_mxnets_names(ten):
    batch = make(ten, mean_r=100, mean_b=1, std_g=2, scale=0.5, mirror=True, pad=1, fill_value=9,
                 data_shape=(3, 8, 7)).next().data[0].asnumpy()
    assert (batch[3, :, 1:-1, 1:-1] == np.array([1.5, 0.75, 1.0])[:, None, None]).all()
    assert batch[3, :, 0, 0].tolist() == [-45.5, 2.25, 4.0]


@pytest.mark.parametrize("form", [".png", ".jpg"])
def test_image_files_are_decoded(tmp_path, form):
    pytest.importorskip("PIL")
    paths = write(tmp_path, [image(20 * k, 16, 16) for k in range(4)], form=form)
    batch = make(paths, data_shape=(3, 16, 16)).next()
    expected = np.stack([image(20 * k, 16, 16).transpose(2, 0, 1) for k in range(4)])
    np.testing.assert_allclose(batch.data[0].asnumpy(), expected, atol=0 if form == ".png" else 4)


def test_grey_becomes_colour_and_colour_grey(tmp_path):
    paths = write(tmp_path, [image(50), image(60, channels=1)])
    grey = make(paths, 2, (1, 6, 5)).next().data[0].asnumpy()
    assert grey.shape == (2, 1, 6, 5) and (grey[1] == 160).all() and abs(grey[0, 0, 0, 0] - (0.299 * 150 + 35)) < 1
    colour = make(paths, 2).next().data[0].asnumpy()
    assert (colour[1] == 160).all()


# -- order ---------------------------------------------------------------------------------------------------
def test_a_last_batch_is_completed_by_the_next_epochs_first_rows_which_it_then_leaves_out(ten):
    iterator = make(ten)
    first = epoch(iterator)
    assert [each[2] for each in first] == [0, 0, 2] and first[2][1].tolist() == [8, 9, 0, 1]
    iterator.reset()
    second = epoch(iterator)
    assert [each[1].tolist() for each in second] == [[2, 3, 4, 5], [6, 7, 8, 9]] and second[1][2] == 0
    iterator.reset()
    assert epoch(iterator)[0][1].tolist() == [0, 1, 2, 3]


def test_without_rounding_the_last_batch_ends_in_zeros_and_epochs_are_alike(ten):
    iterator = make(ten, round_batch=False)
    for _ in range(2):
        last = epoch(iterator)[-1]
        assert last[2] == 2 and last[1].tolist() == [8, 9, 0, 0] and not last[0][2:].any()
        iterator.reset()


def test_shuffling_gives_every_image_once_in_new_orders_that_the_seed_repeats(ten):
    def orders(seed):
        iterator = make(ten, 5, shuffle=True, seed=seed)
        for _ in range(3):
            yield [label for each in epoch(iterator) for label in each[1].tolist()]
            iterator.reset()

    one, again, other = (list(orders(seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert all(sorted(each) == list(range(10)) for each in one) and one[0] != one[1] != one[2]


def test_shuffled_epochs_that_round_still_show_every_image_equally_often(ten):
    iterator, counts = make(ten, shuffle=True), np.zeros(10, int)
    for _ in range(4):
        for _, labels, _, _ in epoch(iterator):
            np.add.at(counts, labels.astype(int), 1)  # one batch may have an image of both epochs
        iterator.reset()
    assert (counts == 4).all()


def test_parts_divide_the_file(ten):
    parts = [[label for each in epoch(make(ten, 1, num_parts=3, part_index=k)) for label in each[1].tolist()]
             for k in range(3)]
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    with pytest.raises(MXNetError, match="part_index must be"):
        make(ten, num_parts=2, part_index=2)


def test_an_index_gives_the_same_batches(ten):
    for mine, theirs in zip(epoch(make(ten)), epoch(make(ten, path_imgidx=ten[1])), strict=True):
        assert all(np.array_equal(*pair) for pair in zip(mine, theirs, strict=True))


def test_reset_in_the_middle_begins_the_next_epoch(ten):
    iterator = make(ten, 5)
    iterator.next()
    iterator.reset()
    assert [each[1].tolist() for each in epoch(iterator)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


# -- randomness ----------------------------------------------------------------------------------------------
RANDOM = dict(rand_crop=True, rand_mirror=True, random_h=36, random_l=50, max_rotate_angle=10, pad=2, shuffle=True)


def epochs(paths, count=2, **settings):
    iterator = make(paths, **settings)
    found = []
    for _ in range(count):
        found.append(np.concatenate([each[0] for each in epoch(iterator)]))
        iterator.reset()
    return found


def test_images_depend_on_the_seed_and_not_on_threads_or_batches_ahead(ten):
    one = epochs(ten, seed=3, **RANDOM)
    for settings in ({"preprocess_threads": 1, "prefetch_buffer": 1}, {"preprocess_threads": 7, "prefetch_buffer": 9}):
        assert all(np.array_equal(*pair) for pair in zip(one, epochs(ten, seed=3, **settings, **RANDOM), strict=True))
    other = epochs(ten, seed=4, **RANDOM)
    assert (one[0] != other[0]).any() and (one[0] != epochs(ten, seed=3, seed_aug=5, **RANDOM)[0]).any()


def test_a_batch_stays_as_it_is_when_the_next_ones_come(ten):
    iterator = make(ten, **RANDOM)
    batch = iterator.next()
    before = batch.data[0].asnumpy().copy()
    epoch(iterator)
    assert np.array_equal(batch.data[0].asnumpy(), before)


# -- labels --------------------------------------------------------------------------------------------------
def test_several_labels_a_record(tmp_path):
    paths = write(tmp_path, [image(k) for k in range(4)], [[k, k + 0.5] for k in range(4)])
    iterator = make(paths, 2, label_width=2)
    assert iterator.provide_label[0].shape == (2, 2)
    assert iterator.next().label[0].asnumpy().tolist() == [[0, 0.5], [1, 1.5]]
    with pytest.raises(MXNetError, match="data.rec: image 0: the record has 2 labels, but label_width is 1"):
        make(paths, 2).next()


def test_a_list_replaces_labels(ten):
    path = ten[0].parent / "data.lst"
    path.write_text("".join(f"{10 * k}\t{k + 100}\tname{k}.jpg\n" for k in range(9)))
    iterator = make(ten, 5, path_imglist=path)
    assert iterator.next().label[0].asnumpy().tolist() == [100, 101, 102, 103, 104]
    with pytest.raises(MXNetError, match="image 9: its id 90 is not in path_imglist"):
        iterator.next()
    path.write_text("0\n")
    with pytest.raises(MXNetError, match="data.lst: line 1"):
        make(ten, path_imglist=path)


# -- refusals and damage -------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings,error,said", [
    ({"mean_img": "mean.bin"}, MXNetError, "mean_img='mean.bin'"), ({"aug_seq": "x"}, MXNetError, "aug_seq='x'"),
    ({"dtype": "uint8"}, MXNetError, "dtype='uint8'"), ({"colour": 1}, TypeError, "no parameter colour"),
    ({"batch_size": 0}, MXNetError, "batch_size"), ({"data_shape": (2, 6, 5)}, MXNetError, "data_shape"),
    ({"batch_size": 25}, MXNetError, "10 images, which cannot complete a batch of 25")])
def test_what_is_not_there_is_refused_by_name(ten, settings, error, said):
    with pytest.raises(error, match=said):
        make(ten, **settings)


def test_an_image_too_small_is_named(ten):
    with pytest.raises(MXNetError, match="data.rec: image 0: an image of 6 x 5 pixels is too small to cut out 7 x 5"):
        make(ten, data_shape=(3, 7, 5)).next()


def test_every_truncation_of_a_file_is_one_clear_error_or_fewer_images(ten):
    whole = ten[0].read_bytes()
    draw = random.Random(0)
    counts = set()
    for length in sorted(draw.sample(range(len(whole)), 80)):
        ten[0].write_bytes(whole[:length])
        for index in ("", ten[1]):
            try:
                counts.add(sum(4 - each[2] for each in epoch(make(ten, round_batch=False, path_imgidx=index))))
            except MXNetError as error:
                assert "data.rec" in str(error)
    assert len(counts) <= 1, "only a cut between two records may pass"


@pytest.mark.parametrize("seed", range(40))
def test_damaged_records_are_one_clear_error_or_batches(ten, seed):
    draw = random.Random(seed)
    data = bytearray(ten[0].read_bytes())
    for _ in range(4):
        data[draw.randrange(len(data))] = draw.randrange(256)
    ten[0].write_bytes(data)
    try:
        epoch(make(ten, round_batch=False))
    except MXNetError as error:
        assert "data.rec" in str(error)


def test_a_file_without_records_is_named(tmp_path):
    (tmp_path / "data.rec").write_bytes(b"")
    with pytest.raises(MXNetError, match="data.rec: part 0 of 1 has none of the file's 0 records"):
        make((tmp_path / "data.rec",))


def test_a_record_put_together_by_hand_is_read(tmp_path):
    """The bytes of a record by the format's definition, put together here by hand."""
    pixels = struct.pack("<6sBBH", b"\x93NUMPY", 1, 0, 118)
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 3), }"
    payload = struct.pack("<IfQQ", 0, 7.0, 3, 0) + pixels + text.ljust(117) + b"\n" + bytes(range(6))
    record = struct.pack("<II", 0xCED7230A, len(payload)) + payload
    (tmp_path / "x.rec").write_bytes(record + bytes(-len(record) % 4))
    batch = make((tmp_path / "x.rec",), 1, (3, 1, 2)).next()
    assert batch.data[0].asnumpy().ravel().tolist() == [0, 3, 1, 4, 2, 5] and batch.label[0].asnumpy() == 7


def test_a_closed_iterator_gives_no_further_batches(ten):
    iterator = make(ten, 2, prefetch_buffer=1)
    iterator.next()
    iterator.close()
    with pytest.raises(MXNetError, match="closed"):
        iterator.next()

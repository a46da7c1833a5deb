"""Train a network of the zoo on real images, and say what its memory was planned to be.

    python zoo/train.py --network resnet --arg depth=20 --data digits --epochs 30 --lr 0.02 --lr-step 15,25
    python -m minigraph.zoo.train --network lenet --data mnist5k --augment pad=2 --augment rand_crop=1

One line an epoch tells the accuracy on training and validation images and the seconds it took; the last line tells
the validation accuracy and the planned bytes of a training step beside the naive ones.
"""
from __future__ import annotations

import argparse
import importlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import minigraph as mx
from minigraph.augment import Augmentation
from minigraph.base import MXNetError, format_bytes
from minigraph.loss_scaler import LossScaler
from minigraph.memory.policies import POLICIES
from minigraph.module_support import set_values
from minigraph.networks import load_network, parse_settings
from minigraph.passes.compilation import MEMORY_MODES
from minigraph.plan.report import Report, report
from minigraph.planning import plan

if __package__:
    from . import NETWORKS, data
else:  # run as a file: the installed package has the rest
    from minigraph.zoo import NETWORKS, data  # type: ignore[no-redef]

WITH_MOMENTUM = ("sgd", "nag")


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the arguments say; the exit code is 2, after one line on standard error, for bad input."""
    given = _parser().parse_args(argv)
    try:
        train(given)
    except (MXNetError, OSError) as error:
        print(f"train: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def train(given: argparse.Namespace) -> float:
    """Train and print; the last validation accuracy. `given` has the attributes of the parsed arguments."""
    mx.random.seed(given.seed)
    images = _images(given)
    module = _module(given, images)
    if given.resume is not None:
        _catch_up(module.symbol, images.train, given.resume)
    params = _optimizer_params(given, images.train_size // given.batch)
    progress = Progress(given.epochs, images.train_size // given.batch)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Parameters already initialized")  # so they are, from a checkpoint
        module.fit(images.train, images.validation, eval_metric="acc", num_epoch=given.epochs,
                   begin_epoch=given.resume or 0, optimizer=given.optimizer, optimizer_params=params,
                   initializer=_initializer(), batch_end_callback=progress.on_batch,
                   eval_end_callback=progress.on_validation, epoch_end_callback=_saving(module, given.save_prefix))
    figures = planned(module, images, given.optimizer, params, **_memory(given))
    print(f"validation accuracy {progress.validation:.4f}; a training step takes {format_bytes(figures.planned_bytes)} "
          f"planned against {format_bytes(figures.naive_bytes)} naive (lower bound "
          f"{format_bytes(figures.lower_bound_bytes)})")
    return progress.validation


def _images(given: argparse.Namespace) -> data.Dataset:
    try:
        augmentation = Augmentation(**parse_settings(given.augment)) if given.augment else None
        return data.load(given.data, given.batch, seed=given.seed, image=given.image, augmentation=augmentation,
                         data_dir=given.data_dir, **parse_settings(given.data_arg))
    except (TypeError, ValueError) as error:
        raise MXNetError(f"data set {given.data}: {error}") from error


def _memory(given: argparse.Namespace) -> dict[str, Any]:
    """What the command line says of memory, as Module and `plan` take it."""
    return {"memory": given.memory, "budget": given.budget, "host_budget": given.host_budget, "disk": given.disk,
            "search": given.search}


def planned(module: Any, images: data.Dataset, optimizer: str, params: dict[str, Any], **memory: Any) -> Report:
    """The report of the step that the module trained with; `memory` are the options that it was made with."""
    described = [*images.train.provide_data, *images.train.provide_label]
    return report(plan(module.symbol, {desc.name: desc.shape for desc in described}, optimizer, "step", **memory,
                       dtypes={desc.name: desc.dtype for desc in described}, optimizer_params=params))


class Progress:
    """Callbacks that show a bar of batches, where tqdm is installed and a person watches, and a line an epoch.

    `validation` is the accuracy of the last validation.
    """

    def __init__(self, epochs: int, batches: int) -> None:
        self.validation = float("nan")
        self._epochs, self._batches = epochs, batches
        self._make_bar = _tqdm()
        self._bar: Any = None
        self._train = float("nan")
        self._started = time.perf_counter()

    def on_batch(self, param: Any) -> None:
        """After each training batch."""
        self._train = param.eval_metric.get()[1]
        if self._make_bar is not None:
            if self._bar is None:
                self._bar = self._make_bar(total=self._batches, desc=f"epoch {param.epoch + 1}/{self._epochs}",
                                           leave=False, disable=None)
            self._bar.update()

    def on_validation(self, param: Any) -> None:
        """After each epoch's validation: print the line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self.validation = param.eval_metric.get()[1]
        now = time.perf_counter()
        print(f"epoch {param.epoch + 1}/{self._epochs}  train {self._train:.4f}  validation {self.validation:.4f}  "
              f"{now - self._started:.1f} s", flush=True)
        self._started = now


def _tqdm() -> Callable[..., Any] | None:
    try:
        return importlib.import_module("tqdm").tqdm
    except ImportError:
        return None


def _module(given: argparse.Namespace, images: data.Dataset) -> Any:
    """A new module, or the one of a checkpoint."""
    if given.resume is not None:
        if given.save_prefix is None:
            raise MXNetError("--resume EPOCH goes on from the checkpoint of --save-prefix; give that as well")
        if given.resume >= given.epochs:
            raise MXNetError(f"--resume {given.resume} leaves nothing to train up to --epochs {given.epochs}")
        return mx.mod.Module.load(given.save_prefix, given.resume, load_optimizer_states=True, **_memory(given))
    network = f"zoo.{given.network}" if given.network in NETWORKS else given.network
    settings = {"num_classes": images.num_classes, **parse_settings(given.arg)}
    symbol = load_network(network, settings, {"data": (given.batch, *images.shape)})
    return mx.mod.Module(symbol, **_memory(given))


def _catch_up(symbol: Any, data: Any, epochs: int) -> None:
    """Draw what the first epochs drew (parameters, and an order of rows for each), so that the next one is what it
    would have been without the interruption."""
    inputs = {desc.name: desc.shape for desc in (*data.provide_data, *data.provide_label)}
    shapes, _, _ = symbol.infer_shape(**inputs)
    drawn = {name: mx.nd.zeros(shape) for name, shape in zip(symbol.list_arguments(), shapes, strict=True)
             if name not in inputs}
    set_values([(drawn, None)], _initializer(), symbol.attr_dict())
    for _ in range(epochs):
        data.reset()


def _optimizer_params(given: argparse.Namespace, batches: int) -> dict[str, Any]:
    """Rate, decay, momentum where the optimizer has it, and a loss scale and a schedule where they are asked for."""
    params: dict[str, Any] = {"learning_rate": given.lr, "wd": given.wd}
    if given.optimizer in WITH_MOMENTUM:
        params["momentum"] = given.momentum
    if given.loss_scale is not None:
        params["loss_scale"] = given.loss_scale
    if given.lr_step:
        steps = [epoch * batches for epoch in given.lr_step]
        try:
            params["lr_scheduler"] = mx.lr_scheduler.MultiFactorScheduler(steps, given.lr_factor, base_lr=given.lr)
        except ValueError as error:
            raise MXNetError(f"--lr-step {given.lr_step}, --lr-factor {given.lr_factor}: {error}") from error
    return params


def _initializer() -> Any:
    """He's normal initialisation (arXiv:1502.01852), as in MXNet's own training scripts."""
    return mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)


def _saving(module: Any, prefix: str | None) -> Any:
    return None if prefix is None else mx.callback.module_checkpoint(module, prefix, save_optimizer_states=True)


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers between commas") from None


def _image(text: str) -> tuple[int, ...]:
    shape = _integers(text)
    if len(shape) != 3 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be three whole numbers of 1 or more: channels, height, width")
    return shape


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} must be a finite number")
    return value


def _loss_scale(text: str) -> float | str:
    """"dynamic", or a power of two."""
    try:
        value = text if text == "dynamic" else float(text)
        LossScaler.of(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be `dynamic` or a power of two, such as 1024") from None
    return value


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of 1 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="train", description="Train a network of the zoo.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--network", default="resnet", help=f"{', '.join(NETWORKS)}, or a Python file with get_symbol")
    add("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the network's get_symbol")
    add("--data", default="digits", help="digits, mnist5k, mnist, cifar10 or synthetic")
    add("--data-dir", help="the folder with the files of mnist or cifar10")
    add("--data-arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of the synthetic data set")
    add("--image", type=_image, metavar="C,H,W", help="enlarge or reduce the images to this shape")
    add("--augment", action="append", default=[], metavar="NAME=VALUE",
        help="an augmentation of training images by ImageRecordIter's names, such as pad=4, rand_crop=1, rand_mirror=1")
    add("--epochs", type=_positive, default=30, help="train up to this epoch")
    add("--batch", type=_positive, default=32, help="images of a batch")
    add("--optimizer", default="sgd", choices=("sgd", "nag", "adam"), help="optimizer")
    add("--lr", type=_number, default=0.02, help="learning rate")
    add("--lr-step", type=_integers, default=(), metavar="E,E", help="epochs after which the rate drops")
    add("--lr-factor", type=_number, default=0.1, help="factor of each drop")
    add("--wd", type=_number, default=5e-4, help="weight decay")
    add("--momentum", type=_number, default=0.9, help="momentum of sgd and nag")
    add("--loss-scale", type=_loss_scale, metavar="NUMBER",
        help="a power of two that gradients are multiplied by on their way, or `dynamic`")
    add("--seed", type=int, default=0, help="seed of everything random")
    add("--memory", choices=(*MEMORY_MODES, *POLICIES), help="memory mode or policy; plain, or auto with a budget")
    add("--budget", help="bytes of the device's arenas, such as 500MiB; kept or refused before training")
    add("--host-budget", help="bytes of host memory that a policy may swap to")
    add("--disk", help="a folder for swap files")
    add("--search", default="default", choices=("default", "full"), help="`full` lets `auto` weigh every policy")
    add("--save-prefix", help="write PREFIX-symbol.json, and PREFIX-NNNN.params and .states after each epoch")
    add("--resume", type=_positive, metavar="EPOCH", help="go on from the checkpoint after this epoch")
    return parser


if __name__ == "__main__":
    sys.exit(main())

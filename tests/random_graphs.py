"""Random symbols for the tests: several consumers, views, shared variables, several heads, mixed requests."""
from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minigraph as mx
from minigraph.executor import Executor


@dataclass
class Case:
    """A symbol with everything that binding and running it takes."""

    symbol: mx.sym.Symbol
    shapes: dict[str, tuple[int, ...]]
    requests: dict[str, str]
    heads: list[str]
    """Outputs that need a head gradient."""


def base_seed() -> int:
    """The first seed of a run: given, or drawn from the commit, so that every change tries other graphs."""
    if "MINIGRAPH_TEST_SEED" in os.environ:
        return int(os.environ["MINIGRAPH_TEST_SEED"])
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True,
                                check=True).stdout.strip()
        return int(commit[:8], 16)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def seeds() -> list[int]:
    """The seeds of this run; MINIGRAPH_TEST_GRAPHS says how many."""
    first = base_seed()
    return [first + k for k in range(int(os.environ.get("MINIGRAPH_TEST_GRAPHS", "100")))]


class Generator:
    """Grows a pool of values of a few shapes by random operators."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.batch = int(self.rng.choice([1, 2, 3]))
        self.image = (self.batch, 4, 6, 6)
        self.flat = (self.batch, 8)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.images = [self._variable(f"x{k}", self.image) for k in range(self.rng.integers(1, 3))]
        self.flats = [self._variable("f0", self.flat)]
        self.weights: list[mx.sym.Symbol] = []
        self.counter = 0

    def case(self) -> Case:
        """A finished symbol."""
        for _ in range(int(self.rng.integers(4, 18))):
            (self._grow_image if self.rng.random() < 0.65 else self._grow_flat)()
        heads, needing = self._heads()
        symbol = mx.sym.Group(heads)
        words = ["write", "write", "add", "null"]
        requests = {name: str(self.rng.choice(words)) for name in symbol.list_arguments() if not name.endswith("label")}
        shapes = {name: shape for name, shape in self.shapes.items() if name in symbol.list_arguments()}
        return Case(symbol, shapes, requests, [h.list_outputs()[0] for h in needing])

    def _variable(self, name: str, shape: tuple[int, ...]) -> mx.sym.Symbol:
        self.shapes[name] = shape
        return mx.sym.Variable(name)

    def _name(self) -> str:
        self.counter += 1
        return f"n{self.counter}"

    def _pick(self, pool: list) -> mx.sym.Symbol:
        recent = pool[-3:]
        return recent[self.rng.integers(len(recent))] if self.rng.random() < 0.7 else pool[self.rng.integers(len(pool))]

    def _grow_image(self) -> None:
        kind = self.rng.choice(["unary", "scalar", "binary", "self", "conv", "shared", "bn", "act", "pool", "view",
                                "transpose", "concat", "dropout", "addn", "copy", "block", "bias"])
        self.images.append(getattr(self, f"_image_{kind}")(self._pick(self.images)))

    def _image_unary(self, x):
        return getattr(mx.sym, str(self.rng.choice(["tanh", "sigmoid", "square", "relu"])))(x, name=self._name())

    def _image_scalar(self, x):
        return x * float(self.rng.uniform(0.5, 1.5)) if self.rng.random() < 0.5 else 1.0 - x

    def _image_binary(self, x):
        y = self._pick(self.images)
        return [lambda: x + y, lambda: x - y, lambda: x * y][self.rng.integers(3)]()

    def _image_self(self, x):
        return x + x if self.rng.random() < 0.5 else x * x

    def _image_conv(self, x):
        groups = int(self.rng.choice([1, 2]))
        return mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=4, num_group=groups, name=self._name(),
                                  no_bias=bool(self.rng.random() < 0.5))

    def _image_shared(self, x):
        if not self.weights or self.rng.random() < 0.3:
            self.weights.append(self._variable(f"w{len(self.weights)}", (4, 4, 3, 3)))
        weight = self.weights[self.rng.integers(len(self.weights))]
        return mx.sym.Convolution(x, weight=weight, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True,
                                  name=self._name())

    def _image_bn(self, x):
        return mx.sym.BatchNorm(x, fix_gamma=bool(self.rng.random() < 0.3), name=self._name())

    def _image_act(self, x):
        kind = str(self.rng.choice(["relu", "tanh", "sigmoid", "softrelu"]))
        return mx.sym.Activation(x, act_type=kind, name=self._name())

    def _image_pool(self, x):
        kind = str(self.rng.choice(["max", "avg"]))
        return mx.sym.Pooling(x, kernel=(3, 3), stride=(1, 1), pad=(1, 1), pool_type=kind, name=self._name())

    def _image_view(self, x):
        flat = mx.sym.Reshape(x, shape=(0, -1), name=self._name())
        return mx.sym.Reshape(flat, shape=(-1, *self.image[1:]), name=self._name())

    def _image_transpose(self, x):
        return mx.sym.transpose(x, axes=(0, 1, 3, 2), name=self._name())

    def _image_concat(self, x):
        both = mx.sym.Concat(x, self._pick(self.images), dim=1, name=self._name())
        return mx.sym.Convolution(both, kernel=(1, 1), num_filter=4, name=self._name())

    def _image_dropout(self, x):
        return mx.sym.Dropout(x, p=0.4, name=self._name())

    def _image_addn(self, x):
        return mx.sym.add_n(x, self._pick(self.images), self._pick(self.images), name=self._name())

    def _image_copy(self, x):
        return mx.sym.identity(x, name=self._name())

    def _image_block(self, x):
        return mx.sym.BlockGrad(x, name=self._name()) + x

    def _image_bias(self, x):
        bias = self._variable(f"b{len(self.shapes)}", (1, 4, 1, 1))
        return mx.sym.broadcast_add(x, bias, name=self._name())

    def _grow_flat(self) -> None:
        kind = self.rng.choice(["fc", "from_image", "softmax", "act", "binary", "mean"])
        x = self._pick(self.flats)
        if kind == "fc":
            x = mx.sym.FullyConnected(x, num_hidden=8, name=self._name())
        elif kind == "from_image":
            x = mx.sym.FullyConnected(mx.sym.Flatten(self._pick(self.images), name=self._name()), num_hidden=8,
                                      name=self._name())
        elif kind == "softmax":
            x = mx.sym.softmax(x, name=self._name())
        elif kind == "act":
            x = mx.sym.Activation(x, act_type="tanh", name=self._name())
        elif kind == "binary":
            x = x * self._pick(self.flats)
        else:
            mean = mx.sym.mean(self._pick(self.images), axis=(2, 3), name=self._name())
            x = mx.sym.FullyConnected(mean, num_hidden=8, name=self._name())
        self.flats.append(x)

    def _heads(self) -> tuple[list[mx.sym.Symbol], list[mx.sym.Symbol]]:
        heads = [mx.sym.SoftmaxOutput(self.flats[-1], name="softmax")]
        needing = []
        if self.rng.random() < 0.6:
            heads.append(mx.sym.MakeLoss(mx.sym.sum(self.images[-1] * self.images[-1], name=self._name()), name="loss"))
        else:
            heads.append(mx.sym.MakeLoss(mx.sym.mean(self.images[-1], name=self._name()), name="loss"))
        if self.rng.random() < 0.5:
            needing.append(mx.sym.tanh(self._pick(self.images), name="head"))
            heads.append(needing[0])
        if self.rng.random() < 0.4:
            heads.append(mx.sym.BlockGrad(self._pick(self.flats), name="shown"))
        return heads, needing


def random_case(seed: int) -> Case:
    """The case of a seed."""
    return Generator(seed).case()


def results(case: Case, executor: Executor, seed: int) -> dict[str, bytes]:
    """Two rounds of forward, backward and evaluation of a bound case; every result by name, as bytes."""
    mx.random.seed(seed)
    rng = np.random.default_rng(seed)
    for name, array in sorted({**executor.arg_dict, **executor.aux_dict}.items()):
        array[:] = rng.uniform(-1, 1, array.shape) if "label" not in name else rng.integers(0, 8, array.shape)
    for array in executor.aux_dict.values():
        array[:] = np.abs(array.asnumpy()) + 0.5
    for gradient in executor.grad_dict.values():
        if gradient is not None:
            gradient[:] = 0.25
    found: dict[str, bytes] = {}
    for round_number in range(2):
        outputs = executor.forward(is_train=True)
        heads = {n: rng.uniform(-1, 1, o.shape) for n, o in executor.output_dict.items() if n in case.heads}
        before = [o.asnumpy().tobytes() for o in outputs]
        executor.backward(heads)
        after = [o.asnumpy().tobytes() for o in outputs]
        assert before == after, "an output changed during backward"
        named = {**{f"out {n}": o for n, o in executor.output_dict.items()},
                 **{f"grad {n}": g for n, g in executor.grad_dict.items() if g is not None},
                 **{f"aux {n}": a for n, a in executor.aux_dict.items()}}
        found |= {f"{round_number} {n}": a.asnumpy().tobytes() for n, a in named.items()}
        evaluated = executor.forward(is_train=False)
        found |= {f"{round_number} eval {k}": o.asnumpy().tobytes() for k, o in enumerate(evaluated)}
    return found

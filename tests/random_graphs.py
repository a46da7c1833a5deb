"""Random symbols for the tests: several consumers, views, shared variables and statistics, random operators, several
heads (variables, views of them, and one value several times among them), mixed requests."""
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
    heads: list[bool]
    """For each output whether it needs a head gradient."""


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
        heads = self._heads()
        symbol = mx.sym.Group([head for head, _ in heads])
        words = ["write", "write", "add", "null"]
        requests = {name: str(self.rng.choice(words)) for name in symbol.list_arguments() if not name.endswith("label")}
        shapes = {name: shape for name, shape in self.shapes.items() if name in symbol.list_arguments()}
        return Case(symbol, shapes, requests, [needs for _, needs in heads])

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

    def _heads(self) -> list[tuple[mx.sym.Symbol, bool]]:
        """The outputs, each with whether it needs a head gradient."""
        heads = [(mx.sym.SoftmaxOutput(self.flats[-1], name="softmax"), False)]
        if self.rng.random() < 0.6:
            heads.append((mx.sym.MakeLoss(mx.sym.sum(self.images[-1] * self.images[-1], name=self._name()),
                                          name="loss"), False))
        else:
            heads.append((mx.sym.MakeLoss(mx.sym.mean(self.images[-1], name=self._name()), name="loss"), False))
        if self.rng.random() < 0.5:
            heads.append((mx.sym.tanh(self._pick(self.images), name="head"), True))
        if self.rng.random() < 0.4:
            heads.append((mx.sym.BlockGrad(self._pick(self.flats), name="shown"), False))
        return heads


class WideGenerator(Generator):
    """Besides: statistics that normalisations share, random operators, operators that hand a gradient on as it is, and
    outputs that are variables, views of variables, values inside the graph, constants, or the same value again.

    `losses` leaves out heads that need gradients, so that a whole step can run.
    """

    def __init__(self, seed: int, losses: bool = False) -> None:
        super().__init__(seed)
        self.losses = losses
        self.statistics: list[list[mx.sym.Symbol]] = []

    def _grow_image(self) -> None:
        kinds = ["shared_bn", "noise", "rrelu", "gated", "handed_on", "all_dropped"]
        if self.rng.random() < 0.7:
            super()._grow_image()
        else:
            self.images.append(getattr(self, f"_image_{self.rng.choice(kinds)}")(self._pick(self.images)))

    def _image_shared_bn(self, x):
        if not self.statistics or self.rng.random() < 0.4:
            names = [f"s{len(self.statistics)}_{part}" for part in ("gamma", "beta", "moving_mean", "moving_var")]
            self.statistics.append([mx.sym.Variable(name) for name in names])
        shared = self.statistics[self.rng.integers(len(self.statistics))]
        return mx.sym.BatchNorm(x, *shared, fix_gamma=False, name=self._name())

    def _image_noise(self, x):
        draw = mx.sym.random_uniform if self.rng.random() < 0.5 else mx.sym.random_normal
        noise = draw(shape=(1, self.image[1], 1, 1) if self.rng.random() < 0.5 else self.image)
        return mx.sym.broadcast_mul(x, noise, name=self._name())

    def _image_rrelu(self, x):
        return mx.sym.LeakyReLU(x, act_type="rrelu", name=self._name())

    def _image_gated(self, x):
        return mx.sym.Dropout(x, p=float(self.rng.choice([0.2, 0.5])), name=self._name()) * x

    def _image_handed_on(self, x):
        """The gradient of the output is that of each input, perhaps in another shape."""
        kind = self.rng.choice(["add", "add_n", "dropout", "expand", "identity"])
        if kind == "add":
            return mx.sym.broadcast_add(x, self._pick(self.images), name=self._name())
        if kind == "add_n":
            return mx.sym.add_n(x, self._pick(self.images), name=self._name())
        if kind == "dropout":
            return mx.sym.Dropout(x, p=0.0, name=self._name())
        if kind == "expand":
            return mx.sym.Reshape(mx.sym.expand_dims(x, axis=0, name=self._name()), shape=(-3, -2), name=self._name())
        return mx.sym.identity(x, name=self._name())

    def _image_all_dropped(self, x):
        return mx.sym.Dropout(x, p=0.9, name=self._name()) + x

    def _heads(self) -> list[tuple[mx.sym.Symbol, bool]]:
        heads = super()._heads()
        for _ in range(int(self.rng.integers(0, 4))):
            kind = self.rng.choice(["variable", "view", "inside", "handed_on", "again", "constant"])
            heads.append(self._further_head(kind, heads))
        if self.losses:
            heads = [(head if not needs else mx.sym.BlockGrad(head, name=self._name()), False) for head, needs in heads]
        order = self.rng.permutation(len(heads))
        return [heads[k] for k in order]

    def _further_head(self, kind: str, heads: list[tuple[mx.sym.Symbol, bool]]) -> tuple[mx.sym.Symbol, bool]:
        variables = [*self.images[:1], *self.flats[:1], *self.weights]
        variable = variables[self.rng.integers(len(variables))]
        if kind == "variable":
            return variable, True
        if kind == "view":
            return mx.sym.Reshape(variable, shape=(-1,), name=self._name()), True
        if kind == "inside":
            return self._pick(self.images), True
        if kind == "handed_on":
            return self._image_handed_on(self.images[0]), True
        if kind == "constant":
            return mx.sym.ones(shape=(2, 3), name=self._name()), True
        return heads[self.rng.integers(len(heads))]


def random_case(seed: int, wide: bool = True, losses: bool = False) -> Case:
    """The case of a seed: of all forms, or of those that seeds of old failures are of. With `losses` no output needs a
    head gradient."""
    return WideGenerator(seed, losses).case() if wide else Generator(seed).case()


def fill(executor: Executor, seed: int) -> np.random.Generator:
    """Give arguments and auxiliary states the values of a seed; the generator for what follows."""
    mx.random.seed(seed)
    rng = np.random.default_rng(seed)
    for name, array in sorted({**executor.arg_dict, **executor.aux_dict}.items()):
        array[:] = rng.uniform(-1, 1, array.shape) if "label" not in name else rng.integers(0, 8, array.shape)
    for array in executor.aux_dict.values():
        array[:] = np.abs(array.asnumpy()) + 0.5
    return rng


def stepped(executor: Executor, seed: int) -> dict[str, bytes]:
    """Two whole steps of a bound case whose outputs are all losses; every result by name, as bytes."""
    fill(executor, seed)
    optimizer = mx.optimizer.create("sgd", learning_rate=0.05, momentum=0.9)
    executor.set_updater(optimizer)
    found: dict[str, bytes] = {}
    for round_number in range(2):
        outputs = executor.step(optimizer.control)
        states = {f"state {n} {k}": a for n, arrays in executor.states.items() for k, a in enumerate(arrays)}
        named = {**{f"out {k}": o for k, o in enumerate(outputs)}, **executor.arg_dict, **states,
                 **{f"aux {n}": a for n, a in executor.aux_dict.items()}}
        found |= {f"{round_number} {n}": a.asnumpy().tobytes() for n, a in named.items()}
    return found


def results(case: Case, executor: Executor, seed: int) -> dict[str, bytes]:
    """Two rounds of forward, backward and evaluation of a bound case; every result by name, as bytes."""
    rng = fill(executor, seed)
    for gradient in executor.grad_dict.values():
        if gradient is not None:
            gradient[:] = 0.25
    found: dict[str, bytes] = {}
    for round_number in range(2):
        outputs = executor.forward(is_train=True)
        heads = [rng.uniform(-1, 1, o.shape) if needs else None for o, needs in zip(outputs, case.heads, strict=True)]
        before = [o.asnumpy().tobytes() for o in outputs]
        found |= {f"{round_number} aux {n} after forward": a.asnumpy().tobytes() for n, a in executor.aux_dict.items()}
        executor.backward(heads)
        after = [o.asnumpy().tobytes() for o in outputs]
        assert before == after, "an output changed during backward"
        named = {**{f"out {k}": o for k, o in enumerate(executor.outputs)},
                 **{f"grad {n}": g for n, g in executor.grad_dict.items() if g is not None},
                 **{f"aux {n}": a for n, a in executor.aux_dict.items()}}
        found |= {f"{round_number} {n}": a.asnumpy().tobytes() for n, a in named.items()}
        evaluated = executor.forward(is_train=False)
        found |= {f"{round_number} eval {k}": o.asnumpy().tobytes() for k, o in enumerate(evaluated)}
    return found

"""Training steps of residual networks on a GPU: times and bytes beside PyTorch, and results beside the CPU's."""
from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .gpu_cases import Absent, Case, Options, open_device


@dataclass(frozen=True)
class Network:
    """A residual network of version 1: units a stage, bottlenecks or pairs of 3x3, for square images."""

    name: str
    units: tuple[int, ...]
    bottleneck: bool
    image: int
    batch: int
    classes: int

    @property
    def small(self) -> bool:
        """Whether the first layer is a 3x3 convolution without pooling."""
        return self.image <= 32

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs."""
        return {"data": (self.batch, 3, self.image, self.image), "softmax_label": (self.batch,)}

    def batches(self, count: int) -> list[dict[str, np.ndarray]]:
        """Random images and labels."""
        draw = np.random.default_rng(0)
        return [{"data": draw.standard_normal(self.shapes["data"], np.float32),
                 "softmax_label": draw.integers(0, self.classes, self.batch).astype(np.float32)} for _ in range(count)]

    def symbol(self) -> Any:
        """The zoo's network."""
        return importlib.import_module("zoo").get("resnet")(
            self.classes, units=self.units, bottleneck=self.bottleneck, image_shape=(3, self.image, self.image))


RATE, MOMENTUM = 0.01, 0.9
AGREEMENT = 2e-3
"""Probabilities may differ by so much after two steps: rounding grows through the layers and the update."""
RESNET20 = Network("resnet-20 b32", (3, 3, 3), False, 32, 32, 10)
RESNET50 = Network("resnet-50 b32", (3, 4, 6, 3), True, 224, 32, 1000)
TINY = Network("tiny", (1, 1), False, 8, 2, 3)


def cases(options: Options) -> list[Case]:
    """Both frameworks a network, and the first steps beside the CPU's."""
    networks, steps = ((TINY,), 3) if options.quick else ((RESNET20, RESNET50), 20)
    found = [Case(f"{networks[0].name}: as on the CPU", partial(agree, options, networks[0]))]
    for network in networks:
        found += [Case(f"{network.name}: minigraph", partial(minigraph_step, options, network, steps, False)),
                  Case(f"{network.name}: minigraph, graph", partial(minigraph_step, options, network, steps, True)),
                  Case(f"{network.name}: PyTorch", partial(torch_step, network, steps))]
    return found


def bound(network: Network, context: Any, graph: bool = False) -> tuple[Any, Callable[[dict[str, np.ndarray]], Any]]:
    """(executor, step), always with the same parameters; a step is SGD with momentum."""
    from minigraph.executor import Executor
    from minigraph.ops.control import CLIP, FIRST_RATE, RESCALE, control_size
    from minigraph.optimizer import create
    symbol = network.symbol()
    requests = {name: "null" if name in network.shapes else "write" for name in symbol.list_arguments()}
    executor = Executor(symbol, context, network.shapes, inputs=tuple(network.shapes), grad_req=requests, graph=graph)
    draw = np.random.default_rng(0)
    for name, array in sorted(executor.arg_dict.items()):
        if name.endswith("weight"):
            array[:] = draw.standard_normal(array.shape, np.float32) * np.sqrt(2 / np.prod(array.shape[1:]))
        else:
            array[:] = 1 if name.endswith("gamma") else 0
    for name, state in executor.aux_dict.items():
        state[:] = 1 if name.endswith("var") else 0
    updater: Any = create("sgd", learning_rate=RATE, momentum=MOMENTUM)
    executor.set_updater(updater)

    def control(names: Any) -> np.ndarray:
        words = np.zeros(control_size(len(names)), np.float32)
        words[RESCALE], words[CLIP] = 1 / network.batch, -1
        words[FIRST_RATE::2] = RATE
        return words

    return executor, lambda batch: executor.step(control, **batch)


def agree(options: Options, network: Network) -> dict[str, Any]:
    """Outputs of two steps on the GPU and on the CPU, and whether a second run on the GPU gives the same bits."""
    import minigraph as mx
    open_device(options)
    batches = network.batches(2)

    def outputs(context: Any) -> list[np.ndarray]:
        _, step = bound(network, context)
        return [step(batch)[0].asnumpy() for batch in batches]

    expected, found, again = outputs(mx.cpu()), outputs(mx.gpu(0)), outputs(mx.gpu(0))
    if any(a.tobytes() != b.tobytes() for a, b in zip(found, again, strict=True)):
        raise AssertionError("two runs on the GPU give other bits")
    worst = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    if not worst < AGREEMENT:
        raise AssertionError(f"probabilities differ from the CPU's by {worst}, more than {AGREEMENT}")
    return {"largest_difference": worst}


def minigraph_step(options: Options, network: Network, steps: int, graph: bool) -> dict[str, Any]:
    """Times of whole steps, from arrays of the host, and bytes of device memory."""
    import minigraph as mx
    device = open_device(options)
    start = time.perf_counter()
    executor, step = bound(network, mx.gpu(0), graph)
    plan = executor.program("step").plan
    prepared = time.perf_counter() - start
    batches = network.batches(2)

    def once(k: int) -> None:
        step(batches[k % 2])
        device.synchronize()

    return {**_times(once, steps), "planned_bytes": plan.planned_bytes, "used_bytes": device.pool.used_bytes,
            "lower_bound_bytes": plan.figures.lower_bound_bytes, "instructions": len(plan), "prepare_s": prepared}


def _times(once: Callable[[int], None], steps: int) -> dict[str, Any]:
    times = []
    for k in range(steps + 3):
        start = time.perf_counter()
        once(k)
        times.append(1e3 * (time.perf_counter() - start))
    kept = sorted(times[3:])
    return {"median_ms": kept[len(kept) // 2], "least_ms": kept[0], "first_ms": times[0]}


# -- PyTorch -------------------------------------------------------------------------------------------------

def torch_step(network: Network, steps: int) -> dict[str, Any]:
    """The same steps by PyTorch, channels first, in float32 and with tf32; Absent where it has no GPU."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise Absent(f"PyTorch is not here ({error})") from error
    if not torch.cuda.is_available():
        raise Absent("PyTorch has no CUDA here")
    once = torch_stepper(torch, network)
    torch.cuda.reset_peak_memory_stats()
    figures = {"version": torch.__version__}
    for name, allowed in (("float32", False), ("tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
        figures |= {f"{name}_{key}": value for key, value in _times(once, steps).items()}
        figures[f"{name}_peak_bytes"] = torch.cuda.max_memory_allocated()
    return {**figures, "reserved_bytes": torch.cuda.max_memory_reserved()}


def torch_stepper(torch: Any, network: Network) -> Callable[[int], None]:
    """A function that runs one whole step from page-locked arrays of the host, and waits for its end."""
    model = torch_network(torch, network).cuda().train()
    loss = torch.nn.CrossEntropyLoss()
    update = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    batches = [(torch.from_numpy(b["data"]).pin_memory(), torch.from_numpy(b["softmax_label"]).long().pin_memory())
               for b in network.batches(2)]

    def once(k: int) -> None:
        data, label = (part.cuda(non_blocking=True) for part in batches[k % 2])
        update.zero_grad(set_to_none=True)
        loss(model(data), label).backward()
        update.step()
        torch.cuda.synchronize()

    return once


def torch_network(torch: Any, network: Network) -> Any:
    """The zoo's residual network as a PyTorch module."""
    nn = torch.nn

    def conv(inner: int, outer: int, kernel: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(inner, outer, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outer, 2e-5)]

    class Unit(nn.Module):  # type: ignore[name-defined]
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            middle = outer // 4
            layers = ([*conv(inner, middle, 1), nn.ReLU(True), *conv(middle, middle, 3, stride), nn.ReLU(True),
                       *conv(middle, outer, 1)] if network.bottleneck
                      else [*conv(inner, outer, 3, stride), nn.ReLU(True), *conv(outer, outer, 3)])
            self.body, same = nn.Sequential(*layers), inner == outer and stride == 1
            self.shortcut = nn.Identity() if same else nn.Sequential(*conv(inner, outer, 1, stride))
            self.relu = nn.ReLU(True)

        def forward(self, x: Any) -> Any:
            return self.relu(self.body(x) + self.shortcut(x))

    channels = 16 if network.small else 64
    layers = [*conv(3, channels, 3 if network.small else 7, 1 if network.small else 2), nn.ReLU(True)]
    layers += [] if network.small else [nn.MaxPool2d(3, 2, 1)]
    width = channels
    for stage, count in enumerate(network.units):
        outer = width * (4 if network.bottleneck else 1)
        for unit in range(count):
            layers.append(Unit(channels, outer, 2 if stage and not unit else 1))
            channels = outer
        width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, network.classes))

"""The CPU's kernels one by one against PyTorch's, oneDNN's, and the machine's peak.

    python -m benchmarks.kernels [--network resnet20] [--quick] [--level x86-64-v3] [--onednn FILE] [--json FILE]

Convolutions (forward, data gradient, weight gradient) of whole networks, one thread, interleaved in one process: by the
kernels as they are chosen and by the direct ones alone, by PyTorch in its plain layout and in channels_last, and by
oneDNN itself in its blocked layouts where it is installed (benchmarks/onednn.py). The clock is the process's own
processor time, which other work on the machine does not stretch, and the least of some rounds counts. Packing of
weights and patches is part of what is timed, but for oneDNN. The peak is that of multiply-adds in registers.
"""
from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import onednn
from benchmarks.onednn import OneDnn
from minigraph.base import ALIGNMENT, TensorType
from minigraph.device.cpu import set_num_threads
from minigraph.device.cpu.native import call
from minigraph.device.cpu.native.call import NativeCall, Operand, int64, native_op
from minigraph.device.cpu.native.families import import_families
from minigraph.device.cpu.native.layout import padded_size
from minigraph.device.cpu.native.library import Library, find_library
from minigraph.device.cpu.native.run import NativeRun
from minigraph.ops.params import parse_params
from minigraph.ops.registry import get_op

ROUNDS, QUICK_ROUNDS = 5, 2
BATCH_SECONDS = 0.03
"""Processor time of one measurement: so many calls in a row."""
PHASES = ("Convolution", "_convolution_backward_data", "_convolution_backward_weight")
BEST_PEER = "torch channels_last"
ONEDNN = "oneDNN"
DIRECT = f"{call.PREFIX}direct"
ONEDNN_PHASES = dict(zip(PHASES, (onednn.FORWARD, onednn.BACKWARD_DATA, onednn.BACKWARD_WEIGHT), strict=True))
PEAK_ROUNDS = 2_000_000


@dataclass(frozen=True)
class Layer:
    """A convolution of square images and kernels, padded by half the kernel, and how often a network has it."""

    count: int
    channels: int
    size: int
    filters: int
    kernel: int
    stride: int
    groups: int = 1

    def __str__(self) -> str:
        grouped = f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.channels}->{self.filters} {self.size} k{self.kernel} s{self.stride}{grouped}"


RESNET20 = (
    Layer(1, 3, 32, 16, 3, 1), Layer(6, 16, 32, 16, 3, 1), Layer(1, 16, 32, 32, 3, 2), Layer(1, 16, 32, 32, 1, 2),
    Layer(5, 32, 16, 32, 3, 1), Layer(1, 32, 16, 64, 3, 2), Layer(1, 32, 16, 64, 1, 2), Layer(5, 64, 8, 64, 3, 1))
RESNET50 = (
    Layer(1, 3, 224, 64, 7, 2), Layer(1, 64, 56, 64, 1, 1), Layer(2, 256, 56, 64, 1, 1), Layer(3, 64, 56, 64, 3, 1),
    Layer(4, 64, 56, 256, 1, 1), Layer(1, 256, 56, 128, 1, 1), Layer(1, 128, 56, 128, 3, 2),
    Layer(4, 128, 28, 512, 1, 1), Layer(1, 256, 56, 512, 1, 2), Layer(3, 512, 28, 128, 1, 1),
    Layer(3, 128, 28, 128, 3, 1), Layer(1, 512, 28, 256, 1, 1), Layer(1, 256, 28, 256, 3, 2),
    Layer(6, 256, 14, 1024, 1, 1), Layer(1, 512, 28, 1024, 1, 2), Layer(5, 1024, 14, 256, 1, 1),
    Layer(5, 256, 14, 256, 3, 1), Layer(1, 1024, 14, 512, 1, 1), Layer(1, 512, 14, 512, 3, 2),
    Layer(3, 512, 7, 2048, 1, 1), Layer(1, 1024, 14, 2048, 1, 2), Layer(2, 2048, 7, 512, 1, 1),
    Layer(2, 512, 7, 512, 3, 1))
MOBILENET = (
    Layer(1, 32, 112, 32, 3, 1, 32), Layer(1, 64, 112, 64, 3, 2, 64), Layer(1, 128, 56, 128, 3, 1, 128),
    Layer(1, 128, 56, 128, 3, 2, 128), Layer(1, 256, 28, 256, 3, 1, 256), Layer(1, 256, 28, 256, 3, 2, 256),
    Layer(5, 512, 14, 512, 3, 1, 512), Layer(1, 512, 14, 512, 3, 2, 512), Layer(1, 1024, 7, 1024, 3, 1, 1024))
VGG16 = (
    Layer(1, 3, 224, 64, 3, 1), Layer(1, 64, 224, 64, 3, 1), Layer(1, 64, 112, 128, 3, 1),
    Layer(1, 128, 112, 128, 3, 1), Layer(1, 128, 56, 256, 3, 1), Layer(2, 256, 56, 256, 3, 1),
    Layer(1, 256, 28, 512, 3, 1),
    Layer(2, 512, 28, 512, 3, 1), Layer(3, 512, 14, 512, 3, 1))
NETWORKS: Mapping[str, tuple[int, Sequence[Layer]]] = {
    "resnet20": (32, RESNET20), "resnet50": (8, RESNET50), "vgg16": (4, VGG16),
    "mobilenet_depthwise": (8, MOBILENET)}
"""Batch and layers; of mobilenet those with a filter for each channel."""


@dataclass(frozen=True)
class Row:
    """Seconds of one layer's phase by peer, once, and its FLOPs."""

    network: str
    layer: str
    count: int
    phase: str
    flops: int
    seconds: dict[str, float]


class Case:
    """One layer and phase: shapes, and a function for each peer."""

    def __init__(self, layer: Layer, batch: int, phase: str) -> None:
        self.layer, self.phase = layer, phase
        out = (layer.size + 2 * (layer.kernel // 2) - layer.kernel) // layer.stride + 1
        self.data = (batch, layer.channels, layer.size, layer.size)
        self.weight = (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
        self.out = (batch, layer.filters, out, out)
        self.flops = 2 * batch * out * out * int(np.prod(self.weight))

    def own(self, library: Library, algorithm: str | None = None) -> Callable[[], None]:
        """The kernels, in the layouts that they like best, by the algorithm that they like best or this one."""
        layer, pair = self.layer, lambda n: (n, n)
        params = {"kernel": pair(layer.kernel), "num_filter": layer.filters, "stride": pair(layer.stride),
                  "pad": pair(layer.kernel // 2), "num_group": layer.groups, "no_bias": True}
        shapes = {PHASES[0]: (self.data, self.weight, self.out),
                  PHASES[1]: (self.out, self.weight, self.data, self.data),
                  PHASES[2]: (self.out, self.data, self.weight, self.weight)}[self.phase]
        return bound(library, self.phase, params, shapes[:-1], shapes[-1:], algorithm)

    def torch(self, channels_last: bool) -> Callable[[], Any]:
        """PyTorch's convolution, or the part of its gradient."""
        import torch
        layout = torch.channels_last if channels_last else torch.contiguous_format
        data, weight, grad = (torch.randn(shape).contiguous(memory_format=layout)
                              for shape in (self.data, self.weight, self.out))
        stride, pad, groups = [self.layer.stride] * 2, [self.layer.kernel // 2] * 2, self.layer.groups
        if self.phase == PHASES[0]:
            return lambda: torch.conv2d(data, weight, None, stride, pad, 1, groups)
        wanted = [self.phase == PHASES[1], self.phase == PHASES[2], False]
        backward = torch.ops.aten.convolution_backward
        return lambda: backward(grad, data, weight, None, stride, pad, [1, 1], False, [0, 0], groups, wanted)

    def onednn(self, library: OneDnn) -> Callable[[], None]:
        """oneDNN's, in layouts of its choice."""
        groups = self.layer.groups
        weight = self.weight if groups == 1 else (groups, self.weight[0] // groups, *self.weight[1:])
        return library.convolution(ONEDNN_PHASES[self.phase], (self.data, weight, self.out), self.layer.stride,
                                   self.layer.kernel // 2)


def bound(library: Library, name: str, params: Mapping[str, Any], shapes: Sequence[tuple[int, ...]],
          out_shapes: Sequence[tuple[int, ...]], algorithm: str | None = None) -> Callable[[], None]:
    """The calls of an op over operands of random numbers, in the best layouts, by the best algorithm or this one; what
    it changes lies on its input."""
    op, native = get_op(name), native_op(name)
    if native is None:
        raise ValueError(f"operator {name} has no kernels")
    p = parse_params(op.Params, dict(params), name)
    ins, outs = [_type(shape) for shape in shapes], [_type(shape) for shape in out_shapes]
    best = native.layouts(p, ins, outs)[0]
    ins = [TensorType(t.shape, t.dtype, layout) for t, layout in zip(ins, best.ins, strict=True)]
    outs = [TensorType(t.shape, t.dtype, layout) for t, layout in zip(outs, best.outs, strict=True)]
    found = next(a for a in call.algorithms(op, p, ins, outs) if algorithm in (None, a.name))
    read = [random_floats(padded_size(t.shape, t.layout)) for t in ins]
    shared = {j: read[i] for i, j in op.mutates(p)}
    written = [shared[j] if j in shared else random_floats(padded_size(t.shape, t.layout)) for j, t in enumerate(outs)]
    work = random_floats(-(-found.workspace_bytes // 4))
    given, made = ([Operand(a.ctypes.data, t.shape, t.dtype, t.layout) for a, t in zip(memory, types, strict=True)]
                   for memory, types in ((read, ins), (written, outs)))
    calls = native.calls(p, given, made, work.ctypes.data, found.name)
    return partial(_run, NativeRun(library, [each.pack(library) for each in calls]), (*read, *written, work))


def _run(run: NativeRun, memory: Sequence[np.ndarray]) -> None:
    """Run over memory that the calls know by its addresses alone: whoever holds this call keeps it."""
    run()


def _type(shape: tuple[int, ...]) -> TensorType:
    return TensorType(shape, np.dtype(np.float32))


def random_floats(size: int) -> np.ndarray:
    """Aligned memory of so many random numbers."""
    raw = np.zeros(size + ALIGNMENT // 4, np.float32)
    start = -raw.ctypes.data % ALIGNMENT // 4
    raw[start:start + size] = np.random.default_rng(0).standard_normal(size, np.float32)
    return raw[start:start + size]


def peak_flops(library: Library) -> float:
    """FLOPs a second of multiply-adds in registers, one thread."""
    out = random_floats(16)
    lanes = {"x86-64-v4": 16, "x86-64-v3": 8}.get(library.level, 4)
    run = NativeRun(library, [NativeCall("peak", (("P", out.ctypes.data), int64(PEAK_ROUNDS))).pack(library)])
    return 2 * 10 * lanes * PEAK_ROUNDS / least_seconds({"peak": run}, ROUNDS)["peak"]


def least_seconds(peers: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least processor time of one call of each peer; they take turns of BATCH_SECONDS."""
    calls, best = {}, dict.fromkeys(peers, float("inf"))
    for name, function in peers.items():
        function()
        calls[name] = max(1, int(BATCH_SECONDS / max(1e-6, _seconds(function, 1))))
    for _ in range(rounds):
        for name, function in peers.items():
            best[name] = min(best[name], _seconds(function, calls[name]))
    return best


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - start) / calls


def measure(library: Library, network: str, rounds: int, other: OneDnn | None) -> list[Row]:
    """All layers and phases of a network; of a first layer no data gradient."""
    batch, layers = NETWORKS[network]
    rows = []
    for layer in layers:
        for phase in PHASES:
            if phase == PHASES[1] and layer.channels == 3:
                continue
            case = Case(layer, batch, phase)
            peers = {"own": case.own(library), "own direct": case.own(library, DIRECT),
                     BEST_PEER: case.torch(True), "torch": case.torch(False)}
            if other is not None:
                peers[ONEDNN] = case.onednn(other)
            rows.append(Row(network, str(layer), layer.count, phase, case.flops, least_seconds(peers, rounds)))
    return rows


def table(rows: Sequence[Row], peak: float) -> str:
    """Milliseconds of each row by peer, the share of the peak that the kernels reach, and sums over the network."""
    peers = list(rows[0].seconds)
    head = "".join(f"{peer:>22}" for peer in peers)
    lines = [f"{rows[0].network}: ms; peak {peak / 1e9:.0f} GFLOP/s",
             f"{'layer':<32}{'phase':<30}{head}{'of peak':>10}"]
    for row in rows:
        figures = "".join(f"{row.seconds[peer] * 1e3:>22.3f}" for peer in peers)
        share = row.flops / row.seconds["own"] / peak
        lines.append(f"{row.count} x {row.layer:<28}{row.phase:<30}{figures}{share:>10.2f}")
    for phase in (*PHASES, ""):
        sums = sums_of(rows, phase)
        figures = "".join(f"{seconds * 1e3:>22.1f}" for seconds in sums.values())
        ratios = (f"{sums['own'] / sums[peer]:>10.2f} x {peer}" for peer in (BEST_PEER, ONEDNN) if peer in sums)
        lines.append(f"{'sum':<32}{phase or 'all':<30}{figures}{''.join(ratios)}")
    return "\n".join(lines)


def sums_of(rows: Sequence[Row], phase: str = "") -> dict[str, float]:
    """Seconds of all layers together by peer, of one phase or of all."""
    return {peer: sum(row.count * row.seconds[peer] for row in rows if phase in ("", row.phase))
            for peer in rows[0].seconds}


def markdown(rows: Sequence[Row]) -> str:
    """Milliseconds over whole networks by phase and peer, and the ratios of the kernels' to the peers'."""
    peers = [peer for peer in rows[0].seconds if peer != "own"]
    head = ["network", "phase", "own", *peers, *(f"own / {peer}" for peer in peers)]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for network in dict.fromkeys(row.network for row in rows):
        for phase, name in (*ONEDNN_PHASES.items(), ("", "sum")):
            mine = [row for row in rows if row.network == network and phase in ("", row.phase)]
            if not mine:
                continue
            sums = sums_of(mine)
            cells = [network, name, *(f"{sums[peer] * 1e3:.1f}" for peer in ("own", *peers)),
                     *(f"{sums['own'] / sums[peer]:.2f}" for peer in peers)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description="Time the CPU's convolution kernels beside PyTorch's.")
    parser.add_argument("--network", choices=tuple(NETWORKS), action="append", help="which layers; by default all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--level", default="auto", help="the instruction set of the kernels")
    parser.add_argument("--onednn", type=Path, default=onednn.installed(),
                        help=f"oneDNN's {onednn.FILE}; by default the installed one, or none")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--markdown", type=Path, help="where to write a table of the sums")
    given = parser.parse_args(arguments)
    import torch
    library = find_library(given.level)
    if library is None:
        parser.error("there are no kernels to time: no C++ compiler was found")
    import_families()
    set_num_threads(1)
    torch.set_num_threads(1)
    other = None if given.onednn is None else OneDnn(given.onednn)
    peak, rows = peak_flops(library), []
    for network in given.network or NETWORKS:
        rows += measure(library, network, QUICK_ROUNDS if given.quick else ROUNDS, other)
        print(table([row for row in rows if row.network == network], peak), flush=True)
    if given.json:
        document = {"level": library.level, "torch": torch.__version__, "onednn": other and other.version,
                    "peak_flops": peak, "rows": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    if given.markdown:
        given.markdown.write_text(f"# Convolutions beside PyTorch's and oneDNN's\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()

"""Convolution by the direct kernels of kernels/cpu/conv.cpp, or by Winograd's (winograd.py); conv_data.py and
conv_weight.py have its gradients.

Over one to three spatial axes, in blocks of 16 channels; a first layer of few channels reads its plain tensor. Groups
are of whole blocks, or so small that whole groups fill a block (their products are then dense, with zero weights
between groups), or of one channel each (conv_lanes.cpp).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ....base import Algorithm, Shape, align
from ....ops.chunks import MAX_CHUNK
from ....ops.conv_geometry import ConvolutionParams
from ....ops.window import per_axis
from .call import PREFIX, NativeCall, NativeOp, Operand, Types, address, int64, native_for, pointer
from .layout import BLOCKED, LANES, PLAIN, Layouts, blocks
from .settings import Settings
from .winograd import Winograd, WinogradWeight, is_winograd

CHUNK_PIXELS = 4096
"""Output pixels that one chain of the weight gradient sums, about."""
SCRATCH_FLOATS = 192 << 10
"""What a thread has for padded patches: `SCRATCH_FLOATS` of kernels/cpu/pool.h."""
MAX_TAPS = 1024
"""Taps of a kernel: `MAX_TAPS` of kernels/cpu/conv.h."""
AXES = 3
"""Spatial axes that the kernels take."""
Phase = tuple[int, int, int]
"""Pixels along an axis that are computed: first, step, count."""


@dataclass(frozen=True)
class Taps:
    """The taps along one axis that reach one phase: offsets in the input (first, step, count), and how many the packed
    weight has along this axis before them."""

    first: int
    step: int
    count: int
    before: int = 0


@dataclass(frozen=True)
class Geometry:
    """The sizes of a convolution of three spatial axes, the first ones of size 1 where there are fewer; `groups`,
    `outs` and `ins` as the kernels count them."""

    images: int
    groups: int
    outs: int
    ins: int
    small: int
    spatial: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape
    depth: int
    """Input channels of a filter: the weight's second dimension."""

    @property
    def out_blocks(self) -> int:
        """Blocks of output channels in a group."""
        return blocks(self.outs)

    @property
    def in_blocks(self) -> int:
        """Blocks of input channels in a group."""
        return blocks(self.ins)

    @property
    def taps(self) -> int:
        """Taps of the kernel."""
        return prod(self.kernel)

    @property
    def chunk(self) -> int:
        """Images of a chunk of the weight gradient: a power of two that the size of an image fixes."""
        return chunk_images(self.out)

    def lanes(self, channels: int) -> int:
        """Lanes of a block that are used: fewer than all only where there is no other block."""
        return min(channels, LANES) if self.groups == 1 else LANES

    @property
    def lanewise(self) -> bool:
        """Whether each channel has a filter of its own."""
        return self.small == 1

    def packed(self, outs: int, ins: int) -> int:
        """Floats of the weight as a stream from `ins` to `outs` channels a group."""
        if self.lanewise:
            return self.groups * self.taps * LANES
        return self.groups * blocks(outs) * blocks(ins) * self.taps * self.lanes(ins) * LANES

    def weight_steps(self) -> tuple[int, int, int]:
        """Distances in floats in the weight between groups, output and input channels."""
        per_in, per_out = self.taps, self.taps * self.depth
        return per_out * self.outs, per_out, per_in


def chunk_images(out: Sequence[int]) -> int:
    """Images of a chunk of sums over output images of this size: a power of two."""
    return min(MAX_CHUNK, 1 << max(1, CHUNK_PIXELS // max(1, prod(out))).bit_length() - 1)


def geometry(p: ConvolutionParams, data: Shape, out: Shape) -> Geometry | None:
    """The sizes of a convolution of data (N, C, *spatial) to out (N, F, *out); None where the kernels do not do it."""
    if 0 in (*data[1:], *out[1:]):      # kernels cut channels and pixels into parts, and divide by how many there are
        return None
    groups, ins, outs = p.num_group, data[1] // p.num_group, p.num_filter // p.num_group
    depth, small = ins, 0
    if groups > 1 and ins == outs == 1:
        groups, small, ins, outs = blocks(data[1]), 1, LANES, LANES
    elif groups > 1 and (ins % LANES or outs % LANES):
        if ins != outs or LANES % ins or data[1] % LANES:
            return None
        groups, small, ins, outs = data[1] // LANES, ins, LANES, LANES

    stride, dilate, pad = (three(per_axis(given, p.kernel, least, name), least) for given, least, name in (
        (p.stride, 1, "stride"), (p.dilate, 1, "dilate"), (p.pad, 0, "pad")))
    g = Geometry(data[0], groups, outs, ins, small, three(data[2:], 1), three(out[2:], 1), three(p.kernel, 1), stride,
                 dilate, pad, depth)
    return g if g.taps <= MAX_TAPS and _fits_scratch(g) else None


def three(values: Sequence[int], fill: int) -> Shape:
    """Values of the last axes, the first ones filled up."""
    return (fill,) * (AXES - len(values)) + tuple(values)


def reach(g: Geometry) -> Shape:
    """Planes of taps, and the rows and columns that taps reach over."""
    _, high, wide = (d * (k - 1) + 1 for k, d in zip(g.kernel, g.dilate, strict=True))
    return g.kernel[0], high, wide


def _fits_scratch(g: Geometry) -> bool:
    """Whether the least patch, one output row wide, and the sums of two blocks fit into a thread's scratch."""
    planes, high, wide = reach(g)
    widest = max((g.out[-1] - 1) * g.stride[-1] + wide, g.spatial[-1] + wide)
    return planes * high * widest * LANES + 2 * g.taps * LANES * LANES <= SCRATCH_FLOATS


def first_layer(p: ConvolutionParams, data: Shape) -> bool:
    """Whether a plain input is taken: blocks of so few channels would be mostly padding."""
    return p.num_group == 1 and data[1] < LANES


class DirectConvolution(NativeOp):
    """What convolutions and their gradients share: an algorithm with packed weights or partial sums as workspace, and
    where it pays Winograd's, another numeric class."""

    def geometry(self, p: Any, ins: Any, outs: Any) -> Geometry | None:
        """The sizes, from types or operands; None for NumPy."""
        raise NotImplementedError

    def workspace_floats(self, p: Any, g: Geometry) -> Sequence[int]:
        """Floats of the pieces of the workspace."""
        raise NotImplementedError

    def algorithms(self, p: Any, ins: Types, outs: Types) -> Sequence[Algorithm]:
        g = self.geometry(p, ins, outs)
        assert g is not None
        nbytes = sum(align(4 * size) for size in self.workspace_floats(p, g))
        direct = Algorithm(f"{PREFIX}direct", nbytes, "native", chunk_rows=self.chunk_rows(g))
        winograd = self.winograd(g)
        if winograd is None:
            return (direct,)
        return (*winograd.algorithms(), direct) if Settings.read().winograd else (direct, *winograd.algorithms())

    def winograd(self, g: Geometry) -> Winograd | WinogradWeight | None:
        """The form of it that Winograd's kernels compute, or None."""
        return None

    def chunk_rows(self, g: Geometry) -> int:
        """Images of a chunk: each alone, unless they are summed."""
        return 1


@native_for("Convolution")
class Convolution(DirectConvolution):
    """The forward convolution with bias."""

    def geometry(self, p: Any, ins: Any, outs: Any) -> Geometry | None:
        return geometry(p, ins[0].shape, outs[0].shape)

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        if self.geometry(p, ins, outs) is None:
            return ()
        others = (PLAIN,) * (len(ins) - 1)
        blocked = Layouts((BLOCKED, *others), (BLOCKED,))
        return [Layouts((PLAIN, *others), (BLOCKED,)), blocked] if first_layer(p, ins[0].shape) else [blocked]

    def workspace_floats(self, p: Any, g: Geometry) -> Sequence[int]:
        bias = 0 if p.no_bias else g.groups * g.out_blocks * LANES
        return g.packed(g.outs, g.ins), bias

    def winograd(self, g: Geometry) -> Winograd | None:
        return winograd_form(g, g.ins, g.outs, g.spatial, g.out, g.pad, turned=False)

    def relu(self, p: Any) -> bool:
        """Whether ReLU of the sums is what is wanted."""
        return False

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        g = self.geometry(p, ins, outs)
        assert g is not None
        if is_winograd(algorithm):
            winograd = self.winograd(g)
            assert winograd is not None
            given = 0 if p.no_bias else ins[2].address
            return [winograd.call(ins[0], ins[1], outs[0], work, algorithm, given, relu=self.relu(p))]
        taps = [Taps(-pad, d, k) for k, d, pad in zip(g.kernel, g.dilate, g.pad, strict=True)]
        bias = 0 if p.no_bias else work + align(4 * g.packed(g.outs, g.ins))
        calls = [pack(g, ins[1], work, (g.outs, g.ins), g.weight_steps())]
        if bias:
            calls.append(pad_bias(ins[2], bias))
        phases = [(0, 1, n) for n in g.out]
        return [*calls, convolve(ins[0], work, bias, outs[0], g, (g.outs, g.ins), taps, phases, g.stride,
                                 relu=self.relu(p))]


@native_for("_convolution_activated")
class ConvolutionActivated(Convolution):
    """The forward convolution with bias and ReLU; of other activations padding would not stay zero, or takes a pass."""

    def fuses(self, p: Any) -> bool:
        return self.relu(p)

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        return super().layouts(p, ins, outs) if self.relu(p) else ()

    def relu(self, p: Any) -> bool:
        return p.act_type == "relu"


def pad_bias(bias: Operand, padded: int) -> NativeCall:
    """Copies a bias to an address, with zeros up to a whole block."""
    return NativeCall("convolution_pad", (pointer(bias), address(padded), int64(bias.size)))


def pack(g: Geometry, weight: Operand, packed: int, channels: tuple[int, int], distances: tuple[int, int, int],
         streams: Sequence[int] = (1,) * AXES, turned: bool = False) -> NativeCall:
    """From (outs, ins) channels a group, with `distances` in the weight between groups, and between those; along each
    axis the taps are dealt to so many streams, turned or not (`PackArgs` of kernels/cpu/conv_args.h)."""
    if g.lanewise:
        channels, distances = (weight.shape[0], 1), g.weight_steps()
    taps = (n for count, dealt in zip(g.kernel, streams, strict=True) for n in (count, dealt, turned))
    return NativeCall("convolution_pack_lanes" if g.lanewise else "convolution_pack", (
        pointer(weight), address(packed), int64(g.groups, *channels, *distances, *taps, g.lanes(channels[1]), g.small)))


def convolve(x: Operand, packed: int, bias: int, y: Operand, g: Geometry, channels: tuple[int, int],
             taps: Sequence[Taps], phases: Sequence[Phase], stride: Sequence[int], add: bool = False,
             relu: bool = False) -> NativeCall:
    """One convolution to one phase of each axis of y."""
    outs, ins = channels
    spatial, out = three(x.shape[2:], 1), three(y.shape[2:], 1)
    if _is_flat(taps, phases, stride, spatial, out):
        spatial = out = (1, 1, prod(spatial))
        phases = [(0, 1, n) for n in out]
    numbers = (n for t in taps for n in (t.first, t.step, t.count))
    sizes = (g.images, g.groups, x.layout == PLAIN, g.lanes(ins), blocks(ins), *spatial, y.shape[1], blocks(outs),
             *out, *(n for phase in phases for n in phase), *stride, *numbers, add, relu)
    kernel = "convolution_lanes" if g.lanewise else "convolution"
    return NativeCall(kernel, (pointer(x), address(packed), address(bias), pointer(y), int64(*sizes)))


def _is_flat(taps: Sequence[Taps], phases: Sequence[Phase], stride: Sequence[int],
             spatial: Sequence[int], out: Sequence[int]) -> bool:
    """Whether each output pixel reads the input pixel of its own place: rows make no difference."""
    return (all(t.count == 1 and t.first == 0 for t in taps) and tuple(spatial) == tuple(out)
            and all(phase == (0, 1, n) for phase, n in zip(phases, out, strict=True)) and set(stride) == {1})


def winograd_form(g: Geometry, ins: int, outs: int, spatial: Shape, out: Shape, pad: Shape,
                  turned: bool) -> Winograd | None:
    """A convolution of so many channels over these sizes as Winograd's kernel does it, where it takes and pays it."""
    form = Winograd(g.images, g.images, blocks(ins), blocks(outs), spatial[1:], out[1:], pad[1:], turned)
    return form if suits_winograd(g) and min(pad) >= 0 and form.pays else None


def suits_winograd(g: Geometry) -> bool:
    """Whether Winograd's kernels take the kernel, its steps and the channels."""
    flat = (g.spatial[0], g.kernel[0], g.pad[0]) == (1, 1, 0)
    return (flat and (g.kernel[1:], g.stride[1:], g.dilate[1:]) == ((3, 3), (1, 1), (1, 1))
            and (g.groups, g.small) == (1, 0) and g.ins % LANES == g.outs % LANES == 0)

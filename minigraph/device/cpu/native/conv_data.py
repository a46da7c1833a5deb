"""The data gradient of a convolution, by its kernels: a convolution of out_grad for each phase of the stride, in
kernels/cpu/conv.cpp; by Winograd's; or with filters of one channel and a stride of 2 by conv_lanes_strided.cpp."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import gcd
from typing import Any

from .call import NativeCall, Operand, Types, address, int64, native_for, pointer
from .conv import (
    AXES,
    SCRATCH_FLOATS,
    DirectConvolution,
    Geometry,
    Phase,
    Taps,
    convolve,
    first_layer,
    geometry,
    pack,
    reach,
    winograd_form,
)
from .layout import BLOCKED, LANES, PLAIN, Layouts
from .winograd import Winograd, is_winograd


@native_for("_convolution_backward_data")
class ConvolutionBackwardData(DirectConvolution):
    """The data gradient: a convolution of out_grad for each phase of the stride."""

    def geometry(self, p: Any, ins: Any, outs: Any) -> Geometry | None:
        return geometry(p, outs[0].shape, ins[0].shape)

    def layouts(self, p: Any, ins: Types, outs: Types) -> Sequence[Layouts]:
        g = self.geometry(p, ins, outs)
        if g is None or (p.addend and not _fits_one_pass(g)):
            return ()
        addend = (BLOCKED,) * p.addend
        kept = Layouts((BLOCKED, PLAIN, BLOCKED, *addend), (BLOCKED,))
        return [Layouts((BLOCKED, PLAIN, PLAIN), (BLOCKED,)), kept] if first_layer(p, outs[0].shape) and not addend \
            else [kept]

    def workspace_floats(self, p: Any, g: Geometry) -> Sequence[int]:
        return (g.packed(g.ins, g.outs),)

    def winograd(self, g: Geometry) -> Winograd | None:
        pad = tuple(k - 1 - pad for k, pad in zip(g.kernel, g.pad, strict=True))
        return winograd_form(g, g.outs, g.ins, g.out, g.spatial, pad, turned=True)

    def calls(self, p: Any, ins: Sequence[Operand], outs: Sequence[Operand], work: int,
              algorithm: str) -> Sequence[NativeCall]:
        g = self.geometry(p, ins, outs)
        assert g is not None
        addend = ins[3].address if p.addend else 0
        if is_winograd(algorithm):
            winograd = self.winograd(g)
            assert winograd is not None
            return [winograd.call(ins[0], ins[1], outs[0], work, algorithm, addend=addend)]
        return data_gradient(g, ins[0], ins[1], outs[0], work, addend=addend)


def data_gradient(g: Geometry, grad: Operand, weight: Operand, out: Operand, work: int, bias: int = 0,
                  addend: int = 0) -> Sequence[NativeCall]:
    """Packing, and a call for each phase of the stride: `work` is the address of the packed weight, `bias` that of a
    padded one, `addend` that of a tensor to which the gradient is added, perhaps of the output itself; 0 for none."""
    if _is_strided_lanes(g):
        return _strided_lanes(g, grad, weight, out, work, bias, addend)
    group, far, near = g.weight_steps()
    streams = [_streams(g, axis) for axis in range(AXES)]
    calls = [pack(g, weight, work, (g.ins, g.outs), (group, near, far), streams, turned=True)]
    for found in product(*(_phases(g, axis) for axis in range(AXES))):
        taps, phases = [t for t, _ in found], [phase for _, phase in found]
        packed = work + 4 * g.packed(g.ins, g.outs) // g.taps * _before(g, taps)
        calls.append(convolve(grad, packed, bias, out, g, (g.ins, g.outs), taps, phases, (1,) * AXES,
                              add=addend != 0))
    filled = addend == out.address if addend else reaches_all(g)
    return calls if filled else [_fill(addend, out), *calls]


def _fill(addend: int, out: Operand) -> NativeCall:
    """Copies the tensor at an address to `out`, or zeros."""
    return NativeCall("convolution_fill", (address(addend), pointer(out), int64(out.size)))


def _is_strided_lanes(g: Geometry) -> bool:
    """Whether kernels/cpu/conv_lanes_strided.cpp computes the data gradient, all phases together."""
    flat = (g.spatial[0], g.kernel[0], g.pad[0]) == (1, 1, 0)
    return g.lanewise and flat and (g.kernel[1:], g.stride[1:], g.dilate[1:]) == ((3, 3), (2, 2), (1, 1))


def _strided_lanes(g: Geometry, grad: Operand, weight: Operand, out: Operand, work: int, bias: int,
                   addend: int) -> Sequence[NativeCall]:
    """The data gradient by that kernel, arguments as those of `data_gradient`."""
    sizes = (g.images, g.groups, *g.out[1:], *g.spatial[1:], *g.pad[1:], addend != 0)
    calls = [pack(g, weight, work, (g.ins, g.outs), g.weight_steps()), NativeCall("convolution_lanes_strided", (
        pointer(grad), address(work), address(bias), pointer(out), int64(*sizes)))]
    return calls if addend in (0, out.address) else [_fill(addend, out), *calls]


def _streams(g: Geometry, axis: int) -> int:
    """Streams of taps along an axis: every so-many-th tap reaches the same phase of the stride."""
    return g.stride[axis] // gcd(g.stride[axis], g.dilate[axis])


def _before(g: Geometry, taps: Sequence[Taps]) -> int:
    """Taps of the streams that come before the one of these, as `TapPlace` of kernels/cpu/conv_args.h has them."""
    (depth, row, column), (_, rows, columns) = taps, g.kernel
    return depth.before * rows * columns + depth.count * (row.before * columns + row.count * column.before)


def reaches_all(g: Geometry) -> bool:
    """Whether taps reach every phase of the stride."""
    return all(len(_reached(g, axis)) == min(g.stride[axis], g.spatial[axis]) for axis in range(AXES))


def _reached(g: Geometry, axis: int) -> list[int]:
    """The phases of the stride along one axis that taps reach, in ascending order; a tap of each stream tells."""
    taps = range(min(g.kernel[axis], _streams(g, axis)))
    phases = {(tap * g.dilate[axis] - g.pad[axis]) % g.stride[axis] for tap in taps}
    return sorted(at for at in phases if at < g.spatial[axis])


def _phases(g: Geometry, axis: int) -> Iterator[tuple[Taps, Phase]]:
    """The phases of the stride along one axis that taps reach, with those taps."""
    for at in _reached(g, axis):
        yield _phase_taps(g, axis, at), (at, g.stride[axis], -(-(g.spatial[axis] - at) // g.stride[axis]))


def _phase_taps(g: Geometry, axis: int, phase: int) -> Taps:
    """The taps along one axis that reach the pixels phase, phase + stride, ...

    Tap r reaches pixel i from the output (i + pad - r dilate) / stride, where that is whole. In ascending order of the
    outputs r descends.
    """
    kernel, stride, dilate, pad = g.kernel[axis], g.stride[axis], g.dilate[axis], g.pad[axis]
    reaching = [r for r in range(kernel) if (phase + pad - r * dilate) % stride == 0]
    last, streams = reaching[-1], _streams(g, axis)
    before = sum(-(-(kernel - stream) // streams) for stream in range(last % streams))
    return Taps((phase + pad - last * dilate) // stride, dilate * streams // stride, len(reaching), before)


def _fits_one_pass(g: Geometry) -> bool:
    """Whether a thread's scratch holds a patch of all output channels of a group, wide enough for any tile."""
    planes, high, wide = reach(g)
    return g.out_blocks * planes * high * (wide + LANES) * LANES <= SCRATCH_FLOATS

"""Spatial transformers: GridGenerator, BilinearSampler, and SpatialTransformer, which is both.

A grid (N, 2, H, W) holds x and y of the point that each output place is sampled at, -1 and 1 at the outermost
centres of the data; data counts as 0 outside.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .elemwise import only
from .op import Arrays, Op, Sample, ShapeError, Sliced, Workspace, format_shape, merge_shapes
from .params import REQUIRED, param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]


@dataclass(frozen=True)
class PointsParams:
    """Parameters of the constants of a grid."""

    height: int = param(REQUIRED, "int", "rows of the grid")
    width: int = param(REQUIRED, "int", "columns of the grid")
    form: str = param(REQUIRED, "str", "rows x, y and 1 for an affine map; x and y as a grid; or a pixel's length",
                      ("affine", "grid", "pixel"))
    dtype: np.dtype = param(np.dtype(np.float32), "dtype", "dtype")


@register
class _GridPoints(Op):
    """The points of the grid that leaves data as it is, or the length of a pixel both ways."""

    name = "_grid_points"
    Params = PointsParams
    recompute = "cheap"

    def inputs(self, p: PointsParams) -> tuple[str, ...]:
        return ()

    def infer_shape(self, p: PointsParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        shapes: dict[str, Shape] = {"affine": (3, p.height * p.width), "grid": (1, 2, p.height, p.width),
                                    "pixel": (1, 2, 1, 1)}
        return [], [merge_shapes(shapes[p.form], outs[0])]

    def infer_dtype(self, p: PointsParams, ins: list[np.dtype | None], outs: list[np.dtype | None],
                    ) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        return [], [p.dtype]

    def compute(self, p: PointsParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        if p.form == "pixel":
            outs[0][0, :, 0, 0] = 2 / (p.width - 1), 2 / (p.height - 1)
            return
        planes = outs[0].reshape(-1, p.height, p.width)
        planes[0] = np.linspace(-1, 1, p.width)
        planes[1] = np.linspace(-1, 1, p.height)[:, None]
        planes[2:] = 1

    def gradient(self, b: Builder, p: PointsParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        return []


@dataclass(frozen=True)
class GridGeneratorParams:
    """Parameters of GridGenerator."""

    transform_type: str = param(REQUIRED, "str", "what data holds: affine maps, or how far to move each point",
                                ("affine", "warp"))
    target_shape: tuple[int, ...] = param((0, 0), "shape", "height and width of the grid, for affine maps")


def _check_target(op: str, target: Sequence[int | None]) -> None:
    if len(target) != 2 or any(d is not None and d < 2 for d in target):
        raise ShapeError(f"{op}: a grid of {format_shape(tuple(target))}; height and width must be at least 2")


@register
class GridGenerator(Op):
    """A sampling grid (N, 2, H, W): from affine maps (N, 6), or from displacements in pixels (N, 2, H, W)."""

    name = "GridGenerator"
    Params = GridGeneratorParams
    recompute = "cheap"

    def infer_shape(self, p: GridGeneratorParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        if p.transform_type == "affine":
            _check_target(self.name, p.target_shape)
            batch = None if outs[0] is None else outs[0][0]
            data = merge_shapes(ins[0], (batch, 6))
            assert data is not None
            return [data], [merge_shapes((data[0], 2, *p.target_shape), outs[0])]
        shape = merge_shapes(ins[0], outs[0], (None, 2, None, None))
        assert shape is not None
        _check_target(self.name, shape[2:])
        return [shape], [shape]

    def expand(self, b: Builder, p: GridGeneratorParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        height, width = p.target_shape if p.transform_type == "affine" else b.shape(ins[0])[2:]

        def points(form: str) -> Entry:
            return only(b.node("_grid_points", [], height=height, width=width, form=form, dtype=b.dtype(ins[0])))
        if p.transform_type == "warp":
            moved = only(b.node("broadcast_mul", [ins[0], points("pixel")]))
            return b.node("broadcast_add", [moved, points("grid")])
        rows = only(b.node("Reshape", ins, shape=(-1, 3)))
        grid = only(b.node("dot", [rows, points("affine")]))
        return b.node("Reshape", [grid], shape=(-1, 2, height, width))

    def samples(self) -> Sequence[Sample]:
        return [Sample({"transform_type": "affine", "target_shape": (3, 4)}, ((2, 6),)),
                Sample({"transform_type": "warp"}, ((2, 2, 3, 5),))]


class _Sampling:
    """The points of one image's grid, corner by corner, in scratch of one number a point."""

    COUNT = 6

    def __init__(self, size: tuple[int, int], points: int, dtype: np.dtype, work: Workspace) -> None:
        self.size = size
        self.columns, self.rows, self.right, self.down, self.weight, self.spare = (
            work.array((points,), dtype) for _ in range(self.COUNT))
        self.index, self.offset = (work.array((points,), np.intp) for _ in range(2))
        self.inside, self.flags = (work.array((points,), bool) for _ in range(2))

    @classmethod
    def arrays(cls, points: int, dtype: np.dtype) -> list[tuple[Shape, Any]]:
        """The scratch that it takes, in order."""
        return [*[((points,), dtype)] * cls.COUNT, *[((points,), np.intp)] * 2, *[((points,), bool)] * 2]

    def place(self, grid: np.ndarray) -> None:
        """Take the grid (2, points) of an image: the pixel up and left of each point, and how far it is off."""
        for coordinate, length, whole, rest in ((grid[0], self.size[1], self.columns, self.right),
                                                (grid[1], self.size[0], self.rows, self.down)):
            np.add(coordinate, 1, out=rest)
            np.multiply(rest, (length - 1) / 2, out=rest)
            np.floor(rest, out=whole)
            np.subtract(rest, whole, out=rest)

    def corners(self) -> Iterator[tuple[int, int]]:
        """(down, right) of each corner in turn; then `index`, `weight` and `inside` are those of it."""
        for down in (0, 1):
            for right in (0, 1):
                self._set(down, right)
                yield down, right

    def _set(self, down: int, right: int) -> None:
        self.inside.fill(True)
        self.index.fill(0)
        for whole, step, length in ((self.rows, down, self.size[0]), (self.columns, right, self.size[1])):
            np.add(whole, step, out=self.spare)
            for compare, bound in ((np.greater_equal, 0), (np.less_equal, length - 1)):
                compare(self.spare, bound, out=self.flags)
                np.logical_and(self.inside, self.flags, out=self.inside)
            np.maximum(self.spare, 0, out=self.spare)
            np.minimum(self.spare, length - 1, out=self.spare)
            np.copyto(self.offset, self.spare, casting="unsafe")
            np.multiply(self.index, length, out=self.index)
            np.add(self.index, self.offset, out=self.index)
        self.share(self.right, right, self.weight)
        self.share(self.down, down, self.spare)
        np.multiply(self.weight, self.spare, out=self.weight)
        np.multiply(self.weight, self.inside, out=self.weight)

    @staticmethod
    def share(rest: np.ndarray, far: int, out: np.ndarray) -> None:
        """The weight of the near or far side of a point: 1 - rest or rest."""
        if far:
            np.copyto(out, rest)
        else:
            np.subtract(1, rest, out=out)


def _sizes(data: Any, grid: Any) -> tuple[int, tuple[int, int], int]:
    """(channels, (height, width) of the data, points)."""
    return data.shape[1], data.shape[2:], prod(grid.shape[2:])


@register
class BilinearSampler(Op):
    """data (N, C, H, W) at the points of a grid (N, 2, Ho, Wo), by its four nearest pixels: (N, C, Ho, Wo)."""

    name = "BilinearSampler"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("data", "grid")

    def sliced(self, p: Any, ins: Types,
               outs: Types) -> Sliced | None:
        return Sliced.every(ins, outs)

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        batch = [None if s is None else s[:1] for s in (*ins, outs[0])]
        (n,) = merge_shapes(*batch) or (None,)
        data = merge_shapes(ins[0], (n, None, None, None))
        grid = merge_shapes(ins[1], (n, 2, None, None))
        assert data is not None and grid is not None
        return [data, grid], [merge_shapes((n, data[1], *grid[2:]), outs[0])]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        channels, _, points = _sizes(*ins)
        arrays = [*_Sampling.arrays(points, ins[0].dtype), ((channels, points), ins[0].dtype)]
        return (Algorithm("images", Workspace.bytes_for(*arrays)),)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(8.0 * outs[0].size, sum(t.nbytes for t in ins), outs[0].nbytes)

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        channels, size, points = _sizes(*ins)
        sampling = _Sampling(size, points, ins[0].dtype, work)
        term = work.array((channels, points), ins[0].dtype)
        outs[0].fill(0)
        if not ins[0].size:     # no pixel to take: all points lie outside
            return
        for image, grid, out in zip(*ins, outs[0], strict=True):
            sampling.place(grid.reshape(2, points))
            target = out.reshape(channels, points)
            for _ in sampling.corners():
                np.take(image.reshape(channels, -1), sampling.index, axis=1, out=term, mode="clip")
                np.multiply(term, sampling.weight, out=term)
                np.add(target, term, out=target)

    def gradient(self, b: Builder, p: Any, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        if grads[0] is None or not any(wanted):
            return [None, None]
        return b.node("_bilinear_sampler_backward", [grads[0], *ins])

    def samples(self) -> Sequence[Sample]:
        # Inside and outside; no point is drawn on a pixel, where the gradient by the grid jumps.
        return [Sample({}, ((2, 3, 4, 5), (2, 2, 3, 2))), Sample({}, ((1, 2, 3, 3), (1, 2, 4, 4)), low=-1.6, high=1.6)]


@register
class _BilinearSamplerBackward(Op):
    """Gradients of data and grid from (grad, data, grid)."""

    name = "_bilinear_sampler_backward"

    def inputs(self, p: Any) -> tuple[str, ...]:
        return ("grad", "data", "grid")

    def outputs(self, p: Any) -> tuple[str, ...]:
        return ("data_grad", "grid_grad")

    def infer_shape(self, p: Any, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        (data, grid), (grad,) = BilinearSampler().infer_shape(
            p, [merge_shapes(ins[1], outs[0]), merge_shapes(ins[2], outs[1])], [ins[0]])
        return [grad, data, grid], [data, grid]

    def algorithms(self, p: Any, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        channels, _, points = _sizes(*ins[1:])
        dtype = ins[0].dtype
        arrays = [*_Sampling.arrays(points, dtype), ((channels, points), dtype), ((points,), dtype)]
        return (Algorithm("images", Workspace.bytes_for(*arrays)),)

    def cost(self, p: Any, ins: Types, outs: Types) -> Cost:
        return Cost(16.0 * ins[0].size, sum(t.nbytes for t in ins), sum(t.nbytes for t in outs))

    def compute(self, p: Any, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        channels, size, points = _sizes(*ins[1:])
        sampling = _Sampling(size, points, ins[0].dtype, work)
        term, dots = work.array((channels, points), ins[0].dtype), work.array((points,), ins[0].dtype)
        for out in outs:
            out.fill(0)
        if not ins[1].size:
            return
        for grad, image, grid, *found in zip(*ins, *outs, strict=True):
            sampling.place(grid.reshape(2, points))
            above, pixels = grad.reshape(channels, points), found[0].reshape(channels, -1)
            for corner in sampling.corners():
                np.multiply(above, sampling.weight, out=term)
                for row, values in zip(pixels, term, strict=True):
                    np.add.at(row, sampling.index, values)
                np.take(image.reshape(channels, -1), sampling.index, axis=1, out=term, mode="clip")
                np.einsum("cp,cp->p", term, above, out=dots)
                np.multiply(dots, sampling.inside, out=dots)
                self._add_slopes(sampling, corner, dots, found[1].reshape(2, points))

    @staticmethod
    def _add_slopes(sampling: _Sampling, corner: tuple[int, int], dots: np.ndarray, target: np.ndarray) -> None:
        """Add a corner's part of the slope both ways: a weight falls one way as it grows the other."""
        (down, right), (height, width) = corner, sampling.size
        for rest, far, sign, length, out in (
                (sampling.down, down, right, width, target[0]), (sampling.right, right, down, height, target[1])):
            sampling.share(rest, far, sampling.spare)
            np.multiply(sampling.spare, dots, out=sampling.spare)
            np.multiply(sampling.spare, (length - 1) / 2 * (1 if sign else -1), out=sampling.spare)
            np.add(out, sampling.spare, out=out)


@dataclass(frozen=True)
class SpatialTransformerParams:
    """Parameters of SpatialTransformer."""

    target_shape: tuple[int, ...] = param((0, 0), "shape", "height and width of the output")
    transform_type: str = param(REQUIRED, "str", "kind of map", ("affine",))
    sampler_type: str = param(REQUIRED, "str", "how points are sampled", ("bilinear",))


@register
class SpatialTransformer(Op):
    """data (N, C, H, W) seen through the affine maps loc (N, 6), which take output points to data points."""

    name = "SpatialTransformer"
    Params = SpatialTransformerParams

    def inputs(self, p: SpatialTransformerParams) -> tuple[str, ...]:
        return ("data", "loc")

    def infer_shape(self, p: SpatialTransformerParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        _check_target(self.name, p.target_shape)
        loc = merge_shapes(ins[1], (None, 6))
        assert loc is not None
        (data, grid), out = BilinearSampler().infer_shape(p, [ins[0], (loc[0], 2, *p.target_shape)], outs)
        assert grid is not None
        return [data, (grid[0], 6)], out

    def expand(self, b: Builder, p: SpatialTransformerParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        grid = GridGenerator().expand(b, GridGeneratorParams("affine", p.target_shape), [ins[1]], train)
        return b.node("BilinearSampler", [ins[0], *grid])

    def samples(self) -> Sequence[Sample]:
        return [Sample({"transform_type": "affine", "sampler_type": "bilinear", "target_shape": (3, 4)},
                       ((2, 2, 4, 5), (2, 6)))]

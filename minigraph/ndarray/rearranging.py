"""What MXNet has for NDArrays alone or calls otherwise: parts, axes in another order, one element of each row."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ..base import MXNetError
from ..storage import HostStorage
from ..symbol.splitting import places
from .array import NDArray
from .functions import deliver, op_function

Bounds = Sequence["int | None"]


def _new(values: np.ndarray, like: NDArray) -> NDArray:
    return NDArray(HostStorage(np.array(values, order="C"), like.context))


def moveaxis(tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]) -> NDArray:
    """A copy with the axes `source` moved to the places `destination`; the others keep their order."""
    return _new(np.moveaxis(tensor.storage.read(), source, destination), tensor)


def split_v2(ary: NDArray, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False,
             ) -> NDArray | list[NDArray]:
    """Parts along an axis: so many of equal length, or cut before the given positions; one part is no list.

    With `squeeze_axis` parts of length 1 lose the axis. MXNetError when the axis has no such parts.
    """
    return op_function("_split_v2")(ary, **places(indices_or_sections), axis=axis, squeeze_axis=squeeze_axis)


def boolean_mask(data: NDArray, index: NDArray, axis: int = 0) -> NDArray:
    """The slices of `data` along an axis at which the vector `index` is not 0."""
    chosen = index.storage.read() != 0
    if chosen.shape != data.shape[axis:][:1]:
        raise MXNetError(f"boolean_mask takes a number for each slice along axis {axis} of data {data.shape}, got an "
                         f"index of shape {index.shape}")
    return _new(np.compress(chosen, data.storage.read(), axis), data)


def slice_assign(lhs: NDArray, rhs: NDArray, begin: Bounds, end: Bounds, step: Bounds = (),
                 out: NDArray | None = None) -> NDArray:
    """`lhs` with `rhs` in its part from `begin` to `end`; a new array unless `out` is given, which may be `lhs`."""
    return _delivered(lhs.copy().slice_assign(rhs, begin, end, step), out)


def slice_assign_scalar(data: NDArray, scalar: float = 0.0, begin: Bounds = (), end: Bounds = (), step: Bounds = (),
                        out: NDArray | None = None) -> NDArray:
    """`data` with a number in its part from `begin` to `end`; a new array unless `out` is given."""
    return _delivered(data.copy().slice_assign_scalar(scalar, begin, end, step), out)


def _delivered(made: NDArray, out: NDArray | None) -> NDArray:
    """The result itself, or `out` with its values; MXNetError where shape or dtype differ."""
    if out is None:
        return made
    deliver(out, made.asnumpy(), "out")
    return out


def histogram(a: NDArray, bins: int | NDArray = 10, range: tuple[float, float] | None = None,  # noqa: A002
              ) -> tuple[NDArray, NDArray]:
    """(counts, edges) of the elements in `bins` equal intervals of `range`, or between the given edges."""
    edges = bins.asnumpy() if isinstance(bins, NDArray) else bins
    counts, edges = np.histogram(a.storage.read(), edges, range)
    return _new(counts.astype(np.int64), a), _new(edges.astype(a.storage.dtype), a)


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """`out`, of shape (rows, classes), with 1 at the class of each row and 0 elsewhere."""
    encoded = op_function("one_hot")(indices, depth=out.shape[1])
    deliver(out, encoded.asnumpy().astype(out.dtype), "onehot_encode")
    return out


def choose_element_0index(lhs: NDArray, rhs: NDArray, out: NDArray | None = None) -> NDArray:
    """The element of each row of `lhs` at the position that `rhs` gives."""
    return op_function("pick")(lhs, rhs, out=out)


def fill_element_0index(lhs: NDArray, mhs: NDArray, rhs: NDArray, out: NDArray | None = None) -> NDArray:
    """`lhs` with the element of each row at position `rhs` replaced by that of `mhs`; MXNetError outside the row."""
    values, places = lhs.asnumpy(), rhs.asnumpy().astype(np.int64)
    if places.shape != values.shape[:1] or values.ndim != 2 or ((places < 0) | (places >= values.shape[1])).any():
        raise MXNetError(f"fill_element_0index takes a matrix and a position in each of its rows, got the shape "
                         f"{lhs.shape} and the positions {places.tolist()}")
    values[np.arange(len(places)), places] = mhs.storage.read()
    return _delivered(_new(values, lhs), out)


def imdecode(*args: Any, **kwargs: Any) -> NoReturn:
    """Not there: MXNetError."""
    raise MXNetError("mx.nd.imdecode is not supported; mx.io.ImageRecordIter reads and decodes images")

"""Run one operator by its kernels: operands in any layout, poisoned outputs, guarded and exactly granted workspace."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from minigraph.base import TensorType
from minigraph.device.cpu import get_num_threads, set_num_threads
from minigraph.device.cpu.native import call
from minigraph.device.cpu.native.call import NativeCall, Operand, native_op
from minigraph.device.cpu.native.families import import_families
from minigraph.device.cpu.native.layout import BLOCKED, LANES, TRANSPOSED, Layouts, blocks, padded_size
from minigraph.device.cpu.native.library import Library, find_library
from minigraph.device.cpu.native.run import NativeRun
from minigraph.ops.registry import get_op
from tests.ops.harness import execute, infer, parsed

import_families()
GUARD = 64
"""Floats on either side of an operand, which no kernel may touch: a kernel may not even write back what it read."""
GUARD_VALUE = np.float32(-77.25)
FLOAT = np.dtype(np.float32)
STREAMED_BYTES = 32 << 20
"""Outputs larger than this are stored past the caches: `STREAMED_BYTES` of kernels/cpu/lanes.h."""


def the_library() -> Library:
    """The library for this CPU; skips the test where there is none."""
    library = find_library("auto")
    if library is None:
        pytest.skip("there is no C++ compiler")
    return library


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Kernels use so many threads."""
    before = get_num_threads()
    set_num_threads(count)
    try:
        yield
    finally:
        set_num_threads(before)


def to_blocked(array: np.ndarray) -> np.ndarray:
    """(N, C, *spatial) as nChw16c, the padding zero."""
    n, c, *spatial = array.shape
    padded = np.zeros((n, blocks(c) * LANES, *spatial), array.dtype)
    padded[:, :c] = array
    split = padded.reshape(n, blocks(c), LANES, *spatial)
    return np.ascontiguousarray(np.moveaxis(split, 2, -1))


def to_plain(stored: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The tensor of nChw16c; asserts that the padding is zero."""
    n, c, *spatial = shape
    split = stored.reshape(n, blocks(c), *spatial, LANES)
    padded = np.moveaxis(split, -1, 2).reshape(n, blocks(c) * LANES, *spatial)
    assert not padded[:, c:].any(), "padding lanes are not zero"
    return np.ascontiguousarray(padded[:, :c])


class Guarded:
    """An operand's memory between guards."""

    def __init__(self, count: int, dtype: np.dtype = FLOAT) -> None:
        nbytes = count * dtype.itemsize
        size = -(-nbytes // 4)
        raw = np.full(size + 3 * GUARD, GUARD_VALUE, np.float32)
        start = (-raw.ctypes.data % (4 * GUARD)) // 4 + GUARD
        self._raw, self._start, self._size = raw, start, size
        whole = raw[start:start + size].view(np.uint8)
        whole.fill(0xFF)
        self.array, self._rest = whole[:nbytes].view(dtype), whole[nbytes:]

    def check(self) -> None:
        """Assert that the guards are as they were."""
        outside = np.concatenate([self._raw[:self._start], self._raw[self._start + self._size:]])
        assert (outside == GUARD_VALUE).all() and (self._rest == 0xFF).all(), "a kernel wrote outside an operand"


@dataclass(frozen=True)
class Ran:
    """What `run` has run: calls, the memory that they name, and what it held before; None for what is poisoned."""

    name: str
    calls: Sequence[NativeCall]
    memory: Sequence[np.ndarray]
    before: Sequence[bytes | None]
    results: Sequence[np.ndarray]


observers: list[Callable[[Ran], None]] = []
"""Told of everything that `run` runs, for those who run it again elsewhere."""


def run(name: str, params: Mapping[str, Any], arrays: Sequence[np.ndarray], layouts: Layouts | None = None,
        share: Sequence[tuple[int, int]] = (), library: Library | None = None,
        algorithm: str | None = None) -> list[np.ndarray]:
    """Outputs of an op by its kernels, the best layouts and algorithm unless others are given; `share` are in-place
    pairs."""
    op, native, library = get_op(name), native_op(name), library or the_library()
    assert native is not None
    p = parsed(op, params)
    types = [TensorType(a.shape, a.dtype) for a in arrays], infer(op, p, arrays)
    chosen = layouts or native.layouts(p, *types)[0]
    ins, outs = placed(types, chosen)
    assert any((offer.ins, offer.outs) == (chosen.ins, chosen.outs) for offer in native.layouts(p, ins, outs)), \
        f"{name} does not take {chosen}"
    memory = [Guarded(padded_size(t.shape, t.layout), t.dtype) for t in ins]
    for i, (held, a, t) in enumerate(zip(memory, arrays, ins, strict=True)):
        if i not in op.unread(p):
            held.array[:] = _in_layout(a, t.layout).reshape(-1)
    before = [held.array.tobytes() for held in memory]
    shared = {j: i for i, j in (*share, *op.mutates(p))}
    results = [memory[shared[j]] if j in shared else Guarded(padded_size(t.shape, t.layout), t.dtype)
               for j, t in enumerate(outs)]
    found = next(a for a in call.algorithms(op, p, ins, outs) if algorithm in (None, a.name))
    work = Guarded(-(-found.workspace_bytes // 4))
    calls = native.calls(p, _operands(memory, ins, op.unread(p)), _operands(results, outs), work.array.ctypes.data,
                         found.name)
    NativeRun(library, [each.pack(library) for each in calls])()
    for observe in observers:
        held_all = [*memory, *(r for r in results if r not in memory), work]
        observe(Ran(name, calls, [held.array for held in held_all],
                    [*before, *[None] * (len(held_all) - len(before))], [held.array for held in results]))
    for i, (held, old) in enumerate(zip(memory, before, strict=True)):
        assert i in shared.values() or held.array.tobytes() == old, f"{name} changed its input {op.inputs(p)[i]}"
    for held in (*memory, *results, work):
        held.check()
    return [to_plain(held.array, t.shape) if t.layout == BLOCKED else held.array.reshape(t.shape).copy()
            for held, t in zip(results, outs, strict=True)]


def _in_layout(array: np.ndarray, layout: str) -> np.ndarray:
    return to_blocked(array) if layout == BLOCKED else array.T if layout == TRANSPOSED else array


def placed(types: Sequence[Sequence[TensorType]], layouts: Layouts) -> list[list[TensorType]]:
    """Types of inputs and outputs in these layouts."""
    return [[TensorType(t.shape, t.dtype, layout) for t, layout in zip(side, names, strict=True)]
            for side, names in zip(types, (layouts.ins, layouts.outs), strict=True)]


def _operands(memory: Sequence[Guarded], types: Sequence[TensorType], unread: Sequence[int] = ()) -> list[Operand]:
    return [Operand(0 if i in unread else held.array.ctypes.data, t.shape, t.dtype, t.layout)
            for i, (held, t) in enumerate(zip(memory, types, strict=True))]


def check(name: str, params: Mapping[str, Any], arrays: Sequence[np.ndarray], rtol: float = 1e-5,
          library: Library | None = None, rests: Sequence[int] = (), rtols: Mapping[str, float] | None = None) -> None:
    """In all layouts, by all algorithms, with one thread and with three, and in place, kernels give the NumPy
    definition in float64.

    `rtol` bounds errors against the largest element, `rtols` those of other numeric classes. Threads, in-place pairs
    and algorithms of a class change no bit. `rests` are outputs that rounding makes, for which float64 has no values.
    """
    op, native = get_op(name), native_op(name)
    assert native is not None
    p = parsed(op, params)
    arrays = [np.asarray(a, np.float32) for a in arrays]
    doubles = op.infer_dtype(p, [np.dtype(np.float64)] * len(arrays), [None] * len(op.outputs(p)))[0]
    expected = execute(op, p, [a.astype(dtype) for a, dtype in zip(arrays, doubles, strict=True)])
    types = [TensorType(a.shape, a.dtype) for a in arrays], infer(op, p, arrays)
    for layouts in native.layouts(p, *types):
        classes: dict[str, list[np.ndarray]] = {}
        for algorithm in call.algorithms(op, p, *placed(types, layouts)):
            bound = (rtols or {}).get(algorithm.numeric_class, rtol)
            with threads(1):
                found = run(name, params, arrays, layouts, library=library, algorithm=algorithm.name)
            _same(found, classes.setdefault(algorithm.numeric_class, found))
            for j, (array, want) in enumerate(zip(found, expected, strict=True)):
                if j not in rests:
                    scale = max(np.abs(want).max(initial=0), 1e-30)
                    np.testing.assert_allclose(array, want, rtol=0, atol=bound * scale,
                                               err_msg=f"{name} {params} {layouts} {algorithm.name}")
            with threads(3):
                _same(found, run(name, params, arrays, layouts, library=library, algorithm=algorithm.name))
            for i, j in op.inplace(p):
                if layouts.ins[i] == layouts.outs[j] and types[0][i].shape == types[1][j].shape:
                    _same(found, run(name, params, arrays, layouts, [(i, j)], library, algorithm.name))


def _same(found: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> None:
    assert [a.tobytes() for a in found] == [a.tobytes() for a in again]

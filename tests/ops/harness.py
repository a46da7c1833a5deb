"""Run one operator without a graph: inferred types, poisoned outputs, exactly the declared workspace.

`run` executes an op as it stands. `expand_and_run` and `gradients` go through `expand` and `gradient` with
a builder that executes each node at once: a whole backward part is tested with arrays in and arrays out.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigraph.base import ALIGNMENT, Entry, TensorType, align
from minigraph.ops.control import control_size, set_key
from minigraph.ops.op import Op, Workspace, is_complete
from minigraph.ops.params import parse_params
from minigraph.ops.registry import get_op


def poisoned(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An aligned array of all-ones bytes: NaN as a float, -1 as an integer."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.full(nbytes + ALIGNMENT, 0xFF, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start:start + nbytes].view(dtype).reshape(shape)


def parsed(op: Op, params: Mapping[str, Any]) -> Any:
    """The typed parameters of an op, from values or texts."""
    return parse_params(op.Params, params, op.name)


def infer(op: Op, p: Any, arrays: Sequence[np.ndarray]) -> list[TensorType]:
    """Types of an op's outputs; asserts that inference is complete and agrees with the given inputs."""
    count = len(op.outputs(p))
    assert len(op.inputs(p)) == len(arrays), f"{op.name} takes {op.inputs(p)}, got {len(arrays)} arrays"
    ins, shapes = op.infer_shape(p, [a.shape for a in arrays], [None] * count)
    assert list(ins) == [a.shape for a in arrays], f"{op.name} infers inputs {ins}"
    assert all(is_complete(s) for s in shapes), f"{op.name} infers outputs {shapes}"
    in_types, types = op.infer_dtype(p, [a.dtype for a in arrays], [None] * count)
    assert list(in_types) == [a.dtype for a in arrays], f"{op.name} infers input dtypes {in_types}"
    return [TensorType(tuple(s), np.dtype(t)) for s, t in zip(shapes, types, strict=True)]


def execute(op: Op, p: Any, arrays: Sequence[np.ndarray], share: Sequence[tuple[int, int]] = (),
            poison_unread: bool = True, algorithm: int = 0) -> list[np.ndarray]:
    """Outputs of one execution on copies of the arrays; the op may change only what it declares.

    `share` lists (input, output) pairs whose output lies on the input's bytes. `algorithm` picks one of
    `algorithms`, whose workspace is granted to the byte.
    """
    types = infer(op, p, arrays)
    ins = [poisoned(a.shape, a.dtype) for a in arrays]
    for i, (copy, a) in enumerate(zip(ins, arrays, strict=True)):
        if not (poison_unread and i in op.unread(p)):
            copy[...] = a
    shared = {j: i for i, j in (*share, *op.mutates(p), *(((0, 0),) if op.view(p) else ()))}
    outs = [within(ins[shared[j]], op, p, t) if j in shared else poisoned(t.shape, t.dtype)
            for j, t in enumerate(types)]
    before = [None if i in shared.values() else copy.tobytes() for i, copy in enumerate(ins)]
    in_types = [TensorType(a.shape, a.dtype) for a in arrays]
    nbytes = op.algorithms(p, in_types, types)[algorithm].workspace_bytes
    op.compute(p, ins, outs, Workspace(poisoned((align(nbytes),), np.uint8)))
    for i, (copy, old) in enumerate(zip(ins, before, strict=True)):
        assert old is None or copy.tobytes() == old, f"{op.name} changed its input {op.inputs(p)[i]}"
    return outs


def within(array: np.ndarray, op: Op, p: Any, kind: TensorType) -> np.ndarray:
    """An output on an input's bytes, or on those of its part that a view shows."""
    begin = op.view_offset(p, TensorType(array.shape, array.dtype)) if op.view(p) else 0
    assert begin % ALIGNMENT == 0, f"{op.name} shows bytes from {begin} on, which are not aligned"
    return array.reshape(-1).view(np.uint8)[begin:begin + kind.nbytes].view(kind.dtype).reshape(kind.shape)


def run(op_name: str, params: Mapping[str, Any], arrays: Sequence[np.ndarray],
        **how: Any) -> list[np.ndarray]:
    """Output arrays of an op on given input arrays; asserts that every in-place pair gives the same bits."""
    op = get_op(op_name)
    p = parsed(op, params)
    arrays = [np.asarray(a) for a in arrays]
    outs = execute(op, p, arrays, **how)
    types = infer(op, p, arrays)
    for i, j in op.inplace(p):
        if arrays[i].nbytes == types[j].nbytes:
            again = execute(op, p, arrays, share=[(i, j)], **how)
            for name, a, b in zip(op.outputs(p), outs, again, strict=True):
                assert a.tobytes() == b.tobytes(), f"{op_name}: {name} differs with {j} in place over {i}"
    return outs


class EagerBuilder:
    """A builder whose nodes are executed as they are added; entries number `values`."""

    def __init__(self, seed: int = 1, step: int = 0) -> None:
        self.values: list[np.ndarray] = []
        self.ops: list[str] = []
        control = np.zeros(control_size(0), np.float32)
        set_key(control, seed, step)
        self._key = self.add(control)
        self._ordinals = 0

    def add(self, array: np.ndarray) -> Entry:
        """A new entry with a given value."""
        self.values.append(np.asarray(array))
        return len(self.values) - 1

    def node(self, op: str, inputs: Sequence[Entry], /, **params: object) -> tuple[Entry, ...]:
        """Execute an op and return the entries of its outputs."""
        self.ops.append(op)
        return tuple(self.add(out) for out in run(op, params, [self.values[e] for e in inputs]))

    def shape(self, entry: Entry) -> tuple[int, ...]:
        """The shape of an entry."""
        return self.values[entry].shape

    def dtype(self, entry: Entry) -> np.dtype:
        """The dtype of an entry."""
        return self.values[entry].dtype

    def random_key(self) -> Entry:
        """The entry of the control buffer."""
        return self._key

    def next_random_ordinal(self) -> int:
        """0, 1, 2 …"""
        self._ordinals += 1
        return self._ordinals - 1

    def next_python_ordinal(self) -> int:
        """0, 1, 2 …"""
        return self.next_random_ordinal()


def sample_dtypes(op: Op, p: Any, dtype: Any) -> list[np.dtype]:
    """Dtypes of the inputs of an op whose numbers are of `dtype`: bytes where it takes bytes, and else that."""
    count = len(op.inputs(p))
    given, _ = op.infer_dtype(p, [np.dtype(dtype), *[None] * (count - 1)][:count], [None] * len(op.outputs(p)))
    return [np.dtype(t) if t == np.uint8 else np.dtype(dtype) for t in given]


def expand_and_run(op_name: str, params: Mapping[str, Any], arrays: Sequence[np.ndarray], train: bool = True,
                   builder: EagerBuilder | None = None) -> list[np.ndarray]:
    """Outputs of an op expanded for training or evaluation."""
    b = builder or EagerBuilder()
    op = get_op(op_name)
    outs = op.expand(b, parsed(op, params), [b.add(a) for a in arrays], train)
    return [b.values[e] for e in outs]


def gradients(op_name: str, params: Mapping[str, Any], arrays: Sequence[np.ndarray],
              out_grads: Sequence[np.ndarray | None], wanted: Sequence[bool] | None = None,
              builder: EagerBuilder | None = None) -> list[np.ndarray | None]:
    """Input gradients from given output gradients, of an op that expands to one node of its own.

    An op that expands to something else is tested by the name of the node that it expands to.
    """
    b = builder or EagerBuilder()
    op = get_op(op_name)
    p = parsed(op, params)
    ins = [b.add(a) for a in arrays]
    outs = b.node(op_name, ins, **params)
    grads = [None if g is None else b.add(np.asarray(g)) for g in out_grads]
    found = op.gradient(b, p, ins, outs, grads, wanted or [True] * len(ins))
    for g, a in zip(found, arrays, strict=True):
        assert g is None or b.values[g].shape == np.shape(a), f"{op_name}: shape {b.values[g].shape}"
    return [None if g is None else b.values[g] for g in found]


def numeric_gradient(op_name: str, params: Mapping[str, Any], arrays: Sequence[np.ndarray], which: int,
                     out_grad: np.ndarray, step: float = 1e-6, output: int = 0) -> np.ndarray:
    """Gradient of sum(output * out_grad) by central differences; the input in question is made float64."""
    arrays = [np.array(a) for a in arrays]
    arrays[which] = arrays[which].astype(np.float64)
    found = np.zeros_like(arrays[which])
    for index in np.ndindex(found.shape):
        values = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[which][index] += sign * step
            values.append(float((execute_by_name(op_name, params, moved)[output] * out_grad).sum()))
        found[index] = (values[0] - values[1]) / (2 * step)
    return found


def execute_by_name(op_name: str, params: Mapping[str, Any],
                    arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`execute` with an op's name and unparsed parameters."""
    op = get_op(op_name)
    return execute(op, parsed(op, params), arrays)

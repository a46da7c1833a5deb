"""CTCLoss: minus the logarithm of the probability of a label sequence, over all its alignments with the frames.

Graves et al., Connectionist Temporal Classification (ICML 2006), in logarithms. A label of L classes has 2 L + 1
states: blanks, with the classes between them. `alphas[t, n, s]` is the logarithm of the probability of all ways to be
in state s at frame t; the states' posteriors are the gradient by the logarithms of the frames' probabilities.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..base import Algorithm, Builder, Cost, Entry, PartialShape, Shape, TensorType
from .elemwise import only
from .indexing import ByIndex, IdRange, numbers
from .op import Arrays, Sample, ShapeError, Workspace, format_shape, merge_shapes
from .params import param
from .pointwise import Found
from .registry import register

Types = Sequence[TensorType]


@dataclass(frozen=True)
class CtcParams:
    """Parameters of CTCLoss, of what it expands to, and of its gradient."""

    use_data_lengths: bool = param(False, "bool", "whether an input tells how many frames of each sequence count")
    use_label_lengths: bool = param(False, "bool", "whether an input tells how many classes each label has")
    blank_label: str = param("first", "str", "the class of blanks: 0, or the last one", ("first", "last"))


def _label_range(p: CtcParams, classes: int) -> tuple[int, int]:
    """(blank, bound of the classes of a label)."""
    return (0, classes) if p.blank_label == "first" else (classes - 1, classes - 1)


class _States:
    """The states of each label of a batch, and which of them a path may enter by leaving out a blank."""

    def __init__(self, p: CtcParams, data: Shape, label: np.ndarray, lengths: Arrays, work: Workspace) -> None:
        time, batch, classes = data
        count = label.shape[1]
        blank, bound = _label_range(p, classes)
        self.classes = work.array((batch, 2 * count + 1), np.intp)
        """The class of each state, as a place in a frame's row of all (batch x classes) numbers."""
        self.skips = work.array((batch, 2 * count + 1), bool)
        self.frames, self.labels, self.needed = (work.array((batch,), np.intp) for _ in range(3))
        given = work.array((batch, count), np.intp)
        for start, ids in numbers(label, bound, "CTCLoss: label", ignored=-1):
            given.reshape(-1)[start:start + ids.size] = ids
        self.frames.fill(time)
        self.labels.fill(count)
        rest = iter(lengths)
        if p.use_data_lengths:
            self._shorten(self.frames, next(rest), time, "data")
        if p.use_label_lengths:
            self._shorten(self.labels, next(rest), count, "label")
        self.classes.fill(blank)
        self.skips.fill(False)
        for n, row in enumerate(given):
            self._place(n, row, blank)
            self.classes[n] += n * classes

    @staticmethod
    def _shorten(counts: np.ndarray, lengths: np.ndarray, most: int, what: str) -> None:
        """Cut counts down to the lengths that are given."""
        for start, given in numbers(lengths, most + 1, f"CTCLoss: {what} length"):
            part = counts[start:start + given.size]
            np.minimum(part, given, out=part)

    def _place(self, n: int, label: np.ndarray, blank: int) -> None:
        """The states of one label, up to its first padding, and how many frames it needs: one a class, and one for each
        blank that must part two equal ones."""
        label = label[:self.labels[n]]
        padding = (label < 0) | (label == blank)
        count = int(np.argmax(padding)) if padding.any() else label.size
        label = label[:count]
        self.labels[n] = count
        self.classes[n, 1:2 * count:2] = label
        differ = label[1:] != label[:-1]
        self.skips[n, 3:2 * count:2] = differ
        self.needed[n] = count + differ.size - np.count_nonzero(differ)

    def possible(self) -> np.ndarray:
        """Which sequences have as many frames as their label needs."""
        return (self.needed <= self.frames) & (self.frames > 0)

    @staticmethod
    def arrays(batch: int, count: int) -> list[tuple[Shape, Any]]:
        """The scratch that it takes, in order."""
        return [((batch, 2 * count + 1), np.intp), ((batch, 2 * count + 1), bool), *[((batch,), np.intp)] * 3,
                ((batch, count), np.intp)]


def _log_add(total: np.ndarray, term: np.ndarray, where: np.ndarray | bool = True) -> None:
    """total = log(exp(total) + exp(term)) at some places."""
    np.logaddexp(total, term, out=total, where=where)


class _CtcOp(ByIndex):
    """Base of CTCLoss, of what it expands to, and of the gradient: inputs in `given`, then the lengths there are."""

    Params = CtcParams
    recompute = "costly"
    given: ClassVar[tuple[str, ...]] = ("data", "label")
    label: ClassVar[int] = 1

    def inputs(self, p: CtcParams) -> tuple[str, ...]:
        lengths = ("data_lengths",) * p.use_data_lengths + ("label_lengths",) * p.use_label_lengths
        return (*self.given, *lengths)

    @property
    def ids(self) -> tuple[int, ...]:  # type: ignore[override]
        """The inputs with labels and lengths."""
        return (self.label, *range(len(self.given), len(self.given) + 2))

    def shapes(self, p: CtcParams, data: PartialShape, label: PartialShape, lengths: Sequence[PartialShape],
               loss: PartialShape) -> tuple[PartialShape, PartialShape, PartialShape]:
        """(data, label, loss), each completed by the others."""
        data, label = merge_shapes(data, (None,) * 3), merge_shapes(label, (None,) * 2)
        assert data is not None and label is not None
        loss = merge_shapes(loss, data[1:2], label[:1], *lengths)
        assert loss is not None
        if data[2] is not None and data[2] < 1:
            raise ShapeError(f"CTCLoss: data {format_shape(data)} has no class for blanks along axis 2")
        return (data[0], loss[0], data[2]), (loss[0], label[1]), loss


@register
class CtcLoss(_CtcOp):
    """-log p(label | data) of each sequence (N,), from logits (T, N, C), of which the op takes the softmax itself, and
    labels (N, L).

    Labels are classes 1 to C - 1, and 0 is blank, or with blank_label="last" 0 to C - 2, and C - 1 is blank. A label
    ends before its first -1, or with blanks first its first 0, and at its length where that is given. A sequence with
    fewer frames than its label needs has loss 0 and gradient 0, as in MXNet. Other labels and lengths raise. The hidden
    output has MXNet's place and holds the logarithms of the probabilities.
    """

    name = "CTCLoss"
    aliases = ("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss")

    def outputs(self, p: CtcParams) -> tuple[str, ...]:
        return ("output0", "output1")

    def visible_outputs(self, p: CtcParams) -> int:
        return 1

    def infer_shape(self, p: CtcParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, label, loss = self.shapes(p, merge_shapes(ins[0], outs[1]), ins[1], ins[2:], outs[0])
        return [data, label, *[loss] * len(ins[2:])], [loss, data]

    def expand(self, b: Builder, p: CtcParams, ins: Sequence[Entry], train: bool) -> Sequence[Entry]:
        logs = only(b.node("log_softmax", ins[:1], axis=2))
        loss, _ = b.node("_ctc_loss", [logs, *ins[1:]], **vars(p))
        return [loss, logs]

    def samples(self) -> Sequence[Sample]:
        return _samples(((6, 3, 5), (3, 4)))


def _samples(shapes: tuple[Shape, ...]) -> list[Sample]:
    """Samples with and without lengths and with either blank; of small labels that fit, and of some that do not."""
    cases = []
    for params in ({}, {"blank_label": "last"}, {"use_data_lengths": True}, {"use_label_lengths": True},
                   {"use_data_lengths": True, "use_label_lengths": True, "blank_label": "last"}):
        lengths = {"data_lengths": 7, "label_lengths": 5}
        given = {name: bound for name, bound in lengths.items() if params.get(f"use_{name}")}
        cases.append(Sample(params, (*shapes, *[shapes[1][:1]] * len(given)), low=-2.0, high=2.0,
                            integer={"label": 4, **given}))
    return cases


class _Aligning(_CtcOp):
    """Base of the two that run."""

    def id_ranges(self, p: CtcParams, ins: Types, outs: Types) -> Sequence[IdRange]:
        (time, _, classes), label = ins[self.label - 1].shape, ins[self.label].shape
        found = [IdRange("CTCLoss: label", self.label, label, _label_range(p, classes)[1], ignored=-1.0)]
        most = {"data_lengths": time, "label_lengths": label[1]}
        return found + [IdRange(f"CTCLoss: {name.split('_')[0]} length", k, ins[k].shape, most[name] + 1)
                        for k, name in enumerate(self.inputs(p)) if name in most]


@register
class _CtcLoss(_Aligning):
    """The losses (N,) from logarithms of probabilities (T, N, C), and the hidden `alphas` (T, N, 2 L + 1)."""

    name = "_ctc_loss"

    def outputs(self, p: CtcParams) -> tuple[str, ...]:
        return ("loss", "alphas")

    def visible_outputs(self, p: CtcParams) -> int:
        return 1

    def infer_shape(self, p: CtcParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        data, label, loss = self.shapes(p, ins[0], ins[1], ins[2:], outs[0])
        return [data, label, *[loss] * len(ins[2:])], [loss, _alphas_shape(data, label, outs[1])]

    def algorithms(self, p: CtcParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        time, batch, states = outs[1].shape
        kind = ((batch, states), ins[0].dtype)
        return (Algorithm("frames", Workspace.bytes_for(*_States.arrays(batch, ins[1].shape[1]), kind)),)

    def cost(self, p: CtcParams, ins: Types, outs: Types) -> Cost:
        return Cost(30.0 * outs[1].size, 2 * outs[1].nbytes + sum(t.nbytes for t in ins[1:]), outs[1].nbytes)

    def compute(self, p: CtcParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        (data, label, *lengths), (loss, alphas) = ins, outs
        states = _States(p, data.shape, label, lengths, work)
        given = work.array(alphas.shape[1:], data.dtype)
        for t, frame in enumerate(data):
            here = alphas[t]
            if t == 0:
                here.fill(-np.inf)
                here[:, :2] = 0
            else:
                before = alphas[t - 1]
                np.copyto(here, before)
                _log_add(here[:, 1:], before[:, :-1])
                _log_add(here[:, 2:], before[:, :-2], where=states.skips[:, 2:])
            np.take(frame.reshape(-1), states.classes, out=given, mode="clip")
            np.add(here, given, out=here)
            if t:       # past its last frame a sequence keeps what it has
                np.copyto(here, before, where=(states.frames <= t)[:, None])
        loss.fill(0)
        for n in np.flatnonzero(states.possible()):
            length = states.labels[n]
            ends = alphas[-1, n, max(2 * length - 1, 0):2 * length + 1]
            loss[n] = -np.logaddexp.reduce(ends)

    def gradient(self, b: Builder, p: CtcParams, ins: Sequence[Entry], outs: Sequence[Entry],
                 grads: Found, wanted: Sequence[bool]) -> Found:
        found: list[Entry | None] = [None] * len(ins)
        if grads[0] is not None and wanted[0]:
            found[0], = b.node("_ctc_loss_backward", [grads[0], *outs, *ins], **vars(p))
        return found

    def samples(self) -> Sequence[Sample]:
        return [Sample(s.params, s.shapes, low=-3.0, high=-0.5, integer=s.integer)
                for s in _samples(((6, 3, 5), (3, 4)))]


def _alphas_shape(data: PartialShape, label: PartialShape, given: PartialShape) -> PartialShape:
    assert data is not None and label is not None
    states = None if label[1] is None else 2 * label[1] + 1
    return merge_shapes((data[0], data[1], states), given)


@register
class _CtcLossBackward(_Aligning):
    """Minus each class's posterior at each frame, times the gradient of the loss: the gradient of the logarithms."""

    name = "_ctc_loss_backward"
    given = ("grad", "loss", "alphas", "data", "label")
    label = 4

    def outputs(self, p: CtcParams) -> tuple[str, ...]:
        return ("data_grad",)

    def infer_shape(self, p: CtcParams, ins: list[PartialShape], outs: list[PartialShape],
                    ) -> tuple[list[PartialShape], list[PartialShape]]:
        loss = merge_shapes(ins[0], ins[1])
        data, label, loss = self.shapes(p, merge_shapes(ins[3], outs[0]), ins[4], ins[5:], loss)
        return [loss, loss, _alphas_shape(data, label, ins[2]), data, label, *[loss] * len(ins[5:])], [data]

    def algorithms(self, p: CtcParams, ins: Types, outs: Types) -> tuple[Algorithm, ...]:
        _, batch, states = ins[2].shape
        kinds = [((batch, states), ins[0].dtype)] * 3
        return (Algorithm("frames", Workspace.bytes_for(*_States.arrays(batch, ins[4].shape[1]), *kinds)),)

    def cost(self, p: CtcParams, ins: Types, outs: Types) -> Cost:
        return Cost(40.0 * ins[2].size + outs[0].size, 3 * ins[2].nbytes + ins[4].nbytes, outs[0].nbytes)

    def compute(self, p: CtcParams, ins: Arrays, outs: Arrays, work: Workspace) -> None:
        grad, loss, alphas, data, label, *lengths = ins
        states = _States(p, data.shape, label, lengths, work)
        betas, given, term = (work.array(alphas.shape[1:], data.dtype) for _ in range(3))
        outs[0].fill(0)
        betas.fill(-np.inf)
        possible = states.possible()
        for t, target in self._frames(states, data, outs[0], betas, given):
            np.add(alphas[t], betas, out=term)
            np.add(term, loss[:, None], out=term)
            np.exp(term, out=term)
            np.multiply(term, grad[:, None], out=term)
            active = np.flatnonzero(possible & (t < states.frames))
            for n in active:
                count = 2 * states.labels[n] + 1
                np.subtract.at(target, states.classes[n, :count], term[n, :count])

    @staticmethod
    def _frames(states: _States, data: np.ndarray, out: np.ndarray, betas: np.ndarray, given: np.ndarray,
                ) -> Iterator[tuple[int, np.ndarray]]:
        """(number, row of gradients) of each frame from the last on, with the ways on from it in `betas`."""
        for t in reversed(range(len(data))):
            if t + 1 < len(data):
                np.take(data[t + 1].reshape(-1), states.classes, out=given, mode="clip")
                np.add(betas, given, out=given)
                np.copyto(betas, given)
                _log_add(betas[:, :-1], given[:, 1:])
                _log_add(betas[:, :-2], given[:, 2:], where=states.skips[:, 2:])
            for n in np.flatnonzero(states.frames == t + 1):
                length = states.labels[n]
                betas[n].fill(-np.inf)
                betas[n, max(2 * length - 1, 0):2 * length + 1] = 0
            yield t, out[t].reshape(-1)

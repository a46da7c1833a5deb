"""The layout of what outlives a program: where parameters, states and visible gradients lie, for all programs of a
group. Each has a home: the persistent arena of the device, or the home arena in host memory or a file."""
from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from ..base import MXNetError, Shape, align

PERSISTENT, HOME = "persistent", "home"
"""The arenas of tensors that are at home on the device, and of those that are at home outside it."""
OF = "/"
"""What stands between the name of an argument and what a gradient or a state of it adds: arguments are often called
x_grad or w_mom themselves."""
GRADIENT = f"{OF}grad"
"""What the name of a gradient adds to that of its argument."""


@dataclass(frozen=True)
class Place:
    """The home of one tensor: a place of one of the two arenas. A gradient or a state is `of` an argument."""

    offset: int
    shape: Shape
    dtype: np.dtype
    buffer_class: str
    arena: str = PERSISTENT
    of: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


class Gap(NamedTuple):
    """Bytes of an arena where a tensor lay that is gone; another one may lie there."""

    arena: str
    offset: int
    bytes: int


class PersistentLayout:
    """Places by name. A tensor keeps its place until it is removed, unless tensors are sent away or gaps are closed.

    `bytes` are those of the persistent arena, `home_bytes` those of the home arena, which lies in `space` ("host" or
    "file"), both with their `gaps`. `away` names what is at home there, whether it has a place yet or not. `version`
    counts how often tensors that had places got others: programs compiled before then must be compiled again.
    """

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.gaps: tuple[Gap, ...] = ()
        self.bytes = 0
        self.home_bytes = 0
        self.space = "host"
        self.away: frozenset[str] = frozenset()
        self.version = 0

    def declare(self, name: str, shape: Shape, dtype: np.dtype, buffer_class: str) -> Place:
        """The place of a tensor, made on first use; MXNetError when the name is known for something else."""
        place = self.places.get(name)
        if place is None:
            place = self._place(name, Place(0, shape, np.dtype(dtype), buffer_class, of=_owner(name, buffer_class)))
        elif place.buffer_class != buffer_class:
            raise MXNetError(f"the name {name} is taken by a tensor of class {place.buffer_class}, so it cannot be "
                             f"one of class {buffer_class}; rename the argument or state")
        elif (place.shape, place.dtype) != (shape, np.dtype(dtype)):
            raise MXNetError(f"{name} is bound with shape {place.shape} and dtype {place.dtype}, and now asked for "
                             f"with shape {shape} and dtype {dtype}; programs that share parameters must agree on "
                             f"them, so give inputs whose shapes ask for the same ones, or {name}={shape} as well if "
                             f"it is an input itself")
        return place

    def send_away(self, names: Collection[str], space: str) -> None:
        """Make the home arena the home of more tensors; what is there stays there. `space` is that of a new arena."""
        if not self.away:
            self.space = space
        new = frozenset(names) - self.away
        self.away |= new
        if new.intersection(self.places):
            self.place_again()

    def remove_unheld(self, held: Container[str]) -> list[str]:
        """Remove the tensors that nobody holds, and leave gaps where they lay; their names.

        A gradient or a state stays while somebody holds the parameter that it belongs to, and a state of no parameter,
        such as a word of the loss scale, always.
        """
        removed = [name for name, place in self.places.items()
                   if not (name in held or place.of in held or place.buffer_class == "state" and place.of is None)]
        gaps = list(self.gaps)
        for name in removed:
            place = self.places.pop(name)
            gaps.append(Gap(place.arena, place.offset, align(place.nbytes)))
        if removed:
            self.away = self.away.difference(removed)
            self.gaps = _joined(gaps)
        return removed

    @property
    def is_sparse(self) -> bool:
        """Whether gaps take so much that closing them is worth another compilation: a third of all bytes."""
        return bool(self.gaps) and 3 * sum(gap.bytes for gap in self.gaps) > self.bytes + self.home_bytes

    def bytes_with(self, added: Iterable[tuple[bool, int]]) -> tuple[int, int]:
        """Bytes of both arenas once further tensors are declared: for each whether it is away, and its bytes."""
        trial = PersistentLayout()
        vars(trial).update(vars(self))
        for away, nbytes in added:
            trial._take(HOME if away else PERSISTENT, nbytes)
        return trial.bytes, trial.home_bytes

    def _place(self, name: str, place: Place) -> Place:
        """Put a tensor into the smallest gap that holds it, or behind all others of its arena."""
        arena = HOME if name in self.away else PERSISTENT
        placed = self.places[name] = replace(place, offset=self._take(arena, place.nbytes), arena=arena)
        return placed

    def _take(self, arena: str, nbytes: int) -> int:
        """The offset of so many bytes of an arena, which are nobody else's from now on."""
        nbytes = align(nbytes)
        fitting = [gap for gap in self.gaps if gap.arena == arena and gap.bytes >= nbytes > 0]
        if fitting:
            chosen = min(fitting, key=lambda gap: gap.bytes)
            rest = Gap(arena, chosen.offset + nbytes, chosen.bytes - nbytes)
            self.gaps = tuple(gap for gap in (*(g for g in self.gaps if g is not chosen), rest) if gap.bytes)
            return chosen.offset
        end = self.home_bytes if arena == HOME else self.bytes
        if arena == HOME:
            self.home_bytes = end + nbytes
        else:
            self.bytes = end + nbytes
        return end

    def place_again(self) -> None:
        """Close the gaps, and those that tensors leave which were sent away; programs must be compiled again.

        The order stays that of the declarations.
        """
        places, self.places = self.places, {}
        self.bytes = self.home_bytes = 0
        self.gaps = ()
        for name, place in places.items():
            self._place(name, place)
        self.version += 1

    def adopt(self, places: Mapping[str, Place], nbytes: int, home_bytes: int = 0, space: str = "host") -> None:
        """Take over the places of a ready plan, whose persistent arena has `nbytes` and whose home arena has
        `home_bytes`; new ones follow those there are.

        MXNetError, with nothing changed, when a tensor would lie elsewhere, or when bytes are missing in the end.
        """
        trial = PersistentLayout()
        vars(trial).update(vars(self), places=dict(self.places))
        for name, place in places.items():
            trial.declare(name, place.shape, place.dtype, place.buffer_class)
        trial.send_away([name for name, place in places.items() if place.arena == HOME], space)
        for name, place in places.items():
            own = trial.places[name]
            if (own.arena, own.offset) != (place.arena, place.offset):
                raise MXNetError(f"the plan has {name} at byte {place.offset} of the {place.arena} arena, and here it "
                                 f"lies at byte {own.offset} of the {own.arena} arena; use the plan before any program "
                                 f"is compiled, or compile it here")
        for arena, own_bytes, wanted in ((PERSISTENT, trial.bytes, nbytes), (HOME, trial.home_bytes, home_bytes)):
            if own_bytes < wanted:
                raise MXNetError(f"the plan's {arena} arena has {wanted} bytes, and its tensors take {own_bytes} "
                                 f"here; it was made beside other programs, so compile it here")
        vars(self).update(vars(trial))


def _joined(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """The gaps in order, neighbours as one."""
    result: list[Gap] = []
    for gap in sorted(gaps):
        if result and result[-1].arena == gap.arena and result[-1].offset + result[-1].bytes == gap.offset:
            gap = Gap(gap.arena, result[-1].offset, result.pop().bytes + gap.bytes)
        result.append(gap)
    return tuple(gap for gap in result if gap.bytes)


def _owner(name: str, buffer_class: str) -> str | None:
    """The argument that a gradient or state belongs to; None for a state of all."""
    return name.rpartition(OF)[0] or None if buffer_class in ("gradient", "state") else None

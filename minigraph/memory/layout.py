"""The layout of what outlives a program: where parameters, states and visible gradients lie, for all programs of a
group. Each has a home: the persistent arena of the device, or the home arena in host memory or a file."""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ..base import MXNetError, Shape, align

PERSISTENT, HOME = "persistent", "home"
"""The arenas of tensors that are at home on the device, and of those that are at home outside it."""


@dataclass(frozen=True)
class Place:
    """The home of one tensor: a place of one of the two arenas."""

    offset: int
    shape: Shape
    dtype: np.dtype
    buffer_class: str
    arena: str = PERSISTENT

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


class PersistentLayout:
    """Places by name. A tensor keeps its place for as long as the group lives, unless tensors are sent away.

    `bytes` are those of the persistent arena, `home_bytes` those of the home arena, which lies in `space` ("host" or
    "file"). `away` names what is at home there, whether it has a place yet or not. `version` counts how often tensors
    that had places got others: programs compiled before then must be compiled again.
    """

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.bytes = 0
        self.home_bytes = 0
        self.space = "host"
        self.away: frozenset[str] = frozenset()
        self.version = 0

    def declare(self, name: str, shape: Shape, dtype: np.dtype, buffer_class: str) -> Place:
        """The place of a tensor, made on first use; MXNetError when the name is known for something else."""
        place = self.places.get(name)
        if place is None:
            place = self._place(name, Place(0, shape, np.dtype(dtype), buffer_class))
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
            self._place_again()

    def _place(self, name: str, place: Place) -> Place:
        """Put a tensor behind all others of its arena."""
        away = name in self.away
        end = self.home_bytes if away else self.bytes
        placed = self.places[name] = replace(place, offset=end, arena=HOME if away else PERSISTENT)
        if away:
            self.home_bytes = end + align(place.nbytes)
        else:
            self.bytes = end + align(place.nbytes)
        return placed

    def _place_again(self) -> None:
        """Close the gaps that those leave which were sent away; the order stays that of the declarations."""
        places, self.places = self.places, {}
        self.bytes = self.home_bytes = 0
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

"""The persistent arena's layout: where parameters, states and visible gradients lie, for all programs of a group."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ..base import MXNetError, Shape, align


@dataclass(frozen=True)
class Place:
    """One tensor of the persistent arena."""

    offset: int
    shape: Shape
    dtype: np.dtype
    buffer_class: str

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


class PersistentLayout:
    """Places by name. It only grows: a tensor keeps its place for as long as the group lives."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.bytes = 0

    def declare(self, name: str, shape: Shape, dtype: np.dtype, buffer_class: str) -> Place:
        """The place of a tensor, made on first use; MXNetError when the name is known for something else."""
        place = self.places.get(name)
        if place is None:
            place = self.places[name] = Place(self.bytes, shape, np.dtype(dtype), buffer_class)
            self.bytes += align(place.nbytes)
        elif place.buffer_class != buffer_class:
            raise MXNetError(f"the name {name} is taken by a tensor of class {place.buffer_class}, so it cannot be "
                             f"one of class {buffer_class}; rename the argument or state")
        elif (place.shape, place.dtype) != (shape, np.dtype(dtype)):
            raise MXNetError(f"{name} is bound with shape {place.shape} and dtype {place.dtype}, and now asked for "
                             f"with shape {shape} and dtype {dtype}; programs that share parameters must agree on them")
        return place

    def adopt(self, places: Mapping[str, Place], nbytes: int) -> None:
        """Take over the places of a ready plan, whose persistent arena has `nbytes`; new ones follow those there are.

        MXNetError, with nothing changed, when a tensor would lie elsewhere, or when bytes are missing in the end.
        """
        trial = PersistentLayout()
        trial.places, trial.bytes = dict(self.places), self.bytes
        for name, place in places.items():
            own = trial.declare(name, place.shape, place.dtype, place.buffer_class)
            if own.offset != place.offset:
                raise MXNetError(f"the plan has {name} at byte {place.offset} of the persistent arena, and here it "
                                 f"lies at byte {own.offset}; use the plan before any program is compiled, or compile "
                                 f"it here")
        if trial.bytes < nbytes:
            raise MXNetError(f"the plan's persistent arena has {nbytes} bytes, and its tensors take {trial.bytes} "
                             f"here; it was made beside other programs, so compile it here")
        self.places, self.bytes = trial.places, trial.bytes

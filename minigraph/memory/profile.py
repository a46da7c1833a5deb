"""Measured times of operators, which take the place of a machine model's in planning and in simulation.

A profile is a file: the same file gives the same plan. Times are kept by operator, parameters, algorithm, and shapes,
dtypes and layouts of what it reads and writes: a kernel and NumPy are measured apart, and so are layouts. What was not
measured is interpolated: the machine's roofline says what it would take, and the nearest measurements of the same
operator say by how much the roofline is wrong there.
"""
from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base import Cost, MXNetError, TensorType
from ..formats.atomic import write_atomically
from .machine import Machine

FORMAT, FORMAT_VERSION = "minigraph-profile", 2
_NEIGHBOURS = 2
"""Measurements that an interpolation goes by, the nearer weighing more."""
_OTHER_PARAMS, _OTHER_RANKS, _OTHER_WAY = 4.0, 100.0, 1e4
"""Distances that other parameters, another number of operands or dimensions, and another algorithm or other layouts
add; a doubled dimension is log 2."""
Types = tuple[tuple[str, tuple[int, ...], str], ...]
"""(dtype, shape, layout) of each operand."""


@dataclass(frozen=True)
class Measured:
    """The median time of one operator by an algorithm: `types` are those of what it reads and then of what it writes;
    `flops` and `moved_bytes` its declared cost."""

    op: str
    params: str
    types: Types
    algorithm: str
    flops: float
    moved_bytes: float
    seconds: float


class Profile:
    """Measurements on one device."""

    def __init__(self, device: str, measured: Sequence[Measured]) -> None:
        self.device = device
        self.measured = tuple(measured)
        self._exact = {(m.op, m.params, m.types, m.algorithm): m.seconds for m in self.measured}
        self._by_op: dict[str, list[Measured]] = {}
        for m in self.measured:
            self._by_op.setdefault(m.op, []).append(m)
        self._known: dict[tuple, float] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and (self.device, self.measured) == (other.device, other.measured)

    def seconds(self, op: str, params: Any, types: Sequence[TensorType], algorithm: str, cost: Cost,
                machine: Machine) -> float:
        """The time of an operator: as measured, else interpolated, else by the machine's roofline alone."""
        key = (op, spelled(params), spelled_types(types), algorithm)
        found = self._exact.get(key)
        if found is None:
            found = self._known.get((*key, machine))
        if found is None:
            modelled = machine.seconds(cost.flops, cost.read_bytes + cost.written_bytes)
            found = self._known[(*key, machine)] = modelled * self._ratio(*key, machine)
        return found

    def _ratio(self, op: str, params: str, types: Types, algorithm: str, machine: Machine) -> float:
        """Measured over modelled time of the nearest measurements of the operator: 1 without any."""
        distances = [(_distance(m, params, types, algorithm), k) for k, m in enumerate(self._by_op.get(op, ()))]
        if not distances:
            return 1.0
        nearest = sorted(distances)[:_NEIGHBOURS]
        weights, logarithm = 0.0, 0.0
        for distance, k in nearest:
            m = self._by_op[op][k]
            weight = 1.0 / (distance + 1e-9)
            weights += weight
            logarithm += weight * math.log(m.seconds / machine.seconds(m.flops, m.moved_bytes))
        return math.exp(logarithm / weights)

    def save(self, path: str | os.PathLike) -> None:
        """Write the profile as JSON."""
        rows = [[m.op, m.params, m.types, m.algorithm, m.flops, m.moved_bytes, m.seconds] for m in self.measured]
        lines = ",\n".join(json.dumps(row) for row in rows)
        head = f'{{"format": "{FORMAT}", "version": {FORMAT_VERSION}, "device": {json.dumps(self.device)}'
        write_atomically(path, f'{head}, "measured": [\n{lines}\n]}}\n'.encode())

    @staticmethod
    def load(path: str | os.PathLike) -> Profile:
        """Read a profile; MXNetError when the file is none."""
        where = f"profile file {os.fspath(path)!r}"
        try:
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            if document["format"] != FORMAT or document["version"] != FORMAT_VERSION:
                raise ValueError(f"its format is {document['format']!r}, version {document['version']!r}, not "
                                 f"{FORMAT!r}, version {FORMAT_VERSION}")
            return Profile(str(document["device"]), [_measured(row) for row in document["measured"]])
        except OSError as error:
            raise MXNetError(f"{where} cannot be read: {error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise MXNetError(f"{where} is no profile: {error}; measure one with minigraph.measure.profile_ops") \
                from error


def spelled(params: Any) -> str:
    """Parameters as a profile names them."""
    return repr(params)


def spelled_types(types: Sequence[TensorType]) -> Types:
    """Types as a profile names them."""
    return tuple((str(kind.dtype), tuple(kind.shape), kind.layout) for kind in types)


def _measured(row: list[Any]) -> Measured:
    op, params, types, algorithm, flops, moved_bytes, seconds = row
    if not seconds > 0.0:
        raise ValueError(f"{op} took {seconds} seconds")
    kinds = tuple((str(dtype), tuple(map(int, shape)), str(layout)) for dtype, shape, layout in types)
    return Measured(str(op), str(params), kinds, str(algorithm), float(flops), float(moved_bytes), float(seconds))


def _distance(m: Measured, params: str, types: Types, algorithm: str) -> float:
    """How far a measurement is: the logarithms of the dimensions' ratios, summed over all operands."""
    total = 0.0 if m.params == params else _OTHER_PARAMS
    if (m.algorithm, *(layout for *_, layout in m.types)) != (algorithm, *(layout for *_, layout in types)):
        total += _OTHER_WAY
    if [len(shape) for _, shape, _ in m.types] != [len(shape) for _, shape, _ in types]:
        return total + _OTHER_RANKS + abs(math.log(_elements(m.types) / _elements(types)))
    for (_, theirs, _), (_, ours, _) in zip(m.types, types, strict=True):
        total += sum(abs(math.log(max(a, 1) / max(b, 1))) for a, b in zip(theirs, ours, strict=True))
    return total


def _elements(types: Types) -> int:
    return max(1, sum(math.prod(shape) for _, shape, _ in types))

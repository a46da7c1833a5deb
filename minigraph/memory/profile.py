"""Measured times of operators, which take the place of a machine model's in planning and in simulation.

A profile is a file: the same file gives the same plan. Times are kept by operator, parameters, algorithm, and shapes,
dtypes and layouts of what it reads and writes: a kernel and NumPy are measured apart, and so are layouts. What was not
measured is interpolated: the machine's roofline says what it would take, and the two nearest measurements of the same
operator mend that. Where they differ in sizes alone, such as a batch's, seconds lie on the line through them: a part
that is always there and a part that grows with the work. Else they say by how much the roofline is wrong.

An operator is slower when its operands lie in no cache. A profile has of each operator how much slower (cold), and how
cold its operands were in the plan that was measured, so that its time can be told for another plan's.
"""
from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Cost, MXNetError, TensorType
from ..formats.atomic import write_atomically
from .machine import Machine

FORMAT, FORMAT_VERSION = "minigraph-profile", 3
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
    `flops` and `moved_bytes` its declared cost. `cold` is the share of its operands that was in no cache then, and
    `cold_seconds` what it takes longer with all of them in no cache than with all that fit in one."""

    op: str
    params: str
    types: Types
    algorithm: str
    flops: float
    moved_bytes: float
    seconds: float
    cold: float = 0.0
    cold_seconds: float = 0.0


class Profile:
    """Measurements on one device.

    `reuse` has points (bytes, seconds): what touching a byte takes when so many others were touched since the last
    time, bytes growing; without any, nothing is known of caches and nothing said of them.
    """

    def __init__(self, device: str, measured: Sequence[Measured], reuse: Sequence[tuple[float, float]] = ()) -> None:
        self.device = device
        self.measured = tuple(measured)
        self.reuse = tuple(reuse)
        self._exact = {(m.op, m.params, m.types, m.algorithm): m for m in self.measured}
        self._by_op: dict[str, list[Measured]] = {}
        for m in self.measured:
            self._by_op.setdefault(m.op, []).append(m)
        self._known: dict[tuple, Measured] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and \
            (self.device, self.measured, self.reuse) == (other.device, other.measured, other.reuse)

    def seconds(self, op: str, params: Any, types: Sequence[TensorType], algorithm: str, cost: Cost,
                machine: Machine, cold: float | None = None) -> float:
        """The time of an operator: as measured, else interpolated, else by the machine's roofline alone; with the share
        `cold` of its operands in no cache, or by default as in the plans that were measured."""
        key = (op, spelled(params), spelled_types(types), algorithm)
        found = self._exact.get(key)
        if found is None:
            found = self._known.get((*key, machine))
        if found is None:
            found = self._known[(*key, machine)] = self._interpolated(*key, cost, machine)
        if cold is None or not self.reuse:
            return found.seconds
        return max(found.seconds + (cold - found.cold) * found.cold_seconds, 0.0)

    def coldness(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """The share, 0 to 1, of bytes that lies in no cache when so many others have been touched since."""
        at, seconds = np.array(self.reuse).T
        return np.interp(distances, at, (seconds - seconds[0]) / max(seconds[-1] - seconds[0], 1e-15))

    def _interpolated(self, op: str, params: str, types: Types, algorithm: str, cost: Cost,
                      machine: Machine) -> Measured:
        """What would have been measured, by the nearest measurements of the operator."""
        moved_bytes = cost.read_bytes + cost.written_bytes
        modelled = machine.seconds(cost.flops, moved_bytes)
        measured = self._by_op.get(op, [])
        distances = [(_distance(m, params, types, algorithm), k) for k, m in enumerate(measured)]
        nearest = [(distance, measured[k]) for distance, k in sorted(distances)[:_NEIGHBOURS]]
        if nearest:
            seconds = self._near(nearest, params, types, algorithm, modelled, machine)
            cold = statistics.fmean(m.cold for _, m in nearest)
            longer = moved_bytes * statistics.fmean(m.cold_seconds / max(m.moved_bytes, 1.0) for _, m in nearest)
        else:
            seconds, cold = modelled, 1.0
            longer = moved_bytes * (self.reuse[-1][1] - self.reuse[0][1]) if self.reuse else 0.0
        return Measured(op, params, types, algorithm, cost.flops, moved_bytes, seconds, cold, min(longer, seconds))

    def _near(self, nearest: Sequence[tuple[float, Measured]], params: str, types: Types, algorithm: str,
              modelled: float, machine: Machine) -> float:
        """Seconds by the nearest measurements."""
        points = sorted((machine.seconds(m.flops, m.moved_bytes), m.seconds) for _, m in nearest)
        wanted = _form(params, types, algorithm)
        if all(_form(m.params, m.types, m.algorithm) == wanted for _, m in nearest) and points[0][0] < points[-1][0]:
            return _on_line(points[0], points[-1], modelled)
        return modelled * _ratio(nearest, machine)

    def save(self, path: str | os.PathLike) -> None:
        """Write the profile as JSON."""
        rows = [[m.op, m.params, m.types, m.algorithm, m.flops, m.moved_bytes, m.seconds, m.cold, m.cold_seconds]
                for m in self.measured]
        lines = ",\n".join(json.dumps(row) for row in rows)
        head = f'{{"format": "{FORMAT}", "version": {FORMAT_VERSION}, "device": {json.dumps(self.device)}, ' \
               f'"reuse": {json.dumps(self.reuse)}'
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
            reuse = [(float(nbytes), float(seconds)) for nbytes, seconds in document["reuse"]]
            return Profile(str(document["device"]), [_measured(row) for row in document["measured"]], reuse)
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
    op, params, types, algorithm, flops, moved_bytes, seconds, cold, cold_seconds = row
    if not seconds > 0.0:
        raise ValueError(f"{op} took {seconds} seconds")
    kinds = tuple((str(dtype), tuple(map(int, shape)), str(layout)) for dtype, shape, layout in types)
    return Measured(str(op), str(params), kinds, str(algorithm), float(flops), float(moved_bytes), float(seconds),
                    float(cold), float(cold_seconds))


def _on_line(low: tuple[float, float], high: tuple[float, float], modelled: float) -> float:
    """Seconds at a modelled time, on the line through two points (modelled, measured); outside of them from the nearer
    one on, as far as the line has a fixed part that is not below zero and a rest that grows."""
    slope = (high[1] - low[1]) / (high[0] - low[0])
    if low[0] <= modelled <= high[0]:
        return low[1] + slope * (modelled - low[0])
    at, taken = low if modelled < low[0] else high
    fixed = min(max(low[1] - slope * low[0], 0.0), taken)
    return fixed + (taken - fixed) * modelled / at


def _ratio(nearest: Sequence[tuple[float, Measured]], machine: Machine) -> float:
    """Measured over modelled time of some measurements, the nearer weighing more."""
    weights, logarithm = 0.0, 0.0
    for distance, m in nearest:
        weight = 1.0 / (distance + 1e-9)
        weights += weight
        logarithm += weight * math.log(m.seconds / machine.seconds(m.flops, m.moved_bytes))
    return math.exp(logarithm / weights)


def _form(params: str, types: Types, algorithm: str) -> tuple:
    """What equals where only sizes differ."""
    return params, algorithm, tuple((dtype, len(shape), layout) for dtype, shape, layout in types)


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

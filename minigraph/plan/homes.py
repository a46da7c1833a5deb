"""Part of the verifier: what happens to persistent tensors between their homes and the device.

A persistent tensor has one present value, which several buffers may hold: its home and copies of it. A computation that
changes one of them makes a new present value, and then only its output holds it, until that is taken home. It is proved
here that only holders of the present value are brought in, changed and taken home, and that the home is one of them at
the end: no change is lost, and none is made to a copy that is behind. Where a program runs in two parts, what users
read between them and behind them is there by then: auxiliary states have their new values at home when forward ends,
and gradients get theirs in backward, each of them. That bytes keep their values is proved in `verify.py`.
"""
from __future__ import annotations

from typing import NoReturn

from .places import Places
from .wellformed import COPIES


class Homes:
    """Follows the present value of each persistent tensor over the instructions in list order."""

    def __init__(self, places: Places) -> None:
        self.places, self.plan = places, places.plan
        self.value: list[int] = places.value.tolist()
        self.span = list(zip(places.start.tolist(), places.end.tolist(), strict=True))
        tensors = self.plan.persistent
        self.home = {self.span[t.first]: k for k, t in enumerate(tensors) if places.bytes[t.first]}
        self.tensor_of = {self.value[t.first]: k for k, t in enumerate(tensors)}
        self.holders = [{self.value[t.first]} for t in tensors]
        self.since = [-1] * len(tensors)
        self.first_change = [-1] * len(tensors)

    def check(self) -> int:
        """Follow the whole plan; the number of checks made."""
        code, middle = self.plan.instructions, self.plan.backward_start
        for i, (kind, reads, writes) in enumerate(zip(code.kind, code.reads, code.writes, strict=True)):
            if i == middle:
                self._check_between(i)
            if kind in COPIES:
                self._copy(i, self.value[reads[0]], self.value[writes[0]])
            elif writes:
                self._compute(i, reads, writes)
        for k, tensor in enumerate(self.plan.persistent):
            empty = not self.places.bytes[tensor.first]    # without bytes there is nothing to have at home
            if not empty and self.value[tensor.last] not in self.holders[k]:
                self._fail(k, len(self.plan), f"is not in {self.places.buffer(tensor.last)}, its home at the end")
        if "backward" in self.plan.ranges:
            if middle == len(self.plan):
                self._check_between(middle)
            self._check_parts(middle)
        return len(self.holders)

    def _check_between(self, i: int) -> None:
        """When forward has ended, auxiliary states are at home."""
        for k, tensor in enumerate(self.plan.persistent):
            if self._class(k) == "auxiliary" and self.places.bytes[tensor.first] and not any(
                    self.home.get(self.span[holder]) == k for holder in self.holders[k]):
                self._fail(k, i, "is not at its home when forward ends")

    def _check_parts(self, middle: int) -> None:
        """Auxiliary states were changed in forward, gradients in backward, and nothing else was changed."""
        for k, tensor in enumerate(self.plan.persistent):
            since, kind = self.since[k], self._class(k)
            if not self.places.bytes[tensor.first]:
                continue
            if kind == "gradient" and self.first_change[k] < middle:
                places = self.places
                told = "never written" if since < 0 else f"written by {places.instruction(self.first_change[k])}"
                places.fail(f"gradient {tensor.name!r} is {told}; it must be written in backward, which begins at "
                            f"{places.instruction(middle)}", since, middle, at=self.span[tensor.last])
            elif kind == "auxiliary" and since >= middle:
                self._fail(k, len(self.plan), "is new since backward, and is read when forward has ended")

    def _class(self, tensor: int) -> str:
        return self.plan.buffers.buffer_class[self.plan.persistent[tensor].first]

    def _compute(self, i: int, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        rules = self.places.rules.get(self.plan.instructions.op[i], self.plan.instructions.params[i])
        for source, out in sorted(rules.mutates) if rules is not None else ():
            tensor = self.tensor_of.get(self.value[reads[source]])
            if tensor is not None:
                if self.value[reads[source]] not in self.holders[tensor]:
                    self._fail(tensor, i, f"is not in {self.places.buffer(reads[source])}, which is changed")
                self._hold_alone(i, tensor, writes[out])
        for b in writes:
            tensor = self.home.get(self.span[b])
            if tensor is not None:
                self._hold_alone(i, tensor, b)

    def _copy(self, i: int, source: int, target: int) -> None:
        home, tensor = self.home.get(self.span[target]), self.tensor_of.get(source)
        if tensor is None:
            if home is not None:
                self._hold_alone(i, home, target)
            return
        if source not in self.holders[tensor] or (home is not None and home != tensor):
            self._fail(tensor, i, f"is not what is copied from {self.places.buffer(source)} to "
                                  f"{self.places.buffer(target)}")
        self.tensor_of[target] = tensor
        self.holders[tensor].add(target)

    def _hold_alone(self, i: int, tensor: int, b: int) -> None:
        """The instruction makes a new present value in `b`."""
        self.tensor_of[self.value[b]] = tensor
        self.holders[tensor] = {self.value[b]}
        self.since[tensor] = i
        if self.first_change[tensor] < 0:
            self.first_change[tensor] = i

    def _fail(self, tensor: int, i: int, what: str) -> NoReturn:
        since, name = self.since[tensor], self.plan.persistent[tensor].name
        holder = min(self.holders[tensor])
        self.places.fail(f"the value that persistent tensor {name!r} has at {self.places.instruction(i)}, since "
                         f"{self.places.instruction(since)}, {what}; it is in {self.places.buffer(holder)}",
                         since, i, at=self.span[holder])

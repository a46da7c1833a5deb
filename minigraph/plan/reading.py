"""Reading a JSON object member by member, so that a large one is converted piece by piece and never held whole."""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

Reader = Callable[[str, int, dict[str, Any]], "tuple[Any, int]"]
"""From a text, the position of a value in it, and the members before it, to the value and the position behind it."""
_decode = json.JSONDecoder().raw_decode
_spaces = re.compile(r"[ \t\n\r]*")


def read_object(text: str, position: int, readers: Mapping[str, Reader]) -> tuple[dict[str, Any], int]:
    """The members of the JSON object at `position`, those in `readers` by their own; and the position behind it.

    ValueError when the text is no JSON object, or ends too early.
    """
    members: dict[str, Any] = {}
    position = _expect(text, position, "{")
    while not text.startswith("}", position):
        if members:
            position = _expect(text, position, ",")
        key, position = _decode(text, position)
        if type(key) is not str:
            raise ValueError(f"the name of a member is {key!r}; it must be a text")
        position = _expect(text, position, ":")
        reader = readers.get(key)
        members[key], position = _decode(text, position) if reader is None else reader(text, position, members)
        position = skip_spaces(text, position)
    return members, position + 1


def converting(convert: Callable[[Any], Any]) -> Reader:
    """A reader of values that are converted as soon as they are read."""
    def read(text: str, position: int, members: dict[str, Any]) -> tuple[Any, int]:
        value, position = _decode(text, position)
        return convert(value), position
    return read


KINDS: dict[str, tuple[type, ...]] = {"a text": (str,), "a whole number": (int,), "a number": (int, float),
                                      "true or false": (bool,), "a list": (list,), "an object": (dict,)}
"""What a value of a file may be asked to be, and the types by which it is."""
_WHOLE = range(-2**63, 2**63)


def require(values: Sequence[Any], kind: str, where: str) -> None:
    """Raise ValueError, naming the place, for the first value that is not of a kind; whole numbers have 64 bits."""
    types = KINDS[kind]
    if not set(map(type, values)).issubset(types):
        k, value = next((k, value) for k, value in enumerate(values) if type(value) not in types)
        _refuse(f"{where}[{k}]", value, kind)
    if kind == "a whole number" and values and not (min(values) in _WHOLE and max(values) in _WHOLE):
        k, value = next((k, value) for k, value in enumerate(values) if value not in _WHOLE)
        _refuse(f"{where}[{k}]", value, "a whole number of 64 bits")


def require_lists(rows: Any, kind: str, where: str) -> None:
    """Raise ValueError, naming the place, unless all is a list of lists of values of a kind."""
    require_list(rows, "a list", where)
    try:
        require(list(chain.from_iterable(rows)), kind, where)
    except ValueError:
        for k, row in enumerate(rows):
            require(row, kind, f"{where}[{k}]")
        raise


def require_list(values: Any, kind: str, where: str) -> None:
    """Raise ValueError, naming the place, unless all is a list of values of a kind."""
    if type(values) is not list:
        _refuse(where, values, "a list")
    require(values, kind, where)


def require_object(members: Any, kind: str, where: str) -> None:
    """Raise ValueError, naming the place, unless all is an object of values of a kind."""
    if type(members) is not dict:
        _refuse(where, members, "an object")
    for name, value in members.items():
        if type(value) not in KINDS[kind]:
            _refuse(f"{where}[{name!r}]", value, kind)


def _refuse(where: str, value: Any, kind: str) -> NoReturn:
    told = repr(value)
    raise ValueError(f"{where} is {told if len(told) < 60 else told[:60] + '...'}; it must be {kind}")


def skip_spaces(text: str, position: int) -> int:
    """The position of what follows."""
    match = _spaces.match(text, position)
    assert match is not None
    return match.end()


def _expect(text: str, position: int, mark: str) -> int:
    """The position behind a mark and the spaces around it."""
    position = skip_spaces(text, position)
    if not text.startswith(mark, position):
        raise ValueError(f"there is no {mark!r} at character {position}")
    return skip_spaces(text, position + 1)

"""Reading a JSON object member by member, so that a large one is converted piece by piece and never held whole."""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

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

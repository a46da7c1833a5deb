"""Objects read member by member are those that json reads."""
from __future__ import annotations

import json
from typing import Any

import pytest

from minigraph.plan.reading import converting, read_object

DOCUMENT: dict[str, Any] = {"a": [1, [2.5, "}"]], "empty": {}, "b": {"c": "x\"y:,{", "d": None}, "é": True}


@pytest.mark.parametrize("text", [json.dumps(DOCUMENT), json.dumps(DOCUMENT, separators=(",", ":")),
                                  json.dumps(DOCUMENT, indent=2), "\n" + json.dumps(DOCUMENT, ensure_ascii=False)])
def test_the_members_are_those_of_json(text: str) -> None:
    found, end = read_object(text, 0, {})
    assert found == DOCUMENT and end == len(text)


def test_chosen_members_are_converted_and_the_others_are_not() -> None:
    text = json.dumps(DOCUMENT)
    found, end = read_object(text, 0, {"a": converting(len), "b": lambda t, p, before: read_object(
        t, p, {"c": converting(str.upper)})})
    assert found == {**DOCUMENT, "a": 2, "b": {"c": "X\"Y:,{", "d": None}} and end == len(text)


def test_a_reader_sees_the_members_before_it() -> None:
    seen: list[list[str]] = []

    def look(text: str, position: int, before: dict[str, Any]) -> tuple[Any, int]:
        seen.append(list(before))
        return converting(lambda value: value)(text, position, before)
    read_object(json.dumps(DOCUMENT), 0, {"b": look})
    assert seen == [["a", "empty"]]


def test_every_beginning_of_an_object_is_refused() -> None:
    text = json.dumps(DOCUMENT)
    for length in range(len(text)):
        with pytest.raises(ValueError):
            read_object(text[:length], 0, {})
    for wrong in ("[1]", "{,}", '{"a":1,}', '{"a" 1}', '{"a":1 "b":2}'):
        with pytest.raises(ValueError):
            read_object(wrong, 0, {})

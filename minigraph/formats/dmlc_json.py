"""JSON in the layout of dmlc's writer, to the byte: MXNet's symbol files are compared as texts.

Two spaces a level; items are separated by ", " and, in a container of several lines, a newline after that.
Which containers take several lines is decided by who writes them: see `text_map` and `array`.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_ONE_LINE_ITEMS = 10
"""Items up to which an array of numbers stays on one line."""


def quote(text: str) -> str:
    """A string; only backslash, quote, newline, carriage return and tab are escaped."""
    return f'"{text.translate(_ESCAPES)}"'


def block(brackets: str, items: Iterable[str], depth: int) -> str:
    """A container over several lines; `depth` is the level of the line that it begins on."""
    items = list(items)
    if not items:
        return brackets
    indent = "\n" + "  " * (depth + 1)
    return brackets[0] + indent + ("," + " " + indent).join(items) + "\n" + "  " * depth + brackets[1]


def line(brackets: str, items: Iterable[str]) -> str:
    """A container on one line."""
    return brackets[0] + ", ".join(items) + brackets[1]


def array(items: Iterable[str], depth: int) -> str:
    """An array of numbers or entries: one line up to 10 items, beyond that one item a line."""
    items = list(items)
    return line("[]", items) if len(items) <= _ONE_LINE_ITEMS else block("[]", items, depth)


def text_map(values: Mapping[str, str], depth: int) -> str:
    """An object of ready JSON texts, in the order given: one line for a single one."""
    items = [f"{quote(key)}: {value}" for key, value in values.items()]
    return line("{}", items) if len(items) <= 1 else block("{}", items, depth)

"""Plans in memory: numbers in arrays, and equal items of a file once."""
from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from minigraph.plan.plan import BufferColumns, InstructionColumns
from minigraph.plan.serialize import dumps, loads

from .build import chain, training


def test_numbers_are_arrays_whatever_they_were_given_as() -> None:
    made = chain().buffers
    again = replace(made, offset=list(made.offset), born=tuple(made.born))
    assert isinstance(again.offset, array) and isinstance(again.born, array)
    assert again == made


def test_what_is_no_number_is_refused() -> None:
    for wrong in ("x", None, 0.5):
        with pytest.raises(TypeError):
            BufferColumns(offset=[wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        InstructionColumns(value=["x"])  # type: ignore[list-item]


def test_equal_words_and_shapes_of_a_file_are_one_object() -> None:
    again = loads(dumps(training()))
    for column in (again.instructions.op, again.instructions.algorithm, again.buffers.buffer_class,
                   again.buffers.shape, again.buffers.dtype):
        assert len(set(map(id, column))) == len(set(column))
        assert len(set(column)) < len(column)

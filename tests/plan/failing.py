"""What tests ask of a failed verification."""
from __future__ import annotations

import pytest

from minigraph.base import MXNetError
from minigraph.plan.plan import Plan
from minigraph.plan.verify import VerificationError, verify


def failure(plan: Plan) -> VerificationError:
    with pytest.raises(VerificationError) as caught:
        verify(plan)
    assert isinstance(caught.value, MXNetError)
    return caught.value


def assert_names(error: VerificationError, instructions: tuple[int, ...], arena: str = "transient",
                 byte_range: tuple[int, int] | None = None) -> None:
    """Both instructions and the bytes are in the attributes and in the text."""
    assert sorted(error.instructions) == sorted(instructions), str(error)
    for i in instructions:
        assert i < 0 or f"instruction {i} " in str(error) or "end of the program" in str(error), str(error)
    assert error.arena == arena
    assert f"{arena!r}" in str(error)
    if byte_range is not None:
        assert error.byte_range == byte_range
        assert f"[{byte_range[0]}, {byte_range[1]})" in str(error)

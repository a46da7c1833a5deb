"""split_v2, whose places MXNet's front end writes otherwise than its operator."""
from __future__ import annotations

from collections.abc import Sequence

from .functions import apply_function
from .symbol import Symbol


def split_v2(ary: Symbol, indices_or_sections: int | Sequence[int], axis: int = 0,
             squeeze_axis: bool = False) -> Symbol:
    """`ary` in so many equal parts along an axis, or in parts that begin at 0 and at each of some indices."""
    return apply_function("_split_v2", "_split_v2", [ary],
                          {**places(indices_or_sections), "axis": axis, "squeeze_axis": squeeze_axis})


def places(indices_or_sections: int | Sequence[int]) -> dict[str, object]:
    """The operator's parameters for so many equal parts, or parts that begin at 0 and at each of some indices."""
    if isinstance(indices_or_sections, int):
        return {"indices": (), "sections": indices_or_sections}
    return {"indices": (0, *indices_or_sections)}

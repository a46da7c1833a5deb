"""Is a packing right? A plain sweep over time that shares no code with the solver, on purpose.

It keeps the live buffers in order of offset and looks at a new-born buffer's two neighbours, nothing more. It
rounds sizes up itself, in Python's own integers.
"""

from __future__ import annotations

from bisect import bisect_left

from .problem import Problem, Solution


class PackingError(ValueError):
    """A packing breaks a rule; the message names the buffers, the bytes and the instants."""


def validate(problem: Problem, solution: Solution) -> None:
    """Check a packing against its problem: offsets, alignments, fixed buffers, overlaps and the arena's size.

    Raises:
        PackingError: naming the first rule that is broken and by which buffers.
    """
    offsets = _offsets(problem, solution)
    ends = []
    asked = zip(problem.size_bytes.tolist(), problem.alignments.tolist(), problem.fixed_offsets.tolist(),
                strict=True)
    for i, (offset, (size, alignment, place)) in enumerate(zip(offsets, asked, strict=True)):
        if offset < 0:
            raise PackingError(f"buffer {i} lies at offset {offset}; offsets start at 0")
        if offset % alignment:
            raise PackingError(
                f"buffer {i} lies at offset {offset}, which is not a multiple of its alignment {alignment}")
        if place >= 0 and offset != place:
            raise PackingError(f"buffer {i} lies at offset {offset}, but it is fixed at {place}")
        ends.append(offset + (size + alignment - 1) // alignment * alignment)
    _check_arena(problem.size_bytes.tolist(), ends, solution.bytes)
    _check_overlaps(problem, offsets, ends)


def _offsets(problem: Problem, solution: Solution) -> list[int]:
    offsets: list[int] = solution.offset.tolist()
    if len(offsets) != len(problem.born):
        raise PackingError(f"the solution has {len(offsets)} offsets for {len(problem.born)} buffers")
    for i, offset in enumerate(offsets):
        if not isinstance(offset, int):
            raise PackingError(f"buffer {i} lies at offset {offset!r}, which is not an integer")
    return offsets


def _check_arena(sizes: list[int], ends: list[int], arena_bytes: int) -> None:
    highest, owner = 0, -1
    for i, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        if size > 0 and end > highest:
            highest, owner = end, i
    if arena_bytes != highest:
        cause = f"buffer {owner} ends at {highest}" if owner >= 0 else "no buffer takes any"
        raise PackingError(f"the solution states an arena of {arena_bytes} bytes, but {cause}")


def _check_overlaps(problem: Problem, offsets: list[int], ends: list[int]) -> None:
    born, dies, sizes = problem.born.tolist(), problem.dies.tolist(), problem.size_bytes.tolist()
    # At one instant the deaths (0) come before the births (1): end = start may share bytes.
    events = [(dies[i], 0, i) for i in range(len(born)) if sizes[i] > 0]
    events += [(born[i], 1, i) for i in range(len(born)) if sizes[i] > 0]
    live: list[tuple[int, int]] = []
    for _, is_birth, i in sorted(events):
        here = (offsets[i], i)
        at = bisect_left(live, here)
        if not is_birth:
            del live[at]
            continue
        for _, j in live[max(at - 1, 0):at + 1]:
            if offsets[j] < ends[i] and offsets[i] < ends[j]:
                raise PackingError(_overlap(born, dies, offsets, ends, i, j))
        live.insert(at, here)


def _overlap(born: list[int], dies: list[int], offsets: list[int], ends: list[int], i: int, j: int) -> str:
    def told(k: int) -> str:
        return f"buffer {k} (bytes [{offsets[k]}, {ends[k]}), instants [{born[k]}, {dies[k]}))"
    low, high = max(offsets[i], offsets[j]), min(ends[i], ends[j])
    first, last = max(born[i], born[j]), min(dies[i], dies[j])
    return (f"{told(min(i, j))} and {told(max(i, j))} both take bytes [{low}, {high}) "
            f"at the instants [{first}, {last})")

"""Is a packing right? A plain sweep over time that shares no code with the solver, on purpose.

It keeps the live buffers in order of offset and looks at a new-born buffer's two neighbours, nothing more. It
rounds sizes up itself, in Python's own integers. Where buffers lie in a mapped arena it looks at the pieces of the
arena that they come to, each by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from .problem import PagedSolution, Problem, Solution

Piece = tuple[int, int]


class PackingError(ValueError):
    """A packing breaks a rule; the message names the buffers, the bytes and the instants."""


def validate(problem: Problem, solution: Solution | PagedSolution) -> None:
    """Check a packing against its problem: offsets, alignments, fixed buffers, overlaps, pages and the arena's size.

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
    sizes: list[int] = problem.size_bytes.tolist()
    if isinstance(solution, PagedSolution):
        pieces = _paged_pieces(solution, sizes, offsets, ends)
    else:
        pieces = [[(offset, end)] if size else []
                  for size, offset, end in zip(sizes, offsets, ends, strict=True)]
    _check_arena(pieces, solution)
    _check_overlaps(problem, pieces)


def _paged_pieces(solution: PagedSolution, sizes: list[int], offsets: list[int], ends: list[int]) -> list[list[Piece]]:
    """Where the bytes of each buffer lie in the arena; first a look at the mapped arena itself."""
    page_bytes, arena_bytes = solution.page_bytes, solution.bytes
    mapped: list[bool] = solution.mapped.tolist()
    if len(mapped) != len(sizes):
        raise PackingError(f"the solution says of {len(mapped)} buffers whether they are mapped, not of {len(sizes)}")
    for k, (offset, size) in enumerate(solution.extents):
        if offset < 0 or size < 1 or offset % page_bytes or size % page_bytes or offset + size > arena_bytes:
            raise PackingError(f"extent {k} shows {size} bytes from {offset} on; it must be of whole pages of "
                               f"{page_bytes} bytes within the arena of {arena_bytes}")
    begins = [0]
    for _, size in solution.extents:
        begins.append(begins[-1] + size)
    pieces = []
    for i, size in enumerate(sizes):
        if size and mapped[i] and ends[i] > begins[-1]:
            raise PackingError(f"buffer {i} ends at {ends[i]} in a mapped arena of {begins[-1]} bytes")
        shown = _shown(solution.extents, begins, offsets[i], ends[i]) if mapped[i] else [(offsets[i], ends[i])]
        pieces.append(shown if size else [])
    return pieces


def _shown(extents: tuple[tuple[int, int], ...], begins: list[int], first: int, last: int) -> list[Piece]:
    """The pieces of the arena that the bytes [first, last) of the mapped arena show."""
    pieces = []
    k = bisect_right(begins, first) - 1
    while first < last:
        stop = min(last, begins[k + 1])
        pieces.append((extents[k][0] + first - begins[k], extents[k][0] + stop - begins[k]))
        first, k = stop, k + 1
    return pieces


def _offsets(problem: Problem, solution: Solution | PagedSolution) -> list[int]:
    offsets: list[int] = solution.offset.tolist()
    if len(offsets) != len(problem.born):
        raise PackingError(f"the solution has {len(offsets)} offsets for {len(problem.born)} buffers")
    for i, offset in enumerate(offsets):
        if not isinstance(offset, int):
            raise PackingError(f"buffer {i} lies at offset {offset!r}, which is not an integer")
    return offsets


def _check_arena(pieces: list[list[Piece]], solution: Solution | PagedSolution) -> None:
    highest, owner = max(((last, i) for i, held in enumerate(pieces) for _, last in held), default=(0, -1))
    cause = f"buffer {owner} ends at {highest}" if owner >= 0 else "no buffer takes any"
    page_bytes = solution.page_bytes if isinstance(solution, PagedSolution) else 1
    if solution.bytes != (highest + page_bytes - 1) // page_bytes * page_bytes:
        raise PackingError(f"the solution states an arena of {solution.bytes} bytes, but {cause}")


def _check_overlaps(problem: Problem, pieces: list[list[Piece]]) -> None:
    born, dies = problem.born.tolist(), problem.dies.tolist()
    # At one instant the deaths (0) come before the births (1): end = start may share bytes.
    events = [(dies[i], 0, i) for i in range(len(born)) if pieces[i]]
    events += [(born[i], 1, i) for i in range(len(born)) if pieces[i]]
    live: list[tuple[int, int, int]] = []
    for _, is_birth, i in sorted(events):
        for first, last in pieces[i]:
            here = (first, last, i)
            at = bisect_left(live, here)
            if not is_birth:
                del live[at]
                continue
            for low, high, j in live[max(at - 1, 0):at + 1]:
                if low < last and first < high:
                    raise PackingError(_overlap(born, dies, (first, last, i), (low, high, j)))
            live.insert(at, here)


def _overlap(born: list[int], dies: list[int], one: tuple[int, int, int], two: tuple[int, int, int]) -> str:
    def told(first: int, last: int, k: int) -> str:
        return f"buffer {k} (bytes [{first}, {last}), instants [{born[k]}, {dies[k]}))"
    one, two = sorted((one, two), key=lambda piece: piece[2])
    low, high = max(one[0], two[0]), min(one[1], two[1])
    first, last = max(born[one[2]], born[two[2]]), min(dies[one[2]], dies[two[2]])
    return f"{told(*one)} and {told(*two)} both take bytes [{low}, {high}) at the instants [{first}, {last})"

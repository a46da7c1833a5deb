"""Records and waits that others imply go; what is ordered stays ordered, and nothing else becomes so."""
from __future__ import annotations

import random

import pytest

import minigraph as mx
from minigraph.passes.events import without_implied
from minigraph.plan.plan import InstructionColumns, Kind

COPY, RECORD, WAIT = Kind.COPY_OUT, Kind.RECORD, Kind.WAIT
STREAMS = 3


def listed(*instructions: tuple[Kind, int, int]) -> InstructionColumns:
    """Instructions of (kind, stream, event)."""
    code = InstructionColumns()
    for number, (kind, stream, event) in enumerate(instructions):
        code.add(kind, stream=stream, event=event, name=str(number))
    return code


def shown(code: InstructionColumns) -> list[tuple[Kind, int, int]]:
    return [(Kind(kind), stream, event) for kind, stream, event in zip(code.kind, code.stream, code.event, strict=True)]


def thinned(*instructions: tuple[Kind, int, int]) -> list[tuple[Kind, int, int]]:
    return shown(without_implied(listed(*instructions), STREAMS).code)


def ordered(code: InstructionColumns) -> set[tuple[str, str]]:
    """The pairs of names of instructions that do something, the first of which ends before the second begins."""
    before: list[set[int]] = []
    recorded: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, (kind, stream, event) in enumerate(shown(code)):
        sources = [last[stream]] if stream in last else []
        if kind == WAIT:
            sources.append(recorded[event])
        elif kind == RECORD:
            recorded[event] = i
        before.append(set().union(*({source} | before[source] for source in sources)))
        last[stream] = i
    works = [i for i, kind in enumerate(code.kind) if kind not in (RECORD, WAIT)]
    return {(code.name[i], code.name[j]) for j in works for i in before[j] if i in works}


def drawn(seed: int) -> InstructionColumns:
    draw, events = random.Random(seed), 0
    instructions: list[tuple[Kind, int, int]] = []
    for _ in range(draw.randrange(60)):
        kind = draw.choice([COPY, COPY, RECORD, WAIT, WAIT] if events else [COPY, RECORD])
        event = draw.randrange(events) if kind == WAIT else events if kind == RECORD else -1
        instructions.append((kind, draw.randrange(STREAMS), event))
        events += kind == RECORD
    return listed(*instructions)


@pytest.mark.parametrize("part", range(4))
def test_the_same_pairs_are_ordered_as_before(part: int) -> None:
    gone = 0
    for seed in range(part * 100, part * 100 + 100):
        code = drawn(seed)
        found = without_implied(code, STREAMS).code
        assert ordered(found) == ordered(code)
        gone += len(code) - len(found)
    assert gone > 500


def test_a_wait_for_what_is_known_already_goes_with_its_record() -> None:
    twice = [(COPY, 1, -1), (RECORD, 1, 0), (COPY, 1, -1), (RECORD, 1, 1), (WAIT, 0, 1), (COPY, 0, -1), (WAIT, 0, 0),
             (COPY, 0, -1)]
    assert thinned(*twice) == [(COPY, 1, -1), (COPY, 1, -1), (RECORD, 1, 0), (WAIT, 0, 0), (COPY, 0, -1), (COPY, 0, -1)]


def test_of_waits_in_a_row_the_last_one_of_a_stream_stays() -> None:
    row = [(COPY, 1, -1), (RECORD, 1, 0), (COPY, 1, -1), (RECORD, 1, 1), (WAIT, 0, 0), (WAIT, 0, 1), (COPY, 0, -1)]
    assert thinned(*row) == [(COPY, 1, -1), (COPY, 1, -1), (RECORD, 1, 0), (WAIT, 0, 0), (COPY, 0, -1)]


def test_two_copies_that_wait_for_the_same_moment_share_its_event() -> None:
    pair = [(COPY, 0, -1), (RECORD, 0, 0), (WAIT, 1, 0), (COPY, 1, -1), (RECORD, 0, 1), (WAIT, 2, 1), (COPY, 2, -1)]
    assert thinned(*pair) == [(COPY, 0, -1), (RECORD, 0, 0), (WAIT, 1, 0), (COPY, 1, -1), (WAIT, 2, 0), (COPY, 2, -1)]


def test_what_another_stream_has_waited_for_is_known_to_who_waits_for_that_one() -> None:
    through = [(COPY, 1, -1), (RECORD, 1, 0), (WAIT, 0, 0), (COPY, 0, -1), (RECORD, 0, 1), (WAIT, 2, 1), (WAIT, 2, 0),
               (COPY, 2, -1)]
    assert (WAIT, 2, 0) not in thinned(*through) and len(thinned(*through)) == len(through) - 1


def test_a_wait_that_goes_stands_where_its_stream_knew_before_a_record_that_goes_too() -> None:
    code = listed((COPY, 1, -1), (RECORD, 1, 0), (WAIT, 0, 0), (RECORD, 0, 1), (WAIT, 2, 1), (COPY, 2, -1),
                  (WAIT, 0, 0), (RECORD, 0, 2), (WAIT, 2, 2), (COPY, 2, -1))
    found = without_implied(code, STREAMS)
    assert shown(found.code) == [*shown(code)[:6], (COPY, 2, -1)]
    assert found.first == [0, 1, 2, 3, 4, 5, 6, 6, 6, 6]
    assert found.stands[6] == 2 and found.stands[8] == 5 and found.stands[9] == 6


def test_plans_of_a_policy_that_copies_everything_keep_half_of_their_events() -> None:
    net = mx.sym.Variable("data")
    for k in range(6):
        conv = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=8, no_bias=True, name=f"conv{k}")
        net = mx.sym.Activation(mx.sym.BatchNorm(conv, name=f"norm{k}"), act_type="relu") + (net if k else 0.0)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=4), name="softmax")
    plan = mx.plan(net, {"data": (4, 8, 8, 8)}, optimizer="sgd", memory="vdnn_all", host_budget="1GiB")
    kinds = list(plan.instructions.kind)
    copies = kinds.count(Kind.COPY_OUT) + kinds.count(Kind.COPY_IN)
    assert copies > 20 and kinds.count(WAIT) < 1.5 * copies and kinds.count(RECORD) <= kinds.count(WAIT)

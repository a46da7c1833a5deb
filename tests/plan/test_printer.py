"""Printed plans: one line an instruction, and nothing that matters left out."""
from __future__ import annotations

from minigraph.plan.printer import format_buffer, format_instruction, format_plan

from .build import Maker, chain, scattered, swap, training


def test_every_instruction_is_one_line() -> None:
    plan = swap()
    lines = format_plan(plan).splitlines()
    bodies = [line for line in lines if line.split()[0].isdigit()]
    assert [int(line.split()[0]) for line in bodies] == list(range(len(plan)))
    assert [line.strip() for line in bodies] == [format_instruction(plan, i) for i in range(len(plan))]


def test_a_computation_shows_op_operands_places_and_workspace() -> None:
    plan = chain()
    assert format_instruction(plan, 0) == (
        "0 compute  t_dense a  %0 %1 -> %2 @transient+64  ws %3 128 B @transient+128")
    assert format_instruction(plan, 1) == "1 compute  t_unary b  %2 -> %4 = %2 in place @transient+64"


def test_copies_events_and_fills_show_streams_and_places() -> None:
    plan = swap()
    assert format_instruction(plan, 3) == "3 out      copy-out a  %1 -> %2 @host+0"
    assert format_instruction(plan, 9) == "9 in       copy-in back  %2 -> %5 @transient+192"
    assert format_instruction(plan, 4) == "4 out      record 1"
    assert format_instruction(plan, 6) == "6 compute  wait 1"
    m = Maker()
    a = m.value("zeros")
    m.fill(a, 0.5)
    assert format_instruction(m.plan(outputs=(a,)), 0) == "0 compute  fill zeros with 0.5  -> %0 @transient+0"


def test_unread_inputs_and_algorithms_are_marked() -> None:
    m = Maker()
    data, like, out = m.value("data"), m.value("like"), m.value("out")
    m.run("t_like", (data, like), (out,), unread=(1,), algorithm="direct")
    line = format_instruction(m.plan(inputs=(data, like), outputs=(out,)), 0)
    assert line == "0 compute  t_like out [direct]  %0 shape(%1) -> %2 @transient+128"


def test_the_heading_tells_arenas_ranges_and_names() -> None:
    text = format_plan(training())
    assert text.startswith("plan step: memory plain, 4 instructions, 6 buffers, 320 B planned\n")
    for line in ("arena transient: 256 B of device memory", "range step: [0, 4)", "input data: %0",
                 "output out: %5", "persistent weight: %1 -> %4"):
        assert line in text.splitlines()


def test_buffers_are_printed_when_asked_for() -> None:
    plan = chain()
    assert "%5 flat" not in format_plan(plan)
    assert format_buffer(plan, 5) in format_plan(plan, buffers=True).splitlines()
    assert format_buffer(plan, 5) == "%5 flat  float32 16  64 B @transient+64  [1, 3)  activation  view of %4"


def test_a_mapped_arena_tells_the_first_of_its_extents_and_how_many_there_are() -> None:
    plan = scattered()
    assert ("arena mapped: 256 B of addresses that show transient [192, 256) [64, 128) [192, 256) [0, 64), 4 extents "
            "in pages of 64 B") in format_plan(plan).splitlines()
    more = Maker(extents=((0, 64), (128, 64)) * 3).plan()
    assert "transient [0, 64) [128, 192) [0, 64) [128, 192) 2 more, 6 extents in pages of 64 B" in format_plan(more)
    assert format_instruction(plan, 3) == "3 compute  t_dense c  %3 %2 -> %4 @mapped+128"

"""The report's figures against figures worked out by hand."""
from __future__ import annotations

import json
from dataclasses import fields, replace

from minigraph.plan.report import Mapped, Report, report
from minigraph.plan.verify import verify

from .build import Maker, chain, corrupt, scattered, swap, training


def test_figures_of_a_chain_are_those_worked_out_by_hand() -> None:
    # instant 0: weight 64 and data 64, a 64, scratch 128 = 320; the other instants have less
    result = report(chain())
    assert result.by_class == {"parameter": 64, "input": 64, "activation": 64, "workspace": 128}
    assert result.peak_live_bytes == 320
    assert result.peak_instruction == (0, "a")
    assert (result.planned_bytes, result.persistent_bytes, result.transient_bytes) == (320, 64, 256)
    assert result.host_bytes == 0
    assert (result.nodes, result.naive_bytes, result.lower_bound_bytes) == (3, 4096, 1024)
    assert result.ratio == 320 / 1024


def test_views_and_successors_in_place_count_once() -> None:
    m = Maker()
    data = m.value("data", buffer_class="input")
    a = m.value("a", 32)
    b = m.value("b", 32, over=a)
    view, out = m.value("view", 16, over=b, view=True), m.value("out", buffer_class="output")
    m.run("t_dense", (data, data), (a,))
    m.run("t_unary", (a,), (b,))
    m.run("t_binary", (view, data), (out,))
    result = report(m.plan(inputs=(data,), outputs=(out,)))
    assert result.by_class == {"input": 64, "output": 64, "activation": 128}
    assert result.peak_instruction == (2, "out")


def test_a_persistent_tensor_counts_once_and_throughout() -> None:
    result = report(training())
    assert result.by_class["parameter"] == 64
    m = Maker()  # a gradient that is computed late over the last step's, which nothing reads
    data, old = m.value("data", buffer_class="input"), m.value("old", arena="persistent", buffer_class="gradient")
    big = m.value("big", 64)
    new = m.value("new", arena="persistent", at=0, buffer_class="gradient")
    m.run("t_dense", (data, data), (big,))
    m.run("t_dense", (data, data), (new,))
    plan = m.plan(inputs=(data,), persistent=((old, new),))
    verify(plan)
    assert report(plan).by_class == {"gradient": 64, "input": 64, "activation": 256}
    assert report(plan).peak_instruction == (0, "big")


def test_sizes_are_rounded_up_to_the_alignment() -> None:
    m = Maker()
    data, a = m.value("data", 1, buffer_class="input"), m.value("a", 17)
    m.run("t_unary", (data,), (a,))
    assert report(m.plan(inputs=(data,), outputs=(a,))).by_class == {"input": 64, "activation": 128}


def test_host_memory_counts_apart() -> None:
    result = report(swap())
    assert result.host_bytes == 64
    assert result.planned_bytes == 320 == result.transient_bytes
    assert sum(result.by_class.values()) == 192  # at 12: c, back and out
    assert result.peak_instruction == (12, "out")


def test_a_plan_that_does_nothing_peaks_at_its_start() -> None:
    m = Maker()
    weight = m.value("weight", arena="persistent", buffer_class="parameter")
    result = report(m.plan(persistent=((weight, weight),)))
    assert result.peak_instruction == (-1, "start of the program")
    assert result.by_class == {"parameter": 64}


def test_the_verifiers_seconds_are_given_or_the_plans_or_unknown() -> None:
    plan = chain()
    assert report(plan).verify_seconds is None
    assert report(plan, 0.125).verify_seconds == 0.125
    timed = replace(plan, figures=replace(plan.figures, pass_seconds={"verify": 2.0}))
    assert report(timed).verify_seconds == 2.0


def test_the_ratio_of_nothing_is_one() -> None:
    plan = chain()
    assert report(replace(plan, figures=replace(plan.figures, lower_bound_bytes=0))).ratio == 1.0


def test_json_has_exactly_the_reports_fields() -> None:
    result = report(swap())
    again = json.loads(json.dumps(result.json()))
    assert list(again) == [field.name for field in fields(Report)]
    assert again["by_class"] == result.by_class
    assert again["peak_instruction"] == [12, "out"]


def test_the_text_tells_every_figure() -> None:
    text = report(chain(), 0.125).text()
    for words in ("naive", "4.00 KiB", "lower bound", "1.00 KiB", "320 B (0.312 of the lower bound)", "persistent",
                  "320 B live at 0 a", "workspace", "128 B", "0.500 s", "0.125 s", "pack", "0.250 s"):
        assert words in text
    assert "not verified" in report(chain()).text()


def test_swapped_bytes_are_those_of_all_copies() -> None:
    assert report(swap()).swapped_bytes == 128  # 64 out and 64 in
    assert report(chain()).swapped_bytes == 0 and report(chain()).techniques is None


def test_a_value_that_is_copied_back_has_the_class_of_the_original() -> None:
    plan = corrupt(swap(), b_buffer_class=(5, "backward"))  # as lowering calls what is made in backward
    assert report(plan).by_class == {"output": 64, "activation": 128}


def test_the_budget_and_the_least_one_are_told_where_they_are_given() -> None:
    assert (report(chain()).budget_bytes, report(chain()).least_budget_bytes) == (None, None)
    told = report(chain(), budget_bytes=2048, least_budget_bytes=320)
    assert told.feasible and (told.budget_bytes, told.least_budget_bytes) == (2048, 320)
    assert "2.00 KiB, 320 B would do" in told.text()


def test_mapped_buffers_are_live_device_bytes_and_their_addresses_take_no_memory() -> None:
    result = report(scattered())
    assert result.by_class == {"input": 64, "activation": 192}  # at 1: a in two pieces, data and kept
    assert result.peak_instruction == (1, "kept")
    assert (result.planned_bytes, result.transient_bytes, result.host_bytes) == (320, 320, 0)
    assert result.mapped == Mapped(buffers=2, bytes=256, page_bytes=64, extents=4)
    assert result.json()["mapped"] == {"buffers": 2, "bytes": 256, "page_bytes": 64, "extents": 4}
    assert "mapped" in result.text() and result.mapped.text() in result.text()
    assert "2 buffers at 256 B of further addresses, which show 4 extents" in result.text()


def test_a_plan_without_mapped_arenas_tells_of_none() -> None:
    assert report(chain()).mapped is None and report(chain()).json()["mapped"] is None
    assert "mapped" not in report(chain()).text()

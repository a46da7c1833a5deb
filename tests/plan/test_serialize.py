"""Plans as files: they come back equal, and what is wrong with a file is said."""
from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.plan.plan import Arena
from minigraph.plan.serialize import FORMAT_VERSION, diff, dumps, load, loads, save
from minigraph.plan.verify import verify

from .build import Maker, TunedParams, chain, corrupt, mapped_arena, scattered, swap, training
from .random_plans import random_plan


def tuned() -> Any:
    m = Maker()
    data, a, b = m.value("data"), m.value("a"), m.value("b")
    params = TunedParams(7, 1e-45, False, "full", (1, 2), np.dtype(np.float16), None)
    m.run("t_tuned", (data,), (a,), params=params)
    m.run("t_tuned", (data,), (b,), params=TunedParams(slope=float("inf")))
    return m.plan(inputs=(data,), outputs=(a, b))


@pytest.mark.parametrize("make", [chain, training, swap, tuned, scattered, lambda: random_plan(5)])
@pytest.mark.parametrize("name", ["plan.json", "plan.json.gz"])
def test_a_saved_plan_comes_back_equal(make: Any, name: str, tmp_path: Path) -> None:
    plan = make()
    save(plan, tmp_path / name)
    again = load(tmp_path / name, plan.fingerprint)
    assert again == plan
    assert [type(p) for p in again.instructions.params] == [type(p) for p in plan.instructions.params]
    verify(again)
    assert dumps(again) == dumps(plan)


def test_every_field_of_a_plan_is_saved() -> None:
    plan = chain()
    changed = replace(plan, **{field.name: ("a", "b") for field in fields(plan) if getattr(plan, field.name) == ()})
    assert loads(dumps(changed)) == changed
    assert {field.name for field in fields(plan)} <= {"fingerprint", *json.loads(dumps(plan))["plan"]}


def test_numpy_scalars_in_columns_are_saved_as_numbers() -> None:
    plan = corrupt(chain(), b_offset=(2, np.int64(64)), b_shape=(2, (np.int64(16),)))
    assert loads(dumps(plan)) == chain()


def test_equal_parameters_are_saved_once() -> None:
    m = Maker()
    value = data = m.value("data")
    for i in range(50):
        last, value = value, m.value(f"v{i}")
        m.run("t_tuned", (last,), (value,), params=TunedParams(count=i % 2))
    assert len(json.loads(dumps(m.plan(inputs=(data,), outputs=(value,))))["plan"]["params"]) == 2


def test_the_same_plan_gives_the_same_bytes(tmp_path: Path) -> None:
    save(swap(), tmp_path / "a.gz")
    save(swap(), tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_another_fingerprint_is_refused_by_name(tmp_path: Path) -> None:
    save(chain(), tmp_path / "plan.json")
    with pytest.raises(MXNetError, match=r"plan\.json.*fingerprint 'print'.*'other'"):
        load(tmp_path / "plan.json", "other")


def test_another_format_version_is_refused_by_name() -> None:
    with pytest.raises(MXNetError, match="format version 99"):
        loads(dumps(chain()).replace(f'"version":{FORMAT_VERSION}', '"version":99'))


def test_other_files_are_no_plans() -> None:
    for text in ('{"nodes": []}', "[1, 2]", "3"):
        with pytest.raises(MXNetError, match="no plan"):
            loads(text)


@pytest.mark.parametrize("name", ["plan.json", "plan.json.gz"])
def test_truncated_files_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    save(chain(), path)
    whole = path.read_bytes()
    for length in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(MXNetError, match=r"plan\.json"):
            load(path)


def test_changed_numbers_are_noticed() -> None:
    text = dumps(chain())
    assert '"offset":[0,0,64' in text
    with pytest.raises(MXNetError, match="checksum"):
        loads(text.replace('"offset":[0,0,64', '"offset":[0,0,128'))


def test_columns_that_are_missing_or_of_the_wrong_kind_are_refused() -> None:
    for change in (lambda body: body["buffers"].pop("dies"), lambda body: body["buffers"]["dies"].pop(),
                   lambda body: body.pop("figures"), lambda body: body["instructions"]["params"].__setitem__(0, 99),
                   lambda body: body["buffers"]["shape"].__setitem__(0, 5),
                   lambda body: body["buffers"]["offset"].__setitem__(0, 2**70)):
        with pytest.raises(MXNetError, match="damaged"):
            loads(signed(chain(), change))


@pytest.mark.parametrize(("change", "told"), [
    (lambda body: body["buffers"]["offset"].__setitem__(1, 1.5), r"buffers.offset\[1\] is 1.5; it must be a whole"),
    (lambda body: body["buffers"]["offset"].__setitem__(1, True), r"buffers.offset\[1\] is True; it must be a whole"),
    (lambda body: body["buffers"]["bytes"].__setitem__(0, 2**70), r"buffers.bytes\[0\] .* whole number of 64 bits"),
    (lambda body: body["buffers"]["shape"].__setitem__(2, [4, "4"]), r"buffers.shape\[2\]\[1\] is '4'; it must be a"),
    (lambda body: body["buffers"].__setitem__("view", [0] * 7), r"buffers.view\[0\] is 0; it must be true or false"),
    (lambda body: body["instructions"]["reads"].__setitem__(0, None), r"instructions.reads\[0\] is None; .* a list"),
    (lambda body: body["instructions"]["value"].__setitem__(2, "x"), r"instructions.value\[2\] is 'x'; .* a number"),
    (lambda body: body["instructions"]["params"].__setitem__(2, 99), r"instructions.params\[2\] is 99; the file has"),
    (lambda body: body["ranges"].__setitem__("step", [0, 1.0]), r"ranges\[0\].* is 1.0; it must be a whole number"),
    (lambda body: body["arenas"].__setitem__(0, ["x", "device"]), r"arenas\[0\] has 2 items; it must have 5"),
    (lambda body: body["arenas"][0].__setitem__(4, [[1]]), r"arenas\[0\], its extents\[0\] has 1 items; it must"),
    (lambda body: body["inputs"].__setitem__("data", "0"), r"inputs\['data'\] is '0'; it must be a whole number"),
    (lambda body: body["figures"].__setitem__("nodes", None), r"figures\['nodes'\] is None; it must be a whole"),
])
def test_a_value_of_the_wrong_kind_is_told_with_its_place(change: Any, told: str) -> None:
    with pytest.raises(MXNetError, match=told):
        loads(signed(chain(), change))


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value: a container and a key of it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from leaves(item)


def test_whatever_is_put_in_whatever_place_of_a_file_the_error_is_a_clear_one() -> None:
    refused = 0
    for make in (swap, tuned, scattered):
        document = json.loads(dumps(make()))
        for container, key in list(leaves(document)):
            kept = container[key]
            for wrong in (1.5, None, "x", True, -1, 2**62, 2**70, [], {}, [None]):
                container[key] = wrong
                body = json.dumps(document["plan"], separators=(",", ":"), ensure_ascii=False)
                text = json.dumps({**document, "checksum": zlib.crc32(body.encode())})
                try:
                    verify(loads(text))
                except MXNetError as error:
                    refused += 1
                    assert not re.search(r"(Type|Attribute|Index|Key|Value)Error|'int' object", str(error)), str(error)
            container[key] = kept
    assert refused > 1000


def signed(plan: Any, change: Any) -> str:
    """The text of a plan after a change, with a fitting checksum."""
    document = json.loads(dumps(plan))
    change(document["plan"])
    body = json.dumps(document["plan"], separators=(",", ":"), ensure_ascii=False)
    document["checksum"] = zlib.crc32(body.encode())
    return json.dumps(document)


def test_an_unknown_operator_is_named() -> None:
    def rename(body: dict[str, Any]) -> None:
        body["params"][0]["op"] = "vanished"

    with pytest.raises(MXNetError, match="no operator 'vanished'"):
        loads(signed(chain(), rename))


def test_a_file_that_is_not_there_or_not_packed_is_told(tmp_path: Path) -> None:
    with pytest.raises(MXNetError, match="cannot be read"):
        load(tmp_path / "none.json")
    (tmp_path / "plan.gz").write_text(dumps(chain()))
    with pytest.raises(MXNetError, match="cannot be read"):
        load(tmp_path / "plan.gz")
    (tmp_path / "plan.json").write_bytes(gzip.compress(b"x"))
    with pytest.raises(MXNetError, match="cannot be read"):
        load(tmp_path / "plan.json")


def test_saving_replaces_a_file_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    save(chain(), path)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(swap(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["plan.json"]


# -- diff --------------------------------------------------------------------------------------------------------
def test_equal_plans_have_no_differences() -> None:
    assert diff(swap(), swap()) == "the plans are the same\n"


def test_seconds_are_no_difference() -> None:
    plan = swap()
    slower = replace(plan, figures=replace(plan.figures, compile_seconds=9.0, pass_seconds={}))
    assert diff(plan, slower) == "the plans are the same\n"


def test_moved_buffers_and_grown_arenas_are_listed() -> None:
    plan = swap()
    arenas = (plan.arenas[0], replace(plan.arenas[1], bytes=plan.arenas[1].bytes + 64), plan.arenas[2])
    text = diff(plan, replace(corrupt(plan, b_offset=(3, 320)), arenas=arenas))
    assert "planned: 320 B -> 384 B (+64 bytes)" in text
    assert "arena transient: size: 320 B -> 384 B (+64 bytes)" in text
    assert "buffers changed: 1\n  b: 64 bytes @transient+128 -> 64 bytes @transient+320" in text


def test_changed_and_renamed_mapped_arenas_are_listed() -> None:
    plan = scattered()
    extents = (*plan.arenas[3].extents[:3], (256, 64))
    assert diff(plan, replace(plan, arenas=(*plan.arenas[:3], mapped_arena(64, extents)))).startswith(
        "arena mapped: extents: 4 -> 4, 3 of them the same\nbuffers changed: 1\n  c: 128 bytes @mapped+128 ->")
    other = mapped_arena(128, ((0, 128),))
    assert ("arena mapped: size: 256 B -> 128 B (-128 bytes), pages: 64 B -> 128 B (+64 bytes), extents: 4 -> 1, 0 of "
            "them the same") in diff(plan, replace(plan, arenas=(*plan.arenas[:3], other)))
    swapped = mapped_arena(64, (*plan.arenas[3].extents[1::-1], *plan.arenas[3].extents[2:]), "more")
    text = diff(plan, replace(plan, arenas=(*plan.arenas[:3], swapped)))
    assert "arena mapped: mapped -> more, extents: 4 -> 4, 4 of them the same" in text
    assert "buffers changed: 1\n  a: 128 bytes @mapped+0 -> 128 bytes @more+0" in text  # `c` lies in the same memory
    assert "arena mapped: added\narena more: added" in diff(swap(), replace(plan, arenas=(*plan.arenas, swapped)))
    assert "arena mapped: mapped -> host, pages: 64 B -> 0 B" in diff(
        plan, replace(plan, arenas=(*plan.arenas[:3], Arena("mapped", "host", 256))))


def test_added_removed_changed_and_moved_instructions_are_listed() -> None:
    def plan(order: str, algorithm: str = "default") -> Any:
        m = Maker()
        data = m.value("data")
        values = {name: m.value(name) for name in "abcdx"}
        for name in order:
            m.run("t_unary", (data,), (values[name],), algorithm=algorithm if name == "a" else "default")
        return m.plan(inputs=(data,), outputs=tuple(values[name] for name in order))

    text = diff(plan("abcd"), plan("bcdax", "fast"))
    assert "instructions added: 1\n  + 4 compute  t_unary x" in text
    assert "instructions moved: 1\n  0 -> 3: 3 compute  t_unary a" in text
    assert "instructions changed: 1\n  0 -> 3 a: algorithm default -> fast" in text
    assert "instructions removed: 1\n  - 4 compute  t_unary x" in diff(plan("abcdx"), plan("abcd"))


def test_other_operands_are_a_change() -> None:
    assert "reads (4, 5) -> (5, 4)" in diff(swap(), corrupt(swap(), i_reads=(12, (5, 4))))


def test_long_lists_are_cut_short() -> None:
    def plan(first: int) -> Any:
        m = Maker()
        data = m.value("data", first)
        values = tuple(m.value(f"v{i}") for i in range(30))
        for value in values:
            m.run("t_unary", (data,), (value,))
        return m.plan(inputs=(data,), outputs=values)

    text = diff(plan(16), plan(32))
    assert "buffers changed: 31" in text and "and 23 more" in text
    assert len(text.splitlines()) < 20


def test_whatever_else_differs_is_named() -> None:
    assert diff(swap(), corrupt(swap(), b_dies=(6, 20))) == "only these differ: buffer dies\n"

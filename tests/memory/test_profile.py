"""Profiles: measured times come first, others are interpolated between the nearest, and files come back."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minigraph.base import Cost, MXNetError, TensorType
from minigraph.memory.machine import Machine
from minigraph.memory.profile import Measured, Profile, spelled_types
from minigraph.planning import plan
from tests.test_use_plan import SHAPES, network, optimizer

MACHINE = Machine("m", 1, flops=100.0, bandwidth=1e9, copy_out=1.0, copy_in=1.0, launch_seconds=0.0, source="x")
FLOAT = np.dtype(np.float32)


def types(*dims: int) -> tuple[TensorType, ...]:
    return tuple(TensorType((rows, 8), FLOAT) for rows in dims)


def row(rows: int, seconds: float, op: str = "op", params: str = "1", algorithm: str = "default",
        layout: str = "") -> Measured:
    kinds = spelled_types([TensorType(kind.shape, kind.dtype, layout) for kind in types(rows)])
    return Measured(op, params, kinds, algorithm, 100.0 * rows, 0.0, seconds)


def seconds(profile: Profile, rows: int, op: str = "op", params: int = 1) -> float:
    """The machine's own model takes `rows` seconds."""
    return profile.seconds(op, params, types(rows), "default", Cost(100.0 * rows, 0, 0), MACHINE)


def test_what_was_measured_is_taken_as_it_is() -> None:
    assert seconds(Profile("cpu", [row(4, 0.5), row(8, 7.0)]), 4) == 0.5


def test_what_was_not_measured_lies_on_the_line_through_its_neighbours() -> None:
    profile = Profile("cpu", [row(4, 3.0 + 4 * 2.0), row(16, 3.0 + 16 * 2.0), row(4096, 4096 * 0.001)])
    assert [seconds(profile, rows) for rows in (1, 5, 8, 40)] == pytest.approx([5.0, 13.0, 19.0, 83.0])


@pytest.mark.parametrize(("small", "large"), [(4.0, 128.0), (8.0, 7.0)])
def test_outside_of_its_neighbours_an_operator_neither_takes_less_for_more_nor_more_than_in_proportion(
        small: float, large: float) -> None:
    profile = Profile("cpu", [row(4, small), row(16, large)])
    assert small / 4 <= seconds(profile, 1) <= small
    assert large <= seconds(profile, 64) <= 4 * large


def test_with_other_parameters_the_roofline_is_scaled_as_at_both_neighbours() -> None:
    profile = Profile("cpu", [row(4, 4 * 2.0, params="2"), row(16, 16 * 8.0, params="2")])
    assert seconds(profile, 8) == pytest.approx(8 * 4.0)


def test_one_measurement_scales_the_roofline_of_its_operator_alone() -> None:
    profile = Profile("cpu", [row(4, 4 * 3.0)])
    assert seconds(profile, 40) == pytest.approx(40 * 3.0)
    assert seconds(profile, 40, op="another") == 40.0


def test_equal_parameters_are_nearer_than_other_ones() -> None:
    profile = Profile("cpu", [row(8, 80.0, params="2"), row(8, 80.0, params="3"), row(6, 6.0), row(12, 12.0)])
    assert seconds(profile, 8) == pytest.approx(8.0)


@pytest.mark.parametrize("other", [{"algorithm": "native.direct"}, {"layout": "nChw16c"}], ids=str)
def test_another_algorithm_and_other_layouts_are_measured_apart(other: dict[str, str]) -> None:
    same, apart = row(4, 4 * 3.0), row(8, 8 * 9.0, **other)
    assert seconds(Profile("cpu", [same, apart]), 8) == pytest.approx(8 * 3.0, rel=1e-2)
    assert seconds(Profile("cpu", [apart]), 8) == pytest.approx(8 * 9.0)
    assert seconds(Profile("cpu", [apart, row(8, 1.0)]), 8) == 1.0


def test_operands_of_another_rank_are_the_last_resort() -> None:
    flat = Measured("op", "1", (("float32", (64,), ""),), "default", 100.0, 0.0, 50.0)
    assert seconds(Profile("cpu", [flat, row(4, 8.0), row(16, 32.0)]), 8) == pytest.approx(16.0)
    assert seconds(Profile("cpu", [flat]), 8) == pytest.approx(400.0)


REUSE = ((10.0, 1e-9), (20.0, 3e-9))


def test_an_operator_takes_longer_the_more_of_its_operands_is_in_no_cache() -> None:
    measured = replace(row(4, 5.0), cold=0.5, cold_seconds=2.0)
    known, blind = Profile("cpu", [measured], REUSE), Profile("cpu", [measured])

    def taken(profile: Profile, cold: float | None) -> float:
        return profile.seconds("op", 1, types(4), "default", Cost(400.0, 0, 0), MACHINE, cold)
    assert [taken(known, cold) for cold in (None, 0.0, 0.5, 1.0)] == [5.0, 4.0, 5.0, 6.0]
    assert [taken(blind, cold) for cold in (None, 0.0, 1.0)] == [5.0, 5.0, 5.0]


def test_what_lies_between_measurements_is_as_sensitive_as_they_are_for_its_bytes() -> None:
    rows = [replace(row(n, float(n)), moved_bytes=10.0 * n, cold=0.5, cold_seconds=0.2 * n) for n in (4, 16)]
    profile = Profile("cpu", rows, REUSE)
    cost = Cost(800.0, 40, 40)
    assert [profile.seconds("op", 1, types(8), "default", cost, MACHINE, cold) for cold in (0.0, 0.5, 1.0)] == \
        pytest.approx([8.0 - 0.8, 8.0, 8.0 + 0.8])


def test_what_was_never_measured_takes_the_rooflines_time_out_of_caches_and_less_in_them() -> None:
    profile, cost = Profile("cpu", [], ((10.0, 0.25e-9), (20.0, 1e-9))), Cost(0.0, 10**9, 0)
    assert [profile.seconds("op", 1, types(8), "default", cost, MACHINE, cold) for cold in (None, 1.0, 0.0)] == \
        pytest.approx([1.0, 1.0, 0.25])


def test_coldness_grows_with_the_bytes_touched_since_from_none_to_all() -> None:
    found = Profile("cpu", [], REUSE).coldness(np.array([0.0, 10.0, 15.0, 20.0, 1e9]))
    assert found.tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0])
    assert Profile("cpu", [], ((1.0, 2e-9), (2.0, 2e-9))).coldness(np.array([5.0])).tolist() == [0.0]


def test_a_saved_profile_comes_back_equal_and_the_same(tmp_path: Path) -> None:
    profile = Profile("cpu", [replace(row(4, 0.1 + 0.2), cold=0.3, cold_seconds=1e-7), row(8, 1e-9, op="é")], REUSE)
    profile.save(tmp_path / "a.json")
    again = Profile.load(tmp_path / "a.json")
    assert again == profile
    again.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "minigraph-profile", "version": 1}'])
def test_other_files_are_no_profiles(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(MXNetError, match=r"p\.json' is no profile"):
        Profile.load(tmp_path / "p.json")


def test_times_that_are_none_are_refused(tmp_path: Path) -> None:
    Profile("cpu", [row(4, 1.0)]).save(tmp_path / "p.json")
    document = json.loads((tmp_path / "p.json").read_text())
    for wrong in (0, -1.0, "x", None):
        document["measured"][0][6] = wrong
        (tmp_path / "p.json").write_text(json.dumps(document))
        with pytest.raises(MXNetError, match="is no profile"):
            Profile.load(tmp_path / "p.json")
    with pytest.raises(MXNetError, match="cannot be read"):
        Profile.load(tmp_path / "missing.json")


def test_planning_takes_the_profiles_times(tmp_path: Path) -> None:
    """A profile in which one operator takes long shows in the plan's figures, and the same file gives the same plan."""
    bare = plan(network(), SHAPES, optimizer())
    slow = Measured("Convolution", "", (("float32", (8, 4, 6, 6), ""),) * 4, "native.direct", 1.0, 1.0, 1000.0)
    Profile("cpu", [slow]).save(tmp_path / "slow.json")
    first, second = (plan(network(), SHAPES, optimizer(), profile=str(tmp_path / "slow.json")) for _ in range(2))
    assert first.figures.step_seconds > 1000 * bare.figures.step_seconds
    assert first.instructions == second.instructions and first.buffers == second.buffers


def test_a_policy_leaves_alone_what_the_profile_says_is_dear(tmp_path: Path) -> None:
    """With convolutions of a thousand seconds other values are recomputed in their place."""
    plain = plan(network(), SHAPES, optimizer())
    rows = [Measured("Convolution", "", (("float32", (8, 4, 6, 6), ""),) * 4, "native.direct", 1.0, 1.0, 1e3)]
    Profile("cpu", rows).save(tmp_path / "dear.json")

    def repeated(profile: str | None) -> list[str]:
        made = plan(network(), SHAPES, optimizer(), memory="auto", budget=plain.planned_bytes - 5000, profile=profile)
        return [op for op, name in zip(made.instructions.op, made.instructions.name, strict=True) if "/again" in name]
    assert "Convolution" in repeated(None)
    dear = repeated(str(tmp_path / "dear.json"))
    assert dear and "Convolution" not in dear

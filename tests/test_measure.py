"""Measuring: every operator of a plan gets a time, and a machine file goes wherever a machine's name goes."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from minigraph import cli, measure
from minigraph.base import MXNetError
from minigraph.memory.machine import MACHINES, get_machine, save_machine
from minigraph.memory.profile import Measured, Profile
from minigraph.plan.plan import Kind
from minigraph.plan.simulate import simulate
from minigraph.planning import plan
from tests.test_use_plan import SHAPES, network, optimizer


def test_a_profile_has_a_time_for_each_different_operator_of_the_plan() -> None:
    made = plan(network(), SHAPES, optimizer())
    profile = measure.profile_ops(made, rounds=1)
    code = made.instructions
    assert {m.op for m in profile.measured} == {op for op, kind in zip(code.op, code.kind, strict=True)
                                                if kind == Kind.COMPUTE}
    assert len(profile.measured) < len(made)
    assert all(m.seconds > 0 for m in profile.measured)
    assert profile.device == "cpu"


def test_simulation_by_a_plans_own_profile_is_the_sum_of_its_times() -> None:
    made = plan(network(), SHAPES, optimizer())
    profile = measure.profile_ops(made, rounds=1)
    doubled = Profile("cpu", [Measured(m.op, m.params, m.types, m.algorithm, m.flops, m.moved_bytes, 2 * m.seconds)
                              for m in profile.measured])
    once, twice = (simulate(made, MACHINES["cpu"], profile=each).seconds for each in (profile, doubled))
    assert twice == pytest.approx(2 * once)


def test_swapping_plans_are_profiled_by_their_computations() -> None:
    made = plan(network(), SHAPES, optimizer(), memory="vdnn", host_budget="1GiB")
    assert any(kind == Kind.COPY_OUT for kind in made.instructions.kind)
    with_copies = measure.profile_ops(made, rounds=1)
    without = measure.profile_ops(plan(network(), SHAPES, optimizer()), rounds=1)
    assert {m.op for m in with_copies.measured} == {m.op for m in without.measured}


def test_merged_profiles_have_the_operators_of_all() -> None:
    one, two = (Measured("op", "1", (), "default", 1.0, 1.0, seconds) for seconds in (1.0, 2.0))
    other = Measured("other", "1", (), "default", 1.0, 1.0, 3.0)
    assert measure.merged([Profile("cpu", [one, other]), Profile("cpu", [two])]).measured == (two, other)
    with pytest.raises(ValueError, match="one device"):
        measure.merged([Profile("cpu", []), Profile("cuda", [])])


def test_a_profile_takes_medians_over_rounds_and_means_over_places_of_the_same_operator() -> None:
    made = plan(network(), SHAPES, optimizer())
    with measure.Profiler(made) as profiler:
        profiler._caches = None
        with pytest.raises(ValueError, match="no times yet"):
            profiler.profile()
        code = made.instructions
        times = iter([[1.0] * len(made), [float(code.op[i] == "_sgd_mom_update") + i for i in range(len(made))],
                      [100.0] * len(made)])
        profiler._seconds_of_all = lambda: next(times)  # type: ignore[method-assign]
        for _ in range(3):
            profiler.round()
        by_op: dict[tuple, list[float]] = {}
        for i in range(len(made)):
            by_op.setdefault(measure._key(made, i), []).append(
                max(1.0, float(code.op[i] == "_sgd_mom_update") + i))
        expected = {key: sum(values) / len(values) for key, values in by_op.items()}
        assert sorted(m.seconds for m in profiler.profile().measured) == pytest.approx(sorted(expected.values()))


def test_a_profile_says_how_much_longer_operators_take_when_nothing_is_in_a_cache() -> None:
    with measure.Profiler(plan(network(), SHAPES, optimizer())) as profiler:
        caches = profiler._caches
        assert caches is not None
        seconds = {caches.warm: 2.0, caches.cool: 5.0}
        profiler._seconds_of_all = lambda before=None: [seconds.get(before, 4.0)] * len(profiler.plan)  # type: ignore
        profiler.round()
        profile, key = profiler.profile(), next(iter(caches._first))
        shares = {0.0: 3.0, 0.1: 3.0, 0.8: 2.5, 1.0: 2.0}
        assert [caches.cold_seconds(key, 4.0, share) for share in shares] == pytest.approx(list(shares.values()))
        assert caches.cold_seconds(key, 1.9, 0.5) == 0.0
    assert {m.seconds for m in profile.measured} == {4.0}
    assert all(0.0 <= m.cold <= 1.0 and 2.0 <= m.cold_seconds <= 3.0 for m in profile.measured)
    assert list(profile.reuse) == sorted(profile.reuse) and profile.reuse[0][1] > 0.0


def test_measuring_in_and_out_of_caches_changes_no_values() -> None:
    made = plan(network(), SHAPES, optimizer())
    with measure.Profiler(made) as profiler:
        assert profiler._caches is not None
        for before in (profiler._caches.warm, profiler._caches.cool):
            assert all(seconds > 0 for seconds in profiler._seconds_of_all(before))


def test_no_rounds_are_no_measurement() -> None:
    with pytest.raises(ValueError, match="one round or more"):
        measure.profile_ops(plan(network(), SHAPES, optimizer()), rounds=0)
    with pytest.raises(ValueError, match="one round or more"):
        measure.measure_machine(rounds=0)


def test_a_machine_file_serves_as_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    save_machine(MACHINES["V100"], path)
    assert get_machine(str(path)) == MACHINES["V100"]
    by_name, by_file = (plan(network(), SHAPES, optimizer(), machine=machine) for machine in ("V100", str(path)))
    assert by_name.figures.step_seconds == by_file.figures.step_seconds


@pytest.mark.parametrize("change", [{"flops": 0}, {"event_seconds": -1.0}, {"memory_bytes": float("inf")},
                                    {"flops": float("nan")}, {"flops": "x"}, {"bandwidth": None},
                                    {"format": "other"}, {"version": 9}, {"colour": 1}])
def test_a_file_with_wrong_figures_is_no_machine(change: dict[str, object], tmp_path: Path) -> None:
    save_machine(MACHINES["cpu"], tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text())
    (tmp_path / "m.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(MXNetError, match=r"m\.json' is no machine"):
        get_machine(str(tmp_path / "m.json"))


def test_a_machine_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MXNetError, match="cannot be read"):
        get_machine(str(tmp_path / "none.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(MXNetError, match="is no machine"):
        get_machine(str(tmp_path / "list.json"))


def test_the_command_measures_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_DISK_BYTES", 2**20)
    monkeypatch.setattr(measure, "_BLOCK_BYTES", 2**20)
    monkeypatch.setattr(measure, "_GEMM", 64)
    path = tmp_path / "this.json"
    assert cli.main(["machine", "--rounds", "1", "--name", "bench", "--save", str(path), "--disk", str(tmp_path)]) == 0
    assert "machine bench" in capsys.readouterr().out
    found = get_machine(str(path))
    assert found.name == "bench" and 0 < found.copy_out == found.copy_in and 0 < found.event_seconds < 1e-3
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_refuses_other_file_names_and_no_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["machine", "--save", "this.txt"]) == 2
    assert "ends in .json" in capsys.readouterr().err
    assert cli.main(["machine", "--rounds", "0"]) == 2
    assert "one round or more" in capsys.readouterr().err

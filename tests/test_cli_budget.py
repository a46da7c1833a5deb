"""The command line under budgets: what fits, what it costs, how large a network may grow; timeline and trace files."""
from __future__ import annotations

import json

import pytest

import zoo
from minigraph import cli
from minigraph.planning import plan
from minigraph.sizing import largest

RESNET = ["zoo.resnet", "--arg", "depth=20", "--arg", "num_classes=10", "--shape", "data=4,3,32,32"]
SHAPES = {"data": (4, 3, 32, 32)}


def resnet():
    return zoo.get("resnet")(10, depth=20, image_shape=(3, 32, 32))


def run(capsys, *words: str) -> str:
    """Standard output of a command that must succeed."""
    assert cli.main(words) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.fixture(scope="module")
def plain_bytes() -> int:
    return plan(resnet(), SHAPES, "sgd").planned_bytes


def test_without_a_budget_a_plan_is_feasible_and_no_least_budget_is_known(capsys, plain_bytes):
    figures = json.loads(run(capsys, "plan", *RESNET, "--json"))
    assert figures["feasible"] is True and figures["least_budget_bytes"] is None
    assert figures["step_seconds"] == figures["plain_step_seconds"] > 0
    assert figures["recompute_flops"] == figures["swapped_bytes"] == 0
    assert figures["planned_bytes"] == plain_bytes and figures["techniques"] is None


def test_a_budget_is_kept_by_recomputation_and_the_json_says_what_it_costs(capsys, plain_bytes):
    budget = int(plain_bytes * 0.6)
    figures = json.loads(run(capsys, "plan", *RESNET, "--json", "--budget", str(budget)))
    assert figures["feasible"] is True and figures["planned_bytes"] <= budget == figures["budget_bytes"]
    assert figures["least_budget_bytes"] <= budget
    assert figures["step_seconds"] > figures["plain_step_seconds"] and figures["recompute_flops"] > 0
    assert figures["techniques"]["recomputed"]["saved_bytes"] > 0


def test_a_budget_that_is_too_small_gives_the_least_one_and_exit_code_3(capsys):
    assert cli.main(["plan", *RESNET, "--json", "--budget", "100KB"]) == 3
    captured = capsys.readouterr()
    figures = json.loads(captured.out)
    assert figures["feasible"] is False and figures["budget_bytes"] == 100_000
    assert {figures[name] for name in ("step_seconds", "plain_step_seconds", "recompute_flops",
                                       "swapped_bytes")} == {None}
    assert captured.err.count("\n") == 1 and "least that it can do with" in captured.err
    least = figures["least_budget_bytes"]
    again = json.loads(run(capsys, "plan", *RESNET, "--json", "--budget", str(least)))
    assert again["feasible"] is True and again["planned_bytes"] <= again["least_budget_bytes"] == least
    assert cli.main(["plan", *RESNET, "--json", "--budget", str(least - 1)]) == 3


def test_people_get_the_reason_in_one_line_and_exit_code_3(capsys):
    assert cli.main(["plan", *RESNET, "--budget", "100KB"]) == 3
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "its peak is at instruction" in captured.err


@pytest.mark.parametrize("space", ["host", "file"])
def test_swapping_is_allowed_by_a_host_budget_or_a_disk(capsys, tmp_path, space, plain_bytes):
    where = ["--host-budget", "1GiB"] if space == "host" else ["--disk", str(tmp_path)]
    words = ["plan", *RESNET, "--json", "--memory", "vdnn_all", *where]
    figures = json.loads(run(capsys, *words))
    assert figures["host_bytes"] > 0 and figures["planned_bytes"] < plain_bytes
    swapped = figures["techniques"]["swapped"]
    assert figures["swapped_bytes"] == swapped["out_bytes"] + swapped["in_bytes"] > 0
    assert swapped["saved_bytes"] > 0


def test_the_text_names_the_largest_tensors_at_the_peak(capsys):
    text = run(capsys, "plan", *RESNET)
    assert "largest at the peak" in text and "activations take" in text and "give a budget" in text


def test_timeline_and_trace_are_written(capsys, tmp_path):
    page, trace = tmp_path / "memory.html", tmp_path / "trace.json"
    run(capsys, "plan", *RESNET, "--timeline", str(page), "--trace", str(trace), "--machine", "P100")
    assert "zoo.resnet: step" in page.read_text(encoding="utf-8")
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"X", "C", "M"} == {event["ph"] for event in events}
    assert any("P100" in event["args"].get("name", "") for event in events)


def test_a_file_that_cannot_be_written_is_one_line(capsys):
    assert cli.main(["plan", *RESNET, "--timeline", "/no/such/folder/x.html"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# -- largest -------------------------------------------------------------------------------------------------
MLP = ["zoo.mlp", "--arg", "hidden=32"]


def test_the_largest_batch_is_that_of_the_function(capsys):
    words = ["largest", *MLP, "--shape", "data={n},64", "--budget", "200KB"]
    found = json.loads(run(capsys, *words, "--json"))
    symbol = zoo.get("mlp")(hidden=32)
    same = largest(lambda n: (symbol, {"data": (n, 64)}), budget="200KB")
    assert found["n"] == same.n and found["budget_bytes"] == 200_000
    assert found["planned_bytes"] == same.plan.planned_bytes <= 200_000
    assert found["tried"] == [{"n": t.n, "fits": t.fits, "bytes": t.bytes} for t in same.tried]
    assert f"largest n     {same.n}" in run(capsys, *words)
    over = json.loads(run(capsys, "largest", *MLP, "--shape", "data=1,64", "--over", "batch", "--budget", "200KB",
                          "--json"))
    assert over["n"] == same.n


def test_n_may_be_an_argument_or_a_formula_in_one(capsys):
    words = ["largest", "zoo.resnet", "--arg", "num_classes=10", "--shape", "data=2,3,8,8", "--budget", "4MB",
             "--memory", "plain", "--high", "9", "--json"]
    found = json.loads(run(capsys, *words, "--arg", "depth={6*n+2}"))
    assert 1 < found["n"] < 9
    deeper = plan(zoo.get("resnet")(10, depth=6 * found["n"] + 8, image_shape=(3, 8, 8)), {"data": (2, 3, 8, 8)}, "sgd")
    assert deeper.planned_bytes > 4_000_000 >= found["planned_bytes"]
    over = ["largest", *MLP, "--shape", "data=4,64", "--over", "hidden", "--budget", "200KB", "--json"]
    assert json.loads(run(capsys, *over))["n"] > 1


def test_progress_is_told_on_standard_error_where_it_is_asked_for(capsys):
    words = ["largest", *MLP, "--shape", "data={n},64", "--budget", "200KB", "--high", "2"]
    assert cli.main(words) == 0
    quiet = capsys.readouterr()
    assert cli.main([*words, "--progress"]) == 0
    told = capsys.readouterr()
    assert quiet.err == "" and told.out == quiet.out
    assert [line.partition(" takes ")[0] for line in told.err.splitlines()] == ["n=1", "n=2"]


def test_a_machine_without_a_budget_stands_for_its_memory(capsys):
    found = json.loads(run(capsys, "largest", *MLP, "--shape", "data={n},64", "--machine", "V100", "--high", "2",
                           "--json"))
    assert found["n"] == 2 and found["budget_bytes"] == 16160 * 2**20


@pytest.mark.parametrize("words, reason, code", [
    (["--shape", "data=1,64", "--budget", "1MB"], "nothing depends on n", 2),
    (["--shape", "data={n},64"], "needs a budget", 2),
    (["--shape", "data={n//0},64", "--budget", "1MB"], "is no formula", 2),
    (["--shape", "data={n**n},64", "--budget", "1MB"], "is no formula", 2),
    (["--shape", "data={n-1},64", "--budget", "1MB"], "is no shape", 2),
    (["--shape", "data={n},64", "--budget", "1MB", "--low", "3", "--high", "2"], "high=2", 2),
    (["--shape", "data={n},64", "--budget", "10"], "not even n=1 fits", 3)])
def test_bad_input_gives_one_line(capsys, words, reason, code):
    assert cli.main(["largest", *MLP, *words]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and reason in captured.err

"""The command line: figures for people and programs, and one line for whatever is wrong."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import minigraph as mx
import zoo
from minigraph import cli
from minigraph.networks import load_network, parse_settings, parse_shapes
from minigraph.plan import serialize
from minigraph.planning import plan

ROOT = Path(__file__).resolve().parent.parent
RESNET = ["zoo.resnet", "--arg", "depth=20", "--arg", "num_classes=10", "--shape", "data=8,3,32,32"]


def run(capsys, *arguments: str) -> str:
    """Standard output of a command that must succeed."""
    assert cli.main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def resnet_plan(**settings):
    return plan(zoo.get("resnet")(10, depth=20, image_shape=(3, 32, 32)), {"data": (8, 3, 32, 32)}, **settings)


def test_plan_prints_naive_lower_bound_and_planned_bytes(capsys):
    text = run(capsys, "plan", *RESNET)
    assert all(word in text for word in ("naive", "lower bound", "planned", "activation", "compile"))


@pytest.mark.parametrize("program, optimizer", [("step", "sgd"), ("train", None), ("eval", None)])
def test_json_is_one_object_with_the_figures_of_the_plan(capsys, program, optimizer):
    figures = json.loads(run(capsys, "plan", *RESNET, "--program", program, "--json"))
    made = resnet_plan(optimizer=optimizer, program=program)
    assert figures["planned_bytes"] == made.planned_bytes
    assert (figures["nodes"], figures["naive_bytes"]) == (made.figures.nodes, made.figures.naive_bytes)
    assert figures["lower_bound_bytes"] <= figures["planned_bytes"] and figures["host_bytes"] == 0
    assert sum(figures["by_class"].values()) <= figures["planned_bytes"] and figures["compile_seconds"] > 0


def test_the_optimizer_and_its_arguments_reach_the_plan(capsys):
    words = ("plan", *RESNET, "--json", "--optimizer", "adam", "--optimizer-arg", "beta1=0.8")
    made = resnet_plan(optimizer="adam")
    assert json.loads(run(capsys, *words))["planned_bytes"] == made.planned_bytes


def test_a_saved_plan_is_loaded_again(capsys, tmp_path):
    run(capsys, "plan", *RESNET, "--save", str(tmp_path / "step.plan.gz"))
    assert serialize.load(tmp_path / "step.plan.gz").fingerprint == resnet_plan(optimizer="sgd").fingerprint


def test_explain_shows_a_small_network_in_full(capsys):
    text = run(capsys, "explain", "zoo.mlp", "--arg", "hidden=8", "--shape", "data=4,16")
    for stage in ("symbol", "expand", "gradient", "schedule", "share", "pack", "lower", "verify"):
        assert f"== {stage}" in text
    assert "more lines" not in text and "_sgd_update fc1_weight/sgd_update" in text


def test_explain_cuts_a_large_network(capsys):
    text = run(capsys, "explain", *RESNET, "--max-lines", "5")
    assert max(len(section.splitlines()) for section in text.split("\n== ")) <= 5 + 3


def test_networks_come_from_files_too(capsys, tmp_path):
    symbol = zoo.get("mlp")(hidden=8)
    symbol.save(str(tmp_path / "net-symbol.json"))
    (tmp_path / "net.py").write_text("import minigraph as mx\n"
                                     "def get_symbol(width):\n"
                                     "    x = mx.sym.FullyConnected(mx.sym.Variable('data'), num_hidden=width)\n"
                                     "    return mx.sym.SoftmaxOutput(x, name='softmax')\n")
    from_json = json.loads(run(capsys, "plan", str(tmp_path / "net-symbol.json"), "--shape", "data=4,16", "--json"))
    assert from_json["planned_bytes"] == plan(symbol, {"data": (4, 16)}, "sgd").planned_bytes
    run(capsys, "plan", str(tmp_path / "net.py"), "--arg", "width=3", "--shape", "data=4,16")


MLP = ["zoo.mlp", "--shape", "data=4,16"]
BAD = [
    ([], "COMMAND"), (["run"], "invalid choice"), (["plan"], "NETWORK"), (["plan", "zoo.vgg0"], "no network zoo.vgg0"),
    (["plan", "no such thing"], "is no network"), (["plan", "zoo.data"], "get_symbol"), (["plan", "x.py"], "x.py"),
    (["plan", "x-symbol.json"], "x-symbol.json"), (["plan", "zoo.mlp"], "shapes of the inputs"),
    (["plan", "zoo.mlp", "--shape", "data"], "is no shape"),
    (["plan", "zoo.mlp", "--shape", "data=4,0"], "is no shape"),
    (["plan", *MLP, "--shape", "data=4,17"], "twice"), (["plan", *MLP, "--arg", "width"], "is no setting"),
    (["plan", *MLP, "--arg", "a=1", "--arg", "a=2"], "twice"), (["plan", *MLP, "--arg", "depth=3"], "depth"),
    (["plan", *MLP, "--arg", "hidden='x'"], "get_symbol failed"), (["plan", *MLP, "--optimizer", "best"], "best"),
    (["plan", *MLP, "--optimizer-arg", "speed=1"], "speed"), (["plan", *MLP, "--program", "update"], "invalid choice"),
    (["plan", *MLP, "--program", "eval", "--optimizer", "sgd"], "takes no optimizer"),
    (["plan", *MLP, "--memory", "tight"], "memory mode 'tight'"), (["plan", *MLP, "--budget", "some"], "budget"),
    (["plan", *MLP, "--save", "/no/such/folder/x"], "/no/such"),
    (["plan", "zoo.mlp", "--shape", "date=4,16"], "'date' is no argument"),
    (["plan", "zoo.resnet", "--arg", "depth=21", "--shape", "data=1,3,32,32"], "depth 21"),
    (["plan", "zoo.lenet", "--shape", "data=1,1,8,8"], "too small"),
    (["explain", *MLP, "--max-lines", "x"], "--max-lines"),
    (["plan", "zoo.mlp", "--shape", "data=9223372036854775807,16"], "that can be planned"),
]


@pytest.mark.parametrize("words, reason", BAD, ids=[" ".join(words) or "nothing" for words, _ in BAD])
def test_bad_input_gives_one_line_and_exit_code_2(words, reason, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    try:
        code = cli.main(words)
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2 and captured.out == ""
    assert captured.err.count("\n") == 1 and reason in captured.err and captured.err.startswith("minigraph")


@pytest.mark.parametrize("source, reason", [
    ("def get_symbol(:", "cannot be run: SyntaxError"), ("1 / 0", "ZeroDivisionError"),
    ("x = 1", "no function get_symbol"),
    ("def get_symbol(): return 3", "returned a int"), ("def get_symbol(n): pass", "missing a required argument")])
def test_a_python_file_that_gives_no_symbol_is_refused_in_one_line(source, reason, capsys, tmp_path):
    path = tmp_path / "net.py"
    path.write_text(source)
    assert cli.main(["plan", str(path), "--shape", "data=1,2"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and reason in error


def test_settings_are_literals_and_else_texts():
    assert parse_settings(["a=1", "b=2,3", "c=x y", "d='4'", "e=None", "f="]) == {
        "a": 1, "b": (2, 3), "c": "x y", "d": "4", "e": None, "f": ""}
    assert parse_shapes(["data=1,2", "label=(3,)"]) == {"data": (1, 2), "label": (3,)}


def test_an_image_shape_is_taken_from_the_data_unless_given():
    small = load_network("zoo.resnet", {"depth": 20}, {"data": (2, 1, 8, 8)})
    assert small.infer_shape(data=(2, 1, 8, 8))[1] == [(2, 1000)]
    with pytest.raises(mx.MXNetError, match="known depths"):
        load_network("zoo.resnet", {"depth": 20, "image_shape": (3, 224, 224)}, {"data": (2, 1, 8, 8)})


def test_the_package_runs_as_a_program_and_a_closed_pipe_is_no_error():
    command = [sys.executable, "-m", "minigraph", "explain", *RESNET, "--max-lines", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "== symbol\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.wait()


def test_version_is_the_packages():
    done = subprocess.run([sys.executable, "-m", "minigraph", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"minigraph {mx.__version__}\n"

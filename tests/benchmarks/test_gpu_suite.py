"""The prepared script for a GPU runs to its end on the software driver, and records what goes wrong."""
from __future__ import annotations

import json
import subprocess
import sys
import time
from math import prod

import pytest

from benchmarks import gpu_suite, gpu_training
from benchmarks.gpu_cases import Case, Options
from benchmarks.gpu_suite import Section
from tests.device.cuda.processes import ROOT, environment

HARM = """
import os, sys, time
from benchmarks import gpu_suite
from benchmarks.gpu_cases import Absent, Case

def cases(options):
    def absent():
        raise Absent("no such thing here")
    def wrong():
        raise AssertionError("one is not two")
    def late():
        time.sleep(600)
    return [Case("right", lambda: {"answer": 42}), Case("absent", absent), Case("wrong", wrong),
            Case("crash", lambda: os._exit(7)), Case("after", lambda: {"answer": 43}), Case("late", late),
            Case("never", lambda: {})]

gpu_suite.SECTIONS = (gpu_suite.Section("harm", 600, cases, FRESH),)
sys.exit(gpu_suite.main())
"""


def suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_suite", *arguments]
    settings = environment(MINIGRAPH_CUDA_DRIVER="software", SOFTCUDA_LEAKS=0)
    return subprocess.run(command, env=settings, cwd=ROOT, capture_output=True, text=True, timeout=900)


def test_a_quick_run_reaches_its_end_and_all_that_can_be_here_is_right(tmp_path):
    done = suite("--out", str(tmp_path), "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [section["name"] for section in report["sections"]] == [section.name for section in gpu_suite.SECTIONS]
    states = {f"{section['name']} {case['case']}": case["status"] for section in report["sections"]
              for case in section["cases"]}
    skipped = {name for name, state in states.items() if state == "skipped"}
    assert skipped <= {"build nvcc", "training tiny: PyTorch"}
    assert set(states.values()) <= {"ok", "skipped"} and len(states) > 25
    text = (tmp_path / "report.md").read_text()
    assert "## wrappers" in text and "mma bf16: ok" in text and "planned_bytes" in text


def run_until_late(command, folder):
    """(exit status, what it said) of a process of HARM, which is ended as late as soon as its late case has begun."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            time.sleep(0.05)
            results = folder / "harm.jsonl"
            if results.is_file() and '"late", "status": "begun"' in results.read_text():
                process.kill()
                return None, ""
        return process.returncode, ""


def harmed(tmp_path, monkeypatch, fresh: bool):
    """The statuses of the cases of HARM, whose processes are started as those of a section are."""
    script = tmp_path / "harm.py"
    script.write_text(HARM.replace("FRESH", str(fresh)))
    monkeypatch.setattr(gpu_suite, "_run", lambda command, seconds: run_until_late(
        [command[0], str(script), *command[3:]], tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    section = Section("harm", 600, lambda options: [], fresh)
    records = gpu_suite.run_section(section, Options(tmp_path, True, None), ["--out", str(tmp_path), "--quick"])
    return {record["case"]: record for record in records}


def test_a_process_that_takes_too_long_is_ended():
    assert gpu_suite._run([sys.executable, "-c", "import time; time.sleep(600)"], 1) == (None, "")


@pytest.mark.parametrize("fresh", [False, True])
def test_a_case_that_fails_crashes_or_hangs_is_recorded_and_the_others_run(tmp_path, monkeypatch, fresh):
    records = harmed(tmp_path, monkeypatch, fresh)
    states = {name: record["status"] for name, record in records.items()}
    assert states == {"right": "ok", "absent": "skipped", "wrong": "failed", "crash": "crashed", "after": "ok",
                      "late": "late", "": "not run"}
    assert records["after"]["values"] == {"answer": 43} and "one is not two" in records["wrong"]["error"]


def test_a_report_shows_errors_and_figures():
    cases = [{"case": "a", "status": "ok", "values": {"ms": 1.23456}}, {"case": "b", "status": "failed", "error": "no"}]
    text = gpu_suite.markdown({"started": "now", "seconds": 1, "driver": "real", "quick": False,
                               "sections": [{"name": "s", "seconds": 1.0, "cases": cases}]})
    assert "| s | 1 | 0 | 1 | 1.0 |" in text and "- a: ok — ms 1.235" in text and "- b: failed — no" in text


@pytest.mark.parametrize("network", [gpu_training.RESNET20, gpu_training.RESNET50], ids=lambda network: network.name)
def test_the_network_in_pytorch_has_the_parameters_of_the_symbol(network):
    torch = pytest.importorskip("torch")
    symbol = network.symbol()
    shapes, _, _ = symbol.infer_shape(**network.shapes)
    count = sum(prod(shape) for name, shape in zip(symbol.list_arguments(), shapes, strict=True)
                if name not in network.shapes)
    module = gpu_training.torch_network(torch, network)
    assert sum(parameter.numel() for parameter in module.parameters()) == count


def test_the_times_of_all_sections_are_five_minutes_at_most():
    assert sum(section.seconds for section in gpu_suite.SECTIONS) <= 300


def test_an_unknown_section_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        gpu_suite.main(["--out", str(tmp_path), "--sections", "nothing"])
    assert "there is no section 'nothing'" in capsys.readouterr().err
    assert Case("x", dict).run() == {}

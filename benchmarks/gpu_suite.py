"""Everything to be checked and timed on a borrowed GPU, in one run of at most five minutes.

    python -m benchmarks.gpu_suite --out DIR [--quick] [--fatbins FOLDER] [--sections NAME,...]

Runs from a checkout, with PyCUDA. A section is a list of cases that run in a process of their own, within a time of
their own: a case that fails, hangs or takes the context down is recorded, and the rest goes on. Results are written to
DIR as they come, one line of JSON a case in DIR/SECTION.jsonl, and together in DIR/report.json and DIR/report.md. The
exit code is 1 when a case failed.

Kernels come from the installation, from `--fatbins` (a folder with FAMILY.fatbin and wrappers.fatbin), or else nvcc
compiles them for the card first, into DIR/_kernels, which `--fatbins` takes another time. `--quick` does a little of
each section; with MINIGRAPH_CUDA_DRIVER=software it proves the script itself.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import gpu_cases, gpu_mapping, gpu_training
from .gpu_cases import Case, Options

CRASHED = 3
"""Exit status of a process whose context no longer answers."""
SOFTWARE_PATIENCE = 10
"""Times a section's seconds under the software driver, where nothing is borrowed, and g++ may build modules first."""
CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Section:
    """Cases of one kind, and the seconds that all of them may take on a GPU; `fresh` gives each its own process."""

    name: str
    seconds: float
    cases: Callable[[Options], list[Case]]
    fresh: bool = False


SECTIONS = (
    Section("build", 75, gpu_cases.build),
    Section("machine", 10, gpu_cases.machine),
    Section("fatbins", 20, gpu_cases.fatbins),
    Section("wrappers", 15, gpu_cases.wrappers),
    Section("operators", 70, gpu_cases.operators),
    Section("launches", 10, gpu_cases.launches),
    Section("overlap", 10, gpu_cases.overlap),
    Section("mapping", 15, gpu_mapping.cases),
    Section("training", 75, gpu_training.cases, fresh=True),
)


# -- the process of a section --------------------------------------------------------------------------------

def run_cases(section: Section, options: Options, first: int) -> int:
    """Run a section's cases from number `first` on, or that one alone; the exit status."""
    cases = section.cases(options)
    with open(options.out / f"{section.name}.jsonl", "a", encoding="utf-8") as file:
        def note(number: int, **what: Any) -> None:
            file.write(json.dumps({"number": number, "case": cases[number].name, **what}, default=str) + "\n")
            file.flush()

        for number in range(first, first + 1 if section.fresh else len(cases)):
            note(number, status="begun", cases=len(cases))
            start = time.perf_counter()
            status, values = _attempt(cases[number])
            note(number, status=status, seconds=round(time.perf_counter() - start, 3), **values)
            if status == "failed" and not gpu_cases.context_answers():
                return CRASHED
    return 0


def _attempt(case: Case) -> tuple[str, dict[str, Any]]:
    try:
        return "ok", {"values": case.run()}
    except gpu_cases.Absent as reason:
        return "skipped", {"error": str(reason)}
    except Exception as error:  # the report says so, and the next case runs
        return "failed", {"error": f"{type(error).__name__}: {error}"}


# -- the process that starts them ----------------------------------------------------------------------------

def run_section(section: Section, options: Options, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The records of a section's cases, each with its status: ok, failed, skipped, crashed, late or not run."""
    path = options.out / f"{section.name}.jsonl"
    path.unlink(missing_ok=True)
    patience = SOFTWARE_PATIENCE if gpu_cases.is_software() else 1
    end, first = time.monotonic() + section.seconds * patience, 0
    while True:
        command = [sys.executable, "-m", "benchmarks.gpu_suite", *arguments, "--child", section.name, str(first)]
        ending, said = _run(command, end - time.monotonic())
        records, total = _read(path)
        done = max(records, default=-1) + 1
        if ending == 0 and (done >= total or not section.fresh):
            return _in_order(records, total)
        if ending != 0 and (done == first or records[done - 1]["status"] == "begun"):
            if done == first:                       # it ended before its first case
                records.setdefault(first, {"number": first, "case": section.name})
                done = first + 1
            records[done - 1] |= {"status": "late" if ending is None else "crashed", "error": said[-2000:]}
            _append(path, records[done - 1])
        if ending is None or done >= total or time.monotonic() >= end:
            return _in_order(records, total)
        first = done


def _run(command: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """(exit status, None if it had to be stopped; the end of what it said)."""
    try:
        done = subprocess.run(command, cwd=CHECKOUT, timeout=max(seconds, 1), capture_output=True, text=True)
    except subprocess.TimeoutExpired as stopped:
        said = stopped.stderr or b""
        return None, said.decode(errors="replace") if isinstance(said, bytes) else said
    return done.returncode, done.stdout + done.stderr


def _read(path: Path) -> tuple[dict[int, dict[str, Any]], int]:
    """(the last record of each case by number, the number of cases)."""
    records: dict[int, dict[str, Any]] = {}
    total = 0
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            total = max(total, record.pop("cases", 0))
            records[record["number"]] = record
    return records, total


def _append(path: Path, record: dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def _in_order(records: dict[int, dict[str, Any]], total: int) -> list[dict[str, Any]]:
    missing = {"case": "", "status": "not run"}
    return [records.get(number, {"number": number, **missing}) for number in range(max(total, len(records)))]


# -- the report ----------------------------------------------------------------------------------------------

BAD = ("failed", "crashed", "late", "not run")


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = ["# GPU suite", "", f"{report['started']}, {report['seconds']:.0f} s, driver {report['driver']}"
             f"{', quick' if report['quick'] else ''}", "", "| section | ok | skipped | bad | seconds |",
             "| --- | --- | --- | --- | --- |"]
    for section in report["sections"]:
        states = [case["status"] for case in section["cases"]]
        bad = sum(state in BAD for state in states)
        lines.append(f"| {section['name']} | {states.count('ok')} | {states.count('skipped')} | {bad} | "
                     f"{section['seconds']:.1f} |")
    for section in report["sections"]:
        lines += ["", f"## {section['name']}", ""]
        for case in section["cases"]:
            said = case.get("error") or _figures(case.get("values") or {})
            lines.append(f"- {case['case'] or case['number']}: {case['status']}{f' — {said}' if said else ''}")
    return "\n".join(lines) + "\n"


def _figures(values: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    return ", ".join(f"{name} {text(value)}" for name, value in values.items())


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 1 when a case failed."""
    parser = argparse.ArgumentParser(prog="gpu_suite", description="Check and time minigraph on a GPU.")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="a little of each section")
    parser.add_argument("--fatbins", metavar="FOLDER", type=Path, help="kernels that are compiled already")
    parser.add_argument("--sections", metavar="NAMES", help="only these, with commas between")
    parser.add_argument("--child", nargs=2, metavar=("SECTION", "FIRST"), help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    options = Options(out, given.quick, given.fatbins.resolve() if given.fatbins else None)
    known = {section.name: section for section in SECTIONS}
    if given.child:
        return run_cases(known[given.child[0]], options, int(given.child[1]))
    wanted = given.sections.split(",") if given.sections else list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"there is no section {unknown[0]!r}; choose from {', '.join(known)}")
    arguments = ["--out", str(out), *(["--quick"] if given.quick else []),
                 *(["--fatbins", str(options.fatbins)] if options.fatbins else [])]
    report: dict[str, Any] = {
        "benchmark": "gpu_suite", "quick": given.quick, "started": time.strftime("%Y-%m-%d %H:%M:%S"), "seconds": 0.0,
        "driver": os.environ.get("MINIGRAPH_CUDA_DRIVER") or "real", "sections": []}
    begin = time.monotonic()
    for name in wanted:
        start = time.monotonic()
        cases = run_section(known[name], options, arguments)
        report["sections"].append({"name": name, "seconds": time.monotonic() - start, "cases": cases})
        report["seconds"] = time.monotonic() - begin
        (out / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        (out / "report.md").write_text(markdown(report), encoding="utf-8")
    print((out / "report.md").read_text(encoding="utf-8"))
    return int(any(case["status"] in BAD for section in report["sections"] for case in section["cases"]))


if __name__ == "__main__":
    sys.exit(main())

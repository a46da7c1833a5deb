"""Published tables of memory strategies beside minigraph's policies of the same names, and beside `auto`.

    python -m benchmarks.published [--quick] [--only TEXT] [--json FILE] [--markdown FILE]

Each figure is the largest batch or depth that a system reached on its machine, or the bytes that it took. A policy is
asked for the least bytes at the published size, and for the largest size within the same capacity, by its candidates'
quick counts; the size found is then planned, packed and verified. `auto` is asked as `mg.plan` with the capacity as its
budget asks it. `--quick` asks for the published sizes of some figures alone. Files are written anew after each figure;
the deep networks come last. All seconds are processor time.
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from . import reproduced
from .bench import Bench, Row
from .page import format_row, markdown, summary
from .tables import FIGURES


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="published", description="Published tables beside minigraph's policies.")
    parser.add_argument("--quick", action="store_true", help="the published sizes alone, of some figures")
    parser.add_argument("--only", default="", metavar="TEXT", help="figures whose table, network or system has it")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file")
    parser.add_argument("--markdown", metavar="FILE", help="write a page about them")
    given = parser.parse_args(argv)
    chosen = [f for f in FIGURES if (f.quick or not given.quick)
              and given.only in f"{f.table} / {f.network} / {f.system}"]
    if not chosen:
        parser.error(f"no figure has {given.only!r}")
    bench, lines = Bench(), reproduced.lines()
    rows: list[Row] = []
    print("\n".join(lines), flush=True)

    def note(row: Row) -> None:
        print(f"{row.seconds:6.1f} s  {row.figure.table} {format_row(row)}", flush=True)
        seconds = time.process_time()
        if given.json:
            document = {"summary": summary(rows), "quick": given.quick, "seconds": seconds, "reproduced": lines,
                        "figures": [asdict(each) for each in rows]}
            Path(given.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if given.markdown:
            Path(given.markdown).write_text(markdown(rows, lines, seconds, given.quick), encoding="utf-8")
    for figure in chosen:
        rows.append(bench.measure(figure))
        note(rows[-1])
    for row in () if given.quick else rows:
        bench.search(row)
        note(row)
    found = summary(rows)
    print(json.dumps(found, indent=1))
    return int(bool(found["missed"] or found["full_behind"]))


if __name__ == "__main__":
    sys.exit(main())

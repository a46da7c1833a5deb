"""The comparison of steps with and without encodings."""
from __future__ import annotations

import json

from benchmarks import encodings
from benchmarks.cases import Case


def test_planned_bytes_are_listed_beside_each_other(tmp_path, capsys):
    file = tmp_path / "rows.json"
    assert encodings.main(["--only", "squeezenet 1.1", "--json", str(file)]) == 0
    row, = json.loads(file.read_text())
    assert row["encoded_bytes"] < row["whole_bytes"]
    assert f"| {row['encoded_bytes'] / row['whole_bytes']:.3f} |" in capsys.readouterr().out


def test_steps_of_both_forms_are_timed():
    case = Case("small", "zoo.squeezenet", (1, 3, 64, 64), {"num_classes": 10})
    assert min(list(encodings.timed(case, 1).values())[2:]) > 0

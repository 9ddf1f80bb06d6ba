"""The table and the picture of the 100-round runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tools.draw_results import RESULTS, draw, read_runs, tabulate


def write(results: Path, name: str, method: str, accuracy: Sequence[float]) -> None:
    rows = [
        {"method": method, "seed": 0, "accuracy": value, "seconds": round_} for round_, value in enumerate(accuracy)
    ]
    (results / name).mkdir(parents=True)
    (results / name / "results.jsonl").write_text("\n".join(map(json.dumps, rows)))


def test_runs_are_compared_with_fedavgs_last_round_and_fedsscs_target(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.6, *[0.5] * 98, 0.6])
    write(tmp_path, "cifar10-moon-0", "moon", [0.5, 0.59, 0.55, 0.6, 0.7])
    write(tmp_path, "cifar10-pooled-0", "pooled", [0.4])
    assert tabulate(read_runs(tmp_path))[2:] == [
        "| `cifar10-fedavg-0` | 100 | 60.0 | 51.0 | 60.0 (1) | round 1 | not reached | 50 |",
        "| `cifar10-moon-0` | 5 | 70.0 | 58.8 | 70.0 (5) | round 4 | round 5 | 2 |",
        "| `cifar10-pooled-0` | 1 | 40.0 | 40.0 | 40.0 (1) | not reached | not reached | 0 |",
    ]


def test_nothing_is_compared_before_fedavg_has_finished(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.5])
    only = "| `cifar10-fedavg-0` | 1 | 50.0 | 50.0 | 50.0 (1) | not reached | not reached | 0 |"
    assert tabulate(read_runs(tmp_path))[2:] == [only]


def test_the_page_has_the_table_of_the_runs_on_record() -> None:
    assert "\n".join(tabulate(read_runs(RESULTS))) in Path("docs/results.md").read_text()


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.5, 0.6])
    draw(read_runs(tmp_path), tmp_path / "runs.png")
    assert (tmp_path / "runs.png").stat().st_size


def test_solo_has_parties_instead_of_rounds_and_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.5])
    (tmp_path / "cifar10-solo-0").mkdir()
    party = {"method": "solo", "seed": 0, "party": "party-1", "accuracy": 0.4}
    (tmp_path / "cifar10-solo-0" / "results.jsonl").write_text(json.dumps(party))
    assert [run.name for run in read_runs(tmp_path)] == ["cifar10-fedavg-0"]

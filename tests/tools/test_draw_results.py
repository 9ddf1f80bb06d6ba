"""The table and the picture of the 100-round runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tools.draw_results import RESULTS, draw, read_runs, tabulate, tabulate_by_tens


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


def test_the_accuracies_of_every_ten_rounds_are_averaged_for_finished_runs(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [number // 10 / 10 + 0.01 * (number % 2) for number in range(100)])
    write(tmp_path, "cifar10-moon-0", "moon", [0.5] * 99)
    means = "0.5 | 10.5 | 20.5 | 30.5 | 40.5 | 50.5 | 60.5 | 70.5 | 80.5 | 90.5"
    assert tabulate_by_tens(read_runs(tmp_path)) == [f"| `cifar10-fedavg-0` | {means} |"]


def test_the_page_has_the_curves_that_are_compared_with_the_authors() -> None:
    page = Path("docs/results.md").read_text().splitlines()
    lines = {line.split("`")[1]: line for line in tabulate_by_tens(read_runs(RESULTS))}
    for name in ("cifar10-moon-0", "cifar10-moon-1", "cifar10-fedprox-0"):
        assert lines[name] in page


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

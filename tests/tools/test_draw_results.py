"""The table and the picture of the 100-round runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.draw_results import (
    RESULTS,
    draw,
    read_runs,
    seed_deviation,
    tabulate,
    tabulate_by_tens,
    tabulate_methods,
    trials_needed,
)


def write(results: Path, name: str, method: str, accuracy: Sequence[float]) -> None:
    seed = int(name.rpartition("-")[2])
    rows = [
        {"method": method, "seed": seed, "accuracy": value, "seconds": round_} for round_, value in enumerate(accuracy)
    ]
    (results / name).mkdir(parents=True)
    (results / name / "results.jsonl").write_text("\n".join(map(json.dumps, rows)))


def test_runs_are_compared_with_fedavgs_last_round_and_fedsscs_target(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.6, *[0.5] * 98, 0.6])
    write(tmp_path, "cifar10-moon-0", "moon", [0.5, 0.59, 0.55, 0.6, 0.7, 0.6])
    write(tmp_path, "cifar10-pooled-0", "pooled", [0.4])
    write(tmp_path, "cifar10-scaffold-0", "scaffold", [0.4, 0.62])
    assert tabulate(read_runs(tmp_path))[2:] == [
        "| `cifar10-fedavg-0` | 100 | 60.0 | 51.0 | 60.0 (1) | round 1 (never) | 1 | not reached | 50 |",
        "| `cifar10-moon-0` | 6 | 60.0 | 59.0 | 70.0 (5) | round 4 (6) | 4 | round 5 (never) | 2 |",
        "| `cifar10-pooled-0` | 1 | 40.0 | 40.0 | 40.0 (1) | not reached |  | not reached | 0 |",
        "| `cifar10-scaffold-0` | 2 | 62.0 | 51.0 | 62.0 (2) | round 2 (never) | 4 | not reached | 0 |",
    ]


def test_trials_are_averaged_by_method_and_compared_with_fedavgs_of_the_same_seeds(tmp_path: Path) -> None:
    for name, last in {
        "fedavg-0": 0.6, "fedavg-1": 0.62, "moon-0": 0.63, "moon-1": 0.66, "moon-2": 0.9, "moon-mu1-0": 0.5,
    }.items():  # fmt: skip
        write(tmp_path, f"cifar10-{name}", name.split("-")[0], [*[0.5] * 99, last])
    write(tmp_path, "cifar10-moon-3", "moon", [0.5])  # unfinished
    runs = read_runs(tmp_path)
    assert tabulate_methods(runs)[2:] == [
        "| `cifar10-fedavg` | 2 | 61.0 ± 1.4 | 51.1 ± 0.1 |  |  |",
        "| `cifar10-moon` | 3 | 73.0 ± 14.8 | 52.3 ± 1.5 | +3.5 ± 0.7 | 2 |",
        "| `cifar10-moon-mu1` | 1 | 50.0 | 50.0 | -10.0 | 1 |",
    ]
    assert seed_deviation(runs) == pytest.approx(((2.0**2 / 2 + 2 * 14.7986**2) / 3) ** 0.5, rel=1e-3)


def test_fewer_trials_detect_a_larger_difference() -> None:
    assert [trials_needed(points, 1.2) for points in (0.7, 1.4, 2.8)] == [47, 12, 3]


def test_nothing_is_compared_before_fedavg_has_finished(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.5])
    only = "| `cifar10-fedavg-0` | 1 | 50.0 | 50.0 | 50.0 (1) | not reached |  | not reached | 0 |"
    assert tabulate(read_runs(tmp_path))[2:] == [only]


def test_the_page_has_the_tables_of_the_runs_on_record() -> None:
    page, runs = Path("docs/results.md").read_text(), read_runs(RESULTS)
    assert "\n".join(tabulate(runs)) in page
    assert "\n".join(tabulate_methods(runs)) in page
    prose, deviation = " ".join(page.split()), seed_deviation(runs)
    assert f"That deviation is {deviation:.1f} points" in prose
    for points, claim in {2.8: "MOON over FedAvg", 0.7: "FedSSC over MOON", 0.3: "SCAFFOLD over FedAvg"}.items():
        assert f"{trials_needed(points, deviation)} for {points} ({claim})" in prose


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
    for seed in (0, 1):
        write(tmp_path, f"cifar10-fedavg-{seed}", "fedavg", [0.5, 0.6] * 50)
    draw(read_runs(tmp_path), tmp_path / "runs.png")
    assert (tmp_path / "runs.png").stat().st_size


def test_solo_has_parties_instead_of_rounds_and_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.5])
    (tmp_path / "cifar10-solo-0").mkdir()
    party = {"method": "solo", "seed": 0, "party": "party-1", "accuracy": 0.4}
    (tmp_path / "cifar10-solo-0" / "results.jsonl").write_text(json.dumps(party))
    assert [run.name for run in read_runs(tmp_path)] == ["cifar10-fedavg-0"]

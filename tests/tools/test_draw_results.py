"""The table and the picture of the 100-round runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tools.draw_results import draw, read_runs, tabulate


def write(results: Path, name: str, method: str, accuracy: Sequence[float]) -> None:
    lines = [json.dumps({"method": method, "seed": 0, "accuracy": value}) for value in accuracy]
    (results / name).mkdir(parents=True)
    (results / name / "results.jsonl").write_text("\n".join(lines))


def test_runs_are_compared_with_fedavgs_last_round(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.6, *[0.5] * 98, 0.6])
    write(tmp_path, "cifar10-moon-0", "moon", [0.5, 0.59, 0.55, 0.6, 0.7])
    write(tmp_path, "cifar10-pooled-0", "pooled", [0.4])
    _, fedavg, moon, pooled = tabulate(read_runs(tmp_path))
    assert " ".join(fedavg.split()) == "cifar10-fedavg-0 100 60.00 51.00 60.00 round 100, 1.0 times as fast"
    assert " ".join(moon.split()) == "cifar10-moon-0 5 70.00 58.80 70.00 round 4, 25.0 times as fast"
    assert pooled.endswith("not yet")


def test_nothing_is_compared_before_fedavg_has_finished(tmp_path: Path) -> None:
    write(tmp_path, "cifar10-fedavg-0", "fedavg", [0.5])
    assert "times" not in "".join(tabulate(read_runs(tmp_path)))


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

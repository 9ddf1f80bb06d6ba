"""The picture of curves: which series are in it, and that it is a picture."""

from __future__ import annotations

from pathlib import Path

from moonfed.coordinator.trackers.curve_picture import CURVES, curves, draw_curves
from moonfed.coordinator.trackers.snapshot import Point, RunSnapshot


def snapshot(*points: Point) -> RunSnapshot:
    return RunSnapshot(run="$x$", identity="a", status="running", created=1.0, parameters={}, points=points)


def test_losses_share_a_diagram(tmp_path: Path) -> None:
    found = snapshot(
        Point(2, "loss", 0.5, 1.0), Point(1, "loss", 0.7, 1.0), Point(1, "train_loss", 0.1, 1.0),
        Point(1, "loss@night", 0.9, 1.0), Point(1, "accuracy", 0.9, 1.0), Point(1, "updates", 3.0, 1.0),
    )  # fmt: skip
    assert curves(found, "loss") == {
        "loss": ([1, 2], [0.7, 0.5]),
        "loss@night": ([1], [0.9]),
        "train_loss": ([1], [0.1]),
    }
    assert draw_curves(tmp_path / "curves.png", found)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    assert not draw_curves(tmp_path / "curves.png", snapshot(Point(1, "updates", 3.0, 1.0)))
    assert not (tmp_path / "curves.png").exists()
    many = snapshot(*(Point(1, f"loss@{number}", 1.0, 1.0) for number in range(20)))
    assert len(curves(many, "loss")) == CURVES
